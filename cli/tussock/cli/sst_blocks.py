"""The blocks of one SST read straight from the bucket, past all caches, each checked by itself.

A read of the store stops at the first damaged block; `tussock check` and `tussock sst dump` have to go on to the next.
"""

from collections.abc import Iterator, Mapping

from tussock.statestore.contract.object_store import ObjectStore
from tussock.statestore.contract.records import SstInfo, data_object, data_path, meta_path, sst_text
from tussock.statestore.errors import CorruptSst, ObjectNotFound
from tussock.statestore.format.block import decode_block
from tussock.statestore.format.meta import META_LENGTH, LoadedMeta, decode_head, decode_meta
from tussock.statestore.rows.rows import Rows
from tussock.statestore.sst.objects import META_BYTES_MAX, read_whole

__all__ = ["meta_home", "read_blocks", "read_head", "read_meta", "read_meta_in_entry"]

CHUNK_BYTES = 8 << 20
"""Blocks are fetched together up to about this size: a request costs more than its bytes."""


def meta_home(sst_id: str, sizes: Mapping[str, int]) -> str:
    """Path of the object that has the SST's meta, by a listing of `sst/`: no version may know of the SST."""
    alone = meta_path(sst_id)
    return data_path(sst_id) if alone not in sizes and data_path(sst_id) in sizes else alone


def read_meta(bucket: ObjectStore, sst_id: str, sizes: Mapping[str, int]) -> LoadedMeta:
    """The SST's meta; `CorruptSst` if it is missing or damaged. `sizes` has the bytes of each object under `sst/`."""
    path = meta_home(sst_id, sizes)
    try:
        if path == data_path(sst_id):
            return decode_meta(_end_of(bucket, path, sizes[path]), sst_id, path)
        return decode_meta(read_whole(bucket, path, META_BYTES_MAX), sst_id, path)
    except ObjectNotFound:
        raise CorruptSst(f"{path}: the object is missing") from None


def _end_of(bucket: ObjectStore, path: str, size: int) -> bytes:
    """The meta that a `.data` of `size` bytes ends with."""
    tail = bucket.get_range(path, max(size - META_LENGTH.size, 0), META_LENGTH.size)
    length = META_LENGTH.unpack(tail)[0] if len(tail) == META_LENGTH.size else 0
    if not META_LENGTH.size < length <= size:
        raise CorruptSst(f"{path}: there is no `.meta`, and its last 4 bytes are not the length of a meta in it")
    return bytes(bucket.get_range(path, size - length, length))


def read_meta_in_entry(bucket: ObjectStore, sst: SstInfo) -> LoadedMeta:
    """The meta of an SST that lies in a log entry; `CorruptSst` if it is missing or damaged."""
    path = data_object(sst)
    try:
        data = bytes(bucket.get_range(path, sst.offset + sst.data_bytes, sst.meta_bytes))
    except ObjectNotFound:
        raise CorruptSst(f"{path}: the object is missing") from None
    return decode_meta(data, sst.id, sst_text(path, sst))


def read_head(bucket: ObjectStore, sst: SstInfo) -> LoadedMeta | None:
    """Of a meta that is damaged, all but the filter, if that lies apart and the rest is sound; else `None`."""
    path = meta_path(sst.id)
    try:
        return decode_head(bytes(bucket.get_range(path, 0, sst.head_bytes)), sst.id, path) if sst.filter_parts else None
    except (CorruptSst, ObjectNotFound):
        return None


def read_blocks(
    bucket: ObjectStore, meta: LoadedMeta, epoch: int, sst: SstInfo | None = None
) -> Iterator[tuple[int, Rows | CorruptSst]]:
    """Every block in order: its number, and its rows or what is wrong with it.

    `epoch` is the version's for SSTs whose rows carry none, else 0. `sst` is what the version says, where one names the
    SST; only that tells of one that lies in a log entry.
    """
    path = data_path(meta.id) if sst is None else data_object(sst)
    begin = 0 if sst is None else sst.offset
    first = 0
    while first < meta.blocks:
        last = first + 1
        start = int(meta.offset[first])
        while last < meta.blocks and int(meta.offset[last] + meta.length[last]) - start <= CHUNK_BYTES:
            last += 1
        end = int(meta.offset[last - 1] + meta.length[last - 1])
        try:
            data = bucket.get_range(path, begin + start, end - start)
        except ObjectNotFound:
            yield first, CorruptSst(f"{path}: the object is missing")
            return
        for number in range(first, last):
            offset = int(meta.offset[number])
            body = data[offset - start : offset - start + int(meta.length[number])]
            where = f"{path if sst is None else sst_text(path, sst)} block {number} at offset {offset}"
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
