"""Large answers that are on their way to clients: a few at the same time, since each is in memory until it is read.

A client that does not read its answer does not keep a place for ever: after a while the next one goes anyway.
"""

import asyncio
from collections.abc import Callable

__all__ = ["LARGE_AT_ONCE", "LARGE_BYTES", "LARGE_SECONDS_MAX", "LargeAnswers"]

LARGE_BYTES = 512 << 10
LARGE_AT_ONCE = 4
LARGE_SECONDS_MAX = 30.0
"""Snapshots of a version that are on their way to clients at the same time, and how long one holds its place."""


class LargeAnswers:
    """The places of a server. Used in its event loop only."""

    def __init__(self) -> None:
        self._places = asyncio.Semaphore(LARGE_AT_ONCE)

    async def enter(self) -> Callable[[], None]:
        """Return when there is a place; the answer has it until it calls what is returned, or its time is over."""
        await self._places.acquire()
        left = False

        def leave() -> None:
            nonlocal left
            if not left:
                left = True
                limit.cancel()
                self._places.release()

        limit = asyncio.get_running_loop().call_later(LARGE_SECONDS_MAX, leave)
        return leave
