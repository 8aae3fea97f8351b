"""The controller of `StateStoreBackup`: what its plan needs to know, and how backups are made and deleted."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from tussock.operator.cluster.seen import Key, key_of
from tussock.operator.handlers.components import store_of
from tussock.operator.handlers.inquiries import CertificatesUnreadable, certificates_of
from tussock.operator.handlers.world import Controller, World
from tussock.operator.manifests.meta import meta_address
from tussock.operator.manifests.transport_security import server_name
from tussock.operator.planning.backup import RETRY_SECONDS, TEND_BACKUPS, BackupFacts, plan_backup
from tussock.operator.planning.store import of_store
from tussock.operator.planning.words.facts import BackupsFact
from tussock.operator.planning.words.model import Manifest, Observed
from tussock.operator.probes.backups import NewBackup, tend
from tussock.operator.resources.backup import StateStoreBackup, parse_backup
from tussock.operator.resources.store import StoreResource

__all__ = ["STATE_STORE_BACKUP"]

LIST_SECONDS = 60.0
"""Somebody may delete a backup in the store: they are listed so often, though nothing is due."""


def _observe(world: World, backup: StateStoreBackup, body: Manifest) -> Observed[BackupFacts]:
    key, store = key_of(body), store_of(world, backup.namespace, backup.spec.store_ref.name)
    meta = _serving_meta(world, store)
    tended: BackupsFact | None = world.probes.latest(key, _about(backup))
    if store is not None and meta and not backup.is_being_deleted:
        tended = world.probes.fact(key, _about(backup), _tending(world, store, meta), LIST_SECONDS)
    others = world.refs(backup.namespace, "StateStore")
    return Observed(BackupFacts(store, bool(meta), tended), world.seen.children(key), others)


def _serving_meta(world: World, store: StoreResource | None) -> str:
    """A `Meta` of the store with a node that serves; empty if there is none."""
    if store is None:
        return ""
    metas = of_store(world.refs(store.namespace, "Meta"), "Meta", store)
    serving = [body["metadata"]["name"] for body in metas if (body.get("status") or {}).get("readyReplicas")]
    return min(serving, default="")


async def _tend(world: World, backup: StateStoreBackup, arguments: Mapping[str, Any]) -> None:
    """Begin to make and delete backups; what came of it is seen in a later pass.

    Beside the passes, like every talk with a store, and one after the other for one object: while one such piece of
    work or a listing runs, nothing begins, and the next pass asks again.
    """
    store = store_of(world, backup.namespace, backup.spec.store_ref.name)
    meta = _serving_meta(world, store)
    if store is None or not meta:
        return
    about = _about(backup)
    key = Key(backup.kind, backup.namespace, backup.name)
    last: BackupsFact | None = world.probes.latest(key, about)
    pause = RETRY_SECONDS if last is not None and last.problem else 0.0
    make = [NewBackup(*wanted) for wanted in arguments["make"]]
    run = _tending(world, store, meta, make=make, drop=arguments["drop"], leaving=arguments["leaving"])
    world.probes.fact(key, about, run, pause)


def _tending(world: World, store: StoreResource, meta: str, **wishes: Any) -> Callable[[], Awaitable[BackupsFact]]:
    async def run() -> BackupsFact:
        try:
            certificates = await certificates_of(world, store, "client-admin")
        except CertificatesUnreadable as error:
            return BackupsFact(None, str(error), bool(wishes.get("leaving")))
        address = meta_address(meta, store.namespace)
        return await world.probes.in_thread(tend, address, certificates, server_name(store), **wishes)

    return run


def _about(backup: StateStoreBackup) -> tuple[str, str]:
    return "backups", backup.metadata.uid


STATE_STORE_BACKUP = Controller(
    kind="StateStoreBackup",
    parse=parse_backup,
    observe=_observe,
    plan=plan_backup,
    works={TEND_BACKUPS: _tend},
)
"""What is done for a `StateStoreBackup`."""
