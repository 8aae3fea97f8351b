"""Calls of several threads that are done together: while some are under way, later ones queue up, and go next.

There is no thread for this: a caller that finds nobody at work works for all that wait, until its own calls are done,
and then hands on to the one that came first. Each thread sleeps on its own condition and is woken once: when its calls
are done, or when it is its turn to work. With one condition for all, each call that joined woke all who waited.

The main thread may be interrupted at any step, by Ctrl-C, also before it hands on. So those who wait look from time to
time whether the lock of the one who works is held, which no interrupt leaves taken; and what an interrupted thread had
taken is abandoned.

Used by the version log, whose entries hold many calls, by clients, whose messages hold many commits, and by stores,
whose commits hold many transactions.
"""

from collections.abc import Callable, Hashable, Sequence
from typing import Generic, TypeVar

from tussock.statestore.base.process.line import Line
from tussock.statestore.base.system import Condition, Mutex, System

__all__ = ["LOST_SECONDS", "PAUSE_SECONDS", "JointCall", "Together"]

PAUSE_SECONDS = 0.05
"""Upkeep waits up to this for another call to go with, if one came no longer ago than this; a commit and another one
are rarely further apart where many come."""

LOST_SECONDS = 0.25
"""After each of them a thread that waits looks whether there is still one that works."""


class JointCall:
    """One call that waits to be done with others."""

    def __init__(self, *, size: int = 0, group: Hashable = None, is_upkeep: bool = False) -> None:
        """Only calls of one `group` go together."""
        self.size = size
        self.group = group
        self.is_upkeep = is_upkeep
        """Nobody waits for it: it may wait for another call to go with."""
        self.done = False
        """Set by who does it."""
        self.comes_again = True
        """Its thread is expected to go on with another call at once, when this one is done."""
        self.caller: _Caller | None = None
        """The thread that waits for it, once it stands in a queue."""


One = TypeVar("One", bound=JointCall)


class _Caller:
    """A thread that waits for its calls, or for its turn to work; it is woken alone."""

    def __init__(self, changed: Condition, calls: Sequence[JointCall]) -> None:
        self._changed = changed
        self._calls = calls
        self.has_turn = False
        """It is the one who works now."""
        self.pauses = False
        """It waits for others to go with, and takes no turn."""

    @property
    def is_done(self) -> bool:
        return all(call.done for call in self._calls)

    def wake(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def await_turn(self, works: Mutex) -> bool:
        """Return when the calls are done, or the thread is to work: `True` then. The one that works holds `works`."""
        with self._changed:
            while not self._changed.wait_for(lambda: self.has_turn or self.is_done, LOST_SECONDS):
                # Unless the one whose turn it was has been interrupted before it could hand on.
                self.has_turn = not works.locked()
            return self.has_turn

    def await_others(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self.is_done, PAUSE_SECONDS)


class Together(Generic[One]):
    """Calls that wait, in the order in which they came; one caller at a time works."""

    def __init__(
        self,
        system: System,
        linger_seconds: float,
        abandon: Callable[[Sequence[One]], None],
        *,
        calls_max: int,
        size_max: int,
        as_the_last: bool = False,
    ) -> None:
        """`linger_seconds`: how long some wait for as many as are expected; `as_the_last`: no longer than those took.

        `abandon` ends calls of which nobody knows what became: the thread that had taken them was interrupted.
        `calls_max` go together at most, and no further one after those have `size_max`.
        """
        self._system = system
        self._abandon = abandon
        self._calls_max, self._size_max = calls_max, size_max
        self._changed = system.condition()
        """Waited on by the one who works, for more calls."""
        self._works = system.mutex()
        """Held by the one who works."""
        self._linger_seconds = linger_seconds
        self._took_seconds = 0.0 if as_the_last else linger_seconds
        """The group before; the next one waits no longer than that for others."""
        self._as_the_last = as_the_last
        self._expected = 0
        self._line: Line[One] = Line()
        self.is_working = False
        """Whether a caller is at work at this moment, if it was not interrupted."""
        self._came_at = -PAUSE_SECONDS
        """When the newest call came that is no upkeep."""

    def __len__(self) -> int:
        """How many calls wait for the next group at this moment."""
        return len(self._line.waiting)

    def carry_out(self, calls: Sequence[One], work: Callable[[Sequence[One]], None]) -> bool:
        """Have all of `calls` done, by the thread whose turn it is; returns whether this thread has worked.

        `work` does the calls that it is given, the first one at least, whatever happens; those that are not `done`
        then are the first ones of the next group. If this thread is interrupted, nobody is there to be told, so its
        calls must not happen later either.
        """
        caller = _Caller(self._system.condition(), calls)
        try:
            if not self._enter(caller, calls):
                return False
            with self._works:
                while not caller.is_done:
                    taken = self._take()
                    began = self._system.monotonic()
                    try:
                        work(taken)
                    finally:
                        self._end(taken, self._system.monotonic() - began)
        except BaseException:
            self._withdraw(caller, calls)
            raise
        with self._changed:
            self._hand_on()
        return True

    def _enter(self, caller: _Caller, calls: Sequence[One]) -> bool:
        """Queue up and wait. `False`: the calls are done. `True`: the caller has to work now, and then to hand on."""
        with self._changed:
            for call in calls:
                call.caller = caller
                self._line.add(call)
            if self._lingers() and len(self._line.waiting) >= self._expected:
                self._changed.notify_all()
            caller.pauses = self._shall_pause(calls)
            if not caller.pauses and self._takes_turn(caller):
                return True
        if caller.pauses:
            caller.await_others()
            with self._changed:
                caller.pauses = False
                if not caller.is_done and self._takes_turn(caller):
                    return True
        return caller.await_turn(self._works)

    def _shall_pause(self, calls: Sequence[One]) -> bool:
        """Note calls; upkeep, where another one came lately, waits for that one's successor to take it along."""
        now = self._system.monotonic()
        if all(call.is_upkeep for call in calls):
            return now - self._came_at < PAUSE_SECONDS
        self._came_at = now
        return False

    def _takes_turn(self, caller: _Caller) -> bool:
        if self.is_working:
            return False
        self.is_working = caller.has_turn = True
        return True

    def _withdraw(self, caller: _Caller, calls: Sequence[One]) -> None:
        with self._changed:
            for call in calls:
                self._line.withdraw(call)
            if caller.has_turn:
                self._hand_on()

    def _take(self) -> list[One]:
        """The calls of the next group, the oldest ones.

        Where several came together, they come together again as a rule: writers that go on once their commit is in.
        Each group costs a request, so it pays to wait for them for a moment. A single writer never waits.
        """
        with self._changed:
            abandoned = self._line.abandoned()
            self._abandon(abandoned)
            waiting = self._line.waiting
            if self._lingers():
                seconds = min(self._linger_seconds, self._took_seconds)
                self._changed.wait_for(lambda: len(waiting) >= self._expected, seconds)
            count = size = 0
            for one in waiting:
                if count == self._calls_max or (count and size >= self._size_max) or one.group != waiting[0].group:
                    break
                count += 1
                size += one.size
            taken = self._line.take(count)
        _wake(abandoned)
        return taken

    def _lingers(self) -> bool:
        return self._linger_seconds > 0 and self._expected > 1

    def _end(self, calls: Sequence[One], seconds: float) -> None:
        """Let the callers go whose calls are done; they and those who wait are expected to come next.

        The others are the first ones of the next group.
        """
        done = [call for call in calls if call.done]
        with self._changed:
            self._line.end([call for call in calls if not call.done])
            again = sum([call.comes_again for call in done])
            self._expected = min(again + len(self._line.waiting), self._calls_max)
            if self._as_the_last:
                self._took_seconds = seconds
        _wake(done)

    def _hand_on(self) -> None:
        callers = (call.caller for call in self._line.waiting)
        successor = next((caller for caller in callers if caller is not None and not caller.pauses), None)
        self.is_working = successor is not None
        if successor is not None:
            successor.has_turn = True
            successor.wake()


def _wake(calls: Sequence[JointCall]) -> None:
    for caller in dict.fromkeys(call.caller for call in calls):
        if caller is not None:
            caller.wake()
