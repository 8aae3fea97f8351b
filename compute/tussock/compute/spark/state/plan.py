"""What the driver tells the tasks of one batch, and what they answer; both small, and the same for all tasks."""

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import pyarrow as pa

from tussock.compute.spark.batches.spent import Spent
from tussock.compute.spark.options.options import StoreAddress
from tussock.statestore.contract.records import TableSpec, UploadedRun

__all__ = ["AT", "HELPERS", "LATE", "Expiry", "Report", "TaskPlan", "timers_schema", "watermark_schema"]

AT = "timer_at"
"""The time of a timer: column of `Update.timers` and of the timers' table."""

LATE = "late"
"""The output that takes late rows, if there is one."""

HELPERS = (".timers", ".watermark")
"""What the names of the tables beside a state table end in."""


@dataclass(frozen=True)
class Expiry:
    """When state is forgotten that nobody touched."""

    column: str
    """Column of the state tables that holds when a row was last written."""
    micros: int
    event: bool
    """By event time, with the watermark as the clock; else by processing time, with the driver's clock."""


@dataclass(frozen=True)
class TaskPlan:
    """One batch of a stateful function; pickled to the tasks."""

    address: StoreAddress
    read_epoch: int
    """The epoch at which all tasks read; 0: nothing was committed yet."""
    batch_id: int
    tasks: int
    rows: pa.Schema
    """Columns of the micro-batch."""
    states: tuple[TableSpec, ...]
    outputs: dict[str, TableSpec]
    function: bytes
    """The user's function, pickled by value where it has to be."""
    key: tuple[str, ...]
    order_by: tuple[str, ...]
    chunk_bytes: int
    timers: TableSpec | None = None
    """Set with an event time: the tables of timers and of the largest event time."""
    progress: TableSpec | None = None
    event_time: str | None = None
    watermark: int | None = None
    """Microseconds since 1970."""
    late_until: int | None = None
    """Rows of this event time or an earlier one are late."""
    newest_event: int | None = None
    """The largest event time of earlier batches."""
    expiry: Expiry | None = None
    now: int = 0
    """When the batch began by the driver's clock, in microseconds since 1970."""
    each_timer: bool = True
    """A key is called once for each timer that is due; else once for all, which the watermark tells the function."""


class Report(msgspec.Struct):
    """A task's answer."""

    partition: int
    uploads: dict[str, list[UploadedRun]] = {}
    """By table the sorted runs, newest first."""
    newest_event: int | None = None
    spent: Spent = Spent()


def timers_schema(state: pa.Schema, key: Sequence[str]) -> pa.Schema:
    """The table of timers that have not fired: by time, then key, within the vnode of the key."""
    return pa.schema([pa.field(AT, pa.timestamp("us", "UTC")), *(state.field(name) for name in key)])


def watermark_schema() -> pa.Schema:
    """The table of the largest event time that each partition has seen."""
    return pa.schema([("partition", pa.int32()), ("newest", pa.timestamp("us", "UTC"))])
