"""Reading an object of the log whole, within bounds: a damaged or foreign one must not fill its reader's memory.

Each kind of object has a largest size, which its writers keep. Large ones are looked at before they are read, too.
"""

from tussock.meta.log.format import HEADER, MAGICS, OBJECT_BYTES_MAX
from tussock.statestore.contract.object_store import ObjectStore
from tussock.statestore.errors import CorruptLog, CorruptObject

__all__ = ["read_object"]

SMALL_BYTES_MAX = 16 << 10
"""Of a pin, a lease and a marker, which are a few hundred bytes."""
UNSEEN_BYTES_MAX = 8 << 20
"""What is larger is read in two requests: junk is told by its first bytes."""


def read_object(bucket: ObjectStore, path: str) -> bytes:
    """The object of the log, or beside it, at `path`; `CorruptLog` if it is larger than any of its kind."""
    folder = path.partition("/")[0]
    is_large = folder in MAGICS and not path.startswith("log/boundary/")
    try:
        if not is_large:
            return bucket.get(path, SMALL_BYTES_MAX)
        try:
            return bucket.get(path, UNSEEN_BYTES_MAX)
        except CorruptObject:
            _check_header(path, MAGICS[folder], bytes(bucket.get_range(path, 0, HEADER.size)))
            return bucket.get(path, OBJECT_BYTES_MAX)
    except CorruptLog:
        raise
    except CorruptObject as error:
        raise CorruptLog(str(error)) from error


def _check_header(path: str, magic: bytes, header: bytes) -> None:
    found, _, _, _, _ = HEADER.unpack_from(header)
    if found != magic:
        raise CorruptLog(f"{path}: offset 0: expected magic {magic!r}, found {found!r}; the object is foreign")
