"""An event loop whose time passes at once whenever it would wait.

So pauses cost tests nothing, and no machine is too slow for them. For code that waits by asyncio alone: what comes from
sockets, threads or processes takes real time.
"""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

__all__ = ["run_in_virtual_time"]

T = TypeVar("T")


class _Clock(selectors.DefaultSelector):
    """Asked to wait, it says that the time is over."""

    seconds = 0.0

    def select(self, timeout: float | None = None) -> "list[tuple[selectors.SelectorKey, int]]":
        ready = super().select(0)
        if not ready:
            assert timeout is not None, "nothing will ever happen: everything waits, and not for a time"
            self.seconds += max(timeout, 0.0)
        return ready


class _Loop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._clock = _Clock()
        super().__init__(self._clock)

    def time(self) -> float:
        return self._clock.seconds


def run_in_virtual_time(test: Coroutine[Any, Any, T]) -> T:
    """`asyncio.run` in such a loop; `loop.time()` begins at zero."""
    with asyncio.Runner(loop_factory=_Loop) as runner:
        return runner.run(test)
