"""The driver's side of an application that runs in Spark: plans a micro-batch, runs its tasks, commits one epoch."""

import functools
import pickle
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
from pyspark import cloudpickle
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.streaming import StreamingQuery
from pyspark.sql.udf import UserDefinedFunction
from pyspark.util import PythonEvalType

from tussock.compute.changelog.flow import Flow
from tussock.compute.procedures.app import App
from tussock.compute.spark.applications.program import TaskProgram
from tussock.compute.spark.applications.task import ApplicationPlan, ApplicationReport, Failure, run_application
from tussock.compute.spark.batches.batch_work import commit_batch, is_committed
from tussock.compute.spark.batches.identity import micro_batch
from tussock.compute.spark.options.options import StoreAddress
from tussock.compute.spark.reads.connections import address_of
from tussock.compute.spark.state.arrivals import place_rows, sent_schema
from tussock.compute.spark.state.checks import check_rows, names_of
from tussock.compute.spark.state.plan import TaskPlan
from tussock.compute.spark.writes.epoch_writer import session_tasks
from tussock.statestore.base.logs import get_logger
from tussock.statestore.base.system import RealSystem
from tussock.statestore.client import StateStore
from tussock.statestore.contract.records import TableSpec, UploadedRun
from tussock.statestore.errors import InvalidOption, SchemaMismatch

__all__ = ["run", "run_batches"]

log = get_logger("tussock.compute.spark.applications")


def run(
    app: App | Flow,
    stream: DataFrame,
    *,
    checkpoint: str,
    procedure: str | None = None,
    order_by: str | Sequence[str] | None = None,
    errors: str = "stop",
    writer: str | None = None,
    partitions: int | None = None,
    trigger: Mapping[str, Any] | None = None,
    chunk_bytes: int = 128 << 20,
) -> StreamingQuery:
    """Start a streaming query that gives each of its micro-batches to an application, or a flow, as one batch.

    `checkpoint`: Spark's folder for the query. `trigger`: the arguments of Spark's `trigger`, such as
    `{"processingTime": "1 second"}`. The other arguments, and what is raised, are those of `run_batches`.
    """
    if not isinstance(stream, DataFrame) or not stream.isStreaming:
        raise InvalidOption("ts.run takes a streaming DataFrame; give rows of a batch job to ts.run_batches")
    each = run_batches(
        app,
        procedure=procedure,
        order_by=order_by,
        errors=errors,
        writer=writer,
        partitions=partitions,
        chunk_bytes=chunk_bytes,
    )
    query = stream.writeStream.foreachBatch(each).option("checkpointLocation", checkpoint).queryName(app.name)
    return (query.trigger(**trigger) if trigger else query).start()


def run_batches(
    app: App | Flow,
    *,
    procedure: str | None = None,
    order_by: str | Sequence[str] | None = None,
    errors: str = "stop",
    writer: str | None = None,
    partitions: int | None = None,
    chunk_bytes: int = 128 << 20,
) -> Callable[[DataFrame, int], int]:
    """A function for `foreachBatch` that gives micro-batches to border procedure `procedure` of an application.

    It returns the epoch that holds the batch. Of a flow, the rows are changes of its one stream without inputs:
    column `_op` says what each does, and without it all are upserts; `procedure` is left out.

    The application is partitioned by key, is not started, and has a store that Spark's tasks can reach. Each task runs
    the graph on the tuples of its keys; a micro-batch is one epoch, exactly once by (`writer`, batch). The tuples of a
    key come in the order of `order_by`. `errors`: what a procedure raises ends the query ("stop"), or the batch leaves
    nothing ("skip"), as in an embedded application. `partitions`: tasks, as in `stateful`.

    Raises `InvalidOption` for what cannot run in tasks, with the reason. A batch raises `ProcedureError`, of a flow
    `BadRow`, `Conflict` if another writer has written to a table of the application, and `SchemaMismatch`.
    """
    if errors not in ("stop", "skip"):
        raise InvalidOption(f"errors={errors!r:.100}; expected 'stop' or 'skip'")
    if partitions is not None and (type(partitions) is not int or not 1 <= partitions <= 256):
        raise InvalidOption(f"partitions is {partitions!r}; expected 1 to 256, best a power of two")
    if not isinstance(app, App | Flow):
        raise InvalidOption(f"{app!r:.100} is no application of procedures, and no flow; expected an App or a Flow")
    address = address_of(app.store.url)
    program: TaskProgram = app.partitioned_program(procedure)
    try:
        pickled = cloudpickle.dumps(program)
    except (TypeError, InvalidOption, pickle.PicklingError) as error:
        raise InvalidOption(
            f"application {app.name!r} cannot be sent to Spark's tasks: {error}; its functions may use what they are "
            "given, and no stores, connections or other things of this process"
        ) from error
    return _Batches(
        app=app,
        address=address,
        program=program,
        pickled=pickled,
        order_by=() if order_by is None else names_of(order_by, "order_by"),
        skips=errors == "skip",
        writer=writer or f"{app.name} on Spark",
        partitions=partitions,
        chunk_bytes=chunk_bytes,
    )


class _Batches(msgspec.Struct, kw_only=True):
    """The arguments of `run_batches`, checked as far as possible without rows."""

    app: Any
    address: StoreAddress
    program: Any
    pickled: bytes
    order_by: tuple[str, ...]
    skips: bool
    writer: str
    partitions: int | None
    chunk_bytes: int

    def __call__(self, rows: DataFrame, batch_id: int) -> int:
        """Run the application on one micro-batch, unless it is in the store already; the epoch that holds it."""
        store: StateStore = self.app.store
        program: TaskProgram = self.program
        names = program.tables
        batch = micro_batch(rows, batch_id, self.writer, names)
        known = is_committed(store, batch)
        if known is not None:
            return known
        tasks = session_tasks(self.partitions, rows.sparkSession)
        with store.pin_snapshot() as snapshot:
            plan = self._plan(rows, batch_id, snapshot.epoch, tasks)
            reports = _reports(place_rows(rows, plan.rows), plan)
            failed = [report.failed for report in reports if report.failed is not None]
            uploads: dict[str, list[UploadedRun]] = {}
            if failed:
                self._refuse(min(failed, key=lambda one: one.key), plan.rows.batch_id)
            else:
                for report in reports:
                    for name, runs in report.uploads.items():
                        uploads.setdefault(name, []).extend(runs)
            expect = dict.fromkeys(names, snapshot.epoch)
            return commit_batch(store, batch, uploads, [report.spent for report in reports], expect)

    def _plan(self, rows: DataFrame, batch_id: int, read_epoch: int, tasks: int) -> ApplicationPlan:
        program: TaskProgram = self.program
        key = tuple(program.partition_by.names)
        arriving = sent_schema(rows.schema, program.border)
        # Stands for the tables in what places rows: all of them are placed by these columns.
        spec = TableSpec(
            id=0,
            name=program.border,
            schema=program.partition_by.serialize().to_pybytes(),
            primary_key=key,
            distribution_key=key,
            vnodes=256,
        )
        checked = check_rows(key, spec, {}, arriving, self.order_by, None)
        missing = [name for name in program.schema.names if name not in checked.names]
        if missing:
            raise SchemaMismatch(
                f"{program.border!r} of {program.name!r}: the rows lack its columns {missing}; they have "
                f"{checked.names}"
            )
        task = TaskPlan(
            address=self.address,
            read_epoch=read_epoch,
            # An embedded application counts its batches from 1.
            batch_id=batch_id + 1,
            tasks=tasks,
            rows=checked,
            states=(spec,),
            outputs={},
            function=self.pickled,
            key=key,
            order_by=self.order_by,
            chunk_bytes=self.chunk_bytes,
        )
        return ApplicationPlan(task, datetime.fromtimestamp(RealSystem().now_ms() / 1000, UTC))

    def _refuse(self, failed: Failure, batch_id: int) -> None:
        """The batch leaves nothing: raise why, or say it in the log."""
        error = self.program.failure(failed.who, batch_id, failed.cause)
        if not self.skips:
            raise error
        log.error("a batch was rolled back", application=self.app.name, batch=batch_id, error=str(error))


def _reports(rows: DataFrame, plan: ApplicationPlan) -> list[ApplicationReport]:
    """Run the tasks; returns, for each partition, the report of the attempt that Spark accepted."""
    task = functools.partial(run_application, plan)
    # Does what `DataFrame.mapInArrow` does, without its requirement of pandas, which nothing here needs.
    function = UserDefinedFunction(task, "report binary", evalType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF)
    column = function(*(f.col(name) for name in rows.columns))
    mapped = DataFrame(rows._jdf.mapInArrow(column._jc, False, None), rows.sparkSession)  # noqa: SLF001
    # Spark leaves tasks out if it knows that they have no rows; they have nothing to do.
    return [msgspec.msgpack.decode(row[0], type=ApplicationReport) for row in mapped.collect()]
