"""Deltas: every change that a version can undergo, each a frozen record with `validate` and `apply` beside its data.

Both are pure: no bucket, no clock, no logger; times ride in the deltas. The log, the service and the tests all change
a version through these two methods only, so replaying a log gives byte for byte the version that its writers had.
The shape (a record per change, requirements checked against the state it lands on) is known from Iceberg's table
updates and LevelDB's `VersionEdit`. A tag on disk is never used again with another meaning.

A new delta is a class in the module of its subject, and a line in `Delta`:

* `validate(version)` raises a named error unless the delta may be applied to `version`.
* `apply(version)` is the version after the delta, which `validate` has passed. `seq` stays, since an entry of several
  deltas has one.
"""

from collections.abc import Sequence
from typing import TypeAlias

from msgspec.structs import replace

from tussock.meta.version.deltas.backups import BeginBackup, BeginStore, DetachSource, DropBackup, FinishBackup
from tussock.meta.version.deltas.commits import CommitEpoch, OpenWriter
from tussock.meta.version.deltas.losses import DiscardQuarantined, QuarantineSst
from tussock.meta.version.deltas.repair import RepairClock
from tussock.meta.version.deltas.retention import (
    AdvanceHorizon,
    AdvanceSafeEpoch,
    Configure,
    ExpireHistory,
    ForgetDropped,
    ForgetWriters,
)
from tussock.meta.version.deltas.tables import AlterTable, CreateTable, DropTable, SetRetention
from tussock.meta.version.deltas.tasks import ClaimCompaction, PauseCompaction, ReleaseCompaction, ReportCompaction
from tussock.meta.version.deltas.terms import StartTerm, check_begun, check_term
from tussock.meta.version.version import Version

__all__ = ["TIMED", "Delta", "advance", "extend"]

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
    | ForgetWriters
    | ExpireHistory
    | SetRetention
    | QuarantineSst
    | DiscardQuarantined
)


TIMED = (
    CommitEpoch,
    DropTable,
    ClaimCompaction,
    ReportCompaction,
    ReleaseCompaction,
    BeginBackup,
    RepairClock,
    ExpireHistory,
    DiscardQuarantined,
)
"""Deltas in which times of their writer's clock ride that others go by."""


def extend(version: Version, deltas: Sequence[Delta], *, term: int = 0) -> Version:
    """The version after `deltas`, each validated on the state that the ones before it left; `seq` stays.

    `term` is that of the entry which will hold them. Raises what `validate` raises, and `Fenced` if the term is over.
    """
    check_term(version, term)
    for delta in deltas:
        delta.validate(version)
        version = delta.apply(version)
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
            after = delta.apply(after)
    return replace(after, seq=version.seq + 1)
