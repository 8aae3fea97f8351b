"""Applications whose process dies: on one bucket another one begins where they ended."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from support.buckets.faulty_bucket import FaultyBucket
from support.procedures.histories import Dead, Fuse, QuickSystem
from support.store.stores import open_on
from tussock.compute import procedures as ps
from tussock.statestore import StateStore
from tussock.statestore.contract.object_store import ObjectStore

__all__ = ["die_after", "open_quick"]


def open_quick(bucket: ObjectStore) -> StateStore:
    """A store on the bucket whose pauses between attempts are short."""
    return open_on(bucket, QuickSystem())


def die_after(bucket: ObjectStore, declare: Callable[[StateStore], ps.App], work: Callable[[ps.App], Any]) -> None:
    """A process that is dead after `work`, without a last commit."""
    fuse = Fuse(10**9, is_done=False, hiccups={})
    store = open_quick(FaultyBucket(bucket, fuse))
    app = declare(store)
    app.start()
    work(app)
    fuse.blow()
    with suppress(Dead):
        app.stop()
    with suppress(Dead):
        store.close()
