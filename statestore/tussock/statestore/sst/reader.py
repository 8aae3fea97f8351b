"""Reads SSTs from the bucket through two caches: one for metas, one for decoded blocks.

Point reads fetch, decode and cache single blocks. Reads of many rows (scans, large `multi_get`s, compaction) go by
segments of about 2 MiB of consecutive blocks: one ranged request, one decoded batch, one cache entry. A row is in the
cache once, in whichever form came first: the block of a cached segment is a view into it, which lives and is evicted
with the segment; a segment that is read where some of its blocks are cached takes them in, see `_load_segment`, and
blocks become their segment once most of them are cached, see `_join`. What point lookups make for themselves counts in
the bytes of the entry that it belongs to. Metas have a separate cache, so that a scan of cold data does not push out
the indexes that every read needs; the bytes of both are one limit.

A small SST is one object, or a piece of a log entry's, and is fetched whole when its meta is wanted. Its bytes wait in
the cache of the blocks until those are wanted too; since they are of no use once the blocks are decoded, reading them
is no hit.

A read holds no lock: decoded blocks and metas are immutable, and two threads that miss at once merely read twice.
"""

from collections.abc import Callable, Collection, Sequence

from tussock.statestore import buckets
from tussock.statestore.base.limits import DEFAULT_LIMITS, Limits
from tussock.statestore.base.pools import Pending, StorePool
from tussock.statestore.base.system import System
from tussock.statestore.contract.object_store import ObjectStore
from tussock.statestore.contract.records import SstInfo, data_object, meta_object, sst_text
from tussock.statestore.errors import CorruptSst
from tussock.statestore.format.block import decode_block
from tussock.statestore.format.meta import LoadedMeta
from tussock.statestore.format.parted_filter import PartedFilter
from tussock.statestore.rows.rows import Rows
from tussock.statestore.sst.cache import ByteCache
from tussock.statestore.sst.cached_blocks import CachedBlock, CachedSegment
from tussock.statestore.sst.objects import read_filter, read_meta

__all__ = ["FILTER", "Sstables"]

_META_SHARE = 2
"""Metas have up to the cache's bytes divided by this; what they do not take is for blocks."""

_READ_THREADS = 4

_JOINED_SHARE = 32
"""Blocks that came one by one are joined only to segments of the cache's bytes divided by this: they go together."""

_WHOLE = "whole"
"""What an object's bytes have in the cache where a block has its number."""

FILTER = "filter"
"""What a filter that lies apart has in the cache of the metas beside its SST's id."""


class Sstables:
    """All SSTs of a store, by what the version says of them.

    `cache_bytes` bounds both caches together. `caller` views of the bucket make the requests, so that they are
    counted for its caller. `open_source` opens the bucket of another store, by its URL, of which this store names
    SSTs because it is a clone; it is asked when the first of them is read. `limits` bound what is read at once.
    """

    def __init__(
        self,
        bucket: ObjectStore,
        cache_bytes: int,
        system: System,
        open_source: Callable[[str], ObjectStore] = buckets.open_source,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        self.bucket = bucket
        self.limits = limits
        self._open_source = open_source
        self._sources: dict[str, ObjectStore] = {}
        self._cache_bytes = cache_bytes
        self.metas = ByteCache(max(cache_bytes // _META_SHARE, 1))
        self.blocks = ByteCache(max(cache_bytes, 1))
        closed = "the store was closed while it was read, or the interpreter ends; connect again before that"
        self._pool = StorePool(system, "tussock-read", _READ_THREADS, closed)

    def meta(self, sst: SstInfo) -> LoadedMeta:
        """The SST's meta, from the cache or the bucket; without a filter that lies apart."""
        meta: LoadedMeta | None = self.metas.get((sst.id,))
        if meta is None:
            held: bytes | None = self.blocks.peek((sst.id, _WHOLE)) if sst.meta_in_data else None
            meta, whole = read_meta(self._bucket_of(sst), sst, self.limits, held)
            self.metas.put((sst.id,), meta, meta.nbytes)
            self._leave_to_blocks()
            if whole is not None:
                self.blocks.put((sst.id, _WHOLE), whole, len(whole))
        return meta

    def filter(self, sst: SstInfo) -> PartedFilter:
        """The filter that lies apart, with the parts of it that are at hand."""
        found: PartedFilter | None = self.metas.get((sst.id, FILTER))
        if found is None:
            found = PartedFilter(sst.filter_parts)
            self.metas.put((sst.id, FILTER), found, found.size_bytes)
            self._leave_to_blocks()
        return found

    def ask(self, sst: SstInfo, parted: PartedFilter, key_hash: int) -> bool:
        """`PartedFilter.may_contain`, after the part that knows was fetched."""
        self.fetch(sst, parted, *parted.missing(key_hash))
        return bool(parted.may_contain(key_hash))

    def fetch(self, sst: SstInfo, parted: PartedFilter, first: int, count: int) -> None:
        """Bring parts of a filter with one request."""
        bucket = self._bucket_of(sst)
        filters = read_filter(bucket, sst, first, count)
        try:
            grown = parted.add(first, filters)
        except ValueError as error:
            raise CorruptSst(f"{bucket.url}/{meta_object(sst)} part {first} of the filter: {error}") from error
        self.metas.grow((sst.id, FILTER), parted, grown)
        self._leave_to_blocks()

    def block(self, sst: SstInfo, meta: LoadedMeta, index: int) -> CachedBlock:
        """One decoded block, for point lookups."""
        return self.cached(sst, meta, index) or self.load(sst, meta, index)

    def cached(self, sst: SstInfo, meta: LoadedMeta, index: int) -> CachedBlock | None:
        """The block if it takes no request, by itself or as a part of its segment."""
        block: CachedBlock | None = self.blocks.get((sst.id, index))
        if block is None:
            segment: CachedSegment | None = self.blocks.get((sst.id, -1 - meta.segment_numbers[index]))
            return None if segment is None else self.view(sst, meta, segment, index)
        if sst.epoch and block.rows.epochs != sst.epoch:
            # The SST was read before its commit, which gave it another epoch.
            block = CachedBlock(_at_epoch(block.rows, sst))
            self.blocks.put((sst.id, index), block, block.nbytes)
        return block

    def load(self, sst: SstInfo, meta: LoadedMeta, index: int) -> CachedBlock:
        """The block from the bucket; it stays in the cache."""
        rows = self._read(sst, meta, index, index + 1, None)[0]
        if sst.meta_in_data:
            # A block that is stored uncompressed refers to the whole object; a copy does not.
            rows = rows.copy()
        # Decoded, it is what was compressed, and delete marks are a byte each.
        size = int(meta.raw_length[index]) + (0 if rows.deletes is None else len(rows))
        block = CachedBlock(_at_epoch(rows, sst), size)
        self.blocks.put((sst.id, index), block, block.nbytes)
        self._join(sst, meta, index)
        return block

    def in_segment(self, sst: SstInfo, number: int) -> CachedBlock | None:
        """All rows of a segment as one block, if it is cached and its keys have one width; no copy.

        Point lookups that may end at the first version of a key search all of it at once: its blocks are thirty times
        as many objects, which in a large table are in none of the processor's caches.
        """
        key = (sst.id, -1 - number)
        segment: CachedSegment | None = self.blocks.used(key)
        if segment is None:
            return None
        block = segment.whole
        if block is None:
            if not segment.one_width:
                return None
            block = segment.whole = CachedBlock(segment.rows)
            self.blocks.grow(key, segment, block.search_bytes)
        return None if sst.epoch and block.rows.epochs != sst.epoch else block

    def _join(self, sst: SstInfo, meta: LoadedMeta, index: int) -> None:
        """Make a segment of blocks that came one by one, the one at `index` just now.

        If all of it is cached, or if three quarters are and the rest has room, which then takes one request. With a
        half, a thousand gets in 700,000 rows read twice the bytes, for a fifth fewer requests.
        """
        number = meta.segment_numbers[index]
        first, last = meta.segments[number], meta.segments[number + 1]
        size = meta.raw_ends[last - 1] - meta.raw_ends[first - 1]
        if last - first == 1 or size * _JOINED_SHARE > self._cache_bytes or not meta.is_moderate(number):
            return
        held = sum(self.blocks.holds([(sst.id, at) for at in range(first, last)]))
        if held == last - first or (4 * held >= 3 * (last - first) and size <= self.blocks.room()):
            self._load_segment(sst, meta, number)

    def view(self, sst: SstInfo, meta: LoadedMeta, segment: CachedSegment, index: int) -> CachedBlock:
        """One block of a segment that is at hand, for point lookups; no copy."""
        block = segment.views.get(index)
        if block is None:
            made = CachedBlock(_at_epoch(_block_rows(segment.rows, meta, index), sst))
            block = segment.views.setdefault(index, made)
            if block is made:
                self.blocks.grow((sst.id, -1 - meta.segment_numbers[index]), segment, made.search_bytes)
        if sst.epoch and block.rows.epochs != sst.epoch:
            block = segment.views[index] = CachedBlock(_at_epoch(block.rows, sst))
        return block

    def segment(self, sst: SstInfo, meta: LoadedMeta, number: int) -> CachedSegment:
        """All rows of one segment, which stay in the cache."""
        key = (sst.id, -1 - number)
        segment: CachedSegment | None = self.blocks.get(key)
        if segment is None:
            segment = self._load_segment(sst, meta, number)
        elif segment.beside_blocks:
            # It is wanted again before it had to leave: it stays, and its blocks need no other place.
            segment.beside_blocks = False
            self.blocks.remove([(sst.id, index) for index in range(*meta.segments[number : number + 2])])
        if sst.epoch and segment.rows.epochs != sst.epoch:
            segment = CachedSegment(_at_epoch(segment.rows, sst))
            self.blocks.put(key, segment, segment.rows.nbytes)
        return segment

    def _load_segment(self, sst: SstInfo, meta: LoadedMeta, number: int) -> CachedSegment:
        """Read a segment, taking what is cached of it, and cache it instead of these blocks.

        Unless they are few and there is no room for the rest: then the segment has to show that it is used, as any
        value that comes, and the blocks stay meanwhile. So a scan of more than the cache holds cannot turn each hot
        block into a segment that is not, and no more than half of a segment is ever there twice.
        """
        first, last = meta.segments[number], meta.segments[number + 1]
        held: dict[int, CachedBlock] = {}
        for index in range(first, last):
            block: CachedBlock | None = self.blocks.peek((sst.id, index))
            if block is not None:
                held[index] = block
        parts = self._parts(sst, meta, first, last, {index: block.rows for index, block in held.items()})
        segment = CachedSegment(Rows.concat(parts))
        size = segment.rows.nbytes
        instead_of: list[tuple[str, int]] = []
        if 2 * len(held) >= last - first or size - sum(block.nbytes for block in held.values()) <= self.blocks.room():
            instead_of = [(sst.id, index) for index in held]
        else:
            segment.beside_blocks = bool(held)
        self.blocks.put((sst.id, -1 - number), segment, size, instead_of=instead_of)
        return segment

    def _parts(self, sst: SstInfo, meta: LoadedMeta, first: int, last: int, held: dict[int, Rows]) -> list[Rows]:
        """The rows of each block first .. last-1: as held, the others by one request."""
        missing = [index for index in range(first, last) if index not in held]
        if missing:
            low = missing[0]
            fetched = self._read(sst, meta, low, missing[-1] + 1, None)
            held = held | {index: fetched[index - low] for index in missing}
        return [_at_epoch(held[index], sst) for index in range(first, last)]

    def has_segment(self, sst: SstInfo, number: int) -> bool:
        """Whether the whole segment is in the cache."""
        return self.blocks.peek((sst.id, -1 - number)) is not None

    def has_block(self, sst: SstInfo, index: int) -> bool:
        """Whether the block is in the cache by itself."""
        return self.blocks.peek((sst.id, index)) is not None

    def at_hand(self, sst: SstInfo, meta: LoadedMeta, blocks: Sequence[int]) -> list[bool]:
        """Of each block whether it takes no request, by itself or as a part of its segment."""
        alone = self.blocks.holds([(sst.id, block) for block in blocks])
        if all(alone):
            return alone
        numbers = [meta.segment_numbers[block] for block in blocks]
        distinct = list(set(numbers))
        whole = dict(zip(distinct, self.blocks.holds([(sst.id, -1 - number) for number in distinct]), strict=True))
        return [here or whole[number] for here, number in zip(alone, numbers, strict=True)]

    def read(
        self,
        sst: SstInfo,
        meta: LoadedMeta,
        first: int,
        last: int,
        columns: Sequence[int] | None = None,
        *,
        fill: bool = True,
    ) -> Rows:
        """The rows of the blocks first .. last-1, at least one, which lie in one segment.

        `columns` picks value columns by index; a read of some columns uses the cache but leaves nothing in it.
        """
        number = meta.segment_numbers[first]
        start, end = meta.segments[number], meta.segments[number + 1]
        segment: CachedSegment | None = self.blocks.get((sst.id, -1 - number))
        keep = columns is None and fill
        whole = keep and meta.is_moderate(number)
        if whole and 2 * (last - first) >= end - start and (segment is None or segment.beside_blocks):
            segment = self.segment(sst, meta, number)
        if segment is None:
            if keep:
                return self._some_blocks(sst, meta, first, last)
            return _at_epoch(Rows.concat(self._read(sst, meta, first, last, columns)), sst)
        ends = meta.row_ends
        picked = segment.rows.slice(ends[first - 1] - ends[start - 1], ends[last - 1] - ends[start - 1])
        return _at_epoch(picked.with_columns(columns), sst)

    def _some_blocks(self, sst: SstInfo, meta: LoadedMeta, first: int, last: int) -> Rows:
        """The rows of a few blocks of a segment, which stay in the cache one by one; at most one request.

        So a short scan that runs over the end of a block costs no request when it is repeated.
        """
        if last - first == 1:
            return self.block(sst, meta, first).rows
        held: dict[int, Rows] = {}
        for index in range(first, last):
            block: CachedBlock | None = self.blocks.get((sst.id, index))
            if block is not None:
                held[index] = block.rows
        parts = self._parts(sst, meta, first, last, held)
        for index, rows in enumerate(parts, first):
            if index not in held:
                # A block that is stored uncompressed refers to the whole answer of the request; a copy does not.
                block = CachedBlock(rows.copy())
                self.blocks.put((sst.id, index), block, block.nbytes)
        if len(held) < len(parts):
            self._join(sst, meta, first)
        return Rows.concat(parts)

    def submit_read(
        self, sst: SstInfo, meta: LoadedMeta, first: int, last: int, columns: Sequence[int] | None, *, fill: bool
    ) -> Pending[Rows]:
        """`read` in a background thread, for prefetching."""
        return self._pool.submit(self.read, sst, meta, first, last, columns, fill=fill)

    def forget(self, sst_ids: Collection[str]) -> None:
        """Drop what the caches hold of SSTs that are gone."""
        self.metas.drop(sst_ids)
        self.blocks.drop(sst_ids)
        self._leave_to_blocks()

    def _leave_to_blocks(self) -> None:
        self.blocks.resize(max(self._cache_bytes - self.metas.stats().bytes, 1))

    def close(self) -> None:
        """Stop the read threads, and let go of other stores' buckets."""
        self._pool.close()
        for bucket in self._sources.values():
            bucket.close()

    def _bucket_of(self, sst: SstInfo) -> ObjectStore:
        """Where the SST's objects are."""
        if not sst.source:
            return self.bucket
        bucket = self._sources.get(sst.source)
        if bucket is None:
            # Two threads may both open it; either bucket will do.
            bucket = self._sources.setdefault(sst.source, self._open_source(sst.source))
        return bucket

    def _read(self, sst: SstInfo, meta: LoadedMeta, first: int, last: int, columns: Sequence[int] | None) -> list[Rows]:
        """Fetch blocks first .. last-1 with one ranged request, or none if the object is at hand, and decode them."""
        path = data_object(sst)
        bucket = self._bucket_of(sst)
        where = sst_text(f"{bucket.url}/{path}", sst)
        start = int(meta.offset[first])
        length = int(meta.offset[last - 1] + meta.length[last - 1]) - start
        whole: bytes | None = self.blocks.peek((sst.id, _WHOLE)) if sst.meta_in_data else None
        if whole is None:
            data = bucket.get_range(path, sst.offset + start, length)
        else:
            data = memoryview(whole)[start : start + length]
        if len(data) != length:
            raise CorruptSst(
                f"{where}: {len(data)} bytes from offset {start}, its block index says {length}; it was truncated"
            )
        rows = []
        try:
            for block in range(first, last):
                offset = int(meta.offset[block]) - start
                body = data[offset : offset + int(meta.length[block])]
                epoch = sst.epoch or int(meta.min_epoch[block])
                at = f"{where} block {block} at offset {start + offset}"
                decoded = decode_block(body, meta.crc[block], epoch, meta.types, columns, at)
                if len(decoded) != meta.block_rows[block]:
                    raise CorruptSst(f"{at}: {len(decoded)} rows, its block index says {meta.block_rows[block]}")
                rows.append(decoded)
        except CorruptSst:
            if whole is not None:
                # The bytes may have been damaged on their way: the next read asks the bucket again.
                self.blocks.drop([sst.id])
            raise
        return rows


def _block_rows(rows: Rows, meta: LoadedMeta, index: int) -> Rows:
    """Of a segment's rows those of one of its blocks."""
    start = int(meta.block_rows[meta.segments[meta.segment_numbers[index]] : index].sum())
    return rows.slice(start, start + int(meta.block_rows[index]))


def _at_epoch(rows: Rows, sst: SstInfo) -> Rows:
    """The rows at the epoch that the version gives their SST; as they are where they carry epochs."""
    if sst.epoch == 0 or (isinstance(rows.epochs, int) and rows.epochs == sst.epoch):
        return rows
    return rows.with_epochs(sst.epoch)
