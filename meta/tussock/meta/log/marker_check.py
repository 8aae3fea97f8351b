"""How long a check of the truncation markers holds: the clock side of the argument in `log.py` and decision 0013."""

from typing import NamedTuple

from tussock.statestore.base.system import System

__all__ = ["BOUNDARY_CHECK_SECONDS", "TRUNCATION_AGE_MS_MIN", "Moment", "RecentCheck"]

TRUNCATION_AGE_MS_MIN = 30_000
"""Entries younger than this, by the bucket's clock, are never truncated, whatever grace period is asked for."""
BOUNDARY_CHECK_SECONDS = 10.0
"""A check holds for these seconds of this machine's clocks, which may be three times slower than the bucket's."""


class Moment(NamedTuple):
    """One point in time, by both clocks of this machine."""

    seconds: float
    """Monotonic: never set, but may stand still while the machine sleeps."""
    ms: int
    """By the wall clock: goes on meanwhile, but may be set."""

    @classmethod
    def now(cls, system: System) -> "Moment":
        """This one."""
        return cls(system.monotonic(), system.now_ms())

    def is_within(self, seconds: float, system: System) -> bool:
        """Whether it is less than that long ago, by both clocks."""
        now = Moment.now(system)
        # A wall clock that was set back says nothing.
        return now.seconds - self.seconds < seconds and 0 <= now.ms - self.ms < seconds * 1000


class RecentCheck:
    """Remembers when the newest entry was last known for certain to be the newest."""

    def __init__(self, system: System) -> None:
        self._system = system
        self._began: Moment | None = None

    def passed(self, began: Moment) -> None:
        """A check succeeded; `began` is from before the request that found, or made, the newest entry."""
        self._began = began

    def holds(self) -> bool:
        """Whether no marker can cover an entry that came after that check; to be asked after the answer in question."""
        return self._began is not None and self._began.is_within(BOUNDARY_CHECK_SECONDS, self._system)
