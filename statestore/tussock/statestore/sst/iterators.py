"""The five iterators of Hummock, as iterators of `Rows` batches (cf. Hummock, *Read Path*).

    BlockIterator    the rows of one block
    SSTableIterator  the blocks of one SST
    ConcatIterator   SSTs whose key ranges do not overlap: a sorted run
    MergeIterator    sorted runs that overlap, newest first: every version of every key
    UserIterator     of each key the newest version that a reader at some epoch may see

Each yields non-empty batches. Forward, batches come by ascending key; in reverse, they come by descending key, while
the rows *inside* a batch stay ascending: so one set of kernels serves both directions, and only the last step, the
batch that a user sees, is turned around. One promise makes the rest simple: **the versions of one user key never
part over two batches** of an iterator (segments are cut so, see `meta`). A merge may therefore take all rows up
to the smallest last key of its inputs and knows that it has every version of each of these keys; and newest-wins,
deletes and limits are decided within one batch, also in reverse, where the oldest version would otherwise come first.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from typing import NamedTuple

import pyarrow as pa

from tussock.statestore.catalog import SstInfo
from tussock.statestore.chunks import lower_bound
from tussock.statestore.rows import Rows
from tussock.statestore.sst.meta import SEGMENT_BYTES, LoadedMeta
from tussock.statestore.sst.sstables import Sstables
from tussock.statestore.sst.widening import with_types

__all__ = ["BlockIterator", "ConcatIterator", "MergeIterator", "ReadRange", "SSTableIterator", "UserIterator"]

_PREFETCH = 2
"""Batches that are read ahead of the one in hand."""

MERGE_BYTES = 16 << 20
"""What the inputs of a merge hold in hand together, before compression, as long as they are not over 128."""

_STEP_BYTES_MIN = 128 << 10

_FIRST_BLOCKS = 1
"""Blocks of the first read where few rows are expected; each further read takes four times as many."""


class ReadRange(NamedTuple):
    """What to read: keys in [start, end), which columns, in which direction, and how eagerly."""

    start: bytes | None = None
    end: bytes | None = None
    reverse: bool = False
    columns: Sequence[int] | None = None
    """Indices of the value columns to decode, ascending; all if `None`."""
    few: bool = False
    """Few rows will be taken: begin with single blocks and do not read ahead."""
    fill: bool = True
    """Keep what is read in the block cache."""
    after_epoch: int = 0
    """Skip blocks and SSTs that hold nothing above this epoch."""
    step_bytes: int = SEGMENT_BYTES
    """Read about so much at once, before compression; at most a segment."""
    types: Sequence[pa.DataType] | None = None
    """What the columns are now: SSTs from before the table was altered have fewer or narrower ones, which are filled
    up and cast; `None`: as stored."""

    def shared_by(self, runs: int) -> "ReadRange":
        """The same for each of several runs that are merged: together they hold about `MERGE_BYTES` at a time.

        So a table with many runs is read in smaller steps, with more requests, and not with more memory.
        """
        return self._replace(step_bytes=max(min(MERGE_BYTES // max(runs, 1), SEGMENT_BYTES), _STEP_BYTES_MIN))


_NOTHING = Rows(pa.array([], pa.binary()), 0, None, ())


def _stored(want: ReadRange, meta: LoadedMeta) -> Sequence[int] | None:
    """Which of the wanted columns the SST has: from before the table got its newest columns, it lacks those."""
    if want.columns is None or want.types is None or all(at < len(meta.types) for at in want.columns):
        return want.columns
    return [at for at in want.columns if at < len(meta.types)]


def _typed(rows: Rows, want: ReadRange) -> Rows:
    return rows if want.types is None else with_types(rows, want.types)


class BlockIterator:
    """The rows of one block that lie in the range: at most one batch."""

    def __init__(self, sstables: Sstables, sst: SstInfo, block: int, want: ReadRange) -> None:
        self._source = (sstables, sst, block, want)

    def __iter__(self) -> Iterator[Rows]:
        sstables, sst, block, want = self._source
        meta = sstables.meta(sst)
        rows = sstables.read(sst, meta, block, block + 1, _stored(want, meta), fill=want.fill)
        rows = _typed(rows.between(want.start, want.end), want)
        if len(rows):
            yield rows


class SSTableIterator:
    """The rows of one SST that lie in the range, some blocks at a time, reading ahead in the background."""

    def __init__(self, sstables: Sstables, sst: SstInfo, want: ReadRange) -> None:
        self._sstables, self._sst, self._want = sstables, sst, want

    def __iter__(self) -> Iterator[Rows]:
        meta, want = self._sstables.meta(self._sst), self._want
        columns = _stored(want, meta)
        if want.few:
            for first, last in self._steps(meta):
                rows = self._sstables.read(self._sst, meta, first, last, columns, fill=want.fill)
                yield from self._trimmed(rows)
            return
        ahead: deque[Future[Rows]] = deque()
        prefetch = _PREFETCH if want.step_bytes == SEGMENT_BYTES else 1
        try:
            for first, last in self._steps(meta):
                read = self._sstables.submit_read(self._sst, meta, first, last, columns, fill=want.fill)
                ahead.append(read)
                if len(ahead) > prefetch:
                    yield from self._trimmed(ahead.popleft().result())
            while ahead:
                yield from self._trimmed(ahead.popleft().result())
        finally:
            # A consumer that stops early must not leave reads queued behind it.
            for read in ahead:
                read.cancel()

    def _trimmed(self, rows: Rows) -> Iterator[Rows]:
        rows = rows.between(self._want.start, self._want.end)
        if len(rows):
            yield _typed(rows, self._want)

    def _steps(self, meta: LoadedMeta) -> Iterator[tuple[int, int]]:
        """Block ranges to read, in order; none crosses a segment's border or parts a key's versions."""
        first, last = meta.block_range(self._want.start, self._want.end)
        most = _FIRST_BLOCKS if self._want.few else meta.blocks
        largest = meta.blocks
        if self._want.step_bytes < SEGMENT_BYTES:
            largest = max(self._want.step_bytes * meta.blocks // int(meta.raw_length.sum()), 1)
        segments = range(meta.segment_numbers[first], meta.segment_numbers[max(last - 1, first)] + 1)
        for segment in reversed(segments) if self._want.reverse else segments:
            low, high = max(meta.segments[segment], first), min(meta.segments[segment + 1], last)
            while low < high:
                most = min(most, largest)
                if self._want.reverse:
                    start = max(high - most, low)
                    while start > low and meta.continues[start]:
                        start -= 1
                    step, high = (start, high), start
                else:
                    end = min(low + most, high)
                    while end < high and meta.continues[end]:
                        end += 1
                    step, low = (low, end), end
                most *= 4
                if self._has_news(meta, *step):
                    yield step

    def _has_news(self, meta: LoadedMeta, first: int, last: int) -> bool:
        if self._sst.epoch or not self._want.after_epoch:
            return True
        return bool((meta.max_epoch[first:last] > self._want.after_epoch).any())


def _smallest(sst: SstInfo) -> bytes:
    return sst.smallest


def _largest(sst: SstInfo) -> bytes:
    return sst.largest


class ConcatIterator:
    """A sorted run: SSTs with ascending, non-overlapping key ranges, opened one after the other when reached."""

    def __init__(self, sstables: Sstables, ssts: Sequence[SstInfo], want: ReadRange) -> None:
        self._sstables, self._want = sstables, want
        first = 0 if want.start is None else lower_bound(ssts, want.start, _largest)
        last = len(ssts) if want.end is None else lower_bound(ssts, want.end, _smallest)
        self.ssts = [sst for sst in ssts[first:last] if sst.max_epoch > want.after_epoch]

    def __iter__(self) -> Iterator[Rows]:
        for sst in reversed(self.ssts) if self._want.reverse else self.ssts:
            yield from SSTableIterator(self._sstables, sst, self._want)


class MergeIterator:
    """Sorted runs, newest first, as one: all versions of all keys, by key ascending, then newest first."""

    def __init__(self, sources: Sequence[Iterable[Rows]], *, reverse: bool = False) -> None:
        self._sources = sources
        self._reverse = reverse

    def __iter__(self) -> Iterator[Rows]:
        if len(self._sources) == 1:
            yield from self._sources[0]
            return
        inputs = [_Held(source, reverse=self._reverse) for source in self._sources]
        while inputs := [held for held in inputs if held.refill()]:
            parts = self._reversed_part(inputs) if self._reverse else self._forward_part(inputs)
            yield Rows.merge(parts)

    @staticmethod
    def _forward_part(inputs: Sequence["_Held"]) -> list[Rows]:
        """Take from each input the rows up to the smallest of the last keys; the rest stays held."""
        bound = min(held.rows.key(len(held.rows) - 1) for held in inputs)
        return [held.take_first(held.rows.upper_bound(bound)) for held in inputs]

    @staticmethod
    def _reversed_part(inputs: Sequence["_Held"]) -> list[Rows]:
        """Take from each input the rows from the largest of the first keys on; the rest stays held."""
        bound = max(held.rows.key(0) for held in inputs)
        return [held.take_last(held.rows.lower_bound(bound)) for held in inputs]


class _Held:
    """One input of a merge: its rows in hand.

    More are fetched before the rest runs out: a merge goes as far as the input that ends first, so with each input
    nearly empty it would take a step of few rows for every batch of every input.
    """

    def __init__(self, source: Iterable[Rows], *, reverse: bool) -> None:
        self._source = iter(source)
        self._reverse = reverse
        self._low_water = 0
        self.rows: Rows = _NOTHING

    def refill(self) -> bool:
        """Fetch a batch if few rows are left; `False` if none are left and none come."""
        if len(self.rows) <= self._low_water:
            more = next(self._source, None)
            if more is not None:
                self._low_water = len(more) // 4
                rest = [self.rows] if len(self.rows) else []
                self.rows = Rows.concat([more, *rest] if self._reverse else [*rest, more])
        return len(self.rows) > 0

    def take_first(self, count: int) -> Rows:
        """The first `count` rows, which are no longer held."""
        taken, self.rows = self.rows.slice(0, count), self.rows.slice(count, len(self.rows))
        return taken

    def take_last(self, start: int) -> Rows:
        """The rows from `start` on, which are no longer held."""
        taken, self.rows = self.rows.slice(start, len(self.rows)), self.rows.slice(0, start)
        return taken


class UserIterator:
    """What a reader at `epoch` sees of merged rows: each key's newest version not after it, deletes left out.

    `epoch=None` sees everything. `limit` counts visible rows. In reverse the batches are cut from their high end.
    """

    def __init__(
        self, source: Iterable[Rows], epoch: int | None, *, limit: int | None = None, reverse: bool = False
    ) -> None:
        self._source, self._epoch, self._limit, self._reverse = source, epoch, limit, reverse

    def __iter__(self) -> Iterator[Rows]:
        left = self._limit
        if left == 0:
            return
        for rows in self._source:
            visible = rows.visible_at(self._epoch)
            if not isinstance(visible.epochs, int):
                visible = visible.newest()
            visible = visible.without_deletes()
            if left is not None:
                size = len(visible)
                visible = visible.slice(size - left, size) if self._reverse and size > left else visible.slice(0, left)
                left -= len(visible)
            if len(visible):
                yield visible
            if left == 0:
                return
