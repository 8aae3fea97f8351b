"""Large answers that are on their way to clients: a few at the same time, since each is in memory until it is read.

All who ask are sent the same bytes, but gRPC copies them for each. So four go at a time, and of very large ones fewer:
as many as have `BYTES_AT_ONCE` together, or one alone. A client that does not read its answer does not keep a place for
ever: after a while the next one goes anyway.
"""

import asyncio
from collections import deque
from collections.abc import Callable

__all__ = ["BYTES_AT_ONCE", "LARGE_AT_ONCE", "LARGE_BYTES", "LARGE_SECONDS_MAX", "LargeAnswers"]

LARGE_BYTES = 512 << 10
LARGE_AT_ONCE = 4
BYTES_AT_ONCE = 40 << 20
LARGE_SECONDS_MAX = 30.0
"""Snapshots of a version that are on their way to clients at the same time, and how long one holds its place."""


class LargeAnswers:
    """The places of a server. Used in its event loop only."""

    def __init__(self) -> None:
        self._going: list[int] = []
        """The sizes of those that have a place."""
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    async def enter(self, size: int) -> Callable[[], None]:
        """Return when there is a place for as many bytes, in turn with others.

        The answer has it until it calls what is returned, or its time is over.
        """
        if self._waiting or not self._has_place(size):
            called: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append((size, called))
            try:
                await called
            except asyncio.CancelledError:
                if called.done() and not called.cancelled():
                    self._free(size)  # its turn came as its client left
                raise
        else:
            self._going.append(size)
        left = False

        def leave() -> None:
            nonlocal left
            if not left:
                left = True
                limit.cancel()
                self._free(size)

        limit = asyncio.get_running_loop().call_later(LARGE_SECONDS_MAX, leave)
        return leave

    def _has_place(self, size: int) -> bool:
        return not self._going or (len(self._going) < LARGE_AT_ONCE and sum(self._going) + size <= BYTES_AT_ONCE)

    def _free(self, size: int) -> None:
        self._going.remove(size)
        while self._waiting and (self._waiting[0][1].done() or self._has_place(self._waiting[0][0])):
            following, called = self._waiting.popleft()
            if not called.done():
                self._going.append(following)
                called.set_result(None)
