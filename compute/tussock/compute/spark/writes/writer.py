"""Writes: tasks turn their rows into invisible SSTs, and one commit on the driver makes them an epoch.

Each attempt of a task uploads SSTs under its own ids and returns their names; Spark accepts the result of one attempt
per task. Those of failed, slower and aborted attempts stay unnamed, and vacuum deletes them: nothing is deleted here,
because a commit whose answer was lost may name them. (The protocol is that of Iceberg's and Delta's sinks; the facts
about Spark 4.3's commit coordinator are in `docs/spark.md`.)
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from tussock.compute.spark.batches.batch_work import commit_batch, is_committed
from tussock.compute.spark.batches.identity import MicroBatch, sink_batch
from tussock.compute.spark.batches.task_times import Meter, TimeSpent
from tussock.compute.spark.options.evolution import check_known, schema_changes
from tussock.compute.spark.options.options import WriteOptions
from tussock.compute.spark.options.schemas import check_writable, storable_batch
from tussock.compute.spark.reads.connections import committing_store, same_table, working_store
from tussock.compute.spark.reads.epoch_reads import EpochReads
from tussock.compute.spark.writes.guard import Guard, guard_of
from tussock.compute.spark.writes.guarded_upload import Compared, expected_epochs, guarded_upload
from tussock.compute.spark.writes.merges import merged_batches
from tussock.compute.spark.writes.operations import DELETE_COLUMN, gather_batches, marked_deletes
from tussock.statestore.client import StateStore
from tussock.statestore.contract.records import TableSpec, UploadedRun
from tussock.statestore.errors import InvalidOption, SchemaMismatch
from tussock.statestore.tables.typed_table import TypedTable

__all__ = ["BatchWriter", "StreamWriter", "Upload", "UploadResult", "WriteResult", "plan_upload", "read_stage"]

_QUERY_ID = "sql.streaming.queryId"
"""Local property of Spark's streaming tasks; stable over restarts of one checkpoint."""


@dataclass
class UploadResult(WriterCommitMessage):  # type: ignore[misc]
    """A task's result: its sorted runs, newest first, the streaming query that it ran for, and where its time went."""

    levels: list[UploadedRun]
    query_id: str | None
    spent: TimeSpent
    tombstones: list[UploadedRun] = field(default_factory=list)
    """Runs of the table of deletes, with `newerThan` and `keepDeletes`."""
    compared: Compared | None = None
    """Set by a task that compared rows with what is stored."""


class WriteResult(msgspec.Struct, frozen=True):
    """What all tasks of a write returned, for `write_epoch`."""

    levels: list[UploadedRun]
    """Newest first."""
    spent: list[TimeSpent]
    tombstones: list[UploadedRun] = []
    """Runs of the table of deletes."""


@dataclass(frozen=True)
class Upload:
    """A task's parameters for writing its share; made on the driver and pickled."""

    options: WriteOptions
    spec: TableSpec
    guard: Guard | None = None
    """Set if rows are compared with what is stored."""

    def run(self, batches: Iterator[pa.RecordBatch]) -> UploadResult:
        """Upload a task's rows; the store's `buffer_bytes` limits memory (a merge, or `newerThan`, holds them all)."""
        context = TaskContext.get()
        query_id = context.getLocalProperty(_QUERY_ID) if context is not None else None
        meter = Meter()
        store, rows = working_store(self.options.address), meter.rows(batches)
        if self.guard is None:
            return UploadResult(self._upload(store, rows, meter), query_id, meter.spent())
        levels, tombstones, compared = guarded_upload(store, self.spec, self.guard, self.options, rows, meter)
        return UploadResult(levels, query_id, meter.spent(), tombstones, compared)

    def _upload(self, store: StateStore, batches: Iterator[pa.RecordBatch], meter: Meter) -> list[UploadedRun]:
        table: Any = same_table(store, self.spec)
        plan = self.options.plan
        schema = table.schema
        batches = (storable_batch(batch, schema, self.spec.name) for batch in batches)
        if self.options.op_column is not None:
            batches = marked_deletes(batches, self.options.op_column, self.spec.name)
        elif self.options.delete_all:
            batches = (_mark_deletes(batch, self.spec) for batch in batches)
        elif plan is not None and plan.merge is not None:
            with EpochReads(store, plan.read_epoch) as reads:
                find = partial(_stored_rows, reads, self.spec, plan.read_epoch) if plan.read_epoch else None
                # Reads may have to go through a snapshot, and nothing is written through one.
                return table.upload(merged_batches(batches, table, plan.merge, find, meter), waited=meter.add_wait)
        marked = self.options.op_column is not None or self.options.delete_all
        if isinstance(table, TypedTable):
            delete_column = DELETE_COLUMN if marked else None
            return table.upload(gather_batches(batches), delete_column=delete_column, waited=meter.add_wait)
        return table.upload(gather_batches(map(_raw_operations, batches) if marked else batches), waited=meter.add_wait)


def _stored_rows(reads: EpochReads, spec: TableSpec, epoch: int, keys: pa.Table) -> pa.StructArray:
    return reads.run(spec, lambda table: table.multi_get(keys, epoch=epoch))


def plan_upload(options: WriteOptions, schema: StructType, *, overwrite: bool = False) -> Upload:
    """Check a write on the driver before any task runs; `TableNotFound`, `SchemaMismatch` or `InvalidOption`."""
    if overwrite and options.newer_than is not None:
        raise InvalidOption(
            f"option newerThan is {options.newer_than!r}, and the write replaces the whole table (overwrite, or "
            "complete mode): there is nothing to compare with; leave newerThan out, or append"
        )
    store = working_store(options.address)
    table = store.table(options.table)
    for column, option in ((options.op_column, "opColumn"), (options.newer_than, "newerThan")):
        if column is not None and column not in schema.fieldNames():
            raise SchemaMismatch(
                f"table {options.table!r}: the rows have no column {column!r}, which {option} names; "
                f"they have {schema.fieldNames()}"
            )
    ignored = set() if options.op_column is None else {options.op_column}
    if options.delete_all:
        expected = pa.schema([table.schema.field(name) for name in table.spec.primary_key or ("key",)])
        ignored |= {name for name in schema.fieldNames() if name not in expected.names}
        check_writable(schema, expected, expected.names, ignored, options.table)
    else:
        if options.merge_schema:
            add, widen = schema_changes(schema, table.schema, ignored)
            if len(add) or len(widen):
                table = store.alter_table(options.table, add=add, widen=widen)
        check_known(schema, table.schema, ignored, options.table)
        check_writable(schema, table.schema, table.spec.primary_key, ignored, options.table)
    if options.newer_than is None:
        return Upload(options, table.spec)
    return Upload(options, table.spec, guard_of(store, table.spec, options.newer_than, options.keep_deletes))


class _Committer:
    """The part of batch and stream writers that runs on the driver."""

    def __init__(self, upload: Upload, overwrite: bool) -> None:
        self.upload = upload
        self.overwrite = overwrite

    def write(self, iterator: Iterator[pa.RecordBatch]) -> UploadResult:
        """Write a task's rows; runs in the task."""
        return self.upload.run(iterator)

    def commit_runs(self, messages: Sequence[UploadResult | None], batch: MicroBatch | None) -> None:
        """Commit what the tasks uploaded as one epoch; a repeated batch changes nothing."""
        options = self.upload.options
        store = committing_store(options.address)
        runs, spent = runs_of(messages), _spent_of(messages)
        if batch is not None and is_committed(store, batch) is not None:
            return
        same_table(store, self.upload.spec)
        uploads, expect = {options.table: runs}, None
        if self.upload.guard is not None:
            expect = expected_epochs(self.upload.spec, self.upload.guard, [one.compared for one in messages if one])
            if self.upload.guard.tombstones is not None:
                beside = same_table(store, self.upload.guard.tombstones)
                uploads[beside.name] = _tombstones_of(messages)
        if self.overwrite:
            meter = Meter()
            deletes, read_epoch = _delete_all(store, self.upload.spec, meter)
            uploads, expect = {options.table: runs + deletes}, {options.table: read_epoch}
            spent.append(meter.spent())
        if batch is None:
            store.commit_uploaded(uploads, expect=expect)
        else:
            commit_batch(store, batch, uploads, spent, expect)


class BatchWriter(_Committer, DataSourceArrowWriter):  # type: ignore[misc]
    """`df.write.format("tussock")`."""

    def __init__(self, upload: Upload, overwrite: bool) -> None:
        if (upload.options.writer is None) != (upload.options.batch_id is None):
            raise InvalidOption("options writerId and writerVersion go together in a batch write: give both or neither")
        super().__init__(upload, overwrite)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Commit, or leave the runs for `write_epoch`, which commits several tables at once."""
        plan = self.upload.options.plan
        if plan is not None:
            staged = WriteResult(runs_of(messages), _spent_of(messages), _tombstones_of(messages))
            Path(plan.stage).write_bytes(msgspec.msgpack.encode(staged))
            return
        options = self.upload.options
        batch = None
        if options.writer is not None and options.batch_id is not None:
            batch = sink_batch(options.writer, options.batch_id, None, options.table)
        self.commit_runs(messages, batch)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Do nothing: what was uploaded is invisible, and vacuum deletes it."""


class StreamWriter(_Committer, DataSourceStreamArrowWriter):  # type: ignore[misc]
    """`df.writeStream.format("tussock")`."""

    def __init__(self, upload: Upload, overwrite: bool) -> None:
        if upload.options.batch_id is not None:
            raise InvalidOption(
                f"option writerVersion is {upload.options.batch_id}, and the write is a stream, which numbers its "
                "batches itself; leave it out"
            )
        super().__init__(upload, overwrite)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Commit a micro-batch, once for each (query or `writerId`, batch)."""
        query_id = next((message.query_id for message in messages if message is not None and message.query_id), None)
        writer = self.upload.options.writer
        if writer is None and query_id is None:
            raise InvalidOption(
                "no task named its streaming query, so a repeated batch could not be recognised; give option writerId"
            )
        self.commit_runs(messages, sink_batch(writer, batchId, query_id, self.upload.options.table))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Do nothing: what was uploaded is invisible, and vacuum deletes it."""


def runs_of(messages: Sequence[Any]) -> list[UploadedRun]:
    """All sorted runs, newest first: if tasks wrote the same key, the later task's row wins."""
    return [run for message in reversed(messages) if message is not None for run in message.levels]


def _tombstones_of(messages: Sequence[Any]) -> list[UploadedRun]:
    return [run for message in messages if message is not None for run in message.tombstones]


def _spent_of(messages: Sequence[Any]) -> list[TimeSpent]:
    return [message.spent for message in messages if message is not None]


def read_stage(stage: Path) -> WriteResult:
    """The record that a `BatchWriter` left in that file."""
    return msgspec.msgpack.decode(stage.read_bytes(), type=WriteResult)


def _delete_all(store: StateStore, spec: TableSpec, meter: Meter) -> tuple[list[UploadedRun], int]:
    """Runs that delete each present row, and the epoch that was read; being older runs, they hide no new row."""
    with store.pin_snapshot() as snapshot:
        there: Any = snapshot.table(spec.name)
        table: Any = store.table(spec.name)
        if isinstance(table, TypedTable):
            keys = (_mark_deletes(batch, spec) for batch in _read(there.read(list(spec.primary_key)), meter))
            return table.upload(keys, delete_column=DELETE_COLUMN, waited=meter.add_wait), snapshot.epoch
        gone = (_raw_operations(_mark_deletes(batch, spec)) for batch in _read(there.scan(), meter))
        return table.upload(gone, waited=meter.add_wait), snapshot.epoch


def _read(batches: Iterator[pa.RecordBatch], meter: Meter) -> Iterator[pa.RecordBatch]:
    while True:
        with meter.reading():
            batch = next(batches, None)
        if batch is None:
            return
        yield batch


def _mark_deletes(batch: pa.RecordBatch, spec: TableSpec) -> pa.RecordBatch:
    """The keys of the batch, each marked as a delete."""
    keys = batch.select(list(spec.primary_key or ("key",)))
    return keys.append_column(DELETE_COLUMN, pa.repeat(True, batch.num_rows))


def _raw_operations(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A raw table's rows with the column `op` that its upload takes, from the marks."""
    marks = batch.column(DELETE_COLUMN)
    values = batch.column("value") if "value" in batch.schema.names else pa.nulls(batch.num_rows, pa.binary())
    words = pa.DictionaryArray.from_arrays(marks.cast(pa.int8()), ["put", "delete"]).cast(pa.string())
    return pa.record_batch([batch.column("key"), values, words], names=["key", "value", "op"])
