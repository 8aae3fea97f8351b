"""Cuts a task into parts by key range, so that several processes work on it at once.

SlateDB's figures show what it is for: one task of 16 GB took 157 s, in twelve parts 14 s. A part is all that the
inputs hold of keys in [start, end). Every row of a user key is in one part, so each part can be merged alone.
"""

from bisect import bisect_left
from collections.abc import Iterator
from itertools import accumulate, pairwise

import msgspec

from tussock.meta.version.ranges import total_bytes
from tussock.meta.version.version import CompactionTask
from tussock.statestore.contract.records import TableSpec
from tussock.statestore.sst.reader import Sstables

__all__ = ["PART_BYTES", "PART_BYTES_MIN", "TaskPart", "borders", "cut"]

PART_BYTES = 128 << 20
"""Input of a part, where there are parts enough. Small enough that a slot which is needed elsewhere is free soon, and
large enough that outputs are not much smaller than they would be in one piece."""

PART_BYTES_MIN = 8 << 20
"""Input of a part at least: below, starting one costs more than it saves."""

PARTS_MAX = 256
_SSTS_A_PART = 32
"""With this many input SSTs for each part, their smallest keys are borders enough, and no meta is read."""


class TaskPart(msgspec.Struct, frozen=True, kw_only=True):
    """What one slot does at once; it serialises, so that the slot can be a process."""

    task: CompactionTask
    spec: TableSpec
    start: bytes | None
    end: bytes | None
    gc_horizon: str
    """The garbage horizon when the task was handed out: ids of outputs are minted above it."""


def cut(
    sstables: Sstables,
    spec: TableSpec,
    task: CompactionTask,
    gc_horizon: str,
    slots: int,
    part_bytes_min: int = PART_BYTES_MIN,
) -> list[TaskPart]:
    """The parts of a task for that many slots, by key ascending; one part if more are not worth it.

    Reads the metas of the inputs, if they are few.
    """
    size = total_bytes(task.ssts())
    count = max(-(-size // PART_BYTES), slots)
    count = max(min(count, size // part_bytes_min, PARTS_MAX), 1)
    if slots == 1:
        count = 1
    keys: list[bytes | None] = [None, *borders(sstables, task, count), None]
    return [
        TaskPart(task=task, spec=spec, start=start, end=end, gc_horizon=gc_horizon) for start, end in pairwise(keys)
    ]


def borders(sstables: Sstables, task: CompactionTask, count: int) -> list[bytes]:
    """At most `count - 1` keys, ascending, that cut the inputs into pieces of about the same size."""
    if count < 2:
        return []
    weights = sorted(_weights(sstables, task, count))
    ends = list(accumulate(weight for _, weight in weights))
    keys = {weights[bisect_left(ends, ends[-1] * place / count)][0] for place in range(1, count)}
    return sorted(keys - {weights[0][0]})


def _weights(sstables: Sstables, task: CompactionTask, count: int) -> Iterator[tuple[bytes, int]]:
    """(first key, size) of pieces of the inputs: of their blocks, or of whole SSTs if there are plenty."""
    ssts = task.ssts()
    if len(ssts) >= _SSTS_A_PART * count:
        for sst in ssts:
            yield sst.smallest, sst.data_bytes
        return
    for sst in ssts:
        meta = sstables.meta(sst)
        yield from zip(meta.first_keys, meta.raw_length.tolist(), strict=True)
