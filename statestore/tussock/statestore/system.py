"""The only module that asks the machine for time and randomness.

Everything else takes a `System`, so that a test (and later the simulator) decides what time it is and which ids
come next. A lint in `tests/test_tidy.py` bans `time.time`, `random`, `uuid4` and friends elsewhere.
"""

import secrets
import time
from typing import Protocol

__all__ = ["RealSystem", "System"]


class System(Protocol):
    """Where time and randomness come from."""

    def now_ms(self) -> int:
        """Milliseconds since the Unix epoch, by the wall clock; may jump either way."""

    def monotonic(self) -> float:
        """Seconds on a clock that only moves forward; its zero means nothing."""

    def sleep(self, seconds: float) -> None:
        """Wait that many seconds."""

    def random_bytes(self, count: int) -> bytes:
        """`count` bytes that no other call, on any machine, will return."""


class RealSystem:
    """The machine's clocks and its entropy."""

    def now_ms(self) -> int:
        """Milliseconds since the Unix epoch."""
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        """Seconds on the machine's monotonic clock."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Block this thread."""
        time.sleep(seconds)

    def random_bytes(self, count: int) -> bytes:
        """`count` bytes from the operating system."""
        return secrets.token_bytes(count)
