"""Compaction tasks that a process claims for itself: which one is next, and which are left alone for now.

Left alone is what a task failed on lately (`suspects.py`), and a table of which a caller waits to have it merged whole.
Both are this process's affair: another one finds out by itself that data is damaged.
"""

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from tussock.meta.compaction.claims import Choose, Chosen, Claims, Done
from tussock.meta.compaction.picker import Pick, PickerConfig, candidates, pick, pick_manual
from tussock.meta.compaction.suspects import Suspects
from tussock.meta.compaction.watermark import Watermark
from tussock.meta.log.log import VersionLog
from tussock.meta.version.deltas.delta import Delta
from tussock.meta.version.deltas.tasks import ReleaseCompaction
from tussock.meta.version.ranges import total_bytes
from tussock.meta.version.version import CompactionTask, Version
from tussock.statestore.base.system import System
from tussock.statestore.contract.records import SstInfo, TableState
from tussock.statestore.epochs import MAX_EPOCH
from tussock.statestore.errors import InvalidOption, TableNotFound, TussockError
from tussock.statestore.shown import show_value

__all__ = ["OwnTasks"]

TOGETHER_MAX = 64
TOGETHER_BYTES_MAX = 4 << 20
"""Of the inputs of tasks that are claimed together. The others of them are nobody's to do while one is done; these are
done within a fraction of a second."""
CLAIM_ATTEMPTS = 3


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
        self._quiet: dict[int, tuple[TableState, PickerConfig]] = {}
        """By id, tables as they were when they wanted no compaction, and the configuration by which they did not."""
        self._reserved: Counter[str] = Counter()

    def claim(self, table: str | None = None, *, manual: bool = False) -> CompactionTask | None:
        """Claim the most urgent compaction, of one table or of all; `None` if there is none to do now.

        Trivial moves are done on the way. With `manual` (and a table), the whole table goes into one run; then `None`
        means that other tasks hold some of it (see the version's `tasks`), or that nothing would change. The task's
        `watermark` is the one to merge with.
        """
        if manual and table is None:
            raise InvalidOption("a manual compaction needs the name of a table")
        if table is not None:
            # Somebody asks for it, so what others did to the table counts; without a name, a claim that others were
            # faster with is decided again, and where nothing is to do nothing is asked.
            self._log.refresh()

        def choose(version: Version, watermark: Watermark, tasks: Sequence[CompactionTask]) -> Chosen | None:
            found = None if tasks else self._pick(version, table, manual, watermark)
            return Chosen(self._owner, *found) if found else None

        return next(iter(self._claim(choose, is_upkeep=False)), None)

    def claim_together(self) -> list[CompactionTask]:
        """Claim the most urgent compaction, and with a small one those of other tables while all of them are small.

        They are one log entry, and so is their report.
        """
        ranking: list[TableState] = []

        def choose(version: Version, watermark: Watermark, tasks: Sequence[CompactionTask]) -> Chosen | None:
            nonlocal ranking
            if not tasks:
                ranking = self._ranked(version, watermark)
            room = TOGETHER_BYTES_MAX - sum(total_bytes(task.ssts()) for task in tasks)
            while ranking and len(tasks) < TOGETHER_MAX:
                picked = self._pick_from(version, ranking.pop(), watermark)
                if picked is not None and (not tasks or sum(map(total_bytes, picked[1].inputs)) <= room):
                    return Chosen(self._owner, *picked)
            return None

        return self._claim(choose, is_upkeep=True)

    def _claim(self, choose: Choose, *, is_upkeep: bool) -> list[CompactionTask]:
        for _ in range(CLAIM_ATTEMPTS):
            known = self._log.version.seq
            self._take_back()
            tasks = self._claims.claim(choose, is_upkeep=is_upkeep)
            if tasks or self._log.version.seq == known:
                return tasks
        # What others appended was read on the way, and there was nothing to do beside it.
        return []

    def renew(self) -> None:
        """Lengthen the leases of the tasks in hand; no request while they have most of theirs left."""
        self._claims.renew(set(self._claims.held))

    def report_together(self, done: Sequence[tuple[CompactionTask, Sequence[SstInfo]]]) -> list[TussockError | None]:
        """Report tasks that were claimed together; for each what `report` would raise, or `None`."""
        reports = [Done(task.id, self._owner, task.watermark, outputs) for task, outputs in done]
        return self._claims.report_all(reports, is_upkeep=True)

    def report(self, task: CompactionTask, outputs: Sequence[SstInfo]) -> None:
        """The outputs, one sorted run, replace the task's inputs; see `Claims.report`."""
        self._claims.report(task.id, self._owner, task.watermark, outputs)

    def release(self, *tasks: CompactionTask) -> None:
        """Give tasks up, so that their inputs can be picked again; no error if one is gone already."""
        self._claims.release([(task.id, self._owner) for task in tasks])

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
                raise TableNotFound(f"table {show_value(table)} is not in the store; nothing to compact")
            if manual:
                picked = pick_manual(state, tasks, self._config())
            else:
                picked = None if version.pause is not None else pick(state, tasks, self._config(), watermark(state))
            return (state.spec.id, picked) if picked else None
        ranking = self._ranked(version, watermark)
        while ranking:
            found = self._pick_from(version, ranking.pop(), watermark)
            if found is not None:
                return found
        return None

    def _ranked(self, version: Version, watermark: Watermark) -> list[TableState]:
        """The tables that want a compaction, the most urgent one last."""
        if version.pause is not None:
            return []
        config = self._config()
        with self._lock:
            self._suspects.forget(version.tables, self._system.monotonic())
            states = [state for state in version.tables.values() if not self._reserved[state.spec.name]]
            left_alone = self._suspects.tasks(self._system.monotonic())
        tasks = [*version.tasks.values(), *left_alone]
        ranked = []
        for state in states:
            if not self._is_quiet(state, config):
                scored = candidates(state, tasks, config, watermark(state))
                if scored and scored[0].score >= 1:
                    ranked.append((scored[0].score, state))
        if len(self._quiet) > 2 * len(version.tables):
            self._quiet = {key: state for key, state in self._quiet.items() if key in version.tables}
        return [state for _, state in sorted(ranked, key=lambda item: item[0])]

    def _is_quiet(self, state: TableState, config: PickerConfig) -> bool:
        """Whether a table wants no compaction whatever the watermark, with nothing claimed of it or anything.

        Of many tables few change from one look to the next, and that is told by the state being the same object. A
        claim only takes files away from what may be picked, and a lower watermark deletes that can vanish.
        """
        known, by = self._quiet.get(state.spec.id, (None, None))
        if known is state and by is config:
            return True
        scored = candidates(state, (), config, MAX_EPOCH)
        if scored and scored[0].score >= 1:
            return False
        self._quiet[state.spec.id] = state, config
        return True

    def _pick_from(self, version: Version, state: TableState, watermark: Watermark) -> tuple[int, Pick] | None:
        """The best compaction of a table beside what is claimed in `version` and what is left alone."""
        with self._lock:
            tasks = [*version.tasks.values(), *self._suspects.tasks(self._system.monotonic())]
        picked = pick(version.tables[state.spec.id], tasks, self._config(), watermark(state))
        return (state.spec.id, picked) if picked else None

    def _take_back(self) -> None:
        """Release tasks that expired or are ours without our knowledge (a claim's lost answer), as far as is known."""

        def decide(version: Version) -> tuple[list[Delta], None]:
            now_ms = self._system.now_ms()
            lost = [
                task.id
                for task in version.tasks.values()
                if task.owner == self._owner and task.id not in self._claims.held
            ]
            expired = self._claims.expired(version, self._owner)
            known = {delta.task_id for delta in expired}
            mine = [ReleaseCompaction(task_id=one, owner=self._owner, at_ms=now_ms) for one in lost if one not in known]
            return [*expired, *mine], None

        if decide(self._log.version)[0]:
            self._log.append(decide)
