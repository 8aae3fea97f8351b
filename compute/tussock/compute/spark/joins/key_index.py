"""`KeyIndex`: finds the rows of many keys at once; a hash table made of arrays only.

Polars and Arrow hash the whole table again in each join or `index_in`, 60 to 110 ms for a million keys, so they cannot
serve one group of keys after another; NumPy's `searchsorted` can, at an eighth of the speed of this one. Here building
and lookups are steps over whole arrays. Open addressing with linear probing, placed in the order of the hashes as in
Amble and Knuth, "Ordered hash tables", The Computer Journal 17 (1974): sorted by home place, each key stands at home or
right after the key before it, so a running maximum gives its place.
"""

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tussock.statestore.format.hashing import hash_keys
from tussock.statestore.rows.key_arrays import binary_buffers, fixed_view

__all__ = ["KeyIndex"]

_DRIFT_MAX = 1 << 10
"""How far a key may stand from its home place. A few dozen places occur; more means keys made to collide."""

Words = npt.NDArray[np.uint64]
Places = npt.NDArray[np.int64]


class KeyIndex:
    """Rows by key, all keys different; immutable.

    Keys of at most eight bytes, all of one width, are compared as numbers. Others are found by their 64-bit hash and
    then compared byte by byte, so keys that share a hash cost time and are never mixed up.
    """

    def __init__(self, keys: pa.BinaryArray) -> None:
        """Takes n different keys without nulls; row i has key i."""
        fixed = fixed_view(keys)
        self._width = fixed.dtype.itemsize if fixed is not None and fixed.dtype.itemsize <= 8 else 0
        self._keys = None if self._width else keys
        bits = self._bits(len(keys))
        self._shift = np.uint64(64 - bits)
        hashes = hash_keys(keys)
        home = self._home(hashes)
        order = np.argsort(home)
        home = home[order]
        count = np.arange(len(keys))
        place = np.maximum.accumulate(home - count) + count
        drift = place - home
        self.collides = bool(len(drift)) and int(drift.max()) > _DRIFT_MAX
        """Whether lookups are slow because too many keys have nearly the same hash, possibly on purpose."""
        # An empty place ends each search, so there is one after the last key.
        size = max(1 << bits, int(place[-1]) + 1 if len(place) else 0) + 1
        self._rows = np.full(size, -1, np.int32)
        self._rows[place] = order
        self._words = np.zeros(size, np.uint64)
        self._words[place] = (self._numbers(keys) if self._width else hashes)[order]

    @staticmethod
    def _bits(count: int) -> int:
        """The power of two that gives at least two places per key."""
        return max(2 * count - 1, 1).bit_length()

    @staticmethod
    def bytes_for(count: int) -> int:
        """Bytes of an index of this many keys, about, without the keys."""
        return 12 << KeyIndex._bits(count)

    @property
    def nbytes(self) -> int:
        """Bytes that the index holds, including the keys if it needs them."""
        return self._rows.nbytes + self._words.nbytes + (0 if self._keys is None else self._keys.nbytes)

    def find(self, keys: pa.BinaryArray) -> npt.NDArray[np.int32]:
        """The row of each of `keys` (any order, repeats allowed, no nulls); -1 if there is none."""
        if self._width:
            sizes = np.diff(binary_buffers(keys)[0])
            same = sizes == self._width
            if not same.all():
                rows = np.full(len(keys), -1, np.int32)
                rows[same] = self.find(keys.filter(pa.array(same)))
                return rows
        hashes = hash_keys(keys)
        place = self._home(hashes)
        words = self._numbers(keys) if self._width else hashes
        rows = self._probe(words, place)
        if self._keys is None:
            return rows
        hits = np.flatnonzero(rows >= 0)
        while len(hits):
            there = self._keys.take(pa.array(rows[hits]))
            same = pc.equal(there, keys.take(pa.array(hits))).to_numpy(zero_copy_only=False)
            if same.all():
                break
            # Another key with that hash: the wanted one may follow.
            hits = hits[~same]
            on = place[hits] + 1
            rows[hits] = self._probe(words[hits], on)
            place[hits] = on
            hits = hits[rows[hits] >= 0]
        return rows

    def _home(self, hashes: Words) -> Places:
        """The home places of keys with these hashes."""
        return (hashes >> self._shift).view(np.int64)

    def _numbers(self, keys: pa.BinaryArray) -> Words:
        """Keys of the index's width as numbers, which are equal only for equal keys."""
        offsets, raw = binary_buffers(keys)
        width = self._width
        data = np.frombuffer(raw, np.uint8, len(keys) * width, int(offsets[0])) if len(keys) else np.zeros(0, np.uint8)
        if width == 8:
            return data.view(np.uint64)
        padded = np.zeros((len(keys), 8), np.uint8)
        padded[:, :width] = data.reshape(len(keys), width)
        return padded.view(np.uint64).reshape(-1)

    def _probe(self, words: Words, place: Places) -> npt.NDArray[np.int32]:
        """The rows of the first entries with these words at or after `place`, -1 if an empty place comes first.

        Moves `place` to where each search ended.
        """
        rows = self._rows[place]
        left = np.flatnonzero((self._words[place] != words) & (rows >= 0))
        wanted, at = words[left], place[left]
        while len(left):
            at = at + 1
            found = self._rows[at]
            rows[left], place[left] = found, at
            on = np.flatnonzero((self._words[at] != wanted) & (found >= 0))
            left, wanted, at = left[on], wanted[on], at[on]
        return rows
