"""The snapshot of a transaction: an epoch that costs no request while the retention keeps it, and is pinned later."""

from tussock.statestore.base.system import System
from tussock.statestore.contract.backend import PinHandle, VersionView
from tussock.statestore.contract.readable import check_exact, check_unpinned
from tussock.statestore.contract.records import TableState
from tussock.statestore.errors import StoreClosed
from tussock.statestore.parts import StoreParts

__all__ = ["SnapshotEpoch"]

PIN_SHARE = 4
"""A transaction pins its snapshot after the retention divided by this."""


class SnapshotEpoch:
    """The epoch that a transaction reads: the newest when it began."""

    def __init__(self, parts: StoreParts) -> None:
        self._parts = parts
        self._system: System = parts.system
        self._pin: PinHandle | None = None
        version = parts.backend.recent()
        self.epoch = version.max_committed_epoch
        self.seq = version.seq
        """The log entry up to which tables have come and gone, which they do without an epoch."""
        self.read_epoch = max(self.epoch, 1)
        """The same for reads, which take no epoch 0: in an empty store all are."""
        self._is_over = False
        self._pin_at = float("inf")
        if self.epoch:
            self.hasten(None)

    def hasten(self, state: TableState | None) -> None:
        """Pin it in time for the retention of that table, `None`: of those that have the store's."""
        kept_ms = (self.epoch - self._parts.backend.oldest_readable(state)) / 65536
        self._pin_at = min(self._pin_at, self._system.monotonic() + max(kept_ms, 0.0) / 1000 / PIN_SHARE)

    def check(self) -> int:
        """The epoch to read at; `SnapshotExpired` if something of it may be gone. Pins it where that may come soon."""
        if self._is_over:
            raise StoreClosed("the transaction is over, and its tables with it; begin another one")
        if self._pin is not None:
            self._pin.check()
        elif self._system.monotonic() >= self._pin_at:
            self.pin()
        return self.read_epoch

    def check_kept(self, version: VersionView, state: TableState) -> None:
        """Raise `SnapshotExpired` if the table in that version may have lost rows of the epoch."""
        if self._pin is not None:
            check_exact(version, state, self.epoch, self._pin.info.unkept)
        elif self.epoch:
            check_unpinned(version, state, self.epoch)

    def pin(self) -> None:
        """Keep it from now on; the epoch of an empty store needs no pin."""
        if self._pin is None and self.epoch:
            self._pin = self._system.uninterrupted(
                lambda: self._parts.backend.pin(self.epoch), lambda unwanted: unwanted.release()
            )

    def release(self) -> None:
        """The transaction is over."""
        self._is_over = True
        if self._pin is not None:
            self._pin.release()
