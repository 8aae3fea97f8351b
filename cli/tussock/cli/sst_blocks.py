"""The blocks of one SST read straight from the bucket, past all caches, each checked by itself.

A read of the store stops at the first damaged block; `tussock check` and `tussock sst dump` have to go on to the next.
"""

from collections.abc import Iterator

from tussock.statestore.block import decode_block
from tussock.statestore.catalog import data_path, meta_path
from tussock.statestore.errors import CorruptSst, ObjectNotFound
from tussock.statestore.object_store import ObjectStore
from tussock.statestore.rows import Rows
from tussock.statestore.sst_meta import LoadedMeta, decode_meta

__all__ = ["read_blocks", "read_meta"]

CHUNK_BYTES = 8 << 20
"""Blocks are fetched together up to about this size: a request costs more than its bytes."""


def read_meta(bucket: ObjectStore, sst_id: str) -> LoadedMeta:
    """The SST's meta; `CorruptSst` if it is missing or damaged."""
    path = meta_path(sst_id)
    try:
        return decode_meta(bucket.get(path), sst_id, path)
    except ObjectNotFound:
        raise CorruptSst(f"{path}: the object is missing") from None


def read_blocks(bucket: ObjectStore, meta: LoadedMeta, epoch: int) -> Iterator[tuple[int, Rows | CorruptSst]]:
    """Every block in order: its number, and its rows or what is wrong with it.

    `epoch` is the version's for SSTs whose rows carry none, else 0.
    """
    path = data_path(meta.id)
    first = 0
    while first < meta.blocks:
        last = first + 1
        start = int(meta.offset[first])
        while last < meta.blocks and int(meta.offset[last] + meta.length[last]) - start <= CHUNK_BYTES:
            last += 1
        end = int(meta.offset[last - 1] + meta.length[last - 1])
        try:
            data = bucket.get_range(path, start, end - start)
        except ObjectNotFound:
            yield first, CorruptSst(f"{path}: the object is missing")
            return
        for number in range(first, last):
            offset = int(meta.offset[number])
            body = data[offset - start : offset - start + int(meta.length[number])]
            where = f"{path} block {number} at offset {offset}"
            if len(body) < meta.length[number]:
                yield number, CorruptSst(f"{where}: expected {meta.length[number]} bytes, found {len(body)}; truncated")
                continue
            try:
                yield (
                    number,
                    decode_block(body, meta.crc[number], epoch or int(meta.min_epoch[number]), meta.types, None, where),
                )
            except CorruptSst as error:
                yield number, error
        first = last
