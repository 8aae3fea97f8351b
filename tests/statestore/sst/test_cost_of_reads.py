"""The cost of a read does not grow with data that it does not read: SSTs of a run, unchanged runs."""

import sys
from collections.abc import Callable

import pyarrow as pa
import pytest

from support import inside
from support.store.ssts import Put, store_run
from tussock.statestore import connect
from tussock.statestore.contract.object_store import ObjectStore
from tussock.statestore.contract.records import SstInfo
from tussock.statestore.sst.iterators import ConcatIterator, ReadRange
from tussock.statestore.sst.lookups.lookup import RunIndex, find
from tussock.statestore.sst.lookups.lookup_many import find_many
from tussock.statestore.sst.reader import Sstables


def calls(work: Callable[[], object]) -> int:
    """The number of functions that `work` calls, in Python and in C."""
    count = 0

    def note_call(frame: object, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(note_call)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count


def run_of(bucket: ObjectStore, ssts: int) -> tuple[SstInfo, ...]:
    run = store_run(bucket, [Put(b"%05d" % at, 1, b"v") for at in range(ssts)], block_bytes=1, sst_bytes=1)
    assert len(run) == ssts
    return run


def wanted_keys(count: int) -> pa.BinaryArray:
    return pa.array([b"%05d" % at for at in range(count)], pa.binary())


@pytest.mark.parametrize("keys", [1, 10, 50])
def test_looking_up_keys_takes_the_same_steps_in_any_run(bucket: ObjectStore, sstables: Sstables, keys: int) -> None:
    """The same number of calls for 50 SSTs and for 1,000."""
    counts = []
    for ssts in (50, 1000):
        runs = [RunIndex(run_of(bucket, ssts))]
        asked = wanted_keys(keys)
        assert len(find_many(sstables, runs, asked, 1).points) == keys
        counts.append(calls(lambda runs=runs, asked=asked: find_many(sstables, runs, asked, 1)))
    assert counts[1] <= counts[0] + 5


@pytest.mark.parametrize("keys", [10, 50, 1000])
def test_a_list_of_keys_takes_no_more_steps_than_its_keys_one_by_one(
    bucket: ObjectStore, sstables: Sstables, keys: int
) -> None:
    """A list of a few keys does not go through whole segments."""
    runs = [RunIndex(store_run(bucket, [Put(b"%05d" % at, 1, b"v" * 50) for at in range(5000)], block_bytes=2000))]
    asked = pa.array([b"%05d" % (at * 4999 // keys) for at in range(keys)], pa.binary())
    names = asked.to_pylist()
    find_many(sstables, runs, asked, 1)
    alone = calls(lambda: [find(sstables, runs, name, 1) for name in names])
    assert calls(lambda: find_many(sstables, runs, asked, 1)) < 1.5 * alone + 60


@pytest.mark.parametrize("keys", [2, 10, 30, 100])
def test_a_list_of_typed_keys_takes_no_more_steps_than_single_gets(keys: int) -> None:
    """Encoding and decoding included: once few keys went through arrays, which took as long as 30 gets."""
    with connect("memory://", compaction=False) as store:
        schema = pa.schema([("k", pa.string()), ("a", pa.int64()), ("b", pa.string())])
        table = store.create_table("typed", schema=schema, primary_key=["k"])
        table.upsert([{"k": f"key{at}", "a": at, "b": "v"} for at in range(2000)], 1)
        store.commit_epoch(1)
        asked = [f"key{at * 1999 // keys}" for at in range(keys)]
        rows = [table.get(key) for key in asked]
        assert table.multi_get(asked).to_pylist() == rows
        alone = calls(lambda: [table.get(key) for key in asked])
        assert calls(lambda: table.multi_get(asked)) < 1.2 * alone + 60


def test_a_scan_opens_the_ssts_of_its_range_without_asking_the_others(bucket: ObjectStore, sstables: Sstables) -> None:
    """Two bisections; once 256 ranges over a run of 1,000 SSTs took 14 ms, because each SST was asked."""
    run = run_of(bucket, 1000)
    opened: list[ConcatIterator] = []
    want = ReadRange(b"00500", b"00502")
    assert calls(lambda: opened.append(ConcatIterator(sstables, run, want))) < 60
    assert [sst.smallest for sst in opened[0].ssts] == [b"00500", b"00501"]
    for start, end in ((None, b"00002"), (b"00998", None), (None, None), (b"0", b"00001"), (b"00500\0", b"00501\0")):
        found = ConcatIterator(sstables, run, ReadRange(start, end)).ssts
        expected = [
            sst for sst in run if (start is None or sst.largest >= start) and (end is None or sst.smallest < end)
        ]
        assert found == expected


def test_runs_that_a_commit_left_alone_are_not_prepared_again() -> None:
    """The index of a run is made once, however many versions have the run."""
    with connect("memory://", compaction=False) as store:
        kv = store.create_table("kv")

        def commit(value: bytes) -> list[RunIndex]:
            epoch = store.new_epoch()
            kv.ingest_batch([(b"a", value)], epoch)
            store.commit_epoch(epoch)
            return inside.table_runs(store, kv)

        first = commit(b"1")
        second = commit(b"2")
        assert [id(run) for run in second[1:]] == [id(run) for run in first]
        store.compact("kv")
        assert kv.get(b"a") == b"2"
        after = inside.table_runs(store, kv)
        assert len(after) == 1
        assert commit(b"3")[1] is after[0]
