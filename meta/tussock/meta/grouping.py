"""Group commit: while one entry is being appended, later calls queue up, and the next entry holds them all.

Each call is decided on what the ones before it left, so an entry of many calls is one history like any other; what a
call is told is told only once that entry is in the log. One bad call never fails the others. There is no thread for
this: whoever finds nobody appending appends for all that wait, until its own call is done.
"""

from collections import deque
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from tussock.meta.delta import Delta, extend
from tussock.meta.version import Version
from tussock.statestore.errors import TussockError
from tussock.statestore.system import System

__all__ = ["AnyCall", "Call", "CallQueue", "Plan", "plan_entry"]

CALLS_AN_ENTRY_MAX = 256

Result = TypeVar("Result")
Decide = Callable[[Version], tuple[Sequence[Delta], Result]]


class Call(Generic[Result]):
    """One call of `append`: what it wants, and what became of it."""

    def __init__(self, decide: Decide[Result], key: Hashable, repeatable: bool, term: int) -> None:
        self.decide = decide
        self.key = key
        self.repeatable = repeatable
        self.term = term
        """The term that the log had when the call was made: if it is over by now, the call is refused."""
        self.done = False
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


class CallQueue:
    """Calls that wait for their entry, in the order in which they came; one caller at a time appends."""

    def __init__(self, system: System, linger_seconds: float) -> None:
        """`linger_seconds`: how long an entry may wait for as many calls as the one before it had."""
        self._changed = system.condition()
        self._linger_seconds = linger_seconds
        self._last_taken = 0
        self._waiting: deque[AnyCall] = deque()
        self._appending = False

    def enter(self, call: AnyCall) -> bool:
        """Queue up and wait. `False`: the call is done. `True`: the caller has to append now, and then `leave`."""
        with self._changed:
            self._waiting.append(call)
            if self._lingers():
                self._changed.notify_all()
            try:
                self._changed.wait_for(lambda: call.done or not self._appending)
            except BaseException:
                # The caller was interrupted: nobody is there to be told, so it must not happen later either.
                if call in self._waiting:
                    self._waiting.remove(call)
                raise
            if call.done:
                return False
            self._appending = True
            return True

    def take(self) -> list[AnyCall]:
        """The calls for the next entry: the oldest ones, of one term, since an entry has one term.

        Where several came together, they come together again as a rule: writers that go on once their commit is in.
        Each entry costs a request, and is pushed to every client, so it pays to wait for them for a moment. A single
        writer never waits.
        """
        with self._changed:
            if self._lingers():
                self._changed.wait_for(lambda: len(self._waiting) >= self._last_taken, self._linger_seconds)
            taken: list[AnyCall] = []
            while self._waiting and len(taken) < CALLS_AN_ENTRY_MAX:
                if taken and self._waiting[0].term != taken[0].term:
                    break
                taken.append(self._waiting.popleft())
            self._last_taken = len(taken)
            return taken

    def _lingers(self) -> bool:
        return self._linger_seconds > 0 and self._last_taken > 1

    def wake(self) -> None:
        """Let the callers go whose calls are done."""
        with self._changed:
            self._changed.notify_all()

    def leave(self) -> None:
        """The appender has finished; one of those who wait takes over."""
        with self._changed:
            self._appending = False
            self._changed.notify_all()


class Plan(NamedTuple):
    """What an entry on top of a version will hold, and for whom."""

    after: Version
    """With the deltas in it; its sequence is still the old one."""
    deltas: tuple[Delta, ...]
    accepted: list[tuple[AnyCall, Any]]
    """With the result of each. Some want nothing, but were told so on the strength of deltas before theirs."""
    refused: list[tuple[AnyCall, TussockError]]
    """To be decided again: their version was old, or had deltas in it which are not in the log yet."""


def plan_entry(version: Version, calls: Sequence[AnyCall]) -> Plan:
    """Decide each call in turn on what the ones before it leave. A call whose `decide` is broken fails at once."""
    after = version
    deltas: list[Delta] = []
    accepted: list[tuple[AnyCall, Any]] = []
    refused: list[tuple[AnyCall, TussockError]] = []
    for call in calls:
        try:
            wanted, result = call.decide(after)
            after = extend(after, wanted, term=call.term) if wanted else after
        except TussockError as error:
            refused.append((call, error))
            continue
        except Exception as error:  # noqa: BLE001  # a defect of one caller is that caller's
            call.fail(error)
            continue
        deltas += wanted
        accepted.append((call, result))
    return Plan(after, tuple(deltas), accepted, refused)
