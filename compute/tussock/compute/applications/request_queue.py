"""Requests that wait for the thread that runs them; a pause holds them back, except those that only look.

What a procedure asks of the application that runs it would wait for itself, until the application ends: it is refused.
So is what a callback of a reply would wait for, as all replies wait for the callback.
"""

import queue
import threading
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from types import TracebackType
from typing import Any, NamedTuple

from tussock.compute.applications.limits import ApplicationLimits
from tussock.compute.applications.program import Request
from tussock.statestore.base.process.lifetime import Lifetime
from tussock.statestore.errors import TussockError

__all__ = ["NUDGE", "AskedWithin", "Nesting", "RequestQueue"]

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
        self._bytes = self._signals = 0
        """Of the requests, and how many entries of the queue are none: nudges and ends."""

    @property
    def waiting(self) -> int:
        """Requests that have not begun, about."""
        return max(self._requests.qsize() - self._signals, 0) + len(self._held)

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
        self._signal(NUDGE)

    def end(self) -> None:
        """Nothing comes any more: what waits runs, in spite of a pause, and then `None` follows."""
        self._signal(None)

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
        request = self._heard(self._requests.get_nowait() if timeout == 0 else self._requests.get(timeout=timeout))
        if request is None:
            self.is_paused = False
            if self._held:
                self._signal(None)
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
                request = self._held.popleft() if self._held else self._heard(self._requests.get_nowait())
            except (queue.Empty, IndexError):
                return
            if request is not None and request is not NUDGE:
                yield self._taken(request)

    def _signal(self, what: Request | None) -> None:
        with self._lock:
            self._signals += 1
        self._requests.put(what)

    def _heard(self, request: Request | None) -> Request | None:
        """What has come out of the queue."""
        if request is None or request is NUDGE:
            with self._lock:
                self._signals -= 1
        return request

    def _taken(self, request: Request) -> Request:
        if request.size:
            with self._lock:
                self._bytes -= request.size
        return request


class AskedWithin(NamedTuple):
    """What a layer answers where its application would wait for itself."""

    error: type[TussockError]
    what: str
    """Such as "program"."""
    inside: str
    """The asker within a request, and what it is to do instead."""
    callback: str
    """What a callback of a reply uses instead."""


class Nesting:
    """From where an application is asked; entered by the one thread that runs requests, while it runs one."""

    def __init__(self, application: str, url: str, words: AskedWithin) -> None:
        """`url`: of its store."""
        self._application = application
        self._words = words
        self._lifetime = Lifetime(url)
        self._thread: int | None = None
        self._giving: set[int] = set()

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

    @contextmanager
    def giving(self) -> Iterator[None]:
        """The caller's thread gives replies meanwhile: callbacks run in it."""
        thread = threading.get_ident()
        self._giving.add(thread)
        try:
            yield
        finally:
            # Another thread may get that number.
            self._giving.discard(thread)

    @property
    def is_in_callback(self) -> bool:
        """Whether the caller's thread is one that gives replies."""
        return threading.get_ident() in self._giving

    @property
    def is_forked(self) -> bool:
        """Whether this process was forked off the one where the application runs, and has none of its threads."""
        return self._lifetime.is_inherited

    def check_process(self) -> None:
        """Raise `StoreClosed` in a process that was forked off since, before it waits for a lock."""
        self._lifetime.check_process()

    def check(self, *, waits: bool) -> None:
        """Raise the layer's error in the thread of requests, while one runs.

        If what is asked `waits` for the application, in a thread that gives replies, too.
        """
        error, what, inside, callback = self._words
        if self.is_inside:
            raise error(f"{what} {self._application!r} is asked by {inside}")
        if waits and self.is_in_callback:
            raise error(
                f"{what} {self._application!r} is asked by a callback of a reply, and would wait for the thread that "
                f"runs this callback: use {callback} and another callback, or ask in another thread"
            )
