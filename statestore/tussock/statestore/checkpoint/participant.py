"""One participant of a checkpoint: where it is, what it has to do, what its worker may. Pure: no thread, no request.

Three bring it events, each by a function that takes a participant and returns the one after the event: the coordinator
(`react`), the store's thread that does its todos (`take`, `caught_up`, `done`), and the worker (`ask`, `begin_step`,
`end_step`, `begin_leaving`, `stay`, `hear_abort`). `failed` and `end` come from anywhere. `checkpoint.py` brings the
events and does the todos.

**What the coordinator tells.** Its events may come twice and, when a subscription breaks, get lost; then `started` is
sent again and says where the participant should be. Epochs are never handed out twice, so by the epoch that it is told,
a participant knows whether it has missed anything. `epoch` moves on as soon as a barrier is heard of. The worker does
so later: it writes at `open_epoch` until the todo is done that the event led to.

**Todos** are done one at a time, in order. The next event is heard when none is left (`can_hear`), but for a barrier
that waits for a worker that is not ready: an abort may come before that worker is, and takes the barrier's place.

| todo | led to by | before it is taken | when it is done |
|---|---|---|---|
| `start` | the first `started` | | `open_epoch` is `epoch` |
| `barrier` | `barrier` | the worker is ready, no step is under way, and none begins | the same, and `collect` is next |
| `collect` | a barrier that is done, or comes again | | |
| `committed` | `committed`, or an event that implies it | | |
| `aborted` | `aborted`, or an event that implies it | no step is under way, and none begins | `open_epoch` is `epoch` |

**Phases of the worker.** Ready are `working`, `leaving` and `saved`; barriers wait for the others.

| phase | the worker | what ends it |
|---|---|---|
| `joining` | has no epoch yet | `start` done: `restoring`; `working` with `restores` |
| `restoring` | reads its state back | `ask`: `working`; `begin_leaving`: `leaving` |
| `working` | writes | `begin_leaving`: `leaving`; `aborted` done without `restores`: `aborted` |
| `aborted` | has not heard yet that its writes are given up | `hear_abort`: `restoring`; `working` with `restores` |
| `leaving` | waits for a checkpoint | its barrier committed: `saved`; `aborted` done: `recalled`; `stay`: `working` |
| `saved` | waits no longer: everything is in a checkpoint | `stay`: `working` |
| `recalled` | waits no longer: an abort has come | `hear_abort`: as in `aborted`; `stay`: `aborted` |
| `over` | has left, given up or failed; nothing changes any more | |

From every phase `failed` and `end` lead to `over`.
"""

from typing import Literal, NamedTuple

import msgspec
from msgspec.structs import replace

from tussock.statestore.contract.barriers import BarrierEvent

__all__ = [
    "Participant",
    "Phase",
    "Todo",
    "ask",
    "begin_leaving",
    "begin_step",
    "can_hear",
    "caught_up",
    "done",
    "end",
    "end_step",
    "failed",
    "hear_abort",
    "is_held",
    "joined",
    "next_todo",
    "react",
    "stay",
    "take",
]

Phase = Literal["joining", "restoring", "working", "aborted", "leaving", "saved", "recalled", "over"]

_READY = ("working", "leaving", "saved")


class Todo(NamedTuple):
    """One thing to do, in order."""

    what: Literal["start", "barrier", "collect", "committed", "aborted"]
    """
    - `start`: let the worker read its state; writing may begin at the participant's `epoch`.
    - `barrier`: let the worker write its state at `epoch`, and seal that.
    - `collect`: upload what was sealed of `epoch`, unless that is done, and collect.
    - `committed`: the rows of `epoch` hold; they may leave the buffer.
    - `aborted`: drop the rows of all `epochs`, and let the worker go back to the newest checkpoint.
    """
    event: BarrierEvent
    epochs: tuple[int, ...] = ()


class Participant(msgspec.Struct, frozen=True, kw_only=True):
    """Where one participant is: by the coordinator's count, and by what its worker does."""

    restores: bool = False
    """A callback reads the worker's state back; without one the worker is told of an abort when it asks for its epoch.
    """
    answered: int = 0
    """The generation that joining was answered with, whose events follow."""
    generation: int = 0
    """0 until it has been told to start."""
    epoch: int = 0
    """It is to write here, once its todos are done."""
    barrier: int = 0
    """The newest barrier that it has heard of and whose outcome it does not know; 0 for none."""
    ended: int = 0
    """The epoch which that barrier ends."""
    seen: int = 0
    """The largest barrier number that it has been told of."""
    todos: tuple[Todo, ...] = ()
    """What is still to be done; the first may be under way."""
    phase: Phase = "joining"
    open_epoch: int = 0
    """The worker writes here; 0 while it is joining."""
    committed_epoch: int = 0
    """The epoch of the newest checkpoint that is in the version here; 0 for none."""
    steps: int = 0
    """Steps of the worker's that are under way."""
    leaves_with: int = 0
    """In `leaving`: the barrier that saves the worker's state, 0 before that has come."""
    abort: BarrierEvent | None = None
    """In `aborted` and `recalled`: what the worker has not heard of yet."""
    failure: BaseException | None = None
    """What the participant failed with."""


# --- What may happen ----------------------------------------------------------------------------------------------


def next_todo(state: Participant) -> Todo | None:
    """What is to be done now, or is under way; `None` also while that has to wait for the worker."""
    if not state.todos or state.phase == "over" or _waits_for_worker(state) or (is_held(state) and state.steps):
        return None
    return state.todos[0]


def can_hear(state: Participant) -> bool:
    """Whether the coordinator's next event may come: what the last one led to is done, or waits for the worker."""
    return not state.todos or _waits_for_worker(state)


def is_held(state: Participant) -> bool:
    """Whether no step may begin: an epoch ends as soon as the steps under way have."""
    if not state.todos or state.phase == "over":
        return False
    return state.todos[0].what == "aborted" or (state.todos[0].what == "barrier" and state.phase in _READY)


def _waits_for_worker(state: Participant) -> bool:
    """Whether a barrier has come whose worker is not ready: it could save a state that is not there."""
    return bool(state.todos) and state.todos[0].what == "barrier" and state.phase not in _READY


# --- The worker ---------------------------------------------------------------------------------------------------


def ask(state: Participant) -> Participant:
    """The worker asks for its epoch, so it has its state."""
    return replace(state, phase="working") if state.phase == "restoring" else state


def begin_step(state: Participant) -> Participant:
    """A step begins, which no barrier and no abort divides; only while the participant is not held."""
    assert not is_held(state), "no step begins while an epoch ends"
    state = ask(state)
    return replace(state, steps=state.steps + 1)


def end_step(state: Participant) -> Participant:
    """A step has ended, and all that it wrote is in the buffer."""
    return replace(state, steps=state.steps - 1)


def begin_leaving(state: Participant) -> Participant:
    """The worker wants to leave with the first barrier that comes from now on."""
    state = ask(state)
    return replace(state, phase="leaving", leaves_with=0) if state.phase == "working" else state


def stay(state: Participant) -> Participant:
    """The worker waits no longer for the checkpoint that it would leave with."""
    if state.phase == "recalled":
        return replace(state, phase="aborted")
    return replace(state, phase="working") if state.phase in ("leaving", "saved") else state


def hear_abort(state: Participant) -> Participant:
    """The worker is told of the abort; it has its state already if a callback has read it back."""
    if state.phase not in ("aborted", "recalled"):
        return state
    return replace(state, phase="working" if state.restores else "restoring", abort=None)


def failed(state: Participant, failure: BaseException) -> Participant:
    """Something cannot be done: this is the end. The first failure counts."""
    return replace(state, phase="over", failure=state.failure or failure)


def end(state: Participant) -> Participant:
    """The participant has left, or gives up."""
    return replace(state, phase="over")


# --- The store's thread -------------------------------------------------------------------------------------------


def take(state: Participant) -> Participant:
    """The next todo begins."""
    if state.todos[0].what == "barrier" and state.phase == "leaving":
        return replace(state, leaves_with=state.todos[0].event.barrier)
    return state


def caught_up(state: Participant) -> Participant:
    """The version here has the checkpoint of the todo that is under way: `start`, `committed` or `aborted`."""
    todo = state.todos[0]
    state = replace(state, committed_epoch=todo.event.committed_epoch)
    if todo.what == "committed" and state.phase == "leaving" and state.leaves_with == todo.event.barrier:
        return replace(state, phase="saved")
    return state


def done(state: Participant) -> Participant:
    """The todo is done that was under way."""
    todo, *rest = state.todos
    if todo.what == "barrier":
        rest.insert(0, Todo("collect", todo.event, todo.epochs))
    state = replace(state, todos=tuple(rest))
    if todo.what in ("start", "barrier", "aborted"):
        state = replace(state, open_epoch=state.epoch)
    if todo.what == "start" and state.phase == "joining":
        return replace(state, phase="working" if state.restores else "restoring")
    return _recall(state, todo.event) if todo.what == "aborted" else state


def _recall(state: Participant, event: BarrierEvent) -> Participant:
    # A worker need not hear of an abort if a callback has read its state back, nor if it has written nothing since it
    # began or was last told to read it back.
    if state.phase in ("leaving", "recalled"):
        return replace(state, phase="recalled", abort=event)
    if state.phase == "working" and not state.restores:
        return replace(state, phase="aborted", abort=event)
    return state


# --- The coordinator ----------------------------------------------------------------------------------------------


def joined(state: Participant, generation: int) -> Participant:
    """Joining was answered."""
    return replace(state, answered=generation)


def react(state: Participant, event: BarrierEvent) -> Participant:
    """The coordinator has told something; only while the participant can hear it."""
    seen = max(state.seen, event.barrier)
    if event.what == "started":
        return _place(replace(state, seen=seen), event)
    if event.generation != state.generation:
        return state  # for one of this name before or after it
    state = replace(state, seen=seen)
    if event.what == "barrier":
        if state.barrier == event.barrier:
            # Sent again; while it waits for the worker there is nothing to collect yet.
            return state if _waits_for_worker(state) else _then(state, Todo("collect", event, (state.ended,)))
        if state.epoch != event.epoch:
            return state  # one that was resolved
        state = _resolve(state, event)
        passed = replace(state, epoch=event.next_epoch, barrier=event.barrier, ended=event.epoch)
        return _then(passed, Todo("barrier", event, (event.epoch,)))
    if event.what == "committed":
        return _resolve(state, event) if state.barrier == event.barrier else state
    return _abort(state, event) if event.next_epoch > state.epoch else state


def _then(state: Participant, todo: Todo) -> Participant:
    return replace(state, todos=(*state.todos, todo))


def _place(state: Participant, event: BarrierEvent) -> Participant:
    # Where it is to write: if a barrier is under way that it has not seen, that one follows.
    where = event.epoch or event.next_epoch
    if not state.generation:
        return _then(replace(state, generation=event.generation, epoch=where), Todo("start", event))
    if event.generation < state.generation:
        return state
    # Of an older generation it is unknown whether what it had collected was taken: an empty part of its successor may
    # have come in its place. So all that it wrote counts for nothing; what was committed is found in the store.
    if event.generation == state.generation:
        if state.barrier and event.barrier >= state.barrier:
            state = _resolve(state, event)
        # It has passed the barrier under way, or there is none; or it has not seen that barrier yet.
        if (event.epoch, event.next_epoch) == (state.ended, state.epoch):
            return state
        if not state.barrier and event.epoch == state.epoch:
            return state
    return _abort(replace(state, generation=event.generation), replace(event, next_epoch=where))


def _resolve(state: Participant, event: BarrierEvent) -> Participant:
    """The barrier that was heard of last is a checkpoint now, whichever event tells it."""
    if not state.barrier:
        return state
    told = replace(event, what="committed", barrier=state.barrier, epoch=state.ended)
    return _then(replace(state, barrier=0, ended=0), Todo("committed", told, (state.ended,)))


def _abort(state: Participant, event: BarrierEvent) -> Participant:
    reason = event.reason or "the coordinator has begun anew"
    told = replace(event, what="aborted", barrier=state.barrier, epoch=state.ended, reason=reason)
    epochs = tuple(epoch for epoch in (state.ended, state.epoch) if epoch)
    # A barrier that still waits for the worker is not passed any more.
    kept = tuple(todo for todo in state.todos if todo.what != "barrier")
    return _then(replace(state, epoch=event.next_epoch, barrier=0, ended=0, todos=kept), Todo("aborted", told, epochs))
