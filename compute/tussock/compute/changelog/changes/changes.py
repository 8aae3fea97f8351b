"""`Changes`: the records of one transaction, as objects or as columns, whichever its user asks for.

Columns are rows of the stream with an array of codes. An update block takes two rows, the new values and then the old
ones, and is one record.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tussock.compute.changelog.changes.python_times import check_times
from tussock.compute.changelog.changes.record import ChangeRecord, Op
from tussock.compute.changelog.changes.stream_shape import CODES, OLD, OP, StreamShape, words_of
from tussock.statestore.errors import InvalidOption

__all__ = ["Changes"]

_OPS = tuple(Op)
_BLOCK, _DELETE = CODES[Op.UPDATE_BLOCK], CODES[Op.DELETE]
_NO_CODES, _NO_FLAGS = np.zeros(0, np.int8), np.zeros(0, np.bool_)
_RECORD_BYTES = 200
"""Of a record as an object, without its values, roughly."""


class Changes:
    """In order; not to be changed once it is made."""

    __slots__ = ("_codes", "_count", "_nbytes", "_olds", "_records", "_rows", "shape", "time")

    def __init__(
        self,
        shape: StreamShape,
        records: Sequence[ChangeRecord] | None,
        columns: tuple[pa.RecordBatch, npt.NDArray[np.int8], npt.NDArray[np.bool_]] | None = None,
        time: int = 0,
    ) -> None:
        """Either records of the shape, or rows, codes and which rows are old ones."""
        self.shape = shape
        self.time = time
        self._records = records
        self._rows: pa.RecordBatch | None = None
        self._codes: npt.NDArray[np.int8] = _NO_CODES
        self._olds: npt.NDArray[np.bool_] = _NO_FLAGS
        if columns is not None:
            self._rows, self._codes, self._olds = columns
        self._count = self._nbytes = -1

    @staticmethod
    def of_records(shape: StreamShape, given: Sequence[Any], time: int) -> "Changes":
        """Of what a user has made; `SchemaMismatch`."""
        return Changes(shape, [shape.record(one, time) for one in given], None, time)

    @staticmethod
    def of_batch(shape: StreamShape, batch: Any, time: int) -> "Changes":
        """Of Arrow data with `_op`; `SchemaMismatch`. Without `_old`, a delete behind its block is the old row."""
        rows, codes, olds = shape.columns(batch)
        return Changes(shape, None, (rows, codes, _pairs(shape, rows, codes) if olds is None else olds), time)

    @staticmethod
    def of_pushed(shape: StreamShape, given: Any, time: int) -> "Changes":
        """Of what a client gives: records, one record, or Arrow data; `SchemaMismatch`, `InvalidOption`."""
        if isinstance(given, pa.Table | pa.RecordBatch):
            return Changes.of_batch(shape, given, time)
        if isinstance(given, ChangeRecord):
            return Changes.of_records(shape, (given,), time)
        if isinstance(given, str | bytes | dict) or not hasattr(given, "__iter__"):
            raise InvalidOption(f"{shape.what}: push({given!r:.100}); expected records, or Arrow data")
        return Changes.of_records(shape, list(given), time)

    @property
    def is_columns(self) -> bool:
        """Whether columns are what there is."""
        return self._rows is not None

    def __len__(self) -> int:
        """The number of records; a block counts once."""
        if self._count < 0:
            self._count = len(self._records) if self._records is not None else int((~self._olds).sum())
        return self._count

    def __iter__(self) -> Iterator[ChangeRecord]:
        return iter(self.records)

    @property
    def records(self) -> Sequence[ChangeRecord]:
        """As objects."""
        if self._records is None:
            self._records = _records_of(*self._columns(), self.time)
        return self._records

    @property
    def columns(self) -> tuple[pa.RecordBatch, npt.NDArray[np.int8], npt.NDArray[np.bool_]]:
        """Rows, the code of each, and which are old ones."""
        if self._rows is None:
            self._rows, self._codes, self._olds = _columns_of(self.shape, self.records)
        return self._columns()

    def batch(self) -> pa.RecordBatch:
        """The rows with columns `_op` and `_old`, as a compute function by batch gets them."""
        rows, codes, olds = self.columns
        schema = rows.schema.append(pa.field(OP, pa.string(), nullable=False))
        schema = schema.append(pa.field(OLD, pa.bool_(), nullable=False))
        return pa.record_batch([*rows.columns, words_of(codes), pa.array(olds)], schema=schema)

    def check_times(self) -> None:
        """`SchemaMismatch` for a value in columns that records cannot have."""
        if self._rows is not None:
            check_times(self._rows, self.shape.times)

    def part(self, start: int, stop: int) -> "Changes":
        """The records from one number to another."""
        return Changes(self.shape, self.records[start:stop], None, self.time)

    def window(self, start: int, stop: int) -> "Changes":
        """The same, without making objects of the others; a number beyond the end is the end."""
        if self._records is not None or self._rows is None:
            return self.part(start, stop)
        starts = np.flatnonzero(~self._olds)
        first = int(starts[start]) if start < len(starts) else len(self._codes)
        end = int(starts[stop]) if stop < len(starts) else len(self._codes)
        columns = self._rows.slice(first, end - first), self._codes[first:end], self._olds[first:end]
        return Changes(self.shape, None, columns, self.time)

    @property
    def nbytes(self) -> int:
        """What it takes in memory, roughly; of what it was made from."""
        if self._nbytes < 0:
            if self._rows is not None:
                self._nbytes = int(self._rows.nbytes) + 2 * len(self._codes)
            else:
                self._nbytes = sum(_record_bytes(one) for one in self.records)
        return self._nbytes

    def _columns(self) -> tuple[pa.RecordBatch, npt.NDArray[np.int8], npt.NDArray[np.bool_]]:
        assert self._rows is not None, "it has columns"
        return self._rows, self._codes, self._olds

    def __repr__(self) -> str:
        return f"Changes({list(self.records)!r})"


def _record_bytes(one: ChangeRecord) -> int:
    values = one.values_by_column
    long = sum(len(value) for value in values.values() if isinstance(value, str | bytes))
    return _RECORD_BYTES + 50 * len(values) + long + (0 if one.old is None else _record_bytes(one.old))


def _records_of(
    rows: pa.RecordBatch, codes: npt.NDArray[np.int8], olds: npt.NDArray[np.bool_], time: int
) -> list[ChangeRecord]:
    found: list[ChangeRecord] = []
    for values, code, is_old in zip(rows.to_pylist(), codes.tolist(), olds.tolist(), strict=True):
        if is_old and found and found[-1].op is Op.UPDATE_BLOCK:
            found[-1].old = ChangeRecord(Op.DELETE, values, None, time)
        else:
            found.append(ChangeRecord(_OPS[code], values, None, time))
    return found


def _columns_of(
    shape: StreamShape, records: Sequence[ChangeRecord]
) -> tuple[pa.RecordBatch, npt.NDArray[np.int8], npt.NDArray[np.bool_]]:
    values: list[Any] = []
    codes: list[int] = []
    olds: list[bool] = []
    for one in records:
        values.append(one.values_by_column)
        codes.append(CODES[one.op])
        olds.append(False)
        if one.old is not None:
            values.append(one.old.values_by_column)
            codes.append(_DELETE)
            olds.append(True)
    arrays = [pa.array([row.get(field.name) for row in values], field.type) for field in shape.relaxed]
    schema = pa.schema([pa.field(field.name, field.type) for field in shape.relaxed])
    return pa.record_batch(arrays, schema=schema), np.array(codes, np.int8), np.array(olds, np.bool_)


def _pairs(shape: StreamShape, rows: pa.RecordBatch, codes: npt.NDArray[np.int8]) -> npt.NDArray[np.bool_]:
    """Which deletes stand behind a block of their key."""
    olds = np.zeros(len(codes), np.bool_)
    behind = np.flatnonzero((codes[1:] == _DELETE) & (codes[:-1] == _BLOCK)) + 1
    if len(behind):
        keys = rows.select(list(shape.key))
        before, after = keys.take(pa.array(behind - 1)).to_pylist(), keys.take(pa.array(behind)).to_pylist()
        olds[behind] = [one == other for one, other in zip(before, after, strict=True)]
    return olds
