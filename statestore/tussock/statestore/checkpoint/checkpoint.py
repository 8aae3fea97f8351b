"""`Checkpoint`: a worker's place in a job whose participants commit together.

`participant.py` holds the state and decides. This brings it the events and does its todos: calls the worker back, seals
and uploads an epoch, collects the barrier, drops what was committed or aborted. What the coordinator tells comes to an
inbox, and one thread of the store's works on it, so the thread that brings it never waits.
"""

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import TracebackType
from typing import TypeVarTuple

from tussock.statestore.base.arguments import check_function, check_timeout
from tussock.statestore.base.logs import get_logger
from tussock.statestore.base.system import Condition
from tussock.statestore.checkpoint.participant import (
    Participant,
    Todo,
    ask,
    begin_leaving,
    begin_step,
    can_hear,
    caught_up,
    done,
    end,
    end_step,
    failed,
    hear_abort,
    is_held,
    joined,
    next_todo,
    react,
    stay,
    take,
)
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
from tussock.statestore.write.epoch_buffer import EpochBuffer

__all__ = ["Callback", "Checkpoint"]

log = get_logger("tussock.statestore.checkpoint.checkpoint")

Callback = Callable[[BarrierEvent], None]

Ts = TypeVarTuple("Ts")

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
        for name, callback in zip(("on_barrier", "on_committed", "on_restore"), callbacks, strict=True):
            if callback is not None:
                check_function(callback, f"job {job!r}: {name}")
        self.job = job
        self.participant = participant
        self._parts = parts
        self._on_barrier, self._on_committed, self._on_restore = callbacks
        self._changed = parts.system.condition()
        """Guards the state and the inbox, and is notified when either changes."""
        self._inbox: deque[BarrierEvent | None] = deque()
        self._state = Participant(restores=self._on_restore is not None)
        self._sealed: EpochBuffer | None = None
        """What was written until the barrier that was passed last."""
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
        return self._state.committed_epoch

    @contextmanager
    def writing(self) -> Iterator[int]:
        """A step of work that no barrier divides: what is written inside, at the epoch given, commits as a whole.

        After an abort it raises `CheckpointAborted`, once, unless there is an `on_restore`: read your state back, and
        go on from there. Barriers wait for that: until the worker calls this, or asks for `epoch`, for the first time
        and again after each abort. Must not be called within another or from a callback, which gets its epoch with the
        event.
        """
        with self._own_lock():
            while True:
                self._changed.wait_for(lambda: not is_held(self._state) or self._parts.lifetime.closed)
                # Asking lets a barrier come that has waited for the worker's state: then this one waits for it.
                epoch = self._usable_epoch()
                if not is_held(self._state):
                    break
            self._apply(begin_step)
        try:
            yield epoch
        except EpochTooOld as error:
            # What the participant failed with meanwhile gave the epoch up, and says more than that it is gone.
            if self._state.failure is not None:
                raise self._state.failure from error
            raise
        finally:
            self._apply(end_step)

    def leave(self, timeout: float = 60.0) -> None:
        """Finish: wait until everything is in a checkpoint, then be no participant any more; a second call is no error.

        Ends with the first barrier that comes from now on, so `on_barrier` is called once more. `CheckpointAborted` if
        that is aborted: go back and finish again; `WaitTimeout` after `timeout` seconds: call it again, or `abandon`.
        """
        with self._own_lock():
            if self._state.phase == "over" and self._state.failure is None:
                return
            self._usable_epoch()
            self._apply(begin_leaving)
            try:
                self._changed.wait_for(
                    lambda: self._state.phase != "leaving" or self._parts.lifetime.closed, check_timeout(timeout)
                )
                if self._state.phase != "saved":
                    self._check_usable()
                    raise WaitTimeout(
                        f"job {self.job!r}: no checkpoint was made within {timeout} s that participant "
                        f"{self.participant!r} could leave with; it still takes part: call leave() again, or "
                        "abandon() to give up what is not committed",
                        self.job,
                        timeout,
                    )
                self._apply(end)
            finally:
                self._apply(stay)
        self._say_goodbye(done=True, reason="")

    def abandon(self, reason: str = "the worker gave up") -> None:
        """Stop at once, and give up what is not committed; the others are told as if this participant had died."""
        self._parts.lifetime.check_process()
        if self._ends(end):
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
                self._apply(joined, self._channel.join(0))
                return
            except DuplicateName:
                if self._parts.system.monotonic() + _PREDECESSOR_PAUSE_SECONDS > deadline:
                    raise
                self._parts.system.sleep(_PREDECESSOR_PAUSE_SECONDS)

    def _await_start(self) -> None:
        """Return when told where to write."""
        patience = self._parts.settings.deadline
        with self._changed:
            started = self._changed.wait_for(lambda: self._state.phase != "joining", patience)
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
        try:
            while (work := self._next_work()) is not None:
                try:
                    work()
                except (MetaUnavailable, ObjectStoreUnavailable) as error:
                    log.warning("a barrier waits", job=self.job, participant=self.participant, error=str(error))
                    self._parts.system.sleep(_PAUSE_SECONDS)
                    self._receive(None)
        except StoreClosed:
            self._notify()
        except Exception as error:
            failure = error.__cause__ if isinstance(error, _CallbackError) and error.__cause__ else error
            # At once: the worker must not begin a step in an epoch that is about to be given up.
            ended = self._ends(failed, failure)
            log.exception("a participant failed", job=self.job, participant=self.participant)
            if ended:
                self._say_goodbye(done=False, reason=f"{type(failure).__name__}: {failure}")

    def _next_work(self) -> Callable[[], None] | None:
        """Wait for something to do; `None` if nothing is any more."""
        with self._changed:
            self._changed.wait_for(self._has_work)
            if self._is_over():
                self._notify()
                return None
            todo = next_todo(self._state)
            if todo is None:
                return partial(self._hear, self._inbox.popleft())
            self._apply(take)
            return partial(self._do, todo)

    def _has_work(self) -> bool:
        heard = bool(self._inbox) and can_hear(self._state)
        return heard or next_todo(self._state) is not None or self._is_over()

    def _hear(self, event: BarrierEvent | None) -> None:
        if event is None:
            self._rejoin()
        else:
            self._apply(react, event)

    def _do(self, todo: Todo) -> None:
        event, buffer = todo.event, self._parts.writes.buffer
        if todo.what == "collect":
            self._deliver(event)
            return
        if todo.what == "barrier":
            self._tell(self._on_barrier, event)
            self._sealed = buffer.seal(event.epoch)
        elif todo.what == "committed":
            self._parts.views.await_epoch(event.committed_epoch)
            buffer.drop(event.epoch)
            self._apply(caught_up)
            self._tell(self._on_committed, event)
        else:
            for epoch in todo.epochs:
                buffer.drop(epoch)
            self._sealed = None
            # The worker reads its state back, so the newest checkpoint has to be here.
            self._parts.views.await_epoch(event.committed_epoch)
            self._apply(caught_up)
            self._tell(self._on_restore, event)
        if todo.what != "committed":
            buffer.issue(self._state.epoch)
        self._apply(done)

    def _deliver(self, event: BarrierEvent) -> None:
        """Upload what the barrier's epoch holds, unless that is done, and collect."""
        # Before the attempt: should it fail, the coordinator is asked where things stand, and says what follows.
        self._apply(done)
        assert self._sealed is not None, "a barrier is passed before it is collected"
        tables = self._parts.writes.upload_epoch(self._sealed)
        try:
            self._channel.collect(self._state.generation, event.barrier, tables)
        except Fenced as error:
            # Aborted meanwhile, as an event will say; or the coordinator does not know this participant any more.
            log.info("a barrier was not collected", job=self.job, participant=self.participant, error=str(error))
            self._receive(None)

    def _rejoin(self) -> None:
        try:
            self._apply(joined, self._channel.join(self._state.seen))
        except DuplicateName as error:
            raise Fenced(
                f"job {self.job!r}: participant {self.participant!r} was away for longer than its session lasts, and a "
                "successor has its place; what it had not committed is given up",
                self.job,
                self.participant,
            ) from error

    def _tell(self, callback: Callback | None, event: BarrierEvent) -> None:
        if callback is not None:
            try:
                callback(event)
            except Exception as error:
                raise _CallbackError from error

    # --- The state ------------------------------------------------------------------------------------------------

    def _apply(self, change: Callable[[Participant, *Ts], Participant], *args: *Ts) -> None:
        """Something has happened: one of the functions of `participant.py`, with what it needs to know."""
        with self._changed:
            self._state = change(self._state, *args)
            self._changed.notify_all()

    def _notify(self) -> None:
        with self._changed:
            self._changed.notify_all()

    # --- Ends -----------------------------------------------------------------------------------------------------

    def _ends(self, change: Callable[[Participant, *Ts], Participant], *args: *Ts) -> bool:
        """Apply the participant's end; whether it is over by that, so that the caller has to say goodbye."""
        with self._changed:
            was_over = self._state.phase == "over"
            self._apply(change, *args)
            return not was_over

    def _is_over(self) -> bool:
        return self._state.phase == "over" or self._parts.lifetime.closed

    def _usable_epoch(self) -> int:
        if self._state.phase in ("leaving", "saved", "recalled"):
            raise StoreClosed(f"job {self.job!r}: participant {self.participant!r} is leaving; nothing was stored")
        self._check_usable()
        self._apply(ask)
        return self._state.open_epoch

    def _check_usable(self) -> None:
        """Raise what the worker has to know; the caller holds the condition."""
        if self._state.failure is not None:
            raise self._state.failure
        self._parts.lifetime.check_usable()
        if self._state.phase == "over":
            raise StoreClosed(f"job {self.job!r}: participant {self.participant!r} has left; join again")
        abort = self._state.abort
        if abort is not None:
            self._apply(hear_abort)
            raise CheckpointAborted(
                f"job {self.job!r}: what was written since the checkpoint at epoch {abort.committed_epoch} is given "
                f"up: {abort.reason}; read your state back as of then, and go on from there",
                self.job,
                abort.committed_epoch,
            )

    def _say_goodbye(self, *, done: bool, reason: str) -> None:
        generation = max(self._state.generation, self._state.answered)
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
