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
from operator import attrgetter

import msgspec
from msgspec.structs import replace

from tussock.meta.version.deltas.commits import check_uploads
from tussock.meta.version.history import (
    claimed_history,
    find_neighbours,
    history_problem,
    is_history_run,
    with_parted,
    without_expired,
    without_merged,
)
from tussock.meta.version.ranges import hull, is_sorted_run, locate, overlap_in_run, ranked_runs, target_rank
from tussock.meta.version.version import CompactionTask, Version
from tussock.statestore.contract.chunked import Chunked, lower_bound, upper_bound
from tussock.statestore.contract.records import Run, SstInfo, TableLevels, entry_path
from tussock.statestore.errors import Conflict, Fenced, InvalidBatch, InvalidOption, TableNotFound

__all__ = [
    "TASK_LEASE_MS",
    "ClaimCompaction",
    "PauseCompaction",
    "ReleaseCompaction",
    "ReportCompaction",
    "expired_tasks",
    "targets_collide",
]

LEVELS_MAX = 6

TASK_LEASE_MS = 30_000
"""A task is out of everybody's reach for this long after its owner was last heard of.

It is short, since processes that commit to an embedded store, such as Spark's Python workers, may be killed at any
time. A process that works on a task for longer renews its lease. Losing a lease costs work, not data."""

_ID = attrgetter("id")
_SMALLEST = attrgetter("smallest")


class ClaimCompaction(msgspec.Struct, frozen=True, kw_only=True, tag="claim_compaction", tag_field="type"):
    """Someone starts a compaction; its inputs are reserved.

    One that is there already, by its owner and with nothing but a later end, has its lease renewed.
    """

    task: CompactionTask

    @property
    def is_renewal(self) -> bool:
        """For people: whether somebody has worked on it for a while already."""
        return self.task.expires_ms - self.task.claimed_ms > TASK_LEASE_MS

    def validate(self, version: Version) -> None:
        """Raise `Conflict` unless the task's inputs are there, free and may be merged into its target."""
        task = self.task
        known = version.tasks.get(task.id)
        if (
            known is not None
            and known.expires_ms < task.expires_ms
            and replace(known, expires_ms=task.expires_ms) == task
        ):
            return
        state = version.tables.get(task.table_id)
        if state is None:
            raise TableNotFound(f"compaction task {task.id}: table with id {task.table_id} is not in the store")
        inputs = task.ssts()
        is_run = is_history_run if task.kind == "history" else is_sorted_run
        if not inputs or not 0 <= task.target_level <= LEVELS_MAX or not all(is_run(run) for run in task.inputs):
            raise InvalidOption(
                f"compaction task {task.id} on {state.spec.name!r}: needs inputs in sorted runs and a target level "
                f"from 0 to {LEVELS_MAX}, has {len(inputs)} inputs and target level {task.target_level}"
            )
        _check_free(version, task)
        if task.kind == "history":
            if task.target_level or find_neighbours(state.levels, task.inputs) is None:
                raise _refusal(task, "a merge of history takes whole runs of it that follow each other")
            return
        where = locate(state.levels, task.inputs)
        if where is None:
            raise _refusal(task, _why_not_there(state.levels, inputs))
        if where[-1] > target_rank(state.levels, where, task.target_level):
            raise _refusal(task, f"an input is older than the target level {task.target_level}")
        if task.target_level == 0:
            _check_whole_runs(task, state.levels, where)
        else:
            _check_target_level(version, task, state.levels)
        _check_age_order(task, state.levels, where)

    def apply(self, version: Version) -> Version:
        """The version with the task in it."""
        return replace(version, tasks={**version.tasks, self.task.id: self.task})


class ReportCompaction(msgspec.Struct, frozen=True, kw_only=True, tag="report_compaction", tag_field="type"):
    """A compaction is done: the outputs replace the inputs, the inputs become dropped.

    So does what of the table's history no reader needs at the watermark or later.
    """

    task_id: str
    owner: str
    outputs: tuple[SstInfo, ...]
    """Of the live tree; none of a merge of history."""
    watermark: int
    """The watermark that the merge really used; at most the task's."""
    at_ms: int
    history: tuple[SstInfo, ...] = ()
    """What the merge took out of the live tree, or made of runs of history; a sorted run."""

    def validate(self, version: Version) -> None:
        """Raise `Fenced` if the task is not its owner's, `StaleUpload` or `InvalidBatch` if outputs do not fit."""
        task = version.tasks.get(self.task_id)
        if task is None or task.owner != self.owner:
            raise Fenced(
                f"compaction task {self.task_id} is not held by {self.owner!r} at log sequence {version.seq}: "
                f"{'it was taken back or its table dropped' if task is None else f'{task.owner!r} holds it'}; "
                "nothing changed, throw its outputs away"
            )
        old_ids = {sst.id for sst in task.ssts()}
        if task.kind == "trivial-move":
            if {sst.id for sst in self.outputs} != old_ids or self.history:
                raise InvalidBatch(f"compaction task {task.id}: a trivial move must put out exactly its inputs")
            return
        every = (*self.outputs, *self.history)
        check_uploads(version, [sst.id for sst in every])
        low, high = hull(task.ssts())
        newest = max(sst.max_epoch for sst in task.ssts())
        for sst in every:
            if sst.source or sst.entry:
                raise InvalidBatch(
                    f"compaction task {task.id}: output SST {sst.id} is said to lie in "
                    f"{sst.source or entry_path(sst.entry)}; outputs are uploaded as objects to the store's own bucket"
                )
            if sst.id in old_ids or sst.smallest < low or sst.largest > high or sst.max_epoch > newest:
                raise InvalidBatch(
                    f"compaction task {task.id}: output SST {sst.id} holds keys or epochs that no input had"
                )
        if not is_sorted_run(self.outputs) or len({sst.id for sst in every}) != len(every):
            raise InvalidBatch(
                f"compaction task {task.id}: outputs are not one sorted run: {[s.id for s in self.outputs]}"
            )
        self._check_parted(task, newest)
        if self.watermark > task.watermark:
            raise InvalidBatch(
                f"compaction task {task.id}: used watermark {self.watermark}, but was given {task.watermark}"
            )

    def _check_parted(self, task: CompactionTask, newest: int) -> None:
        """Raise `InvalidBatch` if what is said to be history is not, or the other way round."""
        is_history = task.kind == "history"
        if any(sst.until for sst in self.outputs) or (self.outputs and is_history):
            # Also where an older release has merged history as if it were live.
            raise InvalidBatch(f"compaction task {task.id}: puts history into the live tree; it would hide rows there")
        if self.history and not (task.parted or is_history):
            raise InvalidBatch(f"compaction task {task.id}: puts out history, which it was not asked for")
        until_max = max(sst.until for sst in task.ssts()) if is_history else newest
        if problem := history_problem(self.history, until_max):
            raise InvalidBatch(f"compaction task {task.id}: {problem}")

    def apply(self, version: Version) -> Version:
        """The version with the outputs in place of the inputs."""
        task = version.tasks[self.task_id]
        state = version.tables[task.table_id]
        new_ids = {sst.id for sst in self.outputs}
        gone = [sst for sst in task.ssts() if sst.id not in new_ids]
        # Beside pins and retention the watermark is what a vacuum would let history expire by.
        claimed = claimed_history(other for key, other in version.tasks.items() if key != task.id)
        levels, expired = without_expired(self._levels(state.levels, task), self.watermark, claimed)
        after = replace(
            version,
            tables={**version.tables, task.table_id: replace(state, levels=levels)},
            tasks={key: other for key, other in version.tasks.items() if key != task.id},
        ).with_compacted(task.table_id, self.watermark)
        return after.with_ssts_dropped([*gone, *expired], self.at_ms)

    def _levels(self, levels: TableLevels, task: CompactionTask) -> TableLevels:
        if task.kind != "history":
            return with_parted(_replace_inputs(levels, task, self.outputs), self.history)
        where = find_neighbours(levels, task.inputs)
        if where is None:
            raise _refusal(task, "its inputs are not where they were claimed")
        return without_merged(levels, where, self.history)


class ReleaseCompaction(msgspec.Struct, frozen=True, kw_only=True, tag="release_compaction", tag_field="type"):
    """A task is given up by its owner, or taken back by anyone once it has expired; its inputs are free again."""

    task_id: str
    owner: str
    """The process that releases."""
    at_ms: int

    def validate(self, version: Version) -> None:
        """Raise `Fenced` if the task is gone, or is someone else's and has not expired."""
        task = version.tasks.get(self.task_id)
        if task is None or (task.owner != self.owner and self.at_ms <= task.expires_ms):
            why = "it is not in the version" if task is None else f"{task.owner!r} holds it until {task.expires_ms} ms"
            raise Fenced(f"compaction task {self.task_id} cannot be released by {self.owner!r}: {why}")

    def apply(self, version: Version) -> Version:
        """The version without the task; its inputs stay where they are."""
        return replace(version, tasks={key: task for key, task in version.tasks.items() if key != self.task_id})


class PauseCompaction(msgspec.Struct, frozen=True, kw_only=True, tag="pause_compaction", tag_field="type"):
    """Nobody begins a compaction by itself from now on, or all do again; what runs may end."""

    paused: bool
    reason: str = ""
    """For people."""

    def validate(self, version: Version) -> None:
        """It may be applied to every version."""

    def apply(self, version: Version) -> Version:
        """The version that says so."""
        return replace(version, pause=self.reason if self.paused else None)


def targets_collide(task: CompactionTask, other: CompactionTask) -> bool:
    """Whether two tasks of one table may both write into the same range of the same level."""
    if task.table_id != other.table_id or task.target_level != other.target_level or task.target_level == 0:
        return False
    (low, high), (other_low, other_high) = hull(task.ssts()), hull(other.ssts())
    return low <= other_high and other_low <= high


def _check_free(version: Version, task: CompactionTask) -> None:
    """Raise if the task is there already, or another one has claimed an input."""
    if task.id in version.tasks:
        raise _refusal(task, "a task of that id is there already")
    ids = set(map(_ID, task.ssts()))
    for other in version.tasks.values():
        if other.table_id == task.table_id and not ids.isdisjoint(map(_ID, other.ssts())):
            taken = min(ids.intersection(map(_ID, other.ssts())))
            raise _refusal(task, f"input SST {taken} belongs to another task, {other.id}")


def _why_not_there(levels: TableLevels, inputs: Sequence[SstInfo]) -> str:
    """Why the inputs are no runs of the table. It looks at every SST, which only a refusal has to pay for."""
    known = {sst.id: sst for sst in levels.ssts()}
    missing = next((sst.id for sst in inputs if known.get(sst.id) != sst), None)
    if missing is not None:
        return f"input SST {missing} is not in the table (any more)"
    if len(set(map(_ID, inputs))) != len(inputs):
        return "one of its inputs is named twice"
    return "its input runs are not runs of the table from new to old"


def _check_whole_runs(task: CompactionTask, levels: TableLevels, where: list[int]) -> None:
    neighbours = where[-1] < len(levels.l0) and where == list(range(where[0], where[-1] + 1))
    if not neighbours or any(
        len(run) != len(levels.l0[rank].ssts) for run, rank in zip(task.inputs, where, strict=True)
    ):
        raise _refusal(task, "a merge inside L0 takes whole runs that follow each other")


def _check_target_level(version: Version, task: CompactionTask, levels: TableLevels) -> None:
    target = levels.levels[task.target_level - 1] if task.target_level <= len(levels.levels) else ()
    ids = {sst.id for sst in task.ssts()}
    # Moved files keep their own bounds; merged ones may span everything between the outermost keys.
    spans = [(sst.smallest, sst.largest) for sst in task.ssts()] if task.kind == "trivial-move" else [hull(task.ssts())]
    for span in spans:
        for sst in overlap_in_run(target, span):
            if sst.id not in ids:
                raise _refusal(
                    task, f"SST {sst.id} of target level {task.target_level} is in its range and not among its inputs"
                )
    rival = next((other.id for other in version.tasks.values() if targets_collide(task, other)), None)
    if rival is not None:
        raise _refusal(task, f"task {rival} is about to write into the same range of level {task.target_level}")


def _check_age_order(task: CompactionTask, levels: TableLevels, where: list[int]) -> None:
    """Raise if an SST that stays behind is older than an input, shares keys with it and is passed by it."""
    taken = dict(zip(where, task.inputs, strict=True))
    ids = set(map(_ID, task.ssts()))
    last = target_rank(levels, where, task.target_level)
    younger: list[SstInfo] = []
    low, high = b"", b""
    for rank, run in ranked_runs(levels):
        if rank > last and not task.bottom:
            return
        # As a rule all that lies between the outermost keys of the younger inputs is an input too.
        if younger and not ids.issuperset(map(_ID, overlap_in_run(run, (low, high)))):
            _check_passing(task, run, younger, ids, deeper=rank > last)
        inputs = taken.get(rank)
        if inputs:
            low = min(low, inputs[0].smallest) if younger else inputs[0].smallest
            high = max(high, inputs[-1].largest)
            younger.extend(inputs)


def _check_passing(
    task: CompactionTask, run: Sequence[SstInfo], younger: Sequence[SstInfo], ids: set[str], *, deeper: bool
) -> None:
    """Raise if one of the `younger` inputs shares keys with an SST of an older run that is no input."""
    for sst in younger:
        for older in overlap_in_run(run, (sst.smallest, sst.largest)):
            if older.id in ids:
                continue
            if deeper:
                raise _refusal(
                    task, f"it claims the bottom, but older rows may lie below its input SST {sst.id}, in {older.id}"
                )
            raise _refusal(task, f"input SST {sst.id} would pass the older SST {older.id}, which shares keys with it")


def _replace_inputs(levels: TableLevels, task: CompactionTask, outputs: tuple[SstInfo, ...]) -> TableLevels:
    """The levels with the outputs in place of the inputs; runs that are not touched are shared, not copied."""
    where = locate(levels, task.inputs)
    if where is None:
        raise _refusal(task, "its inputs are not where they were claimed")
    gone = dict(zip(where, task.inputs, strict=True))
    l0: list[Run] = []
    for rank, sub in enumerate(levels.l0):
        if rank == where[0] and task.target_level == 0 and outputs:
            # The inputs are neighbours and taken whole, so the first one's place is the merged run's place.
            l0.append(Run(ssts=outputs))
        kept = Run(ssts=tuple(_splice(Chunked.of(sub.ssts), gone[rank], ()))) if rank in gone else sub
        if kept.ssts:
            l0.append(kept)
    below: list[Sequence[SstInfo]] = []
    for number in range(1, max(len(levels.levels), task.target_level if outputs else 0) + 1):
        level = levels.levels[number - 1] if number <= len(levels.levels) else ()
        new = outputs if number == task.target_level else ()
        below.append(_splice(Chunked.of(level), gone.get(len(levels.l0) + number, ()), new))
    while below and not below[-1]:
        below.pop()
    return TableLevels(l0=tuple(l0), levels=tuple(below), history=levels.history)


def _splice(run: Chunked[SstInfo], gone: Sequence[SstInfo], new: Sequence[SstInfo]) -> Chunked[SstInfo]:
    """A sorted run without `gone`, which are in it, and with `new`; only the part between their keys is touched."""
    if not gone and not new:
        return run
    low = min(sst.smallest for sst in (*gone, *new))
    high = max(sst.smallest for sst in (*gone, *new))
    first, end = lower_bound(run, low, _SMALLEST), upper_bound(run, high, _SMALLEST)
    ids = set(map(_ID, gone))
    part = [sst for sst in run[first:end] if sst.id not in ids]
    return run.replace_items(first, end, sorted([*part, *new], key=_SMALLEST))


def _refusal(task: CompactionTask, why: str) -> Conflict:
    return Conflict(f"compaction task {task.id} ({task.kind}, table id {task.table_id}) is refused: {why}; pick again")


def expired_tasks(version: Version, owner: str, now_ms: int) -> list[ReleaseCompaction]:
    """The deltas by which `owner` takes back all tasks whose lease has run out."""
    return [
        ReleaseCompaction(task_id=task.id, owner=owner, at_ms=now_ms)
        for task in version.tasks.values()
        if now_ms > task.expires_ms
    ]
