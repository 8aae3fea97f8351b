"""Runs a batch function on all requests of one caller, in rounds of requests that share no entity."""

import zlib
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from tussock.compute.functions.batches.batch import FunctionBatch, Overlay
from tussock.compute.functions.batches.rounds import rounds
from tussock.compute.functions.entities.entities import Entities
from tussock.compute.functions.epochs.digest import encode_facts
from tussock.compute.functions.errors import FunctionFault
from tussock.compute.functions.program.context import Entity
from tussock.compute.functions.program.directory import Operators
from tussock.compute.functions.program.operators import Function

__all__ = ["BatchRequest", "EndedBatch", "batch_request", "from_bytes", "run_batch", "to_bytes"]

ROWS_MAX = 1_000_000
BYTES_MAX = 64 << 20
KEY = "key"


class BatchRequest(NamedTuple):
    """Requests of one caller for one batch function, checked."""

    function: Function
    columns: pa.Table
    """What the function gets: the caller's columns."""
    entities: dict[str | None, list[Entity]]
    """For each row, by the column that names them; the row's own under `None`."""


class EndedBatch(NamedTuple):
    """What became of a batch."""

    writes: dict[Entity, Any]
    replies: pa.Table
    """`reply` and `error`, for each request."""
    digest: int
    rounds: int
    aborted: int


def batch_request(operators: Operators, number: int, function: Function, keys: Any, columns: Any) -> BatchRequest:
    """The requests of a caller; `FunctionFault` says what does not fit."""
    what = f"function {function.operator}.{function.name}"
    table = _table(columns, len(keys), what)
    if not 0 < len(keys) <= ROWS_MAX or table.nbytes > BYTES_MAX:
        raise FunctionFault(
            f"{what}: {len(keys):,} requests of {table.nbytes:,} bytes; expected 1 to {ROWS_MAX:,}, of at most 64 MiB"
        )
    entities: dict[str | None, list[Entity]] = {None: _entities(operators, number, keys, what)}
    for column, operator in function.touches:
        if column not in table.column_names:
            raise FunctionFault(f"{what}: column {column!r}, whose keys it touches, is missing")
        entities[column] = _entities(operators, operators.number(operator), table.column(column), what)
    return BatchRequest(function, table, entities)


def to_bytes(request: BatchRequest) -> bytes:
    """For the input log: an IPC stream of the keys and the columns."""
    keys = pa.array([key for _, key in request.entities[None]])
    table = pa.Table.from_arrays([keys, *request.columns.columns], names=["", *request.columns.column_names])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def from_bytes(operators: Operators, name: str, data: bytes) -> BatchRequest:
    """The request that `to_bytes` wrote, of the function `name`, which is `OPERATOR.FUNCTION`."""
    number, function = operators.function(*name.split("."))
    with pa.ipc.open_stream(pa.py_buffer(data)) as reader:
        table = reader.read_all()
    return batch_request(operators, number, function, table.column(0), table.select(range(1, table.num_columns)))


def run_batch(entities: Entities, request: BatchRequest) -> EndedBatch:
    """Run the function in rounds; nothing is applied. Raises what the function raises, and `FunctionFault`."""
    overlay = Overlay(entities)
    codes, keys = _codes(request.entities)
    replies: list[Any] = [None] * request.columns.num_rows
    errors: list[str | None] = [None] * request.columns.num_rows
    kinds: set[pa.DataType] = set()
    count = 0
    for rows in rounds(codes, keys):
        count += 1
        is_all = len(rows) == len(replies)
        part = request.columns if is_all else request.columns.take(pa.array(rows))
        picked = rows.tolist()
        own = {of: ones if is_all else [ones[at] for at in picked] for of, ones in request.entities.items()}
        batch = FunctionBatch(overlay, part, own)
        returned = _reply_array(request.function, request.function.code(batch), len(picked))
        batch.apply()
        kinds.add(returned.type)
        for at, reply, error in zip(picked, returned.to_pylist(), batch.errors, strict=True):
            replies[at] = reply if error is None else None
            errors[at] = error
    table = pa.table({"reply": _replies(replies, kinds), "error": pa.array(errors, pa.string())})
    digest = zlib.crc32(encode_facts([list(overlay.writes.items()), replies, errors]))
    return EndedBatch(overlay.writes, table, digest, count, len(errors) - errors.count(None))


def _codes(entities: dict[str | None, list[Entity]]) -> tuple[Any, int]:
    """Numbers of the entities that each row touches."""
    numbers: dict[Entity, int] = {}
    columns = [[numbers.setdefault(one, len(numbers)) for one in ones] for ones in entities.values()]
    return np.array(columns, np.int64).T, len(numbers)


def _entities(operators: Operators, number: int, keys: Any, what: str) -> list[Entity]:
    array = keys if isinstance(keys, pa.Array | pa.ChunkedArray) else pa.array(keys)
    kind = operators.all[number].key_type
    if array.type != kind:
        try:
            array = array.cast(kind)
        except pa.ArrowException as error:
            raise FunctionFault(f"{what}: keys of type {array.type}; expected {kind}") from error
    found = [(number, key) for key in array.to_pylist()]
    for _, key in found:
        operators.check_key(number, key)
    return found


def _table(columns: Any, rows: int, what: str) -> pa.Table:
    try:
        table = pa.table(columns) if columns is not None else pa.table({KEY: pa.nulls(rows)})
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise FunctionFault(f"{what}: its columns are no table: {error}") from error
    if table.num_rows != rows:
        raise FunctionFault(f"{what}: {rows} keys, and columns of {table.num_rows} rows")
    if any(pa.types.is_dictionary(field.type) or pa.types.is_nested(field.type) for field in table.schema):
        raise FunctionFault(f"{what}: its columns are of nested or dictionary types; expected plain ones")
    return table.combine_chunks()


def _reply_array(function: Function, returned: Any, rows: int) -> pa.Array:
    if returned is None:
        return pa.nulls(rows)
    array = returned.combine_chunks() if isinstance(returned, pa.ChunkedArray) else returned
    if not isinstance(array, pa.Array):
        array = pa.array(array)
    if len(array) != rows:
        raise FunctionFault(
            f"function {function.operator}.{function.name} returned {len(array)} replies for {rows} requests"
        )
    return array


def _replies(replies: list[Any], kinds: set[pa.DataType]) -> pa.Array:
    given = {kind for kind in kinds if kind != pa.null()}
    if len(given) > 1:
        raise FunctionFault(f"the replies of a batch function are of several types: {sorted(map(str, given))}")
    return pa.array(replies, *given) if given else pa.nulls(len(replies))
