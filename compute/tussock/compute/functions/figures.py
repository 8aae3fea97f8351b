"""What a page shows of a running program: counts, hot keys, functions, and the newest transactions."""

from collections import Counter, deque
from collections.abc import Callable
from typing import Any, NamedTuple

from tussock.compute.functions.batches.batch_run import EndedBatch
from tussock.compute.functions.epochs.epoch import EndedEpoch
from tussock.compute.functions.epochs.transaction import FunctionTransaction
from tussock.compute.functions.errors import TransactionAborted
from tussock.compute.functions.program.context import Entity
from tussock.compute.functions.program.directory import Operators
from tussock.compute.functions.program.fault_log import FaultLog
from tussock.compute.functions.program.values import Key
from tussock.statestore.base.logs import get_logger

__all__ = ["Figures"]

log = get_logger("tussock.compute.functions.figures")

RUNS_TOLD = 100
"""Of a transaction, so that the log is told: in an epoch one that loses runs twice."""

NEWEST_MAX = 1000
"""Transactions whose call graph can be looked at."""
SHOWN = 20
"""Of these, in a status."""
HOT_MAX = 1000
"""Keys that are counted; when there are more, the rarer half is forgotten."""
NEWEST_BYTES_MAX = 16 << 20
"""Of all of these; beyond that the oldest go."""
CALLS_SHOWN = 1000
"""Of one transaction."""
KEY_SHOWN = 200
"""Characters, or bytes."""
CALL_BYTES = 300
"""What Python takes for a call without its key."""
ERROR_SHOWN = 1000
_CALL = ("operator", "key", "function", "caller", "share", "is_awaited")


class _Ended(NamedTuple):
    """What is kept of a transaction: none of what it was given, as that may be large."""

    tid: int
    request_id: str | None
    epoch: int
    phase: str
    runs: int
    error: str
    kind: str
    at: str
    calls: tuple[tuple[Any, ...], ...]

    def shown(self) -> dict[str, Any]:
        """As JSON can say it."""
        calls = [dict(zip(_CALL, call, strict=True)) for call in self.calls]
        return {**self._asdict(), "calls": [{**call, "share": f"1/{call['share']}"} for call in calls]}

    def line(self) -> dict[str, Any]:
        """In short: the function of the request, and how many calls there were."""
        operator, key, function, *_ = self.calls[0]
        named = {"operator": operator, "key": key, "function": function}
        return {**self._asdict(), **named, "calls": len(self.calls)}


class Figures:
    """Of one run; written by one thread, read by any."""

    def __init__(self) -> None:
        self._faults: FaultLog | None = None
        self.is_again = False
        """What runs has run before, and counts once: a worker was lost since."""
        self._lock_free = 0
        self._locked = 0
        self._aborted = 0
        self._deferrals = 0
        self._has_told = False
        """Of a transaction that runs again and again."""
        self._epochs = 0
        self._calls = 0
        self._batched = 0
        self._batch_rounds = 0
        self._hot: Counter[tuple[str, Any]] = Counter()
        self._newest: deque[_Ended] = deque()
        self._sizes: deque[int] = deque()
        """Of these, in bytes, about."""
        self._newest_bytes = 0

    def note(self, number: int, epoch: EndedEpoch, operators: Operators) -> None:
        """The epoch of that number has ended."""
        if self.is_again:
            return
        self._epochs += 1
        self._deferrals += len(epoch.deferred)
        if epoch.deferred and epoch.deferred[0].runs >= RUNS_TOLD and not self._has_told:
            self._tell_put_off(epoch.deferred[0])
        for one in epoch.ended:
            run = one.run
            assert run is not None
            self._calls += len(run.invocations)
            if run.aborted is not None:
                self._aborted += 1
                self.note_fault(run.aborted)
            elif one.is_lock_free:
                self._lock_free += 1
            else:
                self._locked += 1
        for one in epoch.ended[-NEWEST_MAX:]:
            self._keep(_ended(number, one))
        if epoch.hot:
            self._count_hot(epoch.hot, operators)

    def note_batch(self, batch: EndedBatch) -> None:
        """A batch function has run."""
        if self.is_again:
            return
        self._epochs += 1
        self._batch_rounds += batch.rounds
        self._batched += batch.replies.num_rows - batch.aborted
        self._aborted += batch.aborted
        self._calls += batch.replies.num_rows

    def note_fault(self, aborted: TransactionAborted, feed: str = "") -> None:
        """A function has raised; of a batch function for a `feed` no row has a result."""
        if self._faults is not None and not self.is_again:
            self._faults.note(aborted, feed)

    def log_faults(self, program: str, monotonic: Callable[[], float]) -> None:
        """Tell the log what functions of that program raise."""
        self._faults = FaultLog(program, monotonic)

    def stats(self) -> dict[str, Any]:
        """As JSON can say it."""
        return {
            "epochs": self._epochs,
            "lock_free": self._lock_free,
            "locked": self._locked,
            "batched": self._batched,
            "batch_rounds": self._batch_rounds,
            "aborted": self._aborted,
            "deferrals": self._deferrals,
            "function_calls": self._calls,
            "hot": [[operator, key, count] for (operator, key), count in self._hot.copy().most_common(20)],
        }

    def find(self, *, request_id: str | None, tid: int | None) -> dict[str, Any] | None:
        """The newest transaction with that id or number, with its call graph, as JSON can say it."""
        for one in reversed(self._newest.copy()):
            if one.tid == tid or (request_id is not None and one.request_id == request_id):
                return one.shown()
        return None

    def newest(self) -> list[dict[str, Any]]:
        """The newest transactions, the last one last, in a line each."""
        return [one.line() for one in list(self._newest.copy())[-SHOWN:]]

    def _tell_put_off(self, one: FunctionTransaction) -> None:
        """Once in a run: it waits as it has other entities in each epoch, and so do those behind it."""
        self._has_told = True
        function, (_, key), _ = one.request.target
        log.warning(
            "a request waits for epoch after epoch, as it touches other entities each time it runs; do not name "
            "entities by what other requests write, such as a counter",
            function=function.title,
            key=repr(key)[:KEY_SHOWN],
            runs=one.runs,
            deferrals=self._deferrals,
        )

    def _keep(self, ended: _Ended) -> None:
        size = len(ended.error) + CALL_BYTES * (1 + len(ended.calls))
        is_long = False
        for call in ended.calls:
            key = call[1]
            if type(key) is not int:
                size += len(key)
                is_long |= len(key) > KEY_SHOWN
        if is_long:
            ended = ended._replace(calls=tuple([(one[0], _shown(one[1]), *one[2:]) for one in ended.calls]))
            size = len(ended.error) + (CALL_BYTES + KEY_SHOWN) * (1 + len(ended.calls))
        newest, sizes = self._newest, self._sizes
        newest.append(ended)
        sizes.append(size)
        self._newest_bytes += size
        while len(newest) > NEWEST_MAX or self._newest_bytes > NEWEST_BYTES_MAX:
            newest.popleft()
            self._newest_bytes -= sizes.popleft()

    def _count_hot(self, hot: list[Entity], operators: Operators) -> None:
        self._hot.update((operators.all[number].name, key) for number, key in hot)
        if len(self._hot) > HOT_MAX:
            self._hot = Counter(dict(self._hot.most_common(HOT_MAX // 2)))


def _ended(epoch: int, one: FunctionTransaction) -> _Ended:
    run = one.run
    assert run is not None
    phase = "aborted" if run.aborted is not None else "lock_free" if one.is_lock_free else "locked"
    calls = tuple(
        [
            (
                call.target.function.operator,
                call.target.entity[1],
                call.target.function.name,
                call.caller,
                call.share,
                call.is_awaited,
            )
            for call in run.invocations[:CALLS_SHOWN]
        ]
    )
    error = kind = at = ""
    if run.aborted is not None:
        error, kind, at = str(run.aborted)[:ERROR_SHOWN], run.aborted.kind[:ERROR_SHOWN], run.aborted.at
    return _Ended(one.tid, one.request.request_id, epoch, phase, one.runs, error, kind, at, calls)


def _shown(key: Key) -> Key:
    return key if type(key) is int or len(key) <= KEY_SHOWN else key[:KEY_SHOWN]  # type: ignore[arg-type,index]
