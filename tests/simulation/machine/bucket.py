"""A bucket behind a network: requests take time, get lost before or after they act, come late, or come twice.

`SimBucket` is the server: objects, and a clock that stamps them. `NodeBucket` is how one process reaches it, an
`ObjectStore`. A call switches to the scheduler; the request acts on the server as a separate event, whether or not its
sender still waits or lives.
"""

import builtins
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

from simulation.machine.scheduler import Node, NodeDead, Scheduler
from simulation.machine.system import EPOCH_MS
from tussock.statestore.contract.object_store import ObjectInfo, check_size
from tussock.statestore.errors import ObjectNotFound, ObjectStoreUnavailable

__all__ = ["Faults", "NodeBucket", "Observer", "SimBucket"]


AMBUSHES = {("create", "log"), ("put", "pins")}
"""An ambush comes before these requests: earlier answers may be out of date by then."""


class Faults(NamedTuple):
    """How bad the network is: probabilities for each request, and seconds."""

    lose_request: float = 0.0
    lose_answer: float = 0.0
    late: float = 0.0
    """The sender gives up first, the request acts later."""
    twice: float = 0.0
    """It is sent again, as an HTTP client does, and the first one acts too, later."""
    slow: float = 0.0
    """It takes up to `slow_seconds` either way."""
    slow_seconds: float = 20.0
    latency: float = 0.02
    """Usual seconds either way, at most."""
    deadline: float = 10.0
    """Seconds after which the sender gives up, at most."""
    page: int = 1000
    """Objects in one page of a listing; changes between two pages are seen or not."""


class Observer(Protocol):
    """Sees every change of the objects at the moment at which it takes effect."""

    def note_write(self, path: str, data: bytes, *, created: bool) -> None:
        """An object was written; `created` if by a create-only request."""

    def deleting(self, path: str) -> None:
        """An object that exists is about to be deleted."""


class SimBucket:
    """The objects."""

    def __init__(self, scheduler: Scheduler, observer: Observer, clock_offset: float) -> None:
        self.scheduler = scheduler
        self.observer = observer
        self.objects: dict[str, tuple[bytes, int]] = {}
        self.clock_offset = clock_offset

    def now_ms(self) -> int:
        return EPOCH_MS + int((self.scheduler.now + self.clock_offset) * 1000)

    def put(self, path: str, data: bytes) -> None:
        self.objects[path] = (data, self.now_ms())
        self.observer.note_write(path, data, created=False)

    def create(self, path: str, data: bytes) -> bool:
        if path in self.objects:
            return False
        self.objects[path] = (data, self.now_ms())
        self.observer.note_write(path, data, created=True)
        return True

    def get(self, path: str) -> bytes:
        if path not in self.objects:
            raise ObjectNotFound(f"{path} is not in sim://")
        return self.objects[path][0]

    def page(self, prefix: str, after: str, most: int) -> builtins.list[ObjectInfo]:
        found = sorted(path for path in self.objects if path.startswith(prefix) and path > after)
        return [ObjectInfo(path, len(self.objects[path][0]), self.objects[path][1]) for path in found[:most]]

    def delete(self, paths: Sequence[str]) -> None:
        for path in paths:
            if path in self.objects:
                self.observer.deleting(path)
                del self.objects[path]


class NodeBucket:
    """One node's way to the bucket; satisfies `ObjectStore`."""

    def __init__(self, bucket: SimBucket, node: Node, faults: Callable[[], Faults]) -> None:
        self.bucket = bucket
        self.node = node
        self._faults = faults
        self._scheduler = bucket.scheduler

    @property
    def url(self) -> str:
        return "sim://"

    def put(self, path: str, data: bytes | Iterable[bytes | memoryview]) -> None:
        whole = data if isinstance(data, bytes) else b"".join(data)
        self._call("put", path, lambda: self.bucket.put(path, whole))

    def create(self, path: str, data: bytes) -> bool:
        return self._call("create", path, lambda: self.bucket.create(path, data))

    def get(self, path: str, bytes_max: int | None = None) -> bytes:
        data: bytes = self._call("get", path, lambda: self.bucket.get(path))
        check_size(path, len(data), bytes_max)
        return data

    def get_range(self, path: str, start: int, length: int) -> memoryview:
        return self._call("get_range", path, lambda: memoryview(self.bucket.get(path))[start : start + length])

    def list(self, prefix: str, after: str = "") -> Iterator[ObjectInfo]:
        """One request for each page, made when it is reached; the first at once."""
        most = self._faults().page
        first = self._page(prefix, after, most)
        return iter(first) if len(first) < most else self._pages(first, prefix, most)

    def delete(self, paths: Sequence[str]) -> None:
        if paths:
            self._call("delete", " ".join(paths), lambda: self.bucket.delete(paths))

    def leftovers(self, before_ms: int) -> Sequence[ObjectInfo]:
        return ()

    def close(self) -> None:
        pass

    def _page(self, prefix: str, after: str, most: int) -> builtins.list[ObjectInfo]:
        found: builtins.list[ObjectInfo] = self._call("list", prefix, lambda: self.bucket.page(prefix, after, most))
        return found

    def _pages(self, page: builtins.list[ObjectInfo], prefix: str, most: int) -> Iterator[ObjectInfo]:
        while page:
            yield from page
            page = self._page(prefix, page[-1].path, most) if len(page) == most else []

    def _call(self, operation: str, path: str, act: Callable[[], Any]) -> Any:
        scheduler, node = self._scheduler, self.node
        me = scheduler.current()
        node.calls += 1
        ambush = node.ambush if (operation, path.partition("/")[0]) in AMBUSHES else None
        if ambush is not None:
            node.ambush = None
            if ambush.kind == "halt before":
                scheduler.halt(node, ambush.seconds)
        crashes = node.calls == node.crash_at_call
        if crashes and not node.crash_after:
            scheduler.crash(node)
        choose = scheduler.random.random
        faults = self._faults()
        fate = choose()
        latency = max(faults.latency, node.latency)
        there, back = choose() * latency, choose() * latency
        if faults.slow and choose() < faults.slow:
            there, back = choose() * faults.slow_seconds * 0.5, choose() * faults.slow_seconds * 0.5
        turn = me.turn + 1
        answer: builtins.list[Any] = []

        def arrive() -> None:
            try:
                result, error = act(), None
            except ObjectNotFound as missing:
                result, error = None, missing
            scheduler.trace(f"{node} {operation} {path}{_outcome(result, error)}")
            if not answer:
                answer.extend((result, error))

        def arrive_and_answer() -> None:
            arrive()
            scheduler.wake(me, turn, back)

        given_up = min(there + back, faults.deadline)
        if node.cut_off_until > scheduler.now or (fate := fate - faults.lose_request) < 0:
            failure = "request lost"
        elif ambush is not None and ambush.kind == "silence":
            failure = "answer lost"
            node.cut_off_until = scheduler.now + ambush.seconds
            scheduler.at(there, arrive)
        elif node.deaf_until > scheduler.now or (fate := fate - faults.lose_answer) < 0:
            failure = "answer lost"
            scheduler.at(there, arrive)
        elif there + back > faults.deadline or (fate := fate - faults.late) < 0:
            failure = "given up, acts later"
            scheduler.at(given_up + choose() * faults.slow_seconds, arrive)
        else:
            failure = ""
            scheduler.at(there, arrive_and_answer)
            if fate < faults.twice:
                scheduler.at(there + back + choose() * faults.slow_seconds, arrive)
        if ambush is not None and ambush.kind == "halt after":
            scheduler.stall(node, ambush.seconds)
        if failure:
            scheduler.trace(f"{node} {operation} {path}: {failure}")
            scheduler.park(f"{operation} of {path}", given_up)
        else:
            scheduler.park(f"{operation} of {path}")
        if crashes:
            scheduler.crash(node)
        if scheduler.over or not node.alive:
            raise NodeDead
        if failure:
            raise ObjectStoreUnavailable(f"{operation} of {path} in {self.url} failed: the network is simulated")
        result, error = answer
        if error is not None:
            raise error
        return result


def _outcome(result: Any, error: Exception | None) -> str:
    if error is not None:
        return ": not there"
    return f": {result}" if isinstance(result, bool) else ""
