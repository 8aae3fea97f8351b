"""Epochs, commits and bytes of each of the last seconds, as the log brings them.

Any replica can keep these: it counts the entries that it applies, from all writers. Pure; the clock is a parameter.
"""

from collections.abc import Sequence

from tussock.meta.server.status.document import RatesStatus
from tussock.meta.version.deltas.commits import CommitEpoch
from tussock.meta.version.deltas.delta import Delta
from tussock.meta.version.ranges import total_bytes

__all__ = ["Rates"]

SECONDS_KEPT = 300


class Rates:
    """Counts by whole second of a monotonic clock. Not safe to share between threads: its holder has a lock."""

    def __init__(self, seconds: int = SECONDS_KEPT) -> None:
        self._length = seconds
        self._seconds: dict[int, tuple[int, int, int]] = {}

    def count(self, deltas: Sequence[Delta], now: float) -> None:
        """Count one log entry that was applied at `now`, in seconds of the monotonic clock."""
        commits = [delta for delta in deltas if isinstance(delta, CommitEpoch)]
        if not commits:
            return
        size = sum(total_bytes(run.ssts) for delta in commits for runs in delta.tables.values() for run in runs)
        second = int(now // 1)
        epochs, entries, counted = self._seconds.get(second, (0, 0, 0))
        self._seconds[second] = (epochs + len(commits), entries + 1, counted + size)
        if len(self._seconds) > 2 * self._length:
            self._forget(second)

    def status(self, now: float, now_ms: int) -> RatesStatus:
        """The last whole seconds before `now`; those without a commit are zero. `now_ms` is the wall clock's."""
        current = int(now // 1)
        self._forget(current)
        found = [self._seconds.get(second, (0, 0, 0)) for second in range(current - self._length, current)]
        return RatesStatus(
            end_ms=now_ms - int((now - current) * 1000),
            epochs=tuple(epochs for epochs, _, _ in found),
            commits=tuple(entries for _, entries, _ in found),
            bytes=tuple(size for _, _, size in found),
        )

    def _forget(self, current: int) -> None:
        oldest = current - self._length
        self._seconds = {second: counts for second, counts in self._seconds.items() if second >= oldest}
