"""Runs a program: one thread takes requests, one makes their records durable, one commits the state now and then.

A request runs in memory as soon as its turn comes. Its record joins a group; the reply leaves when the group is
durable, and the next requests run meanwhile. A group ends when nothing waits to run and the log is free, or when it is
as old as `group_commit` seconds. Every `checkpoint` seconds the delta is cut and committed beside the work, with how
far the application is; then the part of the log that it holds is deleted.
"""

import queue
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

from tussock.compute.applications.durability.background import BackgroundCommit, TableCheck
from tussock.compute.applications.durability.log_writer import LogWriter, OpenGroup
from tussock.compute.applications.durability.progress import ApplicationProgress, write_progress
from tussock.compute.applications.durability.recovery import recover
from tussock.compute.applications.durability.run_counts import RunCounts
from tussock.compute.applications.durability.troubles import STATE, Troubles
from tussock.compute.applications.errors import ApplicationFenced, ApplicationStopped, Full
from tussock.compute.applications.limits import DEFAULT_APPLICATION_LIMITS, ApplicationLimits
from tussock.compute.applications.program import Outcome, Program, Request
from tussock.compute.applications.records import Record
from tussock.compute.applications.replies import ReplyFuture, failure_of, give
from tussock.compute.applications.request_queue import NUDGE, AskedWithin, Nesting, RequestQueue
from tussock.statestore import StateStore
from tussock.statestore.base.logs import get_logger
from tussock.statestore.base.process.garbage import OldObjects, collect_rarely
from tussock.statestore.base.system import Task

__all__ = ["Runner"]

log = get_logger("tussock.compute.applications.runner")

DELTA_BYTES_MAX = 128 << 20
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
        asked_within: AskedWithin,
        limits: ApplicationLimits = DEFAULT_APPLICATION_LIMITS,
    ) -> None:
        """`place` is the URL of the bucket that the input log is in; `None`: the store's."""
        self._store, self._name, self._program = store, name, program
        self._group_commit, self._checkpoint = group_commit, checkpoint
        self._place = place
        self._limits, self._requests = limits, RequestQueue(limits)
        self._is_stopping, self._is_dirty = False, False
        self._failure: Exception | None = None
        self._task: Task | None = None
        self._group = OpenGroup()
        self._running: Future[Any] | None = None
        """The reply of what runs."""
        self.nesting = Nesting(name, store.url, asked_within)
        self._commit: BackgroundCommit | None = None
        self._checkpoint_at = 0.0

    def start(self) -> None:
        """Take the application over, replay what no committed epoch holds, and begin to take requests.

        Raises `NotDeterministic`, `CorruptLog`, what opening the store's tables raises, and `ApplicationStopped` where
        a replay has hung.
        """
        collect_rarely()
        generation = self._store.open_writer(self._name)
        self._delta = self._store.delta(self._name, generation=generation)
        self._system = self._delta.system
        self._tables = TableCheck(self._delta, self._name, self._checkpoint)
        self.troubles = Troubles(self._name, self._system)
        self._writer = LogWriter(self._system, self._limits, self._requests.nudge, self.nesting, self.troubles)
        self.run_counts = RunCounts(self._writer)
        try:
            # As in the run itself: what a function may not ask there it may not in a replay, and comes to the same.
            with self.nesting:
                self._recover(generation)
                self._resume()
            if self._failure is not None:
                self._writer.stop()
                raise self._failure
        except BaseException as error:
            self._program.unload()
            self._delta.close()
            # What a hanging replay ends with when it goes on after all is its consequence.
            if self._failure is not None and error is not self._failure:
                raise self._failure from error
            raise
        self._checkpoint_at = self._system.monotonic() + self._checkpoint
        OldObjects.spare()
        self._task = self._system.spawn(f"tussock application {self._name}", self._work)

    def submit(self, what: Any, size: int = 0, *, is_look: bool = False) -> "Future[Any]":
        """Ask for something of `size` bytes; the future gets the reply once it is durable. Waits while too much waits.

        Until the request runs, `cancel` of the future withdraws it. `is_look`: it changes nothing, and runs in a pause,
        too. Raises `ApplicationStopped`, what the application has failed with, the layer's error within a request, and
        `Full` in a callback of a reply, which cannot wait for room.
        """
        self.nesting.check(waits=False)
        self.check_running()
        while not is_look and not self._requests.make_room(size):
            if self.nesting.is_in_callback:
                raise Full(f"application {self._name!r}: {self.waiting:,} requests wait; this one did not begin", 1000)
            self._system.sleep(0.001)
            self.check_running()
        reply = ReplyFuture(self.nesting)
        self._requests.put(Request(what, reply, is_look, size))
        self._drain_if_over()
        return reply

    def submit_next(self, what: Any, reply: "Future[Any]") -> None:
        """Ask for something of which a layer has one at most on its way; does not wait. In any thread."""
        self._requests.put(Request(what, reply))
        self._drain_if_over()

    def stop(self) -> None:
        """Run what was asked for, commit it, and end; raises what the application has failed with."""
        self.nesting.check(waits=True)
        if self._task is None or self.nesting.is_forked:
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
        """What has ended this run; `None` while nothing has. Of the log callers hear before the thread of requests."""
        return self._failure or self._writer.failure

    def counts(self) -> dict[str, int]:
        """Of this run, for statuses; in any thread. `uncommitted`: records that no committed epoch holds yet."""
        return self.run_counts.told(self._seq, self._progress.seq, self._commit)

    @property
    def uid(self) -> str:
        """What tells this application from others of its name."""
        return self._progress.uid

    def commit_soon(self) -> None:
        """Do not wait for the next checkpoint."""
        self._checkpoint_at = self._system.monotonic()
        self._requests.nudge()

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
        self._progress, self._log, self._seq = recover(
            self._store, self._delta, self._name, self._program, self, self._place, generation
        )
        self._is_dirty = self._seq > self._progress.seq
        self._next_object = self._log.next

    def _resume(self) -> None:
        self._writer.begin(self._log)
        try:
            for outcome in self._program.resume(self._seq + 1):
                self._take(outcome, None)
            self._hand_over()
        except BaseException:
            self._writer.stop()
            raise

    # --- Requests ----------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        with self.nesting.giving():
            try:
                # No name here keeps a reply, which may be large, until the next request comes.
                while self._run(self._next_request()):
                    self._look_after()
                self._end()
            except BaseException as error:  # noqa: BLE001 - every caller who waits has to hear of it
                self._fail(failure_of(error))
            finally:
                OldObjects.end()

    def _run(self, request: Request | None) -> bool:
        """Run a request; `False` at the end."""
        if request is not None and request is not NUDGE and request.reply.set_running_or_notify_cancel():
            self._running = request.reply
            with self.nesting:
                outcome = self._program.run(request.what, self._seq + 1)
            self.troubles.end(STATE)
            self._take(outcome, request.reply)
            self._running = None
        return request is not None

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
        now = self._system.monotonic()
        if outcome.records:
            records = outcome.records
            if self._group_commit is None:
                # Each record alone; the last one lets the reply go.
                for record in records[:-1]:
                    self._group.add((record,), now)
                    self._hand_over()
                records = records[-1:]
            self._group.add(records, now)
            self._seq = outcome.records[-1].seq
            self.run_counts.records += len(outcome.records)
            self._is_dirty = True
        if reply is not None:
            self._group.promise(reply, outcome, now)

    def _hand_over(self) -> None:
        """End the group."""
        if self._group.is_empty:
            return
        number = 0
        if self._group.records:
            number, self._next_object = self._next_object, self._next_object + 1
        self._writer.put(self._group.take(number))

    def _look_after(self) -> None:
        """What has to be done between two requests."""
        if self._writer.failure is not None:
            raise self._writer.failure
        if self._commit is not None and self._commit.failure is not None:
            raise self._commit.failure
        if not self._is_dirty and (self._commit is None or self._commit.is_done):
            self._tables.look(self._checkpoint_at)
        if self._checkpoint == 0:
            self.commit_now()
            return
        if self._group.is_ripe(self._system.monotonic(), self._group_commit or 0.0):
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
        replies, self._group.replies = self._group.replies, []
        try:
            if self._is_dirty:
                self._hand_over()
                self._begin_commit()
                self.wait_committed()
        except BaseException:
            self._group.replies = replies
            raise
        for reply, outcome in replies:
            give(reply, outcome)

    def _begin_commit(self) -> None:
        self._hand_over()
        self.run_counts.cut(self._progress.seq)
        progress = ApplicationProgress(
            self._progress.uid,
            self._seq,
            self._next_object,
            self._log.takeovers,
            self._program.persist(),
            {**self._progress.tables, **self._delta.written},
        )
        write_progress(self._delta, self._name, progress)
        frozen = self._delta.freeze(self._seq)
        self._commit = BackgroundCommit(
            self._system, self._name, frozen, self._writer, self._log, self._next_object, self.troubles
        )
        # Last, as who counts meanwhile would take it for committed before the commit has begun.
        self._progress = progress
        self._is_dirty = False
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
        # First of all: what follows may fail as well, such as a log whose disk is full.
        self._failure = error
        self._writer.failure = self._writer.failure or error
        with suppress(BaseException):
            if isinstance(error, ApplicationFenced):
                log.warning("application is fenced", application=self._name, error=str(error))
            else:
                log.error("application failed", application=self._name, error=str(error), exc_info=error)
        for reply, _ in self._group.take(0).replies:
            give(reply, Outcome(error=error))
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
        """Raises what this run has ended with, `ApplicationStopped` if it was stopped, in a fork `StoreClosed`."""
        self.nesting.check_process()
        if self._failure is not None:
            raise self._failure
        if self._task is None or self._is_stopping:
            raise self._stopped()

    def _stopped(self) -> ApplicationStopped:
        return ApplicationStopped(f"application {self._name!r} is not running; start it, or use it in a `with` block")
