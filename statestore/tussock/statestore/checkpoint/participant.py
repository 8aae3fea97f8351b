"""What a participant of a checkpoint has to do when the coordinator tells it something. Pure: no thread, no request.

Events may come twice and, when a subscription breaks, get lost; then `started` is sent again and says where the
participant should be. Epochs are never handed out twice, so by the epoch that it is told, a participant knows
whether it has missed anything.
"""

from typing import Literal, NamedTuple

import msgspec
from msgspec.structs import replace

from tussock.statestore.contract.barriers import BarrierEvent

__all__ = ["Participant", "Todo", "react"]


class Participant(msgspec.Struct, frozen=True, kw_only=True):
    """Where one participant is."""

    generation: int = 0
    """0 until it has been told to start."""
    epoch: int = 0
    """It writes here."""
    barrier: int = 0
    """The barrier that it has passed and whose outcome it does not know; 0 for none."""
    ended: int = 0
    """The epoch which that barrier ended."""
    seen: int = 0
    """The largest barrier number that it has been told of."""


class Todo(NamedTuple):
    """One thing to do, in order."""

    what: Literal["start", "barrier", "collect", "committed", "aborted"]
    """
    - `start`: writing may begin.
    - `barrier`: let the worker write its state at `epoch`, seal and upload that, and collect.
    - `collect`: send once more what was uploaded of `epoch`; if that is still under way, nothing.
    - `committed`: the rows of `epoch` hold; they may leave the buffer.
    - `aborted`: drop the rows of all `epochs`, and let the worker go back to the newest checkpoint.
    """
    event: BarrierEvent
    epochs: tuple[int, ...] = ()


def react(state: Participant, event: BarrierEvent) -> tuple[Participant, list[Todo]]:
    """The participant after an event, and what it has to do."""
    seen = max(state.seen, event.barrier)
    if event.what == "started":
        return _placed(replace(state, seen=seen), event)
    if event.generation != state.generation:
        return state, []  # for one of this name before or after it
    state = replace(state, seen=seen)
    if event.what == "barrier":
        if state.barrier == event.barrier:
            return state, [Todo("collect", event, (state.ended,))]
        if state.epoch != event.epoch:
            return state, []  # one that was resolved
        state, todo = _resolve(state, event)
        passed = replace(state, epoch=event.next_epoch, barrier=event.barrier, ended=event.epoch)
        return passed, [*todo, Todo("barrier", event, (event.epoch,))]
    if event.what == "committed":
        return _resolve(state, event) if state.barrier == event.barrier else (state, [])
    return _abort(state, event) if event.next_epoch > state.epoch else (state, [])


def _placed(state: Participant, event: BarrierEvent) -> tuple[Participant, list[Todo]]:
    # Where it is to write: if a barrier is under way that it has not seen, that one follows.
    where = event.epoch or event.next_epoch
    if not state.generation:
        return replace(state, generation=event.generation, epoch=where), [Todo("start", event)]
    if event.generation < state.generation:
        return state, []
    todo: list[Todo] = []
    # Of an older generation it is unknown whether what it had collected was taken: an empty part of its successor may
    # have come in its place. So all that it wrote counts for nothing; what was committed is found in the store.
    if event.generation == state.generation:
        if state.barrier and event.barrier >= state.barrier:
            state, todo = _resolve(state, event)
        # It has passed the barrier under way, or there is none; or it has not seen that barrier yet.
        if (event.epoch, event.next_epoch) == (state.ended, state.epoch):
            return state, todo
        if not state.barrier and event.epoch == state.epoch:
            return state, todo
    state, aborted = _abort(replace(state, generation=event.generation), replace(event, next_epoch=where))
    return state, [*todo, *aborted]


def _resolve(state: Participant, event: BarrierEvent) -> tuple[Participant, list[Todo]]:
    """The barrier that was passed last is a checkpoint now, whichever event tells it."""
    if not state.barrier:
        return state, []
    told = replace(event, what="committed", barrier=state.barrier, epoch=state.ended)
    return replace(state, barrier=0, ended=0), [Todo("committed", told, (state.ended,))]


def _abort(state: Participant, event: BarrierEvent) -> tuple[Participant, list[Todo]]:
    reason = event.reason or "the coordinator has begun anew"
    told = replace(event, what="aborted", barrier=state.barrier, epoch=state.ended, reason=reason)
    epochs = tuple(epoch for epoch in (state.ended, state.epoch) if epoch)
    return replace(state, epoch=event.next_epoch, barrier=0, ended=0), [Todo("aborted", told, epochs)]
