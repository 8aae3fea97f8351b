"""Full keys, SST ids, and the orders of rows."""

from hypothesis import given, settings
from hypothesis import strategies as st

from support.store.ssts import Put, to_puts, to_rows
from support.store.versions import FakeSystem
from tussock.statestore.keys.full_key import full_key
from tussock.statestore.write.sorted_runs import sorted_newest
from tussock.statestore.write.sst_ids import id_floor, new_sst_id


def test_a_full_key_is_the_user_key_and_eight_bytes_of_epoch() -> None:
    """Big-endian, also behind an empty user key."""
    assert full_key(b"a", 258) == b"a\0\0\0\0\0\0\x01\x02"
    assert full_key(b"", (1 << 64) - 1) == b"\xff" * 8


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


def test_ids_sort_by_time() -> None:
    """A later millisecond has the larger id, and the floor of a millisecond is below all its ids."""
    system = FakeSystem()
    ids = []
    for _ in range(3):
        ids += [id_floor(system.now_ms()), new_sst_id(system), new_sst_id(system)]
        system.forward(0.001)
    assert ids == sorted(set(ids))
    assert all(len(each) == 32 and set(each) <= set("0123456789abcdef") for each in ids)
