"""Requests that wait for their epoch: filled by callers, emptied by the thread that runs epochs."""

from collections import deque
from collections.abc import Callable

from tussock.compute.applications.errors import ApplicationStopped, Full
from tussock.compute.functions.epochs.transaction import FunctionRequest
from tussock.compute.functions.feeds.fed_epochs import FeedMark
from tussock.statestore.base.system import System

__all__ = ["RequestIntake"]

WAITING_MAX = 50_000
"""Requests; a caller that sends more waits."""
WAITING_BYTES_MAX = 256 << 20
EPOCH_BYTES_MAX = 16 << 20
"""Of the arguments of an epoch's requests; a request that is larger is alone in its own."""
WAIT_SECONDS = 60.0


class RequestIntake:
    """A queue that gives what belongs into one epoch."""

    def __init__(self, system: System, epoch_seconds: float, epoch_max: int, begin: Callable[[], None]) -> None:
        """`begin` asks for an epoch; called when requests come and none was asked for."""
        self._system = system
        self._epoch_seconds = epoch_seconds
        self._epoch_max = epoch_max
        self._begin = begin
        self._changed = system.condition()
        self._requests: deque[FunctionRequest | FeedMark] = deque()
        self._nbytes = 0
        self._is_asked = False
        self._is_awaited = False
        self._is_closed = False

    @property
    def waiting(self) -> int:
        """Requests that are in no epoch yet."""
        return len(self._requests)

    @property
    def room(self) -> int:
        """How many more can wait."""
        return WAITING_MAX - len(self._requests)

    def put(self, request: FunctionRequest | FeedMark) -> None:
        """Let a request wait for its epoch; `Full` if there is no room for a minute."""
        with self._changed:
            if not self._has_room() and not self._changed.wait_for(self._has_room, WAIT_SECONDS):
                raise Full(
                    f"{len(self._requests):,} requests of {self._nbytes:,} bytes wait already; this one did not begin",
                    1000,
                )
            if self._is_closed:
                raise ApplicationStopped("the program is being stopped; this request did not begin")
            self._requests.append(request)
            self._nbytes += request.size
            if self._is_awaited and len(self._requests) >= self._epoch_max:
                self._changed.notify_all()
            is_first, self._is_asked = not self._is_asked, True
        if is_first:
            self._begin()

    def take(self) -> list[FunctionRequest | FeedMark]:
        """An epoch's requests: as many as it may have, or those that came until the first has waited long enough."""
        with self._changed:
            requests, most = self._requests, self._epoch_max
            if requests and len(requests) < most:
                left = requests[0].began + self._epoch_seconds - self._system.monotonic()
                if left > 0:
                    self._is_awaited = True
                    self._changed.wait_for(lambda: len(requests) >= most, left)
                    self._is_awaited = False
            was_full = not self._has_room()
            taken: list[FunctionRequest | FeedMark] = []
            left_bytes = EPOCH_BYTES_MAX
            while requests and len(taken) < most and (not taken or requests[0].size <= left_bytes):
                taken.append(requests.popleft())
                left_bytes -= taken[-1].size
                self._nbytes -= taken[-1].size
            if was_full:
                self._changed.notify_all()
            return taken

    def ended(self, *, has_deferred: bool) -> bool:
        """An epoch has run: whether another one has to follow at once."""
        with self._changed:
            self._is_asked = bool(self._requests) or has_deferred
            return self._is_asked

    def _has_room(self) -> bool:
        return self._is_closed or (len(self._requests) < WAITING_MAX and self._nbytes < WAITING_BYTES_MAX)

    def close(self) -> None:
        """Take no more requests."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    @property
    def is_idle(self) -> bool:
        """Whether no epoch is asked for."""
        return not self._is_asked
