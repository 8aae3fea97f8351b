"""`connect`, which opens a store: embedded, or as a client of a platform."""

import functools
import importlib
import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa

from tussock.statestore.base.arguments import check_flag, check_limits
from tussock.statestore.base.identity import access_from
from tussock.statestore.base.limits import DEFAULT_LIMITS, Limits, check_sizes
from tussock.statestore.base.system import RealSystem, System
from tussock.statestore.buckets import open_bucket
from tussock.statestore.buckets.presence import check_folder, check_store
from tussock.statestore.buckets.request_counter import RequestCounts
from tussock.statestore.client import StateStore
from tussock.statestore.contract.backend import Backend
from tussock.statestore.contract.object_store import ObjectStore
from tussock.statestore.errors import InvalidOption
from tussock.statestore.parts import StoreParts
from tussock.statestore.settings import StoreSettings

__all__ = ["connect", "open_store"]

# The module that keeps the version, by what a URL begins with. Loaded by name, because the rooms import one way: see
# `docs/decisions/0003-late-bound-backend.md`.
_EMBEDDED = "tussock.compactor.embedded"
_PLATFORM = "tussock.meta.client.backend"


def connect(
    url: str,
    *,
    create: bool = True,
    retention: float | None = None,
    gc_grace: float | None = None,
    cache_bytes: int = 256 << 20,
    buffer_bytes: int = 64 << 20,
    deadline: float = 30.0,
    compaction: bool = True,
    max_clock_ahead: float = 3600.0,
    max_staleness: float | None = None,
    token: str | None = None,
    tls_ca: str | None = None,
    tls_cert: str | None = None,
    tls_key: str | None = None,
    tls_server_name: str | None = None,
    system: System | None = None,
    limits: Limits | None = None,
) -> StateStore:
    """Open the store at `url`, creating it if the place is empty; unless `create`, raise `StoreNotFound` then.

    `memory://` or `memory://NAME`, `file:///PATH`, `s3://BUCKET/PREFIX`, `gs://`, `az://`: embedded, with meta and
    compaction in this process. `tussock://HOST:PORT,HOST2:PORT`: a platform, whose meta service keeps the version and
    says where the bucket is (extra `platform`). `retention`: seconds for which every epoch stays readable without a
    pin; `gc_grace`: seconds that an object which nothing names is left alone. Both belong to the store: `None` is what
    it says (3600 and 900 in a new one), and what is given here becomes what it says with the next table or commit.
    `cache_bytes`: decoded blocks and metas; `buffer_bytes`: uncommitted rows in memory, more are spilled; `deadline`:
    seconds after which a request to the bucket fails for good; `compaction=False` leaves compaction and vacuum to
    others; `max_clock_ahead`: seconds by which this machine's clock, or an epoch, may be ahead of the bucket's, else
    `ClockAhead` (a meta service has its own); `max_staleness`: seconds for which reads do not look for newer versions,
    a quarter of one by default, and with a meta service none while it pushes them. `token`, `tls_ca`, `tls_cert`,
    `tls_key` and `tls_server_name` say who calls a meta service, and which one it must be; without them the environment
    does (`access.py`). `system` replaces clocks and randomness, `limits` the sizes that tests and small machines shrink
    (`limits.py`).

    Raises `InvalidOption`, `ObjectStoreUnavailable` or `MetaUnavailable`.
    """
    check_flag(create, "create")
    check_flag(compaction, "compaction")
    limits = DEFAULT_LIMITS if limits is None else limits
    check_sizes(limits)
    seconds = {"deadline": deadline, "max_clock_ahead": max_clock_ahead}
    optional = {"retention": retention, "gc_grace": gc_grace, "max_staleness": max_staleness}
    check_limits(optional, seconds, cache_bytes, buffer_bytes)
    _load_arrow()
    system = system or RealSystem()
    shown = {"token": token, "tls_ca": tls_ca, "tls_cert": tls_cert, "tls_key": tls_key}
    shown["tls_server_name"] = tls_server_name
    common = (retention, gc_grace, cache_bytes, buffer_bytes, deadline, compaction)
    if isinstance(url, str) and url.startswith("tussock://"):
        settings = StoreSettings(
            url, *common, access_from(os.environ, **shown), limits=limits, max_staleness=max_staleness
        )
        open_platform: Callable[..., StateStore] = importlib.import_module(_PLATFORM).open_store
        opening = functools.partial(open_platform, settings, system)
    else:
        if given := sorted(name for name, value in shown.items() if value is not None):
            raise InvalidOption(f"{' and '.join(given)}: only a meta service, at tussock://HOST:PORT, asks who calls")
        settings = StoreSettings(
            url, *common, max_clock_ahead=max_clock_ahead, limits=limits, max_staleness=max_staleness
        )
        opening = functools.partial(_open_embedded, settings, system, create=create)
    # An interrupt leaves nothing open that nobody can close.
    return system.uninterrupted(opening, StateStore.close)


def _open_embedded(settings: StoreSettings, system: System, *, create: bool) -> StateStore:
    open_one = functools.partial(open_bucket, deadline_seconds=settings.deadline, system=system)
    if not create:
        check_folder(settings.url)
    bucket = open_one(settings.url, make_folder=create)
    try:
        if not create:
            check_store(bucket)
        settings = replace(settings, url=bucket.url)
        return open_store(settings, system, bucket, functools.partial(open_one, make_folder=False))
    except BaseException:
        bucket.close()
        raise


def open_store(
    settings: StoreSettings, system: System, bucket: Any, open_other: Callable[[str], ObjectStore] = open_bucket
) -> StateStore:
    """Open a store on a bucket that is open already; `open_other` opens the one that it was cloned from, by its URL."""
    requests = RequestCounts(bucket, open_other)
    backend: Backend = importlib.import_module(_EMBEDDED).open_backend(settings, system, requests)
    return StateStore(StoreParts(settings, system, bucket, requests, backend))


def _load_arrow() -> None:
    """Have Arrow look for pandas, as it does at its first array.

    That loads pandas where it is installed, which takes half a second: here, not in the first read or transaction; and
    not in every command that opens no store.
    """
    pa.array([])
