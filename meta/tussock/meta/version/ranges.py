"""Key ranges of SSTs and the age order of runs: what claiming, picking and checking have in common.

Ranges include both ends, so two SSTs that touch in one key overlap. The *rank* of an SST says how old its run is:
run `i` of L0 (newest first) has rank `i`, level `n` has rank `len(l0) + n`. For one key, a smaller rank always
holds the newer row; compaction must never turn that around. All of this is about the live tree; history has no ranks.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from operator import attrgetter

from tussock.statestore.contract.chunked import lower_bound, upper_bound
from tussock.statestore.contract.records import SstInfo, TableLevels

__all__ = [
    "find_in_run",
    "hull",
    "is_sorted_run",
    "locate",
    "older_overlap",
    "overlap_in_run",
    "overlaps",
    "ranked_runs",
    "ranks",
    "target_rank",
    "total_bytes",
]

Range = tuple[bytes, bytes]

_SMALLEST = attrgetter("smallest")
_LARGEST = attrgetter("largest")


def overlaps(left: SstInfo, right: SstInfo) -> bool:
    """Whether the two SSTs may hold the same key; touching bounds do."""
    return left.smallest <= right.largest and right.smallest <= left.largest


def hull(ssts: Iterable[SstInfo]) -> Range:
    """Smallest and largest key over all of `ssts`, of which there is at least one."""
    listed = list(ssts)
    return min(map(_SMALLEST, listed)), max(map(_LARGEST, listed))


def overlap_in_run(run: Sequence[SstInfo], bounds: Range) -> tuple[SstInfo, ...]:
    """The SSTs of a sorted run that meet `bounds`, by bisection."""
    return tuple(run[lower_bound(run, bounds[0], _LARGEST) : upper_bound(run, bounds[1], _SMALLEST)])


def find_in_run(run: Sequence[SstInfo], sst: SstInfo) -> SstInfo | None:
    """The SST of that id in a sorted run that is not empty, found by its smallest key; `None` if there is none."""
    if len(run) == 1:  # as most runs of L0
        return run[0] if run[0].id == sst.id else None
    if not run[0].smallest <= sst.smallest <= run[-1].smallest:
        return None
    at = lower_bound(run, sst.smallest, _SMALLEST)
    # Of history several may have the same smallest key, one with very many versions.
    while at < len(run) and run[at].smallest == sst.smallest:
        if run[at].id == sst.id:
            return run[at]
        at += 1
    return None


def is_sorted_run(run: Sequence[SstInfo]) -> bool:
    """Whether the SSTs' ranges are well-formed, ascending and apart from each other."""
    return all(sst.smallest <= sst.largest for sst in run) and all(
        left.largest < right.smallest for left, right in pairwise(run)
    )


def total_bytes(ssts: Iterable[SstInfo]) -> int:
    """Bytes of data and metadata in the bucket."""
    return sum(sst.data_bytes + sst.meta_bytes for sst in ssts)


def ranks(levels: TableLevels) -> dict[str, int]:
    """SST id -> rank, for all SSTs of a table's live tree."""
    found = {sst.id: rank for rank, run in enumerate(levels.l0) for sst in run.ssts}
    for number, level in enumerate(levels.levels, start=1):
        found.update((sst.id, len(levels.l0) + number) for sst in level)
    return found


def ranked_runs(levels: TableLevels) -> Iterator[tuple[int, Sequence[SstInfo]]]:
    """The sorted runs that are not empty, newest first, each with its rank."""
    for rank, run in enumerate(levels.l0):
        yield rank, run.ssts
    for number, level in enumerate(levels.levels, start=1):
        if level:
            yield len(levels.l0) + number, level


def locate(levels: TableLevels, parts: Sequence[Sequence[SstInfo]]) -> list[int] | None:
    """The rank of each of `parts`, sorted runs of at least one SST from new to old; by bisection.

    `None` unless each part lies, exactly as it is, in another run that is older than the one of the part before.
    """
    found: list[int] = []
    runs = ranked_runs(levels)
    for part in parts:
        # The iterator goes on where the part before was found, so all parts together take one pass over the runs.
        rank = next((rank for rank, run in runs if _holds(run, part)), None)
        if rank is None:
            return None
        found.append(rank)
    return found


def _holds(run: Sequence[SstInfo], part: Sequence[SstInfo]) -> bool:
    """Whether all of `part`, exactly as they are, stand in the run."""
    first = lower_bound(run, part[0].smallest, _SMALLEST)
    # As a rule they are neighbours, which is told by one comparison.
    if run[first : first + len(part)] == tuple(part):
        return True
    return all(find_in_run(run, sst) == sst for sst in part)


def target_rank(levels: TableLevels, input_ranks: Iterable[int], target_level: int) -> int:
    """The rank at which a task's outputs will stand: its level, or the oldest input run for target 0."""
    return len(levels.l0) + target_level if target_level else max(input_ranks)


def older_overlap(levels: TableLevels, sst: SstInfo, after: int, upto: int | None = None) -> list[SstInfo]:
    """SSTs that overlap `sst` in runs of a rank above `after`, up to and including rank `upto` (default: all)."""
    runs: list[Sequence[SstInfo]] = [*(run.ssts for run in levels.l0), (), *levels.levels]
    bounds = (sst.smallest, sst.largest)
    return [
        older for run in runs[after + 1 : None if upto is None else upto + 1] for older in overlap_in_run(run, bounds)
    ]
