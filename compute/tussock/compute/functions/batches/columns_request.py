"""The requests of one caller for one batch function: checked, and as the input log has them."""

from typing import Any, NamedTuple

import pyarrow as pa

from tussock.compute.functions.errors import FunctionFault
from tussock.compute.functions.program.context import Entity
from tussock.compute.functions.program.directory import Operators
from tussock.compute.functions.program.operators import Function

__all__ = ["ColumnsRequest", "columns_request", "from_bytes", "to_bytes"]

ROWS_MAX = 1_000_000
BYTES_MAX = 64 << 20
KEY = "key"


class ColumnsRequest(NamedTuple):
    """Requests of one caller for one batch function, checked."""

    function: Function
    columns: pa.Table
    """What the function gets: the caller's columns."""
    entities: dict[str | None, list[Entity]]
    """For each row, by the column that names them; the row's own under `None`."""

    @property
    def name(self) -> str:
        """`OPERATOR.FUNCTION`."""
        return f"{self.function.operator}.{self.function.name}"


def columns_request(operators: Operators, number: int, function: Function, keys: Any, columns: Any) -> ColumnsRequest:
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
    return ColumnsRequest(function, table, entities)


def to_bytes(request: ColumnsRequest) -> bytes:
    """For the input log: an IPC stream of the keys and the columns."""
    keys = pa.array([key for _, key in request.entities[None]])
    table = pa.Table.from_arrays([keys, *request.columns.columns], names=["", *request.columns.column_names])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def from_bytes(operators: Operators, name: str, data: bytes) -> ColumnsRequest:
    """The request that `to_bytes` wrote, of the function `name`, which is `OPERATOR.FUNCTION`."""
    number, function = operators.function(*name.split("."))
    with pa.ipc.open_stream(pa.py_buffer(data)) as reader:
        table = reader.read_all()
    return columns_request(operators, number, function, table.column(0), table.select(range(1, table.num_columns)))


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
