"""A filter in parts by the hash of the key: what it answers, what of it is fetched, and damage of its bytes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tussock.statestore.errors import CorruptSst
from tussock.statestore.format.bloom import Bloom, build
from tussock.statestore.format.parted_filter import PartedFilter, build_parts, check_parts, parts_of, with_checksums

SST_ID = "0" * 31 + "7"


def random_hashes(count: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 1 << 64, count, np.uint64)


def whole(hashes: np.ndarray, parts: int) -> PartedFilter:
    """All parts of the filter of these hashes."""
    return PartedFilter.of([memoryview(one) for one in build_parts(hashes, 10, parts)])


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, (1 << 64) - 1), max_size=300), st.sampled_from([1, 2, 4, 64]))
def test_a_key_that_was_added_is_never_denied(hashes: list[int], parts: int) -> None:
    """In any number of parts, asked alone or together; keys may fall into one part and leave others empty."""
    array = np.array(hashes, np.uint64)
    filled = whole(array, parts)
    assert filled.may_contain_many(array).all()
    assert all(filled.may_contain(key_hash) for key_hash in hashes)


def test_a_question_of_many_equals_those_of_each() -> None:
    """For keys that were added and for others; each part alone is a filter as any."""
    hashes = random_hashes(2000, 1)
    filters = build_parts(hashes[:1000], 10, 8)
    filled = PartedFilter.of([memoryview(one) for one in filters])
    alone = [Bloom(filters[key_hash % 8]).may_contain(key_hash) for key_hash in hashes.tolist()]
    assert [filled.may_contain(key_hash) for key_hash in hashes.tolist()] == alone
    assert filled.may_contain_many(hashes).tolist() == alone


def test_parts_let_through_what_one_filter_does() -> None:
    """Half a million keys in 64 parts: the bits that choose the part do not spoil the probes."""
    hashes = random_hashes(1_000_000, 2)
    added, absent = hashes[:500_000], hashes[500_000:]
    one = Bloom(build(added)).may_contain_many(absent).mean()
    parted = whole(added, 64).may_contain_many(absent).mean()
    assert abs(parted / one - 1) < 0.1


def test_parts_are_as_large_as_they_may_be() -> None:
    """The fewest parts, a power of two, of up to the bytes that were given."""
    for keys, expected in ((1, 1), (1000, 1), (13_108, 2), (700_000, 64), (10_000_000, 1024)):
        parts = parts_of(keys, 10, 16 << 10)
        assert parts == expected
        assert keys * 10 / 8 / parts <= 16 << 10
        assert parts == 1 or keys * 10 / 8 / (parts // 2) > 16 << 10


def test_each_time_more_parts_are_fetched() -> None:
    """One part, then 4, 16 and all 64: few questions fetch little, and many take four requests."""
    filters = [memoryview(one) for one in build_parts(random_hashes(10_000, 3), 10, 64)]
    parted = PartedFilter(64)
    counts, empty = [], parted.size_bytes
    for key_hash in random_hashes(1000, 4).tolist():
        if parted.may_contain(key_hash) is None:
            first, count = parted.missing(key_hash)
            assert first <= key_hash % 64 < first + count
            before = parted.size_bytes
            assert parted.add(first, filters[first : first + count]) == parted.size_bytes - before
            counts.append(count)
        assert parted.may_contain(key_hash) is not None
    assert counts == [1, 4, 16, 64]
    assert parted.is_whole
    assert parted.size_bytes - empty == 64 * 200


def test_keys_together_are_asked_for_by_one_request() -> None:
    """Their parts and what lies between; one part alone as for a single key, and none twice."""
    filters = [memoryview(one) for one in build_parts(random_hashes(10_000, 3), 10, 64)]
    parted = PartedFilter(64)
    assert parted.missing_of([]) is None
    assert parted.missing_of([5 + 64, 5]) == (5, 1)
    assert parted.missing_of([5, 9 + 128, 7]) == (5, 5)
    parted.add(5, filters[5:10])
    assert parted.missing_of([5, 6, 9]) is None
    assert parted.missing_of([5, 2, 60]) == (2, 59)
    assert parted.missing_of([5, 2]) == (0, 4), "the second time four parts"


def test_every_changed_byte_of_a_part_is_found() -> None:
    """Also a part of another SST, at another place, or cut; the error names the object and the part."""
    parts = with_checksums(SST_ID, build_parts(random_hashes(40, 5), 10, 4))
    data = b"".join(parts)
    assert len(check_parts(data, 0, 4, SST_ID, "here")) == 4
    assert len(check_parts(data[2 * len(parts[0]) :], 2, 2, SST_ID, "here")) == 2
    for at in range(len(data)):
        changed = bytearray(data)
        changed[at] ^= 1 << at % 8
        with pytest.raises(CorruptSst, match=f"here part {at // len(parts[0])} of the filter: checksum"):
            check_parts(bytes(changed), 0, 4, SST_ID, "here")
    for first, sst_id in ((1, SST_ID), (0, "0" * 32)):
        with pytest.raises(CorruptSst, match=f"here part {first} of the filter: checksum"):
            check_parts(data, first, 4, sst_id, "here")
    for cut in (b"", data[:-1], data[:4], data + b"\0"):
        with pytest.raises(CorruptSst, match="here"):
            check_parts(cut, 0, 4, SST_ID, "here")


def test_parts_of_several_sizes_are_refused() -> None:
    """As is one that is no filter: a defective writer, for which its checksums speak."""
    one, other = build_parts(random_hashes(100, 6), 10, 2)[0], build_parts(random_hashes(900, 6), 10, 2)[1]
    with pytest.raises(ValueError, match="several sizes"):
        PartedFilter.of([memoryview(one), memoryview(other)])
    with pytest.raises(ValueError, match="bloom filter"):
        PartedFilter.of([memoryview(one), memoryview(bytes(len(one)))])
