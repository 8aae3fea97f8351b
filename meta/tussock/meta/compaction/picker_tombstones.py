"""Picking what would vanish: files of which many rows are deletes, and files whose rows have all expired.

Deletes leave the live tree at the bottom whatever the watermark, as history has them for readers that may ask for them;
a row that expires leaves it only once it has expired for every reader.
"""

from collections.abc import Iterator

from tussock.meta.compaction.picker_config import Candidate, Pick, PickerConfig, Table, pick_of
from tussock.meta.version.deltas.tasks import LEVELS_MAX
from tussock.statestore.contract.records import SstInfo, TableSpec
from tussock.statestore.epochs import epoch_ms

__all__ = ["pick_vanishing", "vanishing_candidates"]


def vanishing_candidates(table: Table, config: PickerConfig, watermark: int) -> Iterator[Candidate]:
    """The first file or run that is worth it, if there is one."""
    for level, sst in _vanishing_files(table, config, watermark):
        share, what = sst.deletes / sst.rows, "deletes"
        if _is_expired(table.state.spec, sst, watermark):
            share, what = 1.0, "expired"
        reason = f"{share:.0%} of {sst.id} are {what}"
        yield Candidate(share * 100 / config.tombstone_percent, "tombstone", level, reason)
        return
    if _expired_run(table, watermark):
        yield Candidate(100 / config.tombstone_percent, "tombstone", 0, "all rows of the oldest run in L0 are expired")


def pick_vanishing(table: Table, config: PickerConfig, watermark: int) -> Pick | None:
    """A file with what it overlaps one level down, or alone at the bottom; else an expired run of L0 at the bottom."""
    for level, sst in _vanishing_files(table, config, watermark):
        if table.is_bottom([sst]):
            if not table.is_contested([sst], level):
                return pick_of(table, "tombstone", [[sst]], level)
            continue
        overlap = table.free_overlap([sst], level + 1)
        if overlap is not None and level < LEVELS_MAX:
            return pick_of(table, "tombstone", [[sst], overlap], level + 1)
    if run := _expired_run(table, watermark):
        return pick_of(table, "tombstone", [run], 0)
    return None


def _vanishing_files(table: Table, config: PickerConfig, watermark: int) -> Iterator[tuple[int, SstInfo]]:
    """(level, file) that are idle and have much that would vanish."""
    for level, files in enumerate(table.state.levels.levels, start=1):
        for sst in files:
            many = sst.deletes * 100 >= sst.rows * config.tombstone_percent and sst.deletes > 0
            if (many or _is_expired(table.state.spec, sst, watermark)) and sst.id not in table.busy:
                yield level, sst


def _expired_run(table: Table, watermark: int) -> tuple[SstInfo, ...]:
    """The oldest run of L0 if nothing older lies below it and all its rows are expired; else nothing."""
    l0 = table.state.levels.l0
    if not l0 or table.state.spec.ttl_ms is None:
        return ()
    run = l0[-1].ssts
    expired = all(_is_expired(table.state.spec, sst, watermark) and sst.id not in table.busy for sst in run)
    return run if expired and table.is_bottom(run) else ()


def _is_expired(spec: TableSpec, sst: SstInfo, watermark: int) -> bool:
    """Whether no reader at the watermark or later sees a row of it, as the time to live of all is over."""
    if spec.ttl_ms is None or sst.deletes == sst.rows:
        return False
    if spec.ttl_column is None:
        return epoch_ms(sst.max_epoch) + spec.ttl_ms <= epoch_ms(watermark)
    return 0 < sst.expires_ms <= epoch_ms(watermark)
