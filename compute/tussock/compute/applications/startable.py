"""`Startable`: what runs from its start to its stop, and in a `with` block as long as the block."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from types import TracebackType
from typing import Self

from tussock.compute.applications.replies import failure_of
from tussock.statestore.base.system import System, Task
from tussock.statestore.errors import InvalidOption, WaitTimeout

__all__ = ["Startable", "TimedEnd"]


class Startable(ABC):
    """An application of any layer."""

    @abstractmethod
    def start(self) -> None:
        """Recover, and begin to take requests; raises what hinders it."""

    @abstractmethod
    def stop(self) -> None:
        """Run what was asked for, commit, and end; raises what the application has failed with."""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


class TimedEnd:
    """The end of a run, for which a caller may wait some seconds only; it goes on, whether or not somebody waits."""

    def __init__(self, what: str) -> None:
        """`what` is named in messages."""
        self._what = what
        self._task: Task | None = None
        self._failure: Exception | None = None

    def check_over(self) -> None:
        """`InvalidOption` while an end goes on."""
        if self._task is not None:
            raise InvalidOption(f"{self._what} is ending still: call stop(), which waits for that")

    def begin(self, system: System, end: Callable[[], None], timeout: float | None) -> None:
        """Let `end` run: in a thread if the caller waits no longer than some seconds."""
        if timeout is None:
            end()
            return

        def work() -> None:
            try:
                end()
            except BaseException as error:  # noqa: BLE001 - `wait` raises it
                self._failure = failure_of(error)

        self._failure = None
        self._task = system.spawn(f"tussock end of {self._what}", work)

    def wait(self, timeout: float | None) -> None:
        """Return once what has begun is over; raises what it has failed with, and `WaitTimeout`."""
        if self._task is None:
            return
        self._task.join(timeout)
        if self._task.is_alive():
            raise WaitTimeout(
                f"{self._what} has not ended within {timeout:g} s, and goes on ending: its bucket may be away, or a "
                "function take long. What was acknowledged is durable: wait on by stop(), or end the process"
            )
        self._task = None
        if self._failure is not None:
            raise self._failure
