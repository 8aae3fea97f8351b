"""Whose call is next: each caller in turn, so that one that makes many waits for itself.

Calls of one caller are begun in the order in which they came. A caller is a session, or, for calls that belong to none,
an identity on a host.
"""

import asyncio
import contextlib
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Hashable

from tussock.statestore.errors import RateLimited

__all__ = ["CallTurns"]

WAITING_MAX = 2000
CALLERS_WAITING_MAX = 500
"""Calls of one caller that wait."""
AGAIN_MS = 100


class CallTurns:
    """A number of calls at once, and the others in turn. Used by the event loop only."""

    def __init__(self, at_once: int) -> None:
        self._at_once = at_once
        self._running = 0
        self._waiting: OrderedDict[Hashable, deque[asyncio.Future[None]]] = OrderedDict()
        self._all = 0

    @contextlib.asynccontextmanager
    async def turn(self, who: Hashable) -> AsyncIterator[None]:
        """Wait for a turn, and have it; `RateLimited` if too many wait already."""
        if self._running < self._at_once:
            self._running += 1
        else:
            await self._wait(who)
        try:
            yield
        finally:
            self._next()

    async def _wait(self, who: Hashable) -> None:
        own = len(self._waiting.get(who, ()))
        if self._all >= WAITING_MAX or own >= CALLERS_WAITING_MAX:
            raise RateLimited(
                f"{self._all} calls wait already, {own} of them of this caller; wait {AGAIN_MS} ms", AGAIN_MS
            )
        queue = self._waiting.setdefault(who, deque())
        called: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        queue.append(called)
        self._all += 1
        try:
            await called
        except asyncio.CancelledError:
            if called.done() and not called.cancelled():
                self._next()  # its turn came as its caller left
            raise

    def _next(self) -> None:
        """A turn is over: the caller whose last one is longest ago has the next."""
        while self._waiting:
            who, queue = self._waiting.popitem(last=False)
            called = queue.popleft()
            self._all -= 1
            if queue:
                self._waiting[who] = queue
            if not called.done():
                called.set_result(None)
                return
        self._running -= 1
