"""`transaction`: several steps of a Spark job over several tables, with one snapshot below and one epoch at the end.

The driver has a transaction of the client, which pins the snapshot, knows what was read, and commits. The tasks upload
rows that nobody sees; the transaction takes the names of their SSTs, and gives them to the tasks that read later.
"""

import tempfile
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

from pyspark.sql import DataFrame, SparkSession

from tussock.compute.spark.batches.batch_work import is_committed, noted_commit
from tussock.compute.spark.batches.identity import MicroBatch, transaction_batch
from tussock.compute.spark.batches.task_times import TimeSpent
from tussock.compute.spark.options.options import UPLOADS_OPTION, WritePlan
from tussock.compute.spark.reads.connections import address_of, opened_store
from tussock.compute.spark.reads.staged_uploads import leave_uploads
from tussock.compute.spark.tables import where_option
from tussock.compute.spark.writes.epoch_writer import active_session, session_tasks, stage_rows
from tussock.compute.spark.writes.writer import read_stage
from tussock.statestore.base.arguments import check_writer
from tussock.statestore.client import StateStore
from tussock.statestore.contract.records import UploadedRun
from tussock.statestore.errors import InvalidOption, StoreClosed
from tussock.statestore.transactions.transaction import Transaction

__all__ = ["SparkTransaction", "transaction"]

STEPS_MAX = 1000
"""Reads and writes of one transaction: each write adds sorted runs that all later reads of its table merge."""


def transaction(
    spark: SparkSession,
    *,
    store: str | StateStore,
    writer: str | None = None,
    batch_id: int | None = None,
    partitions: int | None = None,
) -> "SparkTransaction":
    """A transaction of a Spark job, for a `with` block: at its end all that was written is one epoch.

    `store`: a URL, or an open store. With `writer` and `batch_id`, which go together, it is idempotent: repeated, it
    computes and writes nothing. `partitions`: tasks of a write, as in `write_epoch`. An exception in the block gives
    everything up. Raises `InvalidOption` here, and `Fenced` if the writer has another batch under this id.
    """
    check_writer(writer, batch_id)
    if (writer is None) != (batch_id is None):
        raise InvalidOption(
            "writer and batch_id go together: give both, so that a repeated transaction is known, or neither"
        )
    return SparkTransaction(spark, opened_store(store), writer, batch_id, session_tasks(partitions, spark))


class SparkTransaction:
    """Made by `transaction`, and used as a context manager, by one thread."""

    def __init__(
        self, spark: SparkSession, store: StateStore, writer: str | None, batch_id: int | None, tasks: int
    ) -> None:
        self._spark = spark
        self._store = store
        self._address = address_of(store.url)
        self._tasks = tasks
        self._batch: MicroBatch | None = None
        if writer is not None and batch_id is not None:
            self._batch = transaction_batch(spark.sparkContext, batch_id, writer)
        self._within: Transaction | None = None
        self._stack = ExitStack()
        self._uploads: dict[str, list[UploadedRun]] = {}
        self._spent: list[TimeSpent] = []
        self._files = 0
        self._epoch: int | None = None
        self._is_done = False

    @property
    def is_done(self) -> bool:
        """Whether the store had this (writer, batch) when the block began: then nothing is computed or written."""
        return self._is_done

    @property
    def snapshot_epoch(self) -> int:
        """The epoch that is read; 0 if nothing was committed yet."""
        return self._begun().snapshot_epoch

    @property
    def epoch(self) -> int:
        """The epoch that holds what was written, once that is committed; of one that wrote nothing, the one read."""
        if self._epoch is None:
            raise InvalidOption("the transaction has not committed; its epoch is known after the `with` block")
        return self._epoch

    def table(self, name: str, *, where: str | None = None) -> DataFrame:
        """The rows of a table at the snapshot, with what was uploaded before this call; `where`: an SQL condition.

        Later writes do not change what the DataFrame shows. It is for use within the block. Raises `TableNotFound` if
        the snapshot has no such table.
        """
        within = self._begun()
        within.note_read(name)
        self._files += 1
        path = self._folder / f"read-{self._files}"
        leave_uploads(path, within.snapshot_epoch, self._uploads.get(name, []))
        options = {"store": self._address.url, "table": name, UPLOADS_OPTION: str(path)}
        wanted = self._spark.read.format("tussock").options(**options)
        if where is None:
            return wanted.load()
        return wanted.options(**where_option(self._spark, options, where)).load().where(where)

    def upsert(self, name: str, rows: DataFrame, *, op_column: str | None = None, order_by: str | None = None) -> None:
        """Upload rows, over those that are there and those that were uploaded before; runs a Spark job.

        Of several rows of one key the one with the largest `order_by` wins. `op_column` marks deletes, as in
        `write_epoch`. Raises `TableNotFound`, `SchemaMismatch`, `InvalidOption`, and what Spark raises: nothing of this
        call is part of the transaction then.
        """
        for column, argument in ((op_column, "op_column"), (order_by, "order_by")):
            if column is not None and column not in rows.columns:
                raise InvalidOption(
                    f"table {name!r}: {argument} is {column!r}, and the rows have no such column; they have "
                    f"{rows.columns}"
                )
        self._write(name, rows, {} if op_column is None else {"opColumn": op_column}, order_by)

    def delete(self, name: str, keys: DataFrame) -> None:
        """Upload deletes of keys; columns beside those of the primary key are ignored. Raises as `upsert`."""
        self._write(name, keys, {"mode": "delete"}, None)

    def _write(self, name: str, rows: DataFrame, options: dict[str, str | None], order_by: str | None) -> None:
        within = self._begun()
        spec = within.table(name).spec
        if self._is_done:
            return
        if self._files >= STEPS_MAX:
            raise InvalidOption(f"this transaction has {STEPS_MAX:,} steps; write more rows in each, or begin another")
        self._files += 1
        plan = WritePlan(stage=str(self._folder / f"write-{self._files}"))
        with active_session(self._spark):
            stage_rows(spec, rows, self._address, plan, options, order_by, self._tasks)
        answers = read_stage(Path(plan.stage))
        within.add_uploaded(name, answers.levels)
        self._uploads[name] = answers.levels + self._uploads.get(name, [])
        self._spent += answers.spent

    def __enter__(self) -> "SparkTransaction":
        if self._within is not None:
            raise StoreClosed("the transaction is over, or has begun; begin another one")
        store, batch = self._store, self._batch
        known = None if batch is None else is_committed(store, batch)
        self._is_done = known is not None
        # What others have just committed belongs to the snapshot; a transaction of the client may begin a bit earlier.
        store.version()
        if batch is None or self._is_done:
            within = store.transaction()
        else:
            within = store.transaction(writer=batch.writer, batch_id=batch.batch_id, source=batch.source)
        self._folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="tussock-")))
        self._within = within
        try:
            within.__enter__()
            within.keep_snapshot()
        except BaseException:
            self._stack.close()
            raise
        self._epoch = known
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        within = self._within
        assert within is not None
        with self._stack:
            if error is not None:
                within.__exit__(kind, error, trace)
            elif self._is_done or self._batch is None:
                within.__exit__(None, None, None)
                self._epoch = self._epoch or within.epoch
            else:
                self._epoch = noted_commit(
                    self._store, self._batch, self._uploads, self._spent, lambda: _committed(within)
                )

    def _begun(self) -> Transaction:
        if self._within is None:
            raise InvalidOption("the transaction has not begun; use it in a `with` block")
        return self._within


def _committed(within: Transaction) -> int:
    within.__exit__(None, None, None)
    return within.epoch
