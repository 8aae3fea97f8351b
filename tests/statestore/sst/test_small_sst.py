"""A small SST is one object that ends with its meta: written with one request, and opened with one."""

import random
from collections.abc import Callable

import pytest

from support.buckets.faulty_bucket import FaultyBucket
from support.store.ssts import Put, raw_spec, store_run, to_puts, to_rows
from support.store.versions import FakeSystem
from tussock.statestore.base.limits import DEFAULT_LIMITS
from tussock.statestore.buckets import open_bucket
from tussock.statestore.contract.records import SstInfo, data_path, meta_object, meta_path, object_sizes
from tussock.statestore.errors import CorruptSst
from tussock.statestore.format.meta import META_LENGTH
from tussock.statestore.sst.iterators import ConcatIterator, ReadRange
from tussock.statestore.sst.lookups.lookup import RunIndex, find
from tussock.statestore.sst.reader import Sstables
from tussock.statestore.sst.writer import SstWriter
from tussock.statestore.write.uploader import Uploader

PUTS = [Put(b"%04d" % at, 5, b"value %d" % at) for at in range(300)]


def small(bucket: object, puts: list[Put] = PUTS, **options: object) -> SstInfo:
    """One SST of one object, in blocks of 300 bytes."""
    (info,) = store_run(bucket, puts, block_bytes=300, one_object_bytes=1 << 24, **options)  # type: ignore[arg-type]
    assert info.meta_in_data
    return info


def rows_of(sstables: Sstables, info: SstInfo, want: ReadRange | None = None) -> list[Put]:
    return [put for rows in ConcatIterator(sstables, (info,), want or ReadRange()) for put in to_puts(rows)]


def operations(bucket: FaultyBucket) -> list[str]:
    """The requests to the bucket since the last call."""
    asked = [call.operation for call in bucket.calls]
    bucket.calls.clear()
    return asked


@pytest.fixture
def bucket() -> FaultyBucket:
    return FaultyBucket(open_bucket("memory://"))


@pytest.mark.parametrize("one_object", [True, False])
def test_an_upload_is_one_object_up_to_the_bound(bucket: FaultyBucket, one_object: bool) -> None:
    """At the bound an SST is one object, with a byte more it is two; the record says which, and all sizes."""
    (encoded,) = SstWriter(raw_spec(), sst_bytes=1 << 20, epoch_inherited=False).write([to_rows(PUTS)])
    data_bytes = encoded.objects("0" * 32)[0].data_bytes
    bound = data_bytes - (not one_object)
    uploader = Uploader(bucket, FakeSystem())
    writer = SstWriter(raw_spec(), sst_bytes=1 << 20, epoch_inherited=False, one_object_bytes=bound)
    (info,) = uploader.upload(writer.write([to_rows(PUTS)]))
    uploader.close()
    assert operations(bucket) == ["put"] * (1 if one_object else 2)
    assert info.meta_in_data == one_object
    assert info.data_bytes == data_bytes
    paths = {data_path(info.id)} if one_object else {data_path(info.id), meta_path(info.id)}
    assert object_sizes(info).keys() == paths
    assert meta_object(info) in paths
    assert {found.path: found.size for found in bucket.list("sst/")} == object_sizes(info)
    assert rows_of(Sstables(bucket, 1 << 20, FakeSystem()), info) == PUTS


def test_the_bound_is_the_documented_one() -> None:
    """Decision 0014 and the page on formats have the same bound."""
    assert DEFAULT_LIMITS.one_object_bytes == 256 << 10


READS: dict[str, Callable[[Sstables, SstInfo], object]] = {
    "scan": rows_of,
    "part of a scan": lambda tables, info: rows_of(tables, info, ReadRange(b"0100", b"0120")),
    "some columns": lambda tables, info: rows_of(tables, info, ReadRange(columns=())),
    "compaction": lambda tables, info: rows_of(tables, info, ReadRange(fill=False)),
    "point reads": lambda tables, info: [find(tables, [RunIndex([info])], put.key, 9) for put in PUTS[::10]],
}


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_one_request_brings_meta_and_blocks(bucket: FaultyBucket, read: Callable[[Sstables, SstInfo], object]) -> None:
    """Later reads find all of it in the cache, whichever part was read first."""
    info = small(bucket)
    operations(bucket)
    sstables = Sstables(bucket, 1 << 20, FakeSystem())
    assert read(sstables, info)
    assert operations(bucket) == ["get"]
    for again in READS.values():
        again(sstables, info)
    assert operations(bucket) == []


def test_only_the_meta_of_a_large_object_is_fetched(bucket: FaultyBucket) -> None:
    """Another writer may have had a higher bound: the meta is read from the end of the object."""
    puts = [Put(b"%06d" % at, 5, random.Random(at).randbytes(900)) for at in range(1500)]
    info = small(bucket, puts, sst_bytes=1 << 24)
    assert info.data_bytes > 1 << 20
    operations(bucket)
    sstables = Sstables(bucket, 1 << 24, FakeSystem())
    sstables.meta(info)
    assert operations(bucket) == ["get_range"]
    assert rows_of(sstables, info) == puts


def test_a_compaction_of_small_ssts_leaves_used_ones_in_the_cache(bucket: FaultyBucket) -> None:
    """A compaction of many small SSTs does not push out blocks that readers use."""
    used, *others = [small(bucket) for _ in range(60)]
    size = sum(object_sizes(used).values())
    sstables = Sstables(bucket, 40 * size, FakeSystem())
    for _ in range(2):
        rows_of(sstables, used)
    for info in others:
        rows_of(sstables, info, ReadRange(fill=False))
    sstables.metas.clear()
    operations(bucket)
    segment = sstables.meta(used).segment_numbers[0]
    assert sstables.has_segment(used, segment)
    found = [info for info in others if sstables.blocks.peek((info.id, "whole")) is not None]
    assert len(found) < len(others)
    assert sstables.blocks.stats().evictions > 0


def test_damage_in_transit_is_not_cached(bucket: FaultyBucket) -> None:
    """The damaged answer is refused by name, and the next read makes a new request."""
    info = small(bucket)
    path = data_path(info.id)
    whole = bucket.get(path)
    sstables = Sstables(bucket, 1 << 20, FakeSystem())
    for at, where in ((20, "block 0 at offset 8"), (info.data_bytes + 20, "checksum mismatch")):
        bucket.put(path, whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(CorruptSst, match=f"{path}.*{where}"):
            rows_of(sstables, info)
        bucket.put(path, whole)
        assert rows_of(sstables, info) == PUTS
        sstables.forget([info.id])


@pytest.mark.parametrize("lost", [1, META_LENGTH.size, 40])
def test_an_object_that_lost_its_end_is_refused(bucket: FaultyBucket, lost: int) -> None:
    """One that has grown is refused, too."""
    info = small(bucket)
    whole = bucket.get(data_path(info.id))
    for damaged in (whole[:-lost], whole + bytes(lost)):
        bucket.put(data_path(info.id), damaged)
        with pytest.raises(CorruptSst, match=r"a meta of \d+ bytes, its header says|expected at most \d+ bytes"):
            rows_of(Sstables(bucket, 1 << 20, FakeSystem()), info)


def test_the_object_of_another_sst_is_refused(bucket: FaultyBucket) -> None:
    """Also if it has the same size and rows."""
    info, other = small(bucket), small(bucket)
    bucket.put(data_path(info.id), bucket.get(data_path(other.id)))
    with pytest.raises(CorruptSst, match=f"{data_path(info.id)}: holds the meta of SST {other.id}"):
        rows_of(Sstables(bucket, 1 << 20, FakeSystem()), info)
