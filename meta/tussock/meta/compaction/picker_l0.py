"""Picking from L0: merging small neighbours, and taking the oldest runs down to L1."""

from collections.abc import Sequence

from tussock.meta.compaction.picker_config import Pick, PickerConfig, Table, pick_of
from tussock.meta.version.ranges import hull, older_overlap, overlap_in_run, total_bytes
from tussock.statestore.contract.records import Run, SstInfo

__all__ = ["intra_l0_window", "pick_intra_l0", "pick_l0_to_base"]

SEEDS_MAX = 64


def intra_l0_window(table: Table, config: PickerConfig) -> range:
    """The longest window of neighbouring idle runs of similar size; of equally long ones the oldest; empty for none."""
    l0 = table.state.levels.l0
    if len(l0) < config.l0_merge_min:
        return range(0)
    sizes = [max(total_bytes(run.ssts), config.l0_small_bytes) for run in l0]
    idle = [_is_idle(table, run) for run in l0]
    best = range(0)
    for start in range(len(l0) - 1, -1, -1):  # from the oldest: a later window must be longer to win
        window = _window_down_from(start, sizes, idle, config)
        if len(window) >= config.l0_merge_min and len(window) > len(best):
            best = window
        if len(best) == config.l0_merge_max:
            break
    return best


def pick_intra_l0(table: Table, config: PickerConfig) -> Pick | None:
    """That window as one run."""
    window = intra_l0_window(table, config)
    return pick_of(table, "intra-l0", [table.state.levels.l0[at].ssts for at in window], 0) if window else None


def pick_l0_to_base(table: Table, config: PickerConfig) -> Pick | None:
    """The oldest runs with what they overlap in L1: whole runs if that can be, else single files."""
    l0 = table.state.levels.l0
    runs: list[tuple[SstInfo, ...]] = []
    for run in reversed(l0):
        taken = sum(total_bytes(run) for run in runs)
        if not _is_idle(table, run) or (runs and taken + total_bytes(run.ssts) > config.task_bytes_max // 2):
            break
        runs.insert(0, run.ssts)
    while runs:
        flat = [sst for run in runs for sst in run]
        overlap = table.free_overlap(flat, 1)
        fits = overlap is not None and total_bytes(flat) + total_bytes(overlap) <= config.task_bytes_max
        # The exception without which a run that overlaps more than a task's bytes would stay in L0 for ever.
        if overlap is not None and (fits or (len(runs) == 1 and len(runs[0]) == 1)):
            return _into_base(table, runs, overlap)
        runs.pop(0)
    return _pick_files(table, config)


def _is_idle(table: Table, run: Run) -> bool:
    return not any(sst.id in table.busy for sst in run.ssts)


def _window_down_from(start: int, sizes: Sequence[int], idle: Sequence[bool], config: PickerConfig) -> range:
    """The longest window `[newest, start]` of runs that may be merged; positions count from the newest run."""
    smallest = largest = sizes[start]
    total, first = 0, start + 1
    for index in range(start, max(-1, start - config.l0_merge_max), -1):
        smallest, largest = min(smallest, sizes[index]), max(largest, sizes[index])
        total += sizes[index]
        similar = largest <= smallest * config.l0_similar_ratio
        # What is as large as L1 goes there, not into an ever larger run.
        if not idle[index] or not similar or total > max(config.base_bytes, sizes[start]):
            break
        first = index
    return range(first, start + 1)


def _into_base(table: Table, runs: Sequence[Sequence[SstInfo]], overlap: Sequence[SstInfo]) -> Pick:
    if len(runs) == 1 and not overlap:
        return pick_of(table, "trivial-move", runs, 1)
    return pick_of(table, "l0", [*runs, overlap], 1)


def _pick_files(table: Table, config: PickerConfig) -> Pick | None:
    """The file that brings most bytes down for what it overlaps in L1, with newer files over the same range."""
    options: list[tuple[float, list[list[SstInfo]], list[SstInfo]]] = []
    for position in range(len(table.state.levels.l0) - 1, -1, -1):
        for seed in table.state.levels.l0[position].ssts:
            if len(options) == SEEDS_MAX or seed.id in table.busy or _older_in_l0(table, seed):
                continue
            overlap = table.free_overlap([seed], 1)
            if overlap is not None:
                runs, overlap = _grow(table, position, seed, overlap, config)
                gain = sum(total_bytes(run) for run in runs) / max(1, total_bytes(overlap))
                options.append((gain, runs, overlap))
    if not options:
        return None
    _, runs, overlap = max(options, key=lambda option: option[0])
    return _into_base(table, runs, overlap)


def _grow(
    table: Table, position: int, seed: SstInfo, overlap: list[SstInfo], config: PickerConfig
) -> tuple[list[list[SstInfo]], list[SstInfo]]:
    """The seed with newer files that overlap it, as long as nothing is in the way and the task stays in bounds."""
    runs = [[seed]]
    for newer in range(position - 1, -1, -1):
        flat = [sst for run in runs for sst in run]
        ids = {sst.id for sst in flat}
        found = list(overlap_in_run(table.state.levels.l0[newer].ssts, hull(flat)))
        if not found:
            continue
        blocked = any(
            sst.id in table.busy or any(older.id not in ids for older in _older_in_l0(table, sst)) for sst in found
        )
        wider = None if blocked else table.free_overlap([*flat, *found], 1)
        if wider is None or total_bytes([*flat, *found, *wider]) > config.task_bytes_max:
            break
        runs.insert(0, found)
        overlap = wider
    return runs, overlap


def _older_in_l0(table: Table, sst: SstInfo) -> list[SstInfo]:
    return older_overlap(table.state.levels, sst, table.ranks[sst.id], len(table.state.levels.l0) - 1)
