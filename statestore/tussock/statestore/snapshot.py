"""A snapshot: the store at one epoch, kept readable by a pin until it is closed."""

import weakref
from collections.abc import Sequence
from types import TracebackType

from tussock.statestore.base.arguments import check_table
from tussock.statestore.base.process.shield import uninterrupted
from tussock.statestore.contract.backend import PinHandle, PinInfo, VersionView
from tussock.statestore.contract.records import Run, TableSpec, TableState
from tussock.statestore.errors import TableNotFound
from tussock.statestore.parts import StoreParts
from tussock.statestore.read.access import ReadOnlyAccess, StoreAccess, TableAccess
from tussock.statestore.read.key_reader import KeyReader
from tussock.statestore.read.table_views import StoreViews, TableViews
from tussock.statestore.read.uploaded_views import UploadedViews, check_runs
from tussock.statestore.shown import show_value
from tussock.statestore.tables.raw_table import RawTable
from tussock.statestore.tables.typed_table import TypedTable

__all__ = ["Snapshot", "open_table", "table_at"]


def open_table(
    parts: StoreParts, spec: TableSpec, access: TableAccess | None = None, uploaded: Sequence[Run] = ()
) -> RawTable | TypedTable:
    """The table as its kind wants to be used; through the store if no other access is given.

    With `uploaded` runs, newest first, it is for reading, and shows their rows over those of the store.
    """
    parts.known.note_opened(spec)
    check_runs(uploaded, spec.id, spec.name)
    if uploaded:
        over = UploadedViews(parts.views, spec.id, spec.name, uploaded)
        access = ReadOnlyAccess(spec, over, KeyReader(over, parts.sstables))
    if access is None:
        views = StoreViews(parts.views, spec.id, spec.name, parts.writes.buffer)
        access = StoreAccess(spec, views, KeyReader(views, parts.sstables), parts.writes)
    return RawTable(parts, spec, access) if spec.schema is None else TypedTable(parts, spec, access)


def table_at(version: VersionView, name: str, epoch: int, seq: int) -> TableState | None:
    """The table of that name in the store at a committed epoch, after log entry `seq`.

    With `seq` 0, which no entry has, the epoch alone decides. Tables may come and go while it is the newest; then it is
    the first one that is kept.
    """
    kept = [
        gone.state for gone in version.gone.values() if (gone.dropped_seq > seq if seq else gone.dropped_epoch >= epoch)
    ]
    there = [
        state
        for state in (*kept, *version.tables.values())
        if state.spec.name == name and state.created_epoch <= epoch and (not seq or state.created_seq <= seq)
    ]
    return min(there, key=lambda state: state.created_seq, default=None)


class _SharedPin:
    """The pin behind a snapshot, as the snapshot, its tables and their iterators share it; satisfies `PinHandle`.

    Once the last of them is gone, nobody can release the pin, which would be renewed for ever: so it is forgotten.
    """

    def __init__(self, pin: PinHandle) -> None:
        self._pin = pin
        self.check = pin.check
        self.forget = pin.forget
        self._finalizer = weakref.finalize(self, pin.forget)
        self._finalizer.atexit = False

    @property
    def info(self) -> PinInfo:
        """The lease as last written."""
        return self._pin.info

    def release(self) -> None:
        """Let go; a second call is no error."""
        self._finalizer.detach()
        self._pin.release()


class Snapshot:
    """Reads at one epoch, the same whatever is committed, compacted or vacuumed meanwhile.

    The lease behind it renews itself while the process lives. Close it, or use it as a context manager: what it
    keeps cannot be compacted away before. One that was dropped without that, and its tables and their iterators, too,
    is closed at the next renewal, with a warning in the log.
    """

    def __init__(self, parts: StoreParts, pin: PinHandle) -> None:
        self._parts = parts
        self._pin = _SharedPin(pin)

    @property
    def epoch(self) -> int:
        """The epoch that is read."""
        return self._pin.info.epoch

    def table(self, name: str, *, uploaded: Sequence[Run] = ()) -> RawTable | TypedTable:
        """The table that had the name when the snapshot was taken; `TableNotFound` if there was none.

        One that was dropped since, or whose name another one has now, is read as it was. In a snapshot of an epoch that
        was asked for by its number that is so until vacuum takes the table, unless an older snapshot keeps it.
        `uploaded`: as in `StateStore.table`.
        """
        check_table(name)
        self._parts.lifetime.check_usable()
        self._pin.check()
        pin = self._pin.info
        version = self._parts.backend.recent()
        state = table_at(version, name, pin.epoch, pin.seq) if version.seq >= pin.seq else None
        if state is None:
            state = table_at(self._parts.views.refresh(), name, pin.epoch, pin.seq)
        if state is None:
            raise TableNotFound(
                f"no table {show_value(name)} in the store at {self._parts.settings.url} as of this snapshot, epoch "
                f"{pin.epoch}; a table that was created later is read outside of it, or in a newer one",
                name,
            )
        views: TableViews = TableViews(self._parts.views, state.spec.id, state.spec.name, self._pin)
        check_runs(uploaded, state.spec.id, state.spec.name)
        if uploaded:
            views = UploadedViews(self._parts.views, state.spec.id, state.spec.name, uploaded, self._pin)
        reads = KeyReader(views, self._parts.sstables)
        return open_table(self._parts, state.spec, ReadOnlyAccess(state.spec, views, reads))

    @uninterrupted
    def close(self) -> None:
        """Let go of the epoch; reads through this snapshot then raise `StoreClosed`.

        In a process that was forked off nothing happens: the pin is the other one's.
        """
        if not self._parts.lifetime.is_inherited:
            self._pin.release()

    def __enter__(self) -> "Snapshot":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
