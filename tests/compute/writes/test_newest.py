"""Which rows of a batch are newer than what is known, for any order of delivery: the pure functions."""

import itertools
import random
from collections.abc import Sequence

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.models.versioned_events import Event, final_rows
from tussock.compute.spark.state.task.placement import own_rows
from tussock.compute.spark.writes.newest import hash_places, is_newer, newest_of_each


def apply(rows: dict[int, tuple[int, str]], tombstones: dict[int, int], batch: Sequence[Event]) -> None:
    """One batch by the functions under test, on a table that is two dicts."""
    keys = pa.chunked_array([pa.array([str(event.key).encode() for event in batch])])
    wins = newest_of_each(keys, pa.chunked_array([pa.array([event.version for event in batch])]))
    left = [event for at, event in enumerate(batch) if wins is None or wins[at]]
    assert len({event.key for event in left}) == len(left)
    stored = pa.array([rows[event.key][0] if event.key in rows else None for event in left], pa.int64())
    buried = pa.array([tombstones.get(event.key) for event in left], pa.int64())
    versions = pa.array([event.version for event in left])
    for event, newer in zip(left, is_newer(versions, stored, buried).to_pylist(), strict=True):
        if newer and event.is_delete:
            rows.pop(event.key, None)
            tombstones[event.key] = event.version
        elif newer:
            rows[event.key] = event.version, event.value


EVENTS = st.lists(st.builds(Event, st.integers(0, 3), st.integers(-5, 5)), min_size=1, max_size=40)


@settings(max_examples=300, deadline=None)
@given(EVENTS, st.lists(st.integers(0, 40), max_size=6), st.randoms(use_true_random=False))
def test_any_delivery_ends_with_the_newest_versions(events: list[Event], cuts: list[int], order: random.Random) -> None:
    """In any order, in any batches, some again and again: the end is that of all changes in their order."""
    delivered = events + order.sample(events, order.randrange(len(events) + 1))
    order.shuffle(delivered)
    rows: dict[int, tuple[int, str]] = {}
    tombstones: dict[int, int] = {}
    ends = [0, *sorted(cuts), len(delivered)]
    for start, end in itertools.pairwise(ends):
        if delivered[start:end]:
            apply(rows, tombstones, delivered[start:end])
    assert rows == final_rows(events)


def test_of_equal_versions_the_last_row_wins() -> None:
    """Rows that `order_by` has sorted come in that order; and a single chunk is no special case."""
    keys = pa.chunked_array([pa.array([b"a", b"b", b"a"]), pa.array([b"a", b"b"])])
    versions = pa.chunked_array([pa.array([2, 1, 1]), pa.array([2, 1])])
    wins = newest_of_each(keys, versions)
    assert wins is not None
    assert wins.tolist() == [False, False, False, True, True]
    assert newest_of_each(keys.slice(0, 2), versions.slice(0, 2)) is None


@pytest.mark.parametrize("tasks", [1, 2, 8, 256])
def test_tasks_of_a_repartition_share_no_place(tasks: int) -> None:
    """For a power of two; rows of one key have one place, so a key in two tasks is always seen."""
    columns = [pa.array(range(3000)), pa.array([f"x{number}" for number in range(3000)])]
    rows = pa.record_batch(columns, names=["a", "b"])
    places = []
    for task in range(tasks):
        own = rows.filter(pa.array(own_rows(columns, task, tasks)))
        places.append(hash_places(own.columns))
    assert sum(map(int.bit_count, places)) == int.bit_count(hash_places(columns)) == 256
    one = [column.slice(5, 1) for column in columns]
    assert hash_places(one).bit_count() == 1
