"""A task's part of a write that is compared with what is stored: it uploads only rows that are newer than that.

A task has to see all rows of its keys, since two tasks could otherwise both find their row to be the newest. The
helpers repartition by key; other writes leave the rows where Spark has them, so each task tells where its keys lie, and
the driver refuses a write if two tasks have keys in one place.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from tussock.compute.spark.batches.task_times import Meter
from tussock.compute.spark.options.options import WriteOptions
from tussock.compute.spark.options.schemas import storable_batch
from tussock.compute.spark.reads.connections import same_table
from tussock.compute.spark.reads.epoch_reads import EpochReads
from tussock.compute.spark.writes.guard import Guard
from tussock.compute.spark.writes.merges import LOOKUP_ROWS, calculable
from tussock.compute.spark.writes.newest import hash_places, is_newer, newest_of_each
from tussock.compute.spark.writes.operations import DELETE_COLUMN, marked_deletes
from tussock.statestore.client import StateStore
from tussock.statestore.contract.records import TableSpec, UploadedRun
from tussock.statestore.errors import InvalidBatch
from tussock.statestore.keys.encoding import KeyEncoder
from tussock.statestore.tables.typed_input import conform

__all__ = ["Compared", "GuardedUpload", "expected_epochs", "guarded_upload"]


class Compared(NamedTuple):
    """What a task's rows were compared with, and where their keys lie."""

    epoch: int
    """The epoch that was read; 0 for an empty store."""
    places: int
    """Bits, see `hash_places`; none where a helper has placed the rows by key."""


class GuardedUpload(NamedTuple):
    """What a task uploaded, newest first, and of how it was compared; `None` if the task had no rows."""

    levels: list[UploadedRun]
    tombstones: list[UploadedRun]
    compared: Compared | None


def guarded_upload(
    store: StateStore,
    spec: TableSpec,
    guard: Guard,
    options: WriteOptions,
    batches: Iterable[pa.RecordBatch],
    meter: Meter,
) -> GuardedUpload:
    """Upload those of a task's rows that are newer than what is stored; holds all of them in memory."""
    table: Any = same_table(store, spec)
    schema, places = table.schema, 0
    parts: list[_ComparedRows] = []
    for batch in batches:
        if not batch.num_rows:
            continue
        if options.plan is None:
            places |= hash_places(_placed_by(batch, spec))
        stored = storable_batch(batch, schema, spec.name)
        marked = stored.append_column(DELETE_COLUMN, pa.repeat(False, stored.num_rows))
        if options.op_column is not None:
            (marked,) = marked_deletes([stored], options.op_column, spec.name)
        if marked.num_rows:
            parts.append(_ComparedRows(marked, _keyed(marked, schema, spec, guard.column)))
    if not parts:
        return GuardedUpload([], [], None)
    with ExitStack() as stack:
        if options.plan is None:
            store.version()  # what other processes have just committed
            epoch = stack.enter_context(store.pin_snapshot()).epoch
        else:
            epoch = options.plan.read_epoch
        reads = stack.enter_context(EpochReads(store, epoch))
        known = _StoredVersions(reads, spec, guard, epoch, meter)
        buried: list[pa.RecordBatch] = []
        levels = table.upload(_newer(parts, known, buried), delete_column=DELETE_COLUMN, waited=meter.add_wait)
        tombstones: list[UploadedRun] = []
        if guard.tombstones is not None and buried:
            beside: Any = same_table(store, guard.tombstones)
            tombstones = beside.upload(buried, waited=meter.add_wait)
    return GuardedUpload(levels, tombstones, Compared(epoch, places))


def expected_epochs(spec: TableSpec, guard: Guard, compared: Sequence[Compared | None]) -> dict[str, int]:
    """What a commit of these tasks expects of the tables that they read; none if no task had rows.

    Raises `InvalidBatch` if two tasks may have had rows of one key: each would be compared with what is stored alone.
    """
    there = [one for one in compared if one is not None]
    if not there:
        return {}
    seen = 0
    for one in there:
        if seen & one.places:
            columns = ", ".join(repr(name) for name in spec.distribution_key)
            raise InvalidBatch(
                f"table {spec.name!r}: newerThan needs all rows of a key in one task, and two of {len(there)} tasks "
                f"may have rows of the same key; write rows.repartition(n, {columns}), where n is a power of two up to "
                "256, or use ts.upsert(..., newer_than=...) in foreachBatch; nothing was stored"
            )
        seen |= one.places
    # Nobody has written since the smallest of them, so all tasks have read the same.
    epoch = min(one.epoch for one in there)
    return {table.name: epoch for table in (spec, guard.tombstones) if table is not None}


def _placed_by(batch: pa.RecordBatch, spec: TableSpec) -> list[pa.Array]:
    """The columns by whose hash Spark places a row, in the types of the rows: Spark hashes these.

    One value of a key has one value there, except that several doubles may be the same key of floats.
    """
    schema = spec.arrow_schema()
    columns = [(batch.column(name), schema.field(name).type) for name in spec.distribution_key]
    return [column.cast(kind) if pt.is_float32(kind) else column for column, kind in columns]


class _ComparedRows(NamedTuple):
    """Rows as Spark sent them, and beside them what is compared."""

    rows: pa.RecordBatch
    keyed: pa.RecordBatch


def _keyed(batch: pa.RecordBatch, schema: pa.Schema, spec: TableSpec, version: str) -> pa.RecordBatch:
    """Keys and versions in the table's types, in which they are compared; `InvalidBatch` for a null version."""
    fields = [schema.field(name) for name in spec.primary_key] + [schema.field(version).with_nullable(True)]
    keyed = conform(batch.select([field.name for field in fields]), pa.schema(fields), spec.primary_key, spec.name)
    versions = keyed.column(version)
    if versions.null_count:
        at = pc.index(versions.is_null(), True).as_py()
        key = {name: keyed.column(name)[at].as_py() for name in spec.primary_key}
        raise InvalidBatch(
            f"table {spec.name!r}: column {version!r} is null in a row with the key {key}; newer_than compares it, so "
            "each row needs a value, deletes too; nothing of the write was stored",
            at,
            tuple(key.values()),
        )
    return keyed.set_column(len(spec.primary_key), version, calculable(versions))


class _StoredVersions(NamedTuple):
    """What the store knows of keys at one epoch."""

    reads: EpochReads
    spec: TableSpec
    guard: Guard
    epoch: int
    meter: Meter

    def of(self, spec: TableSpec, keys: pa.Table) -> pa.StructArray:
        """The stored version of each key, in a struct that is null where no row is there."""
        column, epoch = self.guard.column, self.epoch
        if not epoch:
            field = spec.arrow_schema().field(column)
            nothing = pa.nulls(keys.num_rows, field.type)
            return pa.StructArray.from_arrays([nothing], [column], mask=pa.repeat(True, keys.num_rows))
        with self.meter.reading():
            found: pa.StructArray = self.reads.run(
                spec, lambda table: table.multi_get(keys, epoch=epoch, columns=[column])
            )
        return found


def _newer(
    parts: Sequence[_ComparedRows], known: _StoredVersions, buried: list[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The rows to write, and the deletes of rows that are there; tombstones go to `buried`."""
    spec, column, tombstones = known.spec, known.guard.column, known.guard.tombstones
    rows, keyed = (pa.Table.from_batches(batches) for batches in zip(*parts, strict=True))
    encoder = KeyEncoder(spec.arrow_schema(), spec.primary_key)
    wins = newest_of_each(pa.chunked_array([encoder.encode(part.keyed) for part in parts]), keyed.column(column))
    if wins is not None:
        rows, keyed = rows.filter(pa.array(wins)), keyed.filter(pa.array(wins))
    for start in range(0, rows.num_rows, LOOKUP_ROWS):
        chunk, compared = rows.slice(start, LOOKUP_ROWS), keyed.slice(start, LOOKUP_ROWS)
        keys = compared.select(list(spec.primary_key))
        stored = known.of(spec, keys)
        others = [stored] if tombstones is None else [stored, known.of(tombstones, keys)]
        newer = is_newer(compared.column(column).combine_chunks(), *(found.flatten()[0] for found in others))
        deletes = chunk.column(DELETE_COLUMN).combine_chunks()
        # A delete of a row that is not there has nothing to hide, and still is to be remembered.
        yield from chunk.filter(pc.and_(newer, pc.or_(pc.invert(deletes), stored.is_valid()))).to_batches()
        if tombstones is not None:
            buried += compared.filter(pc.and_(newer, deletes)).to_batches()
