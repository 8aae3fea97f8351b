"""A commit beside the work."""

from collections.abc import Callable

from tussock.statestore.base.system import System

__all__ = ["BackgroundCommit"]


class BackgroundCommit:
    """Runs in its own thread from the start; what it fails with is kept for the one that asks."""

    def __init__(self, system: System, work: Callable[[], None]) -> None:
        self.failure: Exception | None = None
        self._work = work
        self._task = system.spawn("tussock application commit", self._run)

    @property
    def is_done(self) -> bool:
        """Whether it has ended, well or not."""
        return not self._task.is_alive()

    def wait(self) -> None:
        """Return when it has ended; raises what it failed with."""
        self._task.join()
        if self.failure is not None:
            raise self.failure

    def _run(self) -> None:
        try:
            self._work()
        except Exception as error:  # noqa: BLE001 - the thread of requests raises it
            self.failure = error
