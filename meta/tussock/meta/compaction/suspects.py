"""Failed compactions: what they wanted to merge is left alone for a while, twice as long after each failure.

So damaged data does not keep all slots busy, or the only thread that an embedded store has, and all else goes on. An
embedded store remembers its own failures, the leader of a platform those of its compactors. No I/O and no clock: times
are parameters, in seconds on a monotonic clock. What is remembered is lost with the process.
"""

from collections.abc import Container

import msgspec

from tussock.meta.version.version import CompactionTask

__all__ = ["Suspects"]

FAILURE_SECONDS = 5.0
FAILURE_SECONDS_MAX = 300.0


class _Failure(msgspec.Struct):
    task: CompactionTask
    count: int
    until: float


class Suspects:
    """The failures that are remembered. Not safe to share between threads."""

    def __init__(
        self, failure_seconds: float = FAILURE_SECONDS, failure_seconds_max: float = FAILURE_SECONDS_MAX
    ) -> None:
        """The first pause, and the longest one."""
        self._seconds = failure_seconds
        self._seconds_max = failure_seconds_max
        self._failures: list[_Failure] = []

    def note_failure(self, task: CompactionTask, now: float) -> float:
        """Note that the task failed; returns the seconds for which its inputs are left alone."""
        count = 1 + max((failure.count for failure in self._failures if _share(failure.task, task)), default=0)
        # The exponent is bounded: a table that stays damaged for days fails some thousand times.
        pause = min(self._seconds * 2 ** min(count - 1, 30), self._seconds_max)
        self.note_success(task)
        self._failures.append(_Failure(task, count, now + pause))
        return pause

    def note_success(self, task: CompactionTask) -> None:
        """Note that the task was done: what it merged is no longer suspect."""
        self._failures = [failure for failure in self._failures if not _share(failure.task, task)]

    def tasks(self, now: float) -> list[CompactionTask]:
        """Failed tasks whose inputs are still left alone; to be picked around like running ones."""
        return [failure.task for failure in self._failures if failure.until > now]

    def again_at(self, table_id: int, now: float) -> float | None:
        """When the next pause of a table ends; `None` if it has none."""
        ends = [one.until for one in self._failures if one.task.table_id == table_id and one.until > now]
        return min(ends, default=None)

    def forget(self, tables: Container[int], now: float) -> None:
        """Remember only failures of these tables that are not too long ago."""
        # Beyond its pause for as long again: the next failure of the same inputs counts on from it.
        self._failures = [
            failure
            for failure in self._failures
            if failure.task.table_id in tables and now < failure.until + self._seconds_max
        ]


def _share(left: CompactionTask, right: CompactionTask) -> bool:
    """Whether two tasks have an input in common."""
    return not {sst.id for sst in left.ssts()}.isdisjoint(sst.id for sst in right.ssts())
