"""The queue of passes: which resource to look at, and when.

Each event only says "look at this one". However often that happens before a resource's turn, the queue looks at it
once; never twice at the same time; and later after each failure. This is the work queue of Kubernetes' own controllers
(client-go, `util/workqueue`).
"""

import asyncio
import contextlib
import heapq
from collections.abc import Awaitable, Callable

from tussock.operator.cluster.seen import Key
from tussock.operator.metrics import OperatorMetrics
from tussock.statestore.base.logs import get_logger

__all__ = ["Queue", "backoff_seconds"]

log = get_logger("tussock.operator")

PASSES_MAX = 8
"""Resources handled side by side: a pass mostly waits for answers of the API server."""
COALESCE_SECONDS = 0.05
"""A wake-up waits this long for others of the same resource: one change causes several events."""
BACKOFF_SECONDS = (1.0, 60.0)
"""The pauses after a first failure, and at most."""


def backoff_seconds(failures: int) -> float:
    """The pause after this many failures in a row: doubles each time, up to a minute."""
    first, most = BACKOFF_SECONDS
    # Above 2 ** 10 every pause is at its limit, and the power would overflow some day.
    return min(first * 2.0 ** min(failures - 1, 10), most)


class Queue:
    """Resources and the times at which they are due. All methods belong to one event loop."""

    def __init__(self, run: Callable[[Key], Awaitable[float | None]], metrics: OperatorMetrics) -> None:
        """`run` makes one pass and returns the seconds until the next one is due, or `None` for never."""
        self._run = run
        self._metrics = metrics
        self._due: dict[Key, float] = {}
        self._heap: list[tuple[float, Key]] = []
        self._running: set[Key] = set()
        self._failures: dict[Key, int] = {}
        self._changed = asyncio.Event()
        self._draining = False

    def wake(self, key: Key, after: float = COALESCE_SECONDS) -> None:
        """Look at a resource after this many seconds, or earlier if an earlier look is queued."""
        due = asyncio.get_running_loop().time() + after
        if due < self._due.get(key, float("inf")):
            self._due[key] = due
            heapq.heappush(self._heap, (due, key))
            self._changed.set()

    def waiting_count(self) -> int:
        """The number of resources that are due and wait."""
        now = asyncio.get_running_loop().time()
        return sum(due <= now for due in self._due.values())

    async def work(self) -> None:
        """Make the passes, for ever. Logs and repeats a pass that fails."""
        free = asyncio.Semaphore(PASSES_MAX)
        async with asyncio.TaskGroup() as group:
            while True:
                await free.acquire()
                key = await self._next_key()
                self._running.add(key)
                group.create_task(self._pass(key)).add_done_callback(lambda _: free.release())

    async def drain(self, seconds: float) -> None:
        """Begin no more passes, and wait up to this time for the running ones."""
        self._draining = True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._running:
                    await asyncio.sleep(0.05)

    async def _next_key(self) -> Key:
        while True:
            self._changed.clear()
            now = asyncio.get_running_loop().time()
            while not self._draining and self._heap and self._heap[0][0] <= now:
                due, key = heapq.heappop(self._heap)
                # An entry that was moved forward is in the heap twice; one whose pass is running waits for its end.
                if self._due.get(key) == due and key not in self._running:
                    del self._due[key]
                    return key
            self._metrics.queue.set(self.waiting_count())
            timeout = self._heap[0][0] - now if self._heap and not self._draining else None
            try:
                async with asyncio.timeout(timeout):
                    await self._changed.wait()
            except TimeoutError:
                continue

    async def _pass(self, key: Key) -> None:
        try:
            with self._metrics.passes.labels(key.kind).time():
                again = await self._run(key)
            self._failures.pop(key, None)
        except Exception as error:
            failures = self._failures[key] = self._failures.get(key, 0) + 1
            again = backoff_seconds(failures)
            self._metrics.errors.labels(key.kind).inc()
            log.warning(
                "a pass failed and will be repeated",
                kind=key.kind,
                namespace=key.namespace,
                name=key.name,
                failures=failures,
                seconds=again,
                error=str(error),
                # A traceback only for unforeseen errors; failures of the API server explain themselves.
                exc_info=not type(error).__module__.startswith("tussock."),
            )
        finally:
            self._running.discard(key)
            if key in self._due:
                heapq.heappush(self._heap, (self._due[key], key))
                self._changed.set()
        if again is not None:
            self.wake(key, again)
