"""What a run of an application counts, for its statistics; one thread counts, and others look."""

from tussock.compute.applications.durability.background import BackgroundCommit
from tussock.compute.applications.durability.log_writer import LogWriter

__all__ = ["RunCounts"]


class RunCounts:
    """From the start of a run."""

    def __init__(self, writer: LogWriter) -> None:
        """Nothing has run. `writer` makes durable what runs."""
        self._writer = writer
        self.records = 0
        self._commits = 0
        self._before_cut = 0

    def cut(self, before: int) -> None:
        """A commit begins; what was committed until then ends with the record `before`."""
        self._commits += 1
        self._before_cut = before

    @property
    def unwritten(self) -> int:
        """Records that are not durable yet, of which nobody was told."""
        return max(self.records - self._writer.records, 0)

    def told(self, newest: int, newest_cut: int, commit: BackgroundCommit | None) -> dict[str, int]:
        """All of them: `newest` is the newest record, `newest_cut` that of the cut which `commit` commits."""
        committed = newest_cut if commit is None or commit.is_done else self._before_cut
        return {
            "records": self.records,
            "log_writes": self._writer.writes,
            "commits": self._commits,
            "uncommitted": max(newest - committed, 0),
        }
