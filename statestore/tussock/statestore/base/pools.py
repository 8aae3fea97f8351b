"""Threads that a store hands requests to, and that another thread may stop by closing the store.

Then a caller that waits for such a request, or hands in the next one, gets `StoreClosed`; a pool's own errors say
nothing to the callers of a store. The reads and uploads of stores and of compaction use it.

A pool's locks are taken in Python code: an interrupt of the main thread could leave one taken, and the pool's threads
would wait for it for ever. So each step of a caller is one that cannot be interrupted.
"""

from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from typing import Generic, ParamSpec, TypeVar

from tussock.statestore.base.system import System
from tussock.statestore.errors import StoreClosed

__all__ = ["Pending", "StorePool"]

P = ParamSpec("P")
T = TypeVar("T")


class Pending(Generic[T]):
    """A piece of work that was handed in."""

    def __init__(self, system: System, future: "Future[T]", closed: str) -> None:
        self._system = system
        self._future = future
        self._closed = closed

    def result(self) -> T:
        """Wait for what it returns; raises what it raised, `StoreClosed` if the store was closed before it began."""
        try:
            return self._system.uninterrupted(self._future.result)
        except CancelledError as error:
            raise StoreClosed(self._closed) from error

    def give_up(self) -> None:
        """Its result is no longer wanted: it does not begin."""
        self._system.uninterrupted(self._future.cancel)

    def end(self) -> None:
        """Its result is no longer wanted; returns when it is not running and will not."""
        if not self._system.uninterrupted(self._future.cancel):
            self._system.uninterrupted(self._future.exception)


class StorePool:
    """Some threads for one kind of request."""

    def __init__(self, system: System, name: str, workers: int, closed: str) -> None:
        """At most `workers` threads of that name; `closed`: what to say to callers once it is closed."""
        self._system = system
        self._pool = system.pool(name, workers)
        self._closed = closed

    def submit(self, work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Pending[T]:
        """Have it done; `StoreClosed` if the pool was closed, or the process is about to end."""
        try:
            future = self._system.uninterrupted(lambda: self._pool.submit(work, *args, **kwargs))
            return Pending(self._system, future, self._closed)
        except RuntimeError as error:
            if "cannot schedule new futures" not in str(error):
                raise
            raise StoreClosed(self._closed) from error

    def close(self) -> None:
        """Wait for what is running, and let nothing else begin."""
        self._system.uninterrupted(lambda: self._pool.shutdown(wait=True, cancel_futures=True))
