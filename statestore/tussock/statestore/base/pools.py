"""Threads that a store hands requests to, and that another thread may stop by closing the store.

Then a caller that waits for such a request, or hands in the next one, gets `StoreClosed`; a pool's own errors say
nothing to the callers of a store. The reads and uploads of stores and of compaction use it.
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

    def __init__(self, future: "Future[T]", closed: str) -> None:
        self._future = future
        self._closed = closed

    def result(self) -> T:
        """Wait for what it returns; raises what it raised, `StoreClosed` if the store was closed before it began."""
        try:
            return self._future.result()
        except CancelledError as error:
            raise StoreClosed(self._closed) from error

    def give_up(self) -> None:
        """Its result is no longer wanted: it does not begin."""
        self._future.cancel()

    def end(self) -> None:
        """Its result is no longer wanted; returns when it is not running and will not."""
        if not self._future.cancel():
            self._future.exception()


class StorePool:
    """Some threads for one kind of request."""

    def __init__(self, system: System, name: str, workers: int, closed: str) -> None:
        """At most `workers` threads of that name; `closed`: what to say to callers once it is closed."""
        self._pool = system.pool(name, workers)
        self._closed = closed

    def submit(self, work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Pending[T]:
        """Have it done; `StoreClosed` if the pool was closed, or the process is about to end."""
        try:
            return Pending(self._pool.submit(work, *args, **kwargs), self._closed)
        except RuntimeError as error:
            if "cannot schedule new futures" not in str(error):
                raise
            raise StoreClosed(self._closed) from error

    def close(self) -> None:
        """Wait for what is running, and let nothing else begin."""
        self._pool.shutdown(wait=True, cancel_futures=True)
