"""A session's mailbox: what is on its way to one subscriber.

Versions are not queued: the mailbox knows how far the subscriber has come, and takes from the feed whatever leads on
from there, some of it at once, so no subscriber is too slow for them. Other events are queued, and a
subscriber that lets them pile up is told to subscribe again. The leader puts, and never waits for anybody; the thread
that serves the stream takes.
"""

import threading
from collections import deque
from collections.abc import Callable

from tussock.meta.rpc import meta_pb2 as pb
from tussock.meta.server.feed import News

__all__ = ["Mailbox"]

EVENTS_MAX = 4096


class Mailbox:
    """Versions and a bounded queue of serialized events. Safe to share between threads."""

    def __init__(self, news: Callable[[int], News], seq: int) -> None:
        """The subscriber has the version of `seq`; `news` returns what leads on from one."""
        self._lock = threading.Lock()
        self._news = news
        self._seq = seq
        self._has_news = True
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

    def wake(self) -> None:
        """There is a newer version."""
        with self._lock:
            if self._has_news or self.closed:
                return
            self._has_news = True
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
        """What waits, the version first: what an event speaks of is in the version when it comes. Does not block.

        If the version has more to come than one event holds, the other events wait for it, too. One thread takes.
        """
        with self._lock:
            waiting = len(self._events)
            has_news, self._has_news = self._has_news, False
        taken = []
        if has_news:
            news = self._news(self._seq)
            self._seq = max(self._seq, news.seq)
            if news.event:
                taken.append(news.event)
            if news.more and not self.closed:
                self.wake()
                return taken
        with self._lock:
            taken += [self._events.popleft() for _ in range(waiting)]
        return taken

    @property
    def is_empty(self) -> bool:
        """Whether nothing that was put waits any more."""
        with self._lock:
            return not self._events

    def on_ready(self, ready: Callable[[], None]) -> None:
        """Call `ready`, from whatever thread, when there may be something to take, and now if there is."""
        with self._lock:
            self._ready = ready
            waiting = bool(self._events) or self._has_news or self.closed
        if waiting:
            ready()

    def _close(self, reason: str) -> None:
        self._events.append(pb.Event(closing=pb.Closing(reason=reason)).SerializeToString())
        self.closed = True
