"""The controller of `StateStoreBackup`: gathers the facts for its plan, and makes and deletes backups."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from tussock.operator.cluster.seen import Key, key_of
from tussock.operator.handlers.inquiries import CertificatesUnreadable, certificates_of
from tussock.operator.handlers.rollouts import store_of
from tussock.operator.handlers.world import Controller, World
from tussock.operator.manifests.meta import meta_address
from tussock.operator.manifests.transport_security import server_name
from tussock.operator.planning.backup import RETRY_SECONDS, TEND_BACKUPS, BackupFacts, plan_backup, retry_seconds
from tussock.operator.planning.parts import resources_of_store
from tussock.operator.planning.words.facts import BackupsFact
from tussock.operator.planning.words.model import Manifest, Observed
from tussock.operator.probes.backups import NewBackup, tend
from tussock.operator.resources.backup import StateStoreBackup, parse_backup
from tussock.operator.resources.store import StoreResource

__all__ = ["STATE_STORE_BACKUP"]

LIST_SECONDS = 60.0
"""Backups are listed this often even if nothing is due, since a user may delete one in the store."""


def _observe(world: World, backup: StateStoreBackup, body: Manifest) -> Observed[BackupFacts]:
    key, store = key_of(body), store_of(world, backup.namespace, backup.spec.store_ref.name)
    meta = _serving_meta(world, store)
    tended: BackupsFact | None = world.probes.latest_fact(key, _subject(backup))
    if store is not None and meta and not backup.is_being_deleted:
        # A list in between would hide that making one fails, and so end its pauses.
        pause = retry_seconds(tended) if tended is not None and tended.failures else 0.0
        tended = world.probes.fact(key, _subject(backup), _tend_call(world, store, meta), LIST_SECONDS + pause)
    others = world.refs(backup.namespace, "StateStore", "Secret")
    facts = BackupFacts(store, bool(meta), tended, world.defaults)
    return Observed(facts, world.seen.children(key), others)


def _serving_meta(world: World, store: StoreResource | None) -> str:
    """A `Meta` of the store with a serving node; empty if there is none."""
    if store is None:
        return ""
    metas = resources_of_store(world.refs(store.namespace, "Meta"), "Meta", store)
    serving = [body["metadata"]["name"] for body in metas if (body.get("status") or {}).get("readyReplicas")]
    return min(serving, default="")


async def _tend(world: World, backup: StateStoreBackup, arguments: Mapping[str, Any]) -> None:
    """Start to make and delete backups; a later pass sees the result.

    This runs beside the passes, like every call to a store, and one at a time for each object: while such work or a
    listing runs, nothing else begins, and the next pass asks again.
    """
    store = store_of(world, backup.namespace, backup.spec.store_ref.name)
    meta = _serving_meta(world, store)
    if store is None or not meta:
        return
    about = _subject(backup)
    key = Key(backup.kind, backup.namespace, backup.name)
    last: BackupsFact | None = world.probes.latest_fact(key, about)
    pause = retry_seconds(last) if last is not None and last.problem else 0.0
    if arguments["leaving"]:
        pause = min(pause, RETRY_SECONDS)  # its deletion has a deadline
    failures = last.failures if last is not None else 0
    make = [NewBackup(*wanted) for wanted in arguments["make"]]
    run = _tend_call(world, store, meta, make=make, drop=arguments["drop"], leaving=arguments["leaving"])
    world.probes.fact(key, about, _counting(run, failures), pause)


def _counting(run: Callable[[], Awaitable[BackupsFact]], failures: int) -> Callable[[], Awaitable[BackupsFact]]:
    """The same work, whose result counts the failures in a row."""

    async def counted() -> BackupsFact:
        found = await run()
        return found._replace(failures=failures + 1) if found.problem else found

    return counted


def _tend_call(world: World, store: StoreResource, meta: str, **wishes: Any) -> Callable[[], Awaitable[BackupsFact]]:
    async def run() -> BackupsFact:
        try:
            certificates = await certificates_of(world, store, "client-admin")
        except CertificatesUnreadable as error:
            return BackupsFact(None, str(error), bool(wishes.get("leaving")))
        address = meta_address(meta, store.namespace)
        return await world.probes.call_in_thread(tend, address, certificates, server_name(store), **wishes)

    return run


def _subject(backup: StateStoreBackup) -> tuple[str, str]:
    return "backups", backup.metadata.uid


STATE_STORE_BACKUP = Controller(
    kind="StateStoreBackup",
    parse=parse_backup,
    observe=_observe,
    plan=plan_backup,
    works={TEND_BACKUPS: _tend},
)
"""The controller of `StateStoreBackup`."""
