"""Reading an object of the log whole, within bounds: a damaged or foreign one must not fill its reader's memory.

Each kind of object has a largest size, which its writers keep. Large ones are looked at before they are read, too.
"""

from tussock.meta.log.format import MAGICS, OBJECT_BYTES_MAX
from tussock.statestore.contract.object_store import ObjectStore
from tussock.statestore.errors import CorruptLog, CorruptObject

__all__ = ["read_object"]

SMALL_BYTES_MAX = 16 << 10
"""Of a pin, a lease and a marker, which are a few hundred bytes."""
UNSEEN_BYTES_MAX = 8 << 20
"""What is larger takes two more requests: junk is told by its first bytes, before it is read."""


def read_object(bucket: ObjectStore, path: str) -> bytes:
    """The object of the log, or beside it, at `path`; `CorruptLog` if it is larger than any of its kind."""
    magic = None if path.startswith("log/boundary/") else MAGICS.get(path.partition("/")[0])
    if magic is None:
        return _read(bucket, path, SMALL_BYTES_MAX)
    try:
        return bucket.get(path, UNSEEN_BYTES_MAX)
    except CorruptObject:
        found = bytes(bucket.get_range(path, 0, len(magic)))
    if found != magic:
        raise CorruptLog(f"{path}: offset 0: expected magic {magic!r}, found {found!r}; the object is foreign")
    return _read(bucket, path, OBJECT_BYTES_MAX)


def _read(bucket: ObjectStore, path: str, bytes_max: int) -> bytes:
    try:
        return bucket.get(path, bytes_max)
    except CorruptObject as error:
        raise CorruptLog(str(error)) from error
