"""The checkpoints of one job: its participants, which barrier is under way, what has to be sent and committed. Pure.

Barriers are those of Chandy and Lamport as Hummock uses them: barrier `n` ends epoch `p` and begins the next one; when
every participant has collected it, what all of them wrote at `p` is committed as one epoch. One barrier is under way
at a time: the next one is due an interval after the last was sent, and never before that one is resolved.

Each function takes a job and what happened, and returns the job after it and the actions that follow. Nothing here
sends, commits or asks the time; `server/handlers/checkpoints.py` does. The caller passes `fresh`, an epoch greater than
all that were handed out: participants' generations and the job's epochs are made of such.

    running --tick--> barrier under way --all collected--> committing --committed--> running
       ^                     |                                  |
       +------- abort -------+------------- refused ------------+

Why this is sound, with either choice for a participant that is missing, is told in `docs/checkpoints.md`.
"""

from collections.abc import Mapping

from msgspec.structs import replace

from tussock.meta.checkpoints.job import (
    Action,
    CheckpointJob,
    CommitBarrier,
    Flight,
    JoinRequest,
    Member,
    Step,
    Tables,
    greet,
    send_barrier,
    tell,
)
from tussock.statestore.contract.records import Run, pack
from tussock.statestore.errors import DuplicateName, Fenced, InvalidOption

__all__ = ["collect", "confirm", "join", "leave", "lose", "reject", "tick", "wake_ms"]

# --- Coming and going ---------------------------------------------------------------------------------------------


def join(
    job: CheckpointJob | None, name: str, request: JoinRequest, newest: tuple[int, int], now_ms: int, fresh: int
) -> Step:
    """A participant joins, or asks again where things stand; its generation is in the job that is answered.

    `newest` is the job's newest checkpoint as (barrier, epoch), zeros for none: numbers go on above it after a change
    of leader. A successor of a dead participant takes over its place in a barrier under way with nothing: what the
    dead one had collected is given up, because its successor begins at the checkpoint before.
    """
    who = request.participant
    if job is None:
        barrier, epoch = newest
        job = CheckpointJob(
            name=name,
            options=request.options,
            required=request.options.participants,
            epoch=fresh,
            number=barrier,
            due_ms=now_ms + request.options.interval_ms,
            committed_barrier=barrier,
            committed_epoch=epoch,
        )
    _check_options(job, request)
    member = job.members.get(who)
    if member is not None and (member.session, member.incarnation) == (request.session, request.incarnation):
        return Step(job, greet(job, who))
    before: tuple[Action, ...] = ()
    if member is not None:
        if member.session != request.session:
            raise DuplicateName(
                f"job {name!r} has a live participant {who!r}: give each its own name; a successor can join when the "
                "session of a dead one has lapsed",
                name,
                who,
            )
        # The same process begins anew: it has forgotten what the one before it wrote.
        before_job, before = lose(job, who, "it joined anew", now_ms, fresh)
        if before_job is None:
            return join(None, name, request, (job.committed_barrier, job.committed_epoch), now_ms, fresh)
        job = before_job
    committing = job.flight is not None and job.flight.committing
    fresh_member = Member(
        session=request.session, incarnation=request.incarnation, generation=fresh, started=not committing
    )
    members = {**job.members, who: fresh_member}
    missing = tuple(one for one in job.missing if one != who)
    flight = job.flight
    if flight is not None and not committing and who in flight.roster:
        flight = replace(flight, parts={**flight.parts, who: {}})
    job = replace(
        job,
        members=members,
        missing=missing,
        flight=flight,
        required=max(job.required, len(members) + len(missing)),
        number=max(job.number, request.seen_barrier),
    )
    begun = greet(job, who)
    step = _settle(job, now_ms)
    return Step(step.job, (*before, *begun, *step.actions))


def leave(
    job: CheckpointJob, participant: str, generation: int, *, done: bool, reason: str, now_ms: int, fresh: int
) -> Step:
    """A participant goes: because it is `done`, or because it failed, which is as if it had died.

    One that is done has nothing left that is not committed, so the barrier under way has nothing to expect of it. A
    participant that is gone or replaced already changes nothing.
    """
    member = job.members.get(participant)
    if member is None or member.generation != generation:
        return Step(job)
    if not done:
        return lose(job, participant, f"it failed: {reason}", now_ms, fresh)
    members = {name: one for name, one in job.members.items() if name != participant}
    flight = job.flight
    if flight is not None and participant in flight.roster and participant not in flight.parts:
        flight = replace(flight, parts={**flight.parts, participant: {}})
    return _settle(replace(job, members=members, flight=flight, required=max(job.required - 1, 0)), now_ms)


def lose(job: CheckpointJob, participant: str, reason: str, now_ms: int, fresh: int) -> Step:
    """A participant has died, and with it what it had not collected."""
    gone = job.members[participant]
    members = {name: member for name, member in job.members.items() if name != participant}
    job = replace(job, members=members)
    committing = job.flight is not None and job.flight.committing
    if job.options.on_missing == "wait":
        job = replace(job, missing=tuple(sorted({*job.missing, participant})))
        return _end_if_empty(Step(job))
    if not gone.started:
        return Step(job)  # it had written nothing that others could have built upon
    why = f"participant {participant!r} is gone: {reason}"
    if committing:
        return Step(replace(job, doomed=job.doomed or why))
    return _end_if_empty(_abort(job, why, now_ms, fresh))


# --- Barriers -----------------------------------------------------------------------------------------------------


def wake_ms(job: CheckpointJob) -> int | None:
    """When `tick` will have something to do; `None`: not before something else happens."""
    if job.flight is None:
        return job.due_ms if _is_complete(job) else None
    if job.flight.committing or job.options.on_missing == "wait":
        return None
    return job.flight.sent_ms + job.options.timeout_ms


def tick(job: CheckpointJob, now_ms: int, fresh: int) -> Step:
    """Time has passed: send a barrier that is due, give up one that takes too long."""
    wake = wake_ms(job)
    if wake is None or now_ms < wake:
        return Step(job)
    if job.flight is not None:
        why = (
            f"barrier {job.flight.number} was not collected by {job.flight.absent()} within {job.options.timeout_ms} ms"
        )
        return _abort(job, why, now_ms, fresh)
    flight = Flight(
        number=job.number + 1,
        epoch=job.epoch,
        sent_ms=now_ms,
        roster={name: member.generation for name, member in job.members.items()},
    )
    job = replace(job, flight=flight, epoch=fresh, number=flight.number)
    return Step(job, tuple(send_barrier(job, flight, name) for name in sorted(flight.roster)))


def collect(job: CheckpointJob, participant: str, generation: int, barrier: int, tables: Tables, now_ms: int) -> Step:
    """A participant has uploaded the barrier's epoch. Repeated, this is a no-op.

    Raises `Fenced` if the participant was replaced, or the barrier is not the one under way nor the newest committed.
    """
    member = job.members.get(participant)
    if member is None or member.generation != generation:
        raise Fenced(
            f"job {job.name!r}: participant {participant!r} of generation {generation} is gone or was replaced; "
            "nothing was collected, join again",
            job.name,
            participant,
        )
    flight = job.flight
    if flight is None or flight.number != barrier or flight.roster.get(participant) != generation:
        if barrier == job.committed_barrier:
            return Step(job)
        raise Fenced(
            f"job {job.name!r}: barrier {barrier} is not under way, it was aborted or resolved long ago; nothing was "
            "collected, go on as the last event said",
            job.name,
            barrier,
        )
    if participant in flight.parts:
        return Step(job)
    flight = replace(flight, parts={**flight.parts, participant: tables})
    return _settle(replace(job, flight=flight), now_ms)


def confirm(job: CheckpointJob, epoch: int, now_ms: int, fresh: int) -> Step:
    """Turn the barrier under way into a checkpoint: its commit has succeeded and holds as `epoch`."""
    job, told = _resolve(job, epoch, now_ms)
    step = _abort(job, job.doomed, now_ms, fresh) if job.doomed else _start_waiting(job)
    return _end_if_empty(Step(step.job, (*told, *step.actions)))


def reject(job: CheckpointJob, reason: str, newest_barrier: int, now_ms: int, fresh: int) -> Step:
    """Abort the barrier under way: its commit has failed for good. Numbers continue above the newest in the ledger."""
    job = replace(job, number=max(job.number, newest_barrier))
    return _end_if_empty(_abort(job, reason, now_ms, fresh))


# --- Parts of the above -------------------------------------------------------------------------------------------


def _is_complete(job: CheckpointJob) -> bool:
    """Whether all participants are there for a barrier."""
    return bool(job.members) and not job.missing and len(job.members) >= job.required


def _settle(job: CheckpointJob, now_ms: int) -> Step:
    """Commit the barrier under way if all participants have collected it."""
    flight = job.flight
    if flight is None or flight.committing or flight.absent():
        return _end_if_empty(Step(job))
    tables = _merge_parts(flight.parts)
    if not tables:
        # Nothing was written: the checkpoint is the same as the one before, and an idle job makes no log entries.
        job, told = _resolve(job, job.committed_epoch, now_ms)
        return _end_if_empty(Step(job, told))
    job = replace(job, flight=replace(flight, committing=True))
    return Step(job, (CommitBarrier(flight.number, flight.epoch, tables),))


def _resolve(job: CheckpointJob, epoch: int, now_ms: int) -> tuple[CheckpointJob, tuple[Action, ...]]:
    """The barrier under way has become a checkpoint; those who collected it are told."""
    flight = job.flight
    assert flight is not None, "only a barrier that is under way can be resolved"
    job = replace(
        job,
        flight=None,
        committed_barrier=flight.number,
        committed_epoch=epoch,
        due_ms=max(flight.sent_ms + job.options.interval_ms, now_ms),
    )
    told = tuple(
        tell(job, name, "committed", flight.number, epoch=flight.epoch)
        for name, generation in sorted(flight.roster.items())
        if name in job.members and job.members[name].generation == generation
    )
    return job, told


def _merge_parts(parts: Mapping[str, Tables]) -> Tables:
    """The runs of all participants, in as few runs as their key ranges allow."""
    runs: dict[int, list[Run]] = {}
    for name in sorted(parts):
        for table in sorted(parts[name]):
            runs.setdefault(table, []).extend(parts[name][table])
    return {table: packed for table, several in runs.items() if (packed := pack(several))}


def _abort(job: CheckpointJob, reason: str, now_ms: int, fresh: int) -> Step:
    """Send all participants back to the newest checkpoint, to write at `fresh`."""
    flight = job.flight
    job = replace(job, flight=None, doomed="", epoch=fresh, due_ms=now_ms + job.options.interval_ms)
    aborted = [name for name in sorted(job.members) if job.members[name].started]
    number, epoch = (flight.number, flight.epoch) if flight is not None else (0, 0)
    sends = tuple(tell(job, name, "aborted", number, epoch=epoch, reason=reason) for name in aborted)
    step = _start_waiting(job)
    return Step(step.job, (*sends, *step.actions))


def _start_waiting(job: CheckpointJob) -> Step:
    """Those who joined during a commit begin, now that its outcome is known."""
    waiting = [name for name in sorted(job.members) if not job.members[name].started]
    members = {name: replace(member, started=True) for name, member in job.members.items()}
    job = replace(job, members=members)
    return Step(job, tuple(send for name in waiting for send in greet(job, name)))


def _end_if_empty(step: Step) -> Step:
    """End the job with its last participant, unless the outcome of a commit is awaited."""
    job = step.job
    if job is None or job.members or (job.flight is not None and job.flight.committing):
        return step
    return Step(None, step.actions)


def _check_options(job: CheckpointJob, request: JoinRequest) -> None:
    options = request.options
    if options.participants < 1 or options.interval_ms < 1 or options.timeout_ms < 1:
        raise InvalidOption(
            f"job {job.name!r}: participants {options.participants}, interval {options.interval_ms} ms and timeout "
            f"{options.timeout_ms} ms have to be 1 or more"
        )
    if not request.participant or not request.incarnation:
        raise InvalidOption(f"job {job.name!r}: a participant needs a name and an incarnation")
    if options != job.options:
        raise InvalidOption(
            f"participant {request.participant!r} joins job {job.name!r} with {options}, but it runs with "
            f"{job.options}: all participants have to give the same"
        )
