"""Compaction tasks that a process claims for itself: which one is next, and which are left alone for now.

Left alone is what a task failed on lately (`suspects.py`), and a table of which a caller waits to have it merged whole.
Both are this process's affair: another one finds out by itself that data is damaged.
"""

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from tussock.meta.compaction.claims import Chosen, Claims
from tussock.meta.compaction.picker import Pick, PickerConfig, candidates, pick, pick_manual
from tussock.meta.compaction.suspects import Suspects
from tussock.meta.compaction.watermark import Watermark
from tussock.meta.log.log import VersionLog
from tussock.meta.version.deltas.delta import Delta
from tussock.meta.version.deltas.tasks import ReleaseCompaction, expired_tasks
from tussock.meta.version.version import CompactionTask, Version
from tussock.statestore.base.system import System
from tussock.statestore.contract.records import SstInfo, TableState
from tussock.statestore.errors import InvalidOption, TableNotFound

__all__ = ["OwnTasks"]


class OwnTasks:
    """One process's tasks. Safe to share between threads."""

    def __init__(
        self, claims: Claims, log: VersionLog, system: System, *, owner: str, config: Callable[[], PickerConfig]
    ) -> None:
        """`config` says when to compact; it is asked each time."""
        self._claims = claims
        self._log = log
        self._system = system
        self._owner = owner
        self._config = config
        self._lock = threading.Lock()
        self._suspects = Suspects()
        self._reserved: Counter[str] = Counter()

    def claim(self, table: str | None = None, *, manual: bool = False) -> CompactionTask | None:
        """Claim the most urgent compaction, of one table or of all; `None` if there is none to do now.

        Trivial moves are done on the way. With `manual` (and a table), the whole table goes into one run; then `None`
        means that other tasks hold some of it (see the version's `tasks`), or that nothing would change. The task's
        `watermark` is the one to merge with.
        """
        if manual and table is None:
            raise InvalidOption("a manual compaction needs the name of a table")
        self._take_back()

        def choose(version: Version, watermark: Watermark, tasks: Sequence[CompactionTask]) -> Chosen | None:
            found = None if tasks else self._pick(version, table, manual, watermark)
            return Chosen(self._owner, *found) if found else None

        return next(iter(self._claims.claim(choose)), None)

    def renew(self) -> None:
        """Lengthen the leases of the tasks in hand; no request while they have most of theirs left."""
        self._claims.renew(set(self._claims.held))

    def report(self, task: CompactionTask, outputs: Sequence[SstInfo]) -> None:
        """The outputs, one sorted run, replace the task's inputs; see `Claims.report`."""
        self._claims.report(task.id, self._owner, task.watermark, outputs)

    def release(self, task: CompactionTask) -> None:
        """Give the task up, so that its inputs can be picked again; no error if it is gone already."""
        self._claims.release([(task.id, self._owner)])

    def note_failure(self, task: CompactionTask) -> float:
        """Note that the task failed; returns the seconds for which its inputs are left alone."""
        with self._lock:
            return self._suspects.note_failure(task, self._system.monotonic())

    def note_success(self, task: CompactionTask) -> None:
        """Note that the task was done: its inputs are not suspect."""
        with self._lock:
            self._suspects.note_success(task)

    @contextmanager
    def reserved(self, table: str) -> Iterator[None]:
        """Inside, nobody in this process begins a task of the table without being asked for that very table."""
        with self._lock:
            self._reserved[table] += 1
        try:
            yield
        finally:
            with self._lock:
                self._reserved[table] -= 1

    def _pick(self, version: Version, table: str | None, manual: bool, watermark: Watermark) -> tuple[int, Pick] | None:
        """The most urgent pick of `version`, with its table's id."""
        tasks = list(version.tasks.values())
        if table is not None:
            state = version.find_table(table)
            if state is None:
                raise TableNotFound(f"table {table!r} is not in the store; nothing to compact")
            if manual:
                picked = pick_manual(state, tasks, self._config())
                return (state.spec.id, picked) if picked else None
            return None if version.pause is not None else self._most_urgent([state], tasks, watermark)
        if version.pause is not None:
            return None
        with self._lock:
            self._suspects.forget(version.tables, self._system.monotonic())
            tasks += self._suspects.tasks(self._system.monotonic())
            states = [state for state in version.tables.values() if not self._reserved[state.spec.name]]
        return self._most_urgent(states, tasks, watermark)

    def _most_urgent(
        self, states: Sequence[TableState], tasks: Sequence[CompactionTask], watermark: Watermark
    ) -> tuple[int, Pick] | None:
        config = self._config()
        ranked = []
        for state in states:
            scored = candidates(state, tasks, config, watermark(state))
            if scored and scored[0].score >= 1:
                ranked.append((scored[0].score, state))
        for _, state in sorted(ranked, key=lambda item: -item[0]):
            picked = pick(state, tasks, config, watermark(state))
            if picked is not None:
                return state.spec.id, picked
        return None

    def _take_back(self) -> None:
        """Read the log, and release tasks that expired or are ours without our knowledge (a claim's lost answer)."""

        def decide(version: Version) -> tuple[list[Delta], None]:
            now_ms = self._system.now_ms()
            lost = [
                task.id
                for task in version.tasks.values()
                if task.owner == self._owner and task.id not in self._claims.held
            ]
            expired = expired_tasks(version, self._owner, now_ms)
            known = {delta.task_id for delta in expired}
            mine = [ReleaseCompaction(task_id=one, owner=self._owner, at_ms=now_ms) for one in lost if one not in known]
            return [*expired, *mine], None

        self._log.refresh()
        self._log.append(decide)
