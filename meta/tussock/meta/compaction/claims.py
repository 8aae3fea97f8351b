"""Compaction tasks through the log: claimed, reported and given up on behalf of their owners.

An embedded store owns its tasks itself. A meta service claims them for the compactors that have a session, each under
its own owner, so that a task can be told from what another compactor, or a process beside the service, does.
"""

from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from tussock.meta.compaction.picker_config import Pick
from tussock.meta.compaction.watermark import Watermark, claimed_watermark, low_watermark
from tussock.meta.log.log import VersionLog
from tussock.meta.version.deltas.delta import Delta
from tussock.meta.version.deltas.tasks import (
    TASK_LEASE_MS,
    ClaimCompaction,
    ReleaseCompaction,
    ReportCompaction,
    expired_tasks,
)
from tussock.meta.version.version import CompactionTask, Version
from tussock.statestore.base.system import System
from tussock.statestore.contract.records import SstInfo, TableState
from tussock.statestore.errors import Fenced, TussockError

__all__ = ["RENEW_MS", "Chosen", "Claims", "Done"]

RENEW_MS = 10_000
"""Between two renewals; a lease outlasts two of them that fail."""

MOVES_MAX = 16
"""Trivial moves in one log entry."""


class Chosen(NamedTuple):
    """What to compact, and who will."""

    owner: str
    table_id: int
    pick: Pick


class Done(NamedTuple):
    """A task that was done."""

    task_id: str
    owner: str
    watermark: int
    """That it was merged with."""
    outputs: Sequence[SstInfo]


Choose = Callable[[Version, Watermark, Sequence[CompactionTask]], Chosen | None]
"""(version, the largest watermarks that could be used, tasks chosen before for the same entry) -> the next choice.

The version has those tasks in it. It is asked again, from the beginning, when another log entry was faster."""


class Claims:
    """The tasks of one store, as one process sees to them. Safe to share between threads."""

    def __init__(
        self,
        log: VersionLog,
        system: System,
        *,
        smallest_pin: Callable[[], int | None],
        retention_ms: Callable[[Version, TableState], int],
    ) -> None:
        """`smallest_pin` lists the live pins, a request; `retention_ms` is what counts of a table in a version."""
        self._log = log
        self._system = system
        self._smallest_pin = smallest_pin
        self._retention_ms = retention_ms
        self.held: set[str] = set()
        """Ids of the tasks that were claimed here and neither reported nor given up: a task of an owner of this
        process that is not among them was claimed without this process's knowledge, by an append whose answer was
        lost."""
        self._leases_seen: dict[str, tuple[int, float]] = {}
        """By task, the end of its lease and when this process first saw it, by the clock that never jumps."""

    def expired(self, version: Version, owner: str) -> list[ReleaseCompaction]:
        """The deltas by which `owner` takes back all tasks whose lease has run out.

        A lease ends by the clock of who claimed, which may be ahead by an hour; then it ends once it has been seen
        here, in newer and newer versions, for as long as a lease is: its owner would have renewed it by then. What is
        asked of an old version is asked again of the newest one, by the append.
        """
        now, now_ms = self._system.monotonic(), self._system.now_ms()
        expired = {delta.task_id: delta for delta in expired_tasks(version, owner, now_ms)}
        for gone in self._leases_seen.keys() - version.tasks.keys():
            self._leases_seen.pop(gone, None)
        for task in version.tasks.values():
            end, since = self._leases_seen.setdefault(task.id, (task.expires_ms, now))
            if end != task.expires_ms:
                self._leases_seen[task.id] = (task.expires_ms, now)
            elif now - since > TASK_LEASE_MS / 1000 and task.owner != owner:
                lapsed = ReleaseCompaction(task_id=task.id, owner=owner, at_ms=max(now_ms, task.expires_ms + 1))
                expired.setdefault(task.id, lapsed)
        return list(expired.values())

    def claim(self, choose: Choose, *, is_upkeep: bool = False) -> list[CompactionTask]:
        """Claim what `choose` names until it returns `None`, in one log entry; no request if that is nothing.

        `is_upkeep`: nobody waits for it, so where commits come all the time it gets into the entry of one.
        Trivial moves are done in the same entry and not answered. The `watermark` of each task is the one to merge
        with, which may be lower than the one in the version (`watermark.py` says why).
        """
        version = self._log.version
        if choose(version, self._watermark(version, None, self._system.now_ms()), ()) is None:
            return []
        # What this machine's clock shows too early is still kept for others.
        pinned, now_ms = self._smallest_pin(), self._log.clock.judging_ms()
        tried: list[str] = []

        def decide(version: Version) -> tuple[list[Delta], list[CompactionTask]]:
            return self._decide(version, choose, self._watermark(version, pinned, now_ms), tried)

        claimed: list[CompactionTask] = []
        try:
            tasks = self._log.append(decide, is_upkeep=is_upkeep)
            if tasks:
                # The second look at the pins, after the append.
                pinned = self._smallest_pin()
            claimed = tasks
        finally:
            self.held.difference_update(set(tried) - {task.id for task in claimed})
        if pinned is None:
            return claimed
        return [replace(task, watermark=min(task.watermark, pinned)) for task in claimed]

    def report(self, task_id: str, owner: str, watermark: int, outputs: Sequence[SstInfo]) -> None:
        """The outputs, merged with `watermark`, replace the task's inputs: a sorted run, and maybe one of history.

        No user key may be split between two outputs. Raises `Fenced` if the task was taken back or its table dropped,
        `StaleUpload` if vacuum may have deleted an output; either way nothing changed, and the outputs are garbage.
        """
        error = self.report_all([Done(task_id, owner, watermark, outputs)])[0]
        if error is not None:
            raise error

    def report_all(self, reports: Sequence[Done], *, is_upkeep: bool = False) -> list[TussockError | None]:
        """Report several tasks in one log entry; for each of them what `report` would raise, or `None`.

        `is_upkeep` is as for `claim`. Raises `ObjectStoreUnavailable`; then all of them may be reported once more.
        """

        def decide(version: Version) -> tuple[list[Delta], list[TussockError | None]]:
            deltas: list[Delta] = []
            errors: list[TussockError | None] = []
            for one in reports:
                delta = ReportCompaction(
                    task_id=one.task_id,
                    owner=one.owner,
                    outputs=tuple(sst for sst in one.outputs if not sst.until),
                    watermark=one.watermark,
                    at_ms=self._system.now_ms(),
                    history=tuple(sst for sst in one.outputs if sst.until),
                )
                try:
                    # A task of this process is in each version that it knows, until it is over; and the horizon only
                    # grows. So what is refused on an older version would be on the newest, too.
                    delta.validate(version)
                    version = delta.apply(version)
                except TussockError as error:
                    errors.append(error)
                else:
                    deltas.append(delta)
                    errors.append(None)
            return deltas, errors

        key = ("report", *(one.task_id for one in reports))
        errors = self._log.append(decide, key=key, is_upkeep=is_upkeep)
        over = zip(reports, errors, strict=True)
        self.held.difference_update(one.task_id for one, error in over if error is None or isinstance(error, Fenced))
        return errors

    def release(self, tasks: Sequence[tuple[str, str]]) -> None:
        """Give up tasks, named as (id, owner), so that their inputs can be picked again.

        One that is gone, or is another owner's who may still work on it, is left alone without an error.
        """

        def decide(version: Version) -> tuple[list[Delta], None]:
            now_ms = self._system.now_ms()
            deltas: list[Delta] = []
            for task_id, owner in tasks:
                task = version.tasks.get(task_id)
                if task is not None and (task.owner == owner or now_ms > task.expires_ms):
                    deltas.append(ReleaseCompaction(task_id=task_id, owner=owner, at_ms=now_ms))
            return deltas, None

        # Out of the set first: if the append fails, the tasks are seen to be nobody's and taken back.
        self.held.difference_update(task_id for task_id, _ in tasks)
        self._log.append(decide)

    def lapsing(self, tasks: Collection[str]) -> bool:
        """Whether `renew` has something to do; no request."""
        return bool(self._renewals(self._log.version, tasks))

    def renew(self, tasks: Collection[str]) -> None:
        """Lengthen the leases of these tasks, in one log entry; no request while they have most of theirs left.

        One that is gone is left out: its owner's report will be refused.
        """
        if self.lapsing(tasks):
            self._log.append(lambda version: (self._renewals(version, tasks), None))

    def _renewals(self, version: Version, tasks: Collection[str]) -> list[ClaimCompaction]:
        now_ms = self._system.now_ms()
        known = [version.tasks[one] for one in sorted(tasks) if one in version.tasks]
        # Half an interval early, so that one that is not renewed now has most of its lease left at the next time.
        due = [task for task in known if task.expires_ms - now_ms < TASK_LEASE_MS - RENEW_MS // 2]
        return [ClaimCompaction(task=replace(task, expires_ms=now_ms + TASK_LEASE_MS)) for task in due]

    def _decide(
        self, version: Version, choose: Choose, watermark: Watermark, tried: list[str]
    ) -> tuple[list[Delta], list[CompactionTask]]:
        """The deltas of one entry, decided one after the other on the version that the ones before it leave."""
        deltas: list[Delta] = []
        tasks: list[CompactionTask] = []
        moves = 0
        while moves < MOVES_MAX and (chosen := choose(version, watermark, tasks)) is not None:
            task = self._task(chosen)
            if task.kind == "trivial-move":
                moves += 1
                moved = tuple(task.ssts())
                report = ReportCompaction(
                    task_id=task.id, owner=task.owner, outputs=moved, watermark=0, at_ms=task.claimed_ms
                )
                fresh: list[Delta] = [ClaimCompaction(task=task), report]
            else:
                table = version.tables[task.table_id]
                before, lowered = claimed_watermark(version, table, task.ssts(), watermark(table))
                task = replace(task, watermark=lowered)
                fresh = [*before, ClaimCompaction(task=task)]
                # Before the append: from then on others may see the task.
                tried.append(task.id)
                self.held.add(task.id)
                tasks.append(task)
            for delta in fresh:
                delta.validate(version)
                version = delta.apply(version)
            deltas += fresh
        return deltas, tasks

    def _task(self, chosen: Chosen) -> CompactionTask:
        now_ms = self._system.now_ms()
        picked = chosen.pick
        return CompactionTask(
            id=self._system.random_bytes(16).hex(),
            table_id=chosen.table_id,
            kind=picked.kind,
            inputs=picked.inputs,
            target_level=picked.target_level,
            bottom=picked.bottom,
            watermark=0,
            owner=chosen.owner,
            claimed_ms=now_ms,
            expires_ms=now_ms + TASK_LEASE_MS,
            parted=picked.kind not in ("trivial-move", "history"),
        )

    def _watermark(self, version: Version, pinned: int | None, now_ms: int) -> Watermark:
        return lambda table: low_watermark(version, now_ms, self._retention_ms(version, table), pinned)
