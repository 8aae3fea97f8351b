"""Full keys, SST ids, and the orders built from them."""

from functools import cmp_to_key
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.store.ssts import Put, sort_puts, to_puts, to_rows
from support.store.versions import FakeSystem
from tussock.statestore.keys.comparator import VersionedComparator, full_key, split_full_key
from tussock.statestore.rows.rows import Rows
from tussock.statestore.write.sorted_runs import commit_order, sorted_newest
from tussock.statestore.write.sst_ids import id_floor, new_sst_id


def test_a_full_key_is_the_user_key_and_eight_bytes_of_epoch() -> None:
    """Big-endian; it can be taken apart again, also if the user key is empty."""
    assert full_key(b"a", 258) == b"a\0\0\0\0\0\0\x01\x02"
    for key, epoch in ((b"", 0), (b"k", (1 << 64) - 1), (b"\xff" * 9, 1)):
        assert split_full_key(full_key(key, epoch)) == (key, epoch)


@pytest.mark.parametrize("short", [b"", b"1234567"])
def test_a_full_key_that_is_too_short_is_refused(short: bytes) -> None:
    """Both ways of comparing raise a clear error."""
    with pytest.raises(ValueError, match=f"this one has {len(short)} bytes in all"):
        VersionedComparator.compare(full_key(b"a", 1), short)
    with pytest.raises(ValueError, match="ends with 8 bytes of epoch"):
        VersionedComparator.sort_key(short)


def test_newer_versions_of_a_key_come_first_and_prefixes_before_longer_keys() -> None:
    """A comparison of plain bytes would be wrong twice."""
    order = [full_key(b"a", 2), full_key(b"a", 1), full_key(b"a\0", 9), full_key(b"ab", 3), full_key(b"b", 1 << 63)]
    assert sorted(order) != order
    assert all(VersionedComparator.compare(left, right) < 0 for left, right in pairwise(order))
    assert all(VersionedComparator.compare(right, left) > 0 for left, right in pairwise(order))
    assert VersionedComparator.compare(order[0], full_key(b"a", 2)) == 0


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.lists(st.tuples(st.binary(max_size=3), st.integers(0, (1 << 64) - 1))))
def test_all_ways_to_order_full_keys_agree(pairs: list[tuple[bytes, int]]) -> None:
    """The comparison, the sort key, and the order of runs agree."""
    keys = [full_key(key, epoch) for key, epoch in pairs]
    expected = [full_key(put.key, put.epoch) for put in sort_puts(Put(key, epoch, b"") for key, epoch in pairs)]
    assert sorted(keys, key=VersionedComparator.sort_key) == expected
    assert sorted(keys, key=cmp_to_key(VersionedComparator.compare)) == expected


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    st.lists(st.tuples(st.sampled_from([b"", b"a", b"a\0", b"b", b"ab"]), st.one_of(st.none(), st.binary(max_size=2))))
)
def test_unsorted_rows_become_a_run_of_the_last_row_of_each_key(pairs: list[tuple[bytes, bytes | None]]) -> None:
    """The last row of each key counts, as in a dict, deletes included."""
    rows = to_rows([Put(key, 7, value) for key, value in pairs], epoch=7)
    found = {put.key: put.value for put in to_puts(sorted_newest(rows))}
    assert found == dict(pairs)
    assert list(found) == sorted(found)


def test_changes_are_sorted_by_epoch_then_key() -> None:
    """From rows in key order."""
    puts = sort_puts([Put(b"a", 3, b""), Put(b"a", 1, b""), Put(b"b", 2, b""), Put(b"c", 1, None), Put(b"c", 3, b"")])
    assert [(put.epoch, put.key) for put in to_puts(commit_order(to_rows(puts)))] == [
        (1, b"a"),
        (1, b"c"),
        (2, b"b"),
        (3, b"a"),
        (3, b"c"),
    ]
    assert len(commit_order(Rows.concat([to_rows([])]))) == 0
    assert np.array_equal(commit_order(to_rows(puts[:1], epoch=3)).epoch_array(), [3])


def test_ids_sort_by_time() -> None:
    """A later millisecond has the larger id, and the floor of a millisecond is below all its ids."""
    system = FakeSystem()
    ids = []
    for _ in range(3):
        ids += [id_floor(system.now_ms()), new_sst_id(system), new_sst_id(system)]
        system.forward(0.001)
    assert ids == sorted(set(ids))
    assert all(len(each) == 32 and set(each) <= set("0123456789abcdef") for each in ids)
