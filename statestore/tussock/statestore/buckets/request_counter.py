"""Counts of requests to the bucket and of their bytes, by purpose.

A bucket costs money by the request, and an idle store must make none; so each part of the store (reads, scans,
flushes, compaction, vacuum, the log) gets its own view of the one bucket, and all views count into one table. A view
is passed explicitly rather than found in a context variable, because work moves between threads of a pool, which
context variables do not follow.

One call counts as one request, a listing as one per started page of 1,000; retries and the parts of a large upload,
which happen inside the library, are not seen here.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence

from tussock.statestore.buckets.opening import open_source
from tussock.statestore.contract.object_store import ObjectInfo, ObjectStore

__all__ = ["RequestCounts"]

LIST_PAGE = 1000


class RequestCounts:
    """The table of counts, and the views of a bucket that fill it."""

    def __init__(self, bucket: ObjectStore, open_other: Callable[[str], ObjectStore] = open_source) -> None:
        """Nothing is counted yet; `bucket` itself stays usable, uncounted. `open_other` opens another by its URL."""
        self._bucket = bucket
        self._open_other = open_other
        self._lock = threading.Lock()
        self._table: dict[str, dict[str, tuple[int, int]]] = {}

    def for_purpose(self, purpose: str) -> ObjectStore:
        """The bucket as it is used for one purpose, such as `read`; every call on it is counted under that name."""
        return _CountedBucket(self._bucket, purpose, self)

    def opener(self, purpose: str) -> Callable[[str], ObjectStore]:
        """What opens other buckets for `purpose`, for SSTs that lie in the store that this one was cloned from."""
        return lambda url: _CountedBucket(self._open_other(url), purpose, self)

    def counts(self) -> dict[str, dict[str, tuple[int, int]]]:
        """Per purpose and operation (requests, bytes sent or received) since the start; failed calls have no bytes."""
        with self._lock:
            return {purpose: dict(operations) for purpose, operations in self._table.items()}

    def add(self, purpose: str, operation: str, requests: int, size: int) -> None:
        """Count `requests` that moved `size` bytes in all."""
        with self._lock:
            operations = self._table.setdefault(purpose, {})
            before = operations.get(operation, (0, 0))
            operations[operation] = (before[0] + requests, before[1] + size)


class _CountedBucket:
    """A bucket that counts what is done with it for one purpose. A call counts before it is made, its bytes after."""

    def __init__(self, bucket: ObjectStore, purpose: str, table: RequestCounts) -> None:
        self._bucket = bucket
        self._purpose = purpose
        self._table = table

    @property
    def url(self) -> str:
        return self._bucket.url

    def put(self, path: str, data: bytes | Iterable[bytes | memoryview]) -> None:
        self._count("put")
        if isinstance(data, bytes):
            self._bucket.put(path, data)
            self._count_bytes("put", len(data))
        elif isinstance(data, list | tuple):
            self._bucket.put(path, data)
            self._count_bytes("put", sum(memoryview(part).nbytes for part in data))
        else:
            sizes: list[int] = []
            self._bucket.put(path, _measured(data, sizes))
            self._count_bytes("put", sum(sizes))

    def create(self, path: str, data: bytes) -> bool:
        self._count("create")
        created = self._bucket.create(path, data)
        self._count_bytes("create", len(data))
        return created

    def get(self, path: str, bytes_max: int | None = None) -> bytes:
        self._count("get")
        data = self._bucket.get(path, bytes_max)
        self._count_bytes("get", len(data))
        return data

    def get_range(self, path: str, start: int, length: int) -> memoryview:
        self._count("get_range")
        data = self._bucket.get_range(path, start, length)
        self._count_bytes("get_range", len(data))
        return data

    def list(self, prefix: str, after: str = "") -> Iterator[ObjectInfo]:
        self._count("list")
        for found, info in enumerate(self._bucket.list(prefix, after), 1):
            yield info
            if found % LIST_PAGE == 0:
                self._count("list")

    def delete(self, paths: Sequence[str]) -> None:
        if paths:
            self._count("delete")
        self._bucket.delete(paths)

    def leftovers(self, before_ms: int) -> Sequence[ObjectInfo]:
        self._count("list")
        return self._bucket.leftovers(before_ms)

    def close(self) -> None:
        self._bucket.close()

    def _count(self, operation: str) -> None:
        self._table.add(self._purpose, operation, 1, 0)

    def _count_bytes(self, operation: str, size: int) -> None:
        self._table.add(self._purpose, operation, 0, size)


def _measured(parts: Iterable[bytes | memoryview], sizes: list[int]) -> Iterator[bytes | memoryview]:
    """The parts as they come, whose sizes are noted."""
    for part in parts:
        sizes.append(memoryview(part).nbytes)
        yield part
