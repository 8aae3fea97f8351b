"""The only module that asks the machine for time, randomness and threads.

Everything else takes a `System`, so that a test (and the simulator) decides what time it is, which ids come next and
in which order threads run. A lint in `tests/test_tidy.py` bans `time.time`, `random`, `uuid4` and friends elsewhere. A
lock that is held for a computation only, with no request, wait or sleep inside, may be a plain `threading.Lock`.
"""

import secrets
import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from types import TracebackType
from typing import Protocol

__all__ = ["Condition", "Lock", "RealSystem", "System", "Task"]


class Lock(Protocol):
    """A reentrant mutual exclusion, used with `with`."""

    def __enter__(self) -> bool:
        """Wait for the lock and take it."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        """Give it back."""


class Condition(Lock, Protocol):
    """A lock, and waiting for somebody to say that something changed under it."""

    def wait(self, timeout: float | None = None) -> bool:
        """Give the lock back until notified, or for `timeout` seconds; `False` if the time was up."""

    def wait_for(self, predicate: Callable[[], bool], timeout: float | None = None) -> bool:
        """Wait until `predicate()` holds; returns it as it is at the end."""

    def notify_all(self) -> None:
        """Wake all who wait."""


class Task(Protocol):
    """Something that runs beside its spawner."""

    def join(self, timeout: float | None = None) -> None:
        """Wait for its end, or for `timeout` seconds."""

    def is_alive(self) -> bool:
        """Whether it is still running."""


class System(Protocol):
    """Where time, randomness and concurrency come from."""

    def now_ms(self) -> int:
        """Milliseconds since the Unix epoch, by the wall clock; may jump either way."""

    def monotonic(self) -> float:
        """Seconds on a clock that only moves forward; its zero means nothing."""

    def sleep(self, seconds: float) -> None:
        """Wait that many seconds."""

    def random_bytes(self, count: int) -> bytes:
        """`count` bytes that no other call, on any machine, will return."""

    def lock(self) -> Lock:
        """A fresh reentrant lock, which may be held across requests."""

    def condition(self) -> Condition:
        """A fresh condition with its own reentrant lock."""

    def spawn(self, name: str, work: Callable[[], None]) -> Task:
        """Start `work` beside the caller; it does not keep the process alive."""

    def pool(self, name: str, workers: int) -> Executor:
        """At most `workers` threads that run what is submitted."""


class RealSystem:
    """The machine's clocks, its entropy and its threads."""

    def now_ms(self) -> int:
        """Milliseconds since the Unix epoch."""
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        """Seconds on the machine's monotonic clock."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Block this thread."""
        time.sleep(seconds)

    def random_bytes(self, count: int) -> bytes:
        """`count` bytes from the operating system."""
        return secrets.token_bytes(count)

    def lock(self) -> Lock:
        """A `threading.RLock`."""
        return threading.RLock()

    def condition(self) -> Condition:
        """A `threading.Condition`."""
        return threading.Condition()

    def spawn(self, name: str, work: Callable[[], None]) -> Task:
        """A daemon thread of that name, started."""
        thread = threading.Thread(target=work, name=name, daemon=True)
        thread.start()
        return thread

    def pool(self, name: str, workers: int) -> Executor:
        """A `ThreadPoolExecutor`."""
        return ThreadPoolExecutor(workers, thread_name_prefix=name)
