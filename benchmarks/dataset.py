"""The rows that every engine is given: random 16-byte keys in random order, random 100-byte values, from a fixed seed.

Random values do not compress, so no engine gains from its codec, and the bytes on disk are about the bytes put in.
"""

import numpy as np
import pyarrow as pa

KEY_BYTES = 16
VALUE_BYTES = 100
ROW_BYTES = KEY_BYTES + VALUE_BYTES

Pairs = tuple[list[bytes], list[bytes]]


def _random(seed: int, size: int) -> bytes:
    return np.random.default_rng(seed).bytes(size)


def _cut(data: bytes, width: int) -> list[bytes]:
    return [data[at : at + width] for at in range(0, len(data), width)]


def _array(data: bytes, width: int) -> pa.Array:
    offsets = np.arange(0, len(data) + width, width, dtype=np.int32)
    return pa.Array.from_buffers(pa.binary(), len(data) // width, [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def as_table(rows: int, *, keys_seed: int = 1, values_seed: int = 2) -> pa.Table:
    """`rows` rows as Arrow data `{key, value}`, keys unsorted and (but for a chance of 2**-88) unique."""
    keys = _random(keys_seed, rows * KEY_BYTES)
    values = _random(values_seed, rows * VALUE_BYTES)
    return pa.table({"key": _array(keys, KEY_BYTES), "value": _array(values, VALUE_BYTES)})


def as_pairs(rows: int, *, keys_seed: int = 1, values_seed: int = 2) -> Pairs:
    """The same rows as two lists of `bytes`, which is what engines without Arrow take."""
    keys = _random(keys_seed, rows * KEY_BYTES)
    values = _random(values_seed, rows * VALUE_BYTES)
    return _cut(keys, KEY_BYTES), _cut(values, VALUE_BYTES)


def some_keys(rows: int, count: int, *, seed: int) -> list[bytes]:
    """`count` keys that are there, drawn evenly from all `rows` and in random order."""
    keys = _random(1, rows * KEY_BYTES)
    at = np.random.default_rng(seed).integers(0, rows, count) * KEY_BYTES
    return [keys[start : start + KEY_BYTES] for start in at.tolist()]
