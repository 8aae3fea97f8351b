"""Group commit: while one entry is being appended, later calls queue up, and the next entry holds them all.

Each call is decided on what the ones before it left, so an entry of many calls is one history like any other; what a
call is told is told only once that entry is in the log. One bad call never fails the others. There is no thread for
this: a call that finds nobody appending appends for all that wait, until its own call is done.

The thread that appends holds a lock; that somebody appends is also noted, as otherwise all who wait
would rush there. The main thread may be interrupted at any step, by Ctrl-C, and its note stays then. So those who wait
look at the lock from time to time, which no interrupt leaves taken.

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
from tussock.statestore.base.process.line import Line
from tussock.statestore.base.system import System
from tussock.statestore.errors import TussockError

__all__ = ["LOST_SECONDS", "AnyCall", "Call", "CallQueue", "Progress", "fail_all", "succeed_all"]

UPKEEP_SECONDS = 0.05
"""Upkeep waits up to this for an entry to share, if a call came no longer ago than this; a commit and another one are
rarely further apart where many come."""

LOST_SECONDS = 0.25
"""After each of them a call that waits looks whether there is still a thread that appends."""

Result = TypeVar("Result")
Decide = Callable[[Version], tuple[Sequence[Delta], Result]]


class Call(Generic[Result]):
    """One call of `append`: what it wants, and what became of it."""

    def __init__(
        self,
        decide: Decide[Result],
        key: Hashable,
        repeatable: bool,
        term: int,
        payloads: Mapping[str, bytes] | None = None,
        *,
        is_upkeep: bool = False,
    ) -> None:
        self.decide = decide
        self.payloads = payloads or {}
        """By id, SSTs that are to lie in the entry itself if the call's deltas commit them."""
        self.key = key
        self.repeatable = repeatable
        self.term = term
        """The term that the log had when the call was made: if it is over by now, the call is refused."""
        self.is_upkeep = is_upkeep
        """Nobody waits for it: it may wait for another call, whose entry it shares."""
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

    def __init__(self, system: System, linger_seconds: float, limits: LogLimits = DEFAULT_LOG_LIMITS) -> None:
        """`linger_seconds`: how long an entry may wait for as many calls as the one before it had."""
        self._system = system
        self._limits = limits
        self._changed = system.condition()
        self._appending = system.mutex()
        """Held by the thread that appends, from before it takes calls until they are answered."""
        self._linger_seconds = linger_seconds
        self._last_taken = 0
        self._line: Line[AnyCall] = Line()
        self.is_appending = False
        """Whether a caller is to append, or does, if it was not interrupted."""
        self._came_at = -UPKEEP_SECONDS
        """When the newest call came that is no upkeep."""

    def __len__(self) -> int:
        """How many calls wait for a next entry at this moment."""
        return len(self._line.waiting)

    def serve(self, call: AnyCall, append: Callable[[list[AnyCall]], None]) -> bool:
        """Return when the call is done, by others or by `append`, which does all calls given or tells each why not.

        `True` if this caller appended, for all that waited. If it is interrupted, nobody is there to be told, so the
        call must not happen later either.
        """
        try:
            if not self._enter(call):
                return False
            try:
                with self._appending:
                    while not call.done:
                        append(self._take())
                        self._end()
            finally:
                self._leave()
            return True
        except BaseException:
            with self._changed:
                self._line.withdraw(call)
            raise

    def _enter(self, call: AnyCall) -> bool:
        """Queue up and wait. `False`: the call is done. `True`: its caller has to append now."""
        with self._changed:
            self._line.add(call)
            if self._lingers():
                self._changed.notify_all()
            self._await_others(call)
            while not self._changed.wait_for(lambda: call.done or self._is_free(), LOST_SECONDS):
                if not self._appending.locked():
                    # One that was to append was interrupted before it could say so.
                    break
            if call.done:
                return False
            self.is_appending = True
            return True

    def _is_free(self) -> bool:
        return not self.is_appending and not self._appending.locked()

    def _await_others(self, call: AnyCall) -> None:
        """Note a call; if it is upkeep, and another one came lately, wait until that one's successor has it done."""
        now = self._system.monotonic()
        if not call.is_upkeep:
            self._came_at = now
        elif now - self._came_at < UPKEEP_SECONDS:
            self._changed.wait_for(lambda: call.done, UPKEEP_SECONDS)

    def _take(self) -> list[AnyCall]:
        """The calls for the next entry: the oldest ones, of one term, since an entry has one term.

        Those that an interrupted caller took are told that it is not known what became of them.

        Where several came together, they come together again as a rule: writers that go on once their commit is in.
        Each entry costs a request, and is pushed to every client, so it pays to wait for them for a moment. A single
        writer never waits.
        """
        with self._changed:
            fail_all(self._line.abandoned(), interruption())
            waiting = self._line.waiting
            if self._lingers():
                self._changed.wait_for(lambda: len(waiting) >= self._last_taken, self._linger_seconds)
            count, size, limits = 0, 0, self._limits
            for one in waiting:
                if count == limits.entry_calls or size >= limits.entry_payload_bytes or one.term != waiting[0].term:
                    break
                count += 1
                size += sum(map(len, one.payloads.values()))
            self._last_taken = count
            return self._line.take(count)

    def _end(self) -> None:
        """What was taken is done, each call of it."""
        with self._changed:
            self._line.end([])
            self._changed.notify_all()

    def _lingers(self) -> bool:
        return self._linger_seconds > 0 and self._last_taken > 1

    def _leave(self) -> None:
        """The appender has finished; one of those who wait takes over."""
        with self._changed:
            self.is_appending = False
            self._changed.notify_all()


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


def succeed_all(accepted: Sequence[tuple[AnyCall, Any]]) -> None:
    """Answer each call with its result: what they wanted is in the log, or was nothing."""
    for call, result in accepted:
        call.succeed(result)


def _copy(error: TussockError) -> TussockError:
    copied = type(error)(*error.args)
    copied.__dict__.update(error.__dict__)
    copied.__cause__ = error.__cause__
    return copied
