"""A filter that lies apart from its meta: what each read fetches of it, what the cache counts, and damage."""

import random
from collections.abc import Callable

import msgspec
import pyarrow as pa
import pytest

from support.buckets.faulty_bucket import FaultyBucket
from support.store.ssts import Put, newest, raw_spec, sort_puts, store_run, to_puts
from support.store.versions import FakeSystem
from tussock.statestore.buckets import open_bucket
from tussock.statestore.contract.records import SstInfo, meta_path
from tussock.statestore.errors import CorruptSst
from tussock.statestore.sst.iterators import ConcatIterator, ReadRange
from tussock.statestore.sst.lookups.lookup import RunIndex, find
from tussock.statestore.sst.lookups.lookup_many import find_many
from tussock.statestore.sst.proof import prove_meta
from tussock.statestore.sst.reader import FILTER, Sstables

KEYS = 4000
PUTS = [Put(b"%05d" % (2 * at), 5, random.Random(at).randbytes(40)) for at in range(KEYS)]
"""Odd numbers are absent."""
EPOCH = 9


def apart(bucket: object, puts: list[Put] = PUTS, **options: object) -> SstInfo:
    """One SST in blocks of 500 bytes, whose filter of 5,000 bytes lies in 16 parts."""
    (info,) = store_run(bucket, puts, block_bytes=500, whole_filter_bytes=2000, **options)  # type: ignore[arg-type]
    assert info.filter_parts == 16
    return info


def part_bytes(info: SstInfo) -> int:
    return (info.meta_bytes - info.head_bytes) // info.filter_parts


def asked(bucket: FaultyBucket) -> list[str]:
    """The requests since the last call: which object each was for."""
    found = [call.path.rpartition(".")[2] for call in bucket.calls]
    bucket.calls.clear()
    return found


def opened(bucket: FaultyBucket, cache_bytes: int = 8 << 20) -> Sstables:
    """A new client, which has nothing cached."""
    bucket.calls.clear()
    return Sstables(bucket, cache_bytes, FakeSystem())


def found_of(sstables: Sstables, runs: list[RunIndex], keys: list[bytes]) -> set[bytes]:
    """Those of the keys that a lookup of all together finds."""
    hits = find_many(sstables, runs, pa.array(keys), EPOCH)
    slots = [slot for _, _, slot in hits.points] + [slot for piece in hits.pieces for slot in piece[2].tolist()]
    return {keys[slot] for slot in slots}


@pytest.fixture
def bucket() -> FaultyBucket:
    return FaultyBucket(open_bucket("memory://"))


def test_a_present_key_costs_the_head_and_a_block(bucket: FaultyBucket) -> None:
    """In the oldest run, where most keys are; further ones cost their block, and the filter is never fetched."""
    info = apart(bucket)
    sstables = opened(bucket)
    for number, put in enumerate(PUTS[:: KEYS // 10]):
        assert find(sstables, [RunIndex([info])], put.key, EPOCH) is not None
        assert asked(bucket) == (["meta", "data"] if number == 0 else ["data"])
    assert sstables.metas.stats().bytes < info.meta_bytes + 400 * sstables.meta(info).blocks


def test_after_a_key_that_is_not_there_the_filter_is_asked(bucket: FaultyBucket) -> None:
    """The first absent key costs a block, later ones parts of the filter: in all three requests, until it is whole."""
    info = apart(bucket)
    sstables = opened(bucket)
    absent = [b"%05d" % (2 * at + 1) for at in random.Random(1).sample(range(KEYS - 1), 500)]
    assert find(sstables, [RunIndex([info])], absent[0], EPOCH) is None
    assert asked(bucket) == ["meta", "data"]
    assert all(find(sstables, [RunIndex([info])], key, EPOCH) is None for key in absent[1:])
    requests = asked(bucket)
    assert requests.count("meta") == 3
    assert requests.count("data") <= 15
    assert sstables.filter(info).is_whole
    assert sstables.metas.stats().bytes > sstables.meta(info).nbytes + info.meta_bytes - info.head_bytes - 200


def test_of_a_newer_run_one_part_is_fetched_first(bucket: FaultyBucket) -> None:
    """It denies most keys that are elsewhere, and then neither head nor block is needed."""
    newer, older = apart(bucket, [Put(one.key + b"n", 5, b"v") for one in PUTS]), apart(bucket)
    sstables = opened(bucket)
    assert find(sstables, [RunIndex([newer]), RunIndex([older])], PUTS[2000].key, EPOCH) is not None
    paths = [call.path for call in bucket.calls]
    assert paths == [meta_path(newer.id), meta_path(older.id), f"sst/{older.id}.data"]
    assert sstables.metas.stats().bytes < 2 * older.head_bytes + 400 * sstables.meta(older).blocks + 3000
    bucket.calls.clear()
    assert find(sstables, [RunIndex([newer]), RunIndex([older])], PUTS[2000].key + b"n", EPOCH) is not None
    assert asked(bucket) == ["meta", "meta", "data"], "other parts, the head, the block"


@pytest.mark.parametrize("count", [20, 1000])
def test_keys_together_fetch_the_filter_where_it_saves_more(bucket: FaultyBucket, count: int) -> None:
    """Of many absent keys the filter is fetched first, by one request; of a few the blocks are no more bytes."""
    info = apart(bucket)
    sstables = opened(bucket)
    absent = pa.array([b"%05d" % (2 * at + 1) for at in random.Random(2).sample(range(KEYS - 1), count)])
    assert find_many(sstables, [RunIndex([info])], absent, EPOCH) == ([], [])
    requests = asked(bucket)
    assert requests[:2] == ["meta", "meta"]
    assert requests.count("meta") == 2
    assert requests.count("data") <= count // 50 + 1
    few = pa.array([b"%05d" % (2 * at + 1) for at in range(3)])
    sstables = opened(bucket)
    for wanted in (["meta", "data"], ["meta"]):
        find_many(sstables, [RunIndex([info])], few, EPOCH)
        sstables.blocks.clear()
        assert asked(bucket) == wanted, "the second time parts of the filter, after a lookup in vain"


def test_scans_and_compactions_leave_the_filter_alone(bucket: FaultyBucket) -> None:
    """They fetch the head and the rows."""
    info = apart(bucket)
    for want in (ReadRange(b"00100", few=True), ReadRange(fill=False)):
        sstables = opened(bucket)
        next(iter(ConcatIterator(sstables, (info,), want)))
        assert asked(bucket)[:2] == ["meta", "data"]
        assert sstables.metas.peek((info.id, FILTER)) is None
        sstables.close()


@pytest.mark.parametrize("cache_bytes", [0, 3000, 20_000, 60_000, 1 << 20])
def test_any_cache_gives_the_same_rows(bucket: FaultyBucket, cache_bytes: int) -> None:
    """Also one that has no room for a head, or for the parts; what it counts stays within its bytes."""
    newer = [Put(put.key, 7, b"new") for put in PUTS[::3]]
    runs = [RunIndex(store_run(bucket, puts, block_bytes=500, whole_filter_bytes=200)) for puts in (newer, PUTS)]
    assert all(run.ssts[0].filter_parts > 8 for run in runs)
    sstables = opened(bucket, cache_bytes)
    expected = newest([newer, PUTS], EPOCH)
    chance = random.Random(cache_bytes)
    for _ in range(3):
        keys = [b"%05d" % chance.randrange(2 * KEYS) for _ in range(60)]
        for key in keys[:20]:
            found = find(sstables, runs, key, EPOCH)
            rows = [] if found is None else to_puts(found.block.rows.slice(found.at, found.at + 1))
            assert rows == ([expected[key]] if key in expected else [])
        assert found_of(sstables, runs, keys) == {key for key in keys if key in expected}
        assert sstables.blocks.stats().bytes + sstables.metas.stats().bytes <= max(cache_bytes, 1)
    sstables.close()


def test_what_is_forgotten_is_fetched_again(bucket: FaultyBucket) -> None:
    """Head and filter of an SST leave the cache together."""
    info = apart(bucket)
    sstables = opened(bucket)
    assert find(sstables, [RunIndex([info])], b"00001", EPOCH, sparse=True) is None
    sstables.meta(info)
    sstables.forget([info.id])
    assert sstables.metas.stats().bytes == 0
    sstables.close()


def test_a_record_without_the_places_is_read_as_well(bucket: FaultyBucket) -> None:
    """A program that did not know them has passed it on: the meta is fetched whole, with its filter."""
    info = msgspec.structs.replace(apart(bucket), head_bytes=0, filter_parts=0)
    sstables = opened(bucket)
    assert find(sstables, [RunIndex([info])], PUTS[3].key, EPOCH) is not None
    assert find(sstables, [RunIndex([info])], b"07001", EPOCH) is None
    keys = [b"%05d" % at for at in range(200)]
    assert found_of(sstables, [RunIndex([info])], keys) == set(keys[::2])
    assert asked(bucket).count("meta") == 1
    sstables.close()


# --- Damage. ------------------------------------------------------------------------------------------------------


def look(sstables: Sstables, info: SstInfo) -> None:
    """Everything that reads a meta, with all parts of the filter."""
    sstables.meta(info)
    sstables.fetch(info, sstables.filter(info), 0, info.filter_parts)


def test_every_changed_byte_of_a_meta_is_found(bucket: FaultyBucket) -> None:
    """In the head and in each part; the error names the object, and the rows beside the damage are read."""
    puts = PUTS[:30]
    (info,) = store_run(bucket, puts, block_bytes=300, whole_filter_bytes=8)
    path = meta_path(info.id)
    data = bucket.get(path)
    sstables = opened(bucket, 0)
    for at in range(len(data)):
        bucket.put(path, data[:at] + bytes([data[at] ^ (1 << at % 8)]) + data[at + 1 :])
        with pytest.raises(CorruptSst, match=path):
            look(sstables, info)
        if at >= info.head_bytes:
            rows = [put for batch in ConcatIterator(sstables, (info,), ReadRange()) for put in to_puts(batch)]
            assert rows == sort_puts(puts)
    bucket.put(path, data)
    look(sstables, info)
    sstables.close()


def test_every_truncation_of_a_meta_is_found(bucket: FaultyBucket) -> None:
    """Down to the empty object."""
    (info,) = store_run(bucket, PUTS[:30], block_bytes=300, whole_filter_bytes=8)
    path = meta_path(info.id)
    data = bucket.get(path)
    sstables = opened(bucket, 0)
    for length in range(len(data)):
        bucket.put(path, data[:length])
        with pytest.raises(CorruptSst, match=path):
            look(sstables, info)
    sstables.close()


@pytest.mark.parametrize("from_head", [True, False], ids=["the head", "the filter"])
def test_a_part_of_another_sst_is_refused(bucket: FaultyBucket, from_head: bool) -> None:
    """Two SSTs of the same keys: neither the head nor the filter of one passes for the other's."""
    info, other = apart(bucket), apart(bucket)
    assert info.head_bytes == other.head_bytes
    path = meta_path(info.id)
    mine, foreign = bucket.get(path), bucket.get(meta_path(other.id))
    cut = info.head_bytes
    bucket.put(path, foreign[:cut] + mine[cut:] if from_head else mine[:cut] + foreign[cut:])
    sstables = opened(bucket)
    with pytest.raises(CorruptSst, match=f"{path}: holds the meta" if from_head else f"{path} part 0 of the filter"):
        look(sstables, info)
    sstables.close()


WRONG: dict[str, Callable[[SstInfo], dict[str, int]]] = {
    "a shorter head": lambda info: {"head_bytes": info.head_bytes - 1},
    "a longer head": lambda info: {"head_bytes": info.head_bytes + 1},
    "fewer parts": lambda info: {"filter_parts": info.filter_parts // 2},
    "more parts": lambda info: {"filter_parts": info.filter_parts * 2},
    "more bytes": lambda info: {"meta_bytes": info.meta_bytes + info.filter_parts},
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_a_record_that_says_other_places_is_refused(
    bucket: FaultyBucket, wrong: Callable[[SstInfo], dict[str, int]]
) -> None:
    """By a reader, and by the proof of an upload before it is committed."""
    info = apart(bucket)
    prove_meta(bucket, info, raw_spec())
    claimed = msgspec.structs.replace(info, **wrong(info))
    sstables = opened(bucket)
    with pytest.raises(CorruptSst, match=meta_path(info.id)):
        sstables.meta(claimed)
    with pytest.raises(CorruptSst, match=meta_path(info.id)):
        prove_meta(bucket, claimed, raw_spec())
    sstables.close()


def test_a_small_filter_stays_in_the_meta(bucket: FaultyBucket) -> None:
    """Up to the bound it is fetched with the rest, by one request."""
    whole = len(PUTS) * 10 // 8
    for bound, parts in ((whole, 0), (whole - 1, 8)):
        (info,) = store_run(bucket, PUTS, whole_filter_bytes=bound)
        assert info.filter_parts == parts
        assert (info.head_bytes > 0) == (parts > 0)
    (info,) = store_run(bucket, PUTS, whole_filter_bytes=1, one_object_bytes=1 << 20)
    assert (info.meta_in_data, info.filter_parts) == (True, 0)
