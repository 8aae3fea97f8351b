"""The state of one job's checkpoints, and the messages that tell participants of it: the records of `barriers.py`."""

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from tussock.statestore.contract.barriers import BarrierEvent, JobOptions, What
from tussock.statestore.contract.records import Run

__all__ = [
    "Action",
    "CheckpointJob",
    "CommitBarrier",
    "Flight",
    "JoinRequest",
    "Member",
    "Send",
    "Step",
    "Tables",
    "greet",
    "send_barrier",
    "tell",
]

Tables = Mapping[int, tuple[Run, ...]]
"""Per table id sorted runs, newest first."""


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """A live participant."""

    session: str
    incarnation: str
    """Drawn by the participant: tells a repeated call from another participant of the same session."""
    generation: int
    started: bool = True
    """`False` if it joined during a commit, whose outcome it has to await."""


class Flight(msgspec.Struct, frozen=True, kw_only=True):
    """The barrier under way."""

    number: int
    epoch: int
    """It ends this epoch."""
    sent_ms: int
    roster: dict[str, int]
    """Whom it was sent to, with their generations."""
    parts: dict[str, Tables] = {}
    """What was collected so far, by participant."""
    committing: bool = False
    """All have collected; the outcome of the commit is not known yet. Nothing can abort it now."""

    def absent(self) -> list[str]:
        """The participants that have not collected."""
        return sorted(self.roster.keys() - self.parts.keys())


class CheckpointJob(msgspec.Struct, frozen=True, kw_only=True):
    """The state of one job's checkpoints. Dictionaries are never changed after construction."""

    name: str
    options: JobOptions
    members: dict[str, Member] = {}
    """Live participants by name."""
    missing: tuple[str, ...] = ()
    """With `on_missing="wait"`: names of dead participants whose successors are waited for."""
    required: int
    """Participants that have to be there for a barrier: those the job asked for, or all that joined if that is more,
    less those that left because they were done."""
    epoch: int
    """Where participants write now."""
    number: int
    """The largest barrier number known."""
    due_ms: int
    """When the next barrier is due."""
    flight: Flight | None = None
    doomed: str = ""
    """Why everything after the barrier that is being committed has to be given up; empty if it need not."""
    committed_barrier: int = 0
    committed_epoch: int = 0


class JoinRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A participant's wish to take part, and how."""

    participant: str
    session: str
    incarnation: str
    options: JobOptions
    seen_barrier: int = 0
    """The largest barrier number that the participant has seen."""


class Send(NamedTuple):
    """Tell a participant."""

    session: str
    participant: str
    event: BarrierEvent


class CommitBarrier(NamedTuple):
    """Commit the parts of all as one epoch, with the barrier's number as the batch, and say how it ended."""

    barrier: int
    epoch: int
    tables: Tables


Action = Send | CommitBarrier


class Step(NamedTuple):
    """What follows from an event."""

    job: CheckpointJob | None
    """`None`: the job's last participant is gone, and all that was not committed is given up."""
    actions: tuple[Action, ...] = ()


def greet(job: CheckpointJob, participant: str) -> tuple[Send, ...]:
    """Tell a participant where it should be: at its beginning, and again when it may have missed events."""
    member, flight = job.members[participant], job.flight
    if not member.started:
        return ()
    if flight is None or flight.roster.get(participant) != member.generation:
        return (tell(job, participant, "started", job.committed_barrier),)
    where = tell(job, participant, "started", job.committed_barrier, epoch=flight.epoch)
    return (where,) if participant in flight.parts else (where, send_barrier(job, flight, participant))


def send_barrier(job: CheckpointJob, flight: Flight, participant: str) -> Send:
    """The barrier under way, to one participant."""
    return tell(job, participant, "barrier", flight.number, epoch=flight.epoch)


def tell(job: CheckpointJob, participant: str, what: What, barrier: int, *, epoch: int = 0, reason: str = "") -> Send:
    """An event for a participant; what it says of the job is as `job` has it."""
    member = job.members[participant]
    event = BarrierEvent(
        what=what,
        generation=member.generation,
        barrier=barrier,
        epoch=epoch,
        next_epoch=job.epoch,
        committed_epoch=job.committed_epoch,
        reason=reason,
    )
    return Send(member.session, participant, event)
