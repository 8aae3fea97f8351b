"""The background thread that compacts in an embedded store.

It sleeps until a commit nudges it, then claims and runs tasks until there is nothing left to do. Claims go through
the version log, so several processes on one store share the work and never do the same task twice. An idle store
makes no requests: there is no polling.
"""

from collections.abc import Callable

from tussock.compactor.executor import CompactionCancelled
from tussock.statestore.base.logs import get_logger
from tussock.statestore.base.system import System, Task
from tussock.statestore.errors import CorruptObject, TussockError

__all__ = ["CompactionWorker"]

log = get_logger("tussock.compactor")


class CompactionWorker:
    """Runs `step` in its own thread, again and again while it returns that it did something.

    `step` claims and executes one task, and sees to a task that fails. Another error, of a log that cannot be
    read, say, ends the round and not the thread: the next nudge tries again.
    """

    def __init__(self, system: System, step: Callable[[], bool]) -> None:
        self._system = system
        self._step = step
        self._changed = system.condition()
        self._nudged = False
        self._closed = False
        self._thread: Task | None = None

    def nudge(self) -> None:
        """There may be work; returns at once."""
        with self._changed:
            if self._closed:
                return
            self._nudged = True
            self._changed.notify_all()
            if self._thread is None:
                self._thread = self._system.spawn("tussock-compaction", self._run)

    @property
    def closing(self) -> bool:
        """Whether running work should stop at its next chance."""
        return self._closed

    def close(self) -> None:
        """Stop after the batch in hand; returns when the thread has ended."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._nudged or self._closed)
                self._nudged = False
            if self._closed:
                return
            self._round()

    def _round(self) -> None:
        try:
            while not self._closed and self._step():
                pass
        except CompactionCancelled:
            pass
        except CorruptObject as error:
            log.error("compaction stopped at a damaged log, the next commit tries again", error=str(error))
        except TussockError as error:
            log.warning("compaction round failed, the next commit tries again", error=str(error))
        except Exception:
            # A defect: without this the thread would end, and L0 grow unseen for as long as the process lives.
            log.exception("compaction round failed unexpectedly, the next commit tries again")
