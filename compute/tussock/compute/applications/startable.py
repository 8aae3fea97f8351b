"""`Startable`: what runs from its start to its stop, and in a `with` block as long as the block."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from types import TracebackType
from typing import Self

from tussock.compute.applications.replies import failure_of
from tussock.compute.applications.runner import Runner
from tussock.statestore.base.system import System, Task
from tussock.statestore.errors import InvalidOption, WaitTimeout

__all__ = ["Startable", "TimedEnd"]

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

    @abstractmethod
    def _leave(self) -> None:
        """At the end of a `with` block: as `stop`, but `WaitTimeout` after 30 s in which something is wrong.

        That is what `Troubles` says, such as that the bucket is away; while all is well it waits for as long as it
        takes.
        """

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave()


class TimedEnd:
    """The end of a run, for which a caller may wait some seconds only; it goes on, whether or not somebody waits."""

    def __init__(self, what: str) -> None:
        """`what` is named in messages."""
        self._what = what
        self._task: Task | None = None
        self._failure: Exception | None = None

    @property
    def is_begun(self) -> bool:
        """Whether an end goes on, or is over and nobody has waited for what came of it."""
        return self._task is not None

    def check_over(self) -> None:
        """`InvalidOption` while an end goes on."""
        if self.is_begun:
            raise InvalidOption(f"{self._what} is ending still: call stop(), which waits for that")

    def begin(
        self,
        system: System,
        end: Callable[[], None],
        runner: Runner,
        timeout: float | None,
        waiting: Callable[[], int] | None = None,
    ) -> None:
        """Let `end` run: in a thread if the caller waits no longer than some seconds.

        `waiting`: how many requests have not begun, where the runner does not know.
        """
        self._system, self._runner = system, runner
        self._waiting = waiting or (lambda: runner.waiting)
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
        if self._runner.nesting.is_forked:
            # It goes on in the parent.
            self._task = None
            return
        # What runs, and a callback of a reply, would wait for themselves.
        self._runner.nesting.check(waits=True)
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
            trouble = str(self._runner.troubles)
            if in_trouble and not trouble:
                begun = self._system.monotonic()
            elif self._system.monotonic() >= begun + seconds:
                raise WaitTimeout(
                    f"{self._what} has not ended within {seconds:g} s, and goes on ending: "
                    f"{trouble or 'its bucket may be away, or a function take long'}. What was acknowledged is durable."
                    f" {self._unfinished()} Wait on by stop(), or end the process"
                )

    def _unfinished(self) -> str:
        """What is not done, and what becomes of that."""
        runner, lost = self._runner, self._runner.run_counts.unwritten
        logged = max(runner.counts()["uncommitted"] - lost, 0)
        return (
            f"{logged:,} records are in its input log and in no committed epoch: the next start runs them again. "
            f"{lost:,} are not known to be in the log, and {self._waiting():,} requests have not begun: nobody was "
            "told of them, and they may be lost with the process, except that feeds bring theirs again."
        )
