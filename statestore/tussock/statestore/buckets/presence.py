"""Whether a store is where a URL says, asked without making anything there."""

from pathlib import Path

from tussock.statestore.buckets.urls import parse_bucket_url
from tussock.statestore.contract.object_store import ObjectStore
from tussock.statestore.errors import StoreNotFound

__all__ = ["check_folder", "check_store"]

_PREFIXES = ("log/", "snapshot/", "sst/")
"""Of the objects that make a store, or what is left of one."""


def check_folder(url: str) -> None:
    """Before a bucket is opened: `StoreNotFound` if `url` is of a folder that is not there."""
    where = parse_bucket_url(url)
    if where.scheme == "file" and not Path(where.prefix).is_dir():
        raise StoreNotFound(f"no store here: {where} is not a folder")


def check_store(bucket: ObjectStore) -> None:
    """`StoreNotFound` if a bucket holds nothing of a store; at most three LISTs."""
    if not any(next(iter(bucket.list(prefix)), None) for prefix in _PREFIXES):
        raise StoreNotFound(f"no store here: {bucket.url} holds neither a log nor SSTs")
