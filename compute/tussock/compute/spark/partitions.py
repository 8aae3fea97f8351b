"""How a read is divided among tasks: by ranges of virtual nodes or keys, of about the same number of bytes.

Pure: decides from the SSTs that the version names. A vnode's share is estimated by spreading each SST's bytes evenly
over the vnodes that it spans, which is right on average because vnodes are a hash.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from pyspark.sql.datasource import InputPartition

from tussock.statestore.catalog import TableState

__all__ = ["PARTITION_BYTES", "KeyLookup", "KeyPrefix", "KeyRange", "VnodeRange", "key_ranges", "vnode_ranges"]

PARTITION_BYTES = 16 << 20
"""Bytes in the bucket that one task reads, roughly: half a second of work, so that few rows still use several cores."""


@dataclass(frozen=True)
class VnodeRange(InputPartition):  # type: ignore[misc]
    """Virtual nodes from `low` up to, not including, `high` of a typed table."""

    low: int
    high: int


@dataclass(frozen=True)
class KeyRange(InputPartition):  # type: ignore[misc]
    """Keys of a raw table with start <= key < end; `None` is open."""

    start: bytes | None
    end: bytes | None


@dataclass(frozen=True)
class KeyLookup(InputPartition):  # type: ignore[misc]
    """Single keys of a typed table, each a tuple in primary key order."""

    keys: tuple[tuple[Any, ...], ...]


@dataclass(frozen=True)
class KeyPrefix(InputPartition):  # type: ignore[misc]
    """All rows of a typed table whose leading key columns have these values."""

    values: tuple[Any, ...]


def vnode_ranges(state: TableState, partition_bytes: int = PARTITION_BYTES) -> list[VnodeRange]:
    """Contiguous ranges that cover all vnodes of a typed table; as many as its bytes ask for, at least one."""
    vnodes = state.spec.vnodes
    share = np.zeros(vnodes)
    for sst in state.levels.ssts():
        low = min(int.from_bytes(sst.smallest[:2], "big"), vnodes - 1)
        high = min(int.from_bytes(sst.largest[:2], "big"), vnodes - 1)
        share[low : high + 1] += sst.data_bytes / (high - low + 1)
    wanted = _count(float(share.sum()), partition_bytes, vnodes)
    filled = np.cumsum(share)
    ends = np.searchsorted(filled, filled[-1] * np.arange(1, wanted) / wanted, side="left") + 1
    bounds = np.unique(np.concatenate([[0], ends, [vnodes]]))
    return [VnodeRange(int(low), int(high)) for low, high in pairwise(bounds)]


def key_ranges(state: TableState, partition_bytes: int = PARTITION_BYTES) -> list[KeyRange]:
    """Contiguous ranges that cover all keys of a raw table, cut where SSTs begin."""
    ssts = sorted(state.levels.ssts(), key=lambda sst: sst.smallest)
    total = sum(sst.data_bytes for sst in ssts)
    wanted = _count(total, partition_bytes, len(ssts) or 1)
    cuts: list[bytes] = []
    filled = 0
    for sst in ssts:
        # The first SST begins the first range, which is open; a cut at an equal key would make an empty one.
        if filled >= total * (len(cuts) + 1) / wanted and sst.smallest not in cuts[-1:]:
            cuts.append(sst.smallest)
        filled += sst.data_bytes
    bounds: Sequence[bytes | None] = [None, *cuts, None]
    return [KeyRange(start, end) for start, end in pairwise(bounds)]


def _count(total: float, partition_bytes: int, limit: int) -> int:
    return max(1, min(limit, round(total / partition_bytes)))
