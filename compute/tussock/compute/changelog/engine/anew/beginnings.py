"""What a stream that is added to a flow that has run begins with: the rows that an input has, part by part.

The input takes nothing until all of its rows were taken, so its table stays as it is meanwhile. Rows come in the order
of the table, and a part ends by what its rows are: so a replay, and a start in the middle, have the same parts.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from tussock.compute.changelog.changes.changes import Changes
from tussock.compute.changelog.changes.record import Op
from tussock.compute.changelog.changes.stream_shape import OP, StreamShape
from tussock.compute.changelog.changes.transaction import StreamTransaction
from tussock.compute.changelog.loop.stream_loop import Queued
from tussock.statestore.base.system import System

__all__ = ["Beginning"]

ROWS_MAX = 100_000
BYTES_MAX = 16 << 20
"""Of a part; a row that is larger is alone in it."""
FRESH_SECONDS = 60.0
"""After a part, for which the table is read on; later it is opened anew, as what was open may have been vacuumed."""


class Beginning:
    """Of one stream and one of its inputs."""

    def __init__(self, shape: StreamShape, table: Any, system: System, taken: int) -> None:
        """`shape` and `table` are the input's; of its rows `taken` were taken before."""
        self._shape = shape
        self._table = table
        self._system = system
        self.taken = taken
        """Rows; those of `part` are not among them."""
        self.part: Queued | None = None
        """The one that is queued, or worked on; `None` before the first one."""
        self._ahead: Queued | None = None
        self._is_ahead = False
        """Whether `_ahead` comes after `part`; it is `None` after the last one."""
        self._batches: Iterator[pa.RecordBatch] = iter(())
        self._rest: pa.RecordBatch | None = None
        self._read_at: float | None = None

    def read_ahead(self, seq: int, time: int) -> None:
        """Have the part after `part`; once more, nothing. Raises what reading does, and then it may be tried again.

        `seq` and `time` are those of the input's newest transaction, and the part's, so that a replay has the same.
        """
        if self._is_ahead:
            return
        taken = self.taken + (0 if self.part is None else len(self.part.transaction))
        read_at, self._read_at = self._read_at, None
        now = self._system.monotonic()
        if read_at is None or now - read_at > FRESH_SECONDS:
            self._batches, self._rest = self._read(taken), None
        rows = self._part()
        self._read_at = now
        self._ahead, self._is_ahead = None, True
        if rows.num_rows or self.part is None:
            batch = rows.append_column(OP, pa.repeat(str(Op.INSERT), rows.num_rows))
            changes = Changes.of_batch(self._shape, batch, time)
            self._ahead = Queued(self._shape.stream, StreamTransaction(seq, changes), is_apart=True)

    def next_part(self) -> Queued | None:
        """What was read ahead, once that before was taken; `None` if there is none."""
        assert self._is_ahead, "it was read"
        if self.part is not None:
            self.taken += len(self.part.transaction)
        if self._ahead is not None:
            self.part = self._ahead
        found, self._ahead, self._is_ahead = self._ahead, None, False
        return found

    def _read(self, skip: int) -> Iterator[pa.RecordBatch]:
        for batch in self._table.read():
            gone = min(skip, batch.num_rows)
            skip -= gone
            if gone < batch.num_rows:
                yield batch.slice(gone)

    def _part(self) -> pa.Table:
        found: list[pa.RecordBatch] = []
        rows, nbytes = 0, 0
        while True:
            batch = next(self._batches, None) if self._rest is None else self._rest
            self._rest = None
            if batch is None:
                break
            sizes = nbytes + np.cumsum(_row_bytes(batch))
            # The first row that reaches a limit is the last one of the part.
            count = min(int(np.searchsorted(sizes, BYTES_MAX)) + 1, ROWS_MAX - rows)
            found.append(batch.slice(0, count))
            if count < batch.num_rows:
                self._rest = batch.slice(count)
            rows, nbytes = rows + min(count, batch.num_rows), int(sizes[min(count, batch.num_rows) - 1])
            if rows >= ROWS_MAX or nbytes >= BYTES_MAX:
                break
        return pa.Table.from_batches(found, self._shape.schema).combine_chunks()


def _row_bytes(batch: pa.RecordBatch) -> npt.NDArray[np.int64]:
    """About what each row takes; it depends on its values alone, and not on what they lie beside."""
    found = np.zeros(batch.num_rows, np.int64)
    for column in batch.columns:
        if pt.is_nested(column.type):
            found += np.array([len(str(value)) for value in column.to_pylist()], np.int64)
        elif pt.is_string(column.type) or pt.is_large_string(column.type) or _is_binary(column.type):
            found += pc.binary_length(column).fill_null(0).to_numpy(zero_copy_only=False)
        else:
            found += column.type.bit_width // 8 + 1
    return found


def _is_binary(kind: pa.DataType) -> bool:
    return bool(pt.is_binary(kind) or pt.is_large_binary(kind))
