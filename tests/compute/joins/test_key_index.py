"""`KeyIndex` answers as a dictionary does, for any keys."""

import numpy as np
import pyarrow as pa
import pytest

from tussock.compute.spark.joins.key_index import KeyIndex
from tussock.statestore.format.hashing import MASK, SEED, M, R, hash_key


def distinct(random: np.random.Generator, count: int, shortest: int, longest: int) -> list[bytes]:
    """Different keys of random lengths, many of them of few byte values, so that some begin others."""
    keys: dict[bytes, None] = {}
    while len(keys) < count:
        size = int(random.integers(shortest, longest + 1))
        keys[random.choice(np.array([0, 1, 97, 255], np.uint8), size).tobytes()] = None
        keys[random.bytes(size)] = None
    return list(keys)[:count]


@pytest.mark.parametrize(
    ("shortest", "longest"), [(1, 1), (3, 3), (7, 7), (8, 8), (9, 9), (16, 16), (0, 5), (6, 30)], ids=str
)
def test_look_ups_equal_those_of_a_dictionary(shortest: int, longest: int) -> None:
    """Present, absent and double keys, of other lengths, in slices; and no key at all."""
    random = np.random.default_rng([shortest, longest])
    held = distinct(random, 40 if longest == 1 else 3000, shortest, longest)
    known = {key: row for row, key in enumerate(held)}
    strange = [key + b"\0" for key in held[:500]] + [key[:-1] for key in held[:500]] + distinct(random, 40, 1, 12)
    asked = [(held + strange)[at] for at in random.integers(0, len(held) + len(strange), 20_000)]
    index = KeyIndex(pa.array([b"before", *held], pa.binary()).slice(1))
    expected = [known.get(key, -1) for key in asked]
    assert min(expected) == -1
    assert max(expected) > 0
    keys = pa.array([b"before", *asked], pa.binary()).slice(1)
    assert index.find(keys).tolist() == expected
    assert index.find(keys.slice(77, 5)).tolist() == expected[77:82]
    assert index.find(keys.slice(0, 0)).tolist() == []
    assert not index.collides


def test_an_index_of_nothing_finds_nothing() -> None:
    """An index of no keys, and of one."""
    asked = pa.array([b"", b"a", b"12345678"], pa.binary())
    assert KeyIndex(asked.slice(0, 0)).find(asked).tolist() == [-1, -1, -1]
    assert KeyIndex(asked.slice(1, 1)).find(asked).tolist() == [-1, 0, -1]
    assert KeyIndex(asked.slice(0, 1)).find(asked).tolist() == [0, -1, -1]


def colliding(count: int) -> list[bytes]:
    """Keys of 16 bytes that all have one hash: what the first word changes in the state, the second takes back."""

    def mix(word: int) -> int:
        word = word * M & MASK
        return (word ^ word >> R) * M & MASK

    def unmix(word: int) -> int:
        word = word * pow(M, -1, 1 << 64) & MASK
        return (word ^ word >> R) * pow(M, -1, 1 << 64) & MASK

    start = SEED ^ (16 * M & MASK)
    return [
        first.to_bytes(8, "little") + unmix((start ^ mix(first)) * M & MASK).to_bytes(8, "little")
        for first in range(count)
    ]


def test_keys_of_one_hash_are_distinguished() -> None:
    """Their places follow each other, and an absent key has the same hash."""
    keys = colliding(400)
    assert len({hash_key(key) for key in keys}) == 1
    held = pa.array([*keys[:300], b"another".ljust(16)], pa.binary())
    index = KeyIndex(held)
    assert index.find(held).tolist() == list(range(301))
    assert set(index.find(pa.array(keys[300:], pa.binary())).tolist()) == {-1}
    assert not index.collides


def test_keys_that_were_made_to_collide_are_noticed() -> None:
    """A look-up among 1200 colliding keys would take a step for each."""
    assert KeyIndex(pa.array(colliding(1200), pa.binary())).collides


def test_bytes_are_estimated_beforehand() -> None:
    """`bytes_for` is what the index then takes without its keys, but for what stands beyond the last place."""
    for count in (0, 1, 2, 3, 1000, 1024, 1025):
        index = KeyIndex(pa.array([at.to_bytes(8, "big") for at in range(count)], pa.binary()))
        assert 0 <= index.nbytes - KeyIndex.bytes_for(count) <= 12 * 64
