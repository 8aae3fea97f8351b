"""Reading an object of an SST whole: never more bytes than it can have, since a foreign one could fill the memory."""

from tussock.statestore.contract.object_store import ObjectStore
from tussock.statestore.errors import CorruptObject, CorruptSst

__all__ = ["META_BYTES_MAX", "read_whole"]

META_BYTES_MAX = 256 << 20
"""Of a meta of which only its writer says how large it is: filter and block index of an SST are a few MiB."""


def read_whole(bucket: ObjectStore, path: str, bytes_max: int) -> bytes:
    """The object; `CorruptSst` if it has more than `bytes_max` bytes, and then none of them was read."""
    try:
        return bucket.get(path, bytes_max)
    except CorruptObject as error:
        raise CorruptSst(str(error)) from error
