"""What a page shows of a running program: counts, hot keys, functions, and the newest transactions."""

from collections import Counter, deque
from typing import Any

from tussock.compute.functions.batches.batch_run import EndedBatch
from tussock.compute.functions.epochs.epoch import EndedEpoch
from tussock.compute.functions.epochs.transaction import FunctionTransaction
from tussock.compute.functions.program.context import Entity, GraphRun
from tussock.compute.functions.program.directory import Operators

__all__ = ["Figures"]

NEWEST_MAX = 1000
"""Transactions whose call graph can be looked at."""
ERROR_SHOWN = 200
SHOWN = 20
"""Of these, in a status."""
HOT_MAX = 1000
"""Keys that are counted; when there are more, the rarer half is forgotten."""


class Figures:
    """Of one run; written by one thread, read by any."""

    def __init__(self) -> None:
        self._lock_free = 0
        self._locked = 0
        self._aborted = 0
        self._deferrals = 0
        self._epochs = 0
        self._calls = 0
        self._batched = 0
        self._batch_rounds = 0
        self._hot: Counter[tuple[str, Any]] = Counter()
        self._newest: deque[tuple[int, FunctionTransaction]] = deque(maxlen=NEWEST_MAX)

    def note(self, number: int, epoch: EndedEpoch, operators: Operators) -> None:
        """The epoch of that number has ended."""
        self._epochs += 1
        self._deferrals += len(epoch.deferred)
        for one in epoch.ended:
            run = one.run
            assert run is not None
            self._calls += len(run.invocations)
            if run.aborted is not None:
                self._aborted += 1
            elif one.is_lock_free:
                self._lock_free += 1
            else:
                self._locked += 1
        self._newest.extend([(number, one) for one in epoch.ended[-NEWEST_MAX:]])
        if epoch.hot:
            self._count_hot(epoch.hot, operators)

    def note_batch(self, batch: EndedBatch) -> None:
        """A batch function has run."""
        self._epochs += 1
        self._batch_rounds += batch.rounds
        self._batched += batch.replies.num_rows - batch.aborted
        self._aborted += batch.aborted
        self._calls += batch.replies.num_rows

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
            "calls": self._calls,
            "hot": [[operator, key, count] for (operator, key), count in self._hot.copy().most_common(20)],
        }

    def find(self, *, request_id: str | None, tid: int | None) -> dict[str, Any] | None:
        """The newest transaction with that id or number, with its call graph, as JSON can say it."""
        for epoch, one in reversed(self._newest.copy()):
            if (request_id is not None and one.request.request_id == request_id) or one.tid == tid:
                return _picture(epoch, one)
        return None

    def newest(self) -> list[dict[str, Any]]:
        """The newest transactions, the last one last, in a line each."""
        return [_line(epoch, one) for epoch, one in list(self._newest.copy())[-SHOWN:]]

    def _count_hot(self, hot: list[Entity], operators: Operators) -> None:
        self._hot.update((operators.all[number].name, key) for number, key in hot)
        if len(self._hot) > HOT_MAX:
            self._hot = Counter(dict(self._hot.most_common(HOT_MAX // 2)))


def _line(epoch: int, one: FunctionTransaction) -> dict[str, Any]:
    run = one.run
    assert run is not None
    function, entity, _ = one.request.target
    return {
        "tid": one.tid,
        "request_id": one.request.request_id,
        "epoch": epoch,
        "phase": _phase(one, run),
        "runs": one.runs,
        "operator": function.operator,
        "key": entity[1],
        "function": function.name,
        "calls": len(run.invocations),
        "error": "" if run.aborted is None else str(run.aborted)[:ERROR_SHOWN],
    }


def _phase(one: FunctionTransaction, run: GraphRun) -> str:
    return "aborted" if run.aborted is not None else "lock-free" if one.is_lock_free else "lock"


def _picture(epoch: int, one: FunctionTransaction) -> dict[str, Any]:
    run = one.run
    assert run is not None
    calls = [
        {
            "operator": call.target.function.operator,
            "key": call.target.entity[1],
            "function": call.target.function.name,
            "caller": call.caller,
            "share": f"1/{call.share}",
            "is_awaited": call.is_awaited,
        }
        for call in run.invocations
    ]
    return {
        "tid": one.tid,
        "request_id": one.request.request_id,
        "epoch": epoch,
        "phase": _phase(one, run),
        "runs": one.runs,
        "error": "" if run.aborted is None else str(run.aborted),
        "calls": calls,
    }
