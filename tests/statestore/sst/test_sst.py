"""SSTs: how a run is cut into blocks and objects, its caches and requests, and damage of every kind."""

import gc
import random
import struct
import threading
import tracemalloc
from itertools import pairwise

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from crc32c import crc32c

from support.buckets.faulty_bucket import Call, Fate, FaultyBucket
from support.store.ssts import Put, raw_spec, sort_puts, store_run, store_ssts, to_puts, to_rows
from support.store.versions import FakeSystem
from tussock.statestore.base.limits import Limits
from tussock.statestore.base.system import RealSystem
from tussock.statestore.buckets import RequestCounts, open_bucket
from tussock.statestore.contract.object_store import ObjectStore
from tussock.statestore.contract.records import SstInfo, TableSpec, data_path, meta_path
from tussock.statestore.errors import CorruptSst, ObjectNotFound, ObjectStoreUnavailable
from tussock.statestore.format import meta as sst_meta
from tussock.statestore.format.hashing import hash_key
from tussock.statestore.format.meta import LoadedMeta
from tussock.statestore.format.value_bounds import ColumnBounds
from tussock.statestore.sst.iterators import ConcatIterator, ReadRange
from tussock.statestore.sst.reader import Sstables
from tussock.statestore.sst.writer import SstWriter, value_schema
from tussock.statestore.write.uploader import Uploader

CACHES = [0, 1, 5_000, 1 << 20]


def puts(count: int, *, versions: int = 1, size: int = 20) -> list[Put]:
    """`count` keys in `versions` each; every seventh version is a delete."""
    return [
        Put(b"%05d" % n, 10 + epoch, None if (n + epoch) % 7 == 0 else b"%d-%d" % (n, epoch) + b"." * size)
        for n in range(count)
        for epoch in range(versions, 0, -1)
    ]


def read_all(sstables: Sstables, run: tuple[SstInfo, ...]) -> list[Put]:
    return [put for rows in ConcatIterator(sstables, run, ReadRange()) for put in to_puts(rows)]


@pytest.mark.parametrize("cache_bytes", CACHES)
@pytest.mark.parametrize("codec", ["none", "lz4", "zstd"])
@pytest.mark.parametrize("block_bytes", [1, 300, 64 << 10])
@pytest.mark.parametrize("versions", [1, 40])
def test_a_run_comes_back(bucket: ObjectStore, versions: int, block_bytes: int, codec: str, cache_bytes: int) -> None:
    """For any sizes of blocks, SSTs and caches, and read twice."""
    batch = puts(200 // versions, versions=versions)
    run = store_run(bucket, batch, block_bytes=block_bytes, sst_bytes=3000, compression=codec)
    sstables = Sstables(bucket, cache_bytes, RealSystem())
    for _ in range(2):
        assert read_all(sstables, run) == sort_puts(batch)
    assert sstables.blocks.stats().bytes + sstables.metas.stats().bytes <= max(cache_bytes, 1)
    sstables.close()


@pytest.mark.parametrize("block_bytes", [1, 300, 64 << 10])
def test_the_records_of_an_sst_agree(bucket: ObjectStore, sstables: Sstables, block_bytes: int) -> None:
    """Rows, deletes, key range, epochs and sizes agree in the version's record, the meta, the blocks and the rows."""
    batch = sort_puts(puts(50, versions=4))
    run = store_run(bucket, batch, block_bytes=block_bytes, sst_bytes=1000)
    rest = batch
    for info in run:
        meta = sstables.meta(info)
        held, rest = rest[: info.rows], rest[info.rows :]
        assert (info.smallest, info.largest) == (held[0].key, held[-1].key) == (meta.smallest, meta.largest)
        assert info.deletes == meta.deletes == sum(put.value is None for put in held)
        assert (info.epoch, info.min_epoch, info.max_epoch) == (
            0,
            min(p.epoch for p in held),
            max(p.epoch for p in held),
        )
        assert info.data_bytes == meta.data_bytes == len(bucket.get(data_path(info.id)))
        assert info.meta_bytes == len(bucket.get(meta_path(info.id)))
        for block in range(meta.blocks):
            here, held = held[: meta.block_rows[block]], held[meta.block_rows[block] :]
            assert meta.first_keys[block] == here[0].key
            assert meta.block_deletes[block] == sum(put.value is None for put in here)
            assert (meta.min_epoch[block], meta.max_epoch[block]) == (
                min(put.epoch for put in here),
                max(put.epoch for put in here),
            )
        assert held == []
    assert rest == []


def test_blocks_have_about_the_size_of_the_option(bucket: ObjectStore, sstables: Sstables) -> None:
    """No block but one of a single row is much larger than the table's option, and none is tiny."""
    run = store_run(bucket, puts(2000), block_bytes=1000)
    sizes = sstables.meta(run[0]).raw_length[:-1]
    assert sizes.max() < 1000 * 1.5
    assert sizes.min() > 500


def test_a_value_larger_than_a_block_has_a_separate_block(bucket: ObjectStore, sstables: Sstables) -> None:
    """Its neighbours stay in blocks of the usual size."""
    batch = [Put(b"%02d" % n, 1, b"v" * (5000 if n == 25 else 40)) for n in range(50)]
    run = store_run(bucket, batch, block_bytes=500)
    meta = sstables.meta(run[0])
    large = np.flatnonzero(meta.raw_length > 1000).tolist()
    assert len(large) == 1
    assert meta.block_rows[large[0]] == 1
    assert meta.first_keys[large[0]] == b"25"
    assert read_all(sstables, run) == batch


def test_an_sst_may_have_one_key(bucket: ObjectStore, sstables: Sstables) -> None:
    """Its versions fill many blocks, and neither an SST nor a segment may end among them."""
    batch = [Put(b"k", epoch, b"v" * 50) for epoch in range(500, 0, -1)]
    run = store_run(bucket, batch, block_bytes=200, sst_bytes=1000)
    assert len(run) == 1
    meta = sstables.meta(run[0])
    assert meta.blocks > 50
    assert list(meta.continues) == [0] + [1] * (meta.blocks - 1)
    assert meta.block_of(b"k") == 0
    assert read_all(sstables, run) == batch


def test_an_sst_may_have_only_deletes(bucket: ObjectStore, sstables: Sstables) -> None:
    """Deletes are rows: they have keys, epochs and a place in the filter."""
    batch = [Put(b"%03d" % n, 5, None) for n in range(300)]
    run = store_run(bucket, batch, block_bytes=500)
    assert sum(info.deletes for info in run) == 300
    assert read_all(sstables, run) == batch
    bloom = sstables.meta(run[0]).bloom
    assert bloom is not None
    assert all(bloom.may_contain(hash_key(put.key)) for put in batch)


@pytest.mark.parametrize("sst_bytes", [100, 1000, 10_000])
@pytest.mark.parametrize("batch_rows", [1, 7, 1000])
def test_ssts_are_split_by_size_and_never_inside_a_key(bucket: ObjectStore, batch_rows: int, sst_bytes: int) -> None:
    """Ranges ascend without overlap; no SST is much larger than the option; the input's batches leave no trace."""
    batch = sort_puts(puts(300, versions=3))
    # The writer's input keeps the versions of a key in one batch, as all iterators do.
    parts = [to_rows(batch[start : start + 3 * batch_rows]) for start in range(0, len(batch), 3 * batch_rows)]
    run = store_ssts(bucket, raw_spec(block_bytes=500), parts, sst_bytes=sst_bytes)
    assert len(run) > 1
    assert all(before.largest < after.smallest for before, after in pairwise(run))
    assert sum(info.rows for info in run) == len(batch)
    sstables = Sstables(bucket, 0, RealSystem())
    assert read_all(sstables, run) == batch
    for info in run:
        # What is over the size is at most the last block, as no key here fills half of one.
        assert sstables.meta(info).raw_length[:-1].sum() < sst_bytes + 300
    sstables.close()


def test_a_run_without_rows_has_no_sst(bucket: ObjectStore) -> None:
    """Without batches, and with empty ones."""
    assert store_ssts(bucket, raw_spec(), []) == ()
    assert store_ssts(bucket, raw_spec(), [to_rows([]), to_rows([])]) == ()
    assert list(bucket.list("sst/")) == []


def test_half_full_ssts_end_at_the_border_of_a_virtual_node(bucket: ObjectStore) -> None:
    """A reader of a range of virtual nodes meets few other SSTs; small SSTs are not cut for that."""
    batch = [Put(node.to_bytes(2, "big") + b"%03d" % n, 1, b"v" * 20) for node in range(8) for n in range(60)]
    spec = raw_spec(block_bytes=300, vnodes=256)
    for sst_bytes in (2000, 3000, 5000):
        run = store_ssts(bucket, spec, [to_rows(batch)], sst_bytes=sst_bytes)
        assert sum(info.rows for info in run) == len(batch)
        inner = [info for info in run[1:] if info.smallest[2:] != b"000"]
        # A node of 60 rows (about 2,500 bytes) is parted only where an SST gets full before it ends.
        assert len(inner) <= len(run) // 2
        sstables = Sstables(bucket, 0, RealSystem())
        assert read_all(sstables, run) == batch
        sstables.close()
    assert len(store_ssts(bucket, spec, [to_rows(batch)], sst_bytes=1 << 20)) == 1


def test_every_key_is_in_the_filter(bucket: ObjectStore, sstables: Sstables) -> None:
    """Also the first key of each block and SST; few absent keys pass."""
    batch = puts(3000, versions=2)
    run = store_run(bucket, batch, block_bytes=300, sst_bytes=20_000)
    absent = 0
    for info in run:
        bloom = sstables.meta(info).bloom
        assert bloom is not None
        assert all(bloom.may_contain(hash_key(put.key)) for put in batch if info.smallest <= put.key <= info.largest)
        absent += sum(bloom.may_contain(hash_key(b"absent%d" % n)) for n in range(1000))
    assert absent < 0.02 * 1000 * len(run)


def test_segments_hold_two_mebibytes_and_never_part_a_key(bucket: ObjectStore) -> None:
    """Their borders are at blocks that begin with a new key."""
    assert Limits().segment_bytes == 2 << 20
    sstables = Sstables(bucket, 1 << 20, RealSystem(), limits=Limits(segment_bytes=700))
    batch = puts(40, versions=9)
    run = store_run(bucket, batch, block_bytes=200)
    meta = sstables.meta(run[0])
    borders = meta.segments
    assert borders[0] == 0
    assert borders[-1] == meta.blocks
    assert len(borders) > 10
    assert not any(meta.continues[border] for border in borders[:-1])
    for block in range(meta.blocks):
        segment = meta.segment_numbers[block]
        assert borders[segment] <= block < borders[segment + 1]
    sstables.close()


def test_blocks_are_found_by_key(bucket: ObjectStore, sstables: Sstables) -> None:
    """`block_of` gives the first block that may hold a key, `block_range` all that may hold keys of a range."""
    batch = sort_puts(puts(60, versions=5))
    run = store_run(bucket, batch, block_bytes=150)
    meta = sstables.meta(run[0])
    borders = np.cumsum([0, *meta.block_rows.tolist()]).tolist()
    blocks = [batch[start:end] for start, end in pairwise(borders)]
    assert meta.block_of(b"") == -1
    for key in sorted({put.key for put in batch}):
        holders = [number for number, block in enumerate(blocks) if any(put.key == key for put in block)]
        assert meta.block_of(key) == holders[0]
        first, last = meta.block_range(key, key + b"\0")
        assert (first, last) == (holders[0], holders[-1] + 1)
    assert meta.block_range(None, None) == (0, meta.blocks)
    last = meta.block_of(b"00050")
    assert meta.block_range(b"00050", b"00010") == (last, last)
    assert meta.block_range(b"9", None) == (meta.blocks - 1, meta.blocks)


# --- Requests and caches. -----------------------------------------------------------------------------------------


def test_a_segment_is_one_request(bucket: ObjectStore) -> None:
    """A scan makes one request for each meta and each segment; a second scan makes none."""
    run = store_run(bucket, puts(1000), block_bytes=500, sst_bytes=20_000)
    counts = RequestCounts(bucket)
    sstables = Sstables(counts.for_purpose("scan"), 10 << 20, RealSystem(), limits=Limits(segment_bytes=5000))
    read_all(sstables, run)
    segments = sum(len(sstables.meta(info).segments) - 1 for info in run)
    asked = counts.counts()["scan"]
    assert asked["get"][0] == len(run)
    assert asked["get_range"][0] == segments
    assert asked["get_range"][1] == sum(info.data_bytes - 8 for info in run)
    read_all(sstables, run)
    assert counts.counts()["scan"] == asked
    sstables.close()


def test_a_point_read_asks_for_one_block(bucket: ObjectStore) -> None:
    """None if its segment or its block is cached."""
    run = store_run(bucket, puts(1000), block_bytes=500)
    counts = RequestCounts(bucket)
    sstables = Sstables(counts.for_purpose("get"), 10 << 20, RealSystem())
    meta = sstables.meta(run[0])
    block = sstables.block(run[0], meta, 3)
    assert counts.counts()["get"]["get_range"] == (1, int(meta.length[3]))
    assert sstables.block(run[0], meta, 3) is block
    sstables.segment(run[0], meta, 0)
    assert counts.counts()["get"]["get_range"][0] == 2
    assert to_puts(sstables.block(run[0], meta, 5).rows) == to_puts(sstables.read(run[0], meta, 5, 6))
    assert counts.counts()["get"]["get_range"][0] == 2
    sstables.close()


@pytest.mark.parametrize("fill", [True, False])
def test_only_reads_that_fill_the_cache_leave_blocks_in_it(bucket: ObjectStore, fill: bool) -> None:
    """Compaction must not push out blocks that readers use."""
    run = store_run(bucket, puts(300), block_bytes=500, sst_bytes=2000)
    sstables = Sstables(bucket, 1 << 20, RealSystem())
    for info in run:
        meta = sstables.meta(info)
        sstables.read(info, meta, 0, 1, fill=fill)
        sstables.read(info, meta, 0, meta.blocks, fill=fill)
    assert (sstables.blocks.stats().entries > 0) == fill
    sstables.close()


def test_a_forgotten_sst_is_read_again(bucket: ObjectStore) -> None:
    """`forget` drops metas, blocks and segments of an SST, and only of that one."""
    run = store_run(bucket, puts(300), block_bytes=500, sst_bytes=5000)
    counts = RequestCounts(bucket)
    sstables = Sstables(counts.for_purpose("scan"), 1 << 20, RealSystem())
    read_all(sstables, run)
    before = counts.counts()["scan"]
    sstables.forget({run[1].id})
    read_all(sstables, run)
    after = counts.counts()["scan"]
    assert after["get"][0] == before["get"][0] + 1
    assert after["get_range"][0] == before["get_range"][0] + 1
    sstables.close()


def test_columns_come_in_the_given_order_cached_or_not(bucket: ObjectStore) -> None:
    """A read of some columns gives the same from the bucket and from the cache."""
    schema = pa.schema([("key", pa.binary()), ("a", pa.binary()), ("b", pa.int64())])
    spec = TableSpec(id=1, name="t", schema=schema.serialize().to_pybytes(), primary_key=("key",), block_bytes=100)
    batch = sort_puts(puts(100))
    run = store_ssts(bucket, spec, [to_rows(batch, columns=2)])
    sstables = Sstables(bucket, 1 << 20, RealSystem())
    meta = sstables.meta(run[0])
    assert value_schema(spec).types == meta.types == [pa.binary(), pa.int64()]
    for picked in ([1, 0], [1], []):
        cold = sstables.read(run[0], meta, 2, 4, picked)
        assert sstables.blocks.stats().entries == 0
        sstables.segment(run[0], meta, 0)
        warm = sstables.read(run[0], meta, 2, 4, picked)
        assert [column.to_pylist() for column in warm.columns] == [column.to_pylist() for column in cold.columns]
        assert [column.type for column in cold.columns] == [meta.types[at] for at in picked]
        sstables.forget({run[0].id})
    sstables.close()


@pytest.mark.parametrize("cache_bytes", CACHES)
def test_the_version_gives_the_epoch_of_a_commits_rows(bucket: ObjectStore, cache_bytes: int) -> None:
    """Rows read before the commit, under a stand-in epoch, have the committed one afterwards, cached or not."""
    batch = [Put(b"%03d" % n, 1, b"v") for n in range(100)]
    run = store_run(bucket, batch, block_bytes=200, epoch=1)
    sstables = Sstables(bucket, cache_bytes, RealSystem())
    for epoch in (1, 77):
        info = msgspec.structs.replace(run[0], epoch=epoch, min_epoch=epoch, max_epoch=epoch)
        meta = sstables.meta(info)
        assert set(meta.max_epoch.tolist()) == {0}
        assert sstables.block(info, meta, 2).rows.epochs == epoch
        assert sstables.read(info, meta, 0, 2).epochs == epoch
        assert sstables.segment(info, meta, 0).rows.epochs == epoch
        assert sstables.block(info, meta, 2).rows.epochs == epoch
    sstables.close()


# --- Damage. ------------------------------------------------------------------------------------------------------


def read_everything(bucket: ObjectStore, run: tuple[SstInfo, ...]) -> list[Put]:
    """Read a run with cold caches."""
    sstables = Sstables(bucket, 0, RealSystem())
    try:
        return read_all(sstables, run)
    finally:
        sstables.close()


def test_every_changed_byte_of_a_meta_is_found(bucket: ObjectStore) -> None:
    """`CorruptSst` names the object, whichever byte it is."""
    run = store_run(bucket, puts(5), block_bytes=64)
    path = meta_path(run[0].id)
    data = bucket.get(path)
    sstables = Sstables(bucket, 0, RealSystem())
    for at in range(len(data)):
        for flip in (0x01, 0x80, 0xFF):
            changed = bytearray(data)
            changed[at] ^= flip
            bucket.put(path, bytes(changed))
            with pytest.raises(CorruptSst, match=path):
                sstables.meta(run[0])
    bucket.put(path, data)
    assert sstables.meta(run[0]).rows == 5
    sstables.close()


def test_every_truncation_of_a_meta_is_found(bucket: ObjectStore) -> None:
    """Down to the empty object; one byte too many is found, too."""
    run = store_run(bucket, puts(5), block_bytes=64)
    path = meta_path(run[0].id)
    data = bucket.get(path)
    sstables = Sstables(bucket, 0, RealSystem())
    for changed in [*(data[:length] for length in range(len(data))), data + b"\0"]:
        bucket.put(path, changed)
        with pytest.raises(CorruptSst, match=path):
            sstables.meta(run[0])
    sstables.close()


def test_changed_bytes_of_the_data_are_found(bucket: ObjectStore) -> None:
    """The error names object, block and offset; reads of the other blocks go on."""
    batch = sort_puts(puts(60))
    run = store_run(bucket, batch, block_bytes=300)
    path = data_path(run[0].id)
    data = bucket.get(path)
    sstables = Sstables(bucket, 0, RealSystem())
    meta = sstables.meta(run[0])
    randomness = random.Random(3)
    for at in [8, *randomness.sample(range(8, len(data)), 100), len(data) - 1]:
        changed = bytearray(data)
        changed[at] ^= 1 << randomness.randrange(8)
        bucket.put(path, bytes(changed))
        block = int(np.searchsorted(meta.offset, at, side="right")) - 1
        with pytest.raises(CorruptSst, match=rf"{path} block {block} at offset {meta.offset[block]}: checksum"):
            read_everything(bucket, run)
        other = (block + 1) % meta.blocks
        assert len(sstables.block(run[0], meta, other).rows) == meta.block_rows[other]
    bucket.put(path, data)
    assert read_everything(bucket, run) == batch
    sstables.close()


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:-1],
        lambda data: data[:20],
        lambda data: b"",
        lambda data: b"PAR1" + b"\0" * len(data),
        lambda data: data[8:] + b"\0" * 8,
    ],
    ids=["one byte short", "a stump", "empty", "foreign", "shifted"],
)
@pytest.mark.parametrize("part", ["data", "meta"])
def test_a_damaged_object_is_named(bucket: ObjectStore, part: str, damage: object) -> None:
    """Truncated, empty and foreign objects of either kind; an intact SST beside them stays readable."""
    assert callable(damage)
    batch = sort_puts(puts(100))
    run, intact = store_run(bucket, batch, block_bytes=300), store_run(bucket, batch)
    path = f"sst/{run[0].id}.{part}"
    bucket.put(path, damage(bucket.get(path)))
    with pytest.raises(CorruptSst, match=path):
        read_everything(bucket, run)
    assert read_everything(bucket, intact) == batch


@pytest.mark.parametrize("part", ["data", "meta"])
@pytest.mark.parametrize("block_bytes", [300, 64 << 10])
def test_swapped_objects_are_found(bucket: ObjectStore, block_bytes: int, part: str) -> None:
    """The data or the metas of two SSTs with similar keys and sizes."""
    run = store_run(bucket, [Put(b"%03d" % n, 1, b"a%d" % n) for n in range(100)], block_bytes=block_bytes)
    other = store_run(bucket, [Put(b"%03d" % n, 1, b"b%d" % n) for n in range(100)], block_bytes=block_bytes)
    paths = [f"sst/{info.id}.{part}" for info in (run[0], other[0])]
    first, second = (bucket.get(path) for path in paths)
    bucket.put(paths[0], second)
    bucket.put(paths[1], first)
    for path, each in zip(paths, (run, other), strict=True):
        with pytest.raises(CorruptSst, match=path):
            read_everything(bucket, each)


@pytest.mark.parametrize("part", ["data", "meta"])
def test_a_missing_object_is_not_corrupt(bucket: ObjectStore, part: str) -> None:
    """Vacuum may have deleted it; the holder of the version decides."""
    run = store_run(bucket, puts(10))
    bucket.delete([f"sst/{run[0].id}.{part}"])
    with pytest.raises(ObjectNotFound, match=run[0].id):
        read_everything(bucket, run)


def test_a_meta_of_the_right_id_but_other_rows_is_found(bucket: ObjectStore) -> None:
    """The version has the number of rows and the range of an SST."""
    run = store_run(bucket, puts(10))
    for field, value in (("rows", 11), ("smallest", b""), ("largest", b"~")):
        changed = msgspec.structs.replace(run[0], **{field: value})
        with pytest.raises(CorruptSst, match=f"{meta_path(run[0].id)}: its rows or key range"):
            read_everything(bucket, (changed,))


def edit(data: bytes, **fields: object) -> bytes:
    """A meta with other fields, or other columns of its block index (`index_...`), and a matching checksum."""
    meta = msgspec.msgpack.decode(data[12:-4], type=sst_meta.SstMeta)
    index = {name.removeprefix("index_"): fields.pop(name) for name in list(fields) if name.startswith("index_")}
    return sst_meta.encode_meta(
        msgspec.structs.replace(meta, index=msgspec.structs.replace(meta.index, **index), **fields)
    )


@pytest.mark.parametrize(
    "fields",
    [
        {"schema": b"not an Arrow schema"},
        {"bloom": b"\x02"},
        {"rows": 29},
        {"index_offset": b"\0" * 7},
        {"index_offset": b""},
        {"index_length": b"\0" * 4},
        {"index_raw_length": b""},
        {"index_crc": b""},
        {"index_rows": b"\0" * 4},
        {"index_deletes": b""},
        {"index_min_epoch": b"\0" * 8},
        {"index_max_epoch": b""},
        {"index_continues": b""},
        {"index_key_ends": b"\0" * 4},
        {"index_first_keys": b""},
        {"bounds": (ColumnBounds(column=0, low=b"", high=b""),), "bloom": b""},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_an_inconsistent_meta_with_a_right_checksum_is_refused(bucket: ObjectStore, fields: dict[str, object]) -> None:
    """A defective writer causes an error, too, not an index out of range in the middle of a read."""
    run = store_run(bucket, puts(30), block_bytes=200)
    path = meta_path(run[0].id)
    bucket.put(path, edit(bucket.get(path), **fields))
    sstables = Sstables(bucket, 0, RealSystem())
    with pytest.raises(CorruptSst, match=f"{path}: not a meta of this format"):
        sstables.meta(run[0])
    sstables.close()


def test_unknown_fields_of_a_meta_are_skipped_and_a_newer_version_refused(bucket: ObjectStore) -> None:
    """A field may be added without a new version number; a change of meaning needs one."""
    run = store_run(bucket, puts(30))
    data = bucket.get(meta_path(run[0].id))
    fields = msgspec.msgpack.decode(data[12:-4])
    payload = msgspec.msgpack.encode(fields | {"from_the_future": [1, 2]})

    def frame(version: int) -> bytes:
        body = struct.pack("<4sHHI", b"TSKM", version, 0, len(payload)) + payload
        return body + struct.pack("<I", crc32c(body))

    assert isinstance(sst_meta.decode_meta(frame(1), run[0].id, "here"), LoadedMeta)
    for version in (0, 4):
        with pytest.raises(CorruptSst, match=rf"here: format version {version}\.0, this program reads 1\.0 to 3\.0"):
            sst_meta.decode_meta(frame(version), run[0].id, "here")


# --- Uploads. -----------------------------------------------------------------------------------------------------


def make_puts(count: int) -> list[Put]:
    return [Put(b"%05d" % n, 1, b"v" * 50) for n in range(count)]


def test_an_upload_puts_both_objects_of_each_sst() -> None:
    """In the order of the run, under ids that ascend with time."""
    bucket, system = open_bucket("memory://"), FakeSystem()
    uploader = Uploader(bucket, system)
    writer = SstWriter(raw_spec(block_bytes=200), sst_bytes=1000, epoch_inherited=False, one_object_bytes=0)
    infos = uploader.upload(writer.write([to_rows(make_puts(500))]))
    uploader.close()
    assert len(infos) > 5
    assert [info.smallest for info in infos] == sorted(info.smallest for info in infos)
    assert sorted(info.path for info in bucket.list("sst/")) == sorted(
        path for info in infos for path in (data_path(info.id), meta_path(info.id))
    )
    assert read_everything(bucket, infos) == make_puts(500)


@pytest.mark.parametrize("part", ["data", "meta"])
@pytest.mark.parametrize("failing", [1, 3])
def test_no_put_is_in_flight_after_a_failed_upload(part: str, failing: int) -> None:
    """When the error arrives, no put of the run is in flight, also not the other object of the same SST."""
    bucket = FaultyBucket(open_bucket("memory://"))
    failed = threading.Event()
    count_of = {"data": 0, "meta": 0}

    def script(call: Call) -> Fate:
        kind = call.path.rpartition(".")[2]
        count_of[kind] += 1
        if kind == part and count_of[kind] == failing:
            failed.set()
            return Fate.LOSE_REQUEST
        if count_of[kind] >= failing:
            # The sibling of the failed object is slow: it is still running when the failure is known.
            failed.wait(5)
            threading.Event().wait(0.05)
        return Fate.PASS

    bucket.script = script
    uploader = Uploader(bucket, FakeSystem())
    writer = SstWriter(raw_spec(block_bytes=200), sst_bytes=1000, epoch_inherited=False, one_object_bytes=0)
    with pytest.raises(ObjectStoreUnavailable):
        uploader.upload(writer.write([to_rows(make_puts(500))]))
    landed = [info.path for info in bucket.inner.list("sst/")]
    uploader.close()
    assert [info.path for info in bucket.inner.list("sst/")] == landed


def test_a_meta_counts_the_bytes_that_it_takes(bucket: ObjectStore) -> None:
    """Its filter is not counted twice, and what it is unpacked to is counted."""
    for block_bytes in (500, 64 << 10):
        batch = [Put(b"%09d" % number, 1, b"v" * 8) for number in range(20_000)]
        (sst,) = store_run(bucket, batch, block_bytes=block_bytes, sst_bytes=64 << 20)
        sstables = Sstables(bucket, 0, RealSystem())
        sstables.meta(sst)
        takes = []
        for _ in range(3):  # threads that other tests have left may take memory meanwhile
            gc.collect()
            tracemalloc.start()
            meta = sstables.meta(sst)
            assert all((meta.segment_numbers, meta.raw_ends, meta.row_ends))
            gc.collect()
            takes.append(tracemalloc.get_traced_memory()[0])
            tracemalloc.stop()
        assert 0.8 * min(takes) < meta.nbytes < 1.5 * min(takes)
        sstables.close()
