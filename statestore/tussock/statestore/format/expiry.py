"""When rows of a table with a time to live expire, and which of them a reader still sees.

A row is expired at an epoch if its time to live was over at the time that the epoch carries: counted from the time in
the row's own epoch, or from a timestamp column of the row. So what a reader at an epoch sees never changes, whatever a
clock says when it reads and whatever compaction has dropped by then. An expired row hides what is older of its key, as
a delete does. `docs/decisions/0034-rows-expire-by-the-time-in-epochs.md` has the reasons and the proof.

Relied on by reads, by the change feed, by the writer of SSTs and by compaction.
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tussock.statestore.contract.records import TableSpec
from tussock.statestore.epochs import SERIAL_BITS, epoch_ms
from tussock.statestore.rows.rows import Rows

__all__ = ["NEVER", "Milliseconds", "TimeToLive", "expiry_of"]

Milliseconds = int | npt.NDArray[np.int64]
"""The time of a reader, the same for all rows, or one for each."""

NEVER = (1 << 63) - 1
_PER_MS = {"ms": 1, "us": 1000, "ns": 1_000_000}
_NANOSECONDS_END_MS = NEVER // 1_000_000
"""No timestamp in nanoseconds is later."""


class TimeToLive(NamedTuple):
    """The time to live of a table's rows."""

    ttl_ms: int
    column: int | None
    """Which value column has the time from which on it counts; `None`: the epochs have it."""
    unit: str
    """Of that column."""

    def marks(self, rows: Rows, ms: Milliseconds, column: int | None) -> npt.NDArray[np.bool_]:
        """Which rows are expired at that time; of deletes the marks mean nothing.

        `column`: where among the columns of `rows` the one of the times is.
        """
        return np.asarray(self.times(rows, column) <= self.latest(ms))

    def unexpired(self, rows: Rows, ms: int, column: int | None) -> Rows:
        """The rows that are not expired at that time."""
        if self.column is not None:
            expired = self.marks(rows, ms, column)
            return rows.filter(~expired) if expired.any() else rows
        # The epochs as they are, with one comparison for each row.
        last = self.expired_epoch(ms)
        if isinstance(rows.epochs, int):
            return rows if rows.epochs > last else rows.slice(0, 0)
        return rows.filter(rows.epochs > np.uint64(last))

    def expired_epoch(self, ms: int) -> int:
        """All rows of this epoch and of older ones are expired at that time; 0 if no epoch tells.

        A reader at that time need not look at them: what they hide is older still, so it is expired, too.
        """
        return 0 if self.column is not None else max((max(ms - self.ttl_ms + 1, 0) << SERIAL_BITS) - 1, 0)

    def is_expired(self, rows: Rows, at: int, ms: int) -> bool:
        """Whether one row, which has all value columns, is expired at that time."""
        return bool(self.time_of(rows, at) <= self.latest(ms))

    def time_of(self, rows: Rows, at: int) -> int:
        """As `times`, of one row that has all value columns."""
        if self.column is None:
            return epoch_ms(rows.epoch(at))
        value = rows.columns[self.column][at]
        return int(value.value) if value.is_valid else NEVER

    def expires_ms(self, rows: Rows) -> int:
        """From when on all of these rows are expired, which have all value columns; `NEVER` if one of them never is.

        By a column only. Deletes do not count.
        """
        times = self.times(rows, self.column)[~rows.delete_array()]
        if not len(times):
            return 1
        latest = int(times.max())
        if latest == NEVER:
            return NEVER
        per_ms = _PER_MS.get(self.unit)
        end_ms = (latest * 1000 if per_ms is None else -(-latest // per_ms)) + self.ttl_ms
        # What is further ahead than epochs reach may as well never come.
        return min(max(end_ms, 1), NEVER)

    def times(self, rows: Rows, column: int | None) -> npt.NDArray[np.int64]:
        """From when on the time to live of each row counts, in the unit of the column; milliseconds of epochs."""
        if column is None:
            return (rows.epoch_array() >> np.uint64(SERIAL_BITS)).astype(np.int64)
        ticks = rows.columns[column].view(pa.int64())
        if ticks.null_count:
            ticks = pc.fill_null(ticks, NEVER)
        times: npt.NDArray[np.int64] = ticks.to_numpy()
        return times

    def latest(self, ms: Milliseconds) -> Milliseconds:
        """Rows whose time is at or before this one are expired at `ms`, in the unit of the column."""
        since = ms - self.ttl_ms
        if self.column is None or self.unit == "ms":
            return since
        if self.unit == "s":
            return since // 1000
        if isinstance(since, np.ndarray):
            return np.clip(since, -_NANOSECONDS_END_MS, _NANOSECONDS_END_MS) * _PER_MS[self.unit]
        return min(since, _NANOSECONDS_END_MS) * _PER_MS[self.unit]


@lru_cache(maxsize=1024)
def _expiry(spec: TableSpec) -> TimeToLive:
    assert spec.ttl_ms is not None
    if spec.ttl_column is None:
        return TimeToLive(spec.ttl_ms, None, "ms")
    values = [field for field in spec.arrow_schema() if field.name not in spec.primary_key]
    column = [field.name for field in values].index(spec.ttl_column)
    return TimeToLive(spec.ttl_ms, column, values[column].type.unit)


def expiry_of(spec: TableSpec) -> TimeToLive | None:
    """The time to live of the table's rows; `None` if they have none."""
    return None if spec.ttl_ms is None else _expiry(spec)
