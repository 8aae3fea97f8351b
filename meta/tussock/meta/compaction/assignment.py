"""Which compactor gets which task, and when a task is taken from it: the decisions of a leader's scheduler.

No I/O and no clock: times are parameters, in seconds on the leader's monotonic clock. What is remembered here is lost
with the leader; tasks themselves stand in the version, so the next leader finds them, and its compactors tell it what
they still run.

Assignment. A compactor with the largest share of its slots free gets the next task. It is of the table with the
fewest tasks running, of those the one with the most runs in L0; so two tables with work share two slots, however much
there is in the first. A slot is free as soon as its task is reported, whether or not the report stands in the log
already; the inputs stay reserved by the version until it does (SlateDB's compactor does both).

When a task is taken back. Its compactor's session is over; or the compactor is alive, and the task has not moved for
`stuck_seconds` (Hummock tells the same two apart: a heartbeat that is missing, and one without progress); or the
version has the task under a compactor that does not know of it, which is how a claim with a lost answer and a change
of leader look. While a compactor is there, the leader renews the leases of its tasks, so that no process beside the
service takes them. A compactor that still works on a task that it has lost is told by its next heartbeat, and its slot
counts as taken until it has stopped.

Failures. What a failed task wanted to merge is left alone for a while (`suspects.py`), and the other ranges of the
table go on.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from tussock.meta.compaction.backlog import Outlook
from tussock.meta.compaction.claims import Chosen
from tussock.meta.compaction.picker import PickerConfig, pick, pick_manual
from tussock.meta.compaction.suspects import FAILURE_SECONDS, FAILURE_SECONDS_MAX, Suspects
from tussock.meta.compaction.watermark import Watermark
from tussock.meta.version.version import CompactionTask, Version
from tussock.statestore.contract.records import TableState

__all__ = [
    "ORPHANED",
    "SESSION_OVER",
    "STUCK_SECONDS",
    "TASKS_PER_TABLE",
    "Assignments",
    "SchedulerConfig",
    "TakenBack",
    "owner_of",
    "worker_of",
]

_OWNER = "compactor/"
"""No process that owns tasks by itself begins so: a host's name has no slash."""

TASKS_PER_TABLE = 4
STUCK_SECONDS = 60.0
IDLE_SECONDS_MAX = 30.0
"""A table with nothing to do is looked at again after this, though it has not changed: retention moves on."""

SESSION_OVER = "its compactor's session is over"
ORPHANED = "its compactor does not know of it"


class SchedulerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Limits and times of scheduling."""

    tasks_per_table: int = TASKS_PER_TABLE
    """Tasks of one table that run at once."""
    stuck_seconds: float = STUCK_SECONDS
    """A task without progress for this long is taken back."""
    orphan_seconds: float
    """A task that its compactor does not know of is taken back after this: a session's lease, in which it may come
    back with it after a change of leader."""
    failure_seconds: float = FAILURE_SECONDS
    """What a failed task wanted to merge is left alone for this long, doubled with each failure in a row."""
    failure_seconds_max: float = FAILURE_SECONDS_MAX


class TakenBack(NamedTuple):
    """A task to release, and why."""

    task: CompactionTask
    reason: str


class _Worker(msgspec.Struct):
    slots: int
    stopping: set[str]
    """Tasks that it has lost, and may not know yet that it has."""


class _Running(msgspec.Struct):
    worker: str
    task: CompactionTask | None
    """As it was handed out; `None` for one that was handed out by an earlier leader."""
    rows_read: int
    moved: float
    """When it last made progress."""
    reporting: bool = False
    """Its work is done, and its slot is free; the version has it until the report is appended."""


def owner_of(worker: str) -> str:
    """How a version names that compactor."""
    return _OWNER + worker


def worker_of(owner: str) -> str | None:
    """The compactor that a version names as a task's owner; `None` if it is another process."""
    return owner[len(_OWNER) :] if owner.startswith(_OWNER) else None


class Assignments:
    """What a leader knows of its compactors. Not safe to share between threads."""

    def __init__(self, config: SchedulerConfig, picker: PickerConfig) -> None:
        self._config = config
        self._picker = picker
        self._workers: dict[str, _Worker] = {}
        self._running: dict[str, _Running] = {}
        self._orphans: dict[str, float] = {}
        self._suspects = Suspects(config.failure_seconds, config.failure_seconds_max)
        self._idle: dict[int, tuple[object, frozenset[str], float]] = {}
        self._manual: set[int] = set()

    # --- Compactors ---------------------------------------------------------------------------------------------

    def heartbeat(
        self, worker: str, slots: int, rows_read: Mapping[str, int], version: Version, now: float
    ) -> list[str]:
        """A compactor says that it is there, with its tasks and how far it is; returns those that it has lost.

        An unknown task that the version has under the compactor's name is taken up: there was a change of leader.
        """
        known = self._workers.setdefault(worker, _Worker(slots, set()))
        known.slots = slots
        lost = []
        for task_id, rows in sorted(rows_read.items()):
            running = self._running.get(task_id)
            task = version.tasks.get(task_id)
            if task is None or task.owner != owner_of(worker) or (running is None and task_id in known.stopping):
                lost.append(task_id)
            elif running is None:
                self._running[task_id] = _Running(worker, None, rows, now)
            elif rows > running.rows_read:
                running.rows_read, running.moved = rows, now
        # One that it does not name has stopped, or it never got to know of it.
        known.stopping = set(lost)
        return lost

    def leave(self, worker: str) -> None:
        """Forget a compactor whose session is over; `overdue_tasks` returns what it ran."""
        self._workers.pop(worker, None)

    def workers(self) -> int:
        """Compactors that are there."""
        return len(self._workers)

    def slots(self) -> int:
        """Slots of all compactors together."""
        return sum(worker.slots for worker in self._workers.values())

    def tasks_of(self, worker: str) -> list[CompactionTask]:
        """The tasks that this leader gave to a compactor and that it has not reported, by id.

        They are sent again when it subscribes again. One that an earlier leader gave it is not among them: what the
        version says of its watermark may be more than the compactor was allowed.
        """
        return [
            running.task
            for _, running in sorted(self._running.items())
            if running.worker == worker and running.task is not None and not running.reporting
        ]

    def rows_read(self) -> dict[str, int]:
        """How far each running task is."""
        return {task_id: running.rows_read for task_id, running in self._running.items()}

    def live_task_ids(self) -> list[str]:
        """Ids of the tasks whose compactors are there: their leases are to be renewed."""
        return [task_id for task_id, running in self._running.items() if running.worker in self._workers]

    # --- Tasks --------------------------------------------------------------------------------------------------

    def assign(self, task: CompactionTask, now: float) -> None:
        """Note that the task was claimed for its owner; `task.watermark` is the one to merge with."""
        self._running[task.id] = _Running(worker_of(task.owner) or "", task, 0, now)
        if task.kind == "manual":
            self._manual.discard(task.table_id)

    def free_slot(self, task_id: str, now: float) -> None:
        """Free the slot of a task whose report has come."""
        running = self._running.get(task_id)
        if running is not None:
            running.reporting, running.moved = True, now

    def end(self, task_id: str) -> None:
        """Forget a task that was reported, returned or taken back."""
        self._running.pop(task_id, None)

    def note_success(self, task: CompactionTask) -> None:
        """Note that the task's report is in the log: what it merged is no longer suspect."""
        self._suspects.note_success(task)

    def note_failure(self, task: CompactionTask, now: float) -> float:
        """Note that the task failed; returns the seconds for which its inputs are left alone."""
        pause = self._suspects.note_failure(task, now)
        self._idle.pop(task.table_id, None)
        return pause

    def want_manual(self, table_id: int) -> None:
        """Merge the whole table as soon as none of its tasks runs; until then, start no other of it."""
        self._manual.add(table_id)

    def outlook(self, version: Version, now: float) -> Outlook:
        """What is known beside the version of what could begin."""
        idle = [
            table_id
            for table_id in self._idle
            if table_id in version.tables and self._is_idle(version.tables[table_id], version.tasks.values(), now)
        ]
        return Outlook(self._suspects.tasks(now), frozenset(idle), frozenset(self._manual))

    # --- Decisions ----------------------------------------------------------------------------------------------

    def overdue_tasks(self, version: Version, now: float, now_ms: int) -> list[TakenBack]:
        """The tasks to take back, oldest first; and what is no longer in the version is forgotten here."""
        self._forget_gone(version, now)
        found = []
        for task in sorted(version.tasks.values(), key=lambda task: (task.claimed_ms, task.id)):
            worker, running = worker_of(task.owner), self._running.get(task.id)
            reason = ""
            if worker is None:
                # An embedded process's, which sends no heartbeat: its lease decides, as everywhere.
                reason = "its lease ran out" if now_ms > task.expires_ms else ""
            elif running is None or running.worker != worker:
                since = self._orphans.setdefault(task.id, now)
                reason = ORPHANED if now - since >= self._config.orphan_seconds else ""
            elif worker not in self._workers:
                reason = SESSION_OVER
            elif now - running.moved >= self._config.stuck_seconds:
                rows = sum(sst.rows for sst in task.ssts())
                reason = f"no progress for {self._config.stuck_seconds:.0f} s at row {running.rows_read} of {rows}"
            if reason:
                found.append(TakenBack(task, reason))
        return found

    def take_back(self, task: CompactionTask) -> None:
        """Forget a task that was released; a compactor that works on it keeps its slot until it has stopped."""
        running = self._running.pop(task.id, None)
        self._orphans.pop(task.id, None)
        if running is not None and running.worker in self._workers and not running.reporting:
            self._workers[running.worker].stopping.add(task.id)

    def choose(
        self, version: Version, watermark: Watermark, chosen: Sequence[CompactionTask], now: float
    ) -> Chosen | None:
        """The next task to claim; `None` if no slot is free, or no table has work that could begin now.

        Args:
            version: has the tasks `chosen` in it.
            watermark: the largest that a compaction of a table could use.
            chosen: claimed in the same log entry, and not assigned yet.
            now: monotonic seconds.
        """
        worker = self._free_worker(chosen)
        if worker is None:
            return None
        tasks = list(version.tasks.values())
        suspects = self._suspects.tasks(now)
        counts = Counter(task.table_id for task in tasks if not self._is_reporting(task.id))
        tables = [state for state in version.tables.values() if self._may_start(state, counts)]
        for state in sorted(tables, key=lambda state: (counts[state.spec.id], -len(state.levels.l0), state.spec.id)):
            table_id = state.spec.id
            if table_id in self._manual:
                picked = pick_manual(state, tasks, self._picker)
            elif self._is_idle(state, tasks, now):
                continue
            else:
                picked = pick(state, [*tasks, *suspects], self._picker, watermark(state))
                if picked is None:
                    self._idle[table_id] = (state.levels, _ids(tasks, table_id), self._look_again(table_id, now))
            if picked is not None:
                return Chosen(owner_of(worker), table_id, picked)
        return None

    def _free_worker(self, chosen: Sequence[CompactionTask]) -> str | None:
        """The compactor with the largest share of its slots free; the smallest id of several."""
        taken = Counter(running.worker for running in self._running.values() if not running.reporting)
        taken.update(worker_of(task.owner) or "" for task in chosen)
        best, best_share = None, 0.0
        for name, worker in sorted(self._workers.items()):
            free = worker.slots - taken[name] - len(worker.stopping)
            if free > 0 and free / worker.slots > best_share:
                best, best_share = name, free / worker.slots
        return best

    def _may_start(self, state: TableState, counts: Mapping[int, int]) -> bool:
        return counts.get(state.spec.id, 0) < self._config.tasks_per_table

    def _is_reporting(self, task_id: str) -> bool:
        running = self._running.get(task_id)
        return running is not None and running.reporting

    def _is_idle(self, state: TableState, tasks: Iterable[CompactionTask], now: float) -> bool:
        """Whether the table had nothing to do when it was as it is now; a large tree is not searched at each tick."""
        levels, ids, again = self._idle.get(state.spec.id, (None, frozenset(), 0.0))
        return levels is state.levels and ids == _ids(tasks, state.spec.id) and now < again

    def _look_again(self, table_id: int, now: float) -> float:
        pause_ends = self._suspects.again_at(table_id, now)
        return now + IDLE_SECONDS_MAX if pause_ends is None else min(now + IDLE_SECONDS_MAX, pause_ends)

    def _forget_gone(self, version: Version, now: float) -> None:
        """Tasks that ended without this schedule's doing: taken back by a process beside it, or their table dropped."""
        for task_id, running in list(self._running.items()):
            if task_id not in version.tasks:
                del self._running[task_id]
                if running.worker in self._workers and not running.reporting:
                    self._workers[running.worker].stopping.add(task_id)
        self._orphans = {task_id: since for task_id, since in self._orphans.items() if task_id in version.tasks}
        self._idle = {table_id: known for table_id, known in self._idle.items() if table_id in version.tables}
        for table_id in sorted(self._manual):
            state = version.tables.get(table_id)
            tasks = [task for task in version.tasks.values() if task.table_id == table_id]
            if state is None or (not tasks and pick_manual(state, tasks, self._picker) is None):
                self._manual.discard(table_id)  # gone, or one run already
        self._suspects.forget(version.tables, now)


def _ids(tasks: Iterable[CompactionTask], table_id: int) -> frozenset[str]:
    return frozenset(task.id for task in tasks if task.table_id == table_id)
