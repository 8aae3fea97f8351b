"""Which version a read is done on, and what becomes of the read when vacuum takes an SST of that version.

`TableViews` takes from here what the reads of one table see.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeVar

from tussock.statestore.base.arguments import check_table
from tussock.statestore.base.logs import get_logger
from tussock.statestore.base.process.lifetime import Lifetime
from tussock.statestore.base.system import System
from tussock.statestore.contract.backend import Backend, VersionView
from tussock.statestore.contract.known_tables import no_table
from tussock.statestore.contract.readable import expiry_error
from tussock.statestore.contract.records import SstInfo, TableState, data_object
from tussock.statestore.errors import (
    CorruptSst,
    InvalidOption,
    MetaUnavailable,
    ObjectNotFound,
    ObjectStoreUnavailable,
    SnapshotExpired,
    StaleUpload,
    TableNotFound,
    WaitTimeout,
)
from tussock.statestore.sst.history import index_history
from tussock.statestore.sst.lookups.lookup import RunIndex
from tussock.statestore.write.buffered_run import BufferedRun
from tussock.statestore.write.shared_buffer import SharedBuffer

__all__ = ["ReadView", "Views"]

log = get_logger("tussock.statestore.read.views")

T = TypeVar("T")

_PAUSE_SECONDS = 0.2
"""Between two attempts to learn of a version."""

_MISSING_RETRIES = 20
"""Versions that one read may try: a slow process under a grace period of seconds needs more than a few."""


class ReadView(NamedTuple):
    """What one read of a table sees. It stays so: a newer version may have lost what is visible at the epoch."""

    version: VersionView
    state: TableState
    """The table in that version."""
    runs: list[RunIndex]
    """The committed runs, newest first."""
    own: tuple[BufferedRun, ...] = ()
    """The client's own uncommitted runs that are visible, newest first."""
    epoch: int | None = None
    """Rows up to this one are visible; `None`: all of the version, and all own ones."""
    history: tuple[RunIndex, ...] = ()
    """The runs of history, the one that was parted last first; a read at `None` needs none of them."""


class Views:
    """The versions that the reads of an open store are done on. Safe to use from several threads."""

    def __init__(self, lifetime: Lifetime, url: str, system: System, backend: Backend, buffer: SharedBuffer) -> None:
        self.lifetime = lifetime
        self.backend = backend
        self.buffer = buffer
        self._url = url
        self._system = system
        self._by_table: dict[int, ReadView] = {}

    def refresh(self) -> VersionView:
        """The newest version there is."""
        self.lifetime.check_usable()
        return self.backend.refresh()

    def named(self, name: str) -> TableState:
        """The table of that name; `TableNotFound` if there is none."""
        self.lifetime.check_usable()
        check_table(name)
        state = self.backend.recent().find_table(name) or self.refresh().find_table(name)
        if state is None:
            there = sorted(one.spec.name for one in self.backend.version().tables.values())
            raise no_table(self._url, name, there)
        return state

    def committed(self, table: int, name: str, *, gone: bool = False) -> ReadView:
        """The table in a recent version, without own rows, at no epoch yet.

        `TableNotFound` if it was dropped; with `gone`, for readers with a pin, only if no pin needs it any more.
        """
        if self.lifetime.closed:
            self.lifetime.check_usable()
        version = self.backend.recent()
        view = self._by_table.get(table)
        if view is None or view.version is not version:
            state = version.tables.get(table)
            if state is None:
                self._by_table.pop(table, None)
                dropped = version.gone.get(table) if gone else None
                if dropped is None:
                    raise TableNotFound(f"table {name!r} was dropped from the store at {self._url}", name)
                return _indexed(version, dropped.state, None)
            if view is not None and view.state.levels is state.levels:
                view = view._replace(version=version, state=state)
            else:
                view = _indexed(version, state, view)
            self._by_table[table] = view
        return view

    def check_readable(self, table: int, epoch: int, *, pinned: bool, advice: str = "") -> None:
        """Make sure that `epoch` of the table can be read: known here, and still kept unless a pin keeps it.

        `advice` is what `SnapshotExpired` says to do, if that is not to pin it.
        """
        if epoch > self.backend.version().max_committed_epoch:
            self.refresh()
        if not pinned:
            oldest = self.backend.oldest_readable(self.backend.version().tables.get(table))
            if epoch < oldest:
                raise expiry_error(epoch, oldest, advice)

    def check_committed(self, table: str, until: int) -> int:
        """The newest committed epoch; `InvalidOption` if changes of a table up to `until` would miss some to come."""
        newest = self.backend.recent().max_committed_epoch
        if until > newest:
            newest = self.refresh().max_committed_epoch
        if until > newest:
            raise InvalidOption(
                f"table {table!r}: changes up to epoch {until}: the newest committed epoch is {newest}, and what is "
                "committed until then would be missing; wait_epoch() for it first"
            )
        return newest

    def wait_epoch(self, epoch: int, timeout: float) -> None:
        """Return when the version here has the epoch; `WaitTimeout` after that many seconds."""
        deadline = self._system.monotonic() + timeout
        version = self.refresh()
        while (newest := version.max_committed_epoch) < epoch:
            left = deadline - self._system.monotonic()
            if left <= 0:
                raise WaitTimeout(
                    f"epoch {epoch} was not committed within {timeout} s; the newest committed epoch is {newest}",
                    epoch,
                    newest,
                )
            version = self.backend.await_change(version.seq, left)

    def await_epoch(self, epoch: int) -> None:
        """Return when the version here has the epoch, however long the service or the bucket is away."""
        pause = _PAUSE_SECONDS / 32
        while self.backend.version().max_committed_epoch < epoch:
            try:
                if self.refresh().max_committed_epoch >= epoch:
                    return
            except (MetaUnavailable, ObjectStoreUnavailable) as error:
                log.warning("a version is waited for", epoch=epoch, error=str(error))
                pause = _PAUSE_SECONDS
            self._system.sleep(pause)
            pause = min(2 * pause, _PAUSE_SECONDS)

    def resilient(self, read: Callable[[], T], table: int, epoch: int | None, *, pinned: bool) -> T:
        """Run a read; if an SST has gone since its version, do it again on the newest version.

        Compaction and vacuum may have replaced what an old version names. If the newest version still names a
        missing object, or one that is damaged, it was lost: `CorruptSst`. `SnapshotExpired` if versions go faster than
        they can be read.
        """
        for attempt in range(1, _MISSING_RETRIES + 1):
            before = self.backend.version()
            try:
                return read()
            except (ObjectNotFound, CorruptSst) as error:
                self.refresh_after(error, before)
                if attempt == _MISSING_RETRIES:
                    raise SnapshotExpired(
                        f"{error}; so it was with {attempt} versions in a row: vacuum deletes what is still read, so "
                        "raise gc_grace, or pin a snapshot and read there"
                    ) from error
                if epoch is not None:
                    self.check_readable(table, epoch, pinned=pinned)
        raise AssertionError("unreachable: the last attempt returns or raises")

    def refresh_after(self, error: ObjectNotFound | CorruptSst, version: VersionView) -> None:
        """Learn of the newest version, as an object of `version` has gone; raises `loss_error` if that names it too.

        A damaged SST may be one that has gone as well, and then does not matter any more: it lay in an entry of the
        log, and a client whose create of that entry came too late has left its own there after a vacuum.
        """
        newest = self.refresh()
        if isinstance(error, CorruptSst):
            if newest is version or any(sst.id in str(error) for sst in _named_ssts(newest)):
                raise error
        elif newest is version and (lost := self.loss_error(error)):
            raise lost from error

    def loss_error(self, error: ObjectNotFound) -> CorruptSst | StaleUpload | None:
        """The error for an object that the newest version, or the shared buffer, names and the bucket does not have.

        `None` if neither does: own rows that were spilled to it were given up, or committed, while they were read, so
        the read can be done again.
        """
        if any(sst_id in str(error) for sst_id in self.buffer.spilled_ids()):
            return StaleUpload(
                f"{error}; uncommitted rows were spilled to it, and vacuum took it for garbage: abort the epoch and "
                "write it again, with a longer gc_grace or a larger buffer_bytes"
            )
        ssts = _named_ssts(self.backend.version())
        if any((data_object(sst) if sst.entry else sst.id) in str(error) for sst in ssts):
            return CorruptSst(f"{error}; the newest version names it, so it was deleted by someone else: restore it")
        return None


def _named_ssts(version: VersionView) -> Iterator[SstInfo]:
    for state in (*version.tables.values(), *(gone.state for gone in version.gone.values())):
        yield from state.levels.ssts()


def _indexed(version: VersionView, state: TableState, before: ReadView | None) -> ReadView:
    """The table in that version, each run as it was in the view before, or prepared now."""
    tree = state.levels
    # A run that a commit or a compaction left alone is the very same object.
    known = {} if before is None else {id(index.source): index for index in before.runs}
    runs = [known.get(id(run)) or RunIndex(run) for run in tree.runs()]
    past: dict[int, list[RunIndex]] = {}
    for index in () if before is None else before.history:
        past.setdefault(id(index.source), []).append(index)
    history = tuple(index for run in tree.history for index in past.get(id(run.ssts)) or index_history(run.ssts))
    return ReadView(version, state, runs, history=history)
