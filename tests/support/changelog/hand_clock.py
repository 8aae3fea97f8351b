"""A system whose wall clock stands where a test has set it; all else is real."""

from tussock.statestore.base.system import RealSystem

__all__ = ["HandClock"]

ZERO_MS = 1_700_000_000_000


class HandClock(RealSystem):
    """The wall clock counts from a moment in 2023."""

    def __init__(self) -> None:
        self._ms = ZERO_MS

    def set(self, seconds: float) -> None:
        """That many seconds after its zero."""
        self._ms = ZERO_MS + int(seconds * 1000)

    def now_ms(self) -> int:
        """Where it stands."""
        return self._ms
