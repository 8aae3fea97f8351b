"""The upper two iterators: sorted runs that overlap become one, and of each key a user sees the newest version.

What is in hand is bounded in bytes, whatever grows: the number of runs, the versions of a key, the size of values.
Three rules do it. A run whose keys begin behind what is in hand is not opened before there is room, since its first key
is known without a read. A step that would join more than a batch may have is given out in several batches. And forward
**the versions of a key may go on in the next batch**, older ones, so no step has to wait for the last of them: who
counts on a key as a whole carries over from one batch to the next what it needs (`newest_versions`, `retained`, the
change feed).

In reverse a key's oldest version would come first, and its newest decides. So no key goes on in the next batch there;
sources see to that by reducing a key to the version that is visible at `newest_at`.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate

import numpy as np
import pyarrow as pa

from tussock.statestore.base.limits import DEFAULT_LIMITS, Limits
from tussock.statestore.rows.key_arrays import key_order, repeats
from tussock.statestore.rows.rows import Rows

__all__ = [
    "MergeIterator",
    "MergeSource",
    "distinct_versions",
    "newest_versions",
    "whole_keys",
]

_KEPT_SHARE = 8
"""What is left in hand of a batch is copied once it is less than one part in this many, so that the batch can go."""

_NOTHING = Rows(pa.nulls(0, pa.binary()), 0, None, ())


class MergeSource:
    """A sorted run that a merge reads: its batches, and what is known of them before they are read."""

    @property
    def at_end(self) -> bool:
        """Whether no batch comes after the one that was given last; where it is false, one may come."""
        return False

    @property
    def edge(self) -> bytes | None:
        """The first key is not below it, in reverse the last one not above; `None` if there is nothing to read."""
        return None

    def __iter__(self) -> Iterator[Rows]:
        raise NotImplementedError


class _InMemory(MergeSource):
    """A run whose batches are there already."""

    def __init__(self, batches: Iterable[Rows]) -> None:
        self._batches = batches
        self._ended = False

    @property
    def at_end(self) -> bool:
        """As the base says."""
        return self._ended

    def __iter__(self) -> Iterator[Rows]:
        self._ended = False
        batches = iter(self._batches)
        following = next(batches, None)
        while following is not None:
            ready, following = [following], next(batches, None)
            self._ended = following is None
            yield ready.pop()


class _MergeInput:
    """One input of a merge: its rows in hand.

    More are fetched before the rest runs out: a merge goes as far as the input that ends first, so with each input
    nearly empty it would take a step of few rows for every batch of every input.
    """

    __slots__ = (
        "_batch_bytes",
        "_batches",
        "_ended",
        "_following",
        "_kept",
        "_low_water",
        "_reverse",
        "_run",
        "first",
        "last",
        "nbytes",
        "number",
        "rows",
    )

    def __init__(self, run: MergeSource, number: int, batch_bytes: int, *, reverse: bool) -> None:
        """`number` is the run's place among the inputs, the newest 0."""
        self._batch_bytes = batch_bytes
        self._run = run
        self._ended = False
        self._batches = iter(run)
        self._following: Rows | None = None
        """Fetched, and too large to be joined with the rows in hand."""
        self._low_water = 0
        self._kept = 0
        """Bytes of the batch that the rows in hand are a slice of, which keep it in memory."""
        self._reverse = reverse
        self.number = number
        self._set(_NOTHING)

    @property
    def ended(self) -> bool:
        """Whether nothing comes after the rows in hand."""
        return self._ended and self._following is None

    def refill(self) -> bool:
        """Fetch a batch if few rows are left; `False` if none are left and none come."""
        if len(self.rows) <= self._low_water and not self.ended:
            more = self._following or next(self._batches, None)
            self._following = None
            self._ended = more is None or self._run.at_end
            if more is not None and not len(self.rows):
                self._set(more)
                self._low_water, self._kept = len(more) // 4, self.nbytes
            elif more is not None and self.nbytes + more.nbytes > self._batch_bytes:
                self._following = more
                self._low_water = 0
            elif more is not None:
                self._set(Rows.concat([more, self.rows] if self._reverse else [self.rows, more]))
                self._low_water, self._kept = len(more) // 4, self.nbytes
        return len(self.rows) > 0

    def take_first(self, count: int) -> Rows:
        """The first `count` rows, which are no longer held."""
        taken = self.rows.slice(0, count)
        self._set(self.rows.slice(count, len(self.rows)))
        return taken

    def take_last(self, start: int) -> Rows:
        """The rows from `start` on, which are no longer held."""
        taken = self.rows.slice(start, len(self.rows))
        self._set(self.rows.slice(0, start))
        return taken

    def keep(self, rows: Rows) -> None:
        """Hold these of the rows in hand, and no others."""
        self._set(rows)

    def _set(self, rows: Rows) -> None:
        if len(rows):
            self.rows, self.nbytes = rows, rows.nbytes
            if self.nbytes * _KEPT_SHARE < self._kept:
                self.rows, self._kept = rows.copy(), self.nbytes
            self.first, self.last = rows.key(0), rows.key(len(rows) - 1)
        else:
            # Not an empty slice: it would keep in memory what was taken.
            self.rows, self.nbytes = _NOTHING, 0
            self.first = self.last = b""


class MergeIterator:
    """Sorted runs, newest first, as one: all versions of all keys, by key ascending, then newest first.

    With `newest_at` the reader wants of each key only the newest version at or before that epoch, and others may be
    missing.
    """

    def __init__(
        self,
        sources: Sequence[Iterable[Rows]],
        limits: Limits = DEFAULT_LIMITS,
        *,
        reverse: bool = False,
        newest_at: int | None = None,
    ) -> None:
        self._runs = [source if isinstance(source, MergeSource) else _InMemory(source) for source in sources]
        self._reverse = reverse
        self._newest_at = newest_at
        self._limits = limits

    def __iter__(self) -> Iterator[Rows]:
        if len(self._runs) == 1:
            yield from self._runs[0]
            return
        opened: list[_MergeInput] = []
        waiting: list[tuple[bytes, int]] = []
        for number, run in enumerate(self._runs):
            if (edge := run.edge) is not None:
                waiting.append((edge, number))
            elif (held := _MergeInput(run, number, self._limits.batch_bytes, reverse=self._reverse)).refill():
                opened.append(held)
        # The next to open stands last. Where keys are equal, forward the newest run has to come first.
        waiting.sort(reverse=not self._reverse)
        while True:
            opened = [held for held in opened if held.refill()]
            self._open(opened, waiting)
            if not opened:
                return
            taken = self._backward(opened, waiting) if self._reverse else self._forward(opened, waiting)
            yield from self._batches([part for part in taken if len(part)])

    def _open(self, opened: list[_MergeInput], waiting: list[tuple[bytes, int]]) -> None:
        """Open runs while there is room, and until there is something to give out."""
        size = sum(held.nbytes for held in opened)
        enough = self._limits.merge_bytes
        while waiting and (size < self._limits.merge_bytes or not self._comes_first(opened, waiting[-1])):
            _, number = waiting.pop()
            held = _MergeInput(self._runs[number], number, self._limits.batch_bytes, reverse=self._reverse)
            if held.refill():
                insort(opened, held, key=lambda one: one.number)
                size += held.nbytes
            if size > enough and self._reverse and self._newest_at is not None:
                _drop_superseded(opened, self._newest_at)
                opened[:] = [held for held in opened if held.refill()]
                size = sum(held.nbytes for held in opened)
                enough = max(self._limits.merge_bytes, 2 * size)

    def _comes_first(self, opened: Sequence[_MergeInput], edge: tuple[bytes, int]) -> bool:
        """Whether some row in hand comes before all of a run that begins at `edge`."""
        if self._reverse:
            return any(held.last > edge[0] for held in opened)
        return any((held.first, held.number) < edge for held in opened)

    @staticmethod
    def _forward(opened: Sequence[_MergeInput], waiting: Sequence[tuple[bytes, int]]) -> list[Rows]:
        """Take from each input what comes before anything that is not in hand; an ended input bounds nothing.

        Of the bounding key that is what newer runs have of it, and what the bounding input itself has in hand.
        """
        bounds = [*waiting[-1:], *((held.last, held.number) for held in opened if not held.ended)]
        if not bounds:
            return [held.take_first(len(held.rows)) for held in opened]
        key, number = min(bounds)
        return [
            held.take_first(
                len(held.rows)
                if (held.last, held.number) <= (key, number)
                else held.rows.upper_bound(key)
                if held.number <= number
                else held.rows.lower_bound(key)
            )
            for held in opened
            if held.first <= key
        ]

    @staticmethod
    def _backward(opened: Sequence[_MergeInput], waiting: Sequence[tuple[bytes, int]]) -> list[Rows]:
        """The same from the other end; of an input's first key everything is in hand."""
        # Of a key that a waiting run may begin with nothing can be taken: (key, 1) is behind (key, 0).
        bounds = [*((edge, 1) for edge, _ in waiting[-1:]), *((held.first, 0) for held in opened if not held.ended)]
        if not bounds:
            return [held.take_last(0) for held in opened]
        key, behind = max(bounds)
        return [
            held.take_last(held.rows.upper_bound(key) if behind else held.rows.lower_bound(key))
            for held in opened
            if held.last >= key
        ]

    def _batches(self, parts: Sequence[Rows]) -> Iterator[Rows]:
        """The parts merged, in as many batches as their bytes ask for."""
        if sum(part.nbytes for part in parts) <= self._limits.batch_bytes:
            if parts:
                yield Rows.merge(parts)
            return
        middle = _middle(parts)
        for cuts in ([part.lower_bound(middle) for part in parts], [part.upper_bound(middle) for part in parts]):
            below = [part.slice(0, cut) for part, cut in zip(parts, cuts, strict=True) if cut]
            above = [part.slice(cut, len(part)) for part, cut in zip(parts, cuts, strict=True) if cut < len(part)]
            if below and above:
                for half in (above, below) if self._reverse else (below, above):
                    yield from self._batches(half)
                return
        yield from self._versions(parts)

    def _versions(self, parts: Sequence[Rows]) -> Iterator[Rows]:
        """Versions of one key, too many for one batch: newest first, or the one that is wanted."""
        if self._newest_at is not None:
            for part in parts:
                visible = part.visible_at(self._newest_at)
                if len(visible):
                    yield visible.slice(0, 1)
                    return
        elif self._reverse:
            yield Rows.merge(parts)
        else:
            for part in parts:
                rows = max(len(part) * self._limits.batch_bytes // max(part.nbytes, 1), 1)
                for start in range(0, len(part), rows):
                    yield part.slice(start, start + rows)


def _drop_superseded(opened: Sequence[_MergeInput], epoch: int) -> None:
    """Of rows in hand keep those that a reader at `epoch` may see: of one key the newest run's newest."""
    visible = [held.rows.visible_at(epoch) for held in opened]
    keys = pa.concat_arrays([rows.keys for rows in visible])
    order = key_order(keys)
    seen = np.ones(len(keys), np.bool_)
    seen[order[repeats(keys.take(pa.array(order)))]] = False
    at = 0
    for held, rows in zip(opened, visible, strict=True):
        held.keep(rows.filter(seen[at : at + len(rows)]))
        at += len(rows)


def _middle(parts: Sequence[Rows]) -> bytes:
    """A key with about as many bytes before as behind it."""
    keys = sorted((part.key(len(part) // 2), part.nbytes) for part in parts)
    ends = list(accumulate(size for _, size in keys))
    return keys[bisect_left(ends, ends[-1] / 2)][0]


def newest_versions(source: Iterable[Rows], epoch: int | None, *, reverse: bool = False) -> Iterator[Rows]:
    """Of merged rows each key's newest version not after `epoch`, deletes too; `None` sees everything."""
    decided: bytes | None = None
    for rows in source:
        visible = rows.visible_at(epoch)
        if decided is not None and len(visible) and visible.key(0) == decided:
            # The batch before had the newer versions of this key.
            visible = visible.slice(visible.upper_bound(decided), len(visible))
        if not isinstance(visible.epochs, int):
            visible = visible.newest()
        if len(visible):
            if not reverse:
                decided = visible.key(len(visible) - 1)
            yield visible


def distinct_versions(source: Iterable[Rows]) -> Iterator[Rows]:
    """Of merged rows with the same key and epoch the first: a key written twice in an epoch, with a spill between."""
    before: tuple[bytes, int] | None = None
    for rows in source:
        distinct = rows.distinct_versions()
        if before == (distinct.key(0), distinct.epoch(0)):
            distinct = distinct.slice(1, len(distinct))
        before = rows.key(len(rows) - 1), rows.epoch(len(rows) - 1)
        if len(distinct):
            yield distinct


def whole_keys(source: Iterable[Rows], batch_bytes: int) -> Iterator[tuple[Rows, bool]]:
    """Merged rows such that no key goes on in the next batch, and whether they are all of their keys.

    They are not where one key has more than `batch_bytes`: then its newest versions come, and the others are left out.
    """
    held: Rows | None = None
    complete = True
    for rows in source:
        key = rows.key(0)
        if held is not None and held.key(len(held) - 1) == key:
            begin, end = held.lower_bound(key), rows.upper_bound(key)
            if begin:
                yield held.slice(0, begin), True
            held = held.slice(begin, len(held))
            if held.nbytes > batch_bytes:
                complete = False
            else:
                held = Rows.concat([held, rows.slice(0, end)])
            if end == len(rows):
                continue
            rows = rows.slice(end, len(rows))
        if held is not None:
            yield held, complete
        held, complete = rows, True
    if held is not None:
        yield held, complete
