"""Checkpoints as the leader runs them: takes the calls, sends the events and commits what `barriers.py` decides.

All of it lives in the leader's memory but the ledger, which has the newest barriers of each job as batches of the
writer `checkpoint:JOB`. After a change of leader participants join again, go back to the newest checkpoint, and
barrier numbers go on above the ledger's: a barrier is never committed twice.
"""

from collections.abc import Mapping, Sequence
from functools import partial

from tussock.meta.checkpoints import barriers
from tussock.meta.checkpoints.job import Action, CheckpointJob, CommitBarrier, JoinRequest, Send, Step, greet
from tussock.meta.node.auth.caller import Caller, Handlers
from tussock.meta.rpc import meta_pb2 as pb
from tussock.meta.rpc.barriers import event_to_message, on_missing_from_message
from tussock.meta.rpc.convert import tables_from_message
from tussock.meta.server.context import Context
from tussock.meta.server.handlers.commits import Commits
from tussock.meta.server.part import Part
from tussock.meta.server.sessions import Session, Sessions
from tussock.meta.server.status.document import JobStatus, ParticipantStatus
from tussock.statestore.base.logs import get_logger
from tussock.statestore.base.system import Lock
from tussock.statestore.contract.backend import CommitRequest
from tussock.statestore.contract.barriers import JobOptions
from tussock.statestore.contract.records import Run
from tussock.statestore.errors import Fenced, InvalidOption, LimitReached, ObjectStoreUnavailable, TussockError

__all__ = ["Checkpoints", "writer_of"]

log = get_logger("tussock.meta.checkpoints")

NAME_CHARACTERS_MAX = 255
REASON_CHARACTERS_MAX = 500
JOBS_MAX = 1000
PARTICIPANTS_MAX = 10_000
"""Of all jobs."""
COLLECTED_BYTES_MAX = 64 << 20
"""What barriers under way have collected, of all jobs: reckoned by their SSTs and the keys in their records."""
SST_BYTES = 512
"""Of the record of an SST, without its keys."""
TIME_MS_MAX = 10**12
_PAUSE_SECONDS = 0.1
_PAUSE_SECONDS_MAX = 5.0
"""Between two attempts at a commit while the bucket is away, growing from the one to the other."""

CHECKPOINTS = "checkpoints"
"""Instead of an identity, for the writers' names of all jobs: they have one share of names together."""


def writer_of(job: str) -> str:
    """The writer that a job's checkpoints are committed by."""
    return f"checkpoint:{job}"


class Checkpoints(Part):
    """The checkpoints of all jobs, for one leadership."""

    def __init__(self, context: Context, sessions: Sessions, lock: Lock, commits: Commits) -> None:
        """`lock` is held around the sessions, and around the jobs here."""
        self._context = context
        self._sessions = sessions
        self._lock = lock
        self._commits = commits
        self._jobs: dict[str, CheckpointJob] = {}
        self._reasons: dict[str, str] = {}
        """Why each job was aborted last."""
        self._closed = False

    def handlers(self) -> Handlers:
        """The RPCs answered here."""
        return {
            "JoinCheckpoint": self._join,
            "CollectBarrier": self._collect,
            "LeaveCheckpoint": self._leave,
        }

    def tick(self) -> None:
        """Send barriers that are due, give up those that take too long."""
        now_ms = self._now_ms()
        with self._lock:
            for name, job in list(self._jobs.items()):
                wake_ms = barriers.wake_ms(job)
                if wake_ms is not None and wake_ms <= now_ms:
                    self._take(name, barriers.tick(job, now_ms, self._commits.new_epoch()))

    def greet_session(self, session: Session) -> None:
        """The session has subscribed: tell its participants where things stand, events may have been lost."""
        with self._lock:
            for name, participant in self._places(session):
                self._act(name, greet(self._jobs[name], participant))

    def end_session(self, session: Session) -> None:
        """The session is over."""
        with self._lock:
            for name, participant in self._places(session):
                step = barriers.lose(
                    self._jobs[name], participant, "its session ended", self._now_ms(), self._commits.new_epoch()
                )
                self._take(name, step)

    def uploads_in_flight(self) -> list[str]:
        """Ids of the SSTs that barriers under way have collected: vacuum has to spare them, dead or alive who wrote."""
        return [
            sst.id for tables in self._barrier_runs() for runs in tables.values() for run in runs for sst in run.ssts
        ]

    def _barrier_runs(self) -> list[Mapping[int, tuple[Run, ...]]]:
        """What participants have brought for barriers under way."""
        flights = [job.flight for job in self._jobs.values() if job.flight is not None]
        return [tables for flight in flights for tables in flight.parts.values()]

    def status(self) -> tuple[JobStatus, ...]:
        """What is going on, for people."""
        now_ms = self._now_ms()
        with self._lock:
            return tuple(_status(job, self._reasons.get(name, ""), now_ms) for name, job in sorted(self._jobs.items()))

    def close(self) -> None:
        """The term is over: nothing is sent or tried again any more."""
        self._closed = True

    # --- Calls ----------------------------------------------------------------------------------------------------

    def _join(self, message: pb.JoinCheckpointRequest, _: Caller) -> pb.JoinCheckpointResponse:
        name = message.job
        for what, text in (("job", name), ("participant", message.participant), ("incarnation", message.incarnation)):
            if not 0 < len(text) <= NAME_CHARACTERS_MAX:
                raise InvalidOption(f"{what} {text[:64]!r}: expected 1 to {NAME_CHARACTERS_MAX} characters")
        request = JoinRequest(
            participant=message.participant,
            session=message.session_id,
            incarnation=message.incarnation,
            options=self._options(message),
            seen_barrier=message.seen_barrier,
        )
        with self._lock:
            self._sessions.get(message.session_id)
            self._check_room(name, message.participant)
            step = barriers.join(
                self._jobs.get(name), name, request, self._newest(name), self._now_ms(), self._commits.new_epoch()
            )
            self._take(name, step)
            member = self._jobs[name].members[message.participant]
            job = self._jobs[name]
        log.info("participant joined", job=name, participant=message.participant, generation=member.generation)
        self._context.nudge()
        return pb.JoinCheckpointResponse(
            generation=member.generation, committed_epoch=job.committed_epoch, barrier=job.committed_barrier
        )

    def _collect(self, message: pb.CollectBarrierRequest, caller: Caller) -> pb.CollectBarrierResponse:
        tables = tables_from_message(message.tables)
        self._commits.check_tables(tables, caller)
        with self._lock:
            self._sessions.get(message.session_id)
            job = self._job(message.job, message.participant)
            collected = sum(map(_weight, self._barrier_runs())) + _weight(tables)
            if collected > COLLECTED_BYTES_MAX:
                raise LimitReached(
                    f"job {message.job!r}: with what participant {message.participant!r} brings, barriers under way "
                    f"would hold {collected} bytes of records of SSTs, and {COLLECTED_BYTES_MAX} are kept; write less "
                    "between two barriers",
                    COLLECTED_BYTES_MAX,
                )
            generation = _generation(job, message)
            step = barriers.collect(job, message.participant, generation, message.barrier, tables, self._now_ms())
            self._take(message.job, step)
        return pb.CollectBarrierResponse()

    def _leave(self, message: pb.LeaveCheckpointRequest, _: Caller) -> pb.LeaveCheckpointResponse:
        with self._lock:
            job = self._jobs.get(message.job)
            if job is not None:
                step = barriers.leave(
                    job,
                    message.participant,
                    _generation(job, message),
                    done=message.done,
                    reason=message.reason[:REASON_CHARACTERS_MAX],
                    now_ms=self._now_ms(),
                    fresh=self._commits.new_epoch(),
                )
                self._take(message.job, step)
        if job is not None:
            log.info("participant left", job=message.job, participant=message.participant[:64], done=message.done)
        return pb.LeaveCheckpointResponse()

    # --- What follows ---------------------------------------------------------------------------------------------

    def _take(self, name: str, step: Step) -> None:
        """Keep a job's new state and do what follows; the caller holds the lock."""
        if step.job is None:
            self._jobs.pop(name, None)
            self._reasons.pop(name, None)
        else:
            self._jobs[name] = step.job
        self._act(name, step.actions)

    def _act(self, name: str, actions: Sequence[Action]) -> None:
        for action in actions:
            if isinstance(action, CommitBarrier):
                self._context.system.spawn("tussock-checkpoint", partial(self._commit, name, action))
            else:
                self._send(name, action)

    def _send(self, name: str, send: Send) -> None:
        if send.event.what == "aborted":
            self._reasons[name] = send.event.reason
        session = next((one for one in self._sessions.all() if one.id == send.session), None)
        if session is not None:
            session.send(pb.Event(barrier=event_to_message(name, send.participant, send.event)))

    def _commit(self, name: str, action: CommitBarrier) -> None:
        """Commit a barrier's epoch, however long that takes: until the outcome is known, nothing else can happen."""
        request = CommitRequest(
            epoch=action.epoch, tables=dict(action.tables), writer=writer_of(name), batch_id=action.barrier
        )
        pause, waited_ms = _PAUSE_SECONDS, 0
        while not self._closed:
            delay_ms, _ = self._context.meta.write_delay(request.tables, waited_ms)
            if delay_ms:
                self._context.system.sleep(delay_ms / 1000)
                waited_ms += delay_ms
                continue
            try:
                epoch = self._commits.commit(request, CHECKPOINTS)
            except ObjectStoreUnavailable as error:
                log.warning("a checkpoint waits for the bucket", job=name, barrier=action.barrier, error=str(error))
                self._context.system.sleep(pause)
                pause = min(2 * pause, _PAUSE_SECONDS_MAX)
            except TussockError as error:
                self._resolve(name, action, None, f"barrier {action.barrier} could not be committed: {error}")
                return
            else:
                self._resolve(name, action, epoch, "")
                return

    def _resolve(self, name: str, action: CommitBarrier, epoch: int | None, reason: str) -> None:
        with self._lock:
            job = self._jobs[name]
            now_ms, fresh = self._now_ms(), self._commits.new_epoch()
            if epoch is not None:
                step = barriers.confirm(job, epoch, now_ms, fresh)
            else:
                log.warning("a checkpoint was refused", job=name, barrier=action.barrier, reason=reason)
                step = barriers.reject(job, reason, self._newest(name)[0], now_ms, fresh)
            if not self._closed:
                self._take(name, step)
        self._context.nudge()

    def _places(self, session: Session) -> list[tuple[str, str]]:
        """(job, participant) of all that the session takes part in."""
        return [
            (name, participant)
            for name, job in sorted(self._jobs.items())
            for participant, member in sorted(job.members.items())
            if member.session == session.id
        ]

    def _job(self, name: str, participant: str) -> CheckpointJob:
        job = self._jobs.get(name)
        if job is None:
            raise Fenced(
                f"job {name!r} is not known to this leader: another one leads since, or its last participant was "
                f"given up; nothing of participant {participant!r} was collected, join again",
                name,
                participant,
            )
        return job

    def _check_room(self, name: str, participant: str) -> None:
        """Raise `LimitReached` if there are as many jobs or participants as the leader keeps."""
        job = self._jobs.get(name)
        if job is None and len(self._jobs) >= JOBS_MAX:
            raise LimitReached(f"job {name!r} is new, and {len(self._jobs)} run, which is the limit", JOBS_MAX)
        if job is None or not (participant in job.members or participant in job.missing):
            members = sum(len(one.members) + len(one.missing) for one in self._jobs.values())
            if members >= PARTICIPANTS_MAX:
                raise LimitReached(
                    f"job {name!r}: participant {participant!r} is new, and {members} take part in all jobs, which is "
                    "the limit",
                    PARTICIPANTS_MAX,
                )

    def _newest(self, name: str) -> tuple[int, int]:
        """The job's newest checkpoint in the ledger as (barrier, epoch)."""
        batches = self._context.meta.version().ledger.get(writer_of(name), ())
        return batches[-1] if batches else (0, 0)

    def _options(self, message: pb.JoinCheckpointRequest) -> JobOptions:
        options = self._context.options
        if not 0 < message.participants <= PARTICIPANTS_MAX:
            raise InvalidOption(f"participants is {message.participants}: expected 1 to {PARTICIPANTS_MAX}")
        if max(message.interval_ms, message.timeout_ms) > TIME_MS_MAX:
            raise InvalidOption(
                f"interval {message.interval_ms} ms or timeout {message.timeout_ms} ms: expected up to {TIME_MS_MAX}"
            )
        return JobOptions(
            participants=message.participants,
            interval_ms=message.interval_ms or int(options.checkpoint_interval_seconds * 1000),
            timeout_ms=message.timeout_ms or int(options.checkpoint_timeout_seconds * 1000),
            on_missing=on_missing_from_message(message.on_missing),
        )

    def _now_ms(self) -> int:
        """Milliseconds by the monotonic clock: a wall clock that jumps must not abort a barrier."""
        return int(self._context.system.monotonic() * 1000)


def _weight(tables: Mapping[int, Sequence[Run]]) -> int:
    """About how many bytes these records take."""
    ssts = [sst for runs in tables.values() for run in runs for sst in run.ssts]
    return sum(SST_BYTES + len(sst.smallest) + len(sst.largest) for sst in ssts)


def _generation(job: CheckpointJob, message: pb.CollectBarrierRequest | pb.LeaveCheckpointRequest) -> int:
    """The generation that a call names; 0, which nobody has, if it comes from another session than the participant."""
    member = job.members.get(message.participant)
    return message.generation if member is not None and member.session == message.session_id else 0


def _status(job: CheckpointJob, reason: str, now_ms: int) -> JobStatus:
    flight = job.flight
    parts = flight.parts.keys() if flight is not None else ()
    participants = [
        ParticipantStatus(name=name, connected=name in job.members, collected=name in parts)
        for name in sorted({*job.members, *job.missing})
    ]
    if flight is not None:
        state = "committing" if flight.committing else "collecting"
    else:
        state = "running" if barriers.wake_ms(job) is not None else "waiting"
    return JobStatus(
        job=job.name,
        state=state,
        participants=tuple(participants),
        expected=job.required,
        barrier=job.number,
        barrier_age_ms=now_ms - flight.sent_ms if flight is not None else 0,
        committed_epoch=job.committed_epoch,
        interval_ms=job.options.interval_ms,
        reason=reason,
    )
