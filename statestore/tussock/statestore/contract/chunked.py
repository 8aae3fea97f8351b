"""A long immutable sequence of which a few items are replaced at a time.

A copied tuple costs a touch of every item's reference count: of 50,000 SSTs half a millisecond, and as much again when
the old tuple goes. Here the items are in chunks, and a sequence that differs in some of them shares all other chunks
with the one that it was made from: a B-tree's leaves below a root of one level, which is enough for any level of SSTs.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, chain
from typing import TypeVar, final, overload

__all__ = ["CHUNK_MAX", "Chunked", "lower_bound", "upper_bound"]

CHUNK_MAX = 512
"""Items in a chunk. No chunk has less than half of it, unless there is only one."""

Item = TypeVar("Item", covariant=True)


@final
class Chunked(Sequence[Item]):
    """Equal to a tuple of the same items; slices are tuples. Replacing items makes another one.

    Whether a sequence is one is asked by `type`: for classes below `Sequence`, `isinstance` takes as long as all else.
    """

    __slots__ = ("_chunks", "_ends")

    def __init__(self, items: Iterable[Item] = ()) -> None:
        self._set(_cut(tuple(items)))

    @classmethod
    def of(cls, items: Sequence[Item]) -> "Chunked[Item]":
        """The items; the very same object if they are chunked already."""
        return items if type(items) is cls else cls(items)

    def replace_items(self, start: int, end: int, new: Iterable[Item]) -> "Chunked[Item]":
        """The sequence with `new` in place of the items from `start` up to `end`, for 0 <= start <= end <= length."""
        if not self._chunks:
            return Chunked(new)
        # Behind the last item there is no chunk; what is appended joins the last one.
        first = min(bisect_right(self._ends, start), len(self._chunks) - 1)
        last = min(bisect_right(self._ends, max(end - 1, start)), len(self._chunks) - 1)
        before = self._chunks[first][: start - self._begin(first)]
        middle = (*before, *new, *self._chunks[last][end - self._begin(last) :])
        # Too few for their own chunk: they join a neighbour, which has half a chunk or more.
        if len(middle) * 2 < CHUNK_MAX and last + 1 < len(self._chunks):
            last += 1
            middle += self._chunks[last]
        elif len(middle) * 2 < CHUNK_MAX and first:
            first -= 1
            middle = self._chunks[first] + middle
        made: Chunked[Item] = Chunked()
        made._set((*self._chunks[:first], *_cut(middle), *self._chunks[last + 1 :]))
        return made

    def lower_bound(self, value: bytes, key: Callable[[Item], bytes]) -> int:
        """As the function of that name."""
        # Chunk by chunk first: to ask for single items would need a bisection for each.
        number = bisect_left(self._chunks, value, key=lambda chunk: key(chunk[-1]))
        if number == len(self._chunks):
            return len(self)
        return self._begin(number) + bisect_left(self._chunks[number], value, key=key)

    def upper_bound(self, value: bytes, key: Callable[[Item], bytes]) -> int:
        """As the function of that name."""
        number = bisect_right(self._chunks, value, key=lambda chunk: key(chunk[-1]))
        if number == len(self._chunks):
            return len(self)
        return self._begin(number) + bisect_right(self._chunks[number], value, key=key)

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __iter__(self) -> Iterator[Item]:
        return chain.from_iterable(self._chunks)

    @overload
    def __getitem__(self, at: int) -> Item: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[Item, ...]: ...
    def __getitem__(self, at: int | slice) -> Item | tuple[Item, ...]:
        if isinstance(at, slice):
            return self._slice(at)
        if self._chunks:
            # The ends are asked for most: they say whether a key may be there.
            if at == 0:
                return self._chunks[0][0]
            if at == -1:
                return self._chunks[-1][-1]
        if at < 0:
            at += len(self)
        if not 0 <= at < len(self):
            raise IndexError("index out of range")
        number = bisect_right(self._ends, at)
        return self._chunks[number][at - self._begin(number)]

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Chunked):
            return len(self) == len(other) and (self._chunks == other._chunks or tuple(self) == tuple(other))
        return tuple(self) == other if isinstance(other, tuple) else NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return f"Chunked({tuple(self)!r})"

    def _set(self, chunks: tuple[tuple[Item, ...], ...]) -> None:
        self._chunks = chunks
        self._ends = tuple(accumulate(map(len, chunks)))

    def _begin(self, number: int) -> int:
        return self._ends[number - 1] if number else 0

    def _slice(self, at: slice) -> tuple[Item, ...]:
        start, end, step = at.indices(len(self))
        if step != 1:
            return tuple(self)[at]
        if start >= end:
            return ()
        first, last = bisect_right(self._ends, start), bisect_right(self._ends, end - 1)
        start, end = start - self._begin(first), end - self._begin(first)
        if first == last:
            return self._chunks[first][start:end]
        return tuple(chain.from_iterable(self._chunks[first : last + 1]))[start:end]


def lower_bound(items: Sequence[Item], value: bytes, key: Callable[[Item], bytes]) -> int:
    """How many of the items, which ascend by `key`, are below `value`: as `bisect_left`."""
    return items.lower_bound(value, key) if type(items) is Chunked else bisect_left(items, value, key=key)


def upper_bound(items: Sequence[Item], value: bytes, key: Callable[[Item], bytes]) -> int:
    """How many of the items, which ascend by `key`, are not above `value`: as `bisect_right`."""
    return items.upper_bound(value, key) if type(items) is Chunked else bisect_right(items, value, key=key)


def _cut(items: tuple[Item, ...]) -> tuple[tuple[Item, ...], ...]:
    """The items in as few chunks as can be, of one size but for one item."""
    count = -(-len(items) // CHUNK_MAX)
    return tuple(items[len(items) * at // count : len(items) * (at + 1) // count] for at in range(count))
