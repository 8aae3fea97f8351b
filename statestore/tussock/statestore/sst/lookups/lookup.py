"""Point reads of one key over the sorted runs of a table: the hot path of a single `get`.

A few bisections over Python lists, newest run first, one dict look-up per cache, and one search in a block.
`lookup_many` does the same for lists of keys.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from tussock.statestore.contract.records import SstInfo
from tussock.statestore.format.hashing import hash_key
from tussock.statestore.format.meta import LoadedMeta
from tussock.statestore.format.parted_filter import PartedFilter
from tussock.statestore.sst.cached_blocks import CachedBlock, CachedSegment
from tussock.statestore.sst.reader import FILTER, Sstables

__all__ = [
    "CachedOnly",
    "FetchingFilter",
    "Filter",
    "FoundRow",
    "InSegment",
    "NotCached",
    "RunIndex",
    "filter_before",
    "filter_of",
    "find",
    "find_from",
]


class NotCached(Exception):
    """What is wanted is not in the cache, and no request was to be made; never leaves the lookups."""


class FetchingFilter:
    """A filter that lies apart, of which what is missing is fetched when it is asked for."""

    def __init__(self, sstables: "Sstables | CachedOnly", sst: SstInfo) -> None:
        self._sstables, self._sst = sstables, sst
        self._parted = sstables.filter(sst)

    def may_contain(self, key_hash: int) -> bool:
        """As `Bloom.may_contain`."""
        may = self._parted.may_contain(key_hash)
        return self._sstables.ask(self._sst, self._parted, key_hash) if may is None else may

    def bring(self, hashes: Iterable[int]) -> None:
        """Fetch what is missing to ask for these keys, with one request."""
        missing = self._parted.missing_of(hashes)
        if missing is not None:
            self._sstables.fetch(self._sst, self._parted, *missing)

    def may_contain_many(self, hashes: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
        """As `Bloom.may_contain_many`; at most one request."""
        if not self._parted.is_whole:
            self._sstables.fetch(self._sst, self._parted, 0, self._parted.parts)
        return self._parted.may_contain_many(hashes)


class CachedOnly:
    """The reads of `Sstables` that point lookups make, without requests: `NotCached` where it would take one."""

    def __init__(self, sstables: Sstables) -> None:
        self._sstables = sstables
        self.metas, self._blocks = sstables.metas, sstables.blocks

    def meta(self, sst: SstInfo) -> LoadedMeta:
        """As `Sstables.meta`."""
        meta: LoadedMeta | None = self.metas.get((sst.id,))
        if meta is None:
            raise NotCached
        return meta

    def filter(self, sst: SstInfo) -> PartedFilter:
        """As `Sstables.filter`."""
        found: PartedFilter | None = self.metas.get((sst.id, FILTER))
        if found is None:
            raise NotCached
        return found

    def ask(self, sst: SstInfo, parted: PartedFilter, key_hash: int) -> bool:  # noqa: ARG002 - as `Sstables`
        """It would take a request."""
        raise NotCached

    def fetch(self, sst: SstInfo, parted: PartedFilter, first: int, count: int) -> None:  # noqa: ARG002 - likewise
        """It would take a request."""
        raise NotCached

    def block(self, sst: SstInfo, meta: LoadedMeta, index: int) -> CachedBlock:
        """As `Sstables.block`."""
        return self.cached(sst, meta, index) or self.load(sst, meta, index)

    def cached(self, sst: SstInfo, meta: LoadedMeta, index: int) -> CachedBlock | None:
        """As `Sstables.cached`, with no miss counted: that is done when it is read."""
        block: CachedBlock | None = self._blocks.get((sst.id, index))
        if block is not None and (not sst.epoch or block.rows.epochs == sst.epoch):
            return block
        if block is None and self._blocks.peek((sst.id, -1 - meta.segment_numbers[index])) is None:
            return None
        return self._sstables.block(sst, meta, index)

    def in_segment(self, sst: SstInfo, number: int) -> CachedBlock | None:
        """As `Sstables.in_segment`, which takes no request."""
        return self._sstables.in_segment(sst, number)

    def load(self, sst: SstInfo, meta: LoadedMeta, index: int) -> CachedBlock:  # noqa: ARG002 - as `Sstables`
        """It would take a request."""
        raise NotCached


class InSegment:
    """The blocks of a segment that is at hand, which the cache may have been too small to keep."""

    def __init__(self, sstables: Sstables, segment: CachedSegment) -> None:
        self._sstables = sstables
        self._segment = segment

    def block(self, sst: SstInfo, meta: LoadedMeta, index: int) -> CachedBlock:
        """As `Sstables.block`."""
        return self._sstables.view(sst, meta, self._segment, index)


class Filter(Protocol):
    """What tells of keys that an SST has not."""

    def may_contain(self, key_hash: int) -> bool | None:
        """As `Bloom.may_contain`."""

    def may_contain_many(self, hashes: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
        """As `Bloom.may_contain_many`."""


def filter_of(sstables: Sstables, sst: SstInfo) -> Filter | None:
    """The SST's filter, to be asked for any key."""
    return FetchingFilter(sstables, sst) if sst.filter_parts else sstables.meta(sst).bloom


def filter_before(
    sstables: Sstables | CachedOnly, sst: SstInfo, meta: LoadedMeta, blocks: Sequence[int]
) -> Filter | None:
    """The filter to ask before these blocks are fetched, in a run that has most of the keys that are asked for.

    `None`: there is none, or it lies apart, takes more bytes than the blocks, and no lookup was in vain so far. One
    that then finds nothing has to call `Sstables.filter`, so that the next one asks.
    """
    if not sst.filter_parts:
        return meta.bloom
    known = sstables.metas.peek((sst.id, FILTER)) is not None
    # NumPy takes longer to pick one than to add up hundreds.
    fetched = int(meta.length[blocks[0]] if len(blocks) == 1 else meta.length[list(blocks)].sum())
    if not known and fetched < sst.meta_bytes - sst.head_bytes:
        return None
    return FetchingFilter(sstables, sst)


class FoundRow(NamedTuple):
    """A row that a lookup ended at; it may be a delete."""

    block: CachedBlock
    at: int

    @property
    def deleted(self) -> bool:
        """Whether the newest version is a delete."""
        deletes = self.block.rows.deletes
        return deletes is not None and bool(deletes[self.at])


class RunIndex:
    """One sorted run, prepared for bisection; made once for a run, however many versions have it."""

    __slots__ = ("largest", "max_epoch", "min_epoch", "smallest", "source", "ssts", "until")

    def __init__(self, ssts: Sequence[SstInfo], source: Sequence[SstInfo] | None = None) -> None:
        self.source = ssts if source is None else source
        """The very sequence that it was made of, or of a part of which."""
        self.ssts = tuple(ssts)
        self.smallest = [sst.smallest for sst in ssts]
        self.largest = [sst.largest for sst in ssts]
        self.min_epoch = min(sst.min_epoch for sst in ssts)
        self.max_epoch = max(sst.max_epoch for sst in ssts)
        self.until = max(sst.until for sst in ssts)
        """Of a run of history: readers at this epoch or later see nothing of it."""

    def among(self, first: bytes, last: bytes) -> Iterator[tuple[bytes, bytes]]:
        """The smallest and the largest key of each SST that may have a key from `first` to `last`, both inclusive."""
        at, end = bisect_left(self.largest, first), bisect_right(self.smallest, last)
        return zip(self.smallest[at:end], self.largest[at:end], strict=True)


def find(
    sstables: Sstables | CachedOnly, runs: Sequence[RunIndex], key: bytes, epoch: int, *, sparse: bool = False
) -> FoundRow | None:
    """The newest version of `key` with an epoch <= `epoch` over `runs` (newest first), or `None`.

    `sparse`: most keys are in none of the runs.
    """
    key_hash = -1
    last = len(runs) if sparse else len(runs) - 1
    for position, run in enumerate(runs):
        at = bisect_right(run.smallest, key) - 1
        if at < 0 or key > run.largest[at]:
            continue
        sst = run.ssts[at]
        if sst.min_epoch > epoch:
            continue
        if position != last and sst.filter_parts:
            # One part of the filter is all that is fetched of an SST that has not the key.
            if key_hash < 0:
                key_hash = hash_key(key)
            parted = sstables.filter(sst)
            may = parted.may_contain(key_hash)
            if not may and (may is False or not sstables.ask(sst, parted, key_hash)):
                continue
        meta = sstables.meta(sst)
        if position != last and meta.bloom is not None:
            if key_hash < 0:
                key_hash = hash_key(key)
            if not meta.bloom.may_contain(key_hash):
                continue
        if sst.max_epoch <= epoch:
            segment = sstables.in_segment(sst, meta.segment_of(key))
            if segment is not None:
                row = segment.row_of(key)
                if row < 0:
                    continue
                return FoundRow(segment, row)
        number = meta.block_of(key)
        if sst.max_epoch > epoch:
            number = meta.skip_newer(number, key, epoch)
            if number < 0:
                continue
        block = sstables.cached(sst, meta, number)
        if block is None:
            # Most keys are in the last run, so a filter pays there only where it can save a request: to look into a
            # block that is at hand takes less time than to ask it.
            if position == last and (bloom := filter_before(sstables, sst, meta, [number])) is not None:
                if key_hash < 0:
                    key_hash = hash_key(key)
                if not bloom.may_contain(key_hash):
                    continue
            block = sstables.load(sst, meta, number)
            row = block.row_of(key)
            if row < 0 and position == last and sst.filter_parts:
                # Others may be looked for in vain as well: from now on the filter is asked.
                sstables.filter(sst)
        else:
            row = block.row_of(key)
        if row < 0:
            continue
        # As a rule the first version is the one; a call of `find_from` would take a tenth of the time of all this.
        epochs = block.rows.epochs
        if sst.epoch or (epochs if isinstance(epochs, int) else epochs[row]) <= epoch:
            return FoundRow(block, row)
        found = find_from(sstables, sst, meta, number, key, epoch)
        if found is not None:
            return found
    return None


def find_from(
    source: Sstables | CachedOnly | InSegment, sst: SstInfo, meta: LoadedMeta, number: int, key: bytes, epoch: int
) -> FoundRow | None:
    """Look for the key in an SST, from the first block on that may hold it."""
    while True:
        block = source.block(sst, meta, number)
        at = block.row_of(key)
        if at < 0:
            return None
        if sst.epoch:
            # One epoch in the whole SST (checked by the caller): one version of a key.
            return FoundRow(block, at)
        rows = block.rows
        epochs = rows.epochs
        while at < len(rows):
            if (epochs if isinstance(epochs, int) else epochs[at]) <= epoch:
                return FoundRow(block, at)
            at += 1
            if at < len(rows) and rows.key(at) != key:
                return None
        number += 1
        if number == meta.blocks or not meta.continues[number] or meta.first_keys[number] != key:
            return None
        number = meta.skip_newer(number, key, epoch)
        if number < 0:
            return None
