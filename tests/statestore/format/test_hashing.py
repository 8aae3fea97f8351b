"""The hash of user keys: frozen, equal in its scalar and its vectorised form, and truly MurmurHash64A."""

import hashlib

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tussock.statestore.format.hashing import SEED, hash_key, hash_keys

M = 0xC6A4A7935BD1E995
U64 = (1 << 64) - 1


def plain_murmur(key: bytes, seed: int) -> int:
    """MurmurHash64A as its description reads, one byte at a time and masked after each operation."""
    h = (seed ^ ((len(key) * M) & U64)) & U64
    whole = len(key) - len(key) % 8
    for start in range(0, whole, 8):
        k = sum(key[start + i] << (8 * i) for i in range(8))
        k = (k * M) & U64
        k = k ^ (k >> 47)
        k = (k * M) & U64
        h = h ^ k
        h = (h * M) & U64
    if len(key) % 8:
        for i, byte in enumerate(key[whole:]):
            h = h ^ (byte << (8 * i))
        h = (h * M) & U64
    h = h ^ (h >> 47)
    h = (h * M) & U64
    return h ^ (h >> 47)


@pytest.mark.parametrize(
    ("key", "seed", "expected"),
    [
        (b"aaaa", 0x9747B28C, 0x41DA53FDABAF04C8),
        (b"fransisco", 1, 0x083FDAF4A6D0D3D9),
        (b"hash me", 22, 15828218858260124487),
    ],
)
def test_hash_agrees_with_published_vectors(key: bytes, seed: int, expected: int) -> None:
    """Other public implementations of MurmurHash64A test themselves with these values."""
    assert hash_key(key, seed) == expected
    assert hash_keys(pa.array([key, b"other"], pa.binary()), seed)[0] == expected


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=70), st.integers(0, U64))
def test_scalar_hash_is_the_algorithm_as_described(key: bytes, seed: int) -> None:
    """The scalar hash, which omits masks that change nothing, equals a literal implementation."""
    assert hash_key(key, seed) == plain_murmur(key, seed)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.binary(max_size=40), max_size=80), st.integers(0, 5), st.integers(0, 5))
def test_vectorised_hash_equals_scalar_on_any_slice(keys: list[bytes], skip: int, drop: int) -> None:
    """`hash_keys` equals `hash_key` row by row, also where a slice starts past the array's first row."""
    array = pa.array(keys, pa.binary())
    array = array.slice(skip, max(0, len(array) - skip - drop))
    assert hash_keys(array).tolist() == [hash_key(key) for key in array.to_pylist()]


@pytest.mark.parametrize("width", [0, 1, 7, 8, 9, 15, 16, 17, 24, 300])
def test_keys_of_one_width_hash_the_same_over_several_chunks(width: int) -> None:
    """The fast path for one width equals the scalar hash, beyond the first chunk of rows too."""
    rows = 40_000 if width == 16 else 500
    data = np.random.default_rng(width).bytes(rows * width)
    keys = [data[i * width : (i + 1) * width] for i in range(rows)]
    hashes = hash_keys(pa.array(keys, pa.binary()))
    assert hashes.dtype == np.uint64
    assert hashes.tolist() == [hash_key(key) for key in keys]


def test_few_very_long_keys_among_many_short_ones() -> None:
    """Keys of up to 1 MiB among short ones are hashed one by one, with the same result."""
    keys = [b"k%d" % i for i in range(1000)] + [b"\xff" * 1_000_003, b"", b"x" * (1 << 20)] + [b"y" * 900] * 60
    assert hash_keys(pa.array(keys, pa.binary())).tolist() == [hash_key(key) for key in keys]


def test_null_key_is_refused() -> None:
    """A null has no bytes to hash."""
    with pytest.raises(ValueError, match="1 of 2 keys are null"):
        hash_keys(pa.array([b"a", None], pa.binary()))


def test_hash_never_changes() -> None:
    """The hash is on disk: these constants fail on any change of algorithm or seed."""
    assert SEED == 0x745553534F434B21
    assert [hash_key(key) for key in (b"", b"a", b"tussock", b"tussock!", b"0123456789abcdef")] == STABLE
    keys = [bytes((i * 7 + j * 13) & 255 for j in range(i)) for i in range(256)]
    digest = hashlib.sha256(hash_keys(pa.array(keys, pa.binary())).astype("<u8").tobytes()).hexdigest()
    assert digest == STABLE_DIGEST


STABLE = [
    0xED43A9CD9FB36860,
    0xB2130374BADF6BA8,
    0xF6FF83C91C7361AE,
    0xAB740DB7EB7E3980,
    0x05A80FD6343465C2,
]
STABLE_DIGEST = "f718ace9c7381faf427f357027430caa23c313b7e825310132c50109597c5585"
