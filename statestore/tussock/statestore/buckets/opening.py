"""From a URL to a bucket that works, with retries bounded by a deadline.

Endpoint and credentials of remote buckets come from the environment, under the names that obstore documents
(`AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, `AWS_ENDPOINT_URL`, `AWS_ALLOW_HTTP`, `GOOGLE_*`, `AZURE_*`).
"""

import threading
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from obstore.exceptions import BaseError
from obstore.store import AzureStore, GCSStore, MemoryStore, S3Store

from tussock.statestore.buckets.file import FileBucket
from tussock.statestore.buckets.obstore_bucket import ObstoreBucket
from tussock.statestore.buckets.urls import BucketUrl, parse_bucket_url, without_secrets
from tussock.statestore.errors import InvalidOption
from tussock.statestore.object_store import ObjectStore
from tussock.statestore.system import RealSystem, System

if TYPE_CHECKING:  # the library has these two names for type checkers only
    from obstore.store import ClientConfig, RetryConfig

__all__ = ["open_bucket"]

_named_memory: dict[str, MemoryStore] = {}
_named_memory_lock = threading.Lock()


def open_bucket(url: str, *, deadline_seconds: float = 30.0, system: System | None = None) -> ObjectStore:
    """The bucket that `url` names; a folder is created if absent, a remote bucket must be there (and is not asked).

    `memory://` is a fresh store of its own, `memory://NAME` one that the process shares by name; then
    `file:///absolute/path`, `s3://bucket/prefix`, `gs://bucket/prefix` and `az://container/prefix`.
    `deadline_seconds` bounds how long one request to a remote bucket is tried, its retries included.
    Raises `InvalidOption` for any other URL, `ObjectStoreUnavailable` if the folder cannot be made.
    """
    if not deadline_seconds > 0:
        raise InvalidOption(f"deadline_seconds must be greater than 0, not {deadline_seconds}")
    where = parse_bucket_url(url)
    system = system or RealSystem()
    if where.scheme == "file":
        return FileBucket(Path(where.prefix), system)
    if where.scheme == "memory":
        return ObstoreBucket(_memory(where.bucket), str(where), system)
    return _remote(where, deadline_seconds, system)


def _memory(name: str) -> MemoryStore:
    if not name:
        return MemoryStore()
    with _named_memory_lock:
        return _named_memory.setdefault(name, MemoryStore())


def _remote(where: BucketUrl, deadline_seconds: float, system: System) -> ObstoreBucket:
    # The library starts no new attempt after `retry_timeout`, and the last attempt may take `timeout` more: half of
    # the deadline each keeps the sum within it.
    half = timedelta(seconds=deadline_seconds / 2)
    retry: RetryConfig = {
        "max_retries": 100,
        "retry_timeout": half,
        "backoff": {"init_backoff": timedelta(milliseconds=100), "max_backoff": half / 4, "base": 2},
    }
    client: ClientConfig = {"timeout": half, "connect_timeout": min(half, timedelta(seconds=5))}
    prefix = where.prefix or None
    try:
        store: S3Store | GCSStore | AzureStore
        if where.scheme == "s3":
            store = S3Store(where.bucket, prefix=prefix, retry_config=retry, client_options=client)
        elif where.scheme == "gs":
            store = GCSStore(where.bucket, prefix=prefix, retry_config=retry, client_options=client)
        else:
            store = AzureStore(where.bucket, prefix=prefix, retry_config=retry, client_options=client)
    except (BaseError, ValueError) as error:
        detail = without_secrets(str(error)).partition("\n\nDebug source")[0]
        raise InvalidOption(f"cannot set up {where}: {detail}; check the environment's settings for it") from None
    endpoint = without_secrets(str(store.config.get("endpoint") or ""))
    return ObstoreBucket(store, str(where), system, endpoint=endpoint)
