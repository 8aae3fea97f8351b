"""Which epoch comes next for this client: greater than all that it knows of."""

import threading

from tussock.statestore.base.system import System
from tussock.statestore.contract.backend import Backend
from tussock.statestore.contract.renumbered import Renumbered
from tussock.statestore.epochs import MAX_EPOCH, next_epoch
from tussock.statestore.errors import EpochTooOld
from tussock.statestore.write.shared_buffer import SharedBuffer

__all__ = ["EpochIssuer"]


class EpochIssuer:
    """Hands out the epochs of an open store. Safe to use from several threads."""

    def __init__(self, url: str, system: System, backend: Backend, buffer: SharedBuffer) -> None:
        self._url = url
        self._system = system
        self._backend = backend
        self._buffer = buffer
        self._newest = 0
        self._repair: Renumbered | None = None
        """The newest that `_newest` knows of."""
        self._lock = threading.Lock()

    def issue(self) -> int:
        """An epoch that may be written at; `EpochTooOld` if one of those known is the largest there is."""
        with self._lock:
            version = self._backend.version()
            if version.renumbered != self._repair:
                self._newest, self._repair = 0, version.renumbered
            newest = max(self._newest, version.max_committed_epoch)
            if newest >= MAX_EPOCH:
                raise EpochTooOld(
                    f"no epoch comes after {newest}, which is committed at {self._url} or was handed out: where a "
                    "commit at it was taken, `tussock repair clock` gives it a present number",
                    newest,
                )
            epoch = next_epoch(self._system.now_ms(), newest)
            while not self._buffer.issue(epoch):
                epoch = next_epoch(self._system.now_ms(), epoch)
            self._newest = epoch
        return epoch

    def note_committed(self, epoch: int) -> None:
        """A commit of this client holds at that epoch."""
        self._buffer.note_committed(epoch)
        with self._lock:
            self._newest = max(self._newest, epoch)

    def forget(self) -> None:
        """What was handed out by a clock that was ahead is no bound for what comes."""
        with self._lock:
            self._newest = 0
