"""A session's mailbox: events on their way to one subscriber.

The leader puts, without ever waiting for a subscriber; whoever serves the stream takes. A subscriber that falls so far
behind that the mailbox is full is told to subscribe again, which brings it up to date by a snapshot: cheaper for both
than a queue without end.
"""

import threading
from collections import deque
from collections.abc import Callable

from tussock.meta.rpc import meta_pb2 as pb

__all__ = ["Mailbox"]

EVENTS_MAX = 4096


class Mailbox:
    """A bounded queue of serialized events. Safe to share between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._events: deque[bytes] = deque()
        self._ready: Callable[[], None] | None = None
        self.closed = False
        """No more events will come; what is still inside can be taken."""

    def put(self, event: bytes) -> None:
        """Append a serialized `Event`; closes the mailbox if it is full."""
        with self._lock:
            if self.closed:
                return
            if len(self._events) >= EVENTS_MAX:
                self._close("the subscriber is too slow")
            else:
                self._events.append(event)
            ready = self._ready
        if ready is not None:
            ready()

    def close(self, reason: str) -> None:
        """Tell the subscriber to subscribe again, and accept nothing more; a second call changes nothing."""
        with self._lock:
            if not self.closed:
                self._close(reason)
            ready = self._ready
        if ready is not None:
            ready()

    def take(self) -> list[bytes]:
        """All events that wait, in order; does not block."""
        with self._lock:
            events = list(self._events)
            self._events.clear()
            return events

    def on_ready(self, ready: Callable[[], None]) -> None:
        """Call `ready`, from whatever thread, when there may be something to take, and now if there is."""
        with self._lock:
            self._ready = ready
            waiting = bool(self._events) or self.closed
        if waiting:
            ready()

    def _close(self, reason: str) -> None:
        self._events.append(pb.Event(closing=pb.Closing(reason=reason)).SerializeToString())
        self.closed = True
