"""Opening the place that a command is about, without ever making a store where there is none.

`connect` creates a store in an empty place, and a folder where none is. A command that only looks must do neither, so
it first asks whether anything of a log is there. What the log, the version and the objects are is then read from the
bucket directly; rows are read through the client, which is opened without compaction.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from tussock.meta.log.log import VersionLog
from tussock.meta.retention.destination.destination import holds_copies
from tussock.meta.version.version import Version
from tussock.statestore import StateStore, connect
from tussock.statestore.base.identity import Access
from tussock.statestore.base.system import RealSystem
from tussock.statestore.buckets import open_bucket
from tussock.statestore.buckets.presence import check_folder, check_store
from tussock.statestore.contract.backend import VersionView
from tussock.statestore.contract.object_store import ObjectStore
from tussock.statestore.contract.records import TableState
from tussock.statestore.errors import InvalidOption, TableNotFound
from tussock.statestore.shown import show_value

__all__ = ["StorePlace", "ask_service", "bucket_at", "has_copies", "place_at", "store_at", "table_state", "version_at"]


PLATFORM = "tussock://"
SERVICE_SECONDS = 10.0
"""For which a meta service is looked for."""


class StorePlace(NamedTuple):
    """A bucket with the newest version that its log gives."""

    bucket: ObjectStore
    version: Version


@contextmanager
def bucket_at(url: str, options: Mapping[str, str] | None = None) -> Iterator[ObjectStore]:
    """The bucket at `url`, which holds at least part of a store; `StoreNotFound` if not, and nothing was created.

    `options` are settings of the bucket that overrule the environment's.
    """
    if url.startswith(PLATFORM):
        raise InvalidOption(
            f"{url} is a meta service, and this command reads the bucket itself; give the URL of its bucket, which "
            "`tussock status` shows"
        )
    check_folder(url)
    bucket = open_bucket(url, options=options)
    try:
        check_store(bucket)
        yield bucket
    finally:
        bucket.close()


def has_copies(url: str, options: Mapping[str, str] | None = None) -> bool:
    """Whether a destination of backups is at `url`; nothing is created there."""
    if url.startswith(PLATFORM):
        return False
    check_folder(url)
    bucket = open_bucket(url, options=options, make_folder=False)
    try:
        return holds_copies(bucket)
    finally:
        bucket.close()


@contextmanager
def place_at(url: str) -> Iterator[StorePlace]:
    """The bucket with its newest version; one LIST and what the log's tail takes."""
    with bucket_at(url) as bucket:
        yield StorePlace(bucket, VersionLog(bucket, RealSystem(), owner="tussock").refresh())


@contextmanager
def version_at(url: str) -> Iterator[VersionView]:
    """The newest version, from the bucket or from a meta service."""
    if url.startswith(PLATFORM):
        with connect(url) as store:
            yield store.version()
    else:
        with place_at(url) as place:
            yield place.version


@contextmanager
def store_at(url: str, *, retention: float | None = None, gc_grace: float | None = None) -> Iterator[StateStore]:
    """The store at `url`, opened without background compaction; `None` is what the store says.

    A retention or grace period for one run is for a store without a meta service, whose process it holds for: a
    service would make it the store's, for all who use it.
    """
    if url.startswith(PLATFORM):
        for name, seconds in (("retention", retention), ("grace", gc_grace)):
            if seconds is not None:
                raise InvalidOption(
                    f"--{name} {seconds:g} is for a run on a bucket; the meta service at {url} goes by the store's own "
                    "for everybody: leave it out"
                )
    with connect(url, create=False, compaction=False, retention=retention, gc_grace=gc_grace) as store:
        yield store


def table_state(version: VersionView, name: str, url: str) -> TableState:
    """The table of that name; `TableNotFound` names those that are there."""
    state = version.find_table(name)
    if state is None:
        names = ", ".join(sorted(state.spec.name for state in version.tables.values())) or "none"
        raise TableNotFound(f"no table {show_value(name)} in the store at {url}; its tables: {names}", name)
    return state


def ask_service(addresses: str, access: Access, method: str, request: Any) -> Any:
    """The answer of the meta service at HOST:PORT,...; raises what it raises, and `MetaUnavailable`."""
    # Of the extra `platform`, so imported when it is needed.
    from tussock.meta.client.access import dial_with
    from tussock.meta.client.addresses import addresses_in
    from tussock.meta.client.connection import MetaConnection

    system = RealSystem()
    dial = dial_with(access, system)
    connection = MetaConnection(addresses_in(addresses), system, dial, name="tussock", deadline_seconds=SERVICE_SECONDS)
    try:
        return connection.call(method, request)
    finally:
        connection.close()
