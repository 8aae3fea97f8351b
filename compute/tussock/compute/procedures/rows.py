"""Tuples on their way: what users give as Arrow tables of a stream's schema, and as bytes of the input log."""

import array
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.types as pt

from tussock.compute.applications.ipc_streams import ipc_bytes, ipc_table
from tussock.statestore.base.damage import UNREADABLE
from tussock.statestore.errors import CorruptLog, SchemaMismatch
from tussock.statestore.rows.row_codec import RowCodec
from tussock.statestore.tables.packed_columns import check_unpacked
from tussock.statestore.tables.typed_input import conform

__all__ = ["TupleShape", "arrow_rows", "from_bytes", "is_plain", "plain_rows", "to_bytes", "to_table"]

Row = dict[str, Any]

_PLAIN = frozenset((bool, int, float, str, bytes, type(None)))
_FEW_ROWS = 64
_AS_COLUMNS = 8
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[dict[str, Any]]).decode
_AS_DICTS, _AS_ARROW = b"D", b"A"


class TupleShape:
    """A schema, prepared for a few rows at a time."""

    def __init__(self, schema: pa.Schema, what: str) -> None:
        """`what` stands in messages for a table's name."""
        self.schema = schema
        self.empty = schema.empty_table()
        self._what = what
        self._columns = [(field.name, field.type) for field in schema]
        self._required = [at for at, field in enumerate(schema) if not field.nullable]
        self._struct = pa.struct(list(schema))
        codes = [_code(kind) for _, kind in self._columns]
        self._codes = None if "" in codes or not codes else codes
        self._codec = RowCodec.of(schema, ())

    def table(self, rows: Any) -> pa.Table:
        """Rows in any form as a table of the schema; `SchemaMismatch` says which column does not fit."""
        is_same = isinstance(rows, pa.Table) and rows.schema.equals(self.schema)
        if is_same and not any(rows.column(at).null_count for at in self._required):
            return rows
        if type(rows) is list and len(rows) <= _FEW_ROWS:
            table = self._of_dicts(rows)
            if table is not None:
                return table
        try:
            given = _arrow(rows, self._what)
            if not isinstance(given, list):
                check_unpacked(given, self.schema, self._what)
            batch = conform(given, self.schema, (), self._what)
        except SchemaMismatch as error:
            raise SchemaMismatch(str(error).replace(f"table {self._what!r}", self._what)) from error
        return pa.Table.from_arrays(batch.columns, schema=self.schema)

    def of_rows(self, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
        """Rows that came from tables of this schema."""
        if self._codes is not None:
            table = self._of_numbers(rows, self._codes)
            if table is not None:
                return table
        if len(rows) < _AS_COLUMNS:
            # One call of Arrow takes 5 us, whatever the number of columns.
            return pa.Table.from_struct_array(pa.array(rows, self._struct))
        arrays = [pa.array([row[name] for row in rows], kind) for name, kind in self._columns]
        return pa.Table.from_arrays(arrays, schema=self.schema)

    def _of_numbers(self, rows: Sequence[Mapping[str, Any]], codes: Sequence[str]) -> pa.Table | None:
        """Rows of numbers by way of their bytes, which takes a third of Arrow's conversion; `None` if one is null."""
        count = len(rows)
        try:
            columns = [
                pa.Array.from_buffers(kind, count, [None, pa.py_buffer(array.array(code, [row[name] for row in rows]))])
                for (name, kind), code in zip(self._columns, codes, strict=True)
            ]
        except TypeError:
            return None
        return pa.Table.from_arrays(columns, schema=self.schema)

    def _of_dicts(self, rows: list[Any]) -> pa.Table | None:
        if not rows:
            return self.empty
        if self._codec is None:
            return None
        checked = [self._codec.row(row) for row in rows]
        if None in checked:
            return None
        return self.of_rows(checked)  # type: ignore[arg-type]  # there is no None among them


def _code(kind: Any) -> str:
    """The type code of `array.array` whose bytes are a column's of this type; empty for types without one."""
    if pt.is_int64(kind):
        return "q"
    return "d" if pt.is_float64(kind) else ""


def _arrow(rows: Any, what: str) -> Any:
    """Frames as Arrow; lists of dicts and Arrow as they are."""
    if isinstance(rows, pa.Table | pa.RecordBatch | list):
        return rows
    if hasattr(rows, "__arrow_c_stream__"):
        return pa.table(rows)
    raise SchemaMismatch(f"{what}: {type(rows).__name__} is not rows; expected Arrow data, a frame or a list of dicts")


def to_table(rows: Any, shape: TupleShape | None, what: str) -> pa.Table:
    """What a client gives as a table; without a shape of the types that Arrow finds."""
    if shape is not None:
        return shape.table(rows)
    given = _arrow(rows, what)
    if isinstance(given, pa.RecordBatch):
        return pa.Table.from_batches([given])
    if isinstance(given, pa.Table):
        return given
    if not all(type(row) is dict for row in given):
        raise SchemaMismatch(f"{what}: expected a list of dicts, one for each row")
    names = list(dict.fromkeys(name for row in given for name in row))
    if not all(isinstance(name, str) for name in names):
        wrong = next(name for name in names if not isinstance(name, str))
        raise SchemaMismatch(f"{what}: a row has the column {wrong!r:.100}; expected names of columns as text")
    if given and not names:
        raise SchemaMismatch(f"{what}: {len(given):,} rows without any column; expected [] for a batch without rows")
    try:
        # Of all rows: `Table.from_pylist` takes those of the first one, and drops the rest.
        return pa.table({name: pa.array([row.get(name) for row in given]) for name in names})
    except (pa.ArrowException, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise SchemaMismatch(f"{what}: these rows have no common types: {error}") from error


def to_bytes(rows: Any, table: pa.Table, what: str) -> bytes:
    """What the log keeps of rows that `to_table` took: plain dicts as they are, else Arrow's IPC stream."""
    if type(rows) is list and rows and len(rows) <= _FEW_ROWS and all(is_plain(row) for row in rows):
        return _AS_DICTS + plain_rows(rows, what)
    return _AS_ARROW + arrow_rows(table, what)


def arrow_rows(table: pa.Table, what: str) -> bytes:
    """Rows as Arrow's IPC stream; `SchemaMismatch` for types that nest deeper than Arrow reads."""
    try:
        return ipc_bytes(table)
    except pa.ArrowException as error:
        raise SchemaMismatch(f"{what}: these rows cannot be recorded: {error}") from error


def plain_rows(rows: list[Row], what: str) -> bytes:
    """Plain rows as MessagePack; `SchemaMismatch` for text or a name that is no UTF-8."""
    try:
        return _encode(rows)
    except ValueError as error:
        raise SchemaMismatch(f"{what}: these rows cannot be recorded: {error}") from error


def is_plain(row: Any) -> bool:
    """Whether MessagePack has all values of the row just as they are."""
    return all(type(value) in _PLAIN for value in row.values()) and all(
        -(1 << 63) <= value < 1 << 63 for value in row.values() if type(value) is int
    )


def from_bytes(data: bytes, shape: TupleShape | None, what: str) -> pa.Table:
    """The table that was given; `CorruptLog` if the bytes hold none."""
    try:
        if data[:1] == _AS_DICTS:
            return to_table(_decode(data[1:]), shape, what)
        return ipc_table(pa.py_buffer(data)[1:])
    except (*UNREADABLE, pa.ArrowException) as error:
        raise CorruptLog(f"{what}: the rows in its record cannot be read: {error}") from error
