"""Batch reads: a table at one epoch, divided among tasks, as Arrow batches.

The epoch is resolved when the DataFrame is made, so all its evaluations show the same rows. Spark never says when it is
done with a DataFrame, and it ends the processes that call this module when they are idle, so nothing here pins the
epoch: it stays readable for the store's retention, or for as long as a pin lives (that of `read_table`, or one of
`StateStore.pin_snapshot`, whose epoch goes into the option `asOfEpoch`). A task that outlasts the retention finds such
a pin.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from msgspec.structs import replace as with_fields
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from tussock.compute.spark.options.conditions import LOOKUP_KEYS_MAX, conditions_of, expression_of
from tussock.compute.spark.options.options import ReadOptions, not_committed
from tussock.compute.spark.options.pushdown import filter_tests, portable_tests
from tussock.compute.spark.options.schemas import arrow_target, check_columns, fit_batch
from tussock.compute.spark.options.where import where_json
from tussock.compute.spark.reads.connections import Table, same_table, working_store
from tussock.compute.spark.reads.epoch_reads import EpochReads
from tussock.compute.spark.reads.partitions import (
    PARTITION_BYTES,
    KeyLookup,
    KeyRange,
    VnodeRange,
    intervals,
    key_ranges,
    vnode_ranges,
)
from tussock.statestore.base.system import RealSystem
from tussock.statestore.client import StateStore
from tussock.statestore.contract.records import TableSpec, UploadedRun
from tussock.statestore.epochs import epoch_at_ms, iso
from tussock.statestore.errors import InvalidOption, SnapshotExpired
from tussock.statestore.keys.conditions import Conditions
from tussock.statestore.moments import check_begun
from tussock.statestore.tables.typed_table import TypedTable

__all__ = ["FilteringReader", "TableReader", "resolve_epoch"]


def resolve_epoch(store: StateStore, table: Table, options: ReadOptions) -> int:
    """The epoch to read: the newest, the requested one, or the newest at a time; 0 if nothing was committed yet.

    Raises `InvalidOption` for an epoch that is not committed, a time in the future, and a moment before the first
    commit; `SnapshotExpired` for one that is no longer kept.
    """
    newest = store.committed_epoch
    if options.epoch is not None and options.epoch > newest:
        raise not_committed("epoch", options.epoch, newest, store.url)
    if options.timestamp_ms is not None and options.timestamp_ms > RealSystem().now_ms():
        raise InvalidOption(
            f"timestamp {options.timestamp_ms} lies in the future: what it shows would still change; give a time that "
            "has passed, or none for the newest epoch"
        )
    wanted = options.epoch
    if options.timestamp_ms is not None:
        wanted = min(epoch_at_ms(options.timestamp_ms), newest)
    if wanted is None:
        return newest
    if newest:
        _check_readable(store, table, wanted)
    check_begun(store, table, wanted, _requested_moment(options))
    return wanted


def _requested_moment(options: ReadOptions) -> str:
    if options.timestamp_ms is None:
        return f"epoch {options.epoch}"
    return f"timestamp {options.timestamp_ms} ({iso(options.timestamp_ms)})"


def _check_readable(store: StateStore, table: Table, epoch: int) -> None:
    """Raise `SnapshotExpired` if the epoch is no longer readable: neither retention nor a pin keeps it."""
    try:
        # The call checks the epoch; no row is asked for, so nothing is read.
        nothing = VnodeRange(0, 0) if isinstance(table, TypedTable) else KeyRange(b"", b"")
        _rows(table, nothing, epoch, table.schema.names[:1], Conditions())
    except SnapshotExpired:
        store.pin_snapshot(epoch).close()


class TableReader(DataSourceReader):  # type: ignore[misc]
    """Reads one table at one epoch; made on the driver, which plans with it, while tasks read with it."""

    def __init__(
        self,
        options: ReadOptions,
        spec: TableSpec,
        epoch: int,
        schema: StructType,
        uploads: Sequence[UploadedRun] = (),
    ) -> None:
        """`uploads`: what of the table a transaction has uploaded, newest first; it is read over the epoch."""
        self.uploads = uploads
        self.options = options
        self.spec = spec
        self.epoch = epoch
        self.schema = schema
        self.conditions = conditions_of(options.where, spec.arrow_schema(), spec.name)
        check_columns(schema.fieldNames(), spec.arrow_schema(), spec.name)

    def partitions(self) -> list[InputPartition]:
        """One partition per lookup, or ranges of about equal bytes; none if nothing was committed."""
        if not self.epoch:
            return []
        store = working_store(self.options.address)
        same_table(store, self.spec)
        state = store.version().tables[self.spec.id]
        if self.uploads:
            levels = with_fields(state.levels, l0=(*self.uploads, *state.levels.l0))
            state = with_fields(state, levels=levels)
        split_bytes = self.options.split_bytes or PARTITION_BYTES
        primary_key = self.spec.primary_key or ("key",)
        keys = self.conditions.keys(primary_key, LOOKUP_KEYS_MAX)
        if keys is not None:
            return [KeyLookup(tuple(keys))] if keys else []
        intervals_of_keys = self.conditions.intervals(primary_key)
        if intervals_of_keys == []:
            return []
        between = intervals_of_keys[0] if intervals_of_keys else None
        if self.spec.schema is None:
            low, high = between or ((), ())
            # No key lies between this one and the same one with a zero byte at its end.
            return list(key_ranges(state, split_bytes, low[0] if low else None, high[0] + b"\0" if high else None))
        return list(vnode_ranges(state, split_bytes) if between is None else intervals(state, between, split_bytes))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The partition's rows in Spark's types. Raises `SnapshotExpired` if the epoch is gone."""
        if not isinstance(partition, VnodeRange | KeyRange | KeyLookup):
            # Spark makes this of an empty list of partitions.
            return
        store = working_store(self.options.address)
        target = arrow_target(self.schema)
        with EpochReads(store, self.epoch, self.uploads) as reads:
            rows = reads.run(
                self.spec, lambda table: _rows(table, partition, self.epoch, target.names, self.conditions)
            )
            for batch in rows:
                yield fit_batch(batch, target, self.spec.name)


class FilteringReader(TableReader):
    """A reader that takes filters from Spark; Spark calls it only if its setting for that is on."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Take the filters that tests of columns replace exactly, and return those that Spark has to apply.

        For `read_table` it takes none, and leaves those that the option `where` can hold in a file.
        """
        schema = self.spec.arrow_schema()
        if self.options.filter_stage is not None:
            Path(self.options.filter_stage).write_text(where_json(portable_tests(filters, schema)), encoding="utf-8")
            return filters
        tests, left = filter_tests(filters, schema, self.spec.primary_key or ("key", "value"))
        self.conditions = replace(self.conditions, tests=(*self.conditions.tests, *tests))
        return left


def _rows(
    table: Any, partition: InputPartition, epoch: int, columns: list[str], conditions: Conditions
) -> Iterator[pa.RecordBatch]:
    """Batches with `columns` of the partition's rows that meet the conditions; checks the epoch at once."""
    names = columns + sorted(conditions.columns.difference(columns))
    if isinstance(partition, KeyRange):
        found = table.scan(start=partition.start, end=partition.end, epoch=epoch)
    elif isinstance(partition, VnodeRange):
        found = table.read(names, epoch=epoch, between=partition.between, vnodes=(partition.low, partition.high))
    else:
        assert isinstance(partition, KeyLookup)
        found = iter([_lookup_rows(table, partition, epoch)])
    expression = expression_of(conditions, table.schema)
    if expression is None:
        return (batch.select(columns) for batch in found)
    kept = (batch.select(names).filter(expression) for batch in found)
    return (batch.select(columns) for batch in kept if batch.num_rows)


def _lookup_rows(table: Any, lookup: KeyLookup, epoch: int) -> pa.RecordBatch:
    """The existing rows among those with the keys."""
    if not isinstance(table, TypedTable):
        keys = [key for (key,) in lookup.keys]
        values = table.multi_get(keys, epoch=epoch)
        rows = pa.record_batch([pa.array(keys, pa.binary()), values], names=["key", "value"])
        return rows.filter(values.is_valid())
    found = table.multi_get(list(lookup.keys), epoch=epoch)
    return pa.RecordBatch.from_arrays(found.flatten(), names=found.type.names).filter(found.is_valid())
