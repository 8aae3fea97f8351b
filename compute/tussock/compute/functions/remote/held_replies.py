"""Replies that the node holds and has not made messages of: while they take much, no epoch begins.

The node counts replies once it has made messages of them, and then withdraws requests whose replies have no room.
Epochs run in another thread, and would fill the memory before it comes to that. It does so whatever clients do, so
nobody who does not read holds up an epoch.
"""

import threading
import weakref
from concurrent.futures import Future
from typing import Any

import pyarrow as pa

from tussock.compute.functions.program.values import size_of

__all__ = ["HeldReplies"]

HELD_BYTES_MAX = 64 << 20
SMALL_BYTES = 4096
"""Up to this size they are not counted: as many as may wait take 32 MiB."""
WAIT_SECONDS_MAX = 30.0
"""For the node, before an epoch begins all the same."""


class HeldReplies:
    """Of one node. In any thread."""

    def __init__(self) -> None:
        """Nothing is held."""
        # Python may let go of a reply in a thread that has the lock.
        self._changed = threading.Condition(threading.RLock())
        self.nbytes = 0

    def note(self, reply: "Future[Any]") -> None:
        """A future has its reply: it counts for as long as anybody has the future."""
        if reply.cancelled() or reply.exception() is not None:
            return
        value = reply.result()
        size = value.nbytes if isinstance(value, pa.Table) else size_of((value,))
        if size > SMALL_BYTES:
            with self._changed:
                self.nbytes += size
            weakref.finalize(reply, self._let_go, size).atexit = False

    def wait(self) -> None:
        """Return when there is room for more."""
        with self._changed:
            self._changed.wait_for(lambda: self.nbytes < HELD_BYTES_MAX, WAIT_SECONDS_MAX)

    def _let_go(self, size: int) -> None:
        with self._changed:
            self.nbytes -= size
            self._changed.notify_all()
