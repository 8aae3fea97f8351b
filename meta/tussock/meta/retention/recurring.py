"""When the store's upkeep is due: vacuum, which compares the whole bucket with the version, and whatever else recurs.

Pure but for the clock and the dice that it is given. The thread that runs the work asks `is_due`, does it, and says how
it went: an embedded store's compaction thread, which has nobody to wake it, and the leader of a meta service.
"""

from collections.abc import Callable

from tussock.statestore.base.system import System

__all__ = ["Recurring"]

JITTER_PARTS = 10
"""Intervals differ by up to one part in this many, so that processes that began together drift apart."""

RETRY_SECONDS_MIN = 10.0


class Recurring:
    """One piece of work that recurs. Not safe to share between threads without a lock of the caller's."""

    def __init__(self, system: System, interval: Callable[[], float], *, first_seconds: float | None = None) -> None:
        """It is due `first_seconds` from now, or after an interval.

        Args:
            system: clocks and entropy.
            interval: seconds from one end to the next beginning, asked each time; 0: it is never due.
            first_seconds: until it is due for the first time.
        """
        self._system = system
        self._interval = interval
        self._failures = 0
        self._due = system.monotonic() + (self._jitter(interval()) if first_seconds is None else first_seconds)

    @property
    def is_due(self) -> bool:
        """Whether the time has come."""
        return self._interval() > 0 and self._system.monotonic() >= self._due

    @property
    def due_ms(self) -> int:
        """When it is due next, in Unix milliseconds by this machine's clock; 0: never."""
        if self._interval() <= 0:
            return 0
        left = max(self._due - self._system.monotonic(), 0.0)
        return self._system.now_ms() + int(left * 1000)

    def note_success(self) -> None:
        """Note that it was done just now; the next is due after an interval."""
        self._failures = 0
        self._due = self._system.monotonic() + self._jitter(self._interval())

    def note_failure(self) -> None:
        """Note that an attempt has failed: the next is due in ten seconds, then twenty, and so on up to an interval."""
        pause = min(RETRY_SECONDS_MIN * 2 ** min(self._failures, 30), max(self._interval(), RETRY_SECONDS_MIN))
        self._failures += 1
        self._due = self._system.monotonic() + self._jitter(pause)

    def _jitter(self, seconds: float) -> float:
        """Up to a tenth more or less."""
        chance = int.from_bytes(self._system.random_bytes(4), "big") / 2**32
        return seconds * (1 + (2 * chance - 1) / JITTER_PARTS)
