"""Each row is in the block cache once: in its block, or in its segment."""

from support.store.ssts import Put, store_run, to_puts
from tussock.statestore.base.limits import Limits
from tussock.statestore.base.system import RealSystem
from tussock.statestore.buckets import RequestCounts
from tussock.statestore.contract.object_store import ObjectStore
from tussock.statestore.contract.records import SstInfo
from tussock.statestore.sst.iterators import ConcatIterator, ReadRange
from tussock.statestore.sst.lookups.lookup import RunIndex, find
from tussock.statestore.sst.reader import Sstables


def puts(count: int) -> list[Put]:
    return [Put(b"%05d" % at, 1, b"%d" % at + b"." * 100) for at in range(count)]


def read_all(sstables: Sstables, run: tuple[SstInfo, ...]) -> list[Put]:
    return [put for rows in ConcatIterator(sstables, run, ReadRange()) for put in to_puts(rows)]


def test_a_block_of_a_cached_segment_is_no_copy(bucket: ObjectStore, sstables: Sstables) -> None:
    """Beside the segment only the keys for point lookups count, and they leave with it."""
    run = store_run(bucket, puts(2000), block_bytes=500)
    meta = sstables.meta(run[0])
    segment = sstables.segment(run[0], meta, 0)
    before = sstables.blocks.stats()
    block = sstables.block(run[0], meta, 7)
    assert block.rows.columns[0].buffers()[2].address == segment.rows.columns[0].buffers()[2].address
    assert sstables.block(run[0], meta, 7) is block
    after = sstables.blocks.stats()
    assert (after.entries, after.bytes - before.bytes) == (before.entries, block.search_bytes)


def test_a_segment_takes_the_place_of_its_cached_blocks(bucket: ObjectStore) -> None:
    """If there is room, or half of it: cached blocks are fetched with the rest, if at all, and count once."""
    run = store_run(bucket, puts(1000), block_bytes=500)
    counts = RequestCounts(bucket)
    sstables = Sstables(counts.for_purpose("get"), 10 << 20, RealSystem(), limits=Limits(segment_bytes=5000))
    meta = sstables.meta(run[0])
    first, last = meta.segments[1], meta.segments[2]
    for block in range(first, first + (last - first) // 2 - 1):
        sstables.block(run[0], meta, block)
    before = counts.counts()["get"]["get_range"][0]
    rows = sstables.segment(run[0], meta, 1).rows
    assert counts.counts()["get"]["get_range"][0] == before + 1
    assert len(rows) == int(meta.block_rows[first:last].sum())
    assert (sstables.blocks.stats().entries, sstables.blocks.stats().bytes) == (1, rows.nbytes)
    assert not any(sstables.has_block(run[0], block) for block in range(first, last))
    sstables.close()


def test_a_scan_of_more_than_the_cache_holds_does_not_widen_hot_blocks(bucket: ObjectStore) -> None:
    """A hot block stays, and its segment is not cached; a segment that is scanned again takes the block in."""
    (info,) = store_run(bucket, puts(3000), block_bytes=500)
    counts = RequestCounts(bucket)
    sstables = Sstables(counts.for_purpose("get"), 60_000, RealSystem(), limits=Limits(segment_bytes=5000))
    meta = sstables.meta(info)
    hot = meta.segments[:-1:3]
    for _ in range(3):
        for block in hot:
            sstables.block(info, meta, block)
    read_all(sstables, (info,))
    assert sstables.blocks.stats().evictions > 0
    before = counts.counts()["get"]["get_range"][0]
    for block in hot:
        sstables.block(info, meta, block)
    assert counts.counts()["get"]["get_range"][0] == before
    kept = [block for block in hot if sstables.has_block(info, block)]
    assert len(kept) > len(hot) // 2
    last = next(block for block in kept if not sstables.has_segment(info, meta.segment_numbers[block]))
    # How much room the threads that read ahead have left depends on their order: let there be none.
    sstables.blocks.put(("filler", 0), "", max(sstables.blocks.room(), 1))
    segment = sstables.segment(info, meta, meta.segment_numbers[last])
    assert segment.beside_blocks
    assert sstables.has_block(info, last)
    assert sstables.segment(info, meta, meta.segment_numbers[last]) is segment
    assert not sstables.has_block(info, last)
    assert sstables.block(info, meta, last).rows.keys.equals(segment.rows.keys[: meta.block_rows[last]])
    sstables.close()


def test_blocks_that_came_one_by_one_become_their_segment(bucket: ObjectStore) -> None:
    """Once three quarters are there and the rest has room: it comes with one request, and a lookup makes no views."""
    (info,) = store_run(bucket, puts(1000), block_bytes=500)
    counts = RequestCounts(bucket)
    sstables = Sstables(counts.for_purpose("get"), 10 << 20, RealSystem(), limits=Limits(segment_bytes=5000))
    meta, index = sstables.meta(info), RunIndex([info])
    first, last = meta.segments[1], meta.segments[2]
    enough = first + -(-3 * (last - first) // 4)
    for block in range(first, enough - 1):
        assert find(sstables, [index], meta.first_keys[block], 1) is not None
    assert not sstables.has_segment(info, 1)
    assert find(sstables, [index], meta.first_keys[enough - 1], 1) is not None
    assert sstables.has_segment(info, 1)
    assert not any(sstables.has_block(info, block) for block in range(first, last))
    before = counts.counts()["get"]["get_range"][0]
    found = [find(sstables, [index], meta.first_keys[block], 1) for block in range(first, last)]
    assert counts.counts()["get"]["get_range"][0] == before
    segment = sstables.segment(info, meta, 1)
    assert {one.block for one in found if one is not None} == {segment.whole}
    assert not segment.views
    assert [one.block.rows.key(one.at) for one in found if one is not None] == meta.first_keys[first:last]
    sstables.close()


def test_blocks_are_not_joined_where_the_segment_is_much_of_the_cache_or_the_rest_has_no_room(
    bucket: ObjectStore,
) -> None:
    """They would all go at once, and reading the rest would evict what is used."""
    (info,) = store_run(bucket, puts(1000), block_bytes=500)
    small = Sstables(bucket, 100_000, RealSystem(), limits=Limits(segment_bytes=5000))
    meta = small.meta(info)
    first, last = meta.segments[1], meta.segments[2]
    for block in range(first, last):
        small.block(info, meta, block)
    assert all(small.has_block(info, block) for block in range(first, last))
    small.close()
    full = Sstables(bucket, 1 << 20, RealSystem(), limits=Limits(segment_bytes=5000))
    full.meta(info)
    for at in range(1000):
        full.blocks.put(("filler", at), "", 1 << 10)
    for block in range(first, last - 1):
        full.block(info, meta, block)
    assert not full.has_segment(info, 1)
    full.block(info, meta, last - 1)
    assert full.has_segment(info, 1)
    full.close()
