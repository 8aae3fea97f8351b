"""Opening stores on buckets and clocks of the test, and reading them into plain Python."""

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Executor, Future
from typing import Any

from support.store.versions import FakeSystem
from tussock.statestore import StateStore
from tussock.statestore.base.limits import Limits
from tussock.statestore.base.system import System
from tussock.statestore.buckets import open_bucket
from tussock.statestore.connection import open_store
from tussock.statestore.contract.object_store import ObjectStore
from tussock.statestore.settings import StoreSettings

__all__ = ["InlineExecutor", "TickingSystem", "changes_of", "open_on", "pairs", "sst_objects"]

TICK_SECONDS = 10


OBJECTS = Limits(commit_payload_bytes=1)
"""Each SST of a commit is an object, which can be damaged, lost and deleted by itself; none lies in a log entry."""


class TickingSystem(FakeSystem):
    """Clocks that the test moves; while they move, pins are renewed as by the background threads."""

    def __init__(self) -> None:
        super().__init__()
        self.on_tick: list[Callable[[], None]] = []
        self._lock = threading.Lock()

    def random_bytes(self, count: int) -> bytes:
        with self._lock:
            return super().random_bytes(count)

    def forward(self, seconds: float) -> None:
        while seconds > 0:
            super().forward(min(seconds, TICK_SECONDS))
            seconds -= TICK_SECONDS
            for tick in list(self.on_tick):
                tick()


class InlineExecutor(Executor):
    """Does submitted work at once, in the caller's thread: the order of calls is the same in every run."""

    def submit(self, function: Any, /, *args: Any, **kwargs: Any) -> "Future[Any]":
        done: Future[Any] = Future()
        try:
            done.set_result(function(*args, **kwargs))
        except BaseException as error:
            done.set_exception(error)
        return done


def open_on(
    bucket: ObjectStore, system: System, open_other: Callable[[str], ObjectStore] = open_bucket, **options: Any
) -> StateStore:
    """A store on a bucket object, without background compaction unless asked for."""
    options.setdefault("compaction", False)
    return open_store(StoreSettings(bucket.url, **options), system, bucket, open_other)


def pairs(batches: Iterable[Any]) -> list[tuple[bytes, bytes]]:
    """The rows of a raw scan, in their order."""
    return [
        row
        for batch in batches
        for row in zip(batch.column("key").to_pylist(), batch.column("value").to_pylist(), strict=True)
    ]


def changes_of(table: Any, after: int = 0, until: int | None = None) -> list[dict[str, Any]]:
    """All that was committed to a table in (after, until], in the order of commits, and of keys within one."""
    rows = [row for batch in table.changes(after, until) for row in batch.to_pylist()]
    # The last column is the epoch, whatever its name.
    return sorted(rows, key=lambda row: row[list(row)[-1]])


def sst_objects(bucket: ObjectStore) -> set[str]:
    """Ids of the SSTs that have an object in the bucket."""
    return {info.path.removeprefix("sst/").partition(".")[0] for info in bucket.list("sst/")}
