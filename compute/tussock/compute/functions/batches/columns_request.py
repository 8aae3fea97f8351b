"""The requests of one caller for one batch function: checked, and as the input log has them."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import pyarrow as pa

from tussock.compute.applications.ipc_streams import ipc_bytes, ipc_table
from tussock.compute.functions.errors import FunctionFault
from tussock.compute.functions.program.columns import checked_keys, checked_table
from tussock.compute.functions.program.context import Entity
from tussock.compute.functions.program.directory import Operators
from tussock.compute.functions.program.operators import Function
from tussock.statestore.rows.conversion import Misfit, convert, same_kind

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
    texts: Mapping[int, str] = MappingProxyType({})
    """Of a replay: by which text a row was aborted when it ran first."""

    @property
    def name(self) -> str:
        """`OPERATOR.FUNCTION`."""
        return f"{self.function.operator}.{self.function.name}"


def columns_request(operators: Operators, number: int, function: Function, keys: Any, columns: Any) -> ColumnsRequest:
    """The requests of a caller; `FunctionFault` says what does not fit."""
    what = function.title
    keys = checked_keys(keys, what)
    table = _table(columns, len(keys), what)
    if len(keys) > ROWS_MAX or table.nbytes > BYTES_MAX:
        raise FunctionFault(
            f"{what}: {len(keys):,} requests of {table.nbytes:,} bytes; at most {ROWS_MAX:,} of 64 MiB fit"
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
    return ipc_bytes(table)


def from_bytes(operators: Operators, name: str, data: bytes) -> ColumnsRequest:
    """The request that `to_bytes` wrote, of the function `name`, which is `OPERATOR.FUNCTION`."""
    # An operator's name has no dot, and that of a function may.
    operator, _, named = name.partition(".")
    number, function = operators.function(operator, named)
    table = ipc_table(data)
    return columns_request(operators, number, function, table.column(0), table.select(range(1, table.num_columns)))


def _entities(operators: Operators, number: int, keys: Any, what: str) -> list[Entity]:
    if not len(keys):
        # Nobody has said of which type they are.
        return []
    if not isinstance(keys, list):
        kind = operators.all[number].key_type
        try:
            # Of the same kind only: a number is no text, which the check below says of the first one.
            of_kind, parts = same_kind(keys.type, kind), keys.chunks if isinstance(keys, pa.ChunkedArray) else [keys]
            keys = [key for part in parts for key in (convert(part, kind) if of_kind else part).to_pylist()]
        except (Misfit, pa.ArrowException, ValueError, OverflowError) as error:
            raise FunctionFault(f"{what}: keys of type {keys.type}; expected {kind}: {error}") from error
    found = [(number, key) for key in keys]
    for _, key in found:
        operators.check_key(number, key)
    return found


def _table(columns: Any, rows: int, what: str) -> pa.Table:
    table = checked_table({} if columns is None else columns, what)
    if not table.num_columns:
        # A table without columns would not know how many rows it has.
        table = pa.table({KEY: pa.nulls(rows)})
    if len(set(table.column_names)) < table.num_columns:
        raise FunctionFault(f"{what}: the columns {table.column_names!r:.200} have one name twice")
    if table.num_rows != rows:
        raise FunctionFault(f"{what}: {rows} keys, and columns of {table.num_rows} rows")
    if any(pa.types.is_dictionary(field.type) or pa.types.is_nested(field.type) for field in table.schema):
        raise FunctionFault(f"{what}: its columns are of nested or dictionary types; expected plain ones")
    return table.combine_chunks()
