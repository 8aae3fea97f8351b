"""Between what participants and coordinators of checkpoints say and the messages of `meta.proto`."""

from tussock.meta.rpc import meta_pb2 as pb
from tussock.statestore.contract.barriers import BarrierEvent, OnMissing, What
from tussock.statestore.errors import InvalidOption

__all__ = ["event_from_message", "event_to_message", "on_missing_from_message", "on_missing_to_message"]

_WHATS: dict[What, pb.BarrierEvent.What] = {
    "started": pb.BarrierEvent.STARTED,
    "barrier": pb.BarrierEvent.BARRIER,
    "committed": pb.BarrierEvent.COMMITTED,
    "aborted": pb.BarrierEvent.ABORTED,
}
_WHATS_BY_NUMBER: dict[int, What] = {number: what for what, number in _WHATS.items()}


def event_to_message(job: str, participant: str, event: BarrierEvent) -> pb.BarrierEvent:
    """An event for a participant of a job."""
    return pb.BarrierEvent(
        job=job,
        participant=participant,
        what=_WHATS[event.what],
        generation=event.generation,
        barrier=event.barrier,
        epoch=event.epoch,
        next_epoch=event.next_epoch,
        committed_epoch=event.committed_epoch,
        reason=event.reason,
    )


def event_from_message(message: pb.BarrierEvent) -> BarrierEvent | None:
    """An event; `None` for one that this version of the protocol does not know."""
    what = _WHATS_BY_NUMBER.get(message.what)
    if what is None:
        return None
    return BarrierEvent(
        what=what,
        generation=message.generation,
        barrier=message.barrier,
        epoch=message.epoch,
        next_epoch=message.next_epoch,
        committed_epoch=message.committed_epoch,
        reason=message.reason,
    )


def on_missing_to_message(on_missing: OnMissing) -> pb.OnMissing:
    """What becomes of an epoch whose participant is missing."""
    return pb.WAIT if on_missing == "wait" else pb.ABORT


def on_missing_from_message(number: int) -> OnMissing:
    """What becomes of an epoch whose participant is missing; `InvalidOption` for what is unknown here."""
    if number == pb.WAIT:
        return "wait"
    if number in (pb.ABORT, pb.ON_MISSING_UNSPECIFIED):
        return "abort"
    raise InvalidOption(f"on_missing {number} is not known: expected 1 (abort) or 2 (wait)")
