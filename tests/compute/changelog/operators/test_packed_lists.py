"""Lists of bytes are the same after they were packed and taken apart, alone or many at once."""

import random

import numpy as np
import pyarrow as pa
import pytest

from tussock.compute.changelog.operators.tops.packed_lists import pack, pack_many, unpack, unpack_many


@pytest.mark.parametrize("seed", range(30))
def test_many_lists_are_packed_as_each_alone(seed: int) -> None:
    """Empty lists, empty items and slices of arrays included."""
    draw = random.Random(seed)
    lists = [
        [draw.randbytes(draw.choice((0, 1, 4, 30))) for _ in range(draw.choice((0, 1, 3, 70)))]
        for _ in range(draw.choice((0, 1, 5)))
    ]
    items = pa.array([b"other", *(item for one in lists for item in one)], pa.binary()).slice(1)
    counts = np.array([len(one) for one in lists], np.int64)
    packed = pack_many(items, counts)
    assert packed.to_pylist() == [pack(one) for one in lists]
    assert [unpack(one) for one in packed.to_pylist()] == lists
    again, its_counts = unpack_many(pa.concat_arrays([pa.array([pack([b"other"])]), packed]).slice(1))
    assert again.to_pylist() == items.to_pylist()
    assert its_counts.tolist() == counts.tolist()


def test_bytes_of_a_packed_list_stay_as_they_are() -> None:
    """Tables of flows that were stopped have them."""
    assert pack([b"ab", b"", b"c"]).hex() == "03000000020000000200000003000000616263"
