"""What the reads of one table see, at the latest epoch, at one that is given, or at a pinned one.

A read combines the client's own uncommitted rows with the committed runs of a version; a snapshot's reads leave the
own rows out. A buffered row wins over a committed one whatever their numbers: its epoch is not final, and its commit
will put it on top. For the same reason no own row belongs to an epoch at or above which something is committed: its
commit will be stamped above that, and a read at such an epoch must never change.
"""

from collections.abc import Callable
from typing import TypeVar

from tussock.statestore.contract.backend import PinHandle
from tussock.statestore.contract.readable import check_exact, check_unpinned
from tussock.statestore.epochs import check_position, check_read_epoch
from tussock.statestore.errors import CorruptSst, InvalidOption, ObjectNotFound
from tussock.statestore.read.views import ReadView, Views
from tussock.statestore.rows.row_codec import ABSENT, Absent
from tussock.statestore.rows.rows import Rows
from tussock.statestore.write.shared_buffer import SharedBuffer

__all__ = ["StoreViews", "TableViews"]

T = TypeVar("T")

_CHANGES = (
    "changes() begins at that or a later one, also where a pin keeps this one: what a snapshot keeps for later is in "
    "its change_feed()"
)


class TableViews:
    """The views of one table, all through the same pin if there is one."""

    def __init__(
        self, views: Views, table: int, name: str, pin: PinHandle | None = None, own: SharedBuffer | None = None
    ) -> None:
        """`own` holds the uncommitted rows that are seen as well; through a pin, those of a transaction."""
        self.name = name
        self.lifetime = views.lifetime
        self._views = views
        self._own = own
        self._table = table
        self._pin = pin
        self._at: ReadView | None = None
        """What the last read at an epoch saw: many reads at one epoch have one view."""

    def epoch_to_read(self, epoch: int | None) -> int | None:
        """The epoch to `take` for a read at `epoch`; `None`: the latest, own rows included, or the pinned one.

        Raises `SnapshotExpired` if the epoch is no longer kept, `InvalidOption` if it is not the pinned one.
        """
        if self._pin is not None:
            self._pin.check()
            if epoch is not None and check_read_epoch(epoch) != self._pin.info.epoch:
                raise InvalidOption(f"a snapshot reads at its own epoch {self._pin.info.epoch}, not at {epoch}")
            return self._pin.info.epoch
        if epoch is not None:
            epoch = check_read_epoch(epoch)
            self._views.check_readable(self._table, epoch, pinned=False)
        return epoch

    def find_loose(self, key: bytes) -> Rows | Absent | None:  # noqa: ARG002 - of those that have some
        """An own row, or delete, above all else at the latest epoch; `ABSENT` if `take_bound` has what there is."""
        return ABSENT

    def take_bound(self) -> ReadView:
        """What a read of a key at the latest epoch sees that is not loose."""
        return self.take(self.epoch_to_read(None))

    def take(self, epoch: int | None) -> ReadView:
        """What a read at an epoch that was checked sees.

        A commit adds its rows to the version, then drops them from the buffer. As the version is taken last here, a
        reader in another thread meets them at least once, and meeting them twice does no harm.
        """
        if self._pin is not None:
            own = () if self._own is None else self._own.runs(self._table)
            return self._pinned_view(self._pin)._replace(own=own, epoch=epoch)
        own = () if self._own is None else self._own.runs(self._table, epoch)
        view = self._views.committed(self._table, self.name)
        if epoch is None:
            return view._replace(own=own) if own else view
        check_unpinned(view.version, view.state, epoch)
        if own and epoch <= view.version.max_committed_epoch:
            own = ()
        at = self._at
        if own or at is None or at.epoch != epoch or at.runs is not view.runs or at.version is not view.version:
            at = self._at = view._replace(own=own, epoch=epoch)
        return at

    def since(self, epoch: int, *, unpinned: bool = False) -> ReadView:
        """The committed rows, for changes after `epoch`, which was checked; if `unpinned`, no pin keeps them."""
        view = self._pinned_view(self._pin) if self._pin is not None else self._views.committed(self._table, self.name)
        if self._pin is None or unpinned:
            check_unpinned(view.version, view.state, epoch)
        return view

    def _pinned_view(self, pin: PinHandle) -> ReadView:
        view = self._views.committed(self._table, self.name, gone=True)
        # After the view was taken: if the lease lapsed, compaction may have gone past the epoch in that very version.
        pin.check()
        check_exact(view.version, view.state, pin.info.epoch, pin.info.unkept)
        return view

    def resilient(self, read: Callable[[ReadView], T], epoch: int | None) -> T:
        """Run a read at an epoch that was checked, on newer versions until vacuum leaves its SSTs alone."""
        return self._views.resilient(lambda: read(self.take(epoch)), self._table, epoch, pinned=self._pin is not None)

    def after(self, error: ObjectNotFound | CorruptSst, view: ReadView) -> ReadView:
        """What a read sees on the newest version, at the epoch that it has, when an SST of its view is gone."""
        self._views.refresh_after(error, view.version)
        if view.epoch is not None:
            self._views.check_readable(self._table, view.epoch, pinned=self._pin is not None)
        return self.take(view.epoch)

    def since_after(
        self, error: ObjectNotFound | CorruptSst, view: ReadView, epoch: int, *, unpinned: bool = False
    ) -> ReadView:
        """The same for changes after an epoch, as `since` has it."""
        self._views.refresh_after(error, view.version)
        return self.since(epoch, unpinned=unpinned)

    def check_range(self, from_epoch: int, to_epoch: int | None) -> tuple[int, int]:
        """A range of all versions, after both ends were checked; `None` is the newest, or pinned, epoch."""
        newest = self._pin.info.epoch if self._pin is not None else self._views.backend.recent().max_committed_epoch
        from_epoch = check_position(from_epoch, "from_epoch")
        until = self._end(from_epoch, newest) if to_epoch is None else check_position(to_epoch, "to_epoch")
        if not from_epoch <= until:
            raise InvalidOption(f"changes from {from_epoch} to {until}: expected 0 <= from_epoch <= to_epoch")
        self._views.check_committed(self.name, until)
        # A pin at E keeps, of what lies at or below E, only each key's newest version: it serves no changes below E.
        # Everything above `from_epoch` is kept if a reader at `from_epoch` is still served.
        for epoch in (until, from_epoch):
            self._views.check_readable(self._table, epoch, pinned=False, advice=_CHANGES)
        return from_epoch, until

    def _end(self, from_epoch: int, newest: int) -> int:
        """Where a range with an open end does end; `InvalidOption` if it begins at an epoch that is still to come."""
        return newest if from_epoch <= newest else self._views.check_committed(self.name, from_epoch)

    def check_feed(self, from_epoch: int, to_epoch: int | None) -> tuple[int, int]:
        """The same for a range of changes with what was before, whose images at `from_epoch` a pin there keeps, too."""
        from_epoch = check_position(from_epoch, "from_epoch")
        given = check_position(0 if to_epoch is None else to_epoch, "to_epoch")
        newest = self._views.check_committed(self.name, given)
        until = self._end(from_epoch, newest) if to_epoch is None else given
        if not from_epoch <= until:
            raise InvalidOption(f"changes from {from_epoch} to {until}: expected 0 <= from_epoch <= to_epoch")
        if self._pin is None:
            self._views.check_readable(self._table, from_epoch, pinned=False)
        elif max(from_epoch, 1) < self._pin.info.epoch:
            raise InvalidOption(
                f"changes from {from_epoch}: a snapshot at epoch {self._pin.info.epoch} keeps those after it only"
            )
        return from_epoch, until


class StoreViews(TableViews):
    """The views of a table of the store, where own rows that were written one by one may be loose."""

    def __init__(self, views: Views, table: int, name: str, buffer: SharedBuffer) -> None:
        super().__init__(views, table, name, own=buffer)
        self._buffer = buffer

    def find_loose(self, key: bytes) -> Rows | Absent | None:
        """In the buffer, whose loose rows are above its runs."""
        return self._buffer.find_loose(self._table, key)

    def take_bound(self) -> ReadView:
        """As `take`, and the loose rows stay so."""
        own = self._buffer.bound_runs(self._table)
        view = self._views.committed(self._table, self.name)
        return view._replace(own=own) if own else view
