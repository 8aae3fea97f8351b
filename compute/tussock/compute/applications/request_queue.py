"""Requests that wait to run: in order, and within limits of number and bytes."""

import queue
from collections.abc import Callable

from tussock.compute.applications.program import Request
from tussock.statestore.base.system import System

__all__ = ["RequestQueue"]

QUEUE_MAX = 10_000
"""Requests that wait; a client that asks for more waits, too."""
QUEUE_BYTES_MAX = 256 << 20
"""The same for bytes. A request that is larger goes alone."""
WAIT_SECONDS = 0.001


class RequestQueue:
    """Many clients put, one thread takes."""

    def __init__(self, system: System) -> None:
        self._system = system
        self._requests: queue.SimpleQueue[Request | None] = queue.SimpleQueue()
        self._lock = system.condition()
        self._bytes = 0

    def put(self, request: Request, check: Callable[[], None]) -> None:
        """Take a request as soon as there is room; `check` is called meanwhile, and may raise."""
        while self._requests.qsize() >= QUEUE_MAX or not self._has_room(request.size):
            self._system.sleep(WAIT_SECONDS)
            check()
        self._requests.put(request)

    def nudge(self, request: Request | None) -> None:
        """Let the thread that takes look up: by a request of nobody, or by `None`, after which it ends."""
        self._requests.put(request)

    def take(self) -> Request | None:
        """The next request at once; raises `queue.Empty`."""
        return self._taken(self._requests.get_nowait())

    def wait(self, seconds: float | None) -> Request | None:
        """The next request, within that time; raises `queue.Empty`."""
        return self._taken(self._requests.get(timeout=seconds))

    def _has_room(self, size: int) -> bool:
        with self._lock:
            if self._bytes and self._bytes + size > QUEUE_BYTES_MAX:
                return False
            self._bytes += size
            return True

    def _taken(self, request: Request | None) -> Request | None:
        if request is not None and request.size:
            with self._lock:
                self._bytes -= request.size
        return request
