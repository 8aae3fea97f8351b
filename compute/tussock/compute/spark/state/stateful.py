"""The driver's side of `stateful`, keyed state in `foreachBatch`: checks, plans, runs a Spark job, commits an epoch.

The rows go through Spark's exchange to the task of their key and through `mapInArrow` to Python; the names of uploaded
SSTs come back, a few kilobytes. That is one job and no call of a Python planner, for any number of tables that the
function reads and writes.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from datetime import timedelta
from typing import Any

import msgspec
import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.udf import UserDefinedFunction
from pyspark.util import PythonEvalType

from tussock.compute.spark.batches.batch_work import commit_batch, is_committed
from tussock.compute.spark.batches.identity import MicroBatch, micro_batch
from tussock.compute.spark.reads.connections import address_of, opened_store, table_or_new
from tussock.compute.spark.state.arrivals import place_rows, sent_schema
from tussock.compute.spark.state.checks import (
    Ttl,
    check_helper,
    check_options,
    check_rows,
    check_tables,
    micros_of,
    names_of,
)
from tussock.compute.spark.state.event_time import watermark_before
from tussock.compute.spark.state.plan import AT, Expiry, Report, TaskPlan, timers_schema, watermark_schema
from tussock.compute.spark.state.records import KeyedBatch, Update
from tussock.compute.spark.state.task.task import REPORT_COLUMN, run_in_spark, run_task
from tussock.compute.spark.state.timers import TIMER_VNODES
from tussock.compute.spark.writes.epoch_writer import task_count
from tussock.statestore.base.system import RealSystem
from tussock.statestore.client import StateStore
from tussock.statestore.contract.records import TableSpec, UploadedRun

__all__ = ["StateFunction", "commit_reports", "stateful"]

StateFunction = Callable[[KeyedBatch], Update]


def stateful(
    table: str | Sequence[str],
    *,
    key: str | Sequence[str],
    fn: StateFunction,
    store: str | StateStore,
    order_by: str | Sequence[str] | None = None,
    outputs: Mapping[str, str] | None = None,
    writer: str | None = None,
    partitions: int | None = None,
    event_time: str | None = None,
    delay: timedelta | float | None = None,
    ttl: Ttl | None = None,
    chunk_bytes: int = 128 << 20,
) -> Callable[[DataFrame, int], None]:
    """A function for `foreachBatch` that keeps state by key: reads it, calls `fn`, writes state and outputs at once.

    `table`: the state table, or several with the same key; its primary key has to be `key`. `fn` gets a `KeyedBatch` of
    many keys and returns an `Update`; it runs in Spark's tasks. Rows of a key are in the order of `order_by` (nulls
    last). `outputs` maps names that `fn` uses to tables. A micro-batch is one epoch, exactly once by (`writer`, batch);
    `writer` defaults to the query's id with the names of the state tables.

    With `event_time`, a timestamp column, there is a watermark: the largest event time of earlier batches minus
    `delay` (a timedelta or seconds). Rows at or before it are dropped, or go to the output `late` if there is one; and
    timers fire in the first batch whose watermark has passed them. `ttl` forgets state that is not written for long.
    `partitions`: tasks, 1 to 256, powers of two are cheapest; the default follows from the session's cores. A task with
    more than `chunk_bytes` of rows processes whole keys piece by piece, through its local disk.

    Raises `InvalidOption` here, and at the first batch `TableNotFound`, `InvalidOption` or `SchemaMismatch` if tables
    or rows do not fit. A batch raises `Conflict` if another writer wrote to the state meanwhile: nothing of it is
    visible, repeat it.
    """
    tables, keys = names_of(table, "table"), names_of(key, "key")
    check_options(fn, outputs, event_time, delay, ttl, partitions, chunk_bytes)
    return _Stateful(
        tables=tables,
        key=keys,
        function=cloudpickle.dumps(fn),
        check=getattr(fn, "check", None),
        reach=getattr(fn, "reach_micros", 0),
        each_timer=getattr(fn, "each_timer", True),
        store=store,
        order_by=() if order_by is None else names_of(order_by, "order_by"),
        outputs=dict(outputs or {}),
        writer=writer,
        partitions=partitions,
        event_time=event_time,
        delay=micros_of(delay or 0),
        expiry=None if ttl is None else Expiry(ttl.column, micros_of(ttl.after), ttl.by == "event"),
        chunk_bytes=chunk_bytes,
    )


class _Stateful(msgspec.Struct, kw_only=True):
    """The arguments of `stateful`, checked as far as possible without a store."""

    tables: tuple[str, ...]
    key: tuple[str, ...]
    function: bytes
    check: Callable[..., None] | None
    """What the function itself requires of the columns of rows and tables, if it has such a method."""
    reach: int
    """How long, in microseconds, a row still counts after its event time; taken from the function if it has it."""
    each_timer: bool
    """Call a key for each of its timers; not for ready-made functions, which go by the watermark."""
    store: Any
    order_by: tuple[str, ...]
    outputs: dict[str, str]
    writer: str | None
    partitions: int | None
    event_time: str | None
    delay: int
    expiry: Expiry | None
    chunk_bytes: int

    def __call__(self, rows: DataFrame, batch_id: int) -> None:
        """Process one micro-batch; does nothing if it is in the store already."""
        store = opened_store(self.store)
        batch = micro_batch(rows, batch_id, self.writer, self.tables)
        if is_committed(store, batch) is None:
            tasks = self.partitions or task_count(None, rows)
            with ExitStack() as stack:

                def pin() -> int:
                    return stack.enter_context(store.pin_snapshot()).epoch

                plan = self.plan(store, sent_schema(rows.schema, self.tables[0]), batch_id, pin, tasks)
                reports = _reports(place_rows(rows, plan), plan)
                commit_reports(store, plan, reports, batch)

    def plan(self, store: StateStore, rows: pa.Schema, batch_id: int, pin: Callable[[], int], tasks: int) -> TaskPlan:
        """The plan for all tasks of a batch, after checks of tables and columns; `pin` returns the epoch to read."""
        states = tuple(store.table(name).spec for name in self.tables)
        outputs = {name: store.table(table).spec for name, table in self.outputs.items()}
        check_tables(self.key, states, outputs, self.expiry, self.event_time)
        if self.check is not None:
            self.check(rows, {spec.name: spec.arrow_schema() for spec in states}, self.key)
        rows = check_rows(self.key, states[0], outputs, rows, self.order_by, self.event_time)
        timers = progress = newest = None
        if self.event_time is not None:
            timers, progress = _helper_tables(store, states[0], self.key)
        # Pinned last: the commit refuses a table that was created after the epoch that was read.
        read_epoch = pin()
        if progress is not None:
            newest = _newest_event(store, progress, read_epoch)
        return TaskPlan(
            address=address_of(store.url),
            read_epoch=read_epoch,
            batch_id=batch_id,
            tasks=tasks,
            rows=rows,
            states=states,
            outputs=outputs,
            function=self.function,
            key=self.key,
            order_by=self.order_by,
            chunk_bytes=self.chunk_bytes,
            timers=timers,
            progress=progress,
            event_time=self.event_time,
            watermark=watermark_before(newest, self.delay),
            late_until=watermark_before(newest, self.delay + self.reach),
            newest_event=newest,
            expiry=self.expiry,
            now=RealSystem().now_ms() * 1000,
            each_timer=self.each_timer,
        )


def commit_reports(store: StateStore, plan: TaskPlan, reports: Sequence[Report], batch: MicroBatch) -> int:
    """Commit what the tasks uploaded, and return the epoch; `Conflict` if the state was written meanwhile."""
    uploads: dict[str, list[UploadedRun]] = {}
    for report in reports:
        for name, levels in report.uploads.items():
            uploads.setdefault(name, []).extend(levels)
    read = (*plan.states, plan.timers, plan.progress)
    expect = {spec.name: plan.read_epoch for spec in read if spec is not None}
    return commit_batch(store, batch, uploads, [report.spent for report in reports], expect)


def _helper_tables(store: StateStore, state: TableSpec, key: Sequence[str]) -> tuple[TableSpec, TableSpec]:
    """The tables of timers and of the largest event time of a state table; creates them if they are missing."""
    schema = timers_schema(state.arrow_schema(), key)
    timers = table_or_new(
        store,
        f"{state.name}.timers",
        schema=schema,
        primary_key=[AT, *key],
        distribution_key=state.distribution_key,
        vnodes=TIMER_VNODES,
    )
    check_helper(timers, schema, state)
    schema = watermark_schema()
    progress = table_or_new(store, f"{state.name}.watermark", schema=schema, primary_key=["partition"], vnodes=1)
    check_helper(progress, schema, state)
    return timers, progress


def _newest_event(store: StateStore, progress: TableSpec, read_epoch: int) -> int | None:
    """The largest event time of all partitions up to the epoch, in microseconds."""
    if not read_epoch:
        return None
    batches = store.table(progress.name).read(["newest"], epoch=read_epoch)
    times = [time for batch in batches for time in batch.column(0).view(pa.int64()).to_pylist()]
    return max(times, default=None)


def _reports(rows: DataFrame, plan: TaskPlan) -> list[Report]:
    """Run the tasks; returns, for each partition, the report of the attempt that Spark accepted."""
    run = functools.partial(run_in_spark, plan)
    # Does what `DataFrame.mapInArrow` does, without its requirement of pandas, which nothing here needs.
    function = UserDefinedFunction(run, f"{REPORT_COLUMN} binary", evalType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF)
    column = function(*(f.col(name) for name in rows.columns))
    mapped = DataFrame(rows._jdf.mapInArrow(column._jc, False, None), rows.sparkSession)  # noqa: SLF001
    reports = [msgspec.msgpack.decode(row[0], type=Report) for row in mapped.collect()]
    # Spark leaves tasks out if it knows that they have no rows; there may still be timers to fire.
    missing = sorted(set(range(plan.tasks)) - {report.partition for report in reports})
    return reports + [run_task(plan, partition, ()) for partition in missing]
