"""Group commit: while one entry is being appended, later calls queue up, and the next entry holds them all.

Each call is decided on what the ones before it left, so an entry of many calls is one history like any other; what a
call is told is told only once that entry is in the log. One bad call never fails the others. How they wait for each
other is in `tussock.statestore.base.together`.

Upkeep, such as the claim of a compaction, may wait for a commit to come by, and costs no entry then. Where commits
follow each other it gets into the next one; it waits for a moment only, and not at all where none came lately.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Generic, TypeVar

import msgspec

from tussock.meta.log.appends.append_errors import interruption
from tussock.meta.log.appends.limits import DEFAULT_LOG_LIMITS, LogLimits
from tussock.meta.version.deltas.delta import Delta
from tussock.meta.version.version import Version
from tussock.statestore.base.system import System
from tussock.statestore.base.together import JointCall, Together
from tussock.statestore.errors import TussockError

__all__ = ["AnyCall", "Call", "CallQueue", "Decide", "Progress", "fail_all", "succeed_all"]

Result = TypeVar("Result")
Decide = Callable[[Version], tuple[Sequence[Delta], Result]]


class Call(JointCall, Generic[Result]):
    """One call of `append`: what it wants, and what became of it."""

    def __init__(
        self,
        decide: Decide[Result],
        key: Hashable = None,
        repeatable: bool = True,
        term: int = 0,
        payloads: Mapping[str, bytes] | None = None,
        *,
        is_upkeep: bool = False,
    ) -> None:
        self.payloads = payloads or {}
        """By id, SSTs that are to lie in the entry itself if the call's deltas commit them."""
        # An entry has one term, so its calls have one.
        super().__init__(size=sum(map(len, self.payloads.values())), group=term, is_upkeep=is_upkeep)
        self.decide = decide
        self.key = key
        self.repeatable = repeatable
        self.term = term
        """The term that the log had when the call was made: if it is over by now, the call is refused."""
        self._results: list[Result] = []
        self._error: BaseException | None = None

    def succeed(self, result: Result) -> None:
        """Its deltas are in the log, or it wanted none."""
        self._results.append(result)
        self.done = True

    def fail(self, error: BaseException) -> None:
        """It did not happen, or nobody knows."""
        self._error = error
        self.done = True

    def answer(self) -> Result:
        """The result; raises the error if it failed."""
        if self._error is not None:
            raise self._error
        return self._results[0]


AnyCall = Call[Any]


class CallQueue(Together[AnyCall]):
    """Calls that wait for their entry: one of their threads appends for all."""

    def __init__(self, system: System, linger_seconds: float, limits: LogLimits = DEFAULT_LOG_LIMITS) -> None:
        """`linger_seconds`: how long an entry may wait for as many calls as are expected."""
        super().__init__(
            system, linger_seconds, _abandon, calls_max=limits.entry_calls, size_max=limits.entry_payload_bytes
        )


class Progress(msgspec.Struct):
    """How far a group of calls is."""

    is_fresh: bool
    """The version that they were decided on last was the tail of the log, at some time since they came."""
    races: int = 0
    had_pause: bool = False


def fail_all(calls: Sequence[AnyCall], error: BaseException) -> None:
    """Tell all who wait that it did not happen, or that nobody knows; each raises its own error.

    One traceback cannot belong to two threads.
    """
    for call in calls:
        if not call.done:
            call.fail(_copy(error) if isinstance(error, TussockError) else error)


def _abandon(calls: Sequence[AnyCall]) -> None:
    fail_all(calls, interruption())


def succeed_all(accepted: Sequence[tuple[AnyCall, Any]]) -> None:
    """Answer each call with its result: what they wanted is in the log, or was nothing."""
    for call, result in accepted:
        call.succeed(result)


def _copy(error: TussockError) -> TussockError:
    copied = type(error)(*error.args)
    copied.__dict__.update(error.__dict__)
    copied.__cause__ = error.__cause__
    return copied
