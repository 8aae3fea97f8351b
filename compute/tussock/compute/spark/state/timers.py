"""Timers: the times at which keys want to be called, in a table of their own, by time within each vnode.

A batch reads those that its watermark has passed, calls their keys, and deletes them in its epoch. The table has few
vnodes, since each is one range to read.
"""

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tussock.compute.spark.state.event_time import MICROS
from tussock.compute.spark.state.plan import AT
from tussock.statestore.tables.typed_table import TypedTable

__all__ = ["TIMER_VNODES", "due_timers", "fired_times"]

TIMER_VNODES = 16


def due_timers(table: TypedTable, epoch: int, watermark: int, vnodes: range) -> pa.Table:
    """The timers at or before the watermark (microseconds) in these vnodes: the columns of `table`."""
    # Behind the vnode a key begins with the time, so what is due comes first in each vnode.
    until = pa.scalar(watermark, MICROS).as_py()
    parts = table.read(epoch=epoch, between=((), (until,)), vnodes=(vnodes.start, vnodes.stop))
    return pa.Table.from_batches(parts, table.schema)


def fired_times(due: pa.RecordBatch, at: npt.NDArray[np.intp], keys: int) -> npt.NDArray[np.datetime64]:
    """Per key the latest of its due timers, `NaT` where there is none; timer i is of the key `at[i]`."""
    never = np.iinfo(np.int64).min  # What NumPy takes for NaT.
    latest = np.full(keys, never, np.int64)
    np.maximum.at(latest, at, due.column(AT).view(pa.int64()).to_numpy())
    return latest.view("datetime64[us]")
