"""The changes of one table: every change that commits made, by key, then epoch, with the row that it replaced or not.

Only SSTs and blocks with epochs in the asked range are walked, in key order, some megabytes at a time. What a key had
before its first change in the range comes from the same rows where they hold it, else from one vectorised lookup a
step, at the epoch where the range begins. All of a walk is of one version, or of a newer one that still keeps that
epoch.

The feed is exact while the epoch where it begins is kept: compaction keeps every version above the low watermark, and
the newest one at or below it, which is the image before the first change, in the live tree or in history. So a pin at
that epoch keeps the feed, too.
Rows that expire are no changes, as nothing is committed then. A change is told by what was there when it was committed:
where the row before had expired by then it is an insert, and a put of a row that was expired already is a delete, or
nothing.
(Its four operations and their names are those of the change data feeds of Delta Lake and Spark.)

Without the comparison with what was before, the same walk gives each version as it was put or deleted. That needs every
version after the epoch where it begins, and no pin keeps those below the pinned one.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tussock.statestore.epochs import SERIAL_BITS
from tussock.statestore.errors import CorruptSst, ObjectNotFound, SchemaMismatch
from tussock.statestore.format.expiry import expiry_of
from tussock.statestore.read.table_views import TableViews
from tussock.statestore.read.unexpired_hits import unexpired_hits
from tussock.statestore.read.views import ReadView
from tussock.statestore.rows.key_arrays import repeats
from tussock.statestore.rows.rows import Rows
from tussock.statestore.sst.history import changed_rows, find_many_at, in_range
from tussock.statestore.sst.iterators import ConcatIterator, MergeIterator, ReadRange, SSTableIterator
from tussock.statestore.sst.merge import whole_keys
from tussock.statestore.sst.reader import Sstables
from tussock.statestore.sst.writer import value_schema
from tussock.statestore.write.sorted_runs import take_hits

__all__ = ["OPERATIONS", "ChangeFeed", "ChangeRows", "FeedRange"]

OPERATIONS = ("insert", "update_preimage", "update_postimage", "delete", "put")
_INSERT, _PREIMAGE, _POSTIMAGE, _DELETE, _PUT = range(5)


class FeedRange(NamedTuple):
    """What of a table's changes is wanted."""

    start: bytes | None
    """First encoded key; `None`: open."""
    end: bytes | None
    """The encoded key that is no longer wanted; `None`: open."""
    columns: Sequence[int]
    """Indices of the value columns to decode."""
    types: Sequence[pa.DataType]
    """The types that they shall have."""
    before_images: bool
    """Whether updates show the row before, too, and deletes the values that went."""
    compared: bool = True
    """Whether a change is told by what was there before; else each version is one, and a delete has its key only."""


class ChangeRows(NamedTuple):
    """Some changes: all of some keys, by key, then epoch; an update's row before comes before the row after."""

    keys: pa.BinaryArray
    columns: list[pa.Array]
    operations: npt.NDArray[np.int8]
    """Indices into `OPERATIONS`."""
    epochs: npt.NDArray[np.uint64]


class ChangeFeed:
    """The changes of one table; through a pin those after the pinned epoch, whatever the retention."""

    def __init__(self, views: TableViews, sstables: Sstables) -> None:
        self._views = views
        self._name = views.name
        self._sstables = sstables

    def between(self, from_epoch: int, to_epoch: int | None, want: FeedRange) -> Iterator[ChangeRows]:
        """Changes of from_epoch < epoch <= to_epoch (the newest epoch if `None`), for the keys and columns wanted.

        Raises `SnapshotExpired` at once if `from_epoch` is no longer kept, `InvalidOption` if `to_epoch` is not
        committed yet.
        """
        check = self._views.check_feed if want.compared else self._views.check_range
        from_epoch, until = check(from_epoch, to_epoch)
        view = self._views.since(from_epoch, unpinned=not want.compared)
        expiry = expiry_of(view.state.spec) if want.compared else None
        if expiry is None or expiry.column is None or expiry.column in want.columns:
            return self._walk(view, from_epoch, until, want)
        kind = value_schema(view.state.spec).field(expiry.column).type
        more = want._replace(columns=[*want.columns, expiry.column], types=[*want.types, kind])
        shown = len(want.columns)
        walk = self._walk(view, from_epoch, until, more)
        return (part._replace(columns=part.columns[:shown]) for part in walk)

    def epochs(self, from_epoch: int, to_epoch: int | None) -> list[int]:
        """Epochs in the same range that wrote to the table, ascending.

        A commit's SST says its epoch; of compacted ones the blocks with epochs in the range are read.
        """
        from_epoch, until = self._views.check_feed(from_epoch, to_epoch)
        view = self._views.since(from_epoch)
        while True:
            try:
                epochs: list[int] = self._epochs(view, from_epoch, until).tolist()
                return epochs
            except (ObjectNotFound, CorruptSst) as error:
                view = self._views.since_after(error, view, from_epoch)

    def _walk(self, view: ReadView, from_epoch: int, until: int, want: FeedRange) -> Iterator[ChangeRows]:
        # In a forked process what is to come would be fetched by threads of the parent.
        self._views.lifetime.check_process()
        start = want.start
        while True:
            try:
                merged, at_hand = self._merge(view, from_epoch, until, want._replace(start=start))
                for rows, complete in whole_keys(merged, self._sstables.limits.batch_bytes):
                    if complete:
                        changes = self._changes(view, rows, from_epoch, until, want, at_hand=at_hand)
                        if changes is not None:
                            yield changes
                    else:
                        yield from self._by_epochs(view, rows, from_epoch, until, want)
                    self._views.lifetime.check_process()
                    start = rows.key(len(rows) - 1) + b"\0"
                return
            except (ObjectNotFound, CorruptSst) as error:
                view = self._views.since_after(error, view, from_epoch, unpinned=not want.compared)
            except pa.ArrowInvalid as error:
                raise SchemaMismatch(
                    f"table {self._name!r} was altered while its changes were read, and has values now that the columns"
                    f" from before cannot hold: {error}; read them again"
                ) from error

    def _by_epochs(
        self, view: ReadView, some: Rows, from_epoch: int, until: int, want: FeedRange
    ) -> Iterator[ChangeRows]:
        """The changes of one key that has more versions than a batch may hold, of which `some` are the newest.

        Its changes ascend by epoch and its versions descend, so ranges of epochs are walked one after the other.
        """
        key = some.key(0)
        only = want._replace(start=key, end=key + b"\0")
        merged, _ = self._merge(view, from_epoch, until, only._replace(columns=(), types=()))
        epochs = np.unique(np.concatenate([rows.epoch_array() for rows in merged]))
        epochs = epochs[(epochs > np.uint64(from_epoch)) & (epochs <= np.uint64(until))]
        if not len(epochs):
            return
        if len(epochs) == 1:
            # The other versions are in the same blocks, so a smaller range would have them, too.
            merged, _ = self._merge(view, from_epoch, until, only)
            changed = next(in_range(merged, from_epoch, until))
            changes = self._changes(view, changed.slice(0, 1), from_epoch, until, want, at_hand=False)
            if changes is not None:
                yield changes
            return
        ends = epochs[max(len(some) // 2, 1) - 1 :: max(len(some) // 2, 1)].tolist()
        low = from_epoch
        for high in [*ends, until]:
            if low < high:
                yield from self._walk(view, low, high, only)
                low = high

    def _merge(self, view: ReadView, from_epoch: int, until: int, want: FeedRange) -> tuple[Iterable[Rows], bool]:
        """All versions that are in the range, and others of the same blocks.

        And whether the version after a change, in this order, is the one that it replaced. It is not where a run
        between the two has versions that are so old that they were not read, nor where history may have it.
        """
        wanted = ReadRange(
            want.start,
            want.end,
            columns=want.columns,
            types=want.types,
            after_epoch=from_epoch,
            until_epoch=until,
        )
        if any(run.until > from_epoch for run in view.history):
            return changed_rows(self._sstables, view.runs, view.history, wanted), False
        wanted = wanted.shared_by(len(view.runs))
        runs = [ConcatIterator(self._sstables, run.ssts, wanted) for run in view.runs]
        read = [at for at, run in enumerate(runs) if run.ssts]
        at_hand = all(run.min_epoch > from_epoch for run in view.runs[: max(read, default=0)])
        return MergeIterator([runs[at] for at in read], limits=self._sstables.limits), at_hand

    def _changes(
        self, view: ReadView, rows: Rows, from_epoch: int, until: int, want: FeedRange, *, at_hand: bool
    ) -> ChangeRows | None:
        """The changes in merged rows, which have all versions of their keys that are in the range.

        With `at_hand` the rows have what the first of them replaced, too, as far as it lies in the same blocks.
        """
        known = rows.visible_at(until).distinct_versions()
        fresh = known.epoch_array() > np.uint64(from_epoch)
        if not want.compared:
            return _versions(known.filter(fresh))
        again = repeats(known.keys)
        # Of what is older only the version right before a change matters: the row after it, as versions descend.
        needed = fresh | (again & np.append(False, fresh[:-1])[: len(again)] & at_hand)
        known, fresh, again = known.filter(needed), fresh[needed], again[needed]
        if not len(known):
            return None
        count = len(known)
        deletes, epochs = known.delete_array(), known.epoch_array()
        expiry, times = expiry_of(view.state.spec), (epochs >> np.uint64(SERIAL_BITS)).astype(np.int64)
        place = None if expiry is None or expiry.column is None else want.columns.index(expiry.column)
        if expiry is not None:
            # Expired when it was committed, so that nobody has seen it.
            deletes = deletes | expiry.marks(known, times, place)
        has_before = np.append(again[1:], False)
        before = np.where(has_before, np.arange(1, count + 1), -1)
        existed = np.append(~deletes[1:], False) & has_before
        if expiry is not None:
            # What was expired when it was replaced was there for nobody any more.
            existed[:-1] &= ~expiry.marks(known.slice(1, count), times[:-1], place)
        columns = list(known.columns)
        first = np.flatnonzero(fresh & ~has_before)
        if len(first) and from_epoch:
            asked = known.keys.take(pa.array(first))
            hits = find_many_at(self._sstables, view.runs, view.history, asked, from_epoch)
            if expiry is not None:
                hits = unexpired_hits(hits, expiry, times[first])
            image_columns = len(want.columns) if want.before_images else 0
            existed[first], values = take_hits(
                hits, len(first), want.columns[:image_columns], want.types[:image_columns], self._views.name
            )
            if want.before_images:
                columns = [pa.concat_arrays(pair) for pair in zip(columns, values, strict=True)]
                before[first] = count + np.arange(len(first))
        puts = fresh & ~deletes
        inserts, updates = np.flatnonzero(puts & ~existed), np.flatnonzero(puts & existed)
        # A delete of what was not there changes nothing.
        gone = np.flatnonzero(fresh & deletes & existed)
        replaced = updates if want.before_images else updates[:0]
        at = np.concatenate([inserts, replaced, updates, gone])
        if not len(at):
            return None
        lost = before[gone] if want.before_images else np.full(len(gone), -1)
        image = np.concatenate([inserts, before[replaced], updates, lost])
        operations = np.repeat(
            np.array([_INSERT, _PREIMAGE, _POSTIMAGE, _DELETE], np.int8),
            [len(inserts), len(replaced), len(updates), len(gone)],
        )
        order = np.lexsort((operations, epochs[at], np.cumsum(~again)[at]))
        at, images = at[order], pa.array(image[order], mask=image[order] < 0)
        return ChangeRows(
            known.keys.take(pa.array(at)), [column.take(images) for column in columns], operations[order], epochs[at]
        )

    def _epochs(self, view: ReadView, from_epoch: int, until: int) -> npt.NDArray[np.uint64]:
        found = [np.zeros(0, np.uint64)]
        want = ReadRange(columns=(), after_epoch=from_epoch, fill=False)
        for sst in (sst for run in (*view.runs, *view.history) for sst in run.ssts):
            if sst.max_epoch <= from_epoch or sst.min_epoch > until:
                continue
            if sst.min_epoch == sst.max_epoch:
                found.append(np.array([sst.min_epoch], np.uint64))
                continue
            found += [np.unique(rows.epoch_array()) for rows in SSTableIterator(self._sstables, sst, want)]
        epochs = np.unique(np.concatenate(found))
        return epochs[(epochs > np.uint64(from_epoch)) & (epochs <= np.uint64(until))]


def _versions(rows: Rows) -> ChangeRows | None:
    """Merged rows as changes: by key, and within a key the oldest first."""
    if not len(rows):
        return None
    epochs = rows.epoch_array()
    order = np.lexsort((epochs, np.cumsum(~repeats(rows.keys))))
    deletes = rows.delete_array()[order]
    values = pa.array(order, mask=deletes)
    return ChangeRows(
        rows.keys.take(pa.array(order)),
        [column.take(values) for column in rows.columns],
        np.where(deletes, _DELETE, _PUT).astype(np.int8),
        epochs[order],
    )
