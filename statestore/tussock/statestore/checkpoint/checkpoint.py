"""`Checkpoint`: a worker's place in a job whose participants commit together.

`participant.py` decides what an event means; this does it: holds the worker's writes off while an epoch ends, seals
and uploads that epoch, collects the barrier, drops what was committed or aborted. Events come to an inbox and are
worked on by one thread of the store's, so the thread that brings them never waits.
"""

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import TracebackType

from tussock.statestore.base.arguments import check_timeout
from tussock.statestore.base.logs import get_logger
from tussock.statestore.base.system import Condition
from tussock.statestore.checkpoint.participant import Participant, Todo, react
from tussock.statestore.contract.barriers import BarrierEvent, JobOptions
from tussock.statestore.errors import (
    CheckpointAborted,
    DuplicateName,
    EpochTooOld,
    Fenced,
    MetaUnavailable,
    ObjectStoreUnavailable,
    StoreClosed,
    TussockError,
    WaitTimeout,
)
from tussock.statestore.parts import StoreParts
from tussock.statestore.write.shared_buffer import EpochBuffer

__all__ = ["Callback", "Checkpoint"]

log = get_logger("tussock.statestore.checkpoint.checkpoint")

Callback = Callable[[BarrierEvent], None]

_PAUSE_SECONDS = 0.2
_PREDECESSOR_PAUSE_SECONDS = 0.5


class Checkpoint:
    """A place in a job; made by `StateStore.join_checkpoint`. Safe to use from several threads."""

    def __init__(
        self,
        parts: StoreParts,
        job: str,
        participant: str,
        options: JobOptions,
        callbacks: tuple[Callback | None, Callback | None, Callback | None],
    ) -> None:
        """Join; `callbacks`: on barrier, on committed, on restore."""
        self.job = job
        self.participant = participant
        self._parts = parts
        self._on_barrier, self._on_committed, self._on_restore = callbacks
        self._changed = parts.system.condition()
        self._inbox: deque[BarrierEvent | None] = deque()
        self._state = Participant()
        self._joined = 0
        """The generation that joining was answered with."""
        self._epoch = 0
        self._committed_epoch = 0
        self._sealed: EpochBuffer | None = None
        """What was written until the barrier that was passed last."""
        self._writers = 0
        self._ending = False
        """The store's thread ends an epoch, or waits for writers to be able to."""
        self._ready = self._on_restore is not None
        """The worker has its state as of the newest checkpoint, and has begun to work from there."""
        self._barrier: BarrierEvent | None = None
        """A barrier that has come while the worker was not ready."""
        self._aborted: BarrierEvent | None = None
        """An abort of which the worker has not heard yet."""
        self._leaving: int | None = None
        """The worker leaves: the barrier that saves its state, 0 before that has come."""
        self._saved = False
        self._closed = False
        self._failed: BaseException | None = None
        self._channel = parts.backend.barrier_channel(job, participant, options, self._receive)
        try:
            self._join()
            parts.system.spawn("tussock-checkpoint", self._run)
            self._await_start()
        except BaseException:
            self.abandon("it could not start")
            raise

    # --- For the worker -------------------------------------------------------------------------------------------

    @property
    def epoch(self) -> int:
        """Write here, now. A barrier may end it at any moment, then `EpochTooOld`; inside `writing` it cannot."""
        with self._own_lock():
            return self._usable_epoch()

    @property
    def committed_epoch(self) -> int:
        """The epoch that the job's newest checkpoint holds as, as far as this participant knows; 0 if it has none."""
        return self._committed_epoch

    @contextmanager
    def writing(self) -> Iterator[int]:
        """A step of work that no barrier divides: what is written inside, at the epoch given, commits as a whole.

        After an abort it raises `CheckpointAborted`, once, unless there is an `on_restore`: read your state back, and
        go on from there. Barriers wait for that: until the worker calls this, or asks for `epoch`, for the first time
        and again after each abort. Must not be called within another or from a callback, which gets its epoch with the
        event.
        """
        with self._own_lock():
            self._changed.wait_for(lambda: not self._ending or self._failed is not None or self._parts.lifetime.closed)
            epoch = self._usable_epoch()
            self._writers += 1
        try:
            yield epoch
        except EpochTooOld as error:
            # What the participant failed with meanwhile gave the epoch up, and says more than that it is gone.
            with self._changed:
                if self._failed is not None:
                    raise self._failed from error
            raise
        finally:
            with self._changed:
                self._writers -= 1
                self._changed.notify_all()

    def leave(self, timeout: float = 60.0) -> None:
        """Finish: wait until everything is in a checkpoint, then be no participant any more; a second call is no error.

        Ends with the first barrier that comes from now on, so `on_barrier` is called once more. `CheckpointAborted` if
        that is aborted: go back and finish again; `WaitTimeout` after `timeout` seconds: call it again, or `abandon`.
        """
        with self._own_lock():
            if self._closed:
                return
            self._usable_epoch()
            self._leaving, self._saved = 0, False
            try:
                ended = self._changed.wait_for(self._left, check_timeout(timeout))
                if not self._saved:
                    self._check_usable()
                    if not ended:
                        raise WaitTimeout(
                            f"job {self.job!r}: no checkpoint was made within {timeout} s that participant "
                            f"{self.participant!r} could leave with; it still takes part: call leave() again, or "
                            "abandon() to give up what is not committed",
                            self.job,
                            timeout,
                        )
            finally:
                self._leaving = None
            self._closed = True
            self._changed.notify_all()
        self._say_goodbye(done=True, reason="")

    def abandon(self, reason: str = "the worker gave up") -> None:
        """Stop at once, and give up what is not committed; the others are told as if this participant had died."""
        with self._own_lock():
            if self._closed:
                return
            self._closed = True
            self._changed.notify_all()
        self._say_goodbye(done=False, reason=reason)

    def __enter__(self) -> "Checkpoint":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.leave() if error is None else self.abandon(f"{type(error).__name__}: {error}")

    def _own_lock(self) -> Condition:
        self._parts.lifetime.check_process()
        return self._changed

    # --- Beginning ------------------------------------------------------------------------------------------------

    def _join(self) -> None:
        """Join; a predecessor of the same name that died is waited for until its session lapses, or the deadline."""
        deadline = self._parts.system.monotonic() + self._parts.settings.deadline
        while True:
            try:
                self._joined = self._channel.join(0)
                return
            except DuplicateName:
                if self._parts.system.monotonic() + _PREDECESSOR_PAUSE_SECONDS > deadline:
                    raise
                self._parts.system.sleep(_PREDECESSOR_PAUSE_SECONDS)

    def _await_start(self) -> None:
        """Return when told where to write."""
        patience = self._parts.settings.deadline
        with self._changed:
            started = self._changed.wait_for(lambda: self._epoch > 0 or self._failed is not None, patience)
            self._check_usable()
        if not started:
            raise WaitTimeout(
                f"job {self.job!r}: participant {self.participant!r} has joined, but was not told where to write "
                f"within {patience} s: the meta service is slow, or a checkpoint waits for the bucket; join again",
                self.job,
            )

    # --- The store's thread ---------------------------------------------------------------------------------------

    def _receive(self, event: BarrierEvent | None) -> None:
        """An event has come; `None`: ask where things stand, the session was opened anew or the store closed."""
        with self._changed:
            self._inbox.append(event)
            self._changed.notify_all()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: bool(self._inbox) or self._may_pass() or self._over())
                if self._over():
                    self._changed.notify_all()
                    return
                work = self._pass if self._may_pass() else partial(self._hear, self._inbox.popleft())
            try:
                work()
            except StoreClosed:
                return
            except (MetaUnavailable, ObjectStoreUnavailable) as error:
                log.warning("a barrier waits", job=self.job, participant=self.participant, error=str(error))
                self._parts.system.sleep(_PAUSE_SECONDS)
                self._receive(None)
            except Exception as error:
                log.exception("a participant failed", job=self.job, participant=self.participant)
                with self._changed:
                    self._failed = self._failed or error
                self.abandon(f"{type(self._failed).__name__}: {self._failed}")

    def _hear(self, event: BarrierEvent | None) -> None:
        if event is None:
            self._rejoin()
            return
        self._state, todos = react(self._state, event)
        for todo in todos:
            self._do(todo)

    def _do(self, todo: Todo) -> None:
        event = todo.event
        if todo.what == "start":
            self._parts.views.await_epoch(event.committed_epoch)
            self._committed_epoch = event.committed_epoch
            self._tell(self._on_restore, event)
            self._go_on(self._state.epoch)
        elif todo.what == "barrier":
            self._barrier = event
        elif todo.what == "collect":
            if self._barrier is None:
                self._deliver(event)
        elif todo.what == "committed":
            self._parts.views.await_epoch(event.committed_epoch)
            self._parts.writes.buffer.drop(event.epoch)
            with self._changed:
                self._committed_epoch = event.committed_epoch
                self._saved = self._saved or self._leaving == event.barrier
                self._changed.notify_all()
            self._tell(self._on_committed, event)
        else:
            self._abort(event, todo.epochs)

    def _may_pass(self) -> bool:
        return self._barrier is not None and self._ready

    def _pass(self) -> None:
        """End the barrier's epoch: the worker's last writes to it, then it is sealed and the next one begins."""
        event, self._barrier = self._barrier, None
        assert event is not None, "only a barrier that has come is passed"
        with self._held():
            if self._leaving == 0:
                self._leaving = event.barrier
            self._tell(self._on_barrier, event)
            self._sealed = self._parts.writes.buffer.seal(event.epoch)
            self._go_on(event.next_epoch)
        self._deliver(event)

    def _deliver(self, event: BarrierEvent) -> None:
        """Upload what the barrier's epoch holds, unless that is done, and collect."""
        assert self._sealed is not None, "a barrier is passed before it is collected"
        tables = self._parts.writes.upload_epoch(self._sealed)
        try:
            self._channel.collect(self._state.generation, event.barrier, tables)
        except Fenced as error:
            # Aborted meanwhile, as an event will say; or the coordinator does not know this participant any more.
            log.info("a barrier was not collected", job=self.job, participant=self.participant, error=str(error))
            self._receive(None)

    def _abort(self, event: BarrierEvent, epochs: tuple[int, ...]) -> None:
        with self._held():
            for epoch in epochs:
                self._parts.writes.buffer.drop(epoch)
            self._sealed = self._barrier = None
            # The worker reads its state back, so the newest checkpoint has to be here.
            self._parts.views.await_epoch(event.committed_epoch)
            self._committed_epoch = event.committed_epoch
            self._tell(self._on_restore, event)
            self._go_on(event.next_epoch)
            with self._changed:
                if self._on_restore is None and self._ready:
                    # Else it is reading its state back already, and has written nothing since.
                    self._ready, self._aborted = False, event
                elif self._leaving is not None:
                    self._aborted = event

    def _rejoin(self) -> None:
        try:
            self._joined = self._channel.join(self._state.seen)
        except DuplicateName as error:
            raise Fenced(
                f"job {self.job!r}: participant {self.participant!r} was away for longer than its session lasts, and a "
                "successor has its place; what it had not committed is given up",
                self.job,
                self.participant,
            ) from error

    @contextmanager
    def _held(self) -> Iterator[None]:
        """Hold the worker off its writes, once the step that it is in has ended."""
        with self._changed:
            self._ending = True
            self._changed.wait_for(lambda: not self._writers or self._over())
            if self._over():
                raise StoreClosed(f"job {self.job!r}: the participant has left")
        try:
            yield
        finally:
            with self._changed:
                self._ending = False
                self._changed.notify_all()

    def _go_on(self, epoch: int) -> None:
        self._parts.writes.buffer.issue(epoch)
        with self._changed:
            self._epoch = epoch
            self._changed.notify_all()

    def _tell(self, callback: Callback | None, event: BarrierEvent) -> None:
        if callback is not None:
            try:
                callback(event)
            except Exception as error:
                # At once: the worker must not begin a step in an epoch that is about to be given up.
                with self._changed:
                    self._failed = error
                raise _CallbackError from error

    # --- Ends -----------------------------------------------------------------------------------------------------

    def _over(self) -> bool:
        return self._closed or self._parts.lifetime.closed

    def _left(self) -> bool:
        return self._saved or self._aborted is not None or self._failed is not None or self._over()

    def _usable_epoch(self) -> int:
        if self._leaving is not None:
            raise StoreClosed(f"job {self.job!r}: participant {self.participant!r} is leaving; nothing was stored")
        self._check_usable()
        self._ready = True
        self._changed.notify_all()
        return self._epoch

    def _check_usable(self) -> None:
        """Raise what the worker has to know; the caller holds the condition."""
        if self._failed is not None:
            raise self._failed
        self._parts.lifetime.check_usable()
        if self._closed:
            raise StoreClosed(f"job {self.job!r}: participant {self.participant!r} has left; join again")
        if self._aborted is not None:
            event, self._aborted = self._aborted, None
            self._changed.notify_all()
            raise CheckpointAborted(
                f"job {self.job!r}: what was written since the checkpoint at epoch {event.committed_epoch} is given "
                f"up: {event.reason}; read your state back as of then, and go on from there",
                self.job,
                event.committed_epoch,
            )

    def _say_goodbye(self, *, done: bool, reason: str) -> None:
        generation = max(self._state.generation, self._joined)
        for epoch in (self._state.ended, self._state.epoch):
            if epoch:
                self._parts.writes.buffer.drop(epoch)
        if generation:
            try:
                self._channel.leave(generation, done=done, reason=reason)
            except TussockError as error:
                log.info("the job could not be left and will find out", job=self.job, error=str(error))
        self._channel.close()


class _CallbackError(Exception):
    """A callback of the worker raised; its error is the cause."""
