"""`System` for a simulated process: its clocks, and locks, threads and pools on the scheduler."""

from collections.abc import Callable
from concurrent.futures import Executor, Future
from functools import partial
from typing import Any, TypeVar

from simulation.machine.scheduler import Node, NodeDead, Scheduler, Thread

__all__ = ["SimSystem"]

T = TypeVar("T")

EPOCH_MS = 1_700_000_000_000


class SimSystem:
    """What one node sees of time, randomness and concurrency; satisfies `tussock.statestore.base.system.System`."""

    def __init__(self, scheduler: Scheduler, node: Node) -> None:
        self.scheduler = scheduler
        self.node = node

    def now_ms(self) -> int:
        return EPOCH_MS + int((self.scheduler.now + self.node.wall_offset) * 1000)

    def monotonic(self) -> float:
        return self.scheduler.now

    def sleep(self, seconds: float) -> None:
        self.scheduler.park("sleep", seconds)

    def random_bytes(self, count: int) -> bytes:
        return self.scheduler.random.randbytes(count)

    def lock(self) -> "SimLock":
        return SimLock(self.scheduler)

    def mutex(self) -> "SimLock":
        return SimLock(self.scheduler)

    def condition(self) -> "SimCondition":
        return SimCondition(self.scheduler)

    def spawn(self, name: str, work: Callable[[], None]) -> Thread:
        return self.scheduler.spawn(self.node, name, work)

    def uninterrupted(self, work: Callable[[], T], unwanted: object = None) -> T:  # nobody interrupts
        return work()

    def pool(self, name: str, workers: int) -> "SimPool":
        return SimPool(self.scheduler, self.node, name, workers)


class SimLock:
    """A reentrant lock; the thread that waits longest gets it next, or another one: the seed decides."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._owner: Thread | None = None
        self._depth = 0
        self._waiters: list[tuple[Thread, int]] = []

    def __enter__(self) -> bool:
        me = self._scheduler.current()
        while self._owner is not None and self._owner is not me:
            self._waiters.append((me, me.turn + 1))
            self._scheduler.park("lock")
        self._owner = me
        self._depth += 1
        return True

    def __exit__(self, *_: object) -> None:
        if self._scheduler.over:
            return
        assert self._owner is self._scheduler.current(), "a lock was given back by a thread that does not hold it"
        self._depth -= 1
        if not self._depth:
            self._free()

    def locked(self) -> bool:
        return self._owner is not None

    def _free(self) -> None:
        self._owner = None
        # All are woken: those that come too late wait again.
        for thread, turn in self._waiters:
            self._scheduler.wake(thread, turn)
        self._waiters.clear()


class SimCondition(SimLock):
    """A condition that is its lock, too."""

    def __init__(self, scheduler: Scheduler) -> None:
        super().__init__(scheduler)
        self._sleepers: list[tuple[Thread, int]] = []

    def wait(self, timeout: float | None = None) -> bool:
        me = self._scheduler.current()
        assert self._owner is me, "wait needs the lock"
        depth, self._depth = self._depth, 0
        place = me, me.turn + 1
        self._sleepers.append(place)
        self._free()
        notified = self._scheduler.park("condition", timeout)
        if place in self._sleepers:
            self._sleepers.remove(place)
        self.__enter__()
        self._depth = depth
        return notified

    def wait_for(self, predicate: Callable[[], bool], timeout: float | None = None) -> bool:
        deadline = None if timeout is None else self._scheduler.now + timeout
        while not (holds := predicate()):
            left = None if deadline is None else deadline - self._scheduler.now
            if left is not None and left <= 0:
                break
            self.wait(left)
        return holds

    def notify_all(self) -> None:
        for thread, turn in self._sleepers:
            self._scheduler.wake(thread, turn)
        self._sleepers.clear()


class SimFuture(Future[Any]):
    """A future for which a greenlet can wait."""

    def __init__(self, scheduler: Scheduler) -> None:
        super().__init__()
        self._scheduler = scheduler

    def _wait(self, timeout: float | None) -> None:
        deadline = None if timeout is None else self._scheduler.now + timeout
        while not self.done():
            me = self._scheduler.current()
            turn = me.turn + 1
            self.add_done_callback(partial(self._wake, me, turn))
            left = None if deadline is None else deadline - self._scheduler.now
            if not self._scheduler.park("future", left):
                break

    def _wake(self, thread: Thread, turn: int, _: "Future[Any]") -> None:
        self._scheduler.wake(thread, turn)

    def result(self, timeout: float | None = None) -> Any:
        self._wait(timeout)
        return super().result(0)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        self._wait(timeout)
        return super().exception(0)


class SimPool(Executor):
    """Runs what is submitted in that order, in at most `workers` greenlets at once."""

    def __init__(self, scheduler: Scheduler, node: Node, name: str, workers: int) -> None:
        self._scheduler, self._node, self._name, self._workers = scheduler, node, name, workers
        self._queue: list[tuple[SimFuture, Callable[[], Any]]] = []
        self._threads: list[Thread] = []
        self._closed = False

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "Future[Any]":
        if self._scheduler.over:
            raise NodeDead
        if self._closed:
            raise RuntimeError("cannot schedule new futures after shutdown")
        future = SimFuture(self._scheduler)
        self._queue.append((future, lambda: function(*args, **kwargs)))
        self._threads = [thread for thread in self._threads if not thread.done]
        if len(self._threads) < self._workers:
            self._threads.append(self._scheduler.spawn(self._node, self._name, self._work))
        return future

    def _work(self) -> None:
        while self._queue:
            future, work = self._queue.pop(0)
            if not future.set_running_or_notify_cancel():
                continue
            try:
                result = work()
            except NodeDead:
                raise
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(result)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._closed = True
        if cancel_futures:
            for future, _ in self._queue:
                future.cancel()
        if wait:
            for thread in list(self._threads):
                thread.join()
