"""Point reads: one key, or many keys at once, over the sorted runs of a table.

`find` is the hot path of a single `get`: a few bisections over Python lists, newest run first, and one dict look-up
per cache. `find_many` is the same search vectorised: the keys are sorted once, cut by SST and segment, and located
in each segment with one `searchsorted`.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from tussock.statestore.catalog import SstInfo
from tussock.statestore.rows import Rows, fixed_view, key_order
from tussock.statestore.sst.hashing import hash_key, hash_keys
from tussock.statestore.sst.meta import LoadedMeta
from tussock.statestore.sst.sstables import CachedBlock, Sstables

__all__ = ["Found", "RunIndex", "find", "find_many", "locate"]

_SEGMENT_SHARE = 4
"""A segment is read whole when at least one in so many of its blocks is wanted."""


class Found(NamedTuple):
    """A row that a lookup ended at; it may be a delete."""

    block: CachedBlock
    at: int

    @property
    def deleted(self) -> bool:
        """Whether the newest version is a delete."""
        deletes = self.block.rows.deletes
        return deletes is not None and bool(deletes[self.at])


class RunIndex:
    """One sorted run, prepared for bisection; made once per version."""

    __slots__ = ("largest", "min_epoch", "smallest", "ssts")

    def __init__(self, ssts: Sequence[SstInfo]) -> None:
        self.ssts = tuple(ssts)
        self.smallest = [sst.smallest for sst in ssts]
        self.largest = [sst.largest for sst in ssts]
        self.min_epoch = min(sst.min_epoch for sst in ssts)


def find(sstables: Sstables, runs: Sequence[RunIndex], key: bytes, epoch: int) -> Found | None:
    """The newest version of `key` with an epoch <= `epoch` over `runs` (newest first), or `None`."""
    key_hash = -1
    last = len(runs) - 1
    for position, run in enumerate(runs):
        at = bisect_right(run.smallest, key) - 1
        if at < 0 or key > run.largest[at]:
            continue
        sst = run.ssts[at]
        if sst.min_epoch > epoch:
            continue
        meta = sstables.meta(sst)
        # In the last run a filter can save nothing but the block of an absent key; most keys are there.
        if position != last and meta.bloom is not None:
            if key_hash < 0:
                key_hash = hash_key(key)
            if not meta.bloom.may_contain(key_hash):
                continue
        found = _find_in_sst(sstables, sst, meta, key, epoch)
        if found is not None:
            return found
    return None


def _find_in_sst(sstables: Sstables, sst: SstInfo, meta: LoadedMeta, key: bytes, epoch: int) -> Found | None:
    number = meta.block_of(key)
    while True:
        block = sstables.block(sst, meta, number)
        keys = block.keys
        index, end = bisect_left(keys, key), len(keys)
        if sst.epoch:
            # One epoch in the whole SST (checked by the caller): one version of a key.
            return Found(block, index) if index < end and keys[index] == key else None
        epochs = block.rows.epochs
        while index < end and keys[index] == key:
            if (epochs if isinstance(epochs, int) else epochs[index]) <= epoch:
                return Found(block, index)
            index += 1
        if index < end:
            return None
        number += 1
        if number == meta.blocks or not meta.continues[number] or meta.first_keys[number] != key:
            return None


def find_many(
    sstables: Sstables, runs: Sequence[RunIndex], keys: pa.BinaryArray, epoch: int
) -> list[tuple[Rows, npt.NDArray[np.intp], npt.NDArray[np.intp]]]:
    """The newest version with an epoch <= `epoch` of each of `keys` (no nulls, any order, repeats allowed).

    Answers pieces `(rows, at, into)`: row `at[i]` of `rows` is the version of key `into[i]`. Keys that are in no
    piece were not found; deletes are found like any row.
    """
    order = key_order(keys)
    wanted = keys.take(pa.array(order))
    hashes: npt.NDArray[np.uint64] | None = None
    pieces = []
    last = len(runs) - 1
    for position, run in enumerate(runs):
        if not len(wanted):
            break
        if run.min_epoch > epoch:
            continue
        missing = np.ones(len(wanted), np.bool_)
        for first, end, sst in _cut_by_sst(run, wanted):
            if sst.min_epoch > epoch:
                continue
            meta = sstables.meta(sst)
            candidates = np.arange(first, end)
            if position != last and meta.bloom is not None:
                if hashes is None:
                    hashes = hash_keys(wanted)
                candidates = candidates[meta.bloom.may_contain_many(hashes[first:end])]
            for rows, at, which in _find_in_segments(sstables, sst, meta, wanted, candidates, epoch):
                pieces.append((rows, at, order[which]))
                missing[which] = False
        if not missing.all():
            wanted, order = wanted.filter(pa.array(missing)), order[missing]
            hashes = None if hashes is None else hashes[missing]
    return pieces


def _cut_by_sst(run: RunIndex, wanted: pa.BinaryArray) -> list[tuple[int, int, SstInfo]]:
    """Which of the sorted keys `wanted` fall into which SST of the run: (from, to, SST)."""
    probe = Rows(wanted, 0, None, ())
    cuts = []
    for sst in run.ssts:
        first, end = probe.lower_bound(sst.smallest), probe.upper_bound(sst.largest)
        if first < end:
            cuts.append((first, end, sst))
    return cuts


def _find_in_segments(
    sstables: Sstables,
    sst: SstInfo,
    meta: LoadedMeta,
    wanted: pa.BinaryArray,
    candidates: npt.NDArray[np.intp],
    epoch: int,
) -> list[tuple[Rows, npt.NDArray[np.intp], npt.NDArray[np.intp]]]:
    """Look for the keys at `candidates` (ascending) in one SST, segment by segment."""
    if not len(candidates):
        return []
    picked = wanted.take(pa.array(candidates))
    blocks = _blocks_of(meta, picked)
    pieces = []
    borders = np.array(meta.segments)
    segments = np.searchsorted(borders, blocks, side="right") - 1
    starts = np.flatnonzero(np.diff(segments, prepend=-1))
    for start, end in zip(starts.tolist(), [*starts[1:].tolist(), len(segments)], strict=True):
        segment = int(segments[start])
        # Ascending, as the keys are.
        wanted_blocks = np.count_nonzero(np.diff(blocks[start:end])) + 1
        size = int(borders[segment + 1] - borders[segment])
        if wanted_blocks * _SEGMENT_SHARE >= size or sstables.has_segment(sst, segment):
            groups = [(sstables.segment(sst, meta, segment), start, end)]
        else:
            groups = _by_block(sstables, sst, meta, blocks, start, end)
        for rows, low, high in groups:
            at, hit = locate(rows, picked.slice(low, high - low), epoch)
            if len(hit):
                pieces.append((rows, at, candidates[low + hit]))
    return pieces


def _blocks_of(meta: LoadedMeta, keys: pa.BinaryArray) -> npt.NDArray[np.int64]:
    """`meta.block_of` for sorted keys that are all >= the SST's smallest."""
    firsts = pa.array(meta.first_keys, pa.binary())
    joined = pa.concat_arrays([firsts, keys])
    # A stable sort puts a first key before the equal keys that are looked up: the rank counts it in.
    order = key_order(joined)
    counts = np.cumsum(order < len(firsts))
    ranks = np.empty(len(joined), np.int64)
    ranks[order] = counts - 1
    blocks = ranks[len(firsts) :]
    if any(meta.continues):
        blocks = np.array([meta.block_of(key) for key in keys.to_pylist()], np.int64)
    return blocks


def _by_block(
    sstables: Sstables, sst: SstInfo, meta: LoadedMeta, blocks: npt.NDArray[np.int64], start: int, end: int
) -> list[tuple[Rows, int, int]]:
    """The rows to search for each run of keys that share a block."""
    groups = []
    cuts = [start, *(np.flatnonzero(np.diff(blocks[start:end])) + 1 + start).tolist(), end]
    for low, high in pairwise(cuts):
        number = int(blocks[low])
        parts = [sstables.block(sst, meta, number).rows]
        while number + 1 < meta.blocks and meta.continues[number + 1]:
            number += 1
            parts.append(sstables.block(sst, meta, number).rows)
        groups.append((Rows.concat(parts), low, high))
    return groups


def locate(rows: Rows, wanted: pa.BinaryArray, epoch: int) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Where in the sorted run `rows` the newest version <= `epoch` of each key is: (row, index of the key) of hits."""
    here, there = fixed_view(rows.keys), fixed_view(wanted)
    if here is not None and there is not None and here.dtype == there.dtype:
        at = np.searchsorted(here, there)
    else:
        at = pl.Series(rows.keys, dtype=pl.Binary).search_sorted(pl.Series(wanted, dtype=pl.Binary)).to_numpy()
    inside = np.minimum(at, len(rows) - 1)
    same = pc.equal(rows.keys.take(pa.array(inside)), wanted).to_numpy(zero_copy_only=False)
    hit = np.flatnonzero(same & (at < len(rows)))
    at = at[hit].astype(np.intp)
    epochs = rows.epochs
    if isinstance(epochs, int):
        return (at, hit) if epochs <= epoch else (at[:0], hit[:0])
    old = epochs[at] > np.uint64(epoch)
    if old.any():
        # A version too new: step down the key's versions, few as a rule.
        for slot in np.flatnonzero(old).tolist():
            row, key = int(at[slot]) + 1, wanted[int(hit[slot])].as_py()
            while row < len(rows) and epochs[row] > epoch and rows.key(row) == key:
                row += 1
            at[slot] = row if row < len(rows) and rows.key(row) == key else -1
        keep = at >= 0
        at, hit = at[keep], hit[keep]
    return at, hit
