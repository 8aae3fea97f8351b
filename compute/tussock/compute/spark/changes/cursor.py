"""Keeps a stream's changes in the store: a pin on the epoch up to which its consumer has read.

Compaction keeps everything committed after the smallest pinned epoch, so a stream that lags behind the retention loses
nothing while its process lives. Spark has one Python process for a stream's source and never informs it that the query
has ended; so the pin is a lease, which that process renews and which expires after the process has ended.
"""

from tussock.statestore.base.logs import get_logger
from tussock.statestore.client import StateStore
from tussock.statestore.errors import SnapshotExpired, TussockError
from tussock.statestore.snapshot import Snapshot
from tussock.statestore.tables.raw_table import RawTable
from tussock.statestore.tables.typed_table import TypedTable

__all__ = ["Cursor", "oldest_kept", "pin_after"]

log = get_logger("tussock.compute")


def pin_after(store: StateStore, epoch: int) -> Snapshot:
    """A snapshot that keeps every change after `epoch`; `SnapshotExpired` if some are gone."""
    # No epoch lies below 1, so a pin there keeps what a pin at 0 would keep, which cannot be named. If nothing was
    # committed, the newest epoch is 0.
    return store.pin_snapshot(max(epoch, 1) if store.recent_version().max_committed_epoch else None)


def oldest_kept(table: RawTable | TypedTable) -> int:
    """The oldest epoch after which all changes of the table are kept without a pin; 0: all of them."""
    try:
        table.change_feed(0)
    except SnapshotExpired as error:
        return int(error.args[2])
    return 0


class Cursor:
    """The pin of one stream; not shared between threads."""

    def __init__(self, store: StateStore, table: str, consumer: str) -> None:
        self._store = store
        self._table = table
        self._consumer = consumer
        self._held = -1
        self._snapshot: Snapshot | None = None

    @property
    def table(self) -> RawTable | TypedTable:
        """The table, with its changes after what is held."""
        assert self._snapshot is not None
        return self._snapshot.table(self._table)

    def hold(self, epoch: int) -> None:
        """Keep what comes after `epoch`, unless that is held already; `SnapshotExpired` if it is gone."""
        if self._snapshot is None or epoch < self._held:
            self._replace(epoch)

    def move(self, epoch: int) -> None:
        """Release what comes up to `epoch`, which has been read. If that fails now, more is kept than necessary."""
        if self._snapshot is None or epoch <= self._held:
            return
        try:
            self._replace(epoch)
        except TussockError as error:
            log.warning(
                "the cursor of a change stream stays where it is",
                consumer=self._consumer,
                epoch=epoch,
                error=str(error),
            )

    def _replace(self, epoch: int) -> None:
        # The new pin first: while both exist, nothing between them can go.
        pinned, before = pin_after(self._store, epoch), self._snapshot
        self._snapshot, self._held = pinned, epoch
        if before is not None:
            before.close()
