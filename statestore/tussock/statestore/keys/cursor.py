"""Reading many keys side by side: a position in each key, moved forward column by column.

`KeyEncoder.decode` uses it. As long as all keys have had the same widths so far, the position is one offset and reads
are strided views; after a text of varying width each key has its own position and reads gather.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tussock.statestore.keys.codecs import TERMINATOR
from tussock.statestore.rows.buffers import binary_array
from tussock.statestore.rows.key_arrays import binary_buffers

__all__ = ["KeyCursor"]

Positions = npt.NDArray[np.int64]


class KeyCursor:
    """Positions in n keys, at first the start of each; what is read lies behind them.

    Every method raises `ValueError` if a key is too short for what is read.
    """

    __slots__ = ("_at", "_count", "_data", "_ends", "_offset", "_stride")

    def __init__(self, keys: pa.BinaryArray) -> None:
        offsets, raw = binary_buffers(keys)
        self._count = len(keys)
        self._data = np.frombuffer(raw, np.uint8)[offsets[0] : offsets[-1]]
        relative = offsets.astype(np.int64) - offsets[0]
        self._at: Positions = relative[:-1]
        self._ends: Positions = relative[1:]
        widths = np.diff(relative)
        self._stride = int(widths[0]) if self._count and bool((widths == widths[0]).all()) else 0
        self._offset = 0  # with a stride: position within each key; `_at` then is not kept up to date

    def words(self, layout: np.dtype[Any]) -> npt.NDArray[Any]:
        """The next `layout.itemsize` bytes of each key, as n words; a view where possible."""
        width = layout.itemsize
        if self._count == 0:
            return np.empty(0, layout)
        if self._stride:
            if self._offset + width > self._stride:
                raise self._too_short()
            words: npt.NDArray[Any] = np.ndarray((self._count,), layout, self._data, self._offset, (self._stride,))
            self._offset += width
            return words
        if np.any(self._at + width > self._ends):
            raise self._too_short()
        every_byte: npt.NDArray[Any] = np.ndarray((len(self._data) - width + 1,), layout, self._data, 0, (1,))
        gathered: npt.NDArray[Any] = every_byte[self._at]
        self._at = self._at + width
        return gathered

    def take_texts(self) -> pa.BinaryArray:
        """The escaped text up to the terminator of each key, and move past it."""
        if self._stride and (texts := self._take_texts_of_one_width()) is not None:
            return texts
        starts = self._positions()
        # Inside an escaped text a zero byte is followed by ff, so the first `00 01` from its start ends it.
        found = np.flatnonzero((self._data[:-1] == TERMINATOR[0]) & (self._data[1:] == TERMINATOR[1]))
        first = np.searchsorted(found, starts)
        if np.any(first == len(found)):
            raise self._too_short()
        ends = found[first]
        if np.any(ends + len(TERMINATOR) > self._ends):
            raise self._too_short()
        self._at = ends + len(TERMINATOR)
        return self._slices(starts, ends)

    def rest(self) -> pa.BinaryArray:
        """All bytes left of each key, and move to its end."""
        starts = self._positions()
        self._at = self._ends
        return self._slices(starts, self._ends)

    def check_end(self) -> None:
        """Raise `ValueError` unless each key was read to its end."""
        if self._count and np.any(self._positions() != self._ends):
            raise ValueError("a key has more bytes than the table's key columns; it is of another table, or damaged")

    def _positions(self) -> Positions:
        """Give each key its own position, now and from now on."""
        if self._stride:
            self._at = self._at + self._offset
            self._stride = 0
        return self._at

    def _take_texts_of_one_width(self) -> pa.BinaryArray | None:
        """`take_texts` where every text has the first one's width and no zero byte, else `None`; keeps the stride."""
        width = self._data[self._offset : self._stride].tobytes().find(TERMINATOR)
        if width <= 0:
            return None
        matrix = self._data.reshape(self._count, self._stride)[:, self._offset : self._offset + width + 2]
        if np.any(matrix[:, width:] != np.frombuffer(TERMINATOR, np.uint8)):
            return None
        text = np.ascontiguousarray(matrix[:, :width])
        if not text.all():
            return None
        self._offset += width + len(TERMINATOR)
        offsets = np.arange(0, self._count * width + 1, width, dtype=np.int64).astype(np.int32)
        return binary_array(offsets, text)

    def _slices(self, starts: Positions, ends: Positions) -> pa.BinaryArray:
        """The bytes from starts[i] to ends[i] as one array; both ascend, and no slice overlaps the next.

        An array whose texts are alternately a slice and the gap after it needs no copy, and Arrow then copies every
        second text.
        """
        if self._count == 0:
            return binary_array(np.zeros(1, np.int32), self._data)
        offsets = np.empty(2 * self._count, np.int32)
        offsets[0::2], offsets[1::2] = starts, ends
        slices_and_gaps: Any = binary_array(offsets, self._data)
        texts: pa.BinaryArray = slices_and_gaps.take(pa.array(np.arange(0, 2 * self._count, 2)))
        return texts

    def _too_short(self) -> ValueError:
        return ValueError("a key ends within the table's key columns; it is of another table, or damaged")
