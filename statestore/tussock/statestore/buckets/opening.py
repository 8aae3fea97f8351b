"""From a URL to a bucket that works, with retries bounded by a deadline.

Endpoint and credentials of remote buckets come from the environment, under the names that obstore documents
(`AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, `AWS_ENDPOINT_URL`, `AWS_ALLOW_HTTP`, `GOOGLE_*`, `AZURE_*`), or from
files of the same names in the folder that `TUSSOCK_BUCKET_CREDENTIALS` names, which are read again when they change.
A client of a meta service may be handed both instead.
"""

import functools
import os
import re
import threading
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from obstore.exceptions import BaseError
from obstore.store import AzureStore, GCSStore, MemoryStore, S3Store
from obstore.store import ObjectStore as LibraryStore

from tussock.statestore.base.arguments import check_seconds
from tussock.statestore.base.process.forks import ForkGuard
from tussock.statestore.base.system import RealSystem, System
from tussock.statestore.base.watched_files import WatchedFiles
from tussock.statestore.buckets.credentials import (
    FOLDER_VARIABLE,
    CredentialSource,
    for_library,
    setting_files,
    settings_in,
)
from tussock.statestore.buckets.file import FileBucket
from tussock.statestore.buckets.obstore_bucket import ObstoreBucket
from tussock.statestore.buckets.urls import BucketUrl, is_endpoint, parse_bucket_url, without_secrets
from tussock.statestore.contract.object_store import ObjectStore
from tussock.statestore.errors import AccessDenied, InvalidOption

if TYPE_CHECKING:  # the library has this name for type checkers only
    from obstore.store import RetryConfig

__all__ = ["open_bucket", "open_source", "refuse_bucket"]

CONNECT_MS_MAX = 5000

_forks = ForkGuard("memory:// or remote buckets")

_REMOTE: dict[str, tuple[Callable[..., LibraryStore], tuple[str, ...]]] = {
    "s3": (S3Store, ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")),
    "gs": (GCSStore, ()),
    "az": (AzureStore, ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT")),
}
"""Per scheme the library's class, and where the environment names another server than the provider's own."""

_NO = {"0", "false", "off", "no", "n"}
"""What the library takes for false; it says itself what it cannot read."""

_EMULATOR = "AZURE_STORAGE_USE_EMULATOR"
"""Lets plain HTTP in by itself."""

_UNPARSED = re.compile(r'failed to parse "([^"]*)"')

_named_memory: dict[str, MemoryStore] = {}
_named_memory_lock = threading.Lock()


def open_bucket(
    url: str,
    *,
    deadline_seconds: float = 30.0,
    system: System | None = None,
    options: Mapping[str, str] | None = None,
    credentials: CredentialSource | None = None,
    make_folder: bool = True,
    any_names: bool = False,
) -> ObjectStore:
    """The bucket that `url` names; a folder is created if absent, a remote bucket must be there (and is not asked).

    Without `make_folder` a folder is created at the first write, so that reading a wrong URL leaves nothing behind.
    With `any_names` objects are read whose names the store would not give; none with a dot in front.
    `memory://` is a fresh store, `memory://NAME` one that the process shares by name; then
    `file:///absolute/path`, `s3://bucket/prefix`, `gs://bucket/prefix` and `az://container/prefix`.
    `deadline_seconds` bounds how long one request to a remote bucket is tried, its retries included. `options` are
    settings of a remote bucket by the names of the environment's variables, which they overrule. `credentials`, of an
    S3 bucket only, stand in for those of the environment and of files, and are asked for again before they expire.
    Raises `InvalidOption` for any other URL, and for a remote bucket in a process that was forked from one that had
    opened one, `ObjectStoreUnavailable` if the folder cannot be made.
    """
    check_seconds(deadline_seconds, "deadline", 0.001)
    where = parse_bucket_url(url)
    system = system or RealSystem()
    if credentials is not None and where.scheme != "s3":
        raise InvalidOption(f"{where} cannot be opened with credentials that are handed out; an s3:// bucket can")
    if where.scheme == "file":
        return FileBucket(Path(where.prefix), system, make_folder=make_folder, any_names=any_names)
    if where.scheme == "memory":
        # The library keeps one set of threads for all kinds. Memory needs none of them, a request over a network does.
        _forks.note()
        store = _memory(where.bucket)
        return ObstoreBucket(lambda: store, str(where), system, any_names=any_names)
    return _remote(where, deadline_seconds, system, options or {}, credentials, any_names=any_names)


open_source = functools.partial(open_bucket, make_folder=False)
"""`open_bucket` for a store that others were made from."""


def _culprits(detail: str, told: Mapping[str, str]) -> str:
    """The settings that have the value that the library could not parse: it names the value alone."""
    value = _UNPARSED.search(detail)
    names = sorted(
        name for name in told if value and name.startswith(("AWS_", "GOOGLE_", "AZURE_")) and told[name] == value[1]
    )
    return f" (of {', '.join(names)})" if names else ""


def _check_endpoint(where: BucketUrl, names: tuple[str, ...], told: Mapping[str, str]) -> None:
    """`InvalidOption` for an endpoint that is no URL, of which the library dies, or plain HTTP that is not allowed."""
    name = next((name for name in names if told.get(name)), "")
    endpoint = told.get(name, "")
    if not endpoint:
        return
    shown = without_secrets(endpoint)
    if not is_endpoint(endpoint):
        raise InvalidOption(
            f"cannot set up {where}: the endpoint {shown!r} ({name}) is no URL of a server; expected such as "
            "https://minio.example:9000"
        )
    allows = f"{name.partition('_')[0]}_ALLOW_HTTP"
    if endpoint.startswith("http://") and told.get(allows, "false").lower() in _NO and not told.get(_EMULATOR):
        raise InvalidOption(
            f"cannot set up {where}: the endpoint {shown!r} ({name}) is plain HTTP, which has to be allowed: set "
            f"{allows}=true (bucket.allow_http of a meta service), or use https"
        )


def refuse_bucket(url: str, why: str, system: System) -> ObjectStore:
    """A bucket of which every request ends with `AccessDenied` and `why`, without one being sent."""

    def refuse() -> LibraryStore:
        raise AccessDenied(why, url)

    return ObstoreBucket(refuse, url, system)


def _memory(name: str) -> MemoryStore:
    if not name:
        return MemoryStore()
    with _named_memory_lock:
        return _named_memory.setdefault(name, MemoryStore())


def _remote(
    where: BucketUrl,
    deadline_seconds: float,
    system: System,
    options: Mapping[str, str],
    credentials: CredentialSource | None,
    *,
    any_names: bool,
) -> ObstoreBucket:
    _forks.use(str(where))
    # The library starts no new pause after `retry_timeout`; that pause and the attempt after it come on top. The
    # three shares together are the deadline. An attempt is given up before `retry_timeout`, so that a request whose
    # answer never comes is asked once more.
    deadline_ms = max(10, int(deadline_seconds * 1000))
    attempt_ms = deadline_ms * 2 // 5
    retry: RetryConfig = {
        "max_retries": 100,
        "retry_timeout": timedelta(milliseconds=deadline_ms * 0.5),
        "backoff": {
            "init_backoff": timedelta(milliseconds=min(100, deadline_ms * 0.1)),
            "max_backoff": timedelta(milliseconds=deadline_ms * 0.1),
            "base": 2,
        },
    }
    # Given as settings and not as `client_options`, which would switch off what the environment says (AWS_ALLOW_HTTP).
    settings: dict[str, Any] = {
        "retry_config": retry,
        "timeout": f"{attempt_ms}ms",
        "connect_timeout": f"{min(attempt_ms, CONNECT_MS_MAX)}ms",
    }
    if credentials is not None:
        settings["credential_provider"] = for_library(credentials, system)
    if where.prefix:
        settings["prefix"] = where.prefix
    library_store, endpoint_variables = _REMOTE[where.scheme]

    def open_library_store(config: Mapping[str, str]) -> LibraryStore:
        _check_endpoint(where, endpoint_variables, {**os.environ, **config})
        try:
            return library_store(where.bucket, **settings, config=dict(config) or None)
        except (BaseError, ValueError) as error:
            detail = without_secrets(str(error)).partition("\n\nDebug source")[0]
            named = _culprits(detail, {**os.environ, **config})
            raise InvalidOption(
                f"cannot set up {where}: {detail}{named}; check the environment's settings for it, and the files that "
                f"{FOLDER_VARIABLE} names"
            ) from None

    current = _current(open_library_store, options, None if credentials else os.environ.get(FOLDER_VARIABLE), system)
    told = {**os.environ, **options}
    endpoint = next((told[name] for name in endpoint_variables if told.get(name)), "")
    return ObstoreBucket(current, str(where), system, endpoint=without_secrets(endpoint), any_names=any_names)


def _current(
    open_store: Callable[[Mapping[str, str]], LibraryStore],
    options: Mapping[str, str],
    folder: str | None,
    system: System,
) -> Callable[[], LibraryStore]:
    """The store to ask next: another one whenever the files of `folder` have changed."""
    if folder:
        return WatchedFiles(
            setting_files(folder), lambda _: open_store({**settings_in(folder), **options}), system
        ).current
    store = open_store(options)
    return lambda: store
