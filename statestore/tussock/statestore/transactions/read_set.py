"""What a transaction has read of one table, as its commit has to know it.

Keys and ranges are noted as they are read; of a scan that was not read to its end, the part that was. The read set is
bounded: one that grows beyond its bytes becomes the range from its smallest to its largest key, which finds every
conflict that the keys would find, and some more.
"""

from collections import deque
from collections.abc import Collection, Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from tussock.statestore.format.value_bounds import ValueTest
from tussock.statestore.keys.ranges import KeyRanges, Range
from tussock.statestore.read.access import Reads
from tussock.statestore.rows.rows import Rows
from tussock.statestore.sst.lookups.lookup import FoundRow
from tussock.statestore.sst.lookups.lookup_many import Hits
from tussock.statestore.sst.lookups.wanted_keys import Keys

__all__ = ["NotedReads", "ReadSet"]

READ_SET_BYTES = 32 << 20
"""Of the keys and ranges of one table."""
_OVERHEAD_BYTES = 100
"""Of a key or a bound as an object of Python."""


class ReadSet:
    """The keys and ranges that were read, deletes and absent keys included."""

    def __init__(self, bytes_max: int = READ_SET_BYTES) -> None:
        self._bytes_max = bytes_max
        self._nbytes = 0
        self.keys: set[bytes] = set()
        self.arrays: list[pa.BinaryArray] = []
        """Keys that were read together."""
        self.ranges: list[Range] = []

    def __bool__(self) -> bool:
        return bool(self.keys or self.arrays or self.ranges)

    def holds(self, keys: Collection[bytes]) -> bytes | None:
        """One of `keys` that was read; `None` if none was."""
        for key in keys:
            if key in self.keys or any(_is_within(key, bounds) for bounds in self.ranges):
                return key
        for array in self.arrays:
            found = next((key for key in array.to_pylist() if key in keys), None)
            if found is not None:
                return found
        return None

    def note_key(self, key: bytes) -> None:
        """A key was looked up."""
        if key not in self.keys:
            self.keys.add(key)
            self._grow(len(key) + _OVERHEAD_BYTES)

    def note_keys(self, keys: Keys) -> None:
        """Keys were looked up together."""
        if isinstance(keys, list):
            for key in keys:
                self.note_key(key)
        elif len(keys):
            self.arrays.append(keys)
            self._grow(keys.nbytes)

    def note_range(self, start: bytes | None, end: bytes | None) -> None:
        """A range was read to its end."""
        if start is None or end is None or start < end:
            self.ranges.append((start, end))
            self._grow(len(start or b"") + len(end or b"") + 2 * _OVERHEAD_BYTES)

    def _grow(self, nbytes: int) -> None:
        self._nbytes += nbytes
        if self._nbytes > self._bytes_max:
            self._become_one_range()

    def _become_one_range(self) -> None:
        starts: list[bytes | None] = [start for start, _ in self.ranges]
        ends: list[bytes | None] = [end for _, end in self.ranges]
        lowest, highest = [], []
        if self.keys:
            lowest.append(min(self.keys))
            highest.append(max(self.keys))
        for array in self.arrays:
            bounds = pc.min_max(array)
            lowest.append(bounds["min"].as_py())
            highest.append(bounds["max"].as_py())
        starts += lowest
        ends += [key + b"\0" for key in highest]
        start = None if None in starts else min(one for one in starts if one is not None)
        end = None if None in ends else max(one for one in ends if one is not None)
        self.keys, self.arrays, self.ranges = set(), [], [(start, end)]
        self._nbytes = len(start or b"") + len(end or b"") + 2 * _OVERHEAD_BYTES


def _is_within(key: bytes, bounds: Range) -> bool:
    start, end = bounds
    return (start is None or key >= start) and (end is None or key < end)


class NotedReads:
    """Reads that go into a read set; a `Reads`."""

    def __init__(self, reads: Reads, noted: ReadSet) -> None:
        self._reads = reads
        self._noted = noted

    def find(self, key: bytes, epoch: int | None) -> FoundRow | None:
        """The newest version of a key; it is noted whether there is one or not."""
        found = self._reads.find(key, epoch)
        self._noted.note_key(key)
        return found

    def find_many(self, keys: Keys, epoch: int | None) -> Hits:
        """Where the newest versions of `keys` are."""
        hits = self._reads.find_many(keys, epoch)
        self._noted.note_keys(keys)
        return hits

    def scan(
        self,
        ranges: KeyRanges,
        epoch: int | None,
        *,
        limit: int | None = None,
        reverse: bool = False,
        columns: Sequence[int] | None = None,
        tests: Sequence[ValueTest] = (),
    ) -> Iterator[Rows]:
        """The rows of the ranges; what of these is noted follows how far it is read."""
        rows = self._reads.scan(ranges, epoch, limit=limit, reverse=reverse, columns=columns, tests=tests)
        return self._note_backward(rows, ranges, limit) if reverse else self._note_forward(rows, ranges, limit)

    def _note_forward(self, scan: Iterator[Rows], ranges: KeyRanges, limit: int | None) -> Iterator[Rows]:
        left = limit
        bounds = deque(ranges)
        for rows in scan:
            # Noted before it is given out: from then on its user has read it, and that nothing lies before it.
            last = rows.key(len(rows) - 1)
            while bounds and (start := bounds[0][0] or b"") <= last:
                end = bounds.popleft()[1]
                if end is None or last < end:
                    self._noted.note_range(start or None, last + b"\0")
                    bounds.appendleft((last + b"\0", end))
                    break
                self._noted.note_range(start or None, end)
            if left is not None:
                left -= len(rows)
            yield rows
        if left is None or left > 0:
            for rest in bounds:
                self._noted.note_range(*rest)

    def _note_backward(self, scan: Iterator[Rows], ranges: KeyRanges, limit: int | None) -> Iterator[Rows]:
        left = limit
        for start, bound in ranges:
            end = bound
            for rows in scan:
                self._noted.note_range(rows.key(0), end)
                end = rows.key(0)
                if left is not None:
                    left -= len(rows)
                yield rows
            if left is None or left > 0:
                self._noted.note_range(start, end)
