"""Batch reads: a table at one epoch, divided among tasks, as Arrow batches.

The epoch is resolved when the DataFrame is made, so all its evaluations show the same rows. Spark never says when a
DataFrame is done with, so nothing here pins the epoch for that long: it stays readable for the store's retention, or
for as long as somebody pins it (`StateStore.pin_snapshot`, whose epoch goes into the option `epoch`). A task that is
late for the retention finds such a pin.
"""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from tussock.compute.spark.conditions import Conditions, conditions_of
from tussock.compute.spark.connections import Table, same_table, working_store
from tussock.compute.spark.options import ReadOptions
from tussock.compute.spark.partitions import KeyLookup, KeyPrefix, KeyRange, VnodeRange, key_ranges, vnode_ranges
from tussock.compute.spark.schemas import arrow_target, fitted
from tussock.statestore.catalog import TableSpec
from tussock.statestore.client import StateStore
from tussock.statestore.epochs import epoch_at_ms
from tussock.statestore.errors import InvalidOption, SchemaMismatch, SnapshotExpired
from tussock.statestore.system import RealSystem
from tussock.statestore.typed_table import TypedTable

__all__ = ["TableReader", "resolve_epoch"]


def resolve_epoch(store: StateStore, table: Table, options: ReadOptions) -> int:
    """The epoch to read at: the newest, the one asked for, or the newest of a time; 0 if nothing was committed yet.

    Raises `InvalidOption` for an epoch that is not committed or a time to come, `SnapshotExpired` for one that is no
    longer kept.
    """
    newest = store.committed_epoch
    if options.epoch is not None and options.epoch > newest:
        raise InvalidOption(f"epoch {options.epoch} is not committed; the newest committed epoch is {newest}")
    if options.timestamp_ms is not None and options.timestamp_ms > RealSystem().now_ms():
        raise InvalidOption(f"timestamp {options.timestamp_ms} lies in the future: what it shows would still change")
    wanted = options.epoch
    if options.timestamp_ms is not None:
        wanted = min(epoch_at_ms(options.timestamp_ms), newest)
    if wanted is None:
        return newest
    if newest:
        _expire(store, table, wanted)
    return wanted if newest else 0


def _expire(store: StateStore, table: Table, epoch: int) -> None:
    """Raise `SnapshotExpired` if the epoch cannot be read any more: neither retention nor a pin keeps it."""
    try:
        # Nothing is read: the call checks the epoch, and no row is asked for.
        nothing = VnodeRange(0, 0) if isinstance(table, TypedTable) else KeyRange(b"", b"")
        _rows(table, nothing, epoch, table.schema.names[:1], Conditions())
    except SnapshotExpired:
        store.pin_snapshot(epoch).close()


class TableReader(DataSourceReader):  # type: ignore[misc]
    """Reads one table at one epoch; made on the driver, used there to plan and in tasks to read."""

    def __init__(self, options: ReadOptions, spec: TableSpec, epoch: int, schema: StructType) -> None:
        self.options = options
        self.spec = spec
        self.epoch = epoch
        self.schema = schema
        self.conditions = conditions_of(options.where, spec.arrow_schema(), spec.name)
        missing = [name for name in schema.fieldNames() if name not in spec.arrow_schema().names]
        if missing:
            raise SchemaMismatch(
                f"table {spec.name!r} has no columns {missing}; it has {spec.arrow_schema().names}", spec.name
            )

    def partitions(self) -> list[InputPartition]:
        """One partition per lookup, or ranges of about equal bytes; none if nothing was committed."""
        if not self.epoch:
            return []
        store = working_store(self.options.address)
        same_table(store, self.spec)
        state = store.version().tables[self.spec.id]
        if self.spec.schema is None:
            return list(key_ranges(state))
        keys = self.conditions.keys(self.spec.primary_key)
        if keys is not None:
            return [KeyLookup(tuple(keys))] if keys else []
        prefix = self.conditions.prefix(self.spec.primary_key, self.spec.distribution_key)
        if prefix is not None:
            return [KeyPrefix(prefix)]
        return list(vnode_ranges(state))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The partition's rows in Spark's types. Raises `SnapshotExpired` if the epoch is gone."""
        if not isinstance(partition, VnodeRange | KeyRange | KeyLookup | KeyPrefix):
            # What Spark makes of an empty list of partitions.
            return
        store = working_store(self.options.address)
        table = same_table(store, self.spec)
        target = arrow_target(self.schema)
        try:
            rows = _rows(table, partition, self.epoch, target.names, self.conditions)
        except SnapshotExpired:
            # Past the retention, but a pin of the job's user may keep it; one of this task's own then does so, too.
            with store.pin_snapshot(self.epoch) as snapshot:
                pinned = _rows(snapshot.table(self.spec.name), partition, self.epoch, target.names, self.conditions)
                yield from (fitted(batch, target, self.spec.name) for batch in pinned)
            return
        for batch in rows:
            yield fitted(batch, target, self.spec.name)


def _rows(
    table: Any, partition: InputPartition, epoch: int, columns: list[str], conditions: Conditions
) -> Iterator[pa.RecordBatch]:
    """Batches with `columns` of the partition's rows that meet the conditions; the epoch is checked at once."""
    expression = conditions.expression(table.schema)
    if isinstance(partition, KeyRange):
        scanned = table.scan(start=partition.start, end=partition.end, epoch=epoch)
        kept = scanned if expression is None else (batch.filter(expression) for batch in scanned)
        return (batch.select(columns) for batch in kept)
    if isinstance(partition, KeyLookup):
        found = table.multi_get(list(partition.keys), epoch=epoch)
        rows = pa.RecordBatch.from_arrays(found.flatten(), names=table.schema.names).filter(found.is_valid())
        return iter([(rows if expression is None else rows.filter(expression)).select(columns)])
    if isinstance(partition, KeyPrefix):
        return table.read(columns, expression, epoch, prefix=partition.values)
    return table.read(columns, expression, epoch, vnodes=(partition.low, partition.high))
