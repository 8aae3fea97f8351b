"""A typed table: rows of an Arrow schema under a primary key; value columns stay columns, down into the blocks."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tussock.statestore.backend import PinHandle
from tussock.statestore.batches import first_disorder
from tussock.statestore.catalog import SubLevel, TableSpec
from tussock.statestore.change_feed import ChangeFeed
from tussock.statestore.conform import TypedRows, conform, key_rows
from tussock.statestore.core import Core
from tussock.statestore.epochs import check_epoch
from tussock.statestore.errors import InvalidBatch, InvalidOption, SchemaMismatch
from tussock.statestore.key_encoding import KeyEncoder, upper_bound
from tussock.statestore.reading import TableReader
from tussock.statestore.rows import Rows
from tussock.statestore.sorting import commit_order, sorted_newest, take_pieces
from tussock.statestore.sst_writer import value_schema
from tussock.statestore.table_changes import change_batches

__all__ = ["TypedTable"]

_OP = pa.field("op", pa.string(), nullable=False)
_EPOCH = pa.field("epoch", pa.uint64(), nullable=False)


class TypedTable:
    """Reads and writes of one typed table; of a snapshot's, reads only."""

    def __init__(self, core: Core, spec: TableSpec, pin: PinHandle | None = None) -> None:
        self.spec = spec
        self._core = core
        self._pin = pin
        self._schema = spec.arrow_schema()
        self._values = value_schema(spec)
        self._encoder = KeyEncoder(self._schema, spec.primary_key, spec.distribution_key, spec.vnodes)
        self._reader = TableReader(core, spec.id, spec.name, pin)

    @property
    def name(self) -> str:
        """The table's name."""
        return self.spec.name

    @property
    def schema(self) -> pa.Schema:
        """The rows' Arrow schema."""
        return self._schema

    @property
    def primary_key(self) -> tuple[str, ...]:
        """Names of the key columns, in key order."""
        return self.spec.primary_key

    def upsert(self, rows: TypedRows, epoch: int) -> None:
        """Write whole rows at `epoch`, in any order; of several rows with one key the last wins.

        `rows`: Arrow data with the table's columns in any order (or a list of dicts); a nullable column that is
        missing is null. Raises `SchemaMismatch` or `EpochTooOld`; then nothing was stored.
        """
        self._check_writable()
        self._core.buffer.check_open(check_epoch(epoch))
        self._core.write(self.spec.id, epoch, sorted_newest(self._encode(rows)))

    def ingest_batch(self, rows: TypedRows, epoch: int) -> None:
        """Write rows whose primary keys ascend strictly; otherwise `InvalidBatch` names the first that does not.

        For callers whose rows are sorted and unique by contract: a breach of it is refused here, where `upsert`
        would sort it away.
        """
        self._check_writable()
        self._core.buffer.check_open(check_epoch(epoch))
        batch = conform(rows, self._schema, self.primary_key, self.name)
        # The stored order begins with the virtual node; the caller's is by primary key alone.
        keys = KeyEncoder(self._schema, self.primary_key).encode(batch)
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
        self._core.write(self.spec.id, epoch, sorted_newest(self._encode(batch)))

    def delete(self, keys: TypedRows | Sequence[Any], epoch: int) -> None:
        """Delete rows by primary key: Arrow data with the key columns, or a list of key tuples (or of dicts)."""
        self._check_writable()
        self._core.buffer.check_open(check_epoch(epoch))
        encoded = self._encode_keys(keys)
        nulls = tuple(pa.nulls(len(encoded), field.type) for field in self._values)
        rows = Rows(encoded, 0, np.ones(len(encoded), np.bool_), nulls)
        self._core.write(self.spec.id, epoch, sorted_newest(rows))

    def upload(self, rows: Iterable[pa.RecordBatch], *, delete_column: str | None = None) -> list[SubLevel]:
        """Write rows in any order straight to SSTs that nobody sees until `StateStore.commit_uploaded` names them.

        For writers in other processes than the committer's, such as Spark's tasks: the answer is small and can be
        pickled. `delete_column` names a boolean column, not of the table, that marks rows to delete by their key.
        """
        self._check_writable()
        return self._core.upload_rows(self.spec, (self._marked(batch, delete_column) for batch in rows))

    def _marked(self, batch: pa.RecordBatch, delete_column: str | None) -> Rows:
        if delete_column is None:
            return self._encode(batch)
        marks = batch.column(delete_column).fill_null(False).to_numpy(zero_copy_only=False)
        rows = batch.drop_columns([delete_column])
        if not marks.any():
            return self._encode(rows)
        # A delete needs its key only; the rows that are not deletes are held to the schema as they stand.
        self._encode(rows.filter(pa.array(~marks)))
        relaxed = pa.schema([field.with_nullable(field.name not in self.primary_key) for field in self._schema])
        encoded = self._encode(rows, relaxed)
        return Rows(encoded.keys, 0, marks, encoded.columns)

    def get(self, key: Sequence[Any] | Any, epoch: int | None = None) -> dict[str, Any] | None:
        """The row under `key` (a tuple of key values; the bare value where the key is one column), or `None`."""
        encoded = self._encoder.encode_row(key if isinstance(key, tuple | list) else (key,))
        found = self._reader.find(encoded, epoch)
        if found is None:
            return None
        values = [column[found.at].as_py() for column in found.block.rows.columns]
        row = dict(zip(self.primary_key, self._encoder.decode_row(encoded), strict=True))
        row.update(zip(self._values.names, values, strict=True))
        return {name: row[name] for name in self._schema.names}

    def multi_get(self, keys: TypedRows | Sequence[Any], epoch: int | None = None) -> pa.StructArray:
        """The rows under `keys` as a struct array aligned with them, null where there is none."""
        encoded = self._encode_keys(keys)
        pieces = self._reader.find_many(encoded, epoch)
        found, values = take_pieces(pieces, len(encoded), range(len(self._values)), self._values.types)
        arrays = self._assemble(encoded, values)
        return pa.StructArray.from_arrays(arrays, fields=list(self._schema), mask=pa.array(~found))

    def read(
        self,
        columns: Sequence[str] | None = None,
        filter: pc.Expression | None = None,  # noqa: A002 - the public API's name
        epoch: int | None = None,
        *,
        prefix: Sequence[Any] | None = None,
        vnodes: tuple[int, int] | None = None,
        limit: int | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Batches of visible rows, ordered by virtual node, then key.

        `columns`: names to return (only these are decoded); `filter`: an Arrow expression over any columns;
        `prefix`: values of leading key columns (cheapest where they cover the distribution key); `vnodes`: [from, to)
        of the virtual nodes to read. `limit` counts rows after the filter. Raises `SnapshotExpired`,
        `SchemaMismatch`.
        """
        names = list(self._schema.names) if columns is None else list(columns)
        if not names:
            raise SchemaMismatch(f"table {self.name!r}: no columns to read; it has {self._schema.names}")
        for name in names:
            if name not in self._schema.names:
                raise SchemaMismatch(f"table {self.name!r} has no column {name!r}; it has {self._schema.names}")
        if limit is not None and limit < 0:
            raise InvalidOption(f"limit is {limit}; expected 0 or more")
        needed = set(self._schema.names) if filter is not None or columns is None else set(names)
        wanted = [at for at, name in enumerate(self._values.names) if name in needed]
        pushed = limit if filter is None else None
        picked = None if len(wanted) == len(self._values) else wanted
        scans = self._reader.scans(self._ranges(prefix, vnodes), epoch, limit=pushed, columns=picked)
        return self._batches(chain.from_iterable(scans), names, needed, filter, limit)

    def changes(self, from_epoch: int, to_epoch: int | None = None) -> pa.RecordBatch:
        """All that was committed in (from_epoch, to_epoch]: the table's columns, then `op` and `epoch`.

        By epoch, then key; `op` is 'put' or 'delete', and of a delete the value columns are null. Where the table has
        a column of such a name, the added one has an underscore in front.
        """
        parts = self._reader.changes(from_epoch, to_epoch)
        added = [field.with_name("_" * (field.name in self._schema.names) + field.name) for field in (_OP, _EPOCH)]
        schema = pa.schema([field.with_nullable(True) for field in self._schema] + added)
        if not parts:
            return pa.RecordBatch.from_pylist([], schema=schema)
        rows = commit_order(Rows.concat(parts))
        deletes = rows.delete_array()
        alive = pa.array(~deletes)
        values = [
            pc.if_else(alive, column, pa.scalar(None, column.type)) if deletes.any() else column
            for column in rows.columns
        ]
        arrays = self._assemble(rows.keys, values)
        operations = pa.array(np.where(deletes, "delete", "put"))
        return pa.record_batch([*arrays, operations, pa.array(rows.epoch_array())], schema=schema)

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
        keys = self._ranges(None, vnodes)[0]
        epochs = from_epoch, to_epoch
        return change_batches(self._core, self.spec, self._pin, epochs, keys, columns, before_images=before_images)

    def change_epochs(self, from_epoch: int, to_epoch: int | None = None) -> list[int]:
        """The epochs in (from_epoch, to_epoch] that wrote to the table, ascending; raises as `change_feed` does."""
        return ChangeFeed(self._core, self.spec.id, self.name, self._pin).epochs(from_epoch, to_epoch)

    def _batches(
        self,
        rows: Iterator[Rows],
        names: list[str],
        needed: set[str],
        condition: pc.Expression | None,
        limit: int | None,
    ) -> Iterator[pa.RecordBatch]:
        schema = pa.schema([field for field in self._schema if field.name in needed])
        for part in rows:
            batch = pa.record_batch(self._assemble(part.keys, list(part.columns), needed), schema=schema)
            if condition is not None:
                batch = batch.filter(condition)
            batch = batch.select(names)
            if limit is not None:
                batch = batch.slice(0, limit)
                limit -= batch.num_rows
            if batch.num_rows:
                yield batch
            if limit == 0:
                return

    def _ranges(
        self, prefix: Sequence[Any] | None, vnodes: tuple[int, int] | None
    ) -> list[tuple[bytes | None, bytes | None]]:
        """The ranges of encoded keys to read: one, or one per virtual node where a prefix leaves the node open."""
        if prefix is not None:
            if vnodes is not None:
                raise InvalidOption("a read takes a prefix or a range of vnodes, not both")
            if isinstance(prefix, str | bytes):
                raise InvalidOption(f"prefix {prefix!r}: expected a tuple of leading key values, such as ({prefix!r},)")
            encoded = self._encoder.encode_prefix(prefix)
            vnode = self._encoder.prefix_vnode(prefix)
            nodes = range(self.spec.vnodes) if vnode is None else [vnode]
            starts = [node.to_bytes(2, "big") + encoded for node in nodes]
            if len(prefix) == len(self.primary_key):
                # A whole key is itself only: a string at its end would also begin longer ones.
                return [(start, start + b"\0") for start in starts]
            return [(start, upper_bound(start)) for start in starts]
        if vnodes is None:
            return [(None, None)]
        low, high = vnodes
        if not 0 <= low <= high <= self.spec.vnodes:
            raise InvalidOption(f"vnodes {vnodes}: expected 0 <= from <= to <= {self.spec.vnodes}")
        return [(low.to_bytes(2, "big"), high.to_bytes(2, "big"))]

    def _assemble(
        self, keys: pa.BinaryArray, values: Sequence[pa.Array], needed: set[str] | None = None
    ) -> list[pa.Array]:
        """The table's columns (those `needed`) in schema order, from encoded keys and stored values."""
        names = self._values.names if needed is None else [name for name in self._values.names if name in needed]
        by_name = dict(zip(names, values, strict=True))
        if needed is None or any(name in needed for name in self.primary_key):
            by_name.update(zip(self.primary_key, self._encoder.decode(keys), strict=True))
        picked = [field for field in self._schema if needed is None or field.name in needed]
        return [
            by_name[field.name] if by_name[field.name].type == field.type else by_name[field.name].cast(field.type)
            for field in picked
        ]

    def _encode(self, rows: TypedRows, schema: pa.Schema | None = None) -> Rows:
        batch = conform(rows, schema or self._schema, self.primary_key, self.name)
        values = (batch.column(field.name) for field in self._values)
        stored = tuple(
            column if column.type == field.type else column.cast(field.type)
            for column, field in zip(values, self._values, strict=True)
        )
        return Rows(self._encoder.encode(batch), 0, None, stored)

    def _encode_keys(self, keys: TypedRows | Sequence[Any]) -> pa.BinaryArray:
        schema = pa.schema([self._schema.field(name) for name in self.primary_key])
        rows = key_rows(keys, self.primary_key, self.name)
        return self._encoder.encode(conform(rows, schema, self.primary_key, self.name))

    def _check_writable(self) -> None:
        if self._pin is not None:
            raise InvalidOption(f"table {self.name!r} is read through a snapshot; write through store.table()")
