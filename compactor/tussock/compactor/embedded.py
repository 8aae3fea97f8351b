"""The embedded backend: the version log and compaction in the process that opened the store.

`tussock.statestore.connect` loads this module by name (see `docs/decisions/0003-late-bound-backend.md`).

The process that commits compacts. After each commit its background thread is nudged; when a table's L0 is so
long that reads would suffer, the commit itself works on it before it returns. So a store that many short-lived
processes write to (the Python workers of a Spark job, say) stays in shape without any service. When there is nothing
left to compact, the thread runs a vacuum now and then, without which bucket and log would only grow.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import NoReturn

from tussock.compactor.executor import CompactionCancelled, execute
from tussock.compactor.leases import LeaseKeeper
from tussock.compactor.proofs import UploadProver
from tussock.compactor.worker import CompactionWorker
from tussock.meta.compaction.picker import pick_manual
from tussock.meta.meta_store import MetaStore
from tussock.meta.retention.recurring import Recurring
from tussock.meta.version.version import CompactionTask
from tussock.statestore.base.logs import get_logger
from tussock.statestore.base.pools import Pending, StorePool
from tussock.statestore.base.system import System
from tussock.statestore.buckets.request_counter import RequestCounts
from tussock.statestore.contract.backend import PAYLOAD_BYTES_MAX, Backend, BackupInfo, CommitRequest
from tussock.statestore.contract.barriers import BarrierEvent, JobOptions
from tussock.statestore.contract.records import SstInfo
from tussock.statestore.errors import (
    CorruptSst,
    Fenced,
    InvalidBatch,
    InvalidOption,
    ObjectNotFound,
    StoreClosed,
    TableNotFound,
    TussockError,
    WaitTimeout,
)
from tussock.statestore.settings import StoreSettings
from tussock.statestore.sst.reader import Sstables
from tussock.statestore.write.uploader import Uploader

__all__ = ["EmbeddedBackend", "open_backend"]

log = get_logger("tussock.compactor")

_CACHE_BYTES = 32 << 20
"""Half of it is for the metas of SSTs under compaction; their blocks are not cached."""

_INLINE_TASKS_MAX = 8  # Tasks that one commit runs at most before it returns, however long L0 is.
_MERGES_MAX = 4  # Small tasks that are done at once.
_VACUUM_SECONDS_MIN = 300.0  # Between two vacuums of one process, or its grace period if that is longer.

BUSY_PAUSE_SECONDS = 0.02
BUSY_PAUSE_SECONDS_MAX = 1.0
BUSY_SECONDS_MAX = 600.0


class EmbeddedBackend:
    """Meta as a library, and compaction beside it; a `Backend`."""

    def __init__(self, settings: StoreSettings, system: System, requests: RequestCounts) -> None:
        self.meta = MetaStore(
            requests.for_purpose("meta"),
            system,
            retention_seconds=settings.retention,
            gc_grace_seconds=settings.gc_grace,
            open_source=requests.opener("meta"),
            staleness_seconds=settings.max_staleness,
        )
        self.meta.log.clock.max_ahead_ms = settings.max_clock_ahead * 1000
        # What a backend is asked for and meta does by itself, with no step between: every read asks some of it.
        self.version = self.meta.version
        self.refresh = self.meta.refresh
        self.recent = self.meta.recent
        self.await_change = self.meta.await_change
        self.create_table = self.meta.create_table
        self.alter_table = self.meta.alter_table
        self.drop_table = self.meta.drop_table
        self.open_writer = self.meta.open_writer
        self.oldest_readable = self.meta.oldest_readable
        self.pin = self.meta.pins.pin
        self.protect = self.meta.protect
        self.vacuum = self.meta.vacuum
        self.list_backups = self.meta.backups.list
        self.delete_backup = self.meta.backups.delete
        self.pins = self.meta.live_pins
        bucket = requests.for_purpose("compaction")
        self._sstables = Sstables(bucket, _CACHE_BYTES, system, requests.opener("compaction"), settings.limits)
        self._uploader = Uploader(bucket, system, self.upload_horizon)
        self._prover = UploadProver(bucket, system)
        self._merges = StorePool(system, "tussock-merge", _MERGES_MAX, "the store was closed by another thread")
        self._clock = system
        self._worker = CompactionWorker(system, self._work) if settings.compaction else None
        self._leases = LeaseKeeper(system, self.meta.own_tasks.renew)
        self._vacuuming = Recurring(system, lambda: max(self.meta.grace_seconds, _VACUUM_SECONDS_MIN))
        self._ended = system.condition()
        self._tasks_ended = 0
        self._closing = False

    # --- What is asked of the version and its keeper ------------------------------------------------------------

    def committed_batch(self, writer: str, batch_id: int, source: str | None, tables: Collection[int]) -> int | None:
        """The epoch that holds this (writer, batch) in the version known here, or `None`."""
        return self.version().committed_epoch_of(writer, batch_id, source, tables)

    @property
    def payload_bytes_max(self) -> int:
        """Small SSTs lie in the log entry of their commit: one durable object for all of them."""
        return PAYLOAD_BYTES_MAX

    def upload_horizon(self) -> str:
        """The garbage horizon; refused where this machine's clock is too far ahead to name SSTs by."""
        self.meta.log.clock.own_ms()
        return self.version().gc_horizon

    def create_backup(self, name: str, comment: str = "") -> BackupInfo:
        """Keep the newest version under a name; see `Backups.create`."""
        return self.meta.backups.create(name, comment=comment)

    # --- Commits, and the compaction that follows ---------------------------------------------------------------

    def commit(self, request: CommitRequest) -> int:
        """Commit an epoch, and see that the tables that it wrote to get compacted."""
        if request.uploaded and request not in self.meta.unknown_commits:
            try:
                self._prover.check(self.version(), request)
            except InvalidBatch:
                # It may repeat a commit that happened, and whose SSTs are gone since.
                known = self.meta.refused_or_known(request)
                if known is None:
                    raise
                return known
        committed = self.meta.commit(request)
        if self._worker is not None and request.tables:
            self._worker.nudge()
            self._help(request)
        return committed

    def compact(self, table: str) -> None:
        """Merge the whole table into one sorted run at its bottom level; `StoreClosed` if another thread closes."""
        try:  # It goes on if the main thread is interrupted: else its claim would stay.
            self._clock.uninterrupted(lambda: self._compact(table))
        except CompactionCancelled as error:
            raise StoreClosed(
                f"the store was closed by another thread while table {table!r} was compacted; connect again"
            ) from error
        finally:
            if self._worker is not None:
                self._worker.nudge()  # It left the table alone meanwhile, whose history may want a merge.

    def _compact(self, table: str) -> None:
        deadline = self._clock.monotonic() + BUSY_SECONDS_MAX
        pause = BUSY_PAUSE_SECONDS
        with self.meta.own_tasks.reserved(table):
            while True:
                ended = self._tasks_ended
                task = self.meta.own_tasks.claim(table, manual=True)
                if task is not None and self._execute(task):
                    return
                version = self.refresh()
                state = version.find_table(table)
                if state is None:
                    raise TableNotFound(f"table {table!r} was dropped while it was being compacted", table)
                tasks = [other for other in version.tasks.values() if other.table_id == state.spec.id]
                if task is None and not tasks:
                    # Asked again on this very version: a task of another in the way may have ended just now.
                    if pick_manual(state, tasks, self.meta.config) is None:
                        return
                    continue
                if self._clock.monotonic() >= deadline:
                    raise WaitTimeout(
                        f"table {table!r}: other compactions did not end within {BUSY_SECONDS_MAX:.0f} s; try again "
                        "later"
                    )
                if self._is_closing():
                    raise CompactionCancelled(f"table {table!r} was to be compacted")
                # Another task holds some of the table's SSTs, or took this one's: it reports, or its claim expires.
                self._await_end(tasks, ended, pause)
                pause = min(2 * pause, BUSY_PAUSE_SECONDS_MAX)

    def _await_end(self, tasks: Sequence[CompactionTask], ended: int, seconds: float) -> None:
        """Wait until more than `ended` tasks of this process have ended; where others hold the tasks, just wait."""
        if not any(task.owner == self.meta.owner for task in tasks):
            self._clock.sleep(seconds)
            return
        with self._ended:
            self._ended.wait_for(lambda: self._tasks_ended != ended, seconds)

    def barrier_channel(
        self,
        job: str,
        participant: str,  # noqa: ARG002 -- as the protocol has it
        options: JobOptions,  # noqa: ARG002
        inbox: Callable[[BarrierEvent | None], None],  # noqa: ARG002
    ) -> NoReturn:
        """Refused: nobody coordinates the processes of an embedded store."""
        raise InvalidOption(
            f"job {job!r}: epochs of several workers commit together only where a meta service coordinates them, and "
            "this store is embedded: connect to tussock://..., or commit with writer= and batch_id=",
            job,
        )

    def close(self) -> None:
        """Stop compaction, then let go of pins."""
        self._closing = True
        if self._worker is not None:
            self._worker.close()
        self._leases.close()
        self._merges.close()
        self.meta.close()
        self._prover.close()
        self._uploader.close()
        self._sstables.close()

    def _help(self, request: CommitRequest) -> None:
        """Work on L0 in this thread while one of the commit's tables has too much of it."""
        try:
            for _ in range(_INLINE_TASKS_MAX):
                stalls = [self.meta.write_stall(table) for table in request.tables]
                is_needed = any(stall is not None and stall.stopped for stall in stalls)
                if not is_needed or not self._clock.uninterrupted(self._help_once):
                    return
        except CompactionCancelled:
            return
        except Exception:
            # The epoch is committed: an error here would tell the caller that it is not.
            log.exception(
                "compaction within a commit failed, the next commit tries again", tables=sorted(request.tables)
            )

    def _help_once(self) -> bool:
        return (task := self.meta.own_tasks.claim()) is not None and self._step([task])

    def _work(self) -> bool:
        """The thread's next piece of work; `False` if nothing is left to do."""
        self._vacuum_if_due()
        return self._step(self.meta.own_tasks.claim_together())

    def _vacuum_if_due(self) -> None:
        if not self._vacuuming.is_due:
            return
        self._vacuuming.note_failure()
        try:
            report = self.vacuum()
        except Exception as error:  # noqa: BLE001
            # Whatever it is, compaction goes on, and a later round tries again.
            log.warning("vacuum failed, a later one tries again", error=str(error))
            return
        self._vacuuming.note_success()
        log.info("vacuumed", deleted=len(report.deleted), bytes_freed=report.bytes_freed)

    def _step(self, tasks: Sequence[CompactionTask]) -> bool:
        """Do tasks that were claimed together, or fail at some of them; `False` if there are none."""
        waiting = list(tasks)
        try:
            with self._holding():
                done = []
                for task, outputs in zip(tasks, self._try_all(tasks), strict=True):
                    if outputs is None:
                        waiting.remove(task)
                    else:
                        done.append((task, outputs))
                self._report(done)
                waiting = []
        finally:
            if waiting:
                self._give_up(*waiting)
        return bool(tasks)

    def _try_all(self, tasks: Sequence[CompactionTask]) -> list[Sequence[SstInfo] | None]:
        """What `_try` says of each; several are done at once, since small ones wait for the bucket most of the time."""
        begun: list[Pending[Sequence[SstInfo] | None]] = []
        if len(tasks) == 1:
            return [self._try(tasks[0])]
        try:
            begun += (self._merges.submit(self._try, task) for task in tasks)
            return [one.result() for one in begun]
        except StoreClosed as error:
            raise CompactionCancelled(str(error)) from error
        finally:
            for one in begun:
                one.end()

    def _try(self, task: CompactionTask) -> Sequence[SstInfo] | None:
        """The outputs of a task; `None` if it failed, or was taken back: then its inputs are left alone for a while."""
        try:
            outputs = self._merge(task)
        except CompactionCancelled:
            raise
        except StoreClosed as error:
            # Its threads were stopped, by a close or by the end of the process: nothing is wrong with the task.
            raise CompactionCancelled(str(error)) from error
        except Exception as error:  # noqa: BLE001
            self._note_failure(task, error)
            return None
        if outputs is None:
            # The process that took it back may be at work on it.
            self.meta.own_tasks.note_failure(task)
        return outputs

    def _report(self, done: Sequence[tuple[CompactionTask, Sequence[SstInfo]]]) -> None:
        errors: Sequence[Exception | None] = []
        try:
            errors = self.meta.own_tasks.report_together(done) if done else errors
        except TussockError as error:
            errors = [error] * len(done)
        for (task, _), failure in zip(done, errors, strict=True):
            if failure is None:
                self.meta.own_tasks.note_success(task)
            elif isinstance(failure, Fenced):
                self.meta.own_tasks.note_failure(task)
            else:
                self._give_up(task)
                self._note_failure(task, failure)

    def _note_failure(self, task: CompactionTask, error: Exception) -> None:
        seconds = self.meta.own_tasks.note_failure(task)
        told = {"table": self._name_of(task), "again_seconds": seconds}
        if isinstance(error, TussockError):
            log.error("compaction failed", **told, error=str(error))
        else:
            # A defect, or memory that ran out: the other tables must not pay for it.
            log.error("compaction failed unexpectedly", **told, exc_info=error)

    def _name_of(self, task: CompactionTask) -> str:
        state = self.version().tables.get(task.table_id)
        return state.spec.name if state else f"with id {task.table_id}"

    @contextmanager
    def _holding(self) -> Iterator[None]:
        """Inside, the leases of tasks are renewed; those who wait for the end of one are told at the end."""
        try:
            with self._leases.holding():
                yield
        finally:
            with self._ended:
                self._tasks_ended += 1
                self._ended.notify_all()

    def _execute(self, task: CompactionTask) -> bool:
        """Do the task; `False` if it was taken back meanwhile, so that nothing changed."""
        with self._holding():
            outputs = self._merge(task)
            try:
                if outputs is not None:
                    self.meta.own_tasks.report(task, outputs)
            except Fenced:
                # Taken back, or the table dropped: the outputs are garbage, the work is someone else's.
                return False
            except BaseException:
                self._give_up(task)
                raise
            return outputs is not None

    def _merge(self, task: CompactionTask) -> Sequence[SstInfo] | None:
        """The outputs, to be reported; `None` if the task was taken back. After an error the task is given up."""
        state = self.version().tables.get(task.table_id)

        def is_over() -> bool:
            return self._is_closing() or task.id not in self.version().tasks

        try:
            if state is None:
                raise CompactionCancelled(f"table with id {task.table_id} was dropped")
            return execute(self._sstables, self._uploader, state.spec, task, cancelled=is_over)
        except CompactionCancelled:
            self._give_up(task)
            if self._is_closing():
                raise
            return None
        except (ObjectNotFound, CorruptSst) as error:
            try:
                is_ours = task.id in self.refresh().tasks
            finally:
                self._give_up(task)
            if is_ours and isinstance(error, ObjectNotFound):
                # Nobody else replaces its inputs: the newest version names what is not there.
                raise CorruptSst(f"{error}; the newest version names it, so it was lost: restore it") from error
            if is_ours:
                raise
            return None
        except BaseException:
            self._give_up(task)
            raise

    def _give_up(self, *tasks: CompactionTask) -> None:
        # The next process takes them back when they expire; the error that led here is the one to tell.
        with suppress(TussockError):
            self.meta.own_tasks.release(*tasks)

    def _is_closing(self) -> bool:
        return self._closing or (self._worker is not None and self._worker.closing)


def open_backend(settings: StoreSettings, system: System, requests: RequestCounts) -> Backend:
    """The backend of an embedded store; reads the version log."""
    return EmbeddedBackend(settings, system, requests)
