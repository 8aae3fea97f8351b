"""The order of keys: every shortcut gives the result of a plain stable sort of bytes."""

import random

import numpy as np
import pyarrow as pa
import pytest

from tussock.statestore.keys.encoding import KeyEncoder
from tussock.statestore.rows.key_arrays import key_order

COUNT = 5000


def keys_of(kind: str, chance: random.Random) -> list[bytes]:
    """Keys of one kind, in random order."""
    if kind in ("integers behind a vnode", "repeated integers", "small integers behind a vnode"):
        narrow = kind.startswith("small")
        encoder = KeyEncoder(pa.schema([("id", pa.int32() if narrow else pa.int64())]), ["id"], ["id"], 256)
        top = 300 if kind.startswith("repeated") else 10**6
        numbers = pa.array([chance.randint(-top, top) for _ in range(COUNT)], pa.int32() if narrow else pa.int64())
        return encoder.encode(pa.record_batch({"id": numbers})).to_pylist()
    if kind == "one key":
        return [b"the same key"] * COUNT
    if kind == "random bytes":
        return [chance.randbytes(16) for _ in range(COUNT)]
    if kind == "late differences":
        return [bytes(chance.choices(b"ab", k=20)) for _ in range(COUNT)]
    if kind == "zero bytes":
        return [bytes(chance.choices(b"\0\0\1", k=9)) for _ in range(COUNT)]
    if kind == "short":
        return [chance.randbytes(3) for _ in range(COUNT)]
    return [chance.randbytes(chance.randint(0, 12)) for _ in range(COUNT)]


@pytest.mark.parametrize("is_sorted", [False, True], ids=["shuffled", "two runs"])
@pytest.mark.parametrize(
    "kind",
    [
        "integers behind a vnode",
        "repeated integers",
        "small integers behind a vnode",
        "one key",
        "random bytes",
        "late differences",
        "zero bytes",
        "short",
        "several widths",
    ],
)
def test_order_is_that_of_a_stable_sort_of_bytes(kind: str, is_sorted: bool) -> None:
    """Ascending bytewise, and of equal keys the earlier first, for any common parts of the keys."""
    keys = keys_of(kind, random.Random(kind))
    if is_sorted:
        keys = sorted(keys[: COUNT // 2]) + sorted(keys[COUNT // 2 :])
    # A slice, so that the data does not begin where the buffer does.
    array = pa.array([b"in front", *keys], pa.binary())[1:]
    expected = sorted(range(COUNT), key=lambda at: keys[at])
    assert np.array_equal(key_order(array), expected)
