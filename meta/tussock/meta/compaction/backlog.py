"""What waits for compaction: the tasks that the leader would hand out now if slots were without number.

By it people and autoscalers tell whether there are enough compactors (`docs/compactor-nodes.md`). The picker is asked
again and again, each time as if what it has picked before ran already. No I/O and no clock: times are parameters, in
seconds on the leader's monotonic clock.
"""

import threading
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tussock.meta.compaction.picker import Pick, PickerConfig, pick, pick_manual
from tussock.meta.version.ranges import total_bytes
from tussock.meta.version.version import CompactionTask, Version
from tussock.statestore.contract.records import TableLevels, TableState

__all__ = ["Backlog", "Backlogs", "Outlook", "waiting_picks"]

PICKS_PER_TASK = 2
"""Looked for in one table for each task that it may have: each pick looks at the whole tree, and more would not change
what anybody does."""
LOOK_SECONDS = 30.0
"""A table that has not changed is looked at again after this: rows expire, and retention moves on."""
SSTS_PER_SECOND = 2000
"""One that has changed is looked at again a second later for each of this number of SSTs. A pick in 100,000 takes
60 ms, so looking at such a table takes about a hundredth of the leader's time."""


class Outlook(NamedTuple):
    """What a schedule knows beside the version."""

    suspects: Sequence[CompactionTask] = ()
    """Failed tasks whose inputs are left alone for now."""
    idle: frozenset[int] = frozenset()
    """Tables in which nothing could begin, by the watermark that holds; here only the largest possible is known."""
    manual: frozenset[int] = frozenset()
    """Tables that wait to be merged as a whole."""


class Backlog(NamedTuple):
    """The compactions that wait."""

    tasks: int = 0
    """Those that free slots would begin: no table has more at once than the schedule allows."""
    bytes: int = 0
    """What all of them would read, of a table at most twice as many as it may have at once. Trivial moves read
    nothing."""


class _Known(NamedTuple):
    levels: TableLevels
    beside: frozenset[str]
    is_manual: bool
    looked: float
    ssts: int
    tasks: int
    bytes: int


def waiting_picks(
    state: TableState,
    tasks: Iterable[CompactionTask],
    config: PickerConfig,
    watermark: int,
    most: int,
    *,
    is_manual: bool = False,
) -> list[Pick]:
    """What could begin for a table beside `tasks`, the most urgent first; at most `most`.

    Trivial moves are among them: without a free slot the leader does not begin them, either.
    """
    beside = list(tasks)
    if is_manual:
        picked = pick_manual(state, beside, config)
        return [] if picked is None else [picked]
    found: list[Pick] = []
    while len(found) < most and (picked := pick(state, beside, config, watermark)) is not None:
        beside.append(_task_of(picked, state.spec.id, len(found)))
        found.append(picked)
    return found


def _task_of(picked: Pick, table_id: int, number: int) -> CompactionTask:
    """The pick as if it ran."""
    return CompactionTask(
        id=f"waiting-{number}",
        table_id=table_id,
        kind=picked.kind,
        inputs=picked.inputs,
        target_level=picked.target_level,
        bottom=picked.bottom,
        watermark=0,
        owner="",
        claimed_ms=0,
        expires_ms=0,
    )


class Backlogs:
    """Adds up what waits in all tables; of those that have not changed it remembers it. Safe to share by threads."""

    def __init__(self, picker: PickerConfig, tasks_per_table: int) -> None:
        self._picker = picker
        self._tasks_per_table = tasks_per_table
        self._lock = threading.Lock()
        self._known: dict[int, _Known] = {}

    def total(self, version: Version, outlook: Outlook, now: float) -> Backlog:
        """What waits in a version. While compaction is paused it waits as well."""
        running, suspects = _by_table(version.tasks.values()), _by_table(outlook.suspects)
        tasks = size = 0
        with self._lock:
            self._known = {table_id: known for table_id, known in self._known.items() if table_id in version.tables}
            for table_id, state in version.tables.items():
                if table_id in outlook.idle and table_id not in outlook.manual:
                    continue
                beside = [*running[table_id], *suspects[table_id]]
                known = self._look(state, beside, version, now, is_manual=table_id in outlook.manual)
                tasks += min(known.tasks, max(0, self._tasks_per_table - len(running[table_id])))
                size += known.bytes
        return Backlog(tasks, size)

    def _look(
        self, state: TableState, beside: Sequence[CompactionTask], version: Version, now: float, *, is_manual: bool
    ) -> _Known:
        """What waits in one table; searched for only if the table or what runs on it has changed."""
        ids = frozenset(task.id for task in beside)
        known = self._known.get(state.spec.id)
        if known is not None:
            is_same = known.levels is state.levels and known.beside == ids and known.is_manual == is_manual
            if now < known.looked + (LOOK_SECONDS if is_same else known.ssts / SSTS_PER_SECOND):
                return known
        # The most that a watermark can be: the one that holds would need a list of the pins.
        watermark, most = version.max_committed_epoch, PICKS_PER_TASK * self._tasks_per_table
        picks = waiting_picks(state, beside, self._picker, watermark, most, is_manual=is_manual)
        size = sum(total_bytes(run) for picked in picks if picked.kind != "trivial-move" for run in picked.inputs)
        ssts = sum(len(run.ssts) for run in state.levels.l0) + sum(map(len, state.levels.levels))
        known = _Known(state.levels, ids, is_manual, now, ssts, len(picks), size)
        self._known[state.spec.id] = known
        return known


def _by_table(tasks: Iterable[CompactionTask]) -> defaultdict[int, list[CompactionTask]]:
    found: defaultdict[int, list[CompactionTask]] = defaultdict(list)
    for task in tasks:
        found[task.table_id].append(task)
    return found
