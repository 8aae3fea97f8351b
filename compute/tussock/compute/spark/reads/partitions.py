"""Division of a read among tasks: by ranges of virtual nodes or keys, of about the same number of bytes.

Pure: decides from the SSTs in the version. A vnode's share is estimated by spreading each SST's bytes evenly over the
vnodes that it spans, which is right on average because vnodes are a hash.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from pyspark.sql.datasource import InputPartition

from tussock.statestore.contract.records import SstInfo, TableState
from tussock.statestore.keys.intervals import Interval

__all__ = ["PARTITION_BYTES", "KeyLookup", "KeyRange", "VnodeRange", "intervals", "key_ranges", "vnode_ranges"]

PARTITION_BYTES = 16 << 20
"""Approximate bytes in the bucket that one task reads: half a second of work, so even few rows use several cores."""

_SEEK_BYTES = 256 << 10
"""Starting another range costs about as much as reading this many more bytes."""


@dataclass(frozen=True)
class VnodeRange(InputPartition):  # type: ignore[misc]
    """Virtual nodes of a typed table, from `low` to below `high`; optionally only an interval of their keys."""

    low: int
    high: int
    between: Interval | None = None


@dataclass(frozen=True)
class KeyRange(InputPartition):  # type: ignore[misc]
    """Keys of a raw table with start <= key < end; `None` is open."""

    start: bytes | None
    end: bytes | None


@dataclass(frozen=True)
class KeyLookup(InputPartition):  # type: ignore[misc]
    """Single keys, each a tuple in primary key order."""

    keys: tuple[tuple[Any, ...], ...]


def intervals(state: TableState, between: Interval, split_bytes: int = PARTITION_BYTES) -> list[VnodeRange]:
    """Ranges of virtual nodes for the rows of an interval of keys.

    One, if both ends agree on the distribution key and so on the node. Otherwise each node has its own range, which
    pays only if nodes have many rows; a small table is read as a whole.
    """
    spec = state.spec
    low, high = (dict(zip(spec.primary_key, end, strict=False)) for end in between)
    if all(name in low and name in high and low[name] == high[name] for name in spec.distribution_key):
        return [VnodeRange(0, spec.vnodes, between)]
    worth_it = sum(sst.data_bytes for sst in state.levels.ssts()) >= spec.vnodes * _SEEK_BYTES
    ranges = vnode_ranges(state, split_bytes)
    return [replace(part, between=between) for part in ranges] if worth_it else ranges


def vnode_ranges(state: TableState, split_bytes: int = PARTITION_BYTES) -> list[VnodeRange]:
    """Contiguous ranges that cover all vnodes of a typed table; their number follows from its bytes, at least one."""
    vnodes = state.spec.vnodes
    share = np.zeros(vnodes)
    for sst in state.levels.ssts():
        low = min(int.from_bytes(sst.smallest[:2], "big"), vnodes - 1)
        high = min(int.from_bytes(sst.largest[:2], "big"), vnodes - 1)
        share[low : high + 1] += sst.data_bytes / (high - low + 1)
    wanted = _count(float(share.sum()), split_bytes, vnodes)
    filled = np.cumsum(share)
    ends = np.searchsorted(filled, filled[-1] * np.arange(1, wanted) / wanted, side="left") + 1
    bounds = np.unique(np.concatenate([[0], ends, [vnodes]]))
    return [VnodeRange(int(low), int(high)) for low, high in pairwise(bounds)]


def key_ranges(
    state: TableState, split_bytes: int = PARTITION_BYTES, start: bytes | None = None, end: bytes | None = None
) -> list[KeyRange]:
    """Contiguous ranges that cover the keys of a raw table in [start, end), cut where SSTs begin."""
    inside = [sst for sst in state.levels.ssts() if _overlaps(sst, start, end)]
    ssts = sorted(inside, key=lambda sst: sst.smallest)
    total = sum(sst.data_bytes for sst in ssts)
    wanted = _count(total, split_bytes, len(ssts) or 1)
    cuts: list[bytes] = []
    filled = 0
    for sst in ssts:
        # The first SST begins the first range, which is open; a cut at the same key would make an empty range.
        begins_later = start is None or sst.smallest > start
        if begins_later and filled >= total * (len(cuts) + 1) / wanted and sst.smallest not in cuts[-1:]:
            cuts.append(sst.smallest)
        filled += sst.data_bytes
    bounds: Sequence[bytes | None] = [start, *cuts, end]
    return [KeyRange(start, end) for start, end in pairwise(bounds)]


def _overlaps(sst: SstInfo, start: bytes | None, end: bytes | None) -> bool:
    return (start is None or sst.largest >= start) and (end is None or sst.smallest < end)


def _count(total: float, split_bytes: int, limit: int) -> int:
    return max(1, min(limit, round(total / split_bytes)))
