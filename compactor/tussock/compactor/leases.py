"""The thread that keeps an embedded store's compaction tasks from being taken back while they run.

It lives from the first task on, and wakes every ten seconds while there is one; a task that is done sooner costs no
log entry. A process that is killed, or stands still, renews nothing, so what it had claimed is free within a lease.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tussock.meta.compaction.claims import RENEW_MS
from tussock.statestore.base.logs import get_logger
from tussock.statestore.base.system import System, Task
from tussock.statestore.errors import TussockError

__all__ = ["LeaseKeeper"]

log = get_logger("tussock.compactor")


class LeaseKeeper:
    """Calls `renew` now and then while something is in hand. Safe to share between threads."""

    def __init__(self, system: System, renew: Callable[[], None]) -> None:
        """`renew` renews what is in hand and is due."""
        self._system = system
        self._renew = renew
        self._changed = system.condition()
        self._in_hand = 0
        self._closed = False
        self._thread: Task | None = None

    @contextmanager
    def holding(self) -> Iterator[None]:
        """Inside, a task is in hand."""
        with self._changed:
            self._in_hand += 1
            self._changed.notify_all()
            if self._thread is None and not self._closed:
                self._thread = self._system.spawn("tussock-leases", self._run)
        try:
            yield
        finally:
            with self._changed:
                self._in_hand -= 1

    def close(self) -> None:
        """Renew nothing any more; returns when the thread has ended."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._in_hand > 0 or self._closed)
                self._changed.wait_for(lambda: self._closed, RENEW_MS / 1000)
                if self._closed:
                    return
                if not self._in_hand:
                    continue
            try:
                self._renew()
            except TussockError as error:
                log.warning("the lease of a compaction was not renewed, the next try is soon", error=str(error))
            except Exception:
                # A defect: without this the thread would end, and every longer task be taken back.
                log.exception("the lease of a compaction was not renewed, the next try is soon")
