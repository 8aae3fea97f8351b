"""Whether a store is where a URL says, asked without making anything there."""

import re
from pathlib import Path

from tussock.statestore.buckets.file import unavailable
from tussock.statestore.buckets.urls import parse_bucket_url
from tussock.statestore.contract.object_store import ObjectStore
from tussock.statestore.errors import StoreNotFound

__all__ = ["check_folder", "check_store"]

_OBJECTS = {
    "log/": re.compile(r"log/(?:[0-9]{20}\.delta|boundary/.+)", re.ASCII),
    "snapshot/": re.compile(r"snapshot/[0-9]{20}", re.ASCII),
    "sst/": re.compile(r"sst/[0-9a-f]{32}\.(?:data|meta)"),
}
"""By the beginnings of their names, the objects that make a store, or what is left of one.

Many a folder has a `log` of something else."""


def check_folder(url: str) -> None:
    """Before a bucket is opened: `StoreNotFound` if `url` is of a folder that is not there.

    `ObjectStoreUnavailable` if the file system does not tell, as where this user may not look.
    """
    where = parse_bucket_url(url)
    if where.scheme != "file":
        return
    try:
        is_there = Path(where.prefix).is_dir()
    except OSError as error:
        raise unavailable("open", "", str(where), error) from error
    if not is_there:
        raise StoreNotFound(f"no store here: {where} is not a folder")


def check_store(bucket: ObjectStore) -> None:
    """`StoreNotFound` if a bucket holds nothing of a store; three LISTs, whose pages end at the first such object."""
    if not any(name.fullmatch(one.path) for prefix, name in _OBJECTS.items() for one in bucket.list(prefix)):
        raise StoreNotFound(f"no store here: {bucket.url} holds neither a log nor SSTs")
