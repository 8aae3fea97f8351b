"""One connection per store and process, to existing stores: Spark creates none.

Spark keeps its Python workers and gives them one task after another, so a store that is opened once per process keeps
its version, its metas and its blocks over the tasks and micro-batches of a job. Workers never compact; the process that
commits does.
"""

import atexit
import os
import threading
from pathlib import Path
from typing import Any

from tussock.compute.spark.options.options import StoreAddress, check_shareable
from tussock.statestore.buckets.urls import parse_bucket_url
from tussock.statestore.client import StateStore
from tussock.statestore.connection import connect
from tussock.statestore.contract.records import TableSpec
from tussock.statestore.errors import InvalidOption, SchemaMismatch, TableExists, TableNotFound
from tussock.statestore.tables.raw_table import RawTable
from tussock.statestore.tables.typed_table import TypedTable

__all__ = [
    "Table",
    "address_of",
    "close_stores",
    "committing_store",
    "opened_store",
    "same_table",
    "table_or_new",
    "working_store",
]

Table = RawTable | TypedTable

_stores: dict[tuple[StoreAddress, bool, int], StateStore] = {}
_lock = threading.Lock()


def working_store(address: StoreAddress) -> StateStore:
    """This process's connection for tasks and planning: it reads and uploads, and leaves compaction to others."""
    return _store(address, compaction=False)


def committing_store(address: StoreAddress) -> StateStore:
    """This process's connection for commits; after a commit, its background thread compacts."""
    return _store(address, compaction=True)


def address_of(url: str) -> StoreAddress:
    """The address with which the tasks open the store; `InvalidOption` if they cannot."""
    return check_shareable(StoreAddress(url))


def opened_store(store: str | StateStore) -> StateStore:
    """The store that a user named by its URL, opened as by `committing_store`, or the open one that the user passed."""
    return store if isinstance(store, StateStore) else committing_store(address_of(store))


def _store(address: StoreAddress, *, compaction: bool) -> StateStore:
    # By process as well: a fork inherits this dictionary, but not the threads and sockets of its stores.
    key = (address, compaction, os.getpid())
    with _lock:
        store = _stores.get(key)
        if store is None:
            _check_there(address.url)
            # The values after the URL are numbers, and `parse_read` and `parse_write` have checked their names.
            store = connect(address.url, compaction=compaction, **dict(address.settings))  # type: ignore[arg-type]
            if not store.recent_version().seq:
                store.close()
                raise _missing_store(store.url)
            _stores[key] = store
        return store


def _check_there(url: str) -> None:
    """Raise `InvalidOption` for a missing folder, which `connect` would create."""
    if url.startswith("file:"):
        where = parse_bucket_url(url)
        if not Path(where.prefix).is_dir():
            raise _missing_store(url)


def _missing_store(url: str) -> InvalidOption:
    return InvalidOption(
        f"there is no store at {url}: nothing was ever written there; check the URL, or make the store with "
        "tussock.statestore.connect and its tables with create_table"
    )


@atexit.register
def close_stores() -> None:
    """Close this process's connections; at its end, compaction stops between two batches instead of dying with it."""
    for key in [key for key in list(_stores) if key[2] == os.getpid()]:
        _stores.pop(key).close()


def same_table(store: StateStore, spec: TableSpec) -> Table:
    """The table of the plan, maybe altered since; `SchemaMismatch` if another table has its name now."""
    table: Table = store.table(spec.name)
    if table.spec != spec:
        # This connection may have looked last before the table was created or altered.
        store.version()
        table = store.table(spec.name)
    if table.spec.id != spec.id:
        raise SchemaMismatch(
            f"table {spec.name!r} was dropped and created anew after the job was planned (id {spec.id} then, "
            f"{table.spec.id} now); nothing was stored, start the job again"
        )
    return table


def table_or_new(store: StateStore, name: str, **options: Any) -> TableSpec:
    """The table of that name; if it is missing, creates it with these arguments of `create_table`."""
    try:
        return store.table(name).spec
    except TableNotFound:
        try:
            return store.create_table(name, **options).spec
        except TableExists:
            return store.table(name).spec
