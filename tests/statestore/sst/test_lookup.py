"""Point reads: `find` and `find_many` equal a brute-force model, with few requests."""

import random

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.store.ssts import Put, newest, sort_puts, store_run, to_puts, to_rows
from tussock.statestore.base.limits import Limits
from tussock.statestore.base.system import RealSystem
from tussock.statestore.buckets import RequestCounts, open_bucket
from tussock.statestore.contract.object_store import ObjectStore
from tussock.statestore.format.bloom import Bloom
from tussock.statestore.rows.location import locate
from tussock.statestore.rows.rows import Rows
from tussock.statestore.sst.lookups.lookup import RunIndex, find
from tussock.statestore.sst.lookups.lookup_many import Hits, find_many
from tussock.statestore.sst.reader import Sstables
from tussock.statestore.write.sorted_runs import take_hits


def find_one(sstables: Sstables, runs: list[RunIndex], key: bytes, epoch: int) -> Put | None:
    found = find(sstables, runs, key, epoch)
    if found is None:
        return None
    (put,) = to_puts(found.block.rows.slice(found.at, found.at + 1))
    assert found.deleted == (put.value is None)
    if put.value is not None:
        assert found.block.value(found.at) == put.value
    return put


def find_all(sstables: Sstables, runs: list[RunIndex], keys: list[bytes], epoch: int) -> list[Put | None]:
    """`find_many`, spread to one result for each key; no key may have two."""
    answers: list[Put | None] = [None] * len(keys)
    hits = find_many(sstables, runs, pa.array(keys, pa.binary()), epoch)
    for block, at, slot in hits.points:
        assert answers[slot] is None
        (answers[slot],) = to_puts(block.rows.slice(at, at + 1))
    for rows, at, into in hits.pieces:
        assert len(at) == len(into)
        for put, slot in zip(to_puts(rows.take(at)), into.tolist(), strict=True):
            assert answers[slot] is None
            answers[slot] = put
    return answers


# --- Worked cases. ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("block_bytes", [1, 100, 64 << 10])
def test_the_right_one_of_many_versions_is_found(bucket: ObjectStore, block_bytes: int) -> None:
    """At every epoch the right version, over block borders, with neighbours that share its blocks."""
    sstables = Sstables(bucket, 1 << 20, RealSystem(), limits=Limits(segment_bytes=300))
    puts = [Put(key, epoch, b"%s%d" % (key, epoch)) for key in (b"j", b"k", b"l") for epoch in range(120, 0, -2)]
    runs = [RunIndex(store_run(bucket, puts, block_bytes=block_bytes))]
    keys = [b"k", b"i", b"l", b"k\0", b"j", b"k"]
    for epoch in range(125):
        expected = newest([puts], epoch)
        assert find_one(sstables, runs, b"k", epoch) == expected.get(b"k")
        assert find_one(sstables, runs, b"l", epoch) == expected.get(b"l")
        assert find_all(sstables, runs, keys, epoch) == [expected.get(key) for key in keys]
    sstables.close()


def test_a_delete_is_found_like_any_row(bucket: ObjectStore, sstables: Sstables) -> None:
    """It ends the search: older versions of the key in older runs stay hidden."""
    old = store_run(bucket, [Put(b"a", 1, b"1"), Put(b"b", 1, b"1")])
    new = store_run(bucket, [Put(b"a", 2, None)], epoch=2)
    runs = [RunIndex(new), RunIndex(old)]
    assert find_one(sstables, runs, b"a", 2) == Put(b"a", 2, None)
    assert find_one(sstables, runs, b"a", 1) == Put(b"a", 1, b"1")
    assert find_all(sstables, runs, [b"b", b"a"], 2) == [Put(b"b", 1, b"1"), Put(b"a", 2, None)]


def test_a_lookup_without_runs_or_keys_finds_nothing(bucket: ObjectStore, sstables: Sstables) -> None:
    """No row is found."""
    runs = [RunIndex(store_run(bucket, [Put(b"a", 1, b"1")]))]
    assert find(sstables, [], b"a", 1) is None
    assert find_many(sstables, [], pa.array([b"a"]), 1) == Hits([], [])
    assert find_many(sstables, runs, pa.array([], pa.binary()), 1) == Hits([], [])
    assert find_many(sstables, [], pa.array([], pa.binary()), 1) == Hits([], [])


def test_of_one_epoch_spilled_twice_the_newer_run_wins(bucket: ObjectStore, sstables: Sstables) -> None:
    """Both runs have the key at the same epoch."""
    runs = [RunIndex(store_run(bucket, [Put(b"a", 7, value)], epoch=7)) for value in (b"new", b"old")]
    assert find_one(sstables, runs, b"a", 7) == Put(b"a", 7, b"new")
    assert find_all(sstables, runs, [b"a"], 7) == [Put(b"a", 7, b"new")]


def test_runs_above_the_epoch_are_not_opened(bucket: ObjectStore) -> None:
    """Time travel reads no later SST; the filter ends the search for absent keys."""
    runs = [
        RunIndex(store_run(bucket, [Put(b"%03d" % n, epoch, b"v") for n in range(0, 200, 2)], epoch=epoch))
        for epoch in (9, 8, 7)
    ]
    counts = RequestCounts(bucket)
    sstables = Sstables(counts.for_purpose("get"), 1 << 20, RealSystem())
    assert find_one(sstables, runs, b"100", 7) == Put(b"100", 7, b"v")
    assert counts.counts()["get"] == {"get": (1, bucket_size(bucket, runs[2])), "get_range": (1, data_size(runs[2]))}
    assert find_all(sstables, runs, [b"100", b"102"], 6) == [None, None]
    assert counts.counts()["get"]["get"][0] == 1
    sstables.close()


def bucket_size(bucket: ObjectStore, run: RunIndex) -> int:
    return sum(info.meta_bytes for info in run.ssts)


def data_size(run: RunIndex) -> int:
    """Bytes of the blocks; the object's header of 8 bytes is never read."""
    return sum(info.data_bytes - 8 for info in run.ssts)


@pytest.mark.parametrize("many", [False, True], ids=["one by one", "together"])
@pytest.mark.parametrize("older_runs", [0, 2])
def test_absent_keys_cost_hardly_any_block(bucket: ObjectStore, many: bool, older_runs: int) -> None:
    """The filters of all runs deny them, that of the last run as well: at most one in a hundred reads a block."""
    puts = [Put(b"%05d" % (2 * n), 1, b"v" * 20) for n in range(5000)]
    small = [Put(b"0", 1, b""), Put(b"9", 1, b"")]
    runs = [RunIndex(store_run(bucket, small, epoch=9 - n)) for n in range(older_runs)]
    runs.append(RunIndex(store_run(bucket, puts, block_bytes=500, epoch=2)))
    absent = [b"%05d" % (2 * n + 1) for n in range(4000)]
    counts = RequestCounts(bucket)
    sstables = Sstables(counts.for_purpose("get"), 8 << 20, RealSystem())
    sstables.meta(runs[-1].ssts[0])
    if many:
        assert find_all(sstables, runs, absent, 9) == [None] * len(absent)
    else:
        assert all(find(sstables, runs, key, 9) is None for key in absent)
    blocks = counts.counts()["get"].get("get_range", (0, 0))[0]
    assert blocks <= len(absent) // 100
    sstables.close()


def test_keys_that_are_there_are_found_whatever_is_cached(bucket: ObjectStore) -> None:
    """Among absent ones, some in cached blocks, some in cached segments, some in neither."""
    puts = [Put(b"%05d" % (2 * n), 1, b"v" * 20) for n in range(3000)]
    runs = [RunIndex(store_run(bucket, puts, block_bytes=500))]
    keys = [b"%05d" % n for n in range(6000)]
    expected = newest([puts], 2)
    rng = random.Random(18)
    for _ in range(20):
        sstables = Sstables(bucket, 8 << 20, RealSystem(), limits=Limits(segment_bytes=5000))
        for key in rng.sample(keys, 20):
            find(sstables, runs, key, 2)
        low = rng.randrange(5000)
        find_many(sstables, runs, pa.array(keys[low : low + 500]), 2)
        asked = rng.sample(keys, rng.choice([5, 50, 1500]))
        assert find_all(sstables, runs, asked, 2) == [expected.get(key) for key in asked]
        sstables.close()


@pytest.mark.parametrize("many", [False, True], ids=["one by one", "together"])
def test_blocks_at_hand_are_looked_into_without_a_filter(
    bucket: ObjectStore, many: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the last run: there a filter could save nothing."""
    puts = [Put(b"%05d" % (2 * n), 1, b"v" * 20) for n in range(1000)]
    runs = [RunIndex(store_run(bucket, puts, block_bytes=500))]
    sstables = Sstables(bucket, 8 << 20, RealSystem())
    keys = [b"%05d" % n for n in range(2000)]
    find_all(sstables, runs, keys, 2)
    monkeypatch.delattr(Bloom, "may_contain")
    monkeypatch.delattr(Bloom, "may_contain_many")
    expected = newest([puts], 2)
    for key in keys if not many else ():
        assert find_one(sstables, runs, key, 2) == expected.get(key)
    for count in (10, 100, 2000) if many else ():
        assert find_all(sstables, runs, keys[:count], 2) == [expected.get(key) for key in keys[:count]]
    sstables.close()


@pytest.mark.parametrize("around", [2, 60], ids=["few keys", "many keys"])
def test_versions_that_are_too_new_are_not_read(bucket: ObjectStore, around: int) -> None:
    """At an old epoch a key of 300 versions, in 60 blocks, costs the one that has it, which the block index tells."""
    hot = [Put(b"hot", epoch, b"%d" % epoch * 20) for epoch in range(1, 301)]
    cold = [Put(b"%s%02d" % (name, n), 1, b"v") for name in (b"a", b"z") for n in range(around)]
    puts = sort_puts([*hot, *cold])
    runs = [RunIndex(store_run(bucket, puts, block_bytes=400))]
    asked = [put.key for put in cold] + [b"hot"]
    for epoch in (1, 2, 150, 299, 300, 301):
        expected = newest([puts], epoch)
        counts = RequestCounts(bucket)
        sstables = Sstables(counts.for_purpose("get"), 0, RealSystem(), limits=Limits(segment_bytes=1000))
        # The block where the key begins has rows of others, and is read twice without a cache.
        assert find_one(sstables, runs, b"hot", epoch) == expected[b"hot"]
        assert counts.counts()["get"]["get_range"][0] <= 3
        assert find_all(sstables, runs, [b"hot"], epoch) == [expected[b"hot"]]
        assert counts.counts()["get"]["get_range"][0] <= 6
        assert find_all(sstables, runs, asked, epoch) == [expected[key] for key in asked]
        assert counts.counts()["get"]["get_range"][0] <= 20
        sstables.close()


def test_keys_found_together_share_requests(bucket: ObjectStore) -> None:
    """Many keys of a segment make one request, few keys one for each of their blocks; cached ones make none."""
    puts = [Put(b"%05d" % n, 1, b"v" * 20) for n in range(2000)]
    runs = [RunIndex(store_run(bucket, puts, block_bytes=500))]
    counts = RequestCounts(bucket)
    sstables = Sstables(counts.for_purpose("get"), 1 << 20, RealSystem())
    few = [b"00000", b"00001", b"01000", b"01999"]
    assert find_all(sstables, runs, few, 1) == [puts[0], puts[1], puts[1000], puts[1999]]
    assert counts.counts()["get"]["get_range"][0] == 3
    many = [put.key for put in puts[::7]]
    assert find_all(sstables, runs, many, 1) == puts[::7]
    assert counts.counts()["get"]["get_range"][0] == 4
    assert find_all(sstables, runs, [put.key for put in puts], 1) == puts
    assert counts.counts()["get"]["get_range"][0] == 4
    sstables.close()


def test_keys_are_located_in_rows_in_memory() -> None:
    """Keys of the same and of another width, below, between and above the present ones."""
    puts = [Put(b"bb", 5, b"1"), Put(b"bb", 3, b"2"), Put(b"dd", 4, b"3")]
    for wanted in ([b"aa", b"bb", b"cc", b"dd", b"ee"], [b"", b"b", b"bb", b"bb\0", b"dd", b"e"]):
        for epoch in range(7):
            at, hit = locate(to_rows(puts), pa.array(wanted), epoch)
            found = {wanted[slot]: puts[row] for row, slot in zip(at.tolist(), hit.tolist(), strict=True)}
            assert found == newest([puts], epoch)
    once = [Put(b"bb", 5, b"1"), Put(b"dd", 5, b"3")]
    assert locate(to_rows(once, epoch=5), pa.array([b"bb", b"dd"]), 5)[0].tolist() == [0, 1]
    assert locate(to_rows(once, epoch=5), pa.array([b"bb", b"dd"]), 4)[0].tolist() == []


def test_pieces_are_gathered_in_the_order_of_the_keys() -> None:
    """Absent and deleted keys give nulls; a column that was not asked for is not touched."""
    first = to_rows([Put(b"a", 1, b"A"), Put(b"b", 1, None)], columns=2)
    second = to_rows([Put(b"c", 1, b"C")], columns=2)
    pieces = [(first, np.array([1, 0]), np.array([0, 3])), (second, np.array([0, 0]), np.array([2, 4]))]
    found, (lengths, values) = take_hits(Hits([], pieces), 5, [1, 0], [pa.int64(), pa.binary()], "kv")
    assert found.tolist() == [False, False, True, True, True]
    assert lengths.to_pylist() == [None, None, 1, 1, 1]
    assert values.to_pylist() == [None, None, b"C", b"A", b"C"]
    found, (nothing,) = take_hits(Hits([], []), 2, [0], [pa.binary()], "kv")
    assert (found.tolist(), nothing.to_pylist(), nothing.type) == ([False, False], [None, None], pa.binary())


# --- Against the model. -------------------------------------------------------------------------------------------

FIXED = [b"%02d" % n for n in range(14)]
VARIABLE = [b"", b"\0", b"a", b"a\0", b"a\0\0", b"aa", b"b", b"b\0a", b"\xff", b"\xff\xff", b"c" * 30, b"cc"]


@st.composite
def runs_and_keys(draw: st.DrawFn) -> tuple[list[list[Put]], list[bytes]]:
    """Runs, newest first, where newer ones hold the newer versions of a key; and keys to ask for, with repeats."""
    keys = draw(st.sampled_from([FIXED, VARIABLE]))
    runs: list[list[Put]] = []
    floor: dict[bytes, int] = {}
    for number in range(draw(st.integers(0, 4))):
        run = []
        for key in sorted(draw(st.sets(st.sampled_from(keys), max_size=9))):
            epochs = draw(st.sets(st.integers(floor.get(key, 1), floor.get(key, 1) + 5), min_size=1, max_size=5))
            run += [
                Put(key, epoch, None if draw(st.integers(0, 4)) == 0 else b"%d/%d" % (number, epoch))
                for epoch in epochs
            ]
            floor[key] = max(epochs) + 1
        if run:
            runs.insert(0, sort_puts(run))
    wanted = draw(st.lists(st.sampled_from([*keys, b"absent", b"~~"]), max_size=20))
    return runs, wanted


@settings(max_examples=200, deadline=None, derandomize=True)
@given(data=st.data(), drawn=runs_and_keys())
def test_lookups_equal_the_model(data: st.DataObject, drawn: tuple[list[list[Put]], list[bytes]]) -> None:
    """Any runs, epochs and requests, any sizes of blocks, segments, SSTs and caches; each asked twice."""
    runs, wanted = drawn
    epoch = data.draw(st.integers(0, 30), "epoch")
    block_bytes = data.draw(st.sampled_from([1, 40, 200]), "block bytes")
    sst_bytes = data.draw(st.sampled_from([1, 150, 1 << 20]), "sst bytes")
    segment_bytes = data.draw(st.sampled_from([1, 200, 1 << 20]), "segment bytes")
    cache_bytes = data.draw(st.sampled_from([0, 3000, 1 << 20]), "cache bytes")
    bucket = open_bucket("memory://")
    sizes = {"block_bytes": block_bytes, "sst_bytes": sst_bytes}
    wholes = [data.draw(st.sampled_from([1, 4, 1 << 20]), "whole filter bytes") for _ in runs]
    indexes = [
        RunIndex(store_run(bucket, run, **sizes, whole_filter_bytes=whole))
        for run, whole in zip(runs, wholes, strict=True)
    ]
    expected = newest(runs, epoch)
    sstables = Sstables(bucket, cache_bytes, RealSystem(), limits=Limits(segment_bytes=segment_bytes))
    for _ in range(2):
        assert [find_one(sstables, indexes, key, epoch) for key in wanted] == [expected.get(key) for key in wanted]
        assert find_all(sstables, indexes, wanted, epoch) == [expected.get(key) for key in wanted]
    sstables.close()


@settings(max_examples=100, deadline=None, derandomize=True)
@given(data=st.data())
def test_commits_equal_the_model(data: st.DataObject) -> None:
    """Runs of one epoch each, whose epoch the version gives, as after commits and before any compaction."""
    epochs = data.draw(st.lists(st.integers(1, 20), max_size=5, unique=True), "epochs")
    bucket = open_bucket("memory://")
    runs, indexes = [], []
    for epoch in sorted(epochs, reverse=True):
        keys = data.draw(st.sets(st.sampled_from(VARIABLE), min_size=1), "keys")
        puts = sort_puts(Put(key, epoch, b"%d" % epoch) for key in keys)
        whole = data.draw(st.sampled_from([1, 1 << 20]), "whole filter bytes")
        stored = store_run(bucket, puts, block_bytes=40, sst_bytes=100, epoch=1, whole_filter_bytes=whole)
        runs.append(puts)
        # As a commit stamps what was uploaded under a stand-in epoch.
        indexes.append(
            RunIndex([msgspec.structs.replace(info, epoch=epoch, min_epoch=epoch, max_epoch=epoch) for info in stored])
        )
    wanted = data.draw(st.lists(st.sampled_from([*VARIABLE, b"absent"])), "wanted")
    at = data.draw(st.integers(0, 25), "at")
    sstables = Sstables(bucket, data.draw(st.sampled_from([0, 1 << 20]), "cache bytes"), RealSystem())
    expected = newest(runs, at)
    assert [find_one(sstables, indexes, key, at) for key in wanted] == [expected.get(key) for key in wanted]
    assert find_all(sstables, indexes, wanted, at) == [expected.get(key) for key in wanted]
    sstables.close()


def test_a_long_run_of_rows_keeps_lookups_exact(bucket: ObjectStore, sstables: Sstables) -> None:
    """NumPy's byte strings ignore trailing zero bytes, which must not make keys equal."""
    names = sorted({b"%d\0%d" % (n % 10, n) for n in range(50)} | {b"k" + b"\0" * n for n in range(20)})
    puts = [Put(name, 1, name) for name in names]
    runs = [RunIndex(store_run(bucket, puts, block_bytes=60))]
    wanted = [*names, *(name + b"\0" for name in names), *(name[:-1] for name in names)]
    expected = newest([puts], 1)
    assert find_all(sstables, runs, wanted, 1) == [expected.get(name) for name in wanted]
    rows = to_rows(puts)
    assert isinstance(rows, Rows)
    at, hit = locate(rows, pa.array(wanted), 1)
    assert len(at) == len(hit) == sum(name in expected for name in wanted)
