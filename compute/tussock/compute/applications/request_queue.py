"""Requests that wait for the thread that runs them; a pause holds them back, except those that only look.

What a procedure asks of the application that runs it would wait for itself, until the application ends: it is refused.
"""

import queue
import threading
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future
from types import TracebackType
from typing import Any

from tussock.compute.applications.limits import ApplicationLimits
from tussock.compute.applications.program import Request
from tussock.statestore.errors import InvalidOption

__all__ = ["NUDGE", "Nesting", "RequestQueue"]

_NOBODY: "Future[Any]" = Future()
NUDGE = Request(None, _NOBODY)
"""Nothing to run, but something to look after."""


class RequestQueue:
    """Filled by any thread, emptied by one."""

    def __init__(self, limits: ApplicationLimits) -> None:
        self._limits = limits
        self._requests: queue.SimpleQueue[Request | None] = queue.SimpleQueue()
        self._held: deque[Request] = deque()
        """Those that wait for the end of a pause."""
        self.is_paused = False
        self._lock = threading.Lock()
        self._bytes = 0

    @property
    def waiting(self) -> int:
        """Requests that have not begun, about."""
        return self._requests.qsize() + len(self._held)

    def make_room(self, size: int) -> bool:
        """Count a request of that many bytes, which is to follow; `False` if too much waits."""
        limits = self._limits
        with self._lock:
            if self.waiting >= limits.queue_requests or (self._bytes and self._bytes + size > limits.queue_bytes):
                return False
            self._bytes += size
            return True

    def put(self, request: Request) -> None:
        """Let a request wait for its turn."""
        self._requests.put(request)

    def nudge(self) -> None:
        """Wake the thread that waits."""
        self._requests.put(NUDGE)

    def end(self) -> None:
        """Nothing comes any more: what waits runs, in spite of a pause, and then `None` follows."""
        self._requests.put(None)

    def resume(self) -> None:
        """End a pause."""
        self.is_paused = False
        self.nudge()

    def next(self, timeout: float | None) -> Request | None:
        """The next request; `None` at the end. 0 seconds: `queue.Empty` if none waits; `None`: for as long as it takes.

        `NUDGE`, if there is something to look after.
        """
        if self._held and not self.is_paused:
            return self._taken(self._held.popleft())
        request = self._requests.get_nowait() if timeout == 0 else self._requests.get(timeout=timeout)
        if request is None:
            self.is_paused = False
            if self._held:
                self._requests.put(None)
                return NUDGE
        # Behind others that are held, also if the pause has ended this moment.
        elif request is not NUDGE and not request.is_look and (self.is_paused or self._held):
            self._held.append(request)
            return NUDGE
        return None if request is None else self._taken(request)

    def drain(self) -> Iterator[Request]:
        """Take out all that waits; a thread that has ended leaves them to this. In any thread."""
        while True:
            try:
                request = self._held.popleft() if self._held else self._requests.get_nowait()
            except (queue.Empty, IndexError):
                return
            if request is not None and request is not NUDGE:
                yield self._taken(request)

    def _taken(self, request: Request) -> Request:
        if request.size:
            with self._lock:
                self._bytes -= request.size
        return request


class Nesting:
    """Entered by the one thread that runs requests, while it runs one."""

    def __init__(self, application: str) -> None:
        self._application = application
        self._thread: int | None = None

    def __enter__(self) -> None:
        self._thread = threading.get_ident()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._thread = None

    @property
    def is_inside(self) -> bool:
        """Whether the caller's thread is that of requests, and runs one."""
        return self._thread == threading.get_ident()

    def check(self) -> None:
        """Raise `InvalidOption` in the thread of requests, while one runs. Other threads, and callbacks, may ask."""
        if self.is_inside:
            raise InvalidOption(
                f"application {self._application!r} is asked by a procedure that it runs, and would wait for it, "
                "and graphs do not nest; emit to a stream whose consumer does the rest, read with tx.table(), and "
                "look, drain and stop from outside"
            )
