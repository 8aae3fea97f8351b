"""Reads of one table at the level of encoded keys, shared by raw and typed tables.

A read combines the client's own uncommitted rows with the committed runs of a version; a snapshot's reads leave the
own rows out. A buffered row wins over a committed one whatever their numbers: its epoch is not final, and its commit
will put it on top. For the same reason no own row belongs to an epoch at or above which something is committed: its
commit will be stamped above that, and a read at such an epoch must never change.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tussock.statestore.contract.backend import PinHandle, VersionView
from tussock.statestore.contract.readable import expired
from tussock.statestore.core import Core, TableView
from tussock.statestore.epochs import MAX_EPOCH, check_epoch, check_position
from tussock.statestore.errors import InvalidOption, ObjectNotFound, SchemaMismatch
from tussock.statestore.rows.rows import Rows, shown_key
from tussock.statestore.rows.wider_types import with_types
from tussock.statestore.sst.iterators import ConcatIterator, MergeIterator, ReadRange, UserIterator
from tussock.statestore.sst.lookup import Found, find
from tussock.statestore.sst.lookup_many import Hits, Keys, as_array, find_many, locate
from tussock.statestore.sst.merge import distinct_versions
from tussock.statestore.sst.writer import value_schema
from tussock.statestore.write.shared_buffer import BufferedRun

__all__ = ["TableReader"]

_TOGETHER = 16
"""From so many keys on they are looked up in own rows together."""

_FEW_ROWS = 1000
"""A scan limited to fewer rows begins with single blocks."""


@dataclass
class _Scan:
    """Where a scan is and what is left of it."""

    start: bytes | None
    end: bytes | None
    epoch: int | None
    pinned: bool
    limit: int | None
    reverse: bool
    columns: Sequence[int] | None
    types: list[pa.DataType]
    """Of the value columns in its rows."""
    newest: int
    """The newest epoch of the store when it began: where own rows are in it, that is all that fixes what it shows."""


def _types(view: TableView, columns: Sequence[int] | None) -> list[pa.DataType]:
    """Types of these value columns, of all if it is `None`, as the table has them in that version."""
    types: list[pa.DataType] = value_schema(view.state.spec).types
    return types if columns is None else [types[at] for at in columns]


def _picked(rows: Rows, want: ReadRange) -> Rows:
    """Own rows with the wanted columns; those written before the table got its newest columns lack these."""
    assert want.types is not None
    if want.columns is None:
        return with_types(rows, want.types)
    stored = [at for at in want.columns if at < len(rows.columns)]
    return with_types(rows.with_columns(stored), want.types)


class TableReader:
    """Point, range and change reads of one table, at the latest epoch or at a pinned one."""

    def __init__(self, core: Core, table: int, name: str, pin: PinHandle | None = None) -> None:
        self.core = core
        self.table = table
        self.name = name
        self._pin = pin

    def _epoch(self, epoch: int | None) -> tuple[int | None, bool]:
        """The epoch to read at (`None`: the latest, own writes included) and whether a pin keeps it."""
        if self._pin is not None:
            self._pin.check()
            if epoch is not None and epoch != self._pin.info.epoch:
                raise InvalidOption(f"a snapshot reads at its own epoch {self._pin.info.epoch}, not at {epoch}")
            return self._pin.info.epoch, True
        if epoch is not None:
            self.core.check_readable(check_epoch(epoch), pinned=False)
        return epoch, False

    def _view(self, epoch: int | None) -> TableView:
        """The table as a read at `epoch` sees it."""
        if self._pin is None:
            return self.core.view(self.table, self.name, epoch)
        view = self.core.view(self.table, self.name, pinned=True)
        # After the view was taken: if the lease lapsed, compaction may have gone past the epoch in that very version.
        self._pin.check()
        return view

    def _with_view(self, epoch: int | None) -> tuple[tuple[BufferedRun, ...], TableView]:
        """The own runs that a read at `epoch` sees, newest first, and the table's committed ones.

        A commit adds its rows to the version, then drops them from the buffer. As the version is taken last here, a
        reader in another thread meets them at least once, and meeting them twice does no harm.
        """
        if self._pin is not None:
            return (), self._view(epoch)
        buffered = self.core.buffer.runs(self.table, epoch)
        view = self.core.view(self.table, self.name, epoch)
        if buffered and epoch is not None and epoch <= view.version.max_committed_epoch:
            buffered = ()
        return buffered, view

    def find(self, key: bytes, epoch: int | None) -> Found | None:
        """The newest version of an encoded key, or `None` if there is none or it is a delete."""
        pinned = False
        if epoch is not None or self._pin is not None:
            epoch, pinned = self._epoch(epoch)
        try:
            found = self._find(key, epoch)
        except ObjectNotFound:
            found = self.core.resilient(lambda: self._find(key, epoch), epoch, pinned=pinned)
        return None if found is None or found.deleted else found

    def _find(self, key: bytes, epoch: int | None) -> Found | None:
        buffered, view = self._with_view(epoch)
        for run in buffered:
            found = self._find_buffered(run, key)
            if found is not None:
                return found
        return find(self.core.sstables, view.runs, key, MAX_EPOCH if epoch is None else epoch)

    def _find_buffered(self, run: BufferedRun, key: bytes) -> Found | None:
        if run.index is not None:
            return find(self.core.sstables, [run.index], key, MAX_EPOCH)
        assert run.block is not None
        index = run.block.rows.lower_bound(key)
        return Found(run.block, index) if index < len(run.block.rows) and run.block.rows.key(index) == key else None

    def find_many(self, keys: Keys, epoch: int | None) -> Hits:
        """Where the newest versions of `keys` are, as `lookup_many.find_many` gives them, deletes included."""
        epoch, pinned = self._epoch(epoch)
        return self.core.resilient(lambda: self._find_many(keys, epoch), epoch, pinned=pinned)

    def _find_many(self, keys: Keys, epoch: int | None) -> Hits:
        buffered, view = self._with_view(epoch)
        until = MAX_EPOCH if epoch is None else epoch
        if not buffered:
            return find_many(self.core.sstables, view.runs, keys, until)
        return self._find_many_also_in(buffered, view, as_array(keys), until)

    def _find_many_also_in(
        self, buffered: tuple[BufferedRun, ...], view: TableView, keys: pa.BinaryArray, until: int
    ) -> Hits:
        hits = Hits([], [])
        left: npt.NDArray[np.intp] = np.arange(len(keys))
        for run in buffered:
            found = self._found_in_buffered(run, keys.take(pa.array(left)))
            missing = np.ones(len(left), np.bool_)
            for block, at, slot in found.points:
                hits.points.append((block, at, int(left[slot])))
                missing[slot] = False
            for rows, rows_at, into in found.pieces:
                hits.pieces.append((rows, rows_at, left[into]))
                missing[into] = False
            left = left[missing]
        rest = find_many(self.core.sstables, view.runs, keys.take(pa.array(left)), until)
        hits.points.extend((block, at, int(left[slot])) for block, at, slot in rest.points)
        hits.pieces.extend((rows, rows_at, left[into]) for rows, rows_at, into in rest.pieces)
        return hits

    def _found_in_buffered(self, run: BufferedRun, keys: pa.BinaryArray) -> Hits:
        if run.index is not None:
            return find_many(self.core.sstables, [run.index], keys, MAX_EPOCH)
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
        start: bytes | None,
        end: bytes | None,
        epoch: int | None,
        *,
        limit: int | None = None,
        reverse: bool = False,
        columns: Sequence[int] | None = None,
    ) -> Iterator[Rows]:
        """Visible rows with start <= key < end, batch by batch; in reverse the batches descend, their rows ascend.

        The rows are those of one version. Where the store moved on so far that vacuum deleted an SST of it, the scan
        goes on from where it is in the newest version; at a given epoch that shows the same rows.
        """
        return self.scans([(start, end)], epoch, limit=limit, reverse=reverse, columns=columns)[0]

    def scans(
        self,
        ranges: Sequence[tuple[bytes | None, bytes | None]],
        epoch: int | None,
        *,
        limit: int | None = None,
        reverse: bool = False,
        columns: Sequence[int] | None = None,
    ) -> list[Iterator[Rows]]:
        """A scan of each range, all of one version: together they show a commit whole or not at all."""
        if limit is not None and limit < 0:
            raise InvalidOption(f"limit is {limit}; expected 0 or more")
        epoch, pinned = self._epoch(epoch)
        buffered, view = self._with_view(epoch)
        if epoch is None and not buffered:
            # Fix the epoch, so that a scan that has to move to a newer version shows no later commits.
            epoch = view.version.max_committed_epoch
        types, newest = _types(view, columns), view.version.max_committed_epoch
        wanted = [_Scan(start, end, epoch, pinned, limit, reverse, columns, types, newest) for start, end in ranges]
        return [self._scan(scan, view.version, self._visible(scan, view, buffered)) for scan in wanted]

    def _visible(self, scan: "_Scan", view: TableView, buffered: Sequence[BufferedRun]) -> UserIterator:
        few = scan.limit is not None and scan.limit < _FEW_ROWS
        newest_at = MAX_EPOCH if scan.epoch is None else scan.epoch
        want = ReadRange(
            scan.start, scan.end, scan.reverse, scan.columns, few, newest_at=newest_at, types=_types(view, scan.columns)
        )
        merged = self._merged(want, view, buffered, scan.epoch)
        return UserIterator(merged, scan.epoch, limit=scan.limit, reverse=scan.reverse)

    def _scan(self, scan: "_Scan", version: VersionView, visible: UserIterator) -> Iterator[Rows]:
        self.core.check_process()  # in a forked process the blocks to come would be fetched by threads of the parent
        while True:
            try:
                for rows in visible:
                    yield self._as_begun(rows, scan)
                    self.core.check_process()
                    if scan.limit is not None:
                        scan.limit -= len(rows)
                        if not scan.limit:
                            return
                    if scan.reverse:
                        scan.end = rows.key(0)
                    else:
                        scan.start = rows.key(len(rows) - 1) + b"\0"
                return
            except ObjectNotFound as error:
                self.core.refresh_after(error, version)
                if scan.epoch:
                    self.core.check_readable(scan.epoch, pinned=scan.pinned)
                buffered, view = self._with_view(scan.epoch)
                if scan.epoch is None and view.state.last_epoch > scan.newest:
                    # What is left of it would be of a later epoch than what it has shown.
                    raise expired(scan.newest, view.state.last_epoch) from error
                version = view.version
                visible = self._visible(scan, view, buffered)

    def _as_begun(self, rows: Rows, scan: "_Scan") -> Rows:
        """The rows with the columns that the scan began with, if it has moved on to a version with others."""
        try:
            return with_types(rows, scan.types)
        except pa.ArrowInvalid as error:
            # Only where the scan shows own uncommitted rows: what was committed at its epoch fits.
            raise SchemaMismatch(
                f"table {self.name!r} was altered while it was read, and has values now that the columns as they were "
                f"cannot hold: {error}; read it again"
            ) from error

    def _merged(
        self, want: ReadRange, view: TableView, buffered: Sequence[BufferedRun], epoch: int | None
    ) -> MergeIterator:
        """All versions in the range, from the own rows and the committed runs."""
        indexes = [index for index in view.runs if epoch is None or index.min_epoch <= epoch]
        want = want.shared_by(len(buffered) + len(indexes))
        sources: list[ConcatIterator | list[Rows]] = []
        for run in buffered:
            if run.index is not None:
                sources.append(ConcatIterator(self.core.sstables, run.index.ssts, want))
            elif run.block is not None:
                rows = run.block.rows.between(want.start, want.end)
                if len(rows):
                    sources.append([_picked(rows, want)])
        for index in indexes:
            source = ConcatIterator(self.core.sstables, index.ssts, want)
            if source.ssts:
                sources.append(source)
        return MergeIterator(sources, reverse=want.reverse, newest_at=want.newest_at, limits=self.core.sstables.limits)

    def changes(self, from_epoch: int, to_epoch: int | None) -> list[Rows]:
        """Every committed version with from_epoch < epoch <= to_epoch, by key, newest first within a key."""
        newest = self._pin.info.epoch if self._pin is not None else self.core.backend.recent().max_committed_epoch
        until = newest if to_epoch is None else check_position(to_epoch, "to_epoch")
        if not check_position(from_epoch, "from_epoch") <= until:
            raise InvalidOption(f"changes from {from_epoch} to {until}: expected 0 <= from_epoch <= to_epoch")
        self.core.check_committed(self.name, until)
        # A pin at E keeps, of what lies at or below E, only each key's newest version: it serves no changes below E.
        # Everything above `from_epoch` is kept if a reader at `from_epoch` is still served.
        self.core.check_readable(until, pinned=False)
        self.core.check_readable(from_epoch, pinned=False)

        def read() -> list[Rows]:
            picked = []
            view = self._view(from_epoch)
            left = self.core.settings.limits.column_bytes
            want = ReadRange(after_epoch=from_epoch, until_epoch=until, types=_types(view, None))
            for rows in distinct_versions(self._merged(want, view, (), until)):
                epochs = rows.epoch_array()
                versions = rows.filter((epochs > np.uint64(from_epoch)) & (epochs <= np.uint64(until)))
                if len(versions):
                    left -= max(array.nbytes for array in (versions.keys, *versions.columns))
                    if left < 0:
                        raise InvalidOption(
                            f"table {self.name!r}: changes from {from_epoch} to {until} are more than the 2 GiB that "
                            f"a column of one batch can hold, already at key {shown_key(versions.key(0))}; read "
                            "change_feed(), which comes in several batches, or fewer epochs at once"
                        )
                    picked.append(versions)
            return picked

        return self.core.resilient(read, from_epoch, pinned=False)
