"""Replies that several callers wait for: a request that comes again with its id gets the reply of the first.

One of them may stop waiting. The request is withdrawn once all have, if it has not begun by then.
"""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from tussock.compute.applications.program import Outcome
from tussock.compute.applications.replies import WithdrawableFuture, give

__all__ = ["SharedReplies"]


class SharedReplies:
    """Of one program. In any thread."""

    def __init__(self) -> None:
        """Nobody waits."""
        # A withdrawal calls back what waits for it, in the same thread.
        self._lock = threading.RLock()
        self._waiting: dict[Future[Any], int] = {}
        """Callers by the reply that they share; as many replies as the program lets requests wait."""

    def share(self, send: "Callable[[], Future[Any]]") -> "Future[Any]":
        """A future for one caller of the reply to what `send` asks for; raises what that raises."""
        with self._lock:
            shared = send()
            self._waiting[shared] = self._waiting.get(shared, 0) + 1
        mine = _CallersReply(lambda callers: self._stop_waiting(shared, callers))
        shared.add_done_callback(mine.copy)
        shared.add_done_callback(self._forget)
        return mine

    def _stop_waiting(self, shared: "Future[Any]", callers: int) -> None:
        with self._lock:
            if shared not in self._waiting:
                return
            self._waiting[shared] -= callers
            if not self._waiting[shared]:
                shared.cancel()

    def _forget(self, shared: "Future[Any]") -> None:
        with self._lock:
            self._waiting.pop(shared, None)


def _nothing(_: int) -> None:
    """A reply that is there is not awaited."""


class _CallersReply(WithdrawableFuture):
    """Cancelled only with the request itself, since a request that runs for others may not be called withdrawn."""

    def __init__(self, stop_waiting: Callable[[int], None]) -> None:
        """`stop_waiting` is told how many callers have stopped, 1 or 0, and withdraws what nobody waits for."""
        super().__init__()
        self._stop_waiting = stop_waiting
        self._once = threading.Lock()

    def cancel(self) -> bool:
        """Stop waiting; returns whether that has withdrawn the request."""
        # A second call must not count for another caller, but may find that the request waits again.
        self._stop_waiting(int(self._once.acquire(blocking=False)))
        return self.cancelled()

    def copy(self, shared: "Future[Any]") -> None:
        """Take over what the shared reply has become."""
        # Each would have the other, and the reply stay until Python looks for such circles.
        self._stop_waiting = _nothing
        if shared.cancelled():
            super().cancel()
            return
        error = shared.exception()
        assert error is None or isinstance(error, Exception)
        give(self, Outcome(error=error) if error is not None else Outcome(value=shared.result()))
