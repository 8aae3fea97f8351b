"""Reading metas of SSTs: never more bytes than they can have, since a foreign object could fill the memory."""

from tussock.statestore.base.limits import Limits
from tussock.statestore.contract.object_store import ObjectStore
from tussock.statestore.contract.records import SstInfo, meta_object, sst_text, stored_bytes
from tussock.statestore.errors import CorruptObject, CorruptSst
from tussock.statestore.format.meta import LoadedMeta, decode_head, decode_meta
from tussock.statestore.format.parted_filter import FilterShape, check_parts

__all__ = ["META_BYTES_MAX", "read_filter", "read_meta", "read_whole"]

META_BYTES_MAX = 256 << 20
"""Of a meta of which only its writer says how large it is: filter and block index of an SST are a few MiB."""

_WHOLE_BYTES_MAX = 1 << 20
"""Objects with a meta at their end are fetched whole up to here; of a larger one, the meta alone."""


def read_whole(bucket: ObjectStore, path: str, bytes_max: int) -> bytes:
    """The object; `CorruptSst` if it has more than `bytes_max` bytes, and then none of them was read."""
    try:
        return bucket.get(path, bytes_max)
    except CorruptObject as error:
        raise CorruptSst(str(error)) from error


def read_meta(
    bucket: ObjectStore, sst: SstInfo, limits: Limits, held: bytes | None = None
) -> tuple[LoadedMeta, bytes | None]:
    """The SST's meta, without a filter that lies apart, and the bytes of the SST if it was fetched whole.

    `held` are those if they were fetched before. `CorruptSst` if the meta is damaged or another's.
    """
    path = meta_object(sst)
    where = sst_text(f"{bucket.url}/{path}", sst)
    whole: bytes | None = None
    if sst.filter_parts:
        meta = decode_head(bytes(bucket.get_range(path, 0, sst.head_bytes)), sst.id, where, limits)
        if meta.filter != FilterShape(parts=sst.filter_parts, bytes=_part_bytes(sst)):
            raise CorruptSst(f"{where}: its filter does not lie as the version says")
    else:
        if not sst.meta_in_data:
            data = read_whole(bucket, path, sst.meta_bytes)
        elif sst.data_bytes > _WHOLE_BYTES_MAX:
            data = bytes(bucket.get_range(path, sst.offset + sst.data_bytes, sst.meta_bytes))
        else:
            whole = held or _whole(bucket, path, sst)
            data = whole[sst.data_bytes :]
        meta = decode_meta(data, sst.id, where, limits)
    if (meta.rows, meta.smallest, meta.largest) != (sst.rows, sst.smallest, sst.largest):
        raise CorruptSst(f"{where}: its rows or key range are not those that the version names")
    return meta, whole


def read_filter(bucket: ObjectStore, sst: SstInfo, first: int, count: int) -> list[memoryview]:
    """Parts of a filter that lies apart, from number `first` on, with one request; `CorruptSst` if one is damaged."""
    path, size = meta_object(sst), _part_bytes(sst)
    where = sst_text(f"{bucket.url}/{path}", sst)
    data = bucket.get_range(path, sst.head_bytes + first * size, count * size)
    if len(data) != count * size:
        raise CorruptSst(f"{where}: it ends within its filter; it was truncated")
    return check_parts(data, first, count, sst.id, where)


def _part_bytes(sst: SstInfo) -> int:
    return (sst.meta_bytes - sst.head_bytes) // sst.filter_parts


def _whole(bucket: ObjectStore, path: str, sst: SstInfo) -> bytes:
    """All bytes of a small SST, with one request."""
    size = stored_bytes(sst)
    return bytes(bucket.get_range(path, sst.offset, size)) if sst.entry else read_whole(bucket, path, size)
