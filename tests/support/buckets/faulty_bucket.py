"""A bucket that fails, loses answers, stalls or dies on a test's order.

It wraps any bucket. A script sees every call before it is made and decides its fate; calls are numbered from 1 in
the order in which they arrive, so "crash at call 7" means the same in every run of a single-threaded test.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import NamedTuple, TypeVar

from tussock.statestore.contract.object_store import ObjectInfo, ObjectStore
from tussock.statestore.errors import ObjectStoreUnavailable

T = TypeVar("T")


class Crash(BaseException):
    """The process is dead. Not an `Exception`, so that no handler of the store revives it."""


class Call(NamedTuple):
    """One call on the bucket."""

    number: int
    """From 1."""
    operation: str
    """`put`, `create`, `get`, `get_range`, `list`, `delete` or `leftovers`."""
    path: str
    """The path; the prefix of a listing; the paths of a deletion, separated by spaces."""


class Fate(Enum):
    """The fate of a call."""

    PASS = "pass"
    LOSE_REQUEST = "lose request"
    """`ObjectStoreUnavailable`, and nothing was done."""
    LOSE_ANSWER = "lose answer"
    """It was done, and then `ObjectStoreUnavailable`."""
    CRASH = "crash"
    """Nothing was done, and this and every later call raises `Crash`."""
    CRASH_AFTER = "crash after"
    """It was done; then like `CRASH`."""


Script = Callable[[Call], Fate]


def at_calls(fates: Mapping[int, Fate]) -> Script:
    """A script by call number; other calls pass."""
    return lambda call: fates.get(call.number, Fate.PASS)


def where(operation: str, prefix: str, fate: Fate, *, times: int = 1) -> Script:
    """A script for the first `times` calls of `operation` on paths that begin with `prefix`."""
    left = times

    def script(call: Call) -> Fate:
        nonlocal left
        if left and call.operation == operation and call.path.startswith(prefix):
            left -= 1
            return fate
        return Fate.PASS

    return script


class LostRead:
    """A script: of the reads of SSTs the one behind `at` others is lost."""

    def __init__(self, at: int) -> None:
        self._at = at
        self.reads = 0

    def __call__(self, call: Call) -> Fate:
        if call.operation not in ("get", "get_range") or not call.path.startswith("sst/"):
            return Fate.PASS
        self.reads += 1
        return Fate.LOSE_REQUEST if self.reads == self._at + 1 else Fate.PASS


class FaultyBucket:
    """An `ObjectStore` over another one, under the control of a script."""

    def __init__(self, inner: ObjectStore, script: Script | None = None) -> None:
        self.inner = inner
        self.script = script
        self.calls: list[Call] = []
        """Every call until now, with any fate."""
        self.dead = False
        self._stalls: list[tuple[Callable[[Call], bool], Callable[[], None]]] = []
        self._lock = threading.Lock()

    def stall(self, when: int | Callable[[Call], bool], then: Callable[[], None]) -> None:
        """Run `then` in the caller's thread before the first call that `when` names, by number or by predicate.

        That call goes on afterwards: what `then` does happens while the caller is stalled. `then` runs without any
        lock and may use this bucket; it does not stall again.
        """
        matches = (lambda call: call.number == when) if isinstance(when, int) else when
        with self._lock:
            self._stalls.append((matches, then))

    @property
    def url(self) -> str:
        return self.inner.url

    def put(self, path: str, data: bytes | Iterable[bytes | memoryview]) -> None:
        self._do("put", path, lambda: self.inner.put(path, data))

    def create(self, path: str, data: bytes) -> bool:
        return self._do("create", path, lambda: self.inner.create(path, data))

    def get(self, path: str, bytes_max: int | None = None) -> bytes:
        return self._do("get", path, lambda: self.inner.get(path, bytes_max))

    def get_range(self, path: str, start: int, length: int) -> memoryview:
        return self._do("get_range", path, lambda: self.inner.get_range(path, start, length))

    def list(self, prefix: str, after: str = "") -> Iterator[ObjectInfo]:
        """The whole listing is taken at the call, so that it is one point in an interleaving."""
        return iter(self._do("list", prefix, lambda: tuple(self.inner.list(prefix, after))))

    def delete(self, paths: Sequence[str]) -> None:
        self._do("delete", " ".join(paths), lambda: self.inner.delete(paths))

    def leftovers(self, before_ms: int) -> Sequence[ObjectInfo]:
        return self._do("leftovers", "", lambda: self.inner.leftovers(before_ms))

    def close(self) -> None:
        """Not a call: a test may clean up after a crash."""
        self.inner.close()

    def _do(self, operation: str, path: str, work: Callable[[], T]) -> T:
        call, stalls = self._arrive(operation, path)
        for then in stalls:
            then()
        fate = Fate.CRASH if self.dead else self.script(call) if self.script else Fate.PASS
        result = work() if fate in (Fate.PASS, Fate.LOSE_ANSWER, Fate.CRASH_AFTER) else None
        if fate is Fate.PASS:
            return result  # type: ignore[return-value]
        if fate in (Fate.CRASH, Fate.CRASH_AFTER):
            self.dead = True
            raise Crash(f"{fate.value} at {call}")
        raise ObjectStoreUnavailable(f"{operation} of {path} in {self.url} failed as the test said: {fate.value}")

    def _arrive(self, operation: str, path: str) -> tuple[Call, Sequence[Callable[[], None]]]:
        """Number the call, and take out the stalls that it meets."""
        with self._lock:
            call = Call(len(self.calls) + 1, operation, path)
            self.calls.append(call)
            met = [stall for stall in self._stalls if stall[0](call)]
            self._stalls = [stall for stall in self._stalls if stall not in met]
            return call, [then for _, then in met]
