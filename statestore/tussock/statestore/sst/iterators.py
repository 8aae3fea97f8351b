"""The five iterators of Hummock, as iterators of `Rows` batches (cf. Hummock, *Read Path*).

    BlockIterator    the rows of one block
    SSTableIterator  the blocks of one SST
    ConcatIterator   SSTs whose key ranges do not overlap: a sorted run
    MergeIterator    sorted runs that overlap, newest first: every version of every key
    UserIterator     of each key the newest version that a reader at some epoch may see

Each yields non-empty batches. Forward, batches come by ascending key; in reverse, they come by descending key, while
the rows *inside* a batch stay ascending: so one set of kernels serves both directions, and only the last step, the
batch that a user sees, is turned around. A key may have more versions than fit into memory. Forward they may go on in
the next batch, older ones; in reverse, where the oldest would come first, a key is in one batch. `MergeIterator` is in
`merge`.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from operator import attrgetter
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tussock.statestore.base.limits import DEFAULT_LIMITS
from tussock.statestore.contract.chunked import lower_bound
from tussock.statestore.contract.records import SstInfo
from tussock.statestore.format.meta import LoadedMeta
from tussock.statestore.format.value_bounds import ValueTest
from tussock.statestore.keys.ranges import KeyRanges
from tussock.statestore.rows.rows import Rows
from tussock.statestore.rows.wider_types import with_types
from tussock.statestore.sst.lookups.lookup import RunIndex
from tussock.statestore.sst.merge import MergeIterator, MergeSource, newest_versions
from tussock.statestore.sst.reader import Sstables

__all__ = ["BlockIterator", "ConcatIterator", "MergeIterator", "ReadRange", "SSTableIterator", "UserIterator"]

_PREFETCH = 2
"""Batches that are read ahead of the one in hand."""

MERGE_BYTES = 16 << 20
"""What the inputs of a merge hold in hand together, before compression, as long as they are not over 128."""

_STEP_BYTES_MIN = 128 << 10

_GAP_SHARE = 8
"""Blocks that need not be read are read all the same where they are fewer bytes than a step's bytes divided by this."""

_FILTERED_GAP_SHARE = 2
"""The same under a filter on values: to evaluate it on one more batch takes longer than on these bytes."""

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
    """Skip blocks and SSTs that hold nothing above this epoch; without `newest_at`, what follows a version above it in
    the next block is read, as it may be what that one replaced."""
    until_epoch: int | None = None
    """Skip blocks and SSTs that hold nothing at or below this epoch."""
    newest_at: int | None = None
    """Of each key only the newest version at or before this epoch is wanted: skip blocks that have nothing else."""
    step_bytes: int = DEFAULT_LIMITS.segment_bytes
    """Bytes to read at once, about, before compression; at most a segment."""
    within: KeyRanges | None = None
    """Only keys in one of these ranges, which `start` and `end` enclose."""
    types: Sequence[pa.DataType] | None = None
    """What the columns are now: SSTs from before the table was altered have fewer or narrower ones, which are filled
    up and cast; `None`: as stored."""
    tests: Sequence[ValueTest] = ()
    """Only rows that pass all of these are wanted: skip blocks that have none, where no older row would be seen then.
    """
    beneath: Sequence[RunIndex] = ()
    """With `tests`, all that is read beside this run and whose rows ones of this run may hide."""

    def cut(self, rows: Rows) -> Rows:
        """The rows of a sorted run that lie in the range."""
        return rows.between(self.start, self.end) if self.within is None else self.within.cut(rows)

    def shared_by(self, runs: int) -> "ReadRange":
        """The same for each of several runs that are merged: together they hold about `MERGE_BYTES` at a time.

        So a table with many runs is read in smaller steps, with more requests, and not with more memory.
        """
        step_bytes = max(min(MERGE_BYTES // max(runs, 1), DEFAULT_LIMITS.segment_bytes), _STEP_BYTES_MIN)
        return self if step_bytes == self.step_bytes else self._replace(step_bytes=step_bytes)


def _stored_columns(want: ReadRange, meta: LoadedMeta) -> Sequence[int] | None:
    """Which of the wanted columns the SST has: from before the table got its newest columns, it lacks those."""
    if want.columns is None or want.types is None or all(at < len(meta.types) for at in want.columns):
        return want.columns
    return [at for at in want.columns if at < len(meta.types)]


def _with_wanted_types(rows: Rows, want: ReadRange) -> Rows:
    return rows if want.types is None else with_types(rows, want.types)


class BlockIterator:
    """The rows of one block that lie in the range: at most one batch."""

    def __init__(self, sstables: Sstables, sst: SstInfo, block: int, want: ReadRange) -> None:
        self._source = (sstables, sst, block, want)

    def __iter__(self) -> Iterator[Rows]:
        sstables, sst, block, want = self._source
        meta = sstables.meta(sst)
        rows = sstables.read(sst, meta, block, block + 1, _stored_columns(want, meta), fill=want.fill)
        rows = _with_wanted_types(want.cut(rows), want)
        if len(rows):
            yield rows


class SSTableIterator(MergeSource):
    """The rows of one SST that lie in the range, some blocks at a time, reading ahead in the background."""

    def __init__(self, sstables: Sstables, sst: SstInfo, want: ReadRange) -> None:
        self._sstables, self._sst, self._want = sstables, sst, want
        self._ended = False

    @property
    def at_end(self) -> bool:
        """Whether no batch comes after the one that was given last; where it is false, one may come."""
        return self._ended

    @property
    def edge(self) -> bytes:
        """The first key that may come; in reverse the last."""
        return self._sst.largest if self._want.reverse else max(self._sst.smallest, self._want.start or b"")

    def __iter__(self) -> Iterator[Rows]:
        meta, want = self._sstables.meta(self._sst), self._want
        self._ended = False
        carried: list[Rows] = []
        # While a generator waits its variables keep in memory what they name: a batch is in none of them then.
        for first, read, is_last in self._reads(meta):
            ready = [_with_wanted_types(want.cut(read()), want)]
            del read
            if want.reverse:
                if carried:
                    ready = [Rows.concat([*ready, *carried]) if len(ready[0]) else carried[0]]
                    carried = []
                if meta.continues[first] and not is_last:
                    ready[0], carried = self._split_first_key(ready[0])
            self._ended = is_last
            if len(ready[0]):
                yield ready.pop()

    def _split_first_key(self, rows: Rows) -> tuple[Rows, list[Rows]]:
        """All rows but those of the first key, of which newer versions are in the blocks before; and those."""
        if not len(rows):
            return rows, []
        end = rows.upper_bound(rows.key(0))
        versions = rows.slice(0, end)
        if self._want.newest_at is not None:
            versions = versions.visible_at(self._want.newest_at)
            versions = versions.slice(0, 1).copy()
        return rows.slice(end, len(rows)), [versions] if len(versions) else []

    def _reads(self, meta: LoadedMeta) -> Iterator[tuple[int, Callable[[], Rows], bool]]:
        """Per step its first block, what answers its rows, and whether it is the last step."""
        want, columns = self._want, _stored_columns(self._want, meta)
        if want.few:
            for first, last, is_last in self._steps(meta):
                read = partial(self._sstables.read, self._sst, meta, first, last, columns, fill=want.fill)
                yield first, read, is_last
            return
        ahead: deque[tuple[int, Callable[[], Rows], Callable[[], None]]] = deque()
        prefetch = _PREFETCH if want.step_bytes == DEFAULT_LIMITS.segment_bytes else 1
        try:
            for first, last, _ in self._steps(meta):
                ahead.append((first, *self._submit(meta, first, last, columns)))
                if len(ahead) > prefetch:
                    yield (*ahead.popleft()[:2], False)
            while ahead:
                yield (*ahead.popleft()[:2], not ahead)
        finally:
            # A consumer that stops early must not leave reads queued behind it.
            for _, _, cancel in ahead:
                cancel()

    def _submit(
        self, meta: LoadedMeta, first: int, last: int, columns: Sequence[int] | None
    ) -> tuple[Callable[[], Rows], Callable[[], None]]:
        """What waits for a read in the background, and what cancels it."""
        read = self._sstables.submit_read(self._sst, meta, first, last, columns, fill=self._want.fill)
        return read.result, read.give_up

    def _steps(self, meta: LoadedMeta) -> Iterator[tuple[int, int, bool]]:
        """Block ranges to read, in order, of about `step_bytes` or one block, and whether it is the last one.

        None crosses a segment's border.
        """
        reverse, step_bytes = self._want.reverse, self._want.step_bytes
        first, last = meta.block_range(self._want.start, self._want.end)
        most = _FIRST_BLOCKS if self._want.few else meta.blocks
        ends, blocks = meta.raw_ends, meta.blocks
        stretches = self._stretches(meta, first, last)
        for number, (low, high) in enumerate(stretches, 1):
            while low < high:
                if reverse:
                    segment = meta.segments[meta.segment_numbers[high - 1]]
                    enough = bisect_right(ends, ends[high - 1] - step_bytes, 0, blocks)
                    # Of blocks 0 .. i-1 the bytes are ends[i-1]: with `enough` and what follows it fits.
                    enough += ends[high - 1] - ends[enough - 1] > step_bytes
                    start = min(max(low, segment, high - most, enough), high - 1)
                    step, high = (start, high), start
                else:
                    segment = meta.segments[meta.segment_numbers[low] + 1]
                    enough = bisect_right(ends, ends[low - 1] + step_bytes, 0, blocks)
                    end = max(min(high, segment, low + most, enough), low + 1)
                    step, low = (low, end), end
                most *= 4
                yield *step, low == high and number == len(stretches)

    def _stretches(self, meta: LoadedMeta, first: int, last: int) -> list[tuple[int, int]]:
        """Of the blocks first .. last-1 those to read, as ranges in order: not what is too old or too new to matter."""
        skipped = self._blocks_to_skip(meta, first, last)
        if skipped is None:
            return [(first, last)] if first < last else []
        borders = (np.flatnonzero(np.diff(skipped, prepend=True, append=True)) + first).tolist()
        stretches: list[tuple[int, int]] = []
        share = _FILTERED_GAP_SHARE if self._want.tests else _GAP_SHARE
        for low, high in zip(borders[::2], borders[1::2], strict=True):
            gap = int(meta.raw_length[stretches[-1][1] : low].sum()) if stretches else 0
            if stretches and gap * share < self._want.step_bytes:
                low = stretches.pop()[0]
            stretches.append((low, high))
        return stretches[::-1] if self._want.reverse else stretches

    def _blocks_to_skip(self, meta: LoadedMeta, first: int, last: int) -> npt.NDArray[np.bool_] | None:
        """Which of the blocks need not be read; `None`: all have to be."""
        skipped = self._by_epochs(meta, first, last)
        if first == last:
            return skipped
        if self._want.within is not None:
            unwanted = np.ones(last - first, np.bool_)
            for start, end in self._want.within.among(self._sst.smallest, self._sst.largest):
                low, high = meta.block_range(start, end)
                unwanted[max(low - first, 0) : max(high - first, 0)] = False
            skipped = unwanted if skipped is None else unwanted | skipped
        passing = meta.bounds.passing(self._want.tests) if self._want.tests else None
        if passing is None:
            return skipped
        failing = self._by_values(meta, first, last, ~passing[first:last])
        return failing if skipped is None else failing | skipped

    def _by_values(
        self, meta: LoadedMeta, first: int, last: int, failing: npt.NDArray[np.bool_]
    ) -> npt.NDArray[np.bool_]:
        """Which of the blocks need not be read, given those in which no row passes the tests.

        A row that does not pass is not wanted, and yet it hides what is older of its key, which may pass. So without a
        block the reader must see nothing that it would not see with it. Take a key of the block. What is older of it,
        or can be, is in one of three places:

        - in the runs beneath: then the block has keys of the range of an SST there, and it is read;
        - in the blocks after it, while they continue its last key: then no row passes in these either, or it is read.
          Whether they would be skipped anyway does not count: one that only shows what the block before it hides is
          skipped because that one is read. Gaps between what is read are read or left as a whole, so no block is left
          whose next one is read to fill a gap;
        - in the block itself: its older versions go with it, and they fail the tests as well.

        What is newer of the key hides the same with the block and without it. So of each key the reader sees what it
        saw, or nothing where that was a row that fails; what is laid over it (own rows, deletes, the time to live) and
        the filter itself make no difference between the two. A block of deletes alone has no row that passes.
        """
        for run in self._want.beneath:
            for smallest, largest in run.among(self._sst.smallest, self._sst.largest):
                low, high = meta.block_range(smallest, largest + b"\0")
                failing[max(low - first, 0) : max(high - first, 0)] = False
        # From the end, since what a block hides goes on over any number of blocks.
        for block in np.flatnonzero(np.frombuffer(meta.continues, np.uint8)[first + 1 : last])[::-1].tolist():
            failing[block] &= failing[block + 1]
        return failing

    def _by_epochs(self, meta: LoadedMeta, first: int, last: int) -> npt.NDArray[np.bool_] | None:
        """Which of the blocks have only rows whose epochs do not matter."""
        if self._sst.epoch:
            return None
        want = self._want
        until = want.until_epoch if want.newest_at is None else want.newest_at
        later = meta.min_epoch[first:last] > until if until is not None and self._sst.max_epoch > until else None
        if want.after_epoch and want.newest_at is not None:
            old = meta.max_epoch[first:last] <= want.after_epoch
            later = old if later is None else old | later
        elif want.after_epoch:
            # What follows a version that is new may be of the same key, and then it is what that one replaced.
            news = meta.max_epoch[first:last] > want.after_epoch
            follows = np.frombuffer(meta.continues, np.bool_)[first:last] & np.append(False, news[:-1])
            old = ~(news | follows)
            return old if later is None else old | later
        if want.newest_at is None:
            return later
        if 1 not in meta.continues[first:last]:
            return later
        skipped = np.zeros(last - first, np.bool_) if later is None else later
        for block in (np.flatnonzero(np.frombuffer(meta.continues, np.uint8)[first + 1 : last]) + first + 1).tolist():
            # A block that is all of the key of the block before, which is all of that key, too, and has a version that
            # is visible: so the key is decided, and this one shows nothing.
            if (
                meta.min_epoch[block - 1] <= want.newest_at
                and meta.is_of_one_key(block - 1)
                and meta.is_of_one_key(block)
            ):
                skipped[block - first] = True
        return skipped


_smallest, _largest = attrgetter("smallest"), attrgetter("largest")


class ConcatIterator(MergeSource):
    """A sorted run: SSTs with ascending, non-overlapping key ranges, opened one after the other when reached."""

    def __init__(self, sstables: Sstables, ssts: Sequence[SstInfo], want: ReadRange) -> None:
        self._sstables, self._want = sstables, want
        first = 0 if want.start is None else lower_bound(ssts, want.start, _largest)
        last = len(ssts) if want.end is None else lower_bound(ssts, want.end, _smallest)
        self._inner: SSTableIterator | None = None
        self._is_last = False
        self.ssts = [
            sst
            for sst in ssts[first:last]
            if sst.max_epoch > want.after_epoch
            and (want.newest_at is None or sst.min_epoch <= want.newest_at)
            and (want.until_epoch is None or sst.min_epoch <= want.until_epoch)
            and (want.within is None or want.within.touch(sst.smallest, sst.largest))
        ]

    @property
    def edge(self) -> bytes | None:
        """The first key that may come; in reverse the last."""
        if not self.ssts:
            return None
        return SSTableIterator(self._sstables, self.ssts[-1 if self._want.reverse else 0], self._want).edge

    def __iter__(self) -> Iterator[Rows]:
        self._inner = None
        ssts = self.ssts[::-1] if self._want.reverse else self.ssts
        for sst in ssts:
            self._inner, self._is_last = SSTableIterator(self._sstables, sst, self._want), sst is ssts[-1]
            yield from self._inner

    @property
    def at_end(self) -> bool:
        """Whether no batch comes after the one that was given last; where it is false, one may come."""
        return self._inner is not None and self._is_last and self._inner.at_end


class UserIterator:
    """What a reader at `epoch` sees of merged rows: each key's newest version not after it, deletes left out.

    `epoch=None` sees everything. `limit` counts visible rows. In reverse the batches are cut from their high end.
    """

    def __init__(
        self,
        source: Iterable[Rows],
        epoch: int | None,
        *,
        limit: int | None = None,
        reverse: bool = False,
        keep: Callable[[Rows], Rows] | None = None,
    ) -> None:
        """`keep` returns of each key's newest versions those that are to be seen."""
        self._source, self._epoch, self._limit, self._reverse, self._keep = source, epoch, limit, reverse, keep

    def __iter__(self) -> Iterator[Rows]:
        left = self._limit
        if left == 0:
            return
        for rows in newest_versions(self._source, self._epoch, reverse=self._reverse):
            visible = rows.without_deletes()
            if self._keep is not None:
                visible = self._keep(visible)
            if left is not None:
                size = len(visible)
                visible = visible.slice(size - left, size) if self._reverse and size > left else visible.slice(0, left)
                left -= len(visible)
            if len(visible):
                yield visible
            if left == 0:
                return
