"""Which compaction to run next: a pure decision over a table's levels, the tasks that run, and the options below.

Six kinds, each with a score (1 or more: worth doing) and a reason for people:

* `intra-l0`: four to sixteen neighbouring runs of similar size become one. Small commits are what a stream makes;
  a row is rewritten about once per factor of four in size, which bounds the work (RocksDB's and SlateDB's tiering).
* `l0`: the oldest runs go into L1, with what they overlap there, when L0 has the bytes of L1 or too many runs.
* `level`: a level over its size gives the file with the least overlap to the next (LevelDB's leveling, ratio ten).
* `tombstone`: a file of which two fifths are deletes, or all rows expired, is merged down, or alone at the bottom, so
  that they vanish (`picker_tombstones.py`).
* `history`: eight to sixteen neighbouring runs of history become one; they need not be few for reads of the present.
* `trivial-move`: any of those whose inputs are one run that meets nothing in its target costs no I/O at all.

`manual` merges a whole table into one sorted run. Files that other tasks have claimed are looked past, not waited
for. `ClaimCompaction.validate` has the rules that keep a pick safe; a mistake here costs work, never data.
"""

from collections.abc import Iterator, Sequence

from tussock.meta.compaction.picker_config import Candidate, Pick, PickerConfig, Table, pick_of
from tussock.meta.compaction.picker_history import history_candidates, pick_history
from tussock.meta.compaction.picker_l0 import intra_l0_window, pick_intra_l0, pick_l0_to_base
from tussock.meta.compaction.picker_tombstones import pick_vanishing, vanishing_candidates
from tussock.meta.version.deltas.tasks import LEVELS_MAX
from tussock.meta.version.ranges import overlap_in_run, total_bytes
from tussock.meta.version.version import CompactionTask
from tussock.statestore.contract.records import SstInfo, TableState

__all__ = ["Candidate", "Pick", "PickerConfig", "candidates", "pick", "pick_manual"]

MOVED_FILES_MAX = 256
"""Files in one trivial move: the log entry names each of them."""


def pick(state: TableState, tasks: Sequence[CompactionTask], config: PickerConfig, watermark: int) -> Pick | None:
    """The best compaction for a table beside `tasks`, or `None`.

    `watermark` is the largest that the compaction could use; it decides which rows have expired.
    """
    table = Table(state, tasks)
    for candidate in _candidates_of(table, config, watermark):
        if candidate.score < 1:
            break
        picked = _pick_one(table, candidate, config, watermark)
        if picked is not None:
            return picked
    return None


def candidates(
    state: TableState, tasks: Sequence[CompactionTask], config: PickerConfig, watermark: int
) -> list[Candidate]:
    """All kinds of compaction with their scores, highest first; of files that no task has claimed."""
    return _candidates_of(Table(state, tasks), config, watermark)


def _candidates_of(table: Table, config: PickerConfig, watermark: int) -> list[Candidate]:
    found = [*_l0_candidates(table, config), *_level_candidates(table, config), *history_candidates(table, config)]
    found += vanishing_candidates(table, config, watermark)
    return sorted(found, key=lambda candidate: -candidate.score)


def pick_manual(state: TableState, tasks: Sequence[CompactionTask], config: PickerConfig) -> Pick | None:
    """Everything into one sorted run at the bottom; `None` while any file is claimed, or if nothing could change."""
    runs = state.levels.runs()
    if not runs or Table(state, tasks).busy:
        return None
    alone = len(runs) == 1 and not state.levels.l0
    if alone and state.spec.ttl_ms is None and all(sst.epoch and not sst.deletes for sst in runs[0]):
        return None
    target = max(len(state.levels.levels), 1)
    size = total_bytes(state.levels.live_ssts())
    while target < LEVELS_MAX and size > config.level_bytes_max(target):
        target += 1
    return Pick("manual", tuple(map(tuple, runs)), target, bottom=True, score=1.0, reason="asked for")


def _pick_one(table: Table, candidate: Candidate, config: PickerConfig, watermark: int) -> Pick | None:
    match candidate.kind:
        case "intra-l0":
            picked = pick_intra_l0(table, config)
        case "l0":
            picked = pick_l0_to_base(table, config)
        case "history":
            picked = pick_history(table, config)
        case "level":
            picked = _pick_level(table, candidate.level, config)
        case _:
            picked = pick_vanishing(table, config, watermark)
    return picked._replace(score=candidate.score, reason=candidate.reason) if picked else None


def _l0_candidates(table: Table, config: PickerConfig) -> Iterator[Candidate]:
    l0 = table.state.levels.l0
    idle = [sst for run in l0 for sst in run.ssts if sst.id not in table.busy]
    if not idle:
        return
    size = total_bytes(idle)
    score = size / config.base_bytes
    reason = f"L0 has {size} bytes, L1 may have {config.base_bytes}"
    base = table.level(1)
    if len(l0) / config.l0_runs_max > score and (
        # Few bytes into a large L1 would rewrite all of it for them, unless L0 is long enough to make reads suffer.
        size * config.level_ratio >= total_bytes(base) or len(l0) >= 4 * config.l0_runs_max
    ):
        score, reason = len(l0) / config.l0_runs_max, f"L0 has {len(l0)} runs, {config.l0_runs_max} are fine"
    yield Candidate(score, "l0", 0, reason)
    if count := len(intra_l0_window(table, config)):
        yield Candidate(count / config.l0_merge_min, "intra-l0", 0, f"{count} neighbouring runs are of similar size")


def _level_candidates(table: Table, config: PickerConfig) -> Iterator[Candidate]:
    for level in range(1, min(len(table.state.levels.levels), LEVELS_MAX - 1) + 1):
        size = total_bytes(sst for sst in table.level(level) if sst.id not in table.busy)
        most = config.level_bytes_max(level)
        yield Candidate(size / most, "level", level, f"L{level} has {size} bytes, and may have {most}")


def _pick_level(table: Table, level: int, config: PickerConfig) -> Pick | None:
    files = tuple(table.level(level))
    idle = [index for index, sst in enumerate(files) if sst.id not in table.busy]
    excess = total_bytes(files[index] for index in idle) - config.level_bytes_max(level)
    moved = _free_movers(table, [files[index] for index in idle], level, excess, config)
    if moved:
        return pick_of(table, "trivial-move", [moved], level + 1)
    options = [(index, found) for index in idle if (found := table.free_overlap([files[index]], level + 1)) is not None]
    if not options:
        return None
    # Bytes to rewrite for each byte that goes down.
    start, overlap = min(options, key=lambda option: total_bytes(option[1]) / max(1, total_bytes([files[option[0]]])))
    return pick_of(table, "level", [_with_neighbours(table, level, start, overlap, config), overlap], level + 1)


def _free_movers(table: Table, idle: Sequence[SstInfo], level: int, excess: int, config: PickerConfig) -> list[SstInfo]:
    """Files that meet nothing in the next level, until the excess is covered; all of them in one task."""
    moved: list[SstInfo] = []
    for sst in idle:
        if excess <= 0 or len(moved) == MOVED_FILES_MAX:
            break
        bounds = (sst.smallest, sst.largest)
        if overlap_in_run(table.level(level + 1), bounds):
            continue
        # A file that would meet very much one level further would make that merge too large for one task.
        grandparents = total_bytes(overlap_in_run(table.level(level + 2), bounds))
        # Files come in key order, so the first and this one span all that would be moved.
        if grandparents <= config.task_bytes_max and not table.is_contested([*moved[:1], sst], level + 1):
            moved.append(sst)
            excess -= total_bytes([sst])
    return moved


def _with_neighbours(
    table: Table, level: int, start: int, overlap: list[SstInfo], config: PickerConfig
) -> list[SstInfo]:
    """The file at `start` with the files after it that meet nothing more in the next level."""
    files = [table.level(level)[start]]
    size = total_bytes(files) + total_bytes(overlap)
    for neighbour in table.level(level)[start + 1 :]:
        size += total_bytes([neighbour])
        if neighbour.id in table.busy or size > config.task_bytes_max:
            break
        if table.free_overlap([files[0], neighbour], level + 1) != overlap:
            break
        files.append(neighbour)
    return files
