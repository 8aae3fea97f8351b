"""A compactor node: takes tasks from a meta service, runs them in its slots, reports them or hands them back.

It keeps nothing: a task that it loses is done again by another node, and what it had uploaded for it is garbage that
vacuum finds. To stop it (SIGTERM), `drain` is called; then it takes no more tasks, stops those that run and returns
them, so that others can begin them at once.

A task is cut by key range over the node's slots (`parts.py`, `jobs.py`). A slot that ends a task's last part reports
the task. Everything here is threads of `System` and calls; how a slot runs is the slot's own affair (`slots.py`).
"""

from collections import deque
from collections.abc import Callable, Sequence

from tussock.compactor.executor import CompactionCancelled
from tussock.compactor.node.jobs import CompactionJob, Jobs, SlotWork
from tussock.compactor.node.slots import Slot, SlotCrashed
from tussock.compactor.parts import PART_BYTES_MIN, TaskPart, cut
from tussock.meta.client.connection import Holdings, MetaConnection
from tussock.meta.rpc import meta_pb2 as pb
from tussock.meta.rpc.convert import sst_to_message, task_from_message
from tussock.meta.rpc.errors import encode_error
from tussock.statestore.base.logs import get_logger
from tussock.statestore.base.system import System, Task
from tussock.statestore.errors import CorruptSst, Fenced, MetaUnavailable, ObjectNotFound, TussockError
from tussock.statestore.sst.reader import Sstables
from tussock.statestore.write.sst_ids import id_floor

__all__ = ["CompactorNode"]

log = get_logger("tussock.compactor")

_REMEMBERED = 256
"""Ended tasks that the node knows, should one be sent to it again."""


class CompactorNode:
    """One node with its slots."""

    def __init__(self, connection: MetaConnection, system: System, part_bytes_min: int = PART_BYTES_MIN) -> None:
        """The connection is of kind `COMPACTOR`, and not started yet; tasks are cut into parts of that many bytes."""
        self._part_bytes_min = part_bytes_min
        self._connection = connection
        self._system = system
        self._changed = system.condition()
        self._jobs = Jobs()
        self._ended: deque[str] = deque(maxlen=_REMEMBERED)
        self._slots: Sequence[Slot] = ()
        self._offered = 0
        self._draining = False
        self._stopped = False
        self._threads: list[Task] = []

    def start(self, slots: int, equip: Callable[[pb.OpenSessionResponse], tuple[Sstables, Sequence[Slot]]]) -> None:
        """Open the session with `slots` slots, and begin.

        `equip` makes of what the service answered (where the bucket is, and how it is opened) the slots, and what
        reads metas to cut tasks by. Raises what opening the session raises.
        """
        self._offered = slots
        opened = self._connection.start(self)
        self._sstables, self._slots = equip(opened)
        for number, slot in enumerate(self._slots):
            self._threads.append(self._system.spawn(f"tussock-slot-{number}", lambda slot=slot: self._serve(slot)))  # type: ignore[misc]

    def drain(self, timeout: float) -> None:
        """Take no more tasks, stop and return those that run, and end the session: within `timeout` seconds."""
        with self._changed:
            if self._stopped:
                return
            self._draining = True
            for job in self._jobs.all():
                job.stopped = job.stopped or "the compactor is shutting down"
            idle = [job for job in self._jobs.all() if self._jobs.may_end(job)]
            self._changed.notify_all()
        for job in idle:
            self._end(job)
        with self._changed:
            self._changed.wait_for(lambda: not self._jobs.all(), timeout)
            self._stopped = True
            self._changed.notify_all()
        self._connection.close()
        for thread in self._threads:
            thread.join(timeout)
        for slot in self._slots:
            slot.close()

    # --- How it is --------------------------------------------------------------------------------------------------

    def defect(self) -> str:
        """What only a restart of the process can cure; empty if there is nothing of that kind."""
        with self._changed:
            if self._draining:
                return ""
        if not self._connection.is_alive:
            return "the session's threads have ended; the log tells why"
        if not all(thread.is_alive() for thread in self._threads):
            return "the thread of a slot has ended; the log tells why"
        return ""

    def obstacle(self) -> str:
        """Why the service can give this node no task; empty if it can."""
        with self._changed:
            if self._draining:
                return "the node is shutting down"
        if self._connection.lease_deadline < self._system.monotonic():
            return "the node has no session at the meta service"
        return ""

    # --- As the owner of its session ------------------------------------------------------------------------------

    def holdings(self) -> Holdings:
        """Its tasks and its slots."""
        with self._changed:
            jobs = self._jobs.all()
            return Holdings(
                tasks=[pb.TaskProgress(task_id=job.task.id, rows_read=job.progress()) for job in jobs],
                oldest_upload=min((job.oldest_upload for job in jobs), default=""),
                slots=0 if self._draining else self._offered,
            )

    def after_seq(self) -> int:
        """Versions are not needed, and a subscription that begins late is sent none of the past."""
        return _NO_VERSIONS

    def on_opened(self, opened: pb.OpenSessionResponse) -> None:
        """Stop the tasks that are lost."""
        self.on_lost_tasks(opened.lost_tasks)

    def on_heartbeat(self, seq: int) -> None:
        """Nothing here depends on it."""

    def on_event(self, event: pb.Event) -> None:
        """Take a task."""
        if not event.HasField("task"):
            return
        task, spec = task_from_message(event.task)
        horizon = event.task.gc_horizon
        with self._changed:
            # While draining nothing is begun: the session ends soon, and its tasks with it.
            if self._draining or self._jobs.get(task.id) is not None or task.id in self._ended:
                return
            oldest = max(id_floor(self._system.now_ms()), horizon)
            self._jobs.add(CompactionJob(task=task, spec=spec, gc_horizon=horizon, oldest_upload=oldest))
            self._changed.notify_all()

    def on_lost_tasks(self, task_ids: Sequence[str]) -> None:
        """The leader has taken these back: stop them."""
        idle = []
        with self._changed:
            for task_id in task_ids:
                job = self._jobs.get(task_id)
                if job is not None:
                    job.lost = True
                    if self._jobs.may_end(job):
                        idle.append(job)
            self._changed.notify_all()
        for job in idle:
            self._end(job)

    # --- What the slots do ----------------------------------------------------------------------------------------

    def _serve(self, slot: Slot) -> None:
        while True:
            with self._changed:
                work = self._jobs.take()
                while work is None and not self._stopped:
                    self._changed.wait()
                    work = self._jobs.take()
            if work is None:
                return
            self._do(slot, work)

    def _do(self, slot: Slot, work: SlotWork) -> None:
        job = work.job
        try:
            number, part = self._part(work)
            outputs = slot.run(part, lambda rows: self._note(job, number, rows), lambda: job.cancelled)
            with self._changed:
                job.outputs[number] = outputs
        except CompactionCancelled:
            pass
        except (TussockError, SlotCrashed) as error:
            job.error = job.error or error
        except Exception as error:
            # A defect ends the task, not the node; the leader is told.
            log.exception("compaction task failed unexpectedly", task=job.task.id)
            job.error = job.error or error
        with self._changed:
            is_last = self._jobs.leave(job)
            self._changed.notify_all()
        if is_last:
            self._end(job)

    def _part(self, work: SlotWork) -> tuple[int, TaskPart]:
        job = work.job
        if work.part is None:
            parts = cut(self._sstables, job.spec, job.task, job.gc_horizon, len(self._slots), self._part_bytes_min)
            with self._changed:
                number = self._jobs.cut(job, parts)
                self._changed.notify_all()
            log.info(
                "compaction task begins",
                task=job.task.id,
                table=job.spec.name,
                kind=job.task.kind,
                runs=len(job.task.inputs),
                ssts=len(job.task.ssts()),
                parts=len(parts),
            )
            return number, parts[number]
        assert job.parts is not None
        return work.part, job.parts[work.part]

    def _note(self, job: CompactionJob, number: int, rows: int) -> None:
        job.rows_read[number] = rows

    def _end(self, job: CompactionJob) -> None:
        """Report the task, or return it; nothing of it runs any more."""
        try:
            if not job.cancelled and self._report(job):
                return
            if job.lost:
                log.info("compaction task lost, its outputs are garbage", task=job.task.id)
            else:
                self._return(job)
        finally:
            with self._changed:
                self._jobs.remove(job)
                self._ended.append(job.task.id)
                self._changed.notify_all()

    def _report(self, job: CompactionJob) -> bool:
        """Whether the report was accepted."""
        outputs = job.all_outputs()
        request = pb.ReportTaskRequest(
            session_id=self._connection.session_id,
            task_id=job.task.id,
            outputs=[sst_to_message(sst) for sst in outputs],
            watermark=job.task.watermark,
        )
        while not job.lost:
            try:
                self._connection.call("ReportTask", request)
            except MetaUnavailable as error:
                # The work is done; it is worth waiting for a leader, until one says that the task is lost.
                log.warning("compaction task cannot be reported yet", task=job.task.id, error=str(error))
                continue
            except Fenced as error:
                log.info("compaction task refused", task=job.task.id, reason=str(error))
                job.lost = True
                return False
            except TussockError as error:
                job.error = error
                return False
            log.info(
                "compaction task done",
                task=job.task.id,
                table=job.spec.name,
                rows=sum(sst.rows for sst in outputs),
                ssts=len(outputs),
            )
            return True
        return False

    def _return(self, job: CompactionJob) -> None:
        error = job.error
        request = pb.ReturnTaskRequest(
            session_id=self._connection.session_id, task_id=job.task.id, reason=job.stopped or str(error)
        )
        if error is not None:
            log.warning("compaction task failed", task=job.task.id, table=job.spec.name, error=str(error))
            request.error.CopyFrom(_error_detail(error))
        try:
            self._connection.call("ReturnTask", request)
        except TussockError as failed:
            # The leader takes it back when it sees that the heartbeats no longer name it.
            log.warning("compaction task could not be returned", task=job.task.id, error=str(failed))


def _error_detail(error: BaseException) -> pb.ErrorDetail:
    if isinstance(error, ObjectNotFound):
        # If the task had been taken back, its inputs may be gone rightly; then the leader ignores what is returned.
        error = CorruptSst(f"{error}; the version names it, so it was lost: restore it")
    if isinstance(error, TussockError):
        return pb.ErrorDetail.FromString(encode_error(error))
    return pb.ErrorDetail(kind=type(error).__name__, message=str(error))


_NO_VERSIONS = (1 << 64) - 1
"""A sequence that no version reaches."""
