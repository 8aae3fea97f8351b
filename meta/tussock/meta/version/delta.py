"""Deltas: the frozen records of every change that a version can undergo, with `validate` and `apply`.

Both are pure: no bucket, no clock, no logger; times ride in the deltas. The log, the service and the tests all change
a version through these two functions only, so replaying a log gives byte for byte the version that its writers had.
The shape (a record per change, requirements checked against the state it lands on) is known from Iceberg's table
updates and LevelDB's `VersionEdit`. A tag on disk is never used again with another meaning.
"""

from collections.abc import Sequence
from typing import TypeAlias, assert_never

import msgspec
from msgspec.structs import replace

from tussock.meta.version.backups import (
    BeginBackup,
    BeginStore,
    DetachSource,
    DropBackup,
    FinishBackup,
    apply_backup,
    validate_backup,
)
from tussock.meta.version.commits import (
    AlreadyCommitted,
    CommitEpoch,
    OpenWriter,
    apply_commit,
    apply_open,
    stamp,
    validate_commit,
    validate_open,
)
from tussock.meta.version.repair import RepairClock, apply_repair, validate_repair
from tussock.meta.version.tables import AlterTable, apply_alter, validate_alter
from tussock.meta.version.tasks import (
    ClaimCompaction,
    PauseCompaction,
    ReleaseCompaction,
    ReportCompaction,
    apply_claim,
    apply_release,
    apply_report,
    drop_ssts,
    validate_claim,
    validate_release,
    validate_report,
)
from tussock.meta.version.terms import StartTerm, apply_term, check_begun, check_term, validate_term
from tussock.meta.version.version import Version
from tussock.statestore.contract.records import GoneTable, TableSpec, TableState
from tussock.statestore.errors import Conflict, InvalidOption, TableExists, TableNotFound

__all__ = [
    "TIMED",
    "AdvanceHorizon",
    "AdvanceSafeEpoch",
    "AlreadyCommitted",
    "AlterTable",
    "BeginBackup",
    "BeginStore",
    "ClaimCompaction",
    "CommitEpoch",
    "Configure",
    "CreateTable",
    "Delta",
    "DetachSource",
    "DropBackup",
    "DropTable",
    "FinishBackup",
    "ForgetDropped",
    "OpenWriter",
    "PauseCompaction",
    "ReleaseCompaction",
    "RepairClock",
    "ReportCompaction",
    "StartTerm",
    "advance",
    "apply",
    "extend",
    "stamp",
    "validate",
]


class CreateTable(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="create_table", tag_field="type"):
    """A table comes into being, empty; `spec.id` is the version's `next_table_id`."""

    spec: TableSpec
    dated: bool = False
    """The version notes when, for pins."""


class DropTable(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="drop_table", tag_field="type"):
    """A table goes, with its compaction tasks. Its id is never given again."""

    table_id: int
    at_ms: int
    keep: bool = False
    """It is kept as gone, for pins, until a `ForgetDropped` names it; else its SSTs become dropped at once."""


class AdvanceSafeEpoch(msgspec.Struct, frozen=True, kw_only=True, tag="advance_safe_epoch", tag_field="type"):
    """From now on, nothing below `epoch` can be pinned. Only grows; never above the newest committed epoch."""

    epoch: int


class AdvanceHorizon(msgspec.Struct, frozen=True, kw_only=True, tag="advance_horizon", tag_field="type"):
    """From now on, no commit may name an SST id below `horizon`. Only grows."""

    horizon: str


class ForgetDropped(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="forget_dropped", tag_field="type"
):
    """The objects of these dropped SSTs are deleted; unknown ids are ignored (another vacuum was faster)."""

    ids: tuple[str, ...]
    tables: tuple[int, ...] = ()
    """Ids of gone tables that no pin needs any more: their SSTs become dropped. Unknown ones are ignored, too."""


class Configure(msgspec.Struct, frozen=True, kw_only=True, tag="configure", tag_field="type"):
    """The store's own retention and grace period, which hold for every process that is not told otherwise."""

    retention_ms: int
    gc_grace_ms: int


Delta: TypeAlias = (
    CommitEpoch
    | CreateTable
    | DropTable
    | ClaimCompaction
    | ReportCompaction
    | ReleaseCompaction
    | AdvanceSafeEpoch
    | AdvanceHorizon
    | ForgetDropped
    | Configure
    | OpenWriter
    | PauseCompaction
    | StartTerm
    | BeginBackup
    | FinishBackup
    | DropBackup
    | BeginStore
    | DetachSource
    | AlterTable
    | RepairClock
)


TIMED = (CommitEpoch, DropTable, ClaimCompaction, ReportCompaction, ReleaseCompaction, BeginBackup, RepairClock)
"""Deltas in which times of their writer's clock ride that others go by."""


def validate(version: Version, delta: Delta) -> None:
    """Raise a named error unless `delta` may be applied to `version`."""
    match delta:
        case CommitEpoch():
            validate_commit(version, delta)
        case CreateTable(spec=spec):
            if version.find_table(spec.name) is not None:
                raise TableExists(f"table {spec.name!r} exists already; open it, or drop it first")
            if spec.id != version.next_table_id:
                raise Conflict(
                    f"table {spec.name!r} was to get id {spec.id}, but the next id is {version.next_table_id}"
                )
        case AlterTable():
            validate_alter(version, delta)
        case DropTable(table_id=table_id):
            if table_id not in version.tables:
                raise TableNotFound(f"table with id {table_id} is not in the store; nothing was dropped")
        case ClaimCompaction():
            validate_claim(version, delta)
        case ReportCompaction():
            validate_report(version, delta)
        case ReleaseCompaction():
            validate_release(version, delta)
        case AdvanceSafeEpoch(epoch=epoch):
            if not version.safe_epoch < epoch <= version.max_committed_epoch:
                raise InvalidOption(
                    f"safe epoch {epoch} must be above the present one, {version.safe_epoch}, and at most the newest "
                    f"committed one, {version.max_committed_epoch}"
                )
        case AdvanceHorizon(horizon=horizon):
            if horizon <= version.gc_horizon:
                raise InvalidOption(
                    f"garbage horizon {horizon!r} must be above the present one, {version.gc_horizon!r}"
                )
        case Configure(retention_ms=retention_ms, gc_grace_ms=gc_grace_ms):
            if retention_ms < 0 or gc_grace_ms < 0:
                raise InvalidOption(f"retention {retention_ms} ms and grace {gc_grace_ms} ms must not be negative")
        case OpenWriter():
            validate_open(version, delta)
        case StartTerm():
            validate_term(version, delta)
        case RepairClock():
            validate_repair(version, delta)
        case ForgetDropped() | PauseCompaction():
            pass
        case BeginBackup() | FinishBackup() | DropBackup() | BeginStore() | DetachSource():
            validate_backup(version, delta)
        case _:
            assert_never(delta)


def apply(version: Version, delta: Delta) -> Version:
    """The version after `delta`, which `validate` has passed; `seq` stays (an entry of several deltas has one)."""
    match delta:
        case CommitEpoch():
            return apply_commit(version, delta)
        case CreateTable(spec=spec, dated=dated):
            created = TableState(spec=spec)
            if dated:
                created = replace(created, created=(version.max_committed_epoch, version.seq + 1))
            return replace(version, tables={**version.tables, spec.id: created}, next_table_id=spec.id + 1)
        case AlterTable():
            return apply_alter(version, delta)
        case DropTable():
            return _apply_drop(version, delta)
        case ClaimCompaction():
            return apply_claim(version, delta)
        case ReportCompaction():
            return apply_report(version, delta)
        case ReleaseCompaction():
            return apply_release(version, delta)
        case AdvanceSafeEpoch(epoch=epoch):
            return replace(version, safe_epoch=epoch)
        case AdvanceHorizon(horizon=horizon):
            return replace(version, gc_horizon=horizon)
        case Configure(retention_ms=retention_ms, gc_grace_ms=gc_grace_ms):
            return replace(version, retention_ms=retention_ms, gc_grace_ms=gc_grace_ms)
        case OpenWriter():
            return apply_open(version, delta)
        case StartTerm():
            return apply_term(version, delta)
        case RepairClock():
            return apply_repair(version, delta)
        case PauseCompaction(paused=paused, reason=reason):
            return replace(version, pause=reason if paused else None)
        case ForgetDropped():
            return _apply_forget(version, delta)
        case BeginBackup() | FinishBackup() | DropBackup() | BeginStore() | DetachSource():
            return apply_backup(version, delta)
        case _:
            assert_never(delta)


def extend(version: Version, deltas: Sequence[Delta], *, term: int = 0) -> Version:
    """The version after `deltas`, each validated on the state that the ones before it left; `seq` stays.

    `term` is that of the entry which will hold them. Raises what `validate` raises, and `Fenced` if the term is over.
    """
    check_term(version, term)
    for delta in deltas:
        validate(version, delta)
        version = apply(version, delta)
    check_begun(version, term)
    return version


def advance(version: Version, deltas: Sequence[Delta], *, term: int = 0, check: bool = True) -> Version:
    """The version after the log entry of that term that holds `deltas`: its sequence is one more.

    `check` validates as `extend` does; a replay of the log leaves it out.
    """
    if check:
        after = extend(version, deltas, term=term)
    else:
        after = version
        for delta in deltas:
            after = apply(after, delta)
    return replace(after, seq=version.seq + 1)


def _apply_drop(version: Version, delta: DropTable) -> Version:
    gone = version.tables[delta.table_id]
    without = replace(
        version,
        tables={key: state for key, state in version.tables.items() if key != delta.table_id},
        tasks={key: task for key, task in version.tasks.items() if task.table_id != delta.table_id},
    )
    if delta.keep:
        kept = GoneTable(
            state=gone,
            dropped_epoch=version.max_committed_epoch,
            dropped_seq=version.seq + 1,
            dropped_ms=delta.at_ms,
        )
        return without.with_gone({**version.gone, delta.table_id: kept})
    return drop_ssts(without, gone.levels.ssts(), delta.at_ms)


def _apply_forget(version: Version, delta: ForgetDropped) -> Version:
    forgotten = set(delta.ids)
    if forgotten:
        version = replace(version, dropped=tuple(sst for sst in version.dropped if sst.id not in forgotten))
    for table_id in delta.tables:
        gone = version.gone.get(table_id)
        if gone is not None:
            without = version.with_gone({key: one for key, one in version.gone.items() if key != table_id})
            # As of the drop: since then nobody begins to read it without a pin, and what a pin kept is done.
            version = drop_ssts(without, gone.state.levels.ssts(), gone.dropped_ms, gone.dropped_seq)
    return version
