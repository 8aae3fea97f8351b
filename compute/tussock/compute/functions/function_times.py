"""How long functions take, from a sample of their calls: reading a clock at each one would cost what a small one takes.

Of each epoch one request of each function is timed, with all that it calls, and stands for the others: so a function
that is seldom asked for is always timed, and one that is asked for all the time once an epoch.
"""

from collections import Counter, deque
from collections.abc import Awaitable, Callable, Generator, Sequence
from statistics import median
from types import CoroutineType, coroutine
from typing import Any, TypeVar

from tussock.compute.functions.epochs.transaction import FunctionTransaction
from tussock.compute.functions.errors import TransactionAborted
from tussock.compute.functions.program.context import EntityAccess, Target
from tussock.compute.functions.program.operators import Function

T = TypeVar("T")

__all__ = ["FunctionTimes", "TimedAccess", "sample_of"]

FUNCTIONS_MAX = 1000
"""That are remembered: the first ones that run."""
NEWEST_MAX = 128
"""Times of a function of which median and largest are told."""
SHOWN = 20


class _Times:
    """Of one function."""

    __slots__ = ("calls", "newest", "seconds", "stopped")

    def __init__(self) -> None:
        self.calls = 0
        self.seconds = 0.0
        """Of all calls, those for which the timed ones stand included."""
        self.newest: deque[float] = deque(maxlen=NEWEST_MAX)
        self.stopped = 0


class FunctionTimes:
    """Of one run; written by one thread, read by any."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """`clock` in seconds."""
        self.clock = clock
        self._of: dict[tuple[str, str], _Times] = {}
        self._stopped = 0

    def note(self, operator: str, function: str, seconds: float, calls: int = 1) -> None:
        """A call took that long, without what it awaited; it stands for that many."""
        times = self._find(operator, function)
        if times is not None:
            times.calls += calls
            times.seconds += seconds * calls
            times.newest.append(seconds)

    def stop(self, aborted: TransactionAborted) -> None:
        """A call was ended, and counts here if that was by the time limit."""
        if aborted.kind != "Overdue":
            return
        self._stopped += 1
        times = self._find(aborted.operator, aborted.function)
        if times is not None:
            times.stopped += 1

    def of_batch(self, function: Function, run: Callable[[], T | TransactionAborted]) -> T | TransactionAborted:
        """What `run` returns: the run of a batch function, which counts as one call."""
        began = self.clock()
        ended = run()
        self.note(function.operator, function.name, self.clock() - began)
        if isinstance(ended, TransactionAborted) and ended.kind == "Overdue":
            self.stop(ended)
        return ended

    def stats(self) -> dict[str, Any]:
        """`function_times`, those that were stopped first, then the slowest by median; and `stopped`."""
        found = self._of.copy()
        total = sum(times.seconds for times in found.values()) or 1.0
        lines: list[dict[str, Any]] = []
        for (operator, function), times in found.items():
            newest = times.newest.copy() or (0.0,)
            lines.append(
                {
                    "operator": operator,
                    "function": function,
                    "calls": times.calls,
                    "median_ms": round(1000 * median(newest), 4),
                    "largest_ms": round(1000 * max(newest), 4),
                    "share": round(times.seconds / total, 4),
                    "stopped": times.stopped,
                }
            )
        lines.sort(key=lambda line: (line["stopped"] == 0, -line["median_ms"]))
        return {"function_times": lines[:SHOWN], "stopped": self._stopped}

    def _find(self, operator: str, function: str) -> _Times | None:
        times = self._of.get((operator, function))
        if times is None and len(self._of) < FUNCTIONS_MAX:
            times = self._of[operator, function] = _Times()
        return times


def sample_of(transactions: Sequence[FunctionTransaction]) -> dict[int, int]:
    """The transactions of an epoch to be timed, by number, and for how many each stands."""
    functions = [id(one.request.target.function) for one in transactions]
    last = dict(zip(functions, transactions, strict=True))
    counts = Counter(functions)
    return {one.tid: counts[function] for function, one in last.items()}


class TimedAccess:
    """An `EntityAccess` for one transaction, whose functions are timed."""

    def __init__(
        self, access: EntityAccess, clock: Callable[[], float], note: Callable[[Function, float], None]
    ) -> None:
        """`note` gets the seconds of each call that has ended, however it did."""
        self._target = access.target
        self._clock = clock
        self._note = note
        self.read = access.read
        self.encode = access.encode
        self.decode = access.decode

    def target(self, operator: str, key: Any, function: str, arguments: tuple[Any, ...]) -> Target:
        """As any access has it, but timed."""
        return self.timed(self._target(operator, key, function, arguments))

    def timed(self, target: Target) -> Target:
        """The same target, whose code tells how long it took."""
        function, clock, note = target.function, self._clock, self._note

        def code(*given: Any) -> Any:
            began = clock()
            try:
                value = function.code(*given)
            except BaseException:
                note(function, clock() - began)
                raise
            spent = clock() - began
            if type(value) is CoroutineType:
                return _awaitable(_steps(value, spent, clock, lambda seconds: note(function, seconds)))
            note(function, spent)
            return value

        return target._replace(function=function._replace(code=code))


async def _awaitable(steps: Awaitable[Any]) -> Any:
    """A coroutine, as functions are."""
    return await steps


@coroutine
def _steps(
    function: "CoroutineType[Any, Any, Any]",
    spent: float,
    clock: Callable[[], float],
    note: Callable[[float], None],
) -> Generator[Any, Any, Any]:
    """What the function does, and the time of it without what passes while it awaits another one."""
    value = None
    try:
        while True:
            began = clock()
            try:
                asked = function.send(value)
            except StopIteration as stop:
                return stop.value
            finally:
                spent += clock() - began
            value = yield asked
    finally:
        function.close()
        note(spent)
