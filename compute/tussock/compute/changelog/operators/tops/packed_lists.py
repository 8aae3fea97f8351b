"""Lists of bytes as one value each, which a table can hold: packed and taken apart for one list, or for many at once.

A list is the number of its items and the end of each, counted from where the first begins, all in four bytes
(little-endian), and then the items.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tussock.statestore.rows.buffers import binary_array
from tussock.statestore.rows.key_arrays import binary_buffers

__all__ = ["pack", "pack_many", "unpack", "unpack_many"]

WORD = np.dtype("<u4")
WIDTH = WORD.itemsize

Places = npt.NDArray[np.int64]


def pack(items: Sequence[bytes]) -> bytes:
    """One list."""
    ends = np.cumsum([len(items), *map(len, items)])
    ends[1:] -= len(items)
    return ends.astype(WORD).tobytes() + b"".join(items)


def unpack(packed: bytes) -> list[bytes]:
    """The items of one list."""
    count = int.from_bytes(packed[:WIDTH], "little")
    ends = np.frombuffer(packed, WORD, count, WIDTH).tolist()
    base = WIDTH * (1 + count)
    return [packed[base + start : base + end] for start, end in zip([0, *ends], ends, strict=False)]


def pack_many(items: pa.BinaryArray, counts: Places) -> pa.BinaryArray:
    """Many lists: their items one after the other, and how many each has."""
    offsets, raw = binary_buffers(items)
    data = np.frombuffer(raw, np.uint8)[offsets[0] : offsets[-1]]
    ends = offsets.astype(np.int64)[1:] - offsets[0]
    lasts = np.cumsum(counts)
    list_ends = np.concatenate([[0], ends])[lasts] if len(counts) else np.zeros(0, np.int64)
    starts = np.concatenate([[0], list_ends[:-1]]) if len(counts) else list_ends
    words = np.insert(ends - np.repeat(starts, counts), lasts - counts, counts).astype(WORD)
    head_ends = (lasts + np.arange(1, len(counts) + 1)) * WIDTH
    heads = binary_array(np.concatenate([[0], head_ends]).astype(np.int32), words.view(np.uint8))
    bodies = binary_array(np.concatenate([[0], list_ends]).astype(np.int32), data)
    packed: pa.BinaryArray = pc.binary_join_element_wise(heads, bodies, b"")
    return packed


def unpack_many(packed: pa.BinaryArray) -> tuple[pa.BinaryArray, Places]:
    """The items of many lists, list by list, and how many each has."""
    offsets, raw = binary_buffers(packed)
    begins = offsets[:-1].astype(np.int64)
    if not len(begins):
        return packed, begins
    data = np.frombuffer(raw, np.uint8)
    words = np.ndarray((len(data) - WIDTH + 1,), WORD, data, 0, (1,))
    counts = words[begins].astype(np.int64)
    firsts = np.cumsum(counts) - counts
    within = np.arange(counts.sum()) - np.repeat(firsts, counts)
    ends = words[np.repeat(begins, counts) + WIDTH * (1 + within)].astype(np.int64)
    starts = np.where(within == 0, 0, np.roll(ends, 1))
    base = np.repeat(begins + WIDTH * (1 + counts), counts)
    # Of an array of items and what lies between them every second one is an item.
    both = np.empty(2 * len(ends) + 1, np.int32)
    both[0:-1:2], both[1:-1:2] = base + starts, base + ends
    both[-1] = both[-2] if len(ends) else 0
    items: pa.BinaryArray = binary_array(both, data).take(pa.array(np.arange(0, 2 * len(ends), 2)))
    return items, counts
