"""The driver's plan of one batch, the same for all its tasks, and their reports; both are small."""

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import pyarrow as pa

from tussock.compute.spark.batches.task_times import TimeSpent
from tussock.compute.spark.options.options import StoreAddress
from tussock.statestore.contract.records import TableSpec, UploadedRun

__all__ = ["AT", "HELPERS", "LATE", "Expiry", "Report", "TaskPlan", "timers_schema", "watermark_schema"]

AT = "timer_at"
"""The time of a timer: column of `Update.timers` and of the timers' table."""

LATE = "late"
"""The output that takes late rows, if there is one."""

HELPERS = (".timers", ".watermark")
"""Endings of the names of the tables beside a state table."""


@dataclass(frozen=True)
class Expiry:
    """When to forget state that is no longer written."""

    column: str
    """The column of the state tables with the time when a row was last written."""
    micros: int
    event: bool
    """By event time, with the watermark as the clock; otherwise by processing time, with the driver's clock."""


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
    """The user's function, pickled by value if necessary."""
    key: tuple[str, ...]
    order_by: tuple[str, ...]
    chunk_bytes: int
    timers: TableSpec | None = None
    """Set if there is an event time: the tables of timers and of the largest event time."""
    progress: TableSpec | None = None
    event_time: str | None = None
    watermark: int | None = None
    """Microseconds since 1970."""
    late_until: int | None = None
    """Rows at or before this event time are late."""
    newest_event: int | None = None
    """The largest event time of earlier batches."""
    expiry: Expiry | None = None
    now: int = 0
    """When the batch began by the driver's clock, in microseconds since 1970."""
    each_timer: bool = True
    """Call a key once for each timer that is due; otherwise once for all, and the function goes by the watermark."""


class Report(msgspec.Struct):
    """A task's report."""

    partition: int
    uploads: dict[str, list[UploadedRun]] = {}
    """The sorted runs by table, newest first."""
    newest_event: int | None = None
    spent: TimeSpent = TimeSpent()


def timers_schema(state: pa.Schema, key: Sequence[str]) -> pa.Schema:
    """The table of timers that have not fired: by time, then key, within the vnode of the key."""
    return pa.schema([pa.field(AT, pa.timestamp("us", "UTC")), *(state.field(name) for name in key)])


def watermark_schema() -> pa.Schema:
    """The table of the largest event time that each partition has seen."""
    return pa.schema([("partition", pa.int32()), ("newest", pa.timestamp("us", "UTC"))])
