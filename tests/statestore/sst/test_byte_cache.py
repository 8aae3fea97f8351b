"""The cache stays within its limit, keeps used values, and returns no wrong value."""

import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support import inside
from tussock.statestore.errors import InvalidOption
from tussock.statestore.sst.cache import ByteCache

KEYS = st.tuples(st.sampled_from(["s1", "s2", "s3"]), st.integers(0, 12))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), KEYS, st.integers(1, 60)),
        st.tuples(st.just("get"), KEYS, st.just(0)),
        st.tuples(st.just("drop"), KEYS, st.just(0)),
        st.tuples(st.just("remove"), KEYS, st.just(0)),
        st.tuples(st.just("grow"), KEYS, st.integers(1, 60)),
        st.tuples(st.just("replace"), KEYS, st.integers(1, 60)),
    ),
    max_size=150,
)


@settings(max_examples=150, deadline=None)
@given(steps=STEPS, capacity=st.integers(0, 200))
def test_never_above_the_limit_and_never_a_wrong_value(
    steps: list[tuple[str, tuple[str, int], int]], capacity: int
) -> None:
    """After any steps: bytes within the limit and equal to the sum of its values; a hit is the last value put."""
    cache = ByteCache(capacity)
    newest: dict[tuple[str, int], tuple[int, int]] = {}
    for number, (operation, key, size) in enumerate(steps):
        if operation == "put":
            cache.put(key, number, size)
            newest[key] = (number, size)
            assert (cache.get(key) == number) == (size <= capacity)
        elif operation == "replace":
            others = [(key[0], block) for block in range(13) if block != key[1]]
            cache.put(key, number, size, instead_of=others)
            newest[key] = (number, size)
            if size <= capacity:
                assert cache.get(key) == number
                assert all(cache.get(other) is None for other in others)
        elif operation == "grow":
            value, before = newest.get(key, (None, 0))
            was_there = cache.get(key) is not None
            cache.grow(key, value, size)
            cache.grow(key, "another value", size)
            if was_there:
                newest[key] = (value, before + size)
                assert cache.get(key) in (None, value)
        elif operation == "remove":
            cache.remove([key])
            assert cache.get(key) is None
        elif operation == "get":
            assert cache.get(key) in (None, newest.get(key, (None,))[0])
        else:
            cache.drop({key[0]})
            newest = {other: value for other, value in newest.items() if other[0] != key[0]}
            assert all(cache.get((key[0], block)) is None for block in range(13))
        there = [size for other, (_, size) in newest.items() if cache.get(other) is not None]
        assert cache.stats().bytes == sum(there) <= capacity
        assert cache.stats().entries == len(there)


def test_a_value_that_takes_the_place_of_a_used_one_counts_as_used() -> None:
    """A later scan does not push it out; a value that takes the place of an unused one has to be used first."""
    for hit in (True, False):
        cache = ByteCache(100)
        for block in range(4):
            cache.put(("a", block), "block", 10)
        if hit:
            cache.get(("a", 2))
        cache.put(("a", -1), "segment", 40, instead_of=[("a", block) for block in range(4)])
        assert cache.stats().bytes == 40
        for number in range(50):
            cache.put(("scan", number), "", 10)
        assert (cache.get(("a", -1)) == "segment") == hit


def test_places_of_removed_values_do_not_pile_up() -> None:
    """A cache that never has to evict keeps no more places than twice its values."""
    cache = ByteCache(1000)
    for number in range(10_000):
        cache.put(("a", number % 3), number, 1 + number % 2)
        cache.remove([("a", (number + 1) % 3)])
    assert inside.small_entries(cache) < 200


@pytest.mark.parametrize("rounds_between_hits", [1, 20])
def test_a_scan_larger_than_the_cache_leaves_hot_values(rounds_between_hits: int) -> None:
    """Cold values of ten times the capacity pass through; every hot value that was hit before stays."""
    cache = ByteCache(1000)
    hot = [("hot", number) for number in range(50)]
    for _ in range(2):  # the second round finds those that had to leave before they were hit
        for key in hot:
            if cache.get(key) is None:
                cache.put(key, "hot", 10)
            assert cache.get(key) == "hot"
    for number in range(1000):
        if number % rounds_between_hits == 0:
            for key in hot:
                assert cache.get(key) == "hot", (number, key)
        cache.put(("cold", number), "cold", 10)
    assert cache.stats().bytes <= 1000


def test_a_value_that_comes_back_soon_outlives_a_scan() -> None:
    """A key that was evicted unhit and is fetched again goes to the main queue, which a scan does not reach."""
    cache = ByteCache(100)
    cache.put(("a", 0), "first", 10)
    for number in range(10):
        cache.put(("scan", number), "", 10)
    assert cache.get(("a", 0)) is None
    cache.put(("a", 0), "again", 10)
    for number in range(10, 60):
        cache.put(("scan", number), "", 10)
    assert cache.get(("a", 0)) == "again"


def test_a_value_larger_than_the_capacity_is_not_kept() -> None:
    """It evicts no other value, and removes its own older value."""
    cache = ByteCache(100)
    cache.put(("a", 0), "small", 40)
    cache.put(("b", 0), "small", 40)
    cache.put(("a", 0), "large", 101)
    assert cache.get(("a", 0)) is None
    assert cache.get(("b", 0)) == "small"
    assert cache.stats().bytes == 40


def test_a_cache_of_no_bytes_keeps_nothing() -> None:
    """A capacity of 0 switches caching off."""
    cache = ByteCache(0)
    cache.put(("a", 0), "value", 1)
    assert cache.get(("a", 0)) is None


def test_drop_removes_the_values_of_an_sst_only() -> None:
    """All values of a vacuumed SST leave at once, also from later queues."""
    cache = ByteCache(1000)
    for sst in ("s1", "s2", "s3"):
        for block in range(3):
            cache.put((sst, block), block, 10)
    cache.drop({"s1", "s3"})
    assert [cache.get((sst, 1)) for sst in ("s1", "s2", "s3")] == [None, 1, None]
    assert cache.stats().bytes == 30
    cache.clear()
    assert cache.get(("s2", 1)) is None
    assert cache.stats().bytes == 0


def test_stats_count_misses_and_evictions() -> None:
    """The statistics show users whether the cache is too small."""
    cache = ByteCache(20)
    assert cache.get(("a", 0)) is None
    for number in range(3):
        cache.put(("a", number), number, 10)
    stats = cache.stats()
    assert (stats.entries, stats.bytes, stats.capacity_bytes, stats.misses, stats.evictions) == (2, 20, 20, 1, 1)


@pytest.mark.parametrize("size", [0, -1])
def test_impossible_sizes_are_refused(size: int) -> None:
    """A value without a size would never be evicted."""
    with pytest.raises(InvalidOption, match=f"cannot have {size} bytes"):
        ByteCache(10).put(("a", 0), "value", size)


def test_a_negative_capacity_is_refused() -> None:
    """The message says what is accepted."""
    with pytest.raises(InvalidOption, match="give 0 or more"):
        ByteCache(-1)


def test_threads_get_the_right_values_within_the_limit() -> None:
    """Four threads put, hit and drop at once; no value is ever another key's."""
    cache = ByteCache(2000)
    wrong: list[object] = []

    def work(seed: int) -> None:
        for step in range(3000):
            key = (f"s{step % 3}", (step * (seed + 7)) % 50)
            value = cache.get(key)
            if value is None:
                cache.put(key, key, 1 + key[1])
            elif value != key:
                wrong.append((key, value))
            if step % 500 == 499:
                cache.drop({f"s{seed % 3}"})

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    cache.put(("last", 0), "value", 1)
    assert cache.stats().bytes <= 2000


def test_a_cache_that_gets_smaller_evicts_what_has_no_place() -> None:
    """As a new value would: the cold ones first; and it takes as much as before once it is larger again."""
    cache = ByteCache(100)
    for number in range(10):
        cache.put(("a", number), number, 10)
    assert cache.get(("a", 3)) == 3
    cache.resize(30)
    assert cache.get(("a", 3)) == 3
    assert (cache.stats().entries, cache.stats().bytes, cache.stats().capacity_bytes) == (3, 30, 30)
    cache.put(("b", 0), 0, 31)
    assert cache.get(("b", 0)) is None
    cache.resize(100)
    for number in range(7):
        cache.put(("b", number), number, 10)
    assert cache.stats().bytes == 100
    cache.resize(0)
    assert (cache.stats().entries, cache.stats().bytes) == (0, 0)
