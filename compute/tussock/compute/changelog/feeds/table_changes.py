"""The change feed of a table as changes of a stream: a store epoch is a transaction."""

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tussock.compute.applications.errors import BadInput
from tussock.compute.applications.feeds.feed import BadMessage, FedBatch
from tussock.compute.applications.feeds.table_feed import OPERATION, TableFeed, TableSource
from tussock.compute.applications.ipc_streams import alone_bytes
from tussock.compute.changelog.changes.python_times import beyond_python, time_misfit
from tussock.compute.changelog.changes.record import Op
from tussock.compute.changelog.changes.stream_shape import OLD, OP, StreamShape
from tussock.statestore import InvalidOption, SchemaMismatch, StateStore
from tussock.statestore.base.system import System

__all__ = ["TableChanges"]

_WORDS = {
    "insert": Op.UPSERT,
    "update": Op.UPSERT,
    "update_postimage": Op.UPDATE_BLOCK,
    "update_preimage": Op.DELETE,
    "delete": Op.SAFEDELETE,
}


class TableChanges(TableSource):
    """One run's reader of a table for a stream, whose columns the table has."""

    def __init__(self, feed: TableFeed, store: StateStore, system: System, what: str, shape: StreamShape) -> None:
        """`SchemaMismatch` if the table lacks a column, or has another type; `InvalidOption` if it needs images."""
        super().__init__(replace(feed, operations=True), store, system, what)
        self._shape = shape
        table = store.table(feed.table)
        for field in shape.schema:
            at = table.schema.get_field_index(field.name)
            found = table.schema.field(at) if at >= 0 else None
            if found is None or found.type != field.type or (found.nullable and not field.nullable):
                shown = (
                    "lacks it" if found is None else f"has it as {found.type}{'' if found.nullable else ' not null'}"
                )
                raise SchemaMismatch(
                    f"{what}: {shape.what} has column {field.name!r} of type {field.type}"
                    f"{'' if field.nullable else ' not null'}, and table {feed.table!r} {shown}"
                )
        key: Any = getattr(table, "primary_key", ())
        if not feed.images and not set(shape.key) <= set(key):
            raise InvalidOption(
                f"{what}: the key of {shape.what} is {list(shape.key)}, of which a deleted row of table {feed.table!r} "
                f"tells {list(key)} only: declare TableFeed(…, images=True)"
            )

    def read(self, seconds: float) -> FedBatch | None:
        """The next epoch's changes."""
        found = super().read(seconds)
        if found is None:
            return None
        batch = self._batch_of(found)
        if batch.bad and self._feed.on_bad == "stop":
            raise BadInput(
                f"{self._what}: {batch.bad[0].origin}, cannot be a row of {self._shape.what}: {batch.bad[0].cause}; "
                "nothing of the epoch was used, and it comes again at the next start: declare the feed with "
                "on_bad='skip', which leaves such rows out",
                self._feed.table,
            )
        return batch

    def again(self, span: bytes) -> FedBatch:
        """Those of a span once more."""
        return self._batch_of(super().again(span))

    def _batch_of(self, found: FedBatch) -> FedBatch:
        rows, bad = self._without_misfits(found)
        return found._replace(rows=self._changes(rows), bad=bad)

    def _without_misfits(self, found: FedBatch) -> tuple[pa.Table, tuple[BadMessage, ...]]:
        """The rows without those that the stream cannot have, as a time in them is beyond Python's; and those.

        Of a row that goes the key is enough: other values of it become null.
        """
        rows, shape = found.rows, self._shape
        wrong = {name: beyond_python(rows.column(name).combine_chunks()) for name in shape.times}
        if not any(flags.any() for flags in wrong.values()):
            return rows, ()
        is_wrong = np.any(list(wrong.values()), axis=0)
        has_no_key = np.any(
            [np.zeros(rows.num_rows, np.bool_), *(wrong[one] for one in shape.key if one in wrong)], axis=0
        )
        words = rows.column(OPERATION)
        goes = pc.is_in(words, pa.array(["delete", "update_preimage"])).to_numpy()
        bad = []
        for at in np.flatnonzero(is_wrong & ~goes).tolist():
            name = next(one for one in shape.times if wrong[one][at])
            cause = f"column {name!r} {time_misfit(rows.column(name).slice(at, 1).combine_chunks(), 0)}"
            bad.append(BadMessage(f"row {at + 1} of {found.place}", alone_bytes(rows, at, 1), cause))
        drops = (is_wrong & ~goes) | (has_no_key & goes)
        # A preimage stands right before its row, and goes with it; a row without it is one like any other.
        is_pre = pc.equal(words, "update_preimage").to_numpy()
        drops[:-1] |= is_pre[:-1] & drops[1:]
        alone = np.zeros(rows.num_rows, np.bool_)
        alone[1:] = is_pre[:-1] & drops[:-1]
        for name in shape.times:
            at = rows.schema.get_field_index(name)
            kept = pc.if_else(
                pa.array(wrong[name] & goes), pa.scalar(None, rows.schema.field(at).type), rows.column(at)
            )
            rows = rows.set_column(at, rows.schema.field(at).with_nullable(True), kept)
        words = pc.if_else(pa.array(alone), "update", words)
        rows = rows.set_column(rows.schema.get_field_index(OPERATION), rows.schema.field(OPERATION), words)
        return rows.filter(pa.array(~drops)), tuple(bad)

    def _changes(self, rows: pa.Table) -> pa.Table:
        given = rows.column(OPERATION).combine_chunks()
        is_old = pc.equal(given, "update_preimage")
        is_old = np.asarray(is_old.to_numpy(zero_copy_only=False), np.bool_)
        words = given.dictionary_encode()
        ops = pa.array([str(_WORDS[word]) for word in words.dictionary.to_pylist()], pa.string()).take(words.indices)
        changes = rows.select(self._shape.names).append_column(OP, ops).append_column(OLD, pa.array(is_old))
        if not is_old.any():
            return changes
        # A preimage comes right before its postimage; of a block the new row is the first.
        order = np.arange(len(is_old))
        at = np.flatnonzero(is_old)
        order[at], order[at + 1] = at + 1, at
        return changes.take(pa.array(order))
