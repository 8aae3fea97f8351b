"""Places in the queues of streams for what is pushed; a client waits for one, or is told that there is none."""

import threading
from collections.abc import Callable, Mapping

from tussock.compute.applications.errors import Full
from tussock.compute.changelog.engine.running_stream import RunningStream
from tussock.statestore.errors import WaitTimeout

__all__ = ["QueueRoom"]

FULL_MS = 50


class QueueRoom:
    """Of one run; used by any thread."""

    def __init__(self, streams: Mapping[str, RunningStream], is_over: Callable[[], bool]) -> None:
        """`is_over`: whether nothing is taken any more, so that nobody has to wait."""
        self._streams = streams
        self._is_over = is_over
        self._changed = threading.Condition()
        self._coming = dict.fromkeys(streams, 0)
        """By stream, transactions on their way to its queue."""
        self._coming_bytes = dict.fromkeys(streams, 0)

    def reserve(self, stream: str, nbytes: int, *, wait: bool, timeout: float | None) -> None:
        """Take a place. Raises `Full`, or `WaitTimeout` after `timeout` seconds."""
        one = self._streams[stream]
        with self._changed:
            if not self._is_free(one):
                if not wait:
                    raise Full(
                        f"stream {stream!r}: its queue of {one.plan.queue:,} is full, with those on their way to it",
                        FULL_MS,
                    )
                if not self._changed.wait_for(lambda: self._is_free(one), timeout):
                    raise WaitTimeout(f"stream {stream!r}: its queue of {one.plan.queue:,} was full for {timeout:g} s")
            self._coming[stream] += 1
            self._coming_bytes[stream] += nbytes

    def wait_place(self, stream: str, seconds: float) -> bool:
        """Whether there is a place within these seconds, or nothing is taken any more; takes none."""
        one = self._streams[stream]
        with self._changed:
            return self._changed.wait_for(lambda: self._is_free(one), seconds)

    def arrived(self, stream: str, nbytes: int) -> None:
        """A transaction that had a place is in the queue, or will not come."""
        with self._changed:
            self._coming[stream] -= 1
            self._coming_bytes[stream] -= nbytes

    def look_again(self) -> None:
        """Streams have taken transactions, or nothing is taken any more."""
        with self._changed:
            self._changed.notify_all()

    def _is_free(self, one: RunningStream) -> bool:
        name = one.plan.name
        return self._is_over() or one.has_room(self._coming[name], self._coming_bytes[name])
