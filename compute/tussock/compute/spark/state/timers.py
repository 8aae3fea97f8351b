"""Timers: the times at which keys want to be called, in a separate table, by time within each vnode.

A batch reads the timers that its watermark has passed, calls their keys, and deletes them in its epoch. The table has
few vnodes, since each is one range to read.

A key is called once for each of its timers, in order of time: in rounds, of which the last has the latest timer of
every key, and the rows, which are younger than all of them. Usually there is only that round.
"""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tussock.compute.spark.state.event_time import MICROS
from tussock.compute.spark.state.plan import AT
from tussock.statestore.tables.typed_table import TypedTable

__all__ = ["TIMER_VNODES", "FiredTimers", "due_timers"]

TIMER_VNODES = 16

Times = npt.NDArray[np.datetime64]


def due_timers(table: TypedTable, epoch: int, watermark: int, vnodes: range) -> pa.Table:
    """The timers at or before the watermark (microseconds) in these vnodes: the columns of `table`."""
    # After the vnode a key begins with the time, so due timers come first in each vnode.
    until = pa.scalar(watermark, MICROS).as_py()
    parts = table.read(epoch=epoch, between=((), (until,)), vnodes=(vnodes.start, vnodes.stop))
    return pa.Table.from_batches(parts, table.schema)


class FiredTimers:
    """The due timers of some keys; timer i belongs to the key at position `at[i]` of `keys` keys."""

    def __init__(self, due: pa.RecordBatch, at: npt.NDArray[np.intp], keys: int) -> None:
        times = due.column(AT).view(pa.int64()).to_numpy()
        self._times = times[np.lexsort((times, at))]
        self._counts = np.bincount(at, minlength=keys)
        self._ends = np.cumsum(self._counts)

    def latest(self) -> Times:
        """For each key its latest timer, `NaT` if there is none."""
        latest = np.full(len(self._counts), np.iinfo(np.int64).min, np.int64)  # What NumPy takes for NaT.
        has = self._counts > 0
        latest[has] = self._times[self._ends[has] - 1]
        return latest.view("datetime64[us]")

    def several(self) -> npt.NDArray[np.intp]:
        """Positions of the keys with more than one timer, those with most first."""
        several = np.flatnonzero(self._counts > 1)
        return several[np.argsort(-self._counts[several], kind="stable")]

    def earlier_rounds(self, several: npt.NDArray[np.intp]) -> Iterator[Times]:
        """The timers of `several` except each key's latest; round by round, for the first keys of `several`.

        A key's timers come in order of time, and the number of keys never falls from round to round.
        """
        for back in range(int(self._counts.max(initial=0)) - 1, 0, -1):
            keys = several[self._counts[several] > back]
            yield self._times[self._ends[keys] - 1 - back].view("datetime64[us]")
