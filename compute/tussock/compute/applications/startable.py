"""`Startable`: what runs from its start to its stop, and in a `with` block as long as the block."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from types import TracebackType
from typing import NamedTuple, Self

from tussock.compute.applications.replies import failure_of
from tussock.statestore.base.system import System, Task
from tussock.statestore.errors import InvalidOption, WaitTimeout

__all__ = ["EndWatch", "Startable", "TimedEnd"]

LOOK_SECONDS = 0.1
"""Between two looks whether something is wrong."""


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


class EndWatch(NamedTuple):
    """What is told of an end that takes long."""

    trouble: Callable[[], str]
    """What it waits for; empty: all is well."""
    unfinished: Callable[[], str]
    """What is not done, and what becomes of that."""


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

    def begin(self, system: System, end: Callable[[], None], watch: EndWatch, timeout: float | None) -> None:
        """Let `end` run: in a thread if the caller waits no longer than some seconds."""
        self._system, self._watch = system, watch
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

    def wait(self, timeout: float | None, *, in_trouble: bool = False) -> None:
        """Return once what has begun is over; raises what it has failed with, and `WaitTimeout` after `timeout` s.

        `in_trouble`: only seconds count in which something is wrong, without an end of that.
        """
        if self._task is None:
            return
        if timeout is None:
            self._task.join()
        else:
            self._join(self._task, timeout, in_trouble=in_trouble)
        self._task = None
        if self._failure is not None:
            raise self._failure

    def _join(self, task: Task, seconds: float, *, in_trouble: bool) -> None:
        begun = self._system.monotonic()
        while True:
            left = begun + seconds - self._system.monotonic()
            task.join(max(min(left, LOOK_SECONDS) if in_trouble else left, 0))
            if not task.is_alive():
                return
            trouble = self._watch.trouble()
            if in_trouble and not trouble:
                begun = self._system.monotonic()
            elif self._system.monotonic() >= begun + seconds:
                raise WaitTimeout(
                    f"{self._what} has not ended within {seconds:g} s, and goes on ending: "
                    f"{trouble or 'its bucket may be away, or a function take long'}. What was acknowledged is durable."
                    f" {self._watch.unfinished()} Wait on by stop(), or end the process"
                )
