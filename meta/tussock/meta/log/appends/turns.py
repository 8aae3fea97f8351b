"""Whose turn it is to append: waits by which many processes share one log evenly, with nobody to ask.

Of all who create the next entry one succeeds, and it knows the newest version at once; the others read first, by which
time it has created the next. Left alone, one process would go on for seconds while all others lose. So a process that
has just succeeded, and has read entries of others lately, waits for as long as those others need for a turn each. One
that lost waits for a moment that is shorter the more often it lost, so that the oldest call goes first.

A process that is alone, or appends less often than its turn comes, never waits. No clocks are compared.
"""

from tussock.statestore.base.system import System

__all__ = ["Turns"]

RECENT_SECONDS = 2.0
"""Another process takes part for this long after its entry was read."""
SLOT_SECONDS_MAX = 0.25
PAUSE_SECONDS_MAX = 2.0
SMOOTHING = 0.2


class Turns:
    """What one process knows of those who append beside it. Not safe to share between threads."""

    def __init__(self, system: System) -> None:
        """Nobody is known yet."""
        self._system = system
        self._seen: dict[str, float] = {}
        self._slot = 0.0
        self._won_at: float | None = None

    def note_rival(self, writer: str) -> None:
        """Note that an entry of another process was read just now."""
        self._seen[writer] = self._system.monotonic()

    def note_attempt(self, seconds: float, *, won: bool) -> None:
        """Note that a create took this long, and made the entry (`won`) or did not."""
        slot = min(seconds, SLOT_SECONDS_MAX)
        self._slot = slot if not self._slot else self._slot + SMOOTHING * (slot - self._slot)
        if won:
            self._won_at = self._system.monotonic()

    def pause(self) -> float:
        """Seconds to wait before an append, so that others have their turn."""
        rivals = self._rivals()
        if not rivals or self._won_at is None:
            return 0.0
        turns = min(self._slot * rivals, PAUSE_SECONDS_MAX)
        return max(0.0, self._won_at + turns * (0.5 + self._chance() / 2) - self._system.monotonic())

    def retry_seconds(self, times: int) -> float:
        """Seconds to wait after this many creates in a row at which another process was faster."""
        return min(self._slot * self._rivals(), PAUSE_SECONDS_MAX) * self._chance() * 0.5**times

    def _rivals(self) -> int:
        oldest = self._system.monotonic() - RECENT_SECONDS
        if self._seen:
            self._seen = {writer: at for writer, at in self._seen.items() if at > oldest}
        return len(self._seen)

    def _chance(self) -> float:
        return int.from_bytes(self._system.random_bytes(4), "big") / 2**32
