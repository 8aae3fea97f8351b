"""Runs a program: one thread takes requests, one makes their records durable, one commits the state now and then.

A request runs in memory as soon as its turn comes. Its record joins a group; the reply leaves when the group is
durable, and the next requests run meanwhile. A group ends when nothing waits to run and the log is free, or when it is
as old as `group_commit` seconds. Every `checkpoint` seconds the delta is cut and committed beside the work, with how
far the application is; then the part of the log that it holds is deleted.
"""

import queue
from concurrent.futures import Future
from typing import Any

from msgspec.structs import replace

from tussock.compute.applications.durability.background import BackgroundCommit
from tussock.compute.applications.durability.input_log import InputLog
from tussock.compute.applications.durability.log_writer import LogGroup, LogWriter
from tussock.compute.applications.durability.progress import ApplicationProgress, read_progress, write_progress
from tussock.compute.applications.errors import ApplicationFenced, ApplicationStopped
from tussock.compute.applications.limits import DEFAULT_APPLICATION_LIMITS, ApplicationLimits
from tussock.compute.applications.program import Outcome, Program, Request
from tussock.compute.applications.records import Record
from tussock.compute.applications.replies import failure_of, give
from tussock.compute.applications.request_queue import NUDGE, Nesting, RequestQueue
from tussock.statestore import StateStore
from tussock.statestore.base.logs import get_logger
from tussock.statestore.base.system import Task
from tussock.statestore.buckets.opening import open_bucket

__all__ = ["Runner"]

log = get_logger("tussock.compute.applications.runner")

GROUP_RECORDS_MAX = 10_000
GROUP_BYTES_MAX = 16 << 20
"""Of one object of the input log, as far as the requests say; a larger request is alone in its own."""
DELTA_BYTES_MAX = 256 << 20
"""From this many bytes on a commit begins, and from twice as many on requests wait for it."""


class Runner:
    """One run of an application, from `start` to `stop`."""

    def __init__(
        self,
        store: StateStore,
        name: str,
        program: Program,
        *,
        group_commit: float | None,
        checkpoint: float,
        place: str | None,
        limits: ApplicationLimits = DEFAULT_APPLICATION_LIMITS,
    ) -> None:
        """`place` is the URL of the bucket that the input log is in; `None`: the store's."""
        self._store = store
        self._name = name
        self._program = program
        self._group_commit = group_commit
        self._checkpoint = checkpoint
        self._place = place
        self._limits, self._requests = limits, RequestQueue(limits)
        self._is_stopping = False
        self._failure: Exception | None = None
        self._log_failure: Exception | None = None
        """What callers may have heard of already, before the thread of requests has."""
        self._task: Task | None = None
        self._records: list[Record] = []
        self._replies: list[tuple[Future[Any], Outcome]] = []
        self._group_bytes = 0
        self._group_began = 0.0
        self._running: Future[Any] | None = None
        """The reply of what runs."""
        self.nesting = Nesting(name)
        self._commit: BackgroundCommit | None = None
        self._is_dirty = False
        self._checkpoint_at = 0.0
        self.commits = 0
        """Store epochs of this run."""
        self.records = 0
        """Records of this run."""

    def start(self) -> None:
        """Take the application over, replay what no committed epoch holds, and begin to take requests.

        Raises `NotDeterministic`, `CorruptLog`, and what opening the store's tables raises.
        """
        generation = self._store.open_writer(self._name)
        self._delta = self._store.delta(self._name, generation=generation)
        self._system = self._delta.system
        try:
            self._recover(generation)
            self._resume()
        except BaseException:
            self._program.unload()
            self._delta.close()
            raise
        self._checkpoint_at = self._system.monotonic() + self._checkpoint
        self._task = self._system.spawn(f"tussock application {self._name}", self._work)

    def submit(self, what: Any, size: int = 0, *, is_look: bool = False) -> "Future[Any]":
        """Ask for something of `size` bytes; the future gets the reply once it is durable. Waits while too much waits.

        Until the request runs, `cancel` of the future withdraws it. `is_look`: it changes nothing, and runs in a pause,
        too. Raises `ApplicationStopped`, what the application has failed with, or `InvalidOption` within a request.
        """
        self.nesting.check()
        self.check_running()
        while not is_look and not self._requests.make_room(size):
            self._system.sleep(0.001)
            self.check_running()
        reply: Future[Any] = Future()
        self._requests.put(Request(what, reply, is_look, size))
        self._drain_if_over()
        return reply

    def submit_next(self, what: Any, reply: "Future[Any]") -> None:
        """Ask for something of which a layer has one at most on its way; does not wait. In any thread."""
        self._requests.put(Request(what, reply))
        self._drain_if_over()

    def stop(self) -> None:
        """Run what was asked for, commit it, and end; raises what the application has failed with."""
        self.nesting.check()
        if self._task is None:
            return
        self._is_stopping = True
        self._requests.end()
        if self._failure is None:
            self._task.join()
        self._task = None
        self._drain()
        if self._failure is not None:
            raise self._failure

    def pause(self) -> None:
        """Take requests, and run none until `resume`; what runs comes to its end."""
        self.check_running()
        self._requests.is_paused = True

    def resume(self) -> None:
        """Run requests again, in the order in which they came."""
        self.check_running()
        self._requests.resume()

    @property
    def is_paused(self) -> bool:
        """Whether requests only wait."""
        return self._requests.is_paused

    @property
    def waiting(self) -> int:
        """Requests that have not begun."""
        return self._requests.waiting

    @property
    def failure(self) -> Exception | None:
        """What has ended this run; `None` while nothing has."""
        return self._failure or self._log_failure

    @property
    def uid(self) -> str:
        """What tells this application from others of its name."""
        return self._progress.uid

    def commit_soon(self) -> None:
        """Do not wait for the next checkpoint."""
        self._checkpoint_at = self._system.monotonic()
        self._requests.nudge()

    @property
    def log_writes(self) -> int:
        """Objects of the input log that this run has written."""
        return self._writer.writes

    def write_now(self, record: Record) -> None:
        """Make a record durable, and all before it, before this returns; in the thread of requests."""
        self._hand_over()
        self._take(Outcome((record,)), None)
        self._hand_over()
        self._writer.wait_durable(self._next_object - 1)

    def wait_committed(self) -> None:
        """Return when what was cut last is committed; raises what its commit has failed with."""
        if self._commit is not None:
            self._commit.wait()

    def give_up(self, why: str) -> None:
        """The thread of requests hangs: refuse all that waits and all that comes. In any thread."""
        error = ApplicationStopped(why)
        log.error("application hangs", application=self._name, error=why)
        self._failure = error
        self._writer.failure = self._writer.failure or error
        running = self._running
        if running is not None:
            give(running, Outcome(error=error))
        self._drain()

    # --- Recovery ----------------------------------------------------------------------------------------------------

    def _recover(self, generation: int) -> None:
        self._progress = read_progress(self._store, self._delta, self._name)
        bucket = self._delta.bucket if self._place is None else open_bucket(self._place, system=self._system)
        known = self._progress
        self._log = InputLog(bucket, self._name, known.uid, generation, known.takeovers)
        self._program.load(self._delta, known.state, self)
        self._seq = known.seq
        if not known.state:
            # The log's uid has to be known before anything is in it.
            self._progress = replace(known, state=self._program.persist())
            write_progress(self._delta, self._name, self._progress)
            self._delta.freeze(self._seq).commit()
        replayed = 0
        for group in self._log.take_over(known.next_object):
            for record in group.records:
                self._program.replay(record)
                self._seq = record.seq
                replayed += 1
        self._is_dirty = replayed > 0
        self._next_object = self._log.next
        if replayed:
            log.info("application recovered", application=self._name, records=replayed, seq=self._seq)

    def _resume(self) -> None:
        self._writer = LogWriter(self._system, self._log, self._limits, self._requests.nudge, self._note_log_failure)
        try:
            for outcome in self._program.resume(self._seq + 1):
                self._take(outcome, None)
            self._hand_over()
        except BaseException:
            self._writer.stop()
            raise

    def _note_log_failure(self, error: Exception) -> None:
        self._log_failure = error

    # --- Requests ----------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        try:
            while (request := self._next_request()) is not None:
                if request is not NUDGE and request.reply.set_running_or_notify_cancel():
                    self._running = request.reply
                    with self.nesting:
                        outcome = self._program.run(request.what, self._seq + 1)
                    self._take(outcome, request.reply)
                    self._running = None
                self._look_after()
            self._end()
        except BaseException as error:  # noqa: BLE001 - every caller who waits has to hear of it
            self._fail(failure_of(error))

    def _next_request(self) -> Request | None:
        try:
            return self._requests.next(0)
        except queue.Empty:
            pass
        if not self._writer.is_busy:
            self._hand_over()
        while True:
            timeout = self._checkpoint_at - self._system.monotonic() if self._is_dirty else None
            try:
                return self._requests.next(None if timeout is None else max(timeout, 0.001))
            except queue.Empty:
                self._look_after()

    def _take(self, outcome: Outcome, reply: "Future[Any] | None") -> None:
        """An outcome joins the group."""
        if not self._records and not self._replies:
            self._group_began = self._system.monotonic()
        if outcome.records:
            if self._group_commit is None:
                # Each record alone; the last one lets the reply go.
                for record in outcome.records[:-1]:
                    self._records = [record]
                    self._hand_over()
                self._records = [outcome.records[-1]]
            else:
                self._records.extend(outcome.records)
            for record in outcome.records:
                self._group_bytes += len(record.given)
            self._seq = outcome.records[-1].seq
            self.records += len(outcome.records)
            self._is_dirty = True
        if reply is not None:
            self._replies.append((reply, outcome))

    def _hand_over(self) -> None:
        """End the group."""
        if not self._records and not self._replies:
            return
        number = 0
        if self._records:
            number, self._next_object = self._next_object, self._next_object + 1
        self._writer.put(LogGroup(number, self._records, self._replies, self._group_bytes))
        self._records, self._replies, self._group_bytes = [], [], 0

    def _look_after(self) -> None:
        """What has to be done between two requests."""
        if self._writer.failure is not None:
            raise self._writer.failure
        if self._commit is not None and self._commit.failure is not None:
            raise self._commit.failure
        if self._checkpoint == 0:
            self.commit_now()
            return
        if self._records or self._replies:
            is_old = self._group_commit is None or (self._system.monotonic() - self._group_began >= self._group_commit)
            if is_old or len(self._records) >= GROUP_RECORDS_MAX or self._group_bytes >= GROUP_BYTES_MAX:
                self._hand_over()
        if self._is_dirty and (self._system.monotonic() >= self._checkpoint_at or self._holds_more_than(1)):
            if self._commit is None or self._commit.is_done:
                self._begin_commit()
            elif self._holds_more_than(2):
                self.wait_committed()
            else:
                self._checkpoint_at = self._system.monotonic() + min(self._checkpoint, 0.05)

    def _holds_more_than(self, times: int) -> bool:
        """Whether what the newest cut does not hold is more than that many times what may be."""
        records = self._seq - self._progress.seq
        nbytes = self._delta.nbytes + self._program.nbytes
        return nbytes > times * DELTA_BYTES_MAX or records > times * self._limits.records_behind

    # --- Commits -----------------------------------------------------------------------------------------------------

    def commit_now(self) -> None:
        """The state's commit first, then the replies: with a store epoch for each request the log's end is its own."""
        self.wait_committed()
        replies, self._replies = self._replies, []
        try:
            if self._is_dirty:
                self._hand_over()
                self._begin_commit()
                self.wait_committed()
        except BaseException:
            self._replies = replies
            raise
        for reply, outcome in replies:
            give(reply, outcome)

    def _begin_commit(self) -> None:
        self._hand_over()
        self._progress = ApplicationProgress(
            self._progress.uid, self._seq, self._next_object, self._log.takeovers, self._program.persist()
        )
        write_progress(self._delta, self._name, self._progress)
        frozen = self._delta.freeze(self._seq)
        self._commit = BackgroundCommit(self._system, self._name, frozen, self._writer, self._log, self._next_object)
        self._is_dirty = False
        self.commits += 1
        self._checkpoint_at = self._system.monotonic() + self._checkpoint

    # --- The end -----------------------------------------------------------------------------------------------------

    def _end(self) -> None:
        self._hand_over()
        self.commit_now()
        self._writer.stop()
        self._program.unload()
        self._delta.close()
        if self._writer.failure is not None:
            raise self._writer.failure

    def _fail(self, error: Exception) -> None:
        if not isinstance(error, ApplicationFenced):
            log.error("application failed", application=self._name, error=str(error), exc_info=error)
        else:
            log.warning("application is fenced", application=self._name, error=str(error))
        self._failure = error
        self._writer.failure = self._writer.failure or error
        for reply, _ in self._replies:
            give(reply, Outcome(error=error))
        self._replies = []
        if self._running is not None:
            # It may have failed in the middle of its run, before it had an outcome.
            give(self._running, Outcome(error=error))
        self._writer.stop()
        self._program.unload()
        self._delta.close()
        self._drain()

    def _drain_if_over(self) -> None:
        if self._failure is not None or self._task is None:
            self._drain()

    def _drain(self) -> None:
        """Refuse what nobody will run any more."""
        for request in self._requests.drain():
            give(request.reply, Outcome(error=self._failure or self._stopped()))

    def check_running(self) -> None:
        """Raises what this run has ended with, or `ApplicationStopped` if it was stopped."""
        if self._failure is not None:
            raise self._failure
        if self._task is None or self._is_stopping:
            raise self._stopped()

    def _stopped(self) -> ApplicationStopped:
        return ApplicationStopped(f"application {self._name!r} is not running; start it, or use it in a `with` block")
