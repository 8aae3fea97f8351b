"""The columns and the key of a stream, prepared to take what users give as records of it."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tussock.compute.changelog.changes.float_keys import as_key, key_value
from tussock.compute.changelog.changes.python_times import check_times, has_times
from tussock.compute.changelog.changes.record import ChangeRecord, Op, op_of
from tussock.statestore.errors import SchemaMismatch
from tussock.statestore.rows.row_codec import RowCodec
from tussock.statestore.tables.packed_columns import check_unpacked
from tussock.statestore.tables.typed_input import conform

__all__ = ["CODES", "DELETES", "OLD", "OP", "StreamShape", "code_of", "words_of"]

OP, OLD = "_op", "_old"
"""Of batches: the operation of a row, and whether it is the second one of an update block, with the old values."""
CODES = {op: at for at, op in enumerate(Op)}
"""Numbers of operations, as arrays and bytes have them."""
DELETES = np.array([CODES[Op.DELETE], CODES[Op.SAFEDELETE]], np.int8)
_WORDS = pa.array([str(op) for op in Op])
_KEY_ONLY = (Op.DELETE, Op.SAFEDELETE)


def code_of(op: Op) -> int:
    """The number of an operation."""
    return CODES[op]


def words_of(codes: npt.NDArray[np.int8]) -> pa.Array:
    """The words of operations."""
    return _WORDS.take(pa.array(codes))


class StreamShape:
    """Checks records and batches of one stream."""

    def __init__(self, stream: str, schema: pa.Schema, key: Sequence[str]) -> None:
        """The schema has the key's columns, not nullable."""
        self.stream = stream
        self.key = tuple(key)
        self.schema = schema
        self.what = f"stream {stream!r}"
        self.relaxed = pa.schema([field.with_nullable(field.name not in key) for field in schema])
        """A delete needs its key only."""
        self.names = schema.names
        self._strict = [field.name for field in schema if not field.nullable]
        self._floats = tuple(name for name in key if pa.types.is_floating(schema.field(name).type))
        self.times = tuple(field.name for field in schema if has_times(field.type))
        """Columns whose values may be beyond Python's."""
        self._codec = RowCodec.of(schema, key)
        self._key_codec = RowCodec.of(self.relaxed, key)

    def key_of(self, row: Mapping[str, Any]) -> Any:
        """The key of a row, as tables take it and dicts can hold it."""
        if self._floats:
            found = tuple([key_value(row[name]) for name in self.key])
            return found[0] if len(found) == 1 else found
        return row[self.key[0]] if len(self.key) == 1 else tuple(row[name] for name in self.key)

    def with_key(self, row: Mapping[str, Any]) -> Mapping[str, Any]:
        """The row with its key as tables have it: of floats one zero and one NaN."""
        if not self._floats:
            return row
        return {**row, **{name: key_value(row[name]) for name in self._floats}}

    def with_keys(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The same for rows of columns."""
        for name in self._floats:
            at = rows.schema.get_field_index(name)
            rows = rows.set_column(at, rows.schema.field(at), as_key(rows.column(at)))
        return rows

    def record(self, given: Any, time: int) -> ChangeRecord:
        """A record with all columns, each of its type; `SchemaMismatch` says which does not fit."""
        if not isinstance(given, ChangeRecord):
            raise SchemaMismatch(
                f"{self.what}: {given!r:.100} is no record; expected insert(), update(), upsert(), delete() or "
                "safedelete() of its columns"
            )
        codec = self._key_codec if given.op in _KEY_ONLY else self._codec
        values = None if codec is None else codec.row(dict(given))
        if values is None:
            values = self._converted(given)
        old = given.old
        if given.op is Op.UPDATE_BLOCK and old is not None:
            old = self.record(ChangeRecord(Op.DELETE, old.values_by_column), time)
        return ChangeRecord(given.op, values, old, time)

    def _converted(self, given: ChangeRecord) -> dict[str, Any]:
        schema = self.relaxed if given.op in _KEY_ONLY else self.schema
        try:
            batch = conform([dict(given)], schema, self.key, self.stream)
            check_times(batch, self.times)
        except SchemaMismatch as error:
            raise SchemaMismatch(f"{self.what}: {given!r:.200}: {_own(error, self.stream)}") from error
        return dict(batch.to_pylist()[0])

    def columns(self, batch: Any) -> tuple[pa.RecordBatch, npt.NDArray[np.int8], npt.NDArray[np.bool_] | None]:
        """Rows, codes, and which rows are old ones, of Arrow data with a column `_op`; `None`: it does not say.

        `SchemaMismatch` for columns that do not fit.
        """
        if isinstance(batch, pa.Table):
            batch = batch.combine_chunks().to_batches()
            batch = batch[0] if batch else self._empty
        if not isinstance(batch, pa.RecordBatch):
            raise SchemaMismatch(f"{self.what}: {type(batch).__name__} is no batch; expected Arrow data with {OP!r}")
        names = batch.schema.names
        if names.count(OP) != 1:
            raise SchemaMismatch(
                f"{self.what}: a batch with the columns {names}; expected one column {OP!r} among them"
            )
        codes = self._codes(batch.column(OP))
        olds = batch.column(OLD) if OLD in names else None
        if olds is not None:
            if not pa.types.is_boolean(olds.type):
                raise SchemaMismatch(f"{self.what}: column {OLD!r} has type {olds.type}; expected bool without nulls")
            self._check_no_nulls(olds, OLD)
        rows = batch.drop_columns([OP] if olds is None else [OP, OLD])
        check_unpacked(rows, self.schema, self.what)
        try:
            rows = conform(rows, self.relaxed, self.key, self.stream)
            whole = ~np.isin(codes, DELETES)
            for name in self._strict:
                if rows.column(name).null_count and name not in self.key:
                    self._check_whole(rows.column(name), whole, name)
            check_times(rows, self.times)
        except SchemaMismatch as error:
            raise SchemaMismatch(f"{self.what}: {_own(error, self.stream)}") from error
        return rows, codes, None if olds is None else np.asarray(olds.to_numpy(zero_copy_only=False), np.bool_)

    def _check_whole(self, column: pa.Array, whole: npt.NDArray[np.bool_], name: str) -> None:
        wrong = np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False) & whole)
        if len(wrong):
            raise SchemaMismatch(f"column {name!r} is null at position {wrong[0]}, which is no delete")

    def _codes(self, words: pa.Array) -> npt.NDArray[np.int8]:
        if pa.types.is_dictionary(words.type):
            words = words.cast(words.type.value_type)
        if not (pa.types.is_string(words.type) or pa.types.is_large_string(words.type)):
            raise SchemaMismatch(f"{self.what}: column {OP!r} has type {words.type}; expected text without nulls")
        self._check_no_nulls(words, OP)
        encoded = words.dictionary_encode()
        codes = []
        for word in encoded.dictionary.to_pylist():
            op = op_of(word)
            if op is None:
                raise SchemaMismatch(
                    f"{self.what}: operation {word!r:.100}; expected one of {[str(one) for one in Op]}"
                )
            codes.append(CODES[op])
        if not codes:
            return np.zeros(0, np.int8)
        return np.array(codes, np.int8)[encoded.indices.to_numpy()]

    def _check_no_nulls(self, column: pa.Array, name: str) -> None:
        if column.null_count:
            at = int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0])
            raise SchemaMismatch(f"{self.what}: column {name!r} is null at position {at}; expected no nulls")

    @property
    def _empty(self) -> pa.RecordBatch:
        schema = self.relaxed.append(pa.field(OP, pa.string()))
        return pa.RecordBatch.from_pylist([], schema=schema)


def _own(error: SchemaMismatch, stream: str) -> str:
    return str(error).replace(f"table {stream!r}: ", "").replace("; nothing was stored", "")


def is_same(left: pa.Array, right: pa.Array) -> npt.NDArray[np.bool_]:
    """Which values of two arrays of one type are the same; null is the same as null, and NaN as NaN."""
    if pa.types.is_nested(left.type):
        return np.array(
            [one == other for one, other in zip(left.to_pylist(), right.to_pylist(), strict=True)], np.bool_
        )
    equal = pc.equal(left, right).fill_null(False).to_numpy(zero_copy_only=False)
    if left.null_count and right.null_count:
        equal = equal | pc.and_(left.is_null(), right.is_null()).to_numpy(zero_copy_only=False)
    if pa.types.is_floating(left.type):
        nan = pc.and_(pc.is_nan(left), pc.is_nan(right)).fill_null(False)
        equal = equal | nan.to_numpy(zero_copy_only=False)
    return np.asarray(equal, np.bool_)
