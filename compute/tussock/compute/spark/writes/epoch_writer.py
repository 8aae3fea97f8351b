"""Writes several tables in one epoch from one micro-batch, for `foreachBatch`; also keyed read-modify-write.

Each table's tasks upload through the data source, which leaves the names of the SSTs in a file instead of committing:
it and this process are on the driver's machine. Then one commit makes all tables' rows visible, under (writer, batch).
A merge, or a comparison with what is stored (`newer_than`), reads at one epoch, the same in all tasks, which the driver
pins; the commit names that epoch, so that another writer's commit in between gives `Conflict` and not a lost update.
"""

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import msgspec
import pyarrow.types as pt
from pyspark.sql import Column, DataFrame, SparkSession

from tussock.compute.spark.batches.batch_work import commit_batch, is_committed
from tussock.compute.spark.batches.identity import micro_batch
from tussock.compute.spark.batches.task_times import TimeSpent
from tussock.compute.spark.options.options import PLAN_OPTION, StoreAddress, WritePlan
from tussock.compute.spark.options.schemas import column_named
from tussock.compute.spark.reads.connections import address_of, opened_store
from tussock.compute.spark.writes.guard import check_guard_arguments, check_newer_than, guard_of
from tussock.compute.spark.writes.merges import check_merge
from tussock.compute.spark.writes.writer import read_stage
from tussock.statestore.client import StateStore
from tussock.statestore.contract.records import TableSpec, UploadedRun
from tussock.statestore.errors import InvalidOption
from tussock.statestore.keys.vnode import VNODES_MAX

__all__ = ["TableWrite", "active_session", "session_tasks", "stage_rows", "task_count", "upsert", "write_epoch"]

TableWrite: TypeAlias = DataFrame | tuple[DataFrame, Mapping[str, str]]
"""Rows to upsert, or rows and how to merge each value column with the stored one."""


@dataclass(frozen=True)
class _Share:
    """One table's part of an epoch."""

    spec: TableSpec
    rows: DataFrame
    merge: dict[str, str] | None
    newer_than: str | None
    has_operations: bool

    @property
    def reads(self) -> bool:
        """Whether the tasks read what is stored."""
        return self.merge is not None or self.newer_than is not None


def upsert(
    table: str,
    *,
    store: str | StateStore,
    writer: str | None = None,
    merge: Mapping[str, str] | None = None,
    op_column: str | None = None,
    order_by: str | None = None,
    newer_than: str | None = None,
    keep_deletes: float | None = None,
    partitions: int | None = None,
) -> Callable[[DataFrame, int], None]:
    """A function for `foreachBatch` that writes each micro-batch to one table, exactly once; see `write_epoch`."""

    def write(rows: DataFrame, batch_id: int) -> None:
        part: TableWrite = rows if merge is None else (rows, merge)
        write_epoch(
            batch_id,
            {table: part},
            store=store,
            writer=writer,
            op_column=op_column,
            order_by=order_by,
            newer_than=newer_than,
            keep_deletes=keep_deletes,
            partitions=partitions,
        )

    return write


def write_epoch(
    batch_id: int,
    tables: Mapping[str, TableWrite],
    *,
    store: str | StateStore,
    writer: str | None = None,
    op_column: str | None = None,
    order_by: str | None = None,
    newer_than: str | None = None,
    keep_deletes: float | None = None,
    partitions: int | None = None,
) -> int:
    """Write several tables in one epoch, and return it. If (writer, batch_id) is committed, computes nothing.

    `store`: a URL, or an open store, which then commits and compacts. `writer` defaults to the streaming query's id
    with the names of the tables, so that each commit of a function has its own name. `op_column` marks deletes in the
    rows that have it, as the option `opColumn` does. Of several rows of one key the one with the largest `order_by`
    wins, if the rows have that column; without it any of them. `partitions`: tasks per table, up to 256; the rows are
    repartitioned by key. With a power of two each task writes its own range, and all together write one run of L0; with
    another number each task writes a run.

    `newer_than` names a value column of the table, such as a position in a database's log: for tables whose rows have
    it, the row with the largest one of each key is written, if what is stored under the key has none that is as large.
    With `keep_deletes`, seconds, a delete leaves its own in the table `<name>.tombstones` for that long.
    `docs/spark/cdc.md` has the whole.

    Raises `Conflict` if another writer wrote to a table that was read, to merge with it or to compare, meanwhile:
    nothing of the batch is visible, repeat it.
    Raises `Fenced` if the writer has a different batch under this `batch_id` (of another query, or of another call of
    this function). Raises `InvalidOption`, `SchemaMismatch` or `TableNotFound` before anything is computed, also for an
    `order_by`, `op_column` or `newer_than` that no rows have as a column of exactly that name.
    """
    if not tables:
        raise InvalidOption("write_epoch was given no tables; expected at least one")
    open_store = opened_store(store)
    address = address_of(open_store.url)
    batch = micro_batch(_rows_of(next(iter(tables.values()))), batch_id, writer, tables)
    committed = is_committed(open_store, batch)
    if committed is not None:
        return committed
    _check_named(order_by, "order_by", tables)
    _check_named(op_column, "op_column", tables)
    _check_named(newer_than, "newer_than", tables)
    check_guard_arguments(newer_than, keep_deletes, op_column)
    shares = [_share(open_store, name, part, op_column, newer_than) for name, part in tables.items()]
    beside = _tombstone_tables(open_store, shares, keep_deletes)
    tasks = task_count(partitions, shares[0].rows)
    with ExitStack() as stack:
        stack.enter_context(active_session(shares[0].rows.sparkSession))
        expect: dict[str, int] = {}
        read_epoch = 0
        if any(share.reads for share in shares):
            read_epoch = stack.enter_context(open_store.pin_snapshot()).epoch
            expect = {share.spec.name: read_epoch for share in shares if share.reads}
            expect |= dict.fromkeys(beside.values(), read_epoch)
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tussock-")))
        uploads: dict[str, list[UploadedRun]] = {}
        spent: list[TimeSpent] = []
        for at, share in enumerate(shares):
            plan = WritePlan(stage=str(folder / str(at)), merge=share.merge, read_epoch=read_epoch)
            options = _options(share, op_column, keep_deletes)
            stage_rows(share.spec, share.rows, address, plan, options, order_by, tasks)
            answers = read_stage(Path(plan.stage))
            uploads[share.spec.name] = answers.levels
            if share.spec.name in beside:
                uploads[beside[share.spec.name]] = answers.tombstones
            spent += answers.spent
        return commit_batch(open_store, batch, uploads, spent, expect)


def _share(store: StateStore, name: str, part: TableWrite, op_column: str | None, newer_than: str | None) -> _Share:
    rows, merge = (part, None) if isinstance(part, DataFrame) else part
    table = store.table(name)
    if merge is not None:
        if table.spec.schema is None:
            raise InvalidOption(f"table {name!r} is raw: its values have no columns to merge")
        check_merge(merge, table.schema, table.spec.primary_key, name)
        missing = [column for column in merge if column not in rows.columns]
        if missing:
            raise InvalidOption(
                f"table {name!r}: merge names {missing}, and the rows have no such columns (upper and lower case "
                f"differ); they have {rows.columns}"
            )
        if op_column is not None and op_column in rows.columns:
            raise InvalidOption(f"table {name!r}: rows with {op_column!r} are not merged; write deletes on their own")
        if newer_than is not None and newer_than in rows.columns:
            raise InvalidOption(
                f"table {name!r}: newer_than is {newer_than!r}, a column of its rows, and they are to be merged: a "
                "merge takes each row, whatever its version; drop the column for this table, or write it by another "
                "call"
            )
    version = newer_than if newer_than in rows.columns else None
    if version is not None:
        check_newer_than(version, table.spec)
    has_operations = op_column is not None and op_column in rows.columns
    return _Share(table.spec, rows, None if merge is None else dict(merge), version, has_operations)


def _tombstone_tables(store: StateStore, shares: Sequence[_Share], keep_deletes: float | None) -> dict[str, str]:
    """The names of the tables that keep the deletes of these, by table; creates those that are missing."""
    beside: dict[str, str] = {}
    for share in shares:
        if keep_deletes is None or share.newer_than is None or not share.has_operations:
            continue
        kept = guard_of(store, share.spec, share.newer_than, keep_deletes).tombstones
        assert kept is not None
        if any(kept.name == other.spec.name for other in shares):
            raise InvalidOption(
                f"table {kept.name!r} keeps the deletes of table {share.spec.name!r}, and cannot be written by the "
                "same call; leave it out"
            )
        beside[share.spec.name] = kept.name
    return beside


def _options(share: _Share, op_column: str | None, keep_deletes: float | None) -> dict[str, str | None]:
    """The options of the write of one table."""
    options: dict[str, str | None] = {"opColumn": op_column} if share.has_operations else {}
    if share.newer_than is not None:
        options["newerThan"] = share.newer_than
        if share.has_operations and keep_deletes is not None:
            options["keepDeletes"] = repr(keep_deletes)
    return options


def stage_rows(
    spec: TableSpec,
    rows: DataFrame,
    address: StoreAddress,
    plan: WritePlan,
    options: Mapping[str, str | None],
    order_by: str | None,
    tasks: int,
) -> None:
    """Upload rows by a Spark job, and leave the runs in the plan's file; `options` are those of a write."""
    rows = rows.repartition(tasks, *(_place(name, rows, spec) for name in spec.distribution_key or ("key",)))
    if order_by is not None and order_by in rows.columns:
        rows = rows.sortWithinPartitions(column_named(order_by))
        if order_by not in (*spec.arrow_schema().names, options.get("opColumn")):
            rows = rows.drop(column_named(order_by))
    writer = rows.write.format("tussock").mode("append").option("store", address.url)
    writer = writer.option(PLAN_OPTION, msgspec.json.encode(plan).decode())
    for name, value in options.items():
        writer = writer.option(name, value)
    writer.save(spec.name)


def _place(name: str, rows: DataFrame, spec: TableSpec) -> Column:
    """The value of a key column that decides which task has the row.

    Spark's partition of a row is its hash modulo the tasks, and the vnode is made from the same hash: each task gets a
    contiguous range of vnodes, and the output of all tasks fits into one run of L0. Several doubles may be the same key
    of floats, and must meet in one task; conversions between other types keep keys apart, or refuse them.
    """
    column = column_named(name)
    if name in rows.columns and pt.is_float32(spec.arrow_schema().field(name).type):
        return column.cast("float")
    return column


def _check_named(column: str | None, argument: str, parts: Mapping[str, TableWrite]) -> None:
    """Raise `InvalidOption` if an argument names a column that no table's rows have, and so would do nothing."""
    if column is None or any(column in _rows_of(part).columns for part in parts.values()):
        return
    found = "; ".join(f"for table {name!r}: {_rows_of(part).columns}" for name, part in parts.items())
    raise InvalidOption(
        f"{argument} is {column!r}, and no rows have a column of that name (upper and lower case differ); they have, "
        f"{found}"
    )


@contextmanager
def active_session(session: SparkSession) -> Iterator[None]:
    """Make the session active in this thread, unless one is: Spark looks the format up in that one when it writes."""
    sessions = session._jvm.SparkSession  # noqa: SLF001
    if sessions.getActiveSession().isDefined():
        yield
        return
    sessions.setActiveSession(session._jsparkSession)  # noqa: SLF001
    try:
        yield
    finally:
        sessions.clearActiveSession()


def _rows_of(part: TableWrite) -> DataFrame:
    return part if isinstance(part, DataFrame) else part[0]


def task_count(partitions: int | None, rows: DataFrame) -> int:
    """The tasks per table: the given number, or the largest power of two up to the session's cores."""
    return session_tasks(partitions, rows.sparkSession)


def session_tasks(partitions: int | None, spark: SparkSession) -> int:
    """The same for a session."""
    if partitions is None:
        cores = max(1, min(VNODES_MAX, spark.sparkContext.defaultParallelism))
        return 1 << (cores.bit_length() - 1)
    if not 1 <= partitions <= VNODES_MAX:
        raise InvalidOption(f"partitions is {partitions}; expected 1 to {VNODES_MAX}, best a power of two")
    return partitions
