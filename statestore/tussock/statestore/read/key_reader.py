"""Reads of one table at the level of encoded keys, shared by raw and typed tables.

Each takes one `ReadView` and stays on it; `TableViews` says what that shows, and what follows when vacuum was faster.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tussock.statestore.contract.readable import expiry_error
from tussock.statestore.epochs import MAX_EPOCH, epoch_ms
from tussock.statestore.errors import CorruptSst, InvalidOption, ObjectNotFound, SchemaMismatch
from tussock.statestore.format.expiry import TimeToLive, expiry_of
from tussock.statestore.format.value_bounds import ValueTest
from tussock.statestore.keys.ranges import KeyRanges
from tussock.statestore.read.table_views import TableViews
from tussock.statestore.read.unexpired_hits import unexpired_hits
from tussock.statestore.read.views import ReadView
from tussock.statestore.rows.location import locate
from tussock.statestore.rows.row_codec import Absent
from tussock.statestore.rows.rows import Rows
from tussock.statestore.rows.wider_types import with_types
from tussock.statestore.sst.cached_blocks import CachedBlock
from tussock.statestore.sst.history import EpochMerge, find_at, find_many_at, open_at, rows_at
from tussock.statestore.sst.iterators import ConcatIterator, MergeIterator, ReadRange, UserIterator
from tussock.statestore.sst.lookups.lookup import FoundRow, find
from tussock.statestore.sst.lookups.lookup_many import Hits, find_many
from tussock.statestore.sst.lookups.wanted_keys import Keys, as_array
from tussock.statestore.sst.merge import newest_versions
from tussock.statestore.sst.reader import Sstables
from tussock.statestore.sst.short_scan import first_rows
from tussock.statestore.sst.writer import value_schema
from tussock.statestore.write.buffered_run import BufferedRun

__all__ = ["KeyReader"]

_TOGETHER = 16
"""From this many keys on they are looked up in own rows together."""

_FEW_ROWS = 1000
"""A scan limited to fewer rows begins with single blocks."""


@dataclass
class _Scan:
    """Where a scan is and what is left of it."""

    ranges: KeyRanges
    limit: int | None
    reverse: bool
    columns: Sequence[int] | None
    types: list[pa.DataType]
    """Of the value columns in its rows."""
    newest: int
    """The newest epoch of the store when it began: where own rows are in it, that is all that fixes what it shows."""
    tests: Sequence[ValueTest]
    """Of rows that pass all of these none is left out."""
    reached: bytes | None = None
    """The first key that was not given out yet; in reverse the last that was."""

    def move_on(self) -> bool:
        """Leave of the ranges what was not reached; whether there is something."""
        if self.reached is not None:
            bounds = self.ranges.bounds
            self.ranges = KeyRanges([(bounds[0], self.reached)]) if self.reverse else self.ranges.from_key(self.reached)
        return bool(self.ranges)


def _types(view: ReadView, columns: Sequence[int] | None) -> list[pa.DataType]:
    """Types of these value columns, of all if it is `None`, as the table has them in that version."""
    types: list[pa.DataType] = value_schema(view.state.spec).types
    return types if columns is None else [types[at] for at in columns]


def _pick_columns(rows: Rows, columns: Sequence[int] | None, types: Sequence[pa.DataType]) -> Rows:
    """Rows with these columns, of these types; those written before the table got its newest columns lack these."""
    if columns is None:
        return with_types(rows, types)
    stored = [at for at in columns if at < len(rows.columns)]
    return with_types(rows.with_columns(stored), types)


def _time(view: ReadView, newest: int | None = None) -> int:
    """The time of the view in milliseconds, by which rows expire: that of its epoch, or of the newest one.

    `newest`: the newest epoch, if it is not that of the version.
    """
    newest = view.version.max_committed_epoch if newest is None else newest
    return epoch_ms(newest if view.epoch is None else min(view.epoch, newest))


def _expiring(view: ReadView, ms: int) -> TimeToLive | None:
    """The time to live of the table's committed rows; `None` if that of none is over at `ms`."""
    expiry = expiry_of(view.state.spec)
    if expiry is None or expiry.column is not None:
        return expiry
    oldest = min((run.min_epoch for run in (*view.runs, *view.history)), default=MAX_EPOCH)
    return expiry if epoch_ms(oldest) + expiry.ttl_ms <= ms else None


class KeyReader:
    """Point, range and change reads of one table, at the latest epoch or at a pinned one."""

    def __init__(self, views: TableViews, sstables: Sstables) -> None:
        self._views = views
        self._name = views.name
        self._sstables = sstables

    def find(self, key: bytes, epoch: int | None) -> FoundRow | None:
        """The newest version of an encoded key, or `None` if there is none or it is a delete."""
        if epoch is None:
            loose = self._views.find_loose(key)
            view = self._views.take_bound()
            if loose is None:
                return None
            if not isinstance(loose, Absent):
                return FoundRow(CachedBlock(loose), 0)
        else:
            view = self._views.take(self._views.epoch_to_read(epoch))
        try:
            found = self._find(key, view)
        except (ObjectNotFound, CorruptSst):
            found = self._views.resilient(lambda again: self._find(key, again), view.epoch)
        return None if found is None or found.deleted else found

    def _find(self, key: bytes, view: ReadView) -> FoundRow | None:
        for run in view.own:
            found = self._find_buffered(run, key)
            if found is not None:
                return found
        if view.epoch is None:
            found = find(self._sstables, view.runs, key, MAX_EPOCH)
        else:
            found = find_at(self._sstables, view.runs, view.history, key, view.epoch)
        if found is not None and (expiry := expiry_of(view.state.spec)) is not None:
            return None if expiry.is_expired(found.block.rows, found.at, _time(view)) else found
        return found

    def _find_buffered(self, run: BufferedRun, key: bytes) -> FoundRow | None:
        if run.index is not None:
            return find(self._sstables, [run.index], key, MAX_EPOCH)
        assert run.block is not None
        index = run.block.rows.lower_bound(key)
        return FoundRow(run.block, index) if index < len(run.block.rows) and run.block.rows.key(index) == key else None

    def find_many(self, keys: Keys, epoch: int | None) -> Hits:
        """Where the newest versions of `keys` are, as `lookup_many.find_many` gives them, deletes included."""
        return self._views.resilient(lambda view: self._find_many(keys, view), self._views.epoch_to_read(epoch))

    def _find_many(self, keys: Keys, view: ReadView) -> Hits:
        until = MAX_EPOCH if view.epoch is None else view.epoch
        if not view.own:
            return self._find_committed(keys, view, until)
        return self._find_many_also_in_own(as_array(keys), view, until)

    def _find_many_also_in_own(self, keys: pa.BinaryArray, view: ReadView, until: int) -> Hits:
        hits = Hits([], [])
        left: npt.NDArray[np.intp] = np.arange(len(keys))
        wanted = keys
        for run in view.own:
            if len(left) < len(wanted):
                wanted = keys.take(pa.array(left))
            found = self._search_buffered(run, wanted)
            missing = np.ones(len(left), np.bool_)
            for block, at, slot in found.points:
                hits.points.append((block, at, int(left[slot])))
                missing[slot] = False
            for rows, places, into in found.pieces:
                hits.pieces.append((rows, places, left[into]))
                missing[into] = False
            left = left[missing]
        rest = self._find_committed(keys.take(pa.array(left)), view, until)
        hits.points.extend((block, at, int(left[slot])) for block, at, slot in rest.points)
        hits.pieces.extend((rows, places, left[into]) for rows, places, into in rest.pieces)
        return hits

    def _find_committed(self, keys: Keys, view: ReadView, until: int) -> Hits:
        hits = find_many_at(self._sstables, view.runs, view.history, keys, until)
        ms = _time(view)
        expiry = _expiring(view, ms)
        return hits if expiry is None else unexpired_hits(hits, expiry, ms)

    def _search_buffered(self, run: BufferedRun, keys: pa.BinaryArray) -> Hits:
        if run.index is not None:
            return find_many(self._sstables, [run.index], keys, MAX_EPOCH)
        assert run.block is not None
        if len(keys) >= _TOGETHER:
            return Hits([], [(run.block.rows, *locate(run.block.rows, keys, MAX_EPOCH))])
        points = []
        for slot, key in enumerate(keys.to_pylist()):
            found = self._find_buffered(run, key)
            if found is not None:
                points.append((found.block, found.at, slot))
        return Hits(points, [])

    def scan(
        self,
        ranges: KeyRanges,
        epoch: int | None,
        *,
        limit: int | None = None,
        reverse: bool = False,
        columns: Sequence[int] | None = None,
        tests: Sequence[ValueTest] = (),
    ) -> Iterator[Rows]:
        """The visible rows of the ranges in order, batch by batch; all of one version.

        So together they show a commit whole or not at all. Blocks between the ranges are not read, unless they are few
        bytes. In reverse, which takes one range at most, the batches descend, their rows ascend. Where the store moved
        on so far that vacuum deleted an SST of that version, the scan goes on from where it is in the newest version;
        at a given epoch that shows the same rows.

        With `tests`, which are of value columns, rows that do not pass them may be missing; a `limit` counts them.
        """
        if limit is not None and limit < 0:
            raise InvalidOption(f"limit is {limit}; expected 0 or more")
        view = self._views.take(self._views.epoch_to_read(epoch))
        if not ranges:
            return iter(())
        if view.epoch is None and not view.own:
            # Fix the epoch, so that a scan that has to move to a newer version shows no later commits.
            view = view._replace(epoch=view.version.max_committed_epoch)
        types, newest = _types(view, columns), view.version.max_committed_epoch
        scan = _Scan(ranges, limit, reverse, columns, types, newest, tests)
        first: list[Rows] = []
        is_short = not reverse and limit is not None and 0 < limit < _FEW_ROWS and len(ranges) == 1
        while is_short and (begun := self._begin(scan, view)) is not None:
            first += begun[0]
            if begun[1]:
                return self._at_hand(first)
        rest = self._rows(scan, view, self._visible(scan, view))
        return chain(self._at_hand(first), rest) if first else rest

    def _at_hand(self, batches: Iterable[Rows]) -> Iterator[Rows]:
        self._check_process()
        yield from batches

    def _begin(self, scan: "_Scan", view: ReadView) -> tuple[list[Rows], bool] | None:
        """What a short scan begins with, one batch or none, and whether that is all; else the scan moves on behind it.

        `None` where that is not in memory, history may have a row for the reader, or rows may be expired.
        """
        limit = scan.limit
        own = [run.block.rows for run in view.own if run.block is not None] if view.own else []
        if (
            limit is None
            or len(own) < len(view.own)
            or (view.history and view.epoch is not None and open_at(view.history, view.epoch))
            or (view.state.spec.ttl_ms is not None and _expiring(view, _time(view, scan.newest)) is not None)
        ):
            return None
        epoch = MAX_EPOCH if view.epoch is None else view.epoch
        begun = first_rows(self._sstables, own, view.runs, scan.ranges.bounds, limit, epoch)
        if begun is None:
            return None
        first = [_pick_columns(part, scan.columns, scan.types) for part in begun.parts]
        if first and not begun.plain:
            first = list(UserIterator([Rows.merge(first)], view.epoch, limit=limit))
        if begun.reached is None or (first and len(first[0]) == limit):
            return first, True
        if not first:
            return None
        scan.limit, scan.reached = limit - len(first[0]), begun.reached
        scan.move_on()
        return first, False

    def _visible(self, scan: "_Scan", view: ReadView) -> UserIterator:
        few = scan.limit is not None and scan.limit < _FEW_ROWS
        newest_at = MAX_EPOCH if view.epoch is None else view.epoch
        # What is not committed yet has no time: it gets one with its epoch.
        ms = _time(view, scan.newest)
        columns, expiry = scan.columns, _expiring(view, ms)
        place = None if expiry is None else expiry.column
        if place is not None and columns is not None:
            # Behind the others, unless it is one of them.
            columns = columns if place in columns else [*columns, place]
            place = columns.index(place)
        want = ReadRange(
            *scan.ranges.bounds,
            scan.reverse,
            columns,
            few,
            after_epoch=0 if expiry is None else expiry.expired_epoch(ms),
            newest_at=newest_at,
            types=_types(view, columns),
            within=scan.ranges if len(scan.ranges) > 1 else None,
        )
        keep = None if expiry is None else partial(expiry.unexpired, ms=ms, column=place)
        merged = self._merge(want, view, keep if view.own else None, scan.tests)
        alone = None if view.own else keep
        return UserIterator(merged, view.epoch, limit=scan.limit, reverse=scan.reverse, keep=alone)

    def _rows(self, scan: "_Scan", view: ReadView, visible: UserIterator) -> Iterator[Rows]:
        self._check_process()  # in a forked process the blocks to come would be fetched by threads of the parent
        while True:
            try:
                for rows in visible:
                    yield self._with_first_columns(rows, scan)
                    self._check_process()
                    if scan.limit is not None:
                        scan.limit -= len(rows)
                        if not scan.limit:
                            return
                    scan.reached = rows.key(0) if scan.reverse else rows.key(len(rows) - 1) + b"\0"
                return
            except (ObjectNotFound, CorruptSst) as error:
                view = self._views.after(error, view)
                if view.epoch is None and view.state.last_epoch > scan.newest:
                    # What is left of it would be of a later epoch than what it has shown.
                    raise expiry_error(scan.newest, view.state.last_epoch) from error
                if not scan.move_on():
                    return
                visible = self._visible(scan, view)

    def _check_process(self) -> None:
        self._views.lifetime.check_process()

    def _with_first_columns(self, rows: Rows, scan: "_Scan") -> Rows:
        """The rows with the columns that the scan began with, if it has moved on to a version with others."""
        if scan.columns is not None and len(rows.columns) > len(scan.columns):
            rows = rows.with_columns(range(len(scan.columns)))
        try:
            return with_types(rows, scan.types)
        except pa.ArrowInvalid as error:
            # Only where the scan shows own uncommitted rows: what was committed at its epoch fits.
            raise SchemaMismatch(
                f"table {self._name!r} was altered while it was read, and has values now that the columns as they were "
                f"cannot hold: {error}; read it again"
            ) from error

    def _merge(
        self, want: ReadRange, view: ReadView, keep: Callable[[Rows], Rows] | None, tests: Sequence[ValueTest]
    ) -> Iterable[Rows]:
        """All versions in the range that the view may show, from the own rows, the committed runs and history.

        `keep` returns of the newest committed versions those that are not expired. `tests` leave blocks of the
        committed runs unread, and none of history, whose rows hide live ones by their epochs. Nothing that is open
        there is older than a live row that is seen (decision 0030); it counts as beneath all the same, so that the
        answers do not hang on it.
        """
        indexes = [index for index in view.runs if view.epoch is None or index.min_epoch <= view.epoch]
        opened = [] if view.epoch is None else open_at(view.history, view.epoch)
        if want.after_epoch:
            indexes = [index for index in indexes if index.max_epoch > want.after_epoch]
            opened = [run for run in opened if run.max_epoch > want.after_epoch]
        want = want.shared_by(len(view.own) + len(indexes) + len(opened))
        limits = self._sstables.limits
        sources: list[Iterable[Rows]] = []
        for run in view.own:
            if run.index is not None:
                sources.append(ConcatIterator(self._sstables, run.index.ssts, want._replace(after_epoch=0)))
            elif run.block is not None:
                rows = want.cut(run.block.rows)
                if len(rows):
                    assert want.types is not None
                    sources.append([_pick_columns(rows, want.columns, want.types)])
        live = []
        for position, index in enumerate(indexes, 1):
            beneath = [*indexes[position:], *opened] if tests else ()
            source = ConcatIterator(self._sstables, index.ssts, want._replace(tests=tests, beneath=beneath))
            if source.ssts:
                live.append(source)
        if keep is None and (not opened or view.epoch is None):
            return MergeIterator([*sources, *live], reverse=want.reverse, newest_at=want.newest_at, limits=limits)
        merged = MergeIterator(live, reverse=want.reverse, newest_at=want.newest_at, limits=limits)
        seen = newest_versions(merged, view.epoch, reverse=want.reverse)
        if opened and view.epoch is not None:
            past = [rows_at(self._sstables, run, want, view.epoch) for run in opened]
            both = EpochMerge(seen, past, reverse=want.reverse)
            seen = newest_versions(both, view.epoch, reverse=want.reverse)
        sources.append(seen if keep is None else (kept for rows in seen if len(kept := keep(rows))))
        # Own rows are above all that is committed, whatever their epoch.
        return MergeIterator(sources, reverse=want.reverse, newest_at=want.newest_at, limits=limits)
