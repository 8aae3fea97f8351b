"""What a scan of a few rows begins with, where all of it is at hand: slices of blocks, one of each run.

The iterators of `iterators` and `merge` are made for many rows: to set them up takes longer than to read ten, and what
they merge are whole blocks. Here a few bisections, as `lookup` finds a key by, give of each run as many rows as the
scan may take, and how far these are all that there is. Which of them a reader sees is decided where it is for all
scans, by what merges them; only one slice of keys that stand once needs nothing more.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tussock.statestore.rows.rows import Rows
from tussock.statestore.sst.cached_blocks import CachedBlock
from tussock.statestore.sst.lookups.lookup import RunIndex
from tussock.statestore.sst.reader import Sstables

__all__ = ["FirstRows", "first_rows"]


class FirstRows(NamedTuple):
    """All versions of the first keys of a range."""

    parts: list[Rows]
    """Sorted runs, newest first; at least one row in all, unless the range has none."""
    plain: bool
    """Whether that is one run, each key stands once, and none is deleted."""
    reached: bytes | None
    """Where it ends: what is left of the range begins here; `None`: nothing is, or `plain` rows reach the limit."""


class _Head(NamedTuple):
    """Rows low .. high-1 of a sorted run or of a block of it, its first ones in the range."""

    rows: Rows
    block: CachedBlock | None
    """Has what it takes to look for keys, which own rows would need anew after every write."""
    low: int
    high: int
    more: bool
    """Whether the run may have others behind them."""

    @property
    def is_plain(self) -> bool:
        """Whether each key is known to stand once, and none is deleted."""
        return self.block is not None and self.block.is_plain

    def below(self, until: bytes | None) -> Rows:
        """Those whose keys are smaller."""
        high = self.high if until is None else min(self.high, (self.block or self.rows).lower_bound(until))
        return self.rows.slice(self.low, high)

    def end(self) -> bytes:
        """The smallest key behind them."""
        return self.rows.key(self.high - 1) + b"\0"


def first_rows(
    sstables: Sstables,
    own: Iterable[Rows],
    runs: Sequence[RunIndex],
    bounds: tuple[bytes | None, bytes | None],
    limit: int,
    epoch: int,
) -> FirstRows | None:
    """What a reader at `epoch` may see at the beginning of [start, end), at most `limit` rows of each run.

    `own` are above the `runs`, both newest first. `None` where a run of which something may come first is not in the
    cache, or has rows that are newer than the epoch; nothing is fetched.
    """
    start, end = bounds[0] or b"", bounds[1]
    heads = [head for rows in own if (head := _head(rows, None, rows.lower_bound(start), end, limit)) is not None]
    until = end
    for run in runs:
        at = bisect_left(run.largest, start)
        if at == len(run.largest) or (end is not None and run.smallest[at] >= end):
            continue
        found = _first_block(sstables, run, at, start, epoch)
        if found is not None:
            block, low, last = found
            if (head := _head(block.rows, block, low, end, limit, last=last)) is not None:
                heads.append(head)
        elif run.smallest[at] <= start:
            return None
        elif until is None or run.smallest[at] < until:
            # All that is smaller is known even so.
            until = run.smallest[at]
    plain = len(heads) == 1 and heads[0].is_plain
    if not plain or heads[0].high - heads[0].low < limit:
        ends = [head.end() for head in heads if head.more]
        until = min([*ends, until] if until is not None else ends, default=None)
    parts = [rows for head in heads if len(rows := head.below(until))]
    return FirstRows(parts, plain, None if until == end else until) if parts or until == end else None


def _first_block(
    sstables: Sstables, run: RunIndex, at: int, start: bytes, epoch: int
) -> tuple[CachedBlock, int, bool] | None:
    """The cached block with the first key from `start` on in the run, its row there, and if it is the run's last.

    The key is in the run's SST `at`. `None` if the block is not cached, or the SST has rows above the epoch.
    """
    sst = run.ssts[at]
    meta = sstables.metas.get((sst.id,)) if sst.max_epoch <= epoch else None
    if meta is None:
        return None
    number = max(meta.block_of(start), 0)
    block = sstables.cached(sst, meta, number)
    low = 0 if block is None else block.lower_bound(start)
    if block is not None and low == len(block.rows):
        # It may end before: then the next one begins behind.
        number, low = number + 1, 0
        block = sstables.cached(sst, meta, number)
    return None if block is None else (block, low, number + 1 == meta.blocks and at + 1 == len(run.ssts))


def _head(
    rows: Rows, block: CachedBlock | None, low: int, end: bytes | None, limit: int, *, last: bool = True
) -> _Head | None:
    """The rows from `low` on, at most `limit`, below `end`; `None` if there is none.

    `last`: nothing follows them in their run.
    """
    size = len(rows)
    stop = size if end is None else (block or rows).lower_bound(end)
    high = min(low + limit, stop)
    return _Head(rows, block, low, high, high < stop or (stop == size and not last)) if low < high else None
