"""Ranges of encoded keys that one read covers: ascending, apart, and cut out of whatever is read."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from operator import itemgetter
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tussock.statestore.rows.byte_order import first_places
from tussock.statestore.rows.key_arrays import fixed_view
from tussock.statestore.rows.rows import Rows

__all__ = ["KeyRanges", "Range"]

_FEW_BOUNDS = 64
"""Fewer bounds are found one by one in keys of several widths, which are converted first to be searched together."""

Range: TypeAlias = tuple[bytes | None, bytes | None]
"""Encoded keys, start <= key < end; `None` leaves that side open."""


class KeyRanges:
    """Any ranges, in order; those that overlap or touch are one, and empty ones are left out."""

    __slots__ = ("_ends", "_starts")

    def __init__(self, ranges: Iterable[Range]) -> None:
        self._starts: list[bytes] = []
        self._ends: list[bytes | None] = []
        pairs = [(start or b"", end) for start, end in ranges]
        if len(pairs) > 1:
            pairs.sort(key=itemgetter(0))
        for start, end in pairs:
            if end is not None and start >= end:
                continue
            if self._starts:
                before = self._ends[-1]
                if before is None:
                    break
                if start <= before:
                    self._ends[-1] = None if end is None else max(before, end)
                    continue
            self._starts.append(start)
            self._ends.append(end)

    def __len__(self) -> int:
        return len(self._starts)

    def __iter__(self) -> Iterator[Range]:
        return ((start or None, end) for start, end in zip(self._starts, self._ends, strict=True))

    @property
    def bounds(self) -> Range:
        """The range from the first to the last; there has to be one."""
        return self._starts[0] or None, self._ends[-1]

    def from_key(self, key: bytes) -> "KeyRanges":
        """What of them begins at `key`."""
        first = self._first_after(key)
        left = list(self)[first:]
        if left and (left[0][0] or b"") < key:
            left[0] = key, left[0][1]
        return KeyRanges(left)

    def common(self, others: "KeyRanges") -> "KeyRanges":
        """What is in both."""
        if len(self) == 1 and self.bounds == (None, None):
            return others
        found: list[Range] = []
        mine, theirs = list(self), list(others)
        at = of = 0
        while at < len(mine) and of < len(theirs):
            (start, end), (start_too, end_too) = mine[at], theirs[of]
            first_end = min((one for one in (end, end_too) if one is not None), default=None)
            found.append((max(start or b"", start_too or b""), first_end))
            if end == first_end:
                at += 1
            else:
                of += 1
        return KeyRanges(found)

    def touch(self, first: bytes, last: bytes) -> bool:
        """Whether a key from `first` to `last`, both inclusive, can be in one of them."""
        at = self._first_after(first)
        return at < len(self._starts) and self._starts[at] <= last

    def among(self, first: bytes, last: bytes) -> Iterator[Range]:
        """Those of them in which a key from `first` to `last`, both inclusive, can be."""
        for at in range(self._first_after(first), bisect_right(self._starts, last)):
            yield self._starts[at], self._ends[at]

    def cut(self, rows: Rows) -> Rows:
        """The rows of a sorted run whose keys are in one of them."""
        if not len(rows):
            return rows
        first, last = self._first_after(rows.key(0)), bisect_right(self._starts, rows.key(len(rows) - 1))
        starts, ends = self._starts[first:last], self._ends[first:last]
        if not starts:
            return rows.slice(0, 0)
        if len(starts) == 1:
            return rows.between(starts[0], ends[0])
        # Only the last can be open, and from there on all rows are in it.
        closed = [end for end in ends if end is not None]
        places = lower_bounds(rows.keys, [*starts, *closed])
        steps = np.zeros(len(rows) + 1, np.int8)
        # One may begin where others are empty, so a place can be named many times.
        np.add.at(steps, places[: len(starts)], 1)
        np.subtract.at(steps, places[len(starts) :], 1)
        return rows.filter(np.cumsum(steps[:-1], dtype=np.int8).view(np.bool_))

    def _first_after(self, key: bytes) -> int:
        """The first that does not end at or before `key`."""
        at = bisect_right(self._starts, key) - 1
        end = self._ends[at] if at >= 0 else b""
        return at if end is None or key < end else at + 1


def lower_bounds(keys: pa.BinaryArray, bounds: list[bytes]) -> npt.NDArray[np.intp]:
    """For each bound how many of the sorted keys are smaller."""
    fixed = fixed_view(keys)
    if fixed is not None:
        width = fixed.dtype.itemsize
        heads = np.array([bound[:width] for bound in bounds], fixed.dtype)
        # A key is not below a longer bound only if it is above as much of it as the key has bytes.
        longer = np.array([len(bound) > width for bound in bounds])
        return np.where(longer, np.searchsorted(fixed, heads, "right"), np.searchsorted(fixed, heads))
    if len(bounds) >= _FEW_BOUNDS:
        return first_places(keys, pa.array(bounds, pa.binary()))
    rows = Rows(keys, 0, None, ())
    return np.array([rows.lower_bound(bound) for bound in bounds])
