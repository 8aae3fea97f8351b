"""The background thread that compacts in an embedded store.

It sleeps until a commit nudges it, then claims and runs tasks until there is nothing left to do. Where commits follow
each other it looks for work once in a while and not after each of them: a task then merges many runs in place of four,
and the thread that commits has the interpreter to itself for most of the time. Claims go through the version log, so
several processes on one store share the work and never do the same task twice. An idle store makes no requests: there
is no polling.
"""

from collections.abc import Callable

from tussock.compactor.executor import CompactionCancelled
from tussock.statestore.base.logs import get_logger
from tussock.statestore.base.system import System, Task
from tussock.statestore.errors import CorruptObject, TussockError

__all__ = ["CompactionWorker"]

log = get_logger("tussock.compactor")

LOOK_SECONDS = 0.1
LOOK_COMMITS = 12
"""The next look for work comes this long after the last one, or with this many commits since: as many runs as L0 may
have without harm, and fewer than a task merges."""


class CompactionWorker:
    """Runs `step` in its own thread, again and again while it returns that it did something.

    `step` claims and executes one task, and sees to a task that fails. Another error, of a log that cannot be
    read, say, ends the round and not the thread: the next nudge tries again.
    """

    def __init__(self, system: System, step: Callable[[], bool]) -> None:
        self._system = system
        self._step = step
        self._changed = system.condition()
        self._nudges = 0
        """Since the last look."""
        self._closed = False
        self._is_idle = True
        """It waits for a nudge."""
        self._looked_at = -LOOK_SECONDS
        self._thread: Task | None = None

    def nudge(self) -> None:
        """There may be work; returns at once."""
        with self._changed:
            if self._closed:
                return
            self._nudges += 1
            if self._is_idle or self._nudges == LOOK_COMMITS:
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
                self._is_idle = True
                self._changed.wait_for(lambda: self._nudges > 0 or self._closed)
                self._is_idle = False
                early = self._looked_at + LOOK_SECONDS - self._system.monotonic()
                if early > 0:
                    self._changed.wait_for(lambda: self._nudges >= LOOK_COMMITS or self._closed, early)
                self._nudges = 0
            if self._closed:
                return
            self._round()

    def _round(self) -> None:
        """Steps while there is work; after a short one commits that came meanwhile are left to the next look."""
        try:
            while not self._closed:
                self._looked_at = self._system.monotonic()
                did = self._step()
                is_short = self._system.monotonic() - self._looked_at < LOOK_SECONDS
                if not did or (is_short and self._nudges):
                    return
        except CompactionCancelled:
            pass
        except CorruptObject as error:
            log.error("compaction stopped at a damaged log, the next commit tries again", error=str(error))
        except TussockError as error:
            log.warning("compaction round failed, the next commit tries again", error=str(error))
        except Exception:
            # A defect: without this the thread would end, and L0 grow unseen for as long as the process lives.
            log.exception("compaction round failed unexpectedly, the next commit tries again")
