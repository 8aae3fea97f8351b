"""What a meta service says of itself: the one document behind the console, `/metrics`, `GetStatus` and the command.

`docs/console.md` lists it as JSON. It holds no secret: the store's URL without credentials, sessions by the first
digits of their ids (whoever knows a whole id may speak for the session). What only a leader knows (sessions, progress
of tasks, checkpoints, pins) is empty in a follower. Names ending in `_ms` are Unix times or spans in milliseconds,
`_age_ms` spans that the replica measured on its monotonic clock.

The functions here are pure: from a version and what is passed to them.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import msgspec

from tussock.meta.picking import PickerConfig
from tussock.meta.ranges import total_bytes
from tussock.meta.version import Version
from tussock.statestore.backend import PinInfo
from tussock.statestore.catalog import SstInfo, TableState

__all__ = [
    "BackupStatus",
    "CompactionStatus",
    "JobStatus",
    "LevelStatus",
    "LevelSums",
    "ParticipantStatus",
    "PeerStatus",
    "PinStatus",
    "Problem",
    "RatesStatus",
    "ReplicaStatus",
    "SessionStatus",
    "Status",
    "TableStatus",
    "TaskStatus",
    "UpkeepStatus",
    "VacuumStatus",
    "VersionStatus",
    "pin_statuses",
    "short_id",
    "table_statuses",
    "task_statuses",
    "version_status",
]

SHORT_ID_DIGITS = 8


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
    """It leads, or has read the log to its tail lately."""
    draining: bool = False


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


class LevelStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One level of a table's tree."""

    level: int
    """0 for L0, all its sublevels together."""
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
    """From so many runs on writers wait."""
    stall: str
    """Why writers wait; empty if they do not."""


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
    """The session ends so long after the last heartbeat."""


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
    """Who compacts, and what."""

    paused: bool = False
    reason: str = ""
    """Why it is paused."""
    compactors: int = 0
    """Compactor nodes with a session."""
    slots: int = 0
    """Of all of them."""
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


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """Something that a person should know first."""

    severity: Literal["error", "warning"]
    """`error`: something does not work now; `warning`: it will not for long, or not well."""
    kind: str
    """A fixed word for programs, such as `no-leader`."""
    text: str
    """What is wrong with which object, and what to do."""


class Status(msgspec.Struct, frozen=True, kw_only=True):
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


def short_id(text: str) -> str:
    """An id as far as people and readers of the status need it."""
    return text[:SHORT_ID_DIGITS]


def version_status(version: Version, synced_age_ms: int) -> VersionStatus:
    """The version's own facts."""
    return VersionStatus(
        seq=version.seq,
        max_committed_epoch=version.max_committed_epoch,
        committed_ms=version.timeline[-1][0] if version.timeline else 0,
        safe_epoch=version.safe_epoch,
        compacted_epoch=version.compacted_epoch,
        gc_horizon=version.gc_horizon,
        retention_ms=version.retention_ms,
        gc_grace_ms=version.gc_grace_ms,
        dropped_ssts=len(version.dropped),
        writers=len(version.ledger),
        synced_age_ms=synced_age_ms,
    )


class LevelSums:
    """The sums of levels, remembered as long as a level stays the same tuple.

    A commit leaves all levels below L0 as they are, so that a status costs what has changed and not a walk over all
    SSTs of the store each second.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], tuple[tuple[SstInfo, ...], LevelStatus]] = {}

    def level(self, table_id: int, level: int, run: tuple[SstInfo, ...], bytes_max: int) -> LevelStatus:
        """The sums of a level from L1 on."""
        known = self._known.get((table_id, level))
        if known is None or known[0] is not run or known[1].bytes_max != bytes_max:
            known = (run, _level_status(level, 1, run, bytes_max))
            self._known[table_id, level] = known
        return known[1]

    def forget_but(self, table_ids: Iterable[int]) -> None:
        """Drop what is remembered of tables that are gone."""
        kept = set(table_ids)
        self._known = {key: value for key, value in self._known.items() if key[0] in kept}


def table_statuses(
    version: Version, config: PickerConfig, stalls: Mapping[int, str], sums: LevelSums
) -> tuple[TableStatus, ...]:
    """All tables by name; `stalls` has the reason of each table, by id, whose writers wait."""
    sums.forget_but(version.tables)
    states = sorted(version.tables.values(), key=lambda state: state.spec.name)
    return tuple(_table_status(state, config, stalls.get(state.spec.id, ""), sums) for state in states)


def task_statuses(version: Version, rows_read: Mapping[str, int]) -> tuple[TaskStatus, ...]:
    """All claimed tasks, oldest first; `rows_read` is the progress, by task id, of those that told some."""
    found = []
    for task in sorted(version.tasks.values(), key=lambda task: (task.claimed_ms, task.id)):
        ssts = task.ssts()
        state = version.tables.get(task.table_id)
        found.append(
            TaskStatus(
                id=task.id,
                table=state.spec.name if state else "",
                kind=task.kind,
                runs=len(task.inputs),
                ssts=len(ssts),
                bytes=total_bytes(ssts),
                rows=sum(sst.rows for sst in ssts),
                rows_read=rows_read.get(task.id, 0),
                target_level=task.target_level,
                owner=task.owner,
                claimed_ms=task.claimed_ms,
                expires_ms=task.expires_ms,
            )
        )
    return tuple(found)


def pin_statuses(pins: Sequence[PinInfo]) -> tuple[PinStatus, ...]:
    """Pins by epoch; their ids stay with their holders."""
    ordered = sorted(pins, key=lambda pin: (pin.epoch, pin.created_ms, pin.id))
    return tuple(
        PinStatus(epoch=pin.epoch, owner=pin.owner, created_ms=pin.created_ms, expires_ms=pin.expires_ms)
        for pin in ordered
    )


def _table_status(state: TableState, config: PickerConfig, stall: str, sums: LevelSums) -> TableStatus:
    spec, tree = state.spec, state.levels
    levels = []
    if tree.l0:
        levels.append(_level_status(0, len(tree.l0), [sst for sub in tree.l0 for sst in sub.ssts], 0))
    levels += [
        sums.level(spec.id, number, run, config.level_bytes_max(number))
        for number, run in enumerate(tree.levels, start=1)
        if run
    ]
    return TableStatus(
        id=spec.id,
        name=spec.name,
        kind="raw" if spec.schema is None else "typed",
        primary_key=spec.primary_key,
        vnodes=spec.vnodes,
        last_epoch=state.last_epoch,
        ssts=sum(level.ssts for level in levels),
        rows=sum(level.rows for level in levels),
        deletes=sum(level.deletes for level in levels),
        bytes=sum(level.bytes for level in levels),
        levels=tuple(levels),
        l0_runs=len(tree.l0),
        l0_stall_runs=config.l0_stall_runs,
        stall=stall,
    )


def _level_status(level: int, runs: int, ssts: Sequence[SstInfo], bytes_max: int) -> LevelStatus:
    return LevelStatus(
        level=level,
        runs=runs,
        ssts=len(ssts),
        rows=sum(sst.rows for sst in ssts),
        deletes=sum(sst.deletes for sst in ssts),
        bytes=total_bytes(ssts),
        bytes_max=bytes_max,
    )
