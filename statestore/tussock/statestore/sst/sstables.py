"""Reads SSTs from the bucket through two caches: one for metas, one for decoded blocks.

Point reads fetch, decode and cache single blocks. Reads of many rows (scans, large `multi_get`s, compaction) go by
segments of about 2 MiB of consecutive blocks: one ranged request, one decoded batch, one cache entry. The two kinds
of entries may overlap for a while; both count in the cache's bytes. Metas have a cache of their own, so that a scan
of cold data does not push out the indexes that every read needs.

A small SST is one object, or a piece of a log entry's, and is fetched whole when its meta is wanted. Its bytes wait in
the cache of the blocks until those are wanted too; since they are of no use once the blocks are decoded, reading them
is no hit.

A read holds no lock: decoded blocks and metas are immutable, and two threads that miss at once merely read twice.
"""

from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future

from tussock.statestore.buckets import open_bucket
from tussock.statestore.catalog import SstInfo, data_object, meta_object, sst_text, stored_bytes
from tussock.statestore.errors import CorruptSst
from tussock.statestore.object_store import ObjectStore
from tussock.statestore.rows import Rows, binary_buffers
from tussock.statestore.sst.block import decode_block
from tussock.statestore.sst.cache import ByteCache
from tussock.statestore.sst.meta import LoadedMeta, decode_meta
from tussock.statestore.system import System

__all__ = ["CachedBlock", "Sstables"]

_META_SHARE = 8
"""One part in so many of the cache's bytes is for metas."""

_READ_THREADS = 4

_WHOLE_BYTES_MAX = 1 << 20
"""Objects with a meta at their end are fetched whole up to here; of a larger one, the meta alone."""

_WHOLE = "whole"
"""What an object's bytes have in the cache where a block has its number."""


class CachedBlock:
    """A decoded block together with what point lookups in it need, which is made at the first lookup."""

    __slots__ = ("_keys", "_values", "rows")

    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        self._keys: list[bytes] | None = None
        self._values: tuple[memoryview, memoryview] | None = None

    @property
    def keys(self) -> list[bytes]:
        """The keys as Python objects, for `bisect`."""
        if self._keys is None:
            self._keys = self.rows.keys.to_pylist()
        return self._keys

    def value(self, index: int) -> bytes:
        """The first value column of one row, which has to be binary."""
        if self._values is None:
            offsets, data = binary_buffers(self.rows.columns[0])
            self._values = memoryview(offsets), data  # type: ignore[arg-type]
        offsets_view, data = self._values
        return bytes(data[offsets_view[index] : offsets_view[index + 1]])

    @property
    def nbytes(self) -> int:
        """Bytes to count in the cache, the key objects included from the start (33 bytes of object, 8 of list)."""
        return self.rows.nbytes + int(self.rows.keys.nbytes) + 41 * len(self.rows) + 300


class Sstables:
    """All SSTs of a store, by what the version says of them.

    `cache_bytes` bounds both caches together. `caller` views of the bucket make the requests, so that they are
    counted for whoever asked. `open_source` opens the bucket of another store, by its URL, of which this store names
    SSTs because it is a clone; it is asked when the first of them is read.
    """

    def __init__(
        self,
        bucket: ObjectStore,
        cache_bytes: int,
        system: System,
        open_source: Callable[[str], ObjectStore] = open_bucket,
    ) -> None:
        self.bucket = bucket
        self._open_source = open_source
        self._sources: dict[str, ObjectStore] = {}
        self.metas = ByteCache(max(cache_bytes // _META_SHARE, 1))
        self.blocks = ByteCache(max(cache_bytes - cache_bytes // _META_SHARE, 1))
        self._pool = system.pool("tussock-read", _READ_THREADS)

    def meta(self, sst: SstInfo) -> LoadedMeta:
        """The SST's meta, from the cache or the bucket."""
        meta: LoadedMeta | None = self.metas.get((sst.id,))
        if meta is None:
            path = meta_object(sst)
            bucket = self._bucket_of(sst)
            where = sst_text(f"{bucket.url}/{path}", sst)
            whole: bytes | None = None
            if not sst.meta_in_data:
                data = bucket.get(path)
            elif sst.data_bytes > _WHOLE_BYTES_MAX:
                data = bytes(bucket.get_range(path, sst.offset + sst.data_bytes, sst.meta_bytes))
            else:
                whole = self.blocks.peek((sst.id, _WHOLE)) or _whole(bucket, path, sst)
                data = whole[sst.data_bytes :]
            meta = decode_meta(data, sst.id, where)
            if (meta.rows, meta.smallest, meta.largest) != (sst.rows, sst.smallest, sst.largest):
                raise CorruptSst(f"{where}: its rows or key range are not those that the version names")
            self.metas.put((sst.id,), meta, meta.nbytes)
            if whole is not None:
                self.blocks.put((sst.id, _WHOLE), whole, len(whole))
        return meta

    def block(self, sst: SstInfo, meta: LoadedMeta, index: int) -> CachedBlock:
        """One decoded block, for point lookups."""
        block: CachedBlock | None = self.blocks.get((sst.id, index))
        if block is None:
            segment = meta.segment_of(index)
            rows: Rows | None = self.blocks.get((sst.id, -1 - segment))
            if rows is None:
                rows = self._read(sst, meta, index, index + 1, None)[0]
                if sst.meta_in_data:
                    # A block that is stored uncompressed refers to the whole object; a copy does not.
                    rows = rows.compacted()
            else:
                start = int(meta.block_rows[meta.segments[segment] : index].sum())
                rows = rows.slice(start, start + int(meta.block_rows[index])).compacted()
            block = CachedBlock(_at_epoch(rows, sst))
            self.blocks.put((sst.id, index), block, block.nbytes)
        elif sst.epoch and block.rows.epochs != sst.epoch:
            # The SST was read before its commit, which gave it another epoch.
            block = CachedBlock(_at_epoch(block.rows, sst))
            self.blocks.put((sst.id, index), block, block.nbytes)
        return block

    def segment(self, sst: SstInfo, meta: LoadedMeta, segment: int) -> Rows:
        """All rows of one segment, which stay in the cache."""
        rows: Rows | None = self.blocks.get((sst.id, -1 - segment))
        if rows is None:
            first, last = meta.segments[segment], meta.segments[segment + 1]
            rows = Rows.concat(self._read(sst, meta, first, last, None))
            self.blocks.put((sst.id, -1 - segment), rows, rows.nbytes)
        return _at_epoch(rows, sst)

    def has_segment(self, sst: SstInfo, segment: int) -> bool:
        """Whether the whole segment is in the cache."""
        return self.blocks.get((sst.id, -1 - segment)) is not None

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
        segment = meta.segment_of(first)
        start, end = meta.segments[segment], meta.segments[segment + 1]
        rows: Rows | None = self.blocks.get((sst.id, -1 - segment))
        if rows is None and columns is None and fill and 2 * (last - first) >= end - start:
            rows = self.segment(sst, meta, segment)
        if rows is None:
            if columns is None and fill:
                return self._some_blocks(sst, meta, first, last)
            return _at_epoch(Rows.concat(self._read(sst, meta, first, last, columns)), sst)
        skip = int(meta.block_rows[start:first].sum())
        picked = rows.slice(skip, skip + int(meta.block_rows[first:last].sum()))
        return _at_epoch(picked.with_columns(columns), sst)

    def _some_blocks(self, sst: SstInfo, meta: LoadedMeta, first: int, last: int) -> Rows:
        """The rows of a few blocks of a segment, which stay in the cache one by one; at most one request.

        So a short scan that runs over the end of a block costs no request when it is repeated.
        """
        if last - first == 1:
            return self.block(sst, meta, first).rows
        held: list[CachedBlock | None] = [self.blocks.get((sst.id, index)) for index in range(first, last)]
        missing = [first + place for place, block in enumerate(held) if block is None]
        if missing:
            low, high = missing[0], missing[-1] + 1
            for index, rows in enumerate(self._read(sst, meta, low, high, None), low):
                # A block that is stored uncompressed refers to the whole answer of the request; a copy does not.
                block = CachedBlock(_at_epoch(rows.compacted(), sst))
                self.blocks.put((sst.id, index), block, block.nbytes)
                held[index - first] = block
        return _at_epoch(Rows.concat([block.rows for block in held if block is not None]), sst)

    def submit_read(
        self, sst: SstInfo, meta: LoadedMeta, first: int, last: int, columns: Sequence[int] | None, *, fill: bool
    ) -> "Future[Rows]":
        """`read` in a background thread, for prefetching."""
        return self._pool.submit(self.read, sst, meta, first, last, columns, fill=fill)

    def forget(self, sst_ids: Collection[str]) -> None:
        """Drop what the caches hold of SSTs that are gone."""
        self.metas.drop(sst_ids)
        self.blocks.drop(sst_ids)

    def close(self) -> None:
        """Stop the read threads, and let go of other stores' buckets."""
        self._pool.shutdown(wait=True, cancel_futures=True)
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


def _whole(bucket: ObjectStore, path: str, sst: SstInfo) -> bytes:
    """All bytes of a small SST, with one request."""
    return bytes(bucket.get_range(path, sst.offset, stored_bytes(sst))) if sst.entry else bucket.get(path)


def _at_epoch(rows: Rows, sst: SstInfo) -> Rows:
    """The rows at the epoch that the version gives their SST; as they are where they carry epochs of their own."""
    if sst.epoch == 0 or (isinstance(rows.epochs, int) and rows.epochs == sst.epoch):
        return rows
    return rows.with_epochs(sst.epoch)
