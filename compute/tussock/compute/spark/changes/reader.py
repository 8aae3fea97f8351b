"""Reads of a table's changes in tasks, by ranges of virtual nodes or keys; and the batch form of the change feed."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from tussock.compute.spark.changes.cursor import oldest_kept, pin_after
from tussock.compute.spark.options.options import ChangeOptions, not_committed
from tussock.compute.spark.options.schemas import arrow_target, check_columns, fit_batch, spark_schema
from tussock.compute.spark.reads.connections import Table, same_table, working_store
from tussock.compute.spark.reads.epoch_reads import EpochReads
from tussock.compute.spark.reads.partitions import KeyRange, VnodeRange, key_ranges, vnode_ranges
from tussock.statestore.client import StateStore
from tussock.statestore.contract.records import Run, TableLevels, TableSpec, TableState
from tussock.statestore.epochs import SERIAL_BITS
from tussock.statestore.errors import InvalidOption, SchemaMismatch, SnapshotExpired

__all__ = [
    "ChangeReader",
    "ChangeTasks",
    "ChangesOf",
    "Span",
    "change_schema",
    "plan_shares",
    "resolve_span",
    "start_of",
]

_ADDED = pa.schema(
    [
        pa.field("_op", pa.string(), nullable=False),
        pa.field("_epoch", pa.int64(), nullable=False),
        pa.field("_commit_timestamp", pa.timestamp("us", tz="UTC"), nullable=False),
    ]
)


@dataclass(frozen=True)
class Span:
    """Changes after `after`, up to and with `until`; or, as a snapshot, the rows at `after` as inserts."""

    after: int
    until: int
    snapshot: bool = False


@dataclass(frozen=True)
class ChangesOf(InputPartition):  # type: ignore[misc]
    """One task's share of a span."""

    span: Span
    part: VnodeRange | KeyRange


def change_schema(options: ChangeOptions, spec: TableSpec) -> StructType:
    """The columns of the table, or of option `columns`, and `_op`, `_epoch`, `_commit_timestamp`."""
    schema = spec.arrow_schema()
    names = list(options.columns or schema.names)
    check_columns(names, schema, spec.name)
    taken = [name for name in names if name in _ADDED.names]
    if taken:
        raise SchemaMismatch(
            f"table {spec.name!r} has columns {taken}, which a change feed adds; leave them out with option columns",
            spec.name,
        )
    key = spec.primary_key or ("key",)
    # A delete whose old row is not known has nulls as values.
    fields = [schema.field(name).with_nullable(name not in key) for name in names]
    return spark_schema(pa.schema([*fields, *_ADDED]), (*key, *_ADDED.names), spec.name)


def start_of(store: StateStore, table: Table, options: ChangeOptions) -> Span:
    """Where a feed begins according to its options: after which epoch, and whether with the rows at that epoch.

    At `earliest`, rows stand for the changes that are no longer kept. Raises `InvalidOption` for an epoch that is not
    committed.
    """
    newest = store.committed_epoch
    if options.start == "latest":
        return Span(newest, newest)
    if options.start == "earliest":
        oldest = min(oldest_kept(table), newest)
        return Span(oldest, newest, snapshot=oldest > 0)
    first = int(options.start)
    if first > newest:
        raise not_committed("startingEpoch", first, newest, store.url)
    # This is not the epoch before, only a bound: below `first`, and at or above every smaller epoch.
    return Span(first - 1, newest)


def resolve_span(store: StateStore, table: Table, options: ChangeOptions) -> Span:
    """What a batch read of changes shows; `SnapshotExpired` if some of it is no longer kept."""
    begin = start_of(store, table, options)
    until = begin.until if options.end is None else options.end
    if until > begin.until:
        raise not_committed("endingEpoch", until, begin.until, store.url)
    if until < begin.after:
        if options.start == "earliest":
            raise SnapshotExpired(
                f"endingEpoch {until} of table {table.name!r}: the oldest epoch that is kept is {begin.after}",
                until,
                begin.after,
            )
        raise InvalidOption(
            f"endingEpoch {until} lies before startingEpoch {options.start}; both are part of what is read, so give an "
            "end that is not smaller"
        )
    try:
        table.change_feed(begin.after, until)
    except SnapshotExpired:
        # The epoch is past the retention; the user may have pinned it for the job.
        pin_after(store, begin.after).close()
    return Span(begin.after, until, begin.snapshot)


def plan_shares(state: TableState, span: Span) -> list[ChangesOf]:
    """The span divided into shares with about equal bytes to read."""
    levels = state.levels
    if not span.snapshot:
        # Which run is newer does not matter here.
        runs = [
            [sst for sst in run if sst.max_epoch > span.after and sst.min_epoch <= span.until]
            for run in (*levels.runs(), *(one.ssts for one in levels.history))
        ]
        levels = TableLevels(l0=tuple(Run(ssts=tuple(run)) for run in runs if run))
        if not levels.l0:
            return []
    part = TableState(spec=state.spec, levels=levels)
    ranges: Sequence[VnodeRange | KeyRange] = key_ranges(part) if state.spec.schema is None else vnode_ranges(part)
    return [ChangesOf(span, one) for one in ranges]


class ChangeTasks:
    """The part of batch and stream readers that runs in tasks."""

    def __init__(self, options: ChangeOptions, spec: TableSpec, schema: StructType) -> None:
        self.options = options
        self.spec = spec
        self.schema = schema
        known = [*spec.arrow_schema().names, *_ADDED.names]
        missing = [name for name in schema.fieldNames() if name not in known]
        if missing:
            raise SchemaMismatch(f"the changes of table {spec.name!r} have no columns {missing}; they have {known}")

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The partition's changes in Spark's types. Raises `SnapshotExpired` if they are gone."""
        if not isinstance(partition, ChangesOf):
            # Spark makes this of an empty list of partitions.
            return
        store = working_store(self.options.address)
        store.wait_epoch(partition.span.until)
        # As for the stream's cursor, no pin lies below 1.
        with EpochReads(store, max(partition.span.after, 1)) as reads:
            yield from reads.run(self.spec, lambda table: self._changes(table, partition))

    def _changes(self, table: Table, partition: ChangesOf) -> Iterator[pa.RecordBatch]:
        span, part = partition.span, partition.part
        target = arrow_target(self.schema)
        names = [name for name in target.names if name not in _ADDED.names] or [table.schema.names[0]]
        if isinstance(part, VnodeRange):
            keys: dict[str, Any] = {"vnodes": (part.low, part.high)}
            picked = {"columns": names}
        else:
            keys, picked = {"start": part.start, "end": part.end}, {}
        reader: Any = table
        if span.snapshot:
            rows = (reader.read if picked else reader.scan)(epoch=span.after, **keys, **picked)
            changes = (_as_inserts(batch, span.after) for batch in rows)
        else:
            changes = reader.change_feed(
                span.after, span.until, before_images=self.options.before_images, **keys, **picked
            )
        return (fit_batch(_with_times(batch), target, self.spec.name) for batch in changes)


class ChangeReader(ChangeTasks, DataSourceReader):  # type: ignore[misc]
    """`spark.read` with `readChangeFeed`: the changes between two epochs."""

    def __init__(self, options: ChangeOptions, spec: TableSpec, schema: StructType, span: Span) -> None:
        super().__init__(options, spec, schema)
        self.span = span

    def partitions(self) -> list[InputPartition]:
        """The rows that `earliest` stands for, then the changes."""
        store = working_store(self.options.address)
        same_table(store, self.spec)
        state = store.version().tables[self.spec.id]
        parts = plan_shares(state, self.span) if self.span.snapshot else []
        return [*parts, *plan_shares(state, Span(self.span.after, self.span.until))]


def _as_inserts(rows: pa.RecordBatch, epoch: int) -> pa.RecordBatch:
    rows = rows.append_column("op", pa.repeat("insert", rows.num_rows))
    return rows.append_column("epoch", pa.repeat(pa.scalar(epoch, pa.uint64()), rows.num_rows))


def _with_times(changes: pa.RecordBatch) -> pa.RecordBatch:
    """The feed's last two columns under their names here, and the time that is part of the epoch."""
    *columns, operations, epochs = changes.columns
    milliseconds = pc.shift_right(epochs, pa.scalar(SERIAL_BITS, pa.uint64())).cast(pa.int64())
    times = milliseconds.cast(pa.timestamp("ms", tz="UTC")).cast(_ADDED.field("_commit_timestamp").type)
    return pa.RecordBatch.from_arrays(
        [*columns, operations, epochs.cast(pa.int64()), times], names=[*changes.schema.names[:-2], *_ADDED.names]
    )
