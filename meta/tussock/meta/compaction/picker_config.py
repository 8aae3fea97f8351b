"""What all kinds of picking share: the options, the result, and a table seen together with the tasks that run on it."""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from tussock.meta.version.ranges import hull, older_overlap, overlap_in_run, ranks
from tussock.meta.version.version import CompactionKind, CompactionTask
from tussock.statestore.contract.records import SstInfo, TableState

__all__ = ["Candidate", "Pick", "PickerConfig", "Table", "pick_of"]


class PickerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes and counts that decide when to compact; bytes are those in the bucket."""

    base_bytes: int = 64 << 20
    """What L1 may hold; each further level ten times as much."""
    level_ratio: int = 10
    l0_merge_min: int = 4
    l0_merge_max: int = 16
    l0_similar_ratio: int = 4
    """Runs are similar if the largest is at most this many times the smallest."""
    l0_small_bytes: int = 64 << 10
    """Runs below this count as this large: a request costs the same for all of them."""
    l0_runs_max: int = 12
    """With this many runs, L0 is compacted into L1 even if it has few bytes."""
    l0_stall_runs: int = 128
    """With this many runs in L0 writes wait; with half as many they are slowed down. So with the next two."""
    l0_stall_files: int = 4096
    l0_stall_bytes: int = 8 << 30
    task_bytes_max: int = 1 << 30
    """Input of one task; a manual one takes the whole table."""
    tombstone_percent: int = 40
    history_merge_min: int = 8
    """With this many neighbouring runs of history of similar size, they become one."""
    history_runs_max: int = 64
    """With this many, neighbours are merged whatever their sizes."""

    def level_bytes_max(self, level: int) -> int:
        """What level `level` (from 1) may hold."""
        return int(self.base_bytes * self.level_ratio ** (level - 1))


class Pick(NamedTuple):
    """A compaction worth doing; it becomes a task when it is claimed."""

    kind: CompactionKind
    inputs: tuple[tuple[SstInfo, ...], ...]
    """Sorted runs, newest first."""
    target_level: int
    bottom: bool
    score: float
    reason: str


class Candidate(msgspec.Struct, frozen=True):
    """One thing that could be done for a table; whether it can be picked depends on what runs already."""

    score: float
    kind: str
    level: int
    reason: str


class Table:
    """A table's levels and what running tasks have reserved of them."""

    def __init__(self, state: TableState, tasks: Sequence[CompactionTask]) -> None:
        self.state = state
        self.tasks = [task for task in tasks if task.table_id == state.spec.id]
        self.busy = {sst.id for task in self.tasks for sst in task.ssts()}
        self.ranks = ranks(state.levels)

    def level(self, number: int) -> Sequence[SstInfo]:
        """The files of level `number`, from 1; none if the tree is not that deep."""
        levels = self.state.levels.levels
        return levels[number - 1] if number <= len(levels) else ()

    def is_contested(self, ssts: Sequence[SstInfo], target: int) -> bool:
        """Whether a running task may write into the range of `ssts` on level `target`."""
        low, high = hull(ssts)
        for task in self.tasks:
            other_low, other_high = hull(task.ssts())
            if task.target_level == target and low <= other_high and other_low <= high:
                return True
        return False

    def free_overlap(self, ssts: Sequence[SstInfo], target: int) -> list[SstInfo] | None:
        """What level `target` holds between the outermost keys of `ssts`; `None` if a task is in the way."""
        found = list(overlap_in_run(self.level(target), hull(ssts)))
        if any(sst.id in self.busy for sst in found) or self.is_contested([*ssts, *found], target):
            return None
        return found

    def is_bottom(self, ssts: Sequence[SstInfo]) -> bool:
        """Whether no file beside `ssts` can hold older rows of their keys."""
        ids = {sst.id for sst in ssts}
        return not any(
            older.id not in ids for sst in ssts for older in older_overlap(self.state.levels, sst, self.ranks[sst.id])
        )


def pick_of(table: Table, kind: CompactionKind, runs: Sequence[Sequence[SstInfo]], target: int) -> Pick:
    """The pick of `runs` (newest first, empty ones left out) for `target`."""
    inputs = tuple(tuple(run) for run in runs if run)
    flat = [sst for run in inputs for sst in run]
    bottom = kind != "trivial-move" and table.is_bottom(flat)
    return Pick(kind, inputs, target, bottom, 0.0, "")
