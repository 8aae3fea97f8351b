"""Long sequences in chunks: they equal tuples, and share everything that is not replaced."""

from bisect import bisect_left, bisect_right

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DataObject

from support import inside
from tussock.statestore.contract.chunked import CHUNK_MAX, Chunked, lower_bound, upper_bound

LENGTHS = st.one_of(st.integers(0, 3), st.integers(CHUNK_MAX - 2, CHUNK_MAX + 2), st.integers(0, 5 * CHUNK_MAX))


def sizes(chunked: Chunked[int]) -> list[int]:
    return [len(chunk) for chunk in inside.chunks(chunked)]


@settings(deadline=None, max_examples=60)
@given(data=st.data(), length=LENGTHS)
def test_chunks_equal_a_tuple(data: DataObject, length: int) -> None:
    """After any replacements, too; no chunk is too long, and none short enough for chunks to become many."""
    model = tuple(range(length))
    chunked = Chunked(model)
    for step in range(data.draw(st.integers(0, 6), "steps")):
        start = data.draw(st.integers(0, len(model)), "start")
        end = data.draw(st.one_of(st.integers(start, len(model)), st.just(min(start + 3, len(model)))), "end")
        new = tuple(range(step * 10_000, step * 10_000 + data.draw(LENGTHS, "new")))
        model, before = model[:start] + new + model[end:], tuple(chunked)
        old, chunked = chunked, chunked.replace_items(start, end, new)
        assert tuple(old) == before
        assert tuple(chunked) == model
        assert max(sizes(chunked), default=0) <= CHUNK_MAX
        assert len(sizes(chunked)) < 2 or 2 * min(sizes(chunked)) >= CHUNK_MAX
    low, high = sorted(data.draw(st.integers(-2 * length, 2 * length)) for _ in range(2))
    assert chunked[low:high] == model[low:high]
    assert chunked[::-3] == model[::-3]
    assert (len(chunked), bool(chunked), hash(chunked)) == (len(model), bool(model), hash(model))
    assert chunked == model == chunked == Chunked(model)
    assert chunked != (*model, -1) != chunked != Chunked((*model, -1))
    assert [chunked[at] for at in range(-len(model), len(model))] == [
        model[at] for at in range(-len(model), len(model))
    ]


@pytest.mark.parametrize("length", [0, 1, CHUNK_MAX, CHUNK_MAX + 1, 3 * CHUNK_MAX + 7])
def test_bounds_are_those_of_bisection(length: int) -> None:
    """Below, at and between the keys, above all of them, and at the edges of chunks."""
    items = tuple(2 * number for number in range(length))
    chunked, key = Chunked(items), lambda item: b"%06d" % (item + 1)
    for value in range(2 * length + 3):
        wanted = b"%06d" % value
        assert lower_bound(chunked, wanted, key) == lower_bound(items, wanted, key) == bisect_left(items, value - 1)
        assert upper_bound(chunked, wanted, key) == upper_bound(items, wanted, key) == bisect_right(items, value - 1)


def test_chunks_that_are_not_replaced_are_shared() -> None:
    """A few of a hundred thousand items touch one or two chunks."""
    before = Chunked(range(100_000))
    after = before.replace_items(50_000, 50_010, [1, 2, 3])
    shared = {id(chunk) for chunk in inside.chunks(before)} & {id(chunk) for chunk in inside.chunks(after)}
    assert len(shared) >= len(inside.chunks(before)) - 2
    assert Chunked.of(before) is before


@pytest.mark.parametrize("at", [3, -4])
def test_an_index_out_of_range_is_refused(at: int) -> None:
    with pytest.raises(IndexError):
        Chunked([1, 2, 3])[at]
