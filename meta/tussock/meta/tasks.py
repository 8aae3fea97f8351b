"""The life of a compaction task in the version: claimed, then reported, given up or taken back.

Claims go through the log, so two processes never do the same work, and a report is checked against the version it
lands on, so a task that was taken back changes nothing. What keeps reads right is one rule, checked at the claim:

* An input may pass an older SST on its way down only if they share no key. So every SST that overlaps an input,
  is older than it and stands at or above the target, must be an input too.

Two more rules keep the target level sorted: every SST of the target that lies between the inputs' outermost keys is
an input (outputs may span that whole range), and no other live task is about to write into that range of that level.
Both stay true while the task runs: its inputs are taken, and commits only add on top.
"""

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from tussock.meta.commits import check_uploads
from tussock.meta.ranges import hull, is_sorted_run, older_overlap, overlap_in_run, ranks, target_rank
from tussock.meta.version import CompactionTask, DroppedSst, Version
from tussock.statestore.catalog import SstInfo, SubLevel, TableLevels
from tussock.statestore.errors import Conflict, Fenced, InvalidBatch, InvalidOption, TableNotFound

__all__ = [
    "ClaimCompaction",
    "ReleaseCompaction",
    "ReportCompaction",
    "apply_claim",
    "apply_release",
    "apply_report",
    "drop_ssts",
    "targets_collide",
    "validate_claim",
    "validate_release",
    "validate_report",
]

LEVELS_MAX = 6


class ClaimCompaction(msgspec.Struct, frozen=True, kw_only=True, tag="claim_compaction", tag_field="type"):
    """Someone starts a compaction; its inputs are reserved."""

    task: CompactionTask


class ReportCompaction(msgspec.Struct, frozen=True, kw_only=True, tag="report_compaction", tag_field="type"):
    """A compaction is done: the outputs replace the inputs, the inputs become dropped."""

    task_id: str
    owner: str
    outputs: tuple[SstInfo, ...]
    watermark: int
    """The watermark that the merge really used; at most the task's."""
    at_ms: int


class ReleaseCompaction(msgspec.Struct, frozen=True, kw_only=True, tag="release_compaction", tag_field="type"):
    """A task is given up by its owner, or taken back by anyone once it has expired; its inputs are free again."""

    task_id: str
    owner: str
    """Who releases."""
    at_ms: int


def validate_claim(version: Version, delta: ClaimCompaction) -> None:
    """Raise `Conflict` unless the task's inputs are there, free and may be merged into its target."""
    task = delta.task
    state = version.tables.get(task.table_id)
    if state is None:
        raise TableNotFound(f"compaction task {task.id}: table with id {task.table_id} is not in the store")
    inputs = task.ssts()
    if not inputs or not 0 <= task.target_level <= LEVELS_MAX or not all(is_sorted_run(run) for run in task.inputs):
        raise InvalidOption(
            f"compaction task {task.id} on {state.spec.name!r}: needs inputs in sorted runs and a target level from 0 "
            f"to {LEVELS_MAX}, has {len(inputs)} inputs and target level {task.target_level}"
        )
    where = ranks(state.levels)
    busy = version.busy_sst_ids()
    known = {sst.id: sst for sst in state.levels.ssts()}
    for sst in inputs:
        if known.get(sst.id) != sst:
            raise _refused(task, f"input SST {sst.id} is not in the table (any more)")
        if sst.id in busy:
            raise _refused(task, f"input SST {sst.id} belongs to another task")
    if task.id in version.tasks or len({sst.id for sst in inputs}) != len(inputs):
        raise _refused(task, "the task or one of its inputs is named twice")
    run_ranks = [{where[sst.id] for sst in run} for run in task.inputs]
    flat = [rank for found in run_ranks for rank in found]
    if any(len(found) != 1 for found in run_ranks) or flat != sorted(set(flat)):
        raise _refused(task, "its input runs are not runs of the table from new to old")
    if flat[-1] > target_rank(state.levels, flat, task.target_level):
        raise _refused(task, f"an input is older than the target level {task.target_level}")
    if task.target_level == 0:
        _check_whole_sublevels(task, state.levels, flat)
    else:
        _check_target_level(version, task, state.levels)
    _check_age_order(task, state.levels, where)


def validate_report(version: Version, delta: ReportCompaction) -> None:
    """Raise `Fenced` if the task is no longer its owner's, `StaleUpload` or `InvalidBatch` if outputs do not fit."""
    task = version.tasks.get(delta.task_id)
    if task is None or task.owner != delta.owner:
        raise Fenced(
            f"compaction task {delta.task_id} is not held by {delta.owner!r} at log sequence {version.seq}: "
            f"{'it was taken back or its table dropped' if task is None else f'{task.owner!r} holds it'}; "
            "nothing changed, throw its outputs away"
        )
    old_ids = {sst.id for sst in task.ssts()}
    if task.kind == "trivial-move":
        if {sst.id for sst in delta.outputs} != old_ids:
            raise InvalidBatch(f"compaction task {task.id}: a trivial move must put out exactly its inputs")
        return
    check_uploads(version, [sst.id for sst in delta.outputs])
    low, high = hull(task.ssts())
    newest = max(sst.max_epoch for sst in task.ssts())
    for sst in delta.outputs:
        if sst.source:
            raise InvalidBatch(
                f"compaction task {task.id}: output SST {sst.id} is said to lie in {sst.source}; outputs are uploaded "
                "to the store's own bucket"
            )
        if sst.id in old_ids or sst.smallest < low or sst.largest > high or sst.max_epoch > newest:
            raise InvalidBatch(f"compaction task {task.id}: output SST {sst.id} holds keys or epochs that no input had")
    if not is_sorted_run(delta.outputs) or len({sst.id for sst in delta.outputs}) != len(delta.outputs):
        raise InvalidBatch(
            f"compaction task {task.id}: outputs are not one sorted run: {[s.id for s in delta.outputs]}"
        )
    if delta.watermark > task.watermark:
        raise InvalidBatch(
            f"compaction task {task.id}: used watermark {delta.watermark}, but was given {task.watermark}"
        )


def validate_release(version: Version, delta: ReleaseCompaction) -> None:
    """Raise `Fenced` if the task is gone, or is someone else's and has not expired."""
    task = version.tasks.get(delta.task_id)
    if task is None or (task.owner != delta.owner and delta.at_ms <= task.expires_ms):
        raise Fenced(
            f"compaction task {delta.task_id} cannot be released by {delta.owner!r}: "
            f"{'it is not in the version' if task is None else f'{task.owner!r} holds it until {task.expires_ms} ms'}"
        )


def apply_claim(version: Version, delta: ClaimCompaction) -> Version:
    """The version with the task in it."""
    return replace(version, tasks={**version.tasks, delta.task.id: delta.task})


def apply_release(version: Version, delta: ReleaseCompaction) -> Version:
    """The version without the task; its inputs stay where they are."""
    return replace(version, tasks={key: task for key, task in version.tasks.items() if key != delta.task_id})


def apply_report(version: Version, delta: ReportCompaction) -> Version:
    """The version with the outputs in place of the inputs."""
    task = version.tasks[delta.task_id]
    state = version.tables[task.table_id]
    new_ids = {sst.id for sst in delta.outputs}
    gone = [sst for sst in task.ssts() if sst.id not in new_ids]
    after = replace(
        version,
        tables={**version.tables, task.table_id: replace(state, levels=_replaced(state.levels, task, delta.outputs))},
        tasks={key: other for key, other in version.tasks.items() if key != task.id},
        compacted_epoch=max(version.compacted_epoch, delta.watermark),
    )
    return drop_ssts(after, gone, delta.at_ms)


def drop_ssts(version: Version, ssts: Sequence[SstInfo], at_ms: int) -> Version:
    """Note SSTs that left the tree with the entry that comes after `version`."""
    seq = version.seq + 1
    fresh = tuple(DroppedSst(id=sst.id, seq=seq, dropped_ms=at_ms, source=sst.source) for sst in ssts)
    return replace(version, dropped=version.dropped + fresh) if fresh else version


def targets_collide(task: CompactionTask, other: CompactionTask) -> bool:
    """Whether two tasks of one table may both write into the same range of the same level."""
    if task.table_id != other.table_id or task.target_level != other.target_level or task.target_level == 0:
        return False
    (low, high), (other_low, other_high) = hull(task.ssts()), hull(other.ssts())
    return low <= other_high and other_low <= high


def _check_whole_sublevels(task: CompactionTask, levels: TableLevels, flat: list[int]) -> None:
    whole = all(len(run) == len(levels.l0[rank].ssts) for run, rank in zip(task.inputs, flat, strict=True))
    if flat != list(range(flat[0], flat[-1] + 1)) or not whole:
        raise _refused(task, "a merge inside L0 takes whole sublevels that follow each other")


def _check_target_level(version: Version, task: CompactionTask, levels: TableLevels) -> None:
    target = levels.levels[task.target_level - 1] if task.target_level <= len(levels.levels) else ()
    ids = {sst.id for sst in task.ssts()}
    # Moved files keep their own bounds; merged ones may span everything between the outermost keys.
    spans = [(sst.smallest, sst.largest) for sst in task.ssts()] if task.kind == "trivial-move" else [hull(task.ssts())]
    for span in spans:
        for sst in overlap_in_run(target, span):
            if sst.id not in ids:
                raise _refused(
                    task, f"SST {sst.id} of target level {task.target_level} is in its range and not among its inputs"
                )
    rival = next((other.id for other in version.tasks.values() if targets_collide(task, other)), None)
    if rival is not None:
        raise _refused(task, f"task {rival} is about to write into the same range of level {task.target_level}")


def _check_age_order(task: CompactionTask, levels: TableLevels, where: dict[str, int]) -> None:
    ids = {sst.id for sst in task.ssts()}
    last = target_rank(levels, [where[sst_id] for sst_id in ids], task.target_level)
    for sst in task.ssts():
        for older in older_overlap(levels, sst, where[sst.id], last):
            if older.id not in ids:
                raise _refused(
                    task, f"input SST {sst.id} would pass the older SST {older.id}, which shares keys with it"
                )
        if task.bottom and any(older.id not in ids for older in older_overlap(levels, sst, where[sst.id])):
            raise _refused(task, f"it claims the bottom, but older rows may lie below its input SST {sst.id}")


def _replaced(levels: TableLevels, task: CompactionTask, outputs: tuple[SstInfo, ...]) -> TableLevels:
    gone = {sst.id for sst in task.ssts()}
    l0: list[SubLevel] = []
    placed = task.target_level != 0 or not outputs
    for sub in levels.l0:
        kept = tuple(sst for sst in sub.ssts if sst.id not in gone)
        if len(kept) != len(sub.ssts) and not placed:
            # The inputs are neighbours and taken whole, so the first one's place is the merged run's place.
            l0.append(SubLevel(ssts=outputs))
            placed = True
        if kept:
            l0.append(sub if len(kept) == len(sub.ssts) else SubLevel(ssts=kept))
    below = [tuple(sst for sst in level if sst.id not in gone) for level in levels.levels]
    if task.target_level and outputs:
        below.extend([()] * (task.target_level - len(below)))
        merged = (*below[task.target_level - 1], *outputs)
        below[task.target_level - 1] = tuple(sorted(merged, key=lambda sst: sst.smallest))
    while below and not below[-1]:
        below.pop()
    return TableLevels(l0=tuple(l0), levels=tuple(below))


def _refused(task: CompactionTask, why: str) -> Conflict:
    return Conflict(f"compaction task {task.id} ({task.kind}, table id {task.table_id}) is refused: {why}; pick again")
