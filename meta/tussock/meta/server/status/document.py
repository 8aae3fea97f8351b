"""What a meta service says of itself: the one document behind the console, `/metrics`, `GetStatus` and the command.

`docs/console.md` lists it as JSON. It holds no secret: the store's URL without credentials, sessions by the first
digits of their ids (a caller that knows a whole id may speak for the session). What only a leader knows (sessions,
progress of tasks, checkpoints, pins) is empty in a follower. Names ending in `_ms` are Unix times or spans in
milliseconds, `_age_ms` spans that the replica measured on its monotonic clock.

`version_parts.py` makes the parts that follow from the version, `problems.py` finds what is wrong in the whole.
"""

from typing import Literal

import msgspec
from msgspec.structs import replace

__all__ = [
    "LISTED_MAX",
    "BackupStatus",
    "CompactionStatus",
    "JobStatus",
    "LevelStatus",
    "ParticipantStatus",
    "PeerStatus",
    "PinStatus",
    "Problem",
    "RatesStatus",
    "ReplicaStatus",
    "ServiceStatus",
    "SessionStatus",
    "TableStatus",
    "TaskStatus",
    "UpkeepStatus",
    "VacuumStatus",
    "VersionStatus",
    "shorten",
]


class ReplicaStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The replica that answers."""

    address: str
    """Where clients reach its gRPC port, as it advertises it."""
    role: Literal["leader", "follower"]
    term: int
    """The newest term that it knows; 0 before the first."""
    leader: str
    """Address of that term's leader; empty while nobody leads."""
    started_ms: int
    ready: bool
    """It leads, or has read the log to its tail lately; and nothing of the log is damaged."""
    draining: bool = False
    outdated: str = ""
    """What a newer release wrote into the log, which this replica cannot read; empty while there is nothing."""
    damaged: str = ""
    """What of the log cannot be read since it is damaged or foreign; empty while all of it can."""
    clients_problem: str = ""
    """Why the clients file is not in force as it is now, but as it was before; empty while it is."""


class PeerStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A replica that the answering one knows of, itself included."""

    address: str
    role: Literal["leader", "follower"]
    seen_age_ms: int = 0
    """Since the last sign of life; 0 of the answering one."""


class VersionStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The version that the replica holds, and the settings in it."""

    seq: int
    """Of the last log entry in it."""
    max_committed_epoch: int
    committed_ms: int
    """When its newest epoch was committed, by the committer's clock; 0 for none."""
    safe_epoch: int
    compacted_epoch: int
    gc_horizon: str
    retention_ms: int
    gc_grace_ms: int
    dropped_ssts: int
    """SSTs that left the tree and wait for vacuum."""
    writers: int
    """Writers that the ledger remembers."""
    synced_age_ms: int
    """Since the replica last knew that no newer entry was in the log: how far behind it may be."""
    log_format: int = 0
    """In which the replica writes the log while it leads, and the newest that it reads; 0 from older releases."""


class LevelStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One level of a table's tree."""

    level: int
    """0 for L0, all its runs together."""
    runs: int
    ssts: int
    rows: int
    """Row versions, deletes included."""
    deletes: int
    bytes: int
    """Of the SSTs in the bucket."""
    bytes_max: int
    """What the level may hold before compaction takes some of it down; 0 for L0, which has a limit of runs."""


class TableStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A table: what it is, how its rows are kept, and whether writes to it have to wait."""

    id: int
    name: str
    kind: Literal["raw", "typed"]
    primary_key: tuple[str, ...]
    vnodes: int
    last_epoch: int
    """The newest epoch that wrote to it; 0 for none."""
    ssts: int
    rows: int
    deletes: int
    bytes: int
    levels: tuple[LevelStatus, ...]
    """Those that are not empty, L0 first."""
    l0_runs: int
    l0_stall_runs: int
    """With this many runs writers wait."""
    stall: str
    """Why writers wait; empty if they do not."""
    history_runs: int = 0
    """Runs of rows that only readers of older epochs need; not among the levels, nor in the sums above."""
    history_ssts: int = 0
    history_rows: int = 0
    history_bytes: int = 0
    retention_ms: int | None = None
    """Of its own; `None` for that of the store."""
    ttl_ms: int | None = None
    """How long its rows live; `None`: until they are deleted."""
    ttl_column: str | None = None
    """From whose time that counts; `None`: from when they are written."""


class SessionStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A client or compactor node that holds a session."""

    id: str
    """The first eight digits."""
    kind: Literal["client", "compactor"]
    name: str
    software: str
    slots: int
    """Tasks that it runs at once; 0 for clients."""
    tasks: int
    """Tasks that it runs now."""
    pins: int
    heartbeat_age_ms: int
    lease_ms: int
    """Milliseconds after the last heartbeat at which the session ends."""


class TaskStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A compaction task that is claimed."""

    id: str
    table: str
    kind: str
    runs: int
    """Sorted runs that are merged."""
    ssts: int
    bytes: int
    rows: int
    """Rows of all inputs."""
    rows_read: int
    """How many of them the compactor has read, as it last said."""
    target_level: int
    owner: str
    claimed_ms: int
    expires_ms: int


class CompactionStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The compactions under way, and their compactors."""

    paused: bool = False
    reason: str = ""
    """Why it is paused."""
    compactors: int = 0
    """Compactor nodes with a session."""
    slots: int = 0
    """Of all of them."""
    backlog_tasks: int = 0
    """Tasks that wait for a slot, as far as the limit of tasks of one table lets them begin."""
    backlog_bytes: int = 0
    """Input of the compactions that wait; of a table of at most twice as many as it may have at once."""
    tasks: tuple[TaskStatus, ...] = ()
    """Oldest first; a task of an embedded process, which needs no session, is among them."""


class PinStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A lease on an epoch."""

    epoch: int
    owner: str
    created_ms: int
    expires_ms: int


class ParticipantStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One worker of a checkpointed job."""

    name: str
    connected: bool
    collected: bool
    """It has answered the barrier that is under way."""


class JobStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A job whose participants commit together."""

    job: str
    state: str
    """`waiting` for participants, `running`, `collecting` a barrier, `committing`, `aborting`."""
    participants: tuple[ParticipantStatus, ...]
    expected: int
    """Participants that the job needs to run."""
    barrier: int
    """Number of the newest barrier."""
    barrier_age_ms: int
    """Since it was sent; 0 if none is under way."""
    committed_epoch: int
    interval_ms: int
    reason: str = ""
    """Why it waits or was aborted last."""


class RatesStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What was committed in each of the last seconds, oldest first; all series are equally long."""

    end_ms: int
    """Wall-clock time at the end of the last second."""
    epochs: tuple[int, ...]
    commits: tuple[int, ...]
    """Log entries that committed epochs: one entry takes those of all writers that came together."""
    bytes: tuple[int, ...]
    """Of the committed SSTs."""


class VacuumStatus(msgspec.Struct, frozen=True, kw_only=True):
    """How the last vacuum on schedule ended."""

    finished_ms: int
    deleted: int
    bytes_freed: int
    kept_young: int
    error: str = ""
    """Why it failed; empty if it did not."""


class UpkeepStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What the leader does on schedule."""

    vacuum: VacuumStatus | None = None
    next_vacuum_ms: int = 0
    """When it is due; 0 if it is never."""


class BackupStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A named, immutable copy of a version."""

    name: str
    created_ms: int
    epoch: int
    ssts: int
    bytes: int
    comment: str = ""


class LossStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of a damaged SST that somebody has agreed to go without; `tussock check` says which keys."""

    sst: str
    table: str
    history: bool
    """Only readers of older epochs miss them."""
    rows: int
    bytes: int
    min_epoch: int
    max_epoch: int
    at_ms: int
    by: str
    kept: bool
    """The damaged objects are kept."""


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """Something that a person should know first."""

    severity: Literal["error", "warning"]
    """`error`: something does not work now; `warning`: it will not for long, or not well."""
    kind: str
    """A fixed word for programs, such as `no-leader`."""
    text: str
    """What is wrong with which object, and what to do."""


class ServiceStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the console shows."""

    now_ms: int
    software: str
    """`tussock 0.1.0`."""
    store_url: str
    replica: ReplicaStatus
    replicas: tuple[PeerStatus, ...]
    version: VersionStatus
    tables: tuple[TableStatus, ...]
    """By name."""
    rates: RatesStatus
    problems: tuple[Problem, ...] = ()
    """Errors first; `problems.py` finds them."""
    sessions: tuple[SessionStatus, ...] = ()
    compaction: CompactionStatus = CompactionStatus()
    pins: tuple[PinStatus, ...] = ()
    """By epoch."""
    checkpoints: tuple[JobStatus, ...] = ()
    upkeep: UpkeepStatus = UpkeepStatus()
    backups: tuple[BackupStatus, ...] = ()
    losses: tuple[LossStatus, ...] = ()
    """The newest first."""
    left_out: dict[str, int] = {}
    """Per list above, how many more there are than it shows; those that show all are not here."""


LISTED_MAX = 500
"""Of what a store or a leader may have many thousands of: the status is asked for each second, by several."""


PARTICIPANTS_LISTED_MAX = 100
"""Of one job."""


def shorten(status: ServiceStatus) -> ServiceStatus:
    """The status with at most `LISTED_MAX` of each kind of thing."""
    cut, left_out = {}, {}
    for name in ("tables", "problems", "sessions", "pins", "checkpoints", "backups", "losses"):
        listed = getattr(status, name)
        if len(listed) > LISTED_MAX:
            cut[name], left_out[name] = listed[:LISTED_MAX], len(listed) - LISTED_MAX
    jobs = tuple(
        replace(job, participants=job.participants[:PARTICIPANTS_LISTED_MAX])
        for job in cut.get("checkpoints", status.checkpoints)
    )
    return replace(status, **{**cut, "checkpoints": jobs}, left_out=left_out)
