"""Point reads of one key over the sorted runs of a table: the hot path of a single `get`.

A few bisections over Python lists, newest run first, one dict look-up per cache, and one search in a block.
`lookup_many` does the same for lists of keys.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tussock.statestore.contract.records import SstInfo
from tussock.statestore.format.hashing import hash_key
from tussock.statestore.format.meta import LoadedMeta
from tussock.statestore.sst.cached_blocks import CachedBlock
from tussock.statestore.sst.reader import CachedOnly, InSegment, Sstables

__all__ = ["FoundRow", "RunIndex", "find", "find_from"]


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
        meta = sstables.meta(sst)
        if position != last and meta.bloom is not None:
            if key_hash < 0:
                key_hash = hash_key(key)
            if not meta.bloom.may_contain(key_hash):
                continue
        number = meta.block_of(key)
        if sst.max_epoch > epoch:
            number = meta.skip_newer(number, key, epoch)
            if number < 0:
                continue
        block = sstables.cached(sst, meta, number)
        if block is None:
            # Most keys are in the last run, so a filter pays there only where it can save a request: to look into a
            # block that is at hand takes less time than to ask it.
            if position == last and meta.bloom is not None:
                if key_hash < 0:
                    key_hash = hash_key(key)
                if not meta.bloom.may_contain(key_hash):
                    continue
            block = sstables.load(sst, meta, number)
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
