"""Compaction as the leader runs it: claims tasks for compactors, hands them out, and takes them back.

`assignment.py` decides; this asks the version log and the sessions' mailboxes. A round of claims, which waits for the
bucket, runs beside the leader's ticks, so that a slow bucket holds up nothing else, and only when there is something
to do: an idle store makes no requests.
"""

import hashlib
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tussock.meta.compaction.assignment import Assignments, SchedulerConfig, TakenBack, owner_of
from tussock.meta.compaction.backlog import Backlogs
from tussock.meta.compaction.claims import Chosen
from tussock.meta.compaction.picker import pick_manual
from tussock.meta.compaction.watermark import Watermark
from tussock.meta.node.auth.caller import Caller, Handlers
from tussock.meta.rpc import meta_pb2 as pb
from tussock.meta.rpc.convert import sst_from_message, task_to_message
from tussock.meta.server.context import Context
from tussock.meta.server.part import Part
from tussock.meta.server.sessions import Session, Sessions
from tussock.meta.server.status.document import CompactionStatus
from tussock.meta.server.status.version_parts import task_statuses
from tussock.meta.version.version import CompactionTask, Version
from tussock.statestore.base.logs import get_logger
from tussock.statestore.base.system import Lock
from tussock.statestore.errors import Fenced, TableNotFound, TussockError
from tussock.statestore.shown import show_value

__all__ = ["Scheduler"]

log = get_logger("tussock.meta.scheduler")

_PAUSE_SECONDS = 0.5
_PAUSE_SECONDS_MAX = 10.0
"""Between two rounds while the bucket is away, growing from the one to the other."""

_REASON_CHARACTERS_MAX = 500
_KIND_CHARACTERS_MAX = 64
_FACTS_BYTES_MAX = 4096


@dataclass
class _Manual:
    """The newest manual compaction of a table."""

    task_id: str
    seq: int
    """It merges everything that is in the version of this sequence."""
    outputs: frozenset[str] = frozenset()
    """SSTs of its report, which may be in the log already when the call that brings it has not returned yet."""
    done: bool = False
    error: pb.ErrorDetail | None = None


def worker_name(session: Session) -> str:
    """Names a compactor in the version and in the schedule.

    For people, and without the id of its session, which nobody else may know.
    """
    return f"{session.name}/{hashlib.sha256(session.id.encode()).hexdigest()[:16]}"


class Scheduler(Part):
    """The compaction scheduler of one leadership."""

    def __init__(self, context: Context, sessions: Sessions, lock: Lock) -> None:
        """`lock` is held around the sessions."""
        options = context.options
        config = SchedulerConfig(
            tasks_per_table=options.tasks_per_table,
            stuck_seconds=options.stuck_task_seconds,
            orphan_seconds=options.session_lease_seconds,
        )
        self._context = context
        self._sessions = sessions
        self._sessions_lock = lock
        # Held for computations only; taken within the log's lock, never around a call to the log.
        self._lock = threading.Lock()
        self._schedule = Assignments(config, options.picker)
        self._backlogs = Backlogs(options.picker, config.tasks_per_table)
        self._manual: dict[int, _Manual] = {}
        self._decided_seq = 0
        self._working = False
        self._missed = False
        """A tick came while a round was under way."""
        self._quiet_until = 0.0
        self._pause = _PAUSE_SECONDS

    def handlers(self) -> Handlers:
        """The RPCs answered here."""
        return {
            "Compact": self._compact,
            "ReportTask": self._report,
            "ReturnTask": self._return,
            "PauseCompaction": self._pause_compaction,
        }

    def tick(self) -> None:
        """Begin a round if there is something to take back or to hand out."""
        now = self._now()
        if self._working or now < self._quiet_until:
            self._missed = True
            return
        version = self._context.meta.version()
        with self._lock:
            due = bool(self._schedule.overdue_tasks(version, now, self._context.system.now_ms()))
            due = due or self._context.meta.claims.lapsing(self._schedule.live_task_ids())
            # The most that a watermark can be: whether there is work is found out without listing the pins.
            due = due or self._choose(version, lambda _: version.max_committed_epoch, ()) is not None
        if due:
            self._working, self._missed = True, False
            self._context.system.spawn("tussock-scheduler", self._round)

    def greet_session(self, session: Session) -> None:
        """The session has subscribed: send again what it was given, an event may have been lost."""
        with self._lock:
            tasks = self._schedule.tasks_of(worker_name(session))
        self._send(session, tasks)

    def progress(self, session: Session, tasks: Iterable[pb.TaskProgress]) -> list[str]:
        """A compactor has opened its session or sent a heartbeat; returns the tasks that it has lost."""
        if not session.is_compactor:
            return [task.task_id for task in tasks]
        session.progress = {task.task_id: task.rows_read for task in tasks}
        with self._lock:
            return self._schedule.heartbeat(
                worker_name(session), session.slots, session.progress, self._context.meta.version(), self._now()
            )

    def end_session(self, session: Session) -> None:
        """The session is over."""
        with self._lock:
            self._schedule.leave(worker_name(session))
        self._context.nudge()

    def status(self, version: Version) -> CompactionStatus:
        """What is going on, for people."""
        with self._lock:
            rows_read = self._schedule.rows_read()
            compactors, slots = self._schedule.workers(), self._schedule.slots()
            outlook = self._schedule.outlook(version, self._now())
        # Without the lock, which commits wait for: a large tree that has changed is searched.
        backlog = self._backlogs.total(version, outlook, self._now())
        return CompactionStatus(
            paused=version.pause is not None,
            reason=version.pause or "",
            compactors=compactors,
            slots=slots,
            backlog_tasks=backlog.tasks,
            backlog_bytes=backlog.bytes,
            tasks=task_statuses(version, rows_read),
        )

    # --- A round ------------------------------------------------------------------------------------------------

    def _round(self) -> None:
        try:
            self._take_back()
            self._renew()
            self._hand_out()
            self._pause = _PAUSE_SECONDS
        except Fenced as error:
            # This leadership is over; the next leader finds the tasks in the version.
            log.info("compaction is scheduled elsewhere from now on", reason=str(error))
            self._quiet_until = self._now() + _PAUSE_SECONDS_MAX
        except TussockError as error:
            log.warning("a round of the compaction scheduler failed", error=str(error), again_seconds=self._pause)
            self._quiet_until = self._now() + self._pause
            self._pause = min(2 * self._pause, _PAUSE_SECONDS_MAX)
        except Exception:
            # A defect: without this the thread would end, and no round would ever begin again.
            log.exception("a round of the compaction scheduler failed unexpectedly", again_seconds=_PAUSE_SECONDS_MAX)
            self._quiet_until = self._now() + _PAUSE_SECONDS_MAX
        finally:
            self._working = False
            if self._missed:
                self._context.nudge()

    def _take_back(self) -> None:
        version = self._context.meta.version()
        with self._lock:
            overdue = self._schedule.overdue_tasks(version, self._now(), self._context.system.now_ms())
        if not overdue:
            return
        self._context.meta.claims.release([(found.task.id, found.task.owner) for found in overdue])
        for found in overdue:
            self._forget_overdue(found, version)

    def _renew(self) -> None:
        with self._lock:
            in_hand = self._schedule.live_task_ids()
        self._context.meta.claims.renew(in_hand)

    def _forget_overdue(self, found: TakenBack, version: Version) -> None:
        task = found.task
        with self._lock:
            self._schedule.take_back(task)
            self._forget_manual(task)
        state = version.tables.get(task.table_id)
        log.warning(
            "compaction task taken back",
            task=task.id,
            table=state.spec.name if state else task.table_id,
            owner=task.owner,
            reason=found.reason,
        )

    def _hand_out(self) -> None:
        def choose(version: Version, watermark: Watermark, chosen: Sequence[CompactionTask]) -> Chosen | None:
            with self._lock:
                self._decided_seq = version.seq
                return self._choose(version, watermark, chosen)

        tasks = self._context.meta.claims.claim(choose)
        with self._lock:
            for task in tasks:
                self._schedule.assign(task, self._now())
                if task.kind == "manual":
                    self._manual[task.table_id] = _Manual(task.id, self._decided_seq)
            tables = self._context.meta.version().tables
            self._manual = {table_id: manual for table_id, manual in self._manual.items() if table_id in tables}
        with self._sessions_lock:
            compactors = {owner_of(worker_name(session)): session for session in self._sessions.compactors()}
        for task in tasks:
            if task.owner in compactors:
                self._send(compactors[task.owner], [task])

    def _choose(self, version: Version, watermark: Watermark, chosen: Sequence[CompactionTask]) -> Chosen | None:
        if version.pause is not None:
            return None
        return self._schedule.choose(version, watermark, chosen, self._now())

    def _send(self, session: Session, tasks: Iterable[CompactionTask]) -> None:
        version = self._context.meta.version()
        for task in tasks:
            state = version.tables.get(task.table_id)
            if state is not None:
                message = task_to_message(task, state.spec, version.gc_horizon)
                session.send(pb.Event(task=message))

    # --- RPCs ---------------------------------------------------------------------------------------------------

    def _report(self, request: pb.ReportTaskRequest, _: Caller) -> pb.ReportTaskResponse:
        session = self._session(request.session_id)
        owner = owner_of(worker_name(session))
        task = self._context.meta.version().tasks.get(request.task_id)
        outputs = [sst_from_message(sst) for sst in request.outputs]
        with self._lock:
            self._schedule.free_slot(request.task_id, self._now())
            manual = self._manual.get(task.table_id) if task is not None else None
            if manual is not None and manual.task_id == request.task_id:
                manual.outputs = frozenset(sst.id for sst in outputs)
        self._context.nudge()  # a slot is free, before the report stands in the log
        try:
            self._context.meta.claims.report(request.task_id, owner, request.watermark, outputs)
        except Fenced:
            with self._lock:
                self._schedule.end(request.task_id)
            # The answer to an earlier report may have been lost, and the connection repeats its calls.
            live = self._context.meta.version().live_sst_ids()
            if not outputs or not all(sst.id in live for sst in outputs):
                raise
        with self._lock:
            if task is not None:
                self._schedule.note_success(task)
                manual = self._manual.get(task.table_id)
                if manual is not None and manual.task_id == task.id:
                    manual.done = True
            self._schedule.end(request.task_id)
        self._context.nudge()
        return pb.ReportTaskResponse()

    def _return(self, request: pb.ReturnTaskRequest, _: Caller) -> pb.ReturnTaskResponse:
        session = self._session(request.session_id)
        owner = owner_of(worker_name(session))
        task = self._context.meta.version().tasks.get(request.task_id)
        if task is None or task.owner != owner:
            return pb.ReturnTaskResponse()  # taken back already
        reason = request.reason[:_REASON_CHARACTERS_MAX]
        self._context.meta.claims.release([(task.id, owner)])
        with self._lock:
            self._schedule.end(task.id)
            if request.HasField("error"):
                pause = self._schedule.note_failure(task, self._now())
                manual = self._manual.get(task.table_id)
                if manual is not None and manual.task_id == task.id:
                    manual.error = _bounded(request.error)
            else:
                self._forget_manual(task)
        if request.HasField("error"):
            log.warning(
                "compaction task failed",
                task=task.id,
                compactor=session.name,
                error=f"{request.error.kind[:_KIND_CHARACTERS_MAX]}: {request.error.message[:_REASON_CHARACTERS_MAX]}",
                again_seconds=pause,
            )
        else:
            log.info("compaction task handed back", task=task.id, compactor=session.name, reason=reason)
        self._context.nudge()
        return pb.ReturnTaskResponse()

    def _compact(self, request: pb.CompactRequest, caller: Caller) -> pb.CompactResponse:
        caller.check_table(request.table)
        version = self._context.meta.version()
        state = version.find_table(request.table)
        if state is None:
            raise TableNotFound(
                f"table {show_value(request.table)} is not in the store; nothing to compact", request.table
            )
        tasks = [task for task in version.tasks.values() if task.table_id == state.spec.id]
        with self._lock:
            answer = pb.CompactResponse(compactors=self._schedule.workers(), paused=version.pause is not None)
            manual = self._manual.get(state.spec.id)
            if manual is not None and not (manual.done or manual.error or manual.task_id in version.tasks):
                # Pushed versions are faster than this table of the leader's: a client that saw the report asks at once.
                manual.done = bool(manual.outputs) and manual.outputs <= {sst.id for sst in state.levels.ssts()}
                manual = manual if manual.done else None  # or taken back by somebody else
            covered = manual is not None and 0 < request.since_seq <= manual.seq
            is_one_run = not state.levels.l0 and len(state.levels.runs()) == 1
            nothing = not tasks and pick_manual(state, tasks, self._context.options.picker) is None
            if nothing or (is_one_run and not request.since_seq):
                answer.done = True
            elif manual is not None and covered and manual.error is not None:
                answer.error.CopyFrom(manual.error)
            elif manual is not None and covered:
                answer.done = manual.done
            elif request.since_seq or manual is None or manual.task_id not in version.tasks:
                # One that runs already may lack what is asked for: another begins after it.
                self._schedule.want_manual(state.spec.id)
        self._context.nudge()
        return answer

    def _pause_compaction(self, request: pb.PauseCompactionRequest, caller: Caller) -> pb.PauseCompactionResponse:
        self._context.meta.pause_compaction(request.reason[:_REASON_CHARACTERS_MAX] if request.paused else None)
        log.info("compaction paused" if request.paused else "compaction resumed", by=caller.identity)
        self._context.nudge()
        return pb.PauseCompactionResponse()

    def _forget_manual(self, task: CompactionTask) -> None:
        """No compactor does it any more; a caller that waits for it asks again."""
        manual = self._manual.get(task.table_id)
        if manual is not None and manual.task_id == task.id:
            del self._manual[task.table_id]

    def _session(self, session_id: str) -> Session:
        with self._sessions_lock:
            return self._sessions.get(session_id)

    def _now(self) -> float:
        return self._context.system.monotonic()


def _bounded(error: pb.ErrorDetail) -> pb.ErrorDetail:
    """A compactor's error as it is kept for the client that waits: the session may be anybody's who has that role."""
    kept = pb.ErrorDetail(kind=error.kind[:_KIND_CHARACTERS_MAX], message=error.message[:_REASON_CHARACTERS_MAX])
    if sum(fact.ByteSize() for fact in error.facts) <= _FACTS_BYTES_MAX:
        kept.facts.extend(error.facts)
    return kept
