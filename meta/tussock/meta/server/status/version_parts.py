"""The parts of a status that follow from the version: its own facts, tables, tasks and pins. Pure."""

from collections.abc import Iterable, Mapping, Sequence

from tussock.meta.compaction.picker_config import PickerConfig
from tussock.meta.log.format import FORMAT_VERSION
from tussock.meta.server.status.document import (
    LevelStatus,
    LossStatus,
    PinStatus,
    TableStatus,
    TaskStatus,
    VersionStatus,
)
from tussock.meta.version.ranges import total_bytes
from tussock.meta.version.version import Version
from tussock.statestore.contract.backend import PinInfo
from tussock.statestore.contract.records import SstInfo, TableState

__all__ = [
    "LevelSums",
    "loss_statuses",
    "pin_statuses",
    "short_id",
    "table_statuses",
    "task_statuses",
    "version_status",
]

SHORT_ID_DIGITS = 8


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
        log_format=FORMAT_VERSION,
    )


class LevelSums:
    """The sums of levels, remembered as long as a level stays the same object.

    A commit leaves all levels below L0 as they are, so that a status costs what has changed and not a walk over all
    SSTs of the store each second.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], tuple[Sequence[SstInfo], LevelStatus]] = {}

    def level(self, table_id: int, level: int, run: Sequence[SstInfo], bytes_max: int) -> LevelStatus:
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


def loss_statuses(version: Version) -> tuple[LossStatus, ...]:
    """What damaged SSTs that were put aside had, the newest first."""
    return tuple(
        LossStatus(
            sst=loss.sst.id,
            table=loss.table,
            history=bool(loss.sst.until),
            rows=loss.rows,
            bytes=loss.bytes,
            min_epoch=loss.min_epoch,
            max_epoch=loss.max_epoch,
            at_ms=loss.at_ms,
            by=loss.by,
            kept=not loss.discarded,
        )
        for loss in reversed(version.losses)
    )


def _table_status(state: TableState, config: PickerConfig, stall: str, sums: LevelSums) -> TableStatus:
    spec, tree = state.spec, state.levels
    levels = []
    if tree.l0:
        levels.append(_level_status(0, len(tree.l0), [sst for run in tree.l0 for sst in run.ssts], 0))
    levels += [
        sums.level(spec.id, number, run, config.level_bytes_max(number))
        for number, run in enumerate(tree.levels, start=1)
        if run
    ]
    past = tree.history_ssts()
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
        history_runs=len(tree.history),
        history_ssts=len(past),
        history_rows=sum(sst.rows for sst in past),
        history_bytes=total_bytes(past),
        retention_ms=spec.retention_ms,
        ttl_ms=spec.ttl_ms,
        ttl_column=spec.ttl_column,
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
