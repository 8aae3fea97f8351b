"""A typed table: rows of an Arrow schema under a primary key; value columns stay columns, down into the blocks."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tussock.statestore.contract.records import TableSpec, UploadedRun
from tussock.statestore.errors import InvalidBatch, SchemaMismatch
from tussock.statestore.keys.encoding import KeyEncoder
from tussock.statestore.keys.intervals import Interval
from tussock.statestore.keys.key_bytes import check_key_bytes
from tussock.statestore.parts import StoreParts
from tussock.statestore.read.access import TableAccess
from tussock.statestore.rows.python_values import python_value
from tussock.statestore.rows.row_codec import ABSENT, Row
from tussock.statestore.rows.rows import Rows
from tussock.statestore.rows.wider_types import as_type
from tussock.statestore.sst.lookups.wanted_keys import FEW_KEYS, Keys
from tussock.statestore.tables.change_feed import ChangeFeed
from tussock.statestore.tables.changes import change_batches
from tussock.statestore.tables.filters import found_rows, read_plan
from tussock.statestore.tables.raw_input import first_disorder
from tussock.statestore.tables.reads import (
    check_filter,
    check_limit,
    filter_batch,
    key_ranges,
    picked_columns,
)
from tussock.statestore.tables.row_keys import RowKeys
from tussock.statestore.tables.shape import Shape, encoder_of, shape_of
from tussock.statestore.tables.typed_input import TypedRows, conform, delete_marks, key_rows, uploaded_batches
from tussock.statestore.write.sorted_runs import sorted_newest, take_hits

__all__ = ["TypedTable"]


class TypedTable:
    """Reads and writes of one typed table; of a snapshot's, reads only. In a transaction writes take no epoch."""

    def __init__(self, parts: StoreParts, spec: TableSpec, access: TableAccess) -> None:
        self._parts = parts
        self._access = access
        self._id = spec.id
        self._shape = shape_of(spec)
        # The key never changes.
        self._encoder = encoder_of(spec)
        self._reader = access.reads
        self._overlay = access.begin_overlay(self._encode_kept)
        self._alone = RowKeys(self._encoder, spec.primary_key)

    @property
    def spec(self) -> TableSpec:
        """The table as the catalog holds it."""
        return self._now().spec

    @property
    def name(self) -> str:
        """The table's name."""
        return self._shape.spec.name

    @property
    def schema(self) -> pa.Schema:
        """The rows' Arrow schema, with what `StateStore.alter_table` has changed since, as far as is known here."""
        return self._now().schema

    @property
    def primary_key(self) -> tuple[str, ...]:
        """Names of the key columns, in key order."""
        return self._shape.spec.primary_key

    def upsert(self, rows: TypedRows, epoch: int | None = None) -> None:
        """Write whole rows at `epoch`, in any order; of several rows with one key the last wins.

        `rows`: Arrow data with the table's columns in any order (or a list of dicts); a nullable column that is
        missing is null. Raises `SchemaMismatch` or `EpochTooOld`; then nothing was stored.
        """
        at = self._access.write_epoch(epoch)
        if not self._write_alone(at, rows):
            self._access.write(at, sorted_newest(self._encode(rows, self._now())))

    def ingest_batch(self, rows: TypedRows, epoch: int | None = None) -> None:
        """Write rows whose primary keys ascend strictly; otherwise `InvalidBatch` names the first that does not.

        For callers whose rows are sorted and unique by contract: a breach of it is refused here, where `upsert`
        would sort it away.
        """
        epoch = self._access.write_epoch(epoch)
        shape = self._now()
        batch = conform(rows, shape.schema, self.primary_key, self.name)
        # The stored order begins with the virtual node; the caller's is by primary key alone.
        keys = KeyEncoder(shape.schema, self.primary_key).encode(batch)
        at = first_disorder(keys)
        if at is not None:
            key = tuple(batch.column(name)[at].as_py() for name in self.primary_key)
            what = "repeats the key before it" if keys[at] == keys[at - 1] else "comes after a greater key"
            raise InvalidBatch(
                f"table {self.name!r}: position {at}: key {key} {what}; the keys of a batch have to ascend by "
                f"{list(self.primary_key)}; nothing was stored, upsert takes rows in any order",
                at,
                key,
            )
        self._access.write(epoch, sorted_newest(self._encode(batch, shape)))

    def delete(self, keys: TypedRows | Sequence[Any], epoch: int | None = None) -> None:
        """Delete rows by primary key: Arrow data with the key columns, or a list of key tuples (or of dicts)."""
        at = self._access.write_epoch(epoch)
        few = self._few_keys(keys)
        if few is not None and self._access.write_alone(at, [(key, None) for key in few], self._encode_kept):
            return
        encoded = self._encode_keys(keys)
        check_key_bytes(encoded, self.name)
        nulls = tuple(pa.nulls(len(encoded), kind) for kind in self._now().types)
        rows = Rows(encoded, 0, np.ones(len(encoded), np.bool_), nulls)
        self._access.write(at, sorted_newest(rows))

    def upload(
        self,
        rows: Iterable[pa.RecordBatch],
        *,
        delete_column: str | None = None,
        waited: Callable[[float], object] | None = None,
    ) -> list[UploadedRun]:
        """Write rows in any order straight to SSTs that nobody sees until `StateStore.commit_uploaded` names them.

        For writers in other processes than the committer's, such as Spark's tasks: the answer is small and can be
        pickled. `delete_column` names a boolean column, not of the table, that marks rows to delete by their key.
        `waited` is told, each time, the seconds that the caller had to wait for the bucket.
        """
        shape = self._now()
        marked = (self._mark_deletes(batch, shape, delete_column) for batch in uploaded_batches(rows, self.name))
        return self._access.upload(shape.spec, marked, waited)

    def _mark_deletes(self, batch: pa.RecordBatch, shape: Shape, delete_column: str | None) -> Rows:
        if delete_column is None:
            return self._encode(batch, shape)
        marks = delete_marks(batch, delete_column, self.name)
        rows = batch.drop_columns([delete_column])
        if not marks.any():
            return self._encode(rows, shape)
        # A delete needs its key only; the rows that are not deletes are held to the schema as they stand.
        self._encode(rows.filter(pa.array(~marks)), shape)
        relaxed = pa.schema([field.with_nullable(field.name not in self.primary_key) for field in shape.schema])
        encoded = self._encode(rows, shape._replace(schema=relaxed))
        return Rows(encoded.keys, 0, marks, encoded.columns)

    def get(self, key: Sequence[Any] | Any, epoch: int | None = None) -> dict[str, Any] | None:
        """The row under `key` (a tuple of key values; the bare value where the key is one column), or `None`.

        A value that no Python class holds, such as a time in nanoseconds without pandas, is Arrow's scalar; that is
        taken for a key as well.
        """
        if self._overlay is None or epoch is not None:
            return self._found(self._encoder.encode_row(key if isinstance(key, tuple | list) else (key,)), epoch)
        encoded = self._alone.key(key)
        row = self._overlay.find(encoded)
        shape = self._now()
        if row is ABSENT:
            row = self._found(encoded, epoch)
            if shape.codec is not None:
                self._overlay.remember(encoded, row)
        if row is None:
            return None
        # Columns that the table got since the row was kept are null.
        names = shape.schema.names
        return row.copy() if len(row) == len(names) else {name: row.get(name) for name in names}

    def _found(self, encoded: bytes, epoch: int | None) -> Row | None:
        """The row under an encoded key, as the reads of the table's access find it."""
        found = self._reader.find(encoded, epoch)
        if found is None:
            return None
        shape = self._now()
        row = dict(zip(self.primary_key, self._key_values(encoded), strict=True))
        for column, name, kind in zip(found.block.rows.columns, shape.values, shape.types, strict=False):
            value = column[found.at]
            value = value if column.type == kind else value.cast(kind)
            row[name] = python_value(value, check=name in shape.lossy)
        # Columns that the table got after the row was stored are null.
        return {name: row.get(name) for name in shape.schema.names}

    def multi_get(
        self, keys: TypedRows | Sequence[Any], epoch: int | None = None, *, columns: Sequence[str] | None = None
    ) -> pa.StructArray:
        """The rows under `keys` as a struct array aligned with them, null where there is none.

        `columns`: names to return, in that order; all if `None`.
        """
        few = self._few_keys(keys)
        encoded = self._encode_keys(keys) if few is None else few
        hits = self._reader.find_many(encoded, epoch)
        # After the rows were found: they are of no newer schema.
        shape = self._now()
        names = picked_columns(columns, shape.schema, self.name)
        wanted = [at for at, name in enumerate(shape.values) if name in names]
        found, values = take_hits(hits, len(encoded), wanted, [shape.types[at] for at in wanted], self.name)
        arrays = self._assemble(encoded, values, shape, set(names))
        by_name = dict(zip((name for name in shape.schema.names if name in names), arrays, strict=True))
        fields = [shape.schema.field(name) for name in names]
        return pa.StructArray.from_arrays([by_name[name] for name in names], fields=fields, mask=pa.array(~found))

    def read(
        self,
        columns: Sequence[str] | None = None,
        filter: pc.Expression | None = None,  # noqa: A002 - the public API's name
        epoch: int | None = None,
        *,
        prefix: Sequence[Any] | None = None,
        between: Interval | None = None,
        vnodes: tuple[int, int] | None = None,
        limit: int | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Batches of visible rows, ordered by virtual node, then key.

        `columns`: names to return; `filter`: an Arrow expression over any columns, whose tests of keys narrow the read;
        `prefix`: values of leading key columns (cheapest where they cover the distribution key); `between`: two such
        tuples, both inclusive, an empty one for an open end; `vnodes`: [from, to) of the virtual nodes to read.
        `limit` counts rows after the filter. Raises `SnapshotExpired`, `SchemaMismatch`, `InvalidOption`.
        """
        shape = self._now()
        names = picked_columns(columns, shape.schema, self.name)
        limit = check_limit(limit)
        check_filter(filter, shape.schema, self.name)
        given = key_ranges(self._encoder, shape.spec.vnodes, prefix, between, vnodes)
        ranges, keys, tests = read_plan(self._encoder, shape, filter, given)
        needed = set(shape.schema.names) if filter is not None or columns is None else set(names)
        wanted = [at for at, name in enumerate(shape.values) if name in needed]
        if keys is None:
            picked = None if len(wanted) == len(shape.values) else wanted
            most = limit if filter is None else None
            rows = self._reader.scan(ranges, epoch, limit=most, columns=picked, tests=tests)
        else:
            hits = self._reader.find_many(keys, epoch)
        if self._now() is not shape:
            # Altered in between: the rows may be of other columns.
            return self.read(columns, filter, epoch, prefix=prefix, between=between, vnodes=vnodes, limit=limit)
        rows = rows if keys is None else iter([found_rows(hits, keys, wanted, shape)])
        return self._batches(rows, shape, names, needed, filter, limit)

    def changes(self, from_epoch: int, to_epoch: int | None = None) -> Iterator[pa.RecordBatch]:
        """All that was committed in (from_epoch, to_epoch]: batches of the table's columns, then `op` and `epoch`.

        By virtual node, then key, then epoch; `op` is 'put' or 'delete', and of a delete the value columns are null.
        Where the table has a column of such a name, the added one has underscores in front until its name is free.
        Raises `SnapshotExpired` if versions after `from_epoch` may have been compacted away.
        """
        epochs = from_epoch, to_epoch
        return change_batches(self._feed(), self.spec, epochs, (None, None), None, compared=False)

    def change_feed(
        self,
        from_epoch: int,
        to_epoch: int | None = None,
        *,
        columns: Sequence[str] | None = None,
        vnodes: tuple[int, int] | None = None,
        before_images: bool = True,
    ) -> Iterator[pa.RecordBatch]:
        """What each commit in (from_epoch, to_epoch] changed, with what was there before: `columns`, `op`, `epoch`.

        Batches ordered by virtual node, then key, then epoch. `op` is 'insert', 'update_preimage' and
        'update_postimage', or 'delete' with the row that went; without `before_images` there are no preimages, and of a
        deleted row the key columns only. Deletes of what was not there are left out. Through a snapshot: what was
        committed after it, from its epoch or a later one. Raises `SnapshotExpired` if `from_epoch` is no longer kept,
        `InvalidOption` if `to_epoch` is not committed.
        """
        ranges = key_ranges(self._encoder, self._shape.spec.vnodes, None, None, vnodes)
        keys = ranges.bounds if ranges else (b"", b"")
        epochs = from_epoch, to_epoch
        return change_batches(self._feed(), self.spec, epochs, keys, columns, before_images=before_images)

    def change_epochs(self, from_epoch: int, to_epoch: int | None = None) -> list[int]:
        """The epochs in (from_epoch, to_epoch] that wrote to the table, ascending; raises as `change_feed` does.

        Also those whose writes changed nothing, such as a delete of a missing row, of which `change_feed` has no row.
        """
        return self._feed().epochs(from_epoch, to_epoch)

    def _batches(
        self,
        rows: Iterator[Rows],
        shape: Shape,
        names: list[str],
        needed: set[str],
        condition: pc.Expression | None,
        limit: int | None,
    ) -> Iterator[pa.RecordBatch]:
        schema = pa.schema([field for field in shape.schema if field.name in needed])
        for part in rows:
            batch = pa.record_batch(self._assemble(part.keys, list(part.columns), shape, needed), schema=schema)
            if condition is not None:
                batch = filter_batch(batch, condition, self.name)
            batch = batch.select(names)
            if limit is not None:
                batch = batch.slice(0, limit)
                limit -= batch.num_rows
            if batch.num_rows:
                yield batch
            if limit == 0:
                return

    def _write_alone(self, epoch: int, rows: TypedRows) -> bool:
        """Write a few dicts, all or none, as they are; whether that can be done without Arrow."""
        codec = self._now().codec
        if codec is None or type(rows) is not list or len(rows) > FEW_KEYS:
            return False
        kept: list[tuple[bytes, Row | None]] = []
        for given in rows:
            row = codec.row(given)
            if row is None:
                return False
            kept.append((self._alone.key_of(row), row))
        return self._access.write_alone(epoch, kept, self._encode_kept)

    def _encode_kept(self, keys: Sequence[bytes], rows: Sequence[Row | None]) -> Rows:
        """Rows that were written alone, or deletes, by ascending keys."""
        shape = self._now()
        deletes = np.array([row is None for row in rows], np.bool_)
        columns = tuple(
            pa.array([None if row is None else row.get(name) for row in rows], kind)
            for name, kind in zip(shape.values, shape.types, strict=True)
        )
        return Rows(pa.array(keys, pa.binary()), 0, deletes if deletes.any() else None, columns)

    def _key_values(self, key: bytes) -> Sequence[Any]:
        try:
            return self._encoder.decode_row(key)
        except (OverflowError, ValueError):
            columns = self._encoder.decode(pa.array([key], pa.binary()), check_text=False)
            return [python_value(column[0]) for column in columns]

    def _few_keys(self, keys: TypedRows | Sequence[Any]) -> list[bytes] | None:
        """The encoded keys of a short list, each as `get` takes it; `None` for any other form, and if one is wrong."""
        if not isinstance(keys, list) or len(keys) >= FEW_KEYS:
            return None
        try:
            return [self._encoder.encode_row(key if isinstance(key, tuple | list) else (key,)) for key in keys]
        except SchemaMismatch:
            # Dicts, or a mistake: of all keys together it can be told where it is.
            return None

    def _assemble(
        self, keys: Keys, values: Sequence[pa.Array], shape: Shape, needed: set[str] | None = None
    ) -> list[pa.Array]:
        """The table's columns (those `needed`) in schema order, from encoded keys and stored values."""
        names = [name for name in shape.values if needed is None or name in needed]
        by_name = dict(zip(names, values, strict=True))
        if needed is None or any(name in needed for name in self.primary_key):
            few = isinstance(keys, list)
            columns = self._encoder.decode_few(keys) if few else self._encoder.decode(keys, check_text=False)
            by_name.update(zip(self.primary_key, columns, strict=True))
        picked = [field for field in shape.schema if needed is None or field.name in needed]
        return [as_type(by_name[field.name], field.type) for field in picked]

    def _encode(self, rows: TypedRows, shape: Shape) -> Rows:
        batch = conform(rows, shape.schema, self.primary_key, self.name)
        columns = zip(shape.values, shape.types, strict=True)
        stored = tuple(as_type(batch.column(name), kind) for name, kind in columns)
        keys = self._encoder.encode(batch)
        check_key_bytes(keys, self.name)
        return Rows(keys, 0, None, stored)

    def _encode_keys(self, keys: TypedRows | Sequence[Any]) -> pa.BinaryArray:
        schema = pa.schema([self._shape.schema.field(name) for name in self.primary_key])
        rows = key_rows(keys, self.primary_key, self.name)
        return self._encoder.encode(conform(rows, schema, self.primary_key, self.name, to_store=False))

    def _now(self) -> Shape:
        """The table as the newest version known here has it; no request."""
        state = self._parts.backend.version().tables.get(self._id)
        shape = self._shape
        if state is not None and state.spec is not shape.spec:
            same = state.spec.schema == shape.spec.schema
            # The same, if it was loaded anew: remembered, so that it is known at once the next time.
            shape = self._shape = shape._replace(spec=state.spec) if same else shape_of(state.spec)
        return shape

    def _feed(self) -> ChangeFeed:
        self._access.check_history()
        return ChangeFeed(self._access.views, self._parts.sstables)
