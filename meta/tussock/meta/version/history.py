"""History in a version: what compaction took out of a table's live tree, for readers at older epochs.

A row of history says for which epochs it is, so no run of it hides rows of another, and its SSTs may go one by one
(`docs/decisions/0030-superseded-rows-are-history.md` has the proof). Runs lie in the order in which they were parted,
the newest first: of two rows of one key and epoch, the one that was parted first counts. So a merge takes neighbours.
"""

from collections.abc import Collection, Iterable, Sequence
from itertools import pairwise

from msgspec.structs import replace

from tussock.meta.version.version import CompactionTask
from tussock.statestore.contract.records import Run, SstInfo, TableLevels

__all__ = [
    "claimed_history",
    "find_neighbours",
    "history_problem",
    "is_history_run",
    "with_parted",
    "without_expired",
    "without_merged",
]


def claimed_history(tasks: Iterable[CompactionTask]) -> set[str]:
    """Ids of the SSTs of history that tasks merge."""
    return {sst.id for task in tasks if task.kind == "history" for sst in task.ssts()}


def find_neighbours(levels: TableLevels, inputs: Sequence[Sequence[SstInfo]]) -> range | None:
    """The places in history of these runs; `None` unless they are whole runs that follow each other, newest first."""
    first = next((at for at, run in enumerate(levels.history) if run.ssts[:1] == tuple(inputs[0][:1])), None)
    if first is None:
        return None
    there = [run.ssts for run in levels.history[first : first + len(inputs)]]
    return range(first, first + len(inputs)) if there == [tuple(run) for run in inputs] else None


def with_parted(levels: TableLevels, ssts: Sequence[SstInfo]) -> TableLevels:
    """The levels with what one task parted, SSTs by key ascending, as the newest of history."""
    return replace(levels, history=_runs(ssts) + levels.history) if ssts else levels


def without_merged(levels: TableLevels, where: range, ssts: Sequence[SstInfo]) -> TableLevels:
    """The levels with these SSTs, by key ascending, in place of the runs of history there."""
    history = levels.history
    return replace(levels, history=history[: where.start] + _runs(ssts) + history[where.stop :])


def without_expired(levels: TableLevels, epoch: int, claimed: Collection[str]) -> tuple[TableLevels, list[SstInfo]]:
    """The levels without the SSTs of history that no reader at that epoch or later needs, and those.

    What a task has claimed, by its id, stays: the task drops its rows, or gives it back.
    """
    expired = [sst for sst in levels.history_ssts() if sst.until <= epoch and sst.id not in claimed]
    if not expired:
        return levels, []
    ids = {sst.id for sst in expired}
    runs = [Run(ssts=tuple(sst for sst in run.ssts if sst.id not in ids)) for run in levels.history]
    return replace(levels, history=tuple(run for run in runs if run.ssts)), expired


def is_history_run(ssts: Sequence[SstInfo]) -> bool:
    """Whether SSTs are a run of history: by key ascending, and no two with a common key but where one goes on.

    The versions of a key are parted where they are too many for one SST: the oldest are alone in the SSTs that follow.
    """
    return all(sst.smallest <= sst.largest for sst in ssts) and all(
        left.largest < right.smallest or _goes_on(left, right) for left, right in pairwise(ssts)
    )


def _goes_on(left: SstInfo, right: SstInfo) -> bool:
    """Whether one SST has only versions of the last key of the one before it, and older ones, as far as is known."""
    if not left.largest == right.smallest == right.largest:
        return False
    return left.smallest < left.largest or left.min_epoch > right.max_epoch


def history_problem(ssts: Sequence[SstInfo], until_max: int) -> str:
    """Why these cannot be what a task puts out as history; empty if they can."""
    for sst in ssts:
        if not sst.max_epoch <= sst.until <= until_max or sst.epoch:
            return f"SST {sst.id} of history has epochs up to {sst.max_epoch} until {sst.until}, at most {until_max}"
    if not is_history_run(ssts):
        return f"history is not a sorted run: {[sst.id for sst in ssts]}"
    return ""


def _runs(ssts: Sequence[SstInfo]) -> tuple[Run, ...]:
    return (Run(ssts=tuple(ssts)),) if ssts else ()
