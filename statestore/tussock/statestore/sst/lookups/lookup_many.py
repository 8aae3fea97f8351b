"""Point reads of many keys at once over the sorted runs of a table, as `multi_get` and change feeds make them.

The keys are sorted once and cut by SST and block, in steps as many as there are SSTs and blocks with keys in them.
What is then left to do depends on how close the keys are: where many fall into one segment or block they are located
with one `searchsorted`, else one by one as `lookup.find` does it, which for a few is several times faster than any
array.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tussock.statestore.contract.records import SstInfo
from tussock.statestore.format.meta import LoadedMeta
from tussock.statestore.rows.location import locate, locate_fixed
from tussock.statestore.rows.rows import Rows
from tussock.statestore.sst.cached_blocks import CachedBlock, CachedSegment
from tussock.statestore.sst.lookups.lookup import (
    CachedOnly,
    FetchingFilter,
    Filter,
    InSegment,
    NotCached,
    RunIndex,
    filter_before,
    filter_of,
    find,
    find_from,
)
from tussock.statestore.sst.lookups.wanted_keys import Keys, WantedKeys, names_of
from tussock.statestore.sst.reader import Sstables

__all__ = ["Hits", "Piece", "find_many"]

_SEGMENT_SHARE = 4
"""A segment is read whole when at least one in this many of its blocks is wanted and not cached."""

_MANY_KEYS = 32
"""From this many keys on in one segment, or one block, they are looked up together: that costs as much as 20 alone."""

_MANY_KEYS_OF_ONE_WIDTH = 6
"""The same in a cached segment where neither the keys nor the segment's have to be converted for it."""

_MANY_KEYS_OF_SEVERAL_WIDTHS = 256
"""The same where the segment's keys have several widths: to search these together they are all converted first."""

_AS_SINGLE_GETS = 32
"""Fewer keys are looked up as single ones are, as long as that takes no request."""

_HASHED_TOGETHER = 32
"""From this many keys on in one SST its filter is asked for all at once."""

Piece = tuple[Rows, npt.NDArray[np.intp], npt.NDArray[np.intp]]
"""`(rows, at, into)`: row `at[i]` of `rows` is the version of key `into[i]`."""


class Hits(NamedTuple):
    """What many lookups ended at, deletes included; a key stands once, or not at all if it was not found."""

    points: list[tuple[CachedBlock, int, int]]
    """Found one by one: the block, the row in it, the number of the key."""
    pieces: list[Piece]
    """Found together."""


def find_many(sstables: Sstables, runs: Sequence[RunIndex], keys: Keys, epoch: int, *, sparse: bool = False) -> Hits:
    """The newest version with an epoch <= `epoch` of each of `keys` (no nulls, any order, repeats allowed).

    `sparse`: most of the keys are in none of the runs.
    """
    hits = Hits([], [])
    if len(keys) < _AS_SINGLE_GETS:
        names = names_of(keys)
        left = _find_cached(sstables, runs, names, epoch, hits, sparse=sparse)
        if not left:
            return hits
        wanted = WantedKeys.sorted(left, names)
    else:
        wanted = WantedKeys.of(keys)
    last = len(runs) if sparse else len(runs) - 1
    for position, run in enumerate(runs):
        if run.min_epoch > epoch:
            continue
        found = bytearray(len(wanted.names))
        for sst, first, end in _cut_by_sst(run, wanted.names):
            if sst.min_epoch > epoch:
                continue
            places: Sequence[int] = range(first, end)
            bloom = None if position == last else filter_of(sstables, sst)
            if bloom is not None:
                places = _may_be_there(bloom, wanted, places)
            if places:
                _Search(sstables, sst, sstables.meta(sst), wanted, epoch, hits, found).all_of(
                    places, last=position == last
                )
        if position == last or all(found):
            break
        wanted = wanted.without(found)
    return hits


def _find_cached(
    sstables: Sstables, runs: Sequence[RunIndex], names: list[bytes], epoch: int, hits: Hits, *, sparse: bool
) -> list[int]:
    """Look for keys one by one; the places of those for which that would take a request."""
    cached = CachedOnly(sstables)
    left = []
    for place, name in enumerate(names):
        try:
            found = find(cached, runs, name, epoch, sparse=sparse)
        except NotCached:
            left.append(place)
        else:
            if found is not None:
                hits.points.append((found.block, found.at, place))
    return left


def _cut_by_sst(run: RunIndex, names: list[bytes]) -> Iterator[tuple[SstInfo, int, int]]:
    """Which of the sorted keys fall into which SST of the run: (SST, from, to), for SSTs with keys."""
    first, count = 0, len(names)
    while first < count:
        at = max(bisect_right(run.smallest, names[first]) - 1, 0)
        if names[first] > run.largest[at]:
            at += 1
            if at == len(run.ssts):
                return
        first = bisect_left(names, run.smallest[at], first)
        end = bisect_right(names, run.largest[at], first)
        if first < end:
            yield run.ssts[at], first, end
        first = end


def _may_be_there(bloom: Filter, wanted: WantedKeys, places: Sequence[int]) -> Sequence[int]:
    """Of the keys at these places, ascending, those that the SST's filter does not exclude."""
    if len(places) < _HASHED_TOGETHER:
        if isinstance(bloom, FetchingFilter):
            bloom.bring(map(wanted.hash_of, places))
        return [at for at in places if bloom.may_contain(wanted.hash_of(at))]
    if isinstance(places, range):
        maybe = bloom.may_contain_many(wanted.hashes[places.start : places.stop])
        return places if maybe.all() else (np.flatnonzero(maybe) + places.start).tolist()
    asked = np.array(places)
    return asked[bloom.may_contain_many(wanted.hashes[asked])].tolist()


def _cut_by_block(meta: LoadedMeta, names: Sequence[bytes]) -> list[tuple[int, int, int]]:
    """The blocks from which on to look for sorted keys, all >= the SST's smallest: (block, from, to) of the keys."""
    cuts = []
    first, count = 0, len(names)
    while first < count:
        block = meta.block_of(names[first])
        end = count
        if block + 1 < meta.blocks:
            end = bisect_left(names, meta.first_keys[block + 1], first)
            if end == first:
                # Versions of this very key go on in the block after.
                end = bisect_right(names, names[first], first)
        cuts.append((block, first, end))
        first = end
    return cuts


def _without_newer(
    meta: LoadedMeta, names: Sequence[bytes], cuts: Iterable[tuple[int, int, int]], epoch: int
) -> Iterator[tuple[int, int, int]]:
    """The same without blocks whose rows are all newer than `epoch`; of the last key in one, others may follow."""
    for block, first, end in cuts:
        if meta.min_epoch[block] <= epoch:
            yield block, first, end
            continue
        after = meta.skip_newer(block, names[end - 1], epoch)
        if after >= 0:
            # The list of names may repeat a key.
            yield after, bisect_left(names, names[end - 1], first, end), end


class _Search:
    """The search for keys in one SST; what it finds goes to `hits`, and is marked in `found`."""

    def __init__(
        self,
        sstables: Sstables,
        sst: SstInfo,
        meta: LoadedMeta,
        wanted: WantedKeys,
        epoch: int,
        hits: Hits,
        found: bytearray,
    ) -> None:
        self._of = (sstables, sst, meta)
        self._wanted = wanted
        self._epoch = epoch
        self._hits = hits
        self._found = found

    def all_of(self, places: Sequence[int], *, last: bool) -> None:
        """Look for the keys at `places`, ascending, segment by segment; `last`: the filter was not asked for them."""
        sstables, sst, meta = self._of
        if sst.max_epoch <= self._epoch:
            places = self._in_whole_segments(places)
            if not places:
                return
        cuts = self._cuts(places)
        asked = True
        if last:
            left, asked = self._worth_a_request(cuts, places)
            if len(left) < len(places):
                places, cuts = left, self._cuts(left)
        numbers = meta.segment_numbers
        low = 0
        while low < len(cuts):
            number, high = numbers[cuts[low][0]], low + 1
            while high < len(cuts) and numbers[cuts[high][0]] == number:
                high += 1
            self._in_segment(number, cuts[low:high], places)
            low = high
        if not asked and sst.filter_parts and not all(self._found[place] for place in places):
            sstables.filter(sst)

    def _in_whole_segments(self, places: Sequence[int]) -> Sequence[int]:
        """Look for keys in the segments that are at hand, where the first version of a key is the one; the others.

        Each segment is searched as it lies, since objects for each of its blocks would be in none of the processor's
        caches. No filter is asked: to look takes less time.
        """
        sstables, sst, meta = self._of
        names, firsts, slots = self._names_at(places), meta.segment_keys, self._wanted.slots
        points, found = self._hits.points, self._found
        left: list[int] = []
        at, count = 0, len(names)
        while at < count:
            number = bisect_right(firsts, names[at]) - 1
            after = firsts[number + 1] if number + 1 < len(firsts) else None
            block = sstables.in_segment(sst, number)
            far = at + _MANY_KEYS_OF_ONE_WIDTH - 1
            if block is None or (far < count and (after is None or names[far] < after)):
                end = count if after is None else bisect_left(names, after, at)
                if block is None:
                    left.extend(places[at:end])
                    at = end
                    continue
                if self._in_fixed(block, places[at:end]):
                    at = end
                    continue
            while True:
                row = block.row_of(names[at])
                if row >= 0:
                    place = places[at]
                    points.append((block, row, slots[place]))
                    found[place] = 1
                at += 1
                if at == count or (after is not None and names[at] >= after):
                    break
        return places if len(left) == count else left

    def _in_fixed(self, block: CachedBlock, places: Sequence[int]) -> bool:
        """Look for the keys together, if all have the width of those in the block, of which the first version counts.

        Whether they have.
        """
        here, wanted = block.fixed, self._wanted.fixed
        if here is None or wanted is None or here.dtype != wanted.dtype:
            return False
        if isinstance(places, range):
            at, hit = locate_fixed(here, wanted[places.start : places.stop])
            there = hit + places.start
        else:
            at, hit = locate_fixed(here, wanted[places])
            there = np.array(places)[hit]
        if len(hit):
            self._hits.pieces.append((block.rows, at, np.asarray(self._wanted.into, np.intp)[there]))
            np.frombuffer(self._found, np.uint8)[there] = 1
        return True

    def _names_at(self, places: Sequence[int]) -> list[bytes]:
        names = self._wanted.names
        return names[places.start : places.stop] if isinstance(places, range) else [names[at] for at in places]

    def _cuts(self, places: Sequence[int]) -> list[tuple[int, int, int]]:
        inside = self._names_at(places)
        _, sst, meta = self._of
        cuts = _cut_by_block(meta, inside)
        return cuts if sst.max_epoch <= self._epoch else list(_without_newer(meta, inside, cuts, self._epoch))

    def _worth_a_request(self, cuts: list[tuple[int, int, int]], places: Sequence[int]) -> tuple[Sequence[int], bool]:
        """The keys whose block is at hand (`find` says why), and of the others those that the filter lets through.

        And whether no keys were let through unasked.
        """
        sstables, sst, meta = self._of
        here = sstables.at_hand(sst, meta, [block for block, _, _ in cuts])
        if all(here):
            return places, True
        far = [cut for cut, at_hand in zip(cuts, here, strict=True) if not at_hand]
        bloom = filter_before(sstables, sst, meta, [block for block, _, _ in far])
        if bloom is None:
            return places, False
        asked = list(chain.from_iterable(places[first:end] for _, first, end in far))
        excluded = set(asked).difference(_may_be_there(bloom, self._wanted, asked))
        return [place for place in places if place not in excluded] if excluded else places, True

    def _in_segment(self, number: int, cuts: list[tuple[int, int, int]], places: Sequence[int]) -> None:
        sstables = self._of[0]
        segment = self._whole(number, cuts)
        first, end = cuts[0][1], cuts[-1][2]
        if segment is not None and end - first >= _MANY_KEYS:
            few = 0 if segment.one_width else _MANY_KEYS_OF_SEVERAL_WIDTHS
            if end - first >= few:
                self._together(segment.rows, places[first:end])
                return
        source = sstables if segment is None else InSegment(sstables, segment)
        # The versions of a key that goes on in other blocks may be too many to be held together.
        moderate = self._of[2].is_moderate(number)
        for number, start, stop in cuts:
            many = moderate and stop - start >= _MANY_KEYS
            if many and source.block(self._of[1], self._of[2], number).one_width:
                self._together(self._rows_from(source, number), places[start:stop])
            else:
                self._one_by_one(source, number, places[start:stop])

    def _one_by_one(self, source: Sstables | InSegment, number: int, places: Sequence[int]) -> None:
        _, sst, meta = self._of
        wanted, epoch, points, found = self._wanted, self._epoch, self._hits.points, self._found
        slots = wanted.slots
        block = source.block(sst, meta, number)
        epochs = block.rows.epochs
        for place in places:
            at = block.row_of(wanted.names[place])
            if at < 0:
                continue
            if (epochs if isinstance(epochs, int) else epochs[at]) <= epoch:
                points.append((block, at, slots[place]))
                found[place] = 1
                continue
            one = find_from(source, sst, meta, number, wanted.names[place], epoch)
            if one is not None:
                points.append((one.block, one.at, slots[place]))
                found[place] = 1

    def _whole(self, number: int, cuts: list[tuple[int, int, int]]) -> CachedSegment | None:
        """The segment, if it is cached, or if enough of it is wanted to read it, or put it together."""
        sstables, sst, meta = self._of
        if not meta.is_moderate(number):
            return None
        if not sstables.has_segment(sst, number):
            size = meta.segments[number + 1] - meta.segments[number]
            if len(cuts) * _SEGMENT_SHARE < size:
                return None
            if cuts[-1][2] - cuts[0][1] < _MANY_KEYS:
                missing = sum(not sstables.has_block(sst, block) for block, _, _ in cuts)
                if missing * _SEGMENT_SHARE < size:
                    return None
        return sstables.segment(sst, meta, number)

    def _rows_from(self, source: Sstables | InSegment, number: int) -> Rows:
        """The rows of a block, and of those after it that go on with its last key until one is old enough."""
        _, sst, meta = self._of
        parts = [source.block(sst, meta, number).rows]
        while number + 1 < meta.blocks and meta.continues[number + 1]:
            if parts[-1].epoch(len(parts[-1]) - 1) <= self._epoch:
                break
            number += 1
            parts.append(source.block(sst, meta, number).rows)
        return Rows.concat(parts)

    def _together(self, rows: Rows, places: Sequence[int]) -> None:
        array = self._wanted.array
        if isinstance(places, range):
            names, slots = array.slice(places.start, len(places)), np.arange(places.start, places.stop)
        else:
            slots = np.array(places)
            names = array.take(pa.array(slots))
        at, hit = locate(rows, names, self._epoch)
        if len(hit):
            there = slots[hit]
            self._hits.pieces.append((rows, at, np.asarray(self._wanted.into, np.intp)[there]))
            np.frombuffer(self._found, np.uint8)[there] = 1
