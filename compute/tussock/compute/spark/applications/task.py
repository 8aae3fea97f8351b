"""A task of an application: the tuples of its keys in, the graph on each key, and the uploads of what it wrote.

Nothing of it is visible until the driver commits the reports of all tasks as one epoch.
"""

import functools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext, cloudpickle

from tussock.compute.spark.applications.program import TaskProgram
from tussock.compute.spark.batches.task_times import Meter, TimeSpent
from tussock.compute.spark.reads.connections import working_store
from tussock.compute.spark.state.arrivals import convert_arrivals
from tussock.compute.spark.state.plan import TaskPlan
from tussock.compute.spark.state.task.groups import pieces_of
from tussock.compute.spark.state.task.placement import check_placed
from tussock.statestore.contract.records import UploadedRun
from tussock.statestore.errors import InvalidBatch

__all__ = ["ApplicationPlan", "ApplicationReport", "Failure", "run_application"]

WAIT_SECONDS = 60.0
"""For the epoch that the driver has seen; a bucket shows it at once."""


@dataclass(frozen=True)
class ApplicationPlan:
    """One batch of an application; pickled to the tasks."""

    rows: TaskPlan
    """Which rows come, and to which task; its function is the program."""
    now: datetime
    """What `tx.now()` returns."""


class Failure(msgspec.Struct, frozen=True):
    """A procedure that raised, or a stream whose transaction is bad."""

    key: bytes
    """For which key, in the order of the keys."""
    who: str
    cause: str


class ApplicationReport(msgspec.Struct):
    """A task's report."""

    partition: int
    uploads: dict[str, list[UploadedRun]] = {}
    """The sorted runs by table, newest first."""
    failed: Failure | None = None
    """Then nothing was uploaded."""
    spent: TimeSpent = TimeSpent()


def run_application(plan: ApplicationPlan, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """For `mapInArrow`: yields one row with the task's report, or none if it is not one of the plan's tasks."""
    context = TaskContext.get()
    partition = plan.rows.tasks if context is None else context.partitionId()
    if partition < plan.rows.tasks:
        report = _run_task(plan, partition, batches)
        yield pa.record_batch([pa.array([msgspec.msgpack.encode(report)], pa.binary())], names=["report"])
    elif any(batch.num_rows for batch in batches):
        raise InvalidBatch(f"Spark gave rows to task {partition} of {plan.rows.tasks}; nothing of the batch was stored")


def _run_task(plan: ApplicationPlan, partition: int, batches: Iterable[pa.RecordBatch]) -> ApplicationReport:
    """Do the work of one partition. What a procedure raises is in the report; an outage of the store is raised."""
    meter = Meter()
    report = ApplicationReport(partition)
    task = plan.rows
    store = working_store(task.address)
    # The tables are as at that epoch, or the driver's commit finds that they are not.
    store.wait_epoch(task.read_epoch, WAIT_SECONDS)
    program = _load_program(task.function)
    with store.transaction() as tx:
        run = program.begin(tx, task.batch_id, plan.now)
        try:
            for piece in pieces_of(_arrived(plan, meter.rows(batches)), task.rows, task.key, task.chunk_bytes):
                rows = _in_order(piece.rows, task)
                check_placed(
                    [rows.column(name).combine_chunks() for name in task.key], partition, task.tasks, program.border
                )
                with meter.calling():
                    failed = run.run(rows.select(program.columns_of(rows.schema.names)))
                if failed is not None:
                    report.failed = Failure(*failed)
                    break
        finally:
            run.close()
        uploads = tx.upload() if report.failed is None else {}
        report.uploads = {name: runs for name, runs in uploads.items() if runs}
        if report.failed is not None:
            tx.give_up()
    report.spent = meter.spent()
    return report


@functools.lru_cache(maxsize=8)
def _load_program(pickled: bytes) -> TaskProgram:
    """The application; unpickled once for many batches."""
    program: TaskProgram = cloudpickle.loads(pickled)
    return program


def _arrived(plan: ApplicationPlan, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return (convert_arrivals(batch, plan.rows) for batch in batches if batch.num_rows)


def _in_order(rows: pa.Table, task: TaskPlan) -> pa.Table:
    """The rows in the order that the user named; it is stable."""
    if not task.order_by:
        return rows
    keys = [(name, "ascending") for name in task.order_by]
    return rows.take(pc.sort_indices(rows, keys, null_placement="at_end"))
