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
from typing import Protocol, TypeVar

from tussock.statestore.base.process.interrupts import run_uninterrupted

__all__ = ["Condition", "Lock", "Mutex", "RealSystem", "System", "Task"]

T = TypeVar("T")


class Lock(Protocol):
    """Mutual exclusion, used with `with`; an interrupt of the main thread never leaves it taken."""

    def __enter__(self) -> bool:
        """Wait for the lock and take it."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        """Give it back."""


class Mutex(Lock, Protocol):
    """A lock that is not reentrant."""

    def locked(self) -> bool:
        """Whether a thread holds it at this moment."""


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

    def mutex(self) -> Mutex:
        """A fresh lock that is not reentrant and can be asked, and may be held across requests."""

    def condition(self) -> Condition:
        """A fresh condition with its own reentrant lock."""

    def spawn(self, name: str, work: Callable[[], None]) -> Task:
        """Start `work` beside the caller; it does not keep the process alive."""

    def uninterrupted(self, work: Callable[[], T], unwanted: Callable[[T], object] | None = None) -> T:
        """Do `work` where no handler of a signal can end it halfway; returns what it returns.

        Where the caller was interrupted meanwhile, `unwanted` gets it.
        """

    def pool(self, name: str, workers: int) -> Executor:
        """At most `workers` threads that run what is submitted."""


class _Condition(type(threading.RLock())):  # type: ignore[misc]
    """A `threading.Condition` whose lock is taken and given back in one step.

    That one enters its lock in Python code. Ctrl-C, or any signal whose handler raises, may end the main thread's block
    between two steps of it: the lock stays taken then, and all others wait for ever. Code in C cannot be ended there.
    """

    def __init__(self) -> None:
        self._waits = threading.Condition(self)

    def wait(self, timeout: float | None = None) -> bool:
        return self._waits.wait(timeout)

    def wait_for(self, predicate: Callable[[], bool], timeout: float | None = None) -> bool:
        return self._waits.wait_for(predicate, timeout)

    def notify_all(self) -> None:
        self._waits.notify_all()


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

    def mutex(self) -> Mutex:
        """A `threading.Lock`."""
        return threading.Lock()

    def condition(self) -> Condition:
        """A condition that an interrupt cannot leave locked."""
        return _Condition()

    def spawn(self, name: str, work: Callable[[], None]) -> Task:
        """A daemon thread of that name, started."""
        thread = threading.Thread(target=work, name=name, daemon=True)
        run_uninterrupted(thread.start)
        return thread

    def uninterrupted(self, work: Callable[[], T], unwanted: Callable[[T], object] | None = None) -> T:
        """By another thread, if this is the main one; 0.1 ms then."""
        return run_uninterrupted(work, unwanted)

    def pool(self, name: str, workers: int) -> Executor:
        """A `ThreadPoolExecutor`."""
        return ThreadPoolExecutor(workers, thread_name_prefix=name)
