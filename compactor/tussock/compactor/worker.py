"""The background thread that compacts in an embedded store.

It sleeps until a commit nudges it, then claims and runs tasks until there is nothing left to do. Claims go through
the version log, so several processes on one store share the work and never do the same task twice. An idle store
makes no requests: there is no polling.
"""

import threading
from collections.abc import Callable

from tussock.compactor.executor import CompactionCancelled
from tussock.statestore.errors import CorruptObject, TussockError
from tussock.statestore.logs import get_logger

__all__ = ["CompactionWorker"]

log = get_logger("tussock.compactor")


class CompactionWorker:
    """Runs `step` in a thread of its own, again and again while it answers that it did something.

    `step` claims and executes one task. An error ends the round, not the thread: the next nudge tries again. A task
    over a damaged SST fails each time it is tried, so such a round ends with an error in the log that names the SST.
    """

    def __init__(self, step: Callable[[], bool]) -> None:
        self._step = step
        self._wake = threading.Event()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tussock-compaction", daemon=True)
        self._started = False
        self._lock = threading.Lock()

    def nudge(self) -> None:
        """There may be work; returns at once."""
        with self._lock:
            if self._closed.is_set():
                return
            self._wake.set()
            if not self._started:
                self._started = True
                self._thread.start()

    @property
    def closing(self) -> bool:
        """Whether running work should stop at its next chance."""
        return self._closed.is_set()

    def close(self) -> None:
        """Stop after the batch in hand; returns when the thread has ended."""
        with self._lock:
            self._closed.set()
            self._wake.set()
        if self._started and threading.current_thread() is not self._thread:
            self._thread.join()

    def _run(self) -> None:
        while True:
            self._wake.wait()
            self._wake.clear()
            if self._closed.is_set():
                return
            self._round()

    def _round(self) -> None:
        try:
            while not self._closed.is_set() and self._step():
                pass
        except CompactionCancelled:
            pass
        except CorruptObject as error:
            log.error("compaction stopped at damaged data", error=str(error))
        except TussockError as error:
            log.warning("compaction round failed, the next commit tries again", error=str(error))
        except Exception:
            # A defect: without this the thread would end, and L0 grow unseen for as long as the process lives.
            log.exception("compaction round failed unexpectedly, the next commit tries again")
