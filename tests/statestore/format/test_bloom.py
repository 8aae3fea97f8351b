"""The bloom filter: never a false "no", few false "yes", frozen bytes, and no answer from damaged bytes."""

import math
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tussock.statestore.errors import InvalidOption
from tussock.statestore.format.bloom import CHUNK_HASHES, Bloom, build
from tussock.statestore.format.hashing import hash_key, hash_keys

PAGE = Path(__file__).parents[3] / "docs" / "formats" / "hashing-and-bloom.md"


def random_hashes(count: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 1 << 64, count, np.uint64)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(0, (1 << 64) - 1), max_size=300), st.integers(1, 40))
def test_a_key_that_was_added_is_never_denied(hashes: list[int], bits_per_key: int) -> None:
    """No false negative, at any size and any number of bits a key, scalar or vectorised."""
    array = np.array(hashes, np.uint64)
    bloom = Bloom(build(array, bits_per_key))
    assert bloom.may_contain_many(array).all()
    assert all(bloom.may_contain(key_hash) for key_hash in hashes)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 400), st.integers(0, 1 << 32))
def test_the_vectorised_question_equals_the_single_one(count: int, seed: int) -> None:
    """`may_contain_many` equals `may_contain` for hashes that were added and for others."""
    hashes = random_hashes(count + 500, seed)
    bloom = Bloom(build(hashes[:count]))
    assert bloom.may_contain_many(hashes).tolist() == [bloom.may_contain(h) for h in hashes.tolist()]


@pytest.mark.parametrize("bits_per_key", [5, 10, 16])
def test_false_positives_are_near_theory_on_a_million_keys(bits_per_key: int) -> None:
    """Real keys through the real hash: absent keys pass at most 1.5 times as often as an ideal filter lets them."""
    rows = 1_000_000
    data = np.arange(2 * rows, dtype=">u8").tobytes()
    offsets = np.arange(0, 16 * rows + 1, 8, dtype=np.int32)
    keys = pa.Array.from_buffers(pa.binary(), 2 * rows, [None, pa.py_buffer(offsets), pa.py_buffer(data)])
    hashes = hash_keys(keys)
    bloom = Bloom(build(hashes[:rows], bits_per_key))
    probes = math.floor(bits_per_key * math.log(2))
    theory = (1 - math.exp(-probes / bits_per_key)) ** probes
    assert bloom.may_contain_many(hashes[:rows]).all()
    assert bloom.may_contain_many(hashes[rows:]).mean() <= 1.5 * theory


@pytest.mark.parametrize("count", [CHUNK_HASHES - 1, CHUNK_HASHES, CHUNK_HASHES + 1, 2 * CHUNK_HASHES + 5])
def test_hashes_are_in_the_filter_in_any_order(count: int) -> None:
    """Bits are set by some hashes at a time: none of these is left out, and their order makes no difference."""
    hashes = random_hashes(count, 3)
    built = build(hashes)
    assert Bloom(built).may_contain_many(hashes).all()
    assert built == build(np.sort(hashes)) == build(hashes[::-1].copy())


def test_a_filter_of_no_keys_contains_nothing() -> None:
    """An SST without rows still has a filter, which denies every key."""
    bloom = Bloom(build(np.empty(0, np.uint64)))
    assert not bloom.may_contain_many(random_hashes(1000, 1)).any()
    assert not bloom.may_contain(0)
    assert bloom.may_contain_many(np.empty(0, np.uint64)).tolist() == []


def test_a_filter_reads_from_a_memoryview_and_tells_its_size() -> None:
    """The caller may hand a slice of a larger buffer; nothing is copied."""
    data = build(random_hashes(100, 2), 10)
    bloom = Bloom(memoryview(b"##" + data + b"##")[2:-2])
    assert bloom.may_contain_many(random_hashes(100, 2)).all()
    assert bloom.size_bytes == len(data) == 8 + 1024 // 8


@pytest.mark.parametrize("bits_per_key", [0, -1, 41, float("nan")])
def test_impossible_bits_per_key_are_refused(bits_per_key: float) -> None:
    """The error names the option and its range."""
    with pytest.raises(InvalidOption, match=r"bits_per_key is .* 1 to 40"):
        build(random_hashes(3, 3), bits_per_key)


@pytest.mark.parametrize(
    "damage",
    [
        lambda d: b"",
        lambda d: d[:7],
        lambda d: d[:8],
        lambda d: d[:-1],
        lambda d: d + b"\0",
        lambda d: b"\2" + d[1:],
        lambda d: d[:1] + b"\0" + d[2:],
        lambda d: d[:1] + b"\x1f" + d[2:],
        lambda d: d[:2] + b"\1" + d[3:],
        lambda d: d[:4] + b"\0\0\0\0",
        lambda d: d[:4] + b"\x41" + d[5:],
        lambda d: d[:4] + b"\xff\xff\xff\xff" + d[8:],
    ],
)
def test_damaged_bytes_are_refused(damage) -> None:
    """Every field that can be wrong gives a ValueError, which the reader of a `.meta` turns into `CorruptSst`."""
    with pytest.raises(ValueError, match="bloom filter"):
        Bloom(damage(build(random_hashes(50, 4))))


def test_bytes_of_a_filter_never_change() -> None:
    """Filters are on disk: the bytes for given hashes are frozen."""
    hashes = np.array([hash_key(key) for key in (b"a", b"b", b"tussock")], np.uint64)
    assert build(hashes).hex() == STABLE


def test_the_worked_example_of_the_format_page_decodes() -> None:
    """This code writes the filter in the documentation's hex dump, and decodes it with the results of the page."""
    page = PAGE.read_text()
    match = re.search(r"```hex bloom\n([0-9a-f\s]+)```", page)
    assert match is not None
    data = bytes.fromhex(match[1])
    hashes = dict(re.findall(r"\| `(\w+)` \| `0x([0-9a-f]{16})` \|", page))
    assert {key: int(value, 16) for key, value in hashes.items()} == {key: hash_key(key.encode()) for key in hashes}
    assert set(hashes) == {"a", "b", "tussock"}
    assert build(np.array([int(value, 16) for value in hashes.values()], np.uint64)) == data
    assert not Bloom(data).may_contain(hash_key(b"absent"))


STABLE = "0106000040000000bd20140811401848"
