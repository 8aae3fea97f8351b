"""The 64-bit hash of user keys that bloom filters are built from: MurmurHash64A with a fixed seed.

The algorithm is Austin Appleby's, published in the public domain (MurmurHash2.cpp in `smhasher`). It was chosen
because a step needs only 64-bit multiplications, shifts and exclusive-ors, each of which NumPy does on whole columns,
and because one hash of 64 bits is enough to derive all the probes of a filter from. It guards against nothing: who
chooses the keys can make them collide, which costs reads and never an answer.

The hash is on disk (in the filters of every `.meta`), so it is frozen, seed included; its tests hold constants that
fail on any change. `docs/formats/hashing-and-bloom.md` describes it for a second implementation.
"""

import struct

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tussock.statestore.rows.key_arrays import binary_buffers

__all__ = ["SEED", "hash_key", "hash_keys"]

SEED = 0x7455_5353_4F43_4B21
"""ASCII `tUSSOCK!` read as one big-endian number: it only has to be the same for ever."""

M = 0xC6A4_A793_5BD1_E995
"""The multiplier of MurmurHash64A."""
R = 47
MASK = (1 << 64) - 1

# Rows hashed at a time where keys have one width: their state stays in the second-level cache, which made 1 M keys
# of 16 bytes about twice as fast as going over whole columns.
CHUNK_ROWS = 1 << 14

# Below this many rows that still have words, a NumPy step costs more than a Python loop over the rows that are left.
FEW_ROWS = 24


# Up to this many keys are hashed one by one: ten steps of NumPy take as long for one key as for hundreds.
FEW_KEYS = 8


def hash_key(key: bytes, seed: int = SEED) -> int:
    """The hash of one key: an int in 0 .. 2**64-1, equal to what `hash_keys` gives for it."""
    size = len(key)
    h = seed ^ (size * M & MASK)
    for k in struct.unpack_from(f"<{size >> 3}Q", key):
        k = k * M & MASK
        # The product needs no mask: bits above 64 of it reach only bits above 64 of the next one.
        h = (h ^ (k ^ k >> R) * M) * M & MASK
    if size & 7:
        h = (h ^ int.from_bytes(key[size & ~7 :], "little")) * M & MASK
    h = (h ^ h >> R) * M & MASK
    return h ^ h >> R


def hash_keys(keys: pa.BinaryArray, seed: int = SEED) -> npt.NDArray[np.uint64]:
    """The hash of each key of a `binary` array (32-bit offsets, slices welcome, no nulls); uint64, aligned with `keys`.

    1 M keys of 16 bytes take about 11 ms on one core, of mixed lengths from 5 to 39 bytes about 100 ms.
    """
    count = len(keys)
    if keys.null_count:
        raise ValueError(f"{keys.null_count} of {count} keys are null; a key is bytes")
    if count <= FEW_KEYS:
        return np.array([hash_key(key, seed) for key in keys.to_pylist()], np.uint64)
    out = np.empty(count, np.uint64)
    absolute, raw = binary_buffers(keys)
    data = np.frombuffer(raw, np.uint8)[absolute[0] : absolute[-1]]
    offsets = absolute.astype(np.int64) - absolute[0]
    sizes = np.diff(offsets)
    width = int(sizes[0])
    if width <= 256 and bool((sizes == width).all()):
        for start in range(0, count, CHUNK_ROWS):
            stop = min(start + CHUNK_ROWS, count)
            _hash_one_width(data[start * width : stop * width], width, seed, out[start:stop])
    else:
        _hash_any_width(data, offsets[:-1], sizes, seed, out)
    return out


def _hash_one_width(data: npt.NDArray[np.uint8], width: int, seed: int, out: npt.NDArray[np.uint64]) -> None:
    """Hash `len(out)` keys of `width` bytes that lie back to back in `data`."""
    count = len(out)
    out.fill(seed ^ (width * M & MASK))
    tail = width & 7
    if tail:
        # A tail is read as a whole word and its surplus shifted out, so the last row needs bytes after it.
        data = np.concatenate([data, np.zeros(8, np.uint8)])
    for at in range(0, width - tail, 8):
        _mix_word(out, np.ndarray((count,), "<u8", data, at, (width,)).astype(np.uint64))
    if tail:
        word = np.ndarray((count,), "<u8", data, width - tail, (width,)).astype(np.uint64)
        _mix_tail(out, word & np.uint64((1 << 8 * tail) - 1))
    _finish(out)


def _hash_any_width(
    data: npt.NDArray[np.uint8],
    starts: npt.NDArray[np.int64],
    sizes: npt.NDArray[np.int64],
    seed: int,
    out: npt.NDArray[np.uint64],
) -> None:
    """Hash keys of any widths: word by word over the rows that still have one.

    Rows are ordered by their number of words, longest first, so the rows of each step are a prefix. When only a few
    long rows are left they are hashed one by one: a key of 1 MiB would otherwise cost 131,072 NumPy steps.
    """
    words = sizes >> 3
    order = np.argsort(-words, kind="stable")
    if len(order) <= FEW_ROWS:
        one_by_one = len(order)
    else:
        # Worth it only where they are longer than the rest: otherwise the steps are made for the rest anyway.
        few_are_longer = words[order[0]] - words[order[FEW_ROWS]] > FEW_ROWS
        one_by_one = FEW_ROWS if few_are_longer else 0
    for row in order[:one_by_one]:
        out[row] = hash_key(data[starts[row] : starts[row] + sizes[row]].tobytes(), seed)
    order = order[one_by_one:]
    if len(order) == 0:
        return

    padded = np.concatenate([data, np.zeros(8, np.uint8)])
    at = starts[order]
    lengths = sizes[order]
    h = np.uint64(seed) ^ lengths.astype(np.uint64) * np.uint64(M)
    # Rows of step w are those with more than w words: the rows before the first -words that is not below -w.
    steps = np.arange(words[order[0]])
    for rows in np.searchsorted(-words[order], -steps, side="left").tolist():
        _mix_word(h[:rows], _words_at(padded, at[:rows]))
        at[:rows] += 8
    tails = (lengths & 7).astype(np.uint64)
    with_tail = np.flatnonzero(tails)
    mask = (np.uint64(1) << tails[with_tail] * np.uint64(8)) - np.uint64(1)
    tail_h = h[with_tail]
    _mix_tail(tail_h, _words_at(padded, at[with_tail]) & mask)
    h[with_tail] = tail_h
    _finish(h)
    out[order] = h


def _words_at(padded: npt.NDArray[np.uint8], at: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
    """The little-endian words that start at the byte positions `at`; `padded` has 8 bytes after the last position."""
    every_byte = np.ndarray((len(padded) - 7,), "<u8", padded, 0, (1,))
    return every_byte[at].astype(np.uint64, copy=False)


def _mix_word(h: npt.NDArray[np.uint64], k: npt.NDArray[np.uint64]) -> None:
    """Mix one whole word of each row into its state, in place; `k` is used up."""
    k *= np.uint64(M)
    k ^= k >> np.uint64(R)
    k *= np.uint64(M)
    h ^= k
    h *= np.uint64(M)


def _mix_tail(h: npt.NDArray[np.uint64], k: npt.NDArray[np.uint64]) -> None:
    """Mix the last 1 to 7 bytes of each row into its state, in place."""
    h ^= k
    h *= np.uint64(M)


def _finish(h: npt.NDArray[np.uint64]) -> None:
    """Spread what was mixed over all 64 bits, in place."""
    h ^= h >> np.uint64(R)
    h *= np.uint64(M)
    h ^= h >> np.uint64(R)
