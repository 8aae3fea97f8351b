"""How far all stores are with an upgrade of the operator, judged by their workloads."""

from collections.abc import Iterator, Mapping, Sequence

from tussock.operator.handlers.rollouts import StoreMetas, metas_of, wanted_by, wanted_compactors
from tussock.operator.handlers.world import World
from tussock.operator.manifests.bucket_access import managed_name
from tussock.operator.manifests.labels import STORE_LABEL
from tussock.operator.manifests.meta import meta_manifests, meta_name
from tussock.operator.manifests.minio import minio_manifests
from tussock.operator.planning.turns import (
    Standing,
    is_asked_by_operator,
    is_changing,
    is_pending,
    is_restarting,
    predecessors,
)
from tussock.operator.planning.words.conditions import Reason, is_degraded
from tussock.operator.planning.words.model import Manifest, Ref, workload_in
from tussock.operator.resources.common import InvalidResource
from tussock.operator.resources.compactor import Compactor
from tussock.operator.resources.meta import Meta
from tussock.operator.resources.object_store import ManagedStore
from tussock.operator.resources.store import StoreResource, parse_store

__all__ = ["stores_before_compactors", "stores_before_nodes", "stores_before_server"]


def stores_before_nodes(
    world: World, meta: Meta, store: StoreResource, children: Mapping[Ref, Manifest]
) -> tuple[str, ...]:
    """The stores that an upgrade changes before that of `meta`; none if it changes nothing, or may begin."""
    try:
        wanted = meta_manifests(meta, store, world.defaults).manifests
    except InvalidResource:
        return ()
    return _before(world, store) if is_asked_by_operator(wanted, children) else ()


def stores_before_compactors(
    world: World, compactor: Compactor, store: StoreResource, metas: StoreMetas, children: Mapping[Ref, Manifest]
) -> tuple[str, ...]:
    """The same for compactors. They wait for their own meta nodes first, and follow those that have changed at once."""
    if not _have_rolled(metas):
        return ()
    try:
        wanted = wanted_by(world, compactor, store, metas)
    except InvalidResource:
        return ()
    return _before(world, store) if is_asked_by_operator(wanted, children) else ()


def stores_before_server(world: World, store: StoreResource, children: Mapping[Ref, Manifest]) -> tuple[str, ...]:
    """The same for the server of a managed object store, whose restart stops the whole store for a moment."""
    wanted = _server(world, store)
    return _before(world, store) if wanted is not None and is_asked_by_operator([wanted], children) else ()


def _before(world: World, store: StoreResource) -> tuple[str, ...]:
    workloads: dict[tuple[str, str], list[Manifest]] = {}
    for found in world.seen.all_of("Deployment"):
        place = found["metadata"]["namespace"], (found["metadata"].get("labels") or {}).get(STORE_LABEL, "")
        workloads.setdefault(place, []).append(found)
    parts = {f"{one.namespace}/{one.name}": one for one in _stores(world)}
    running = {name: workloads.get((one.namespace, one.name), []) for name, one in parts.items()}
    standings = [_standing(world, name, one, running[name]) for name, one in parts.items()]
    return predecessors(
        f"{store.namespace}/{store.name}",
        standings,
        lambda name: _has_to_change(world, parts[name], running[name]),
        world.rollout_parallel,
    )


def _server(world: World, store: StoreResource) -> Manifest | None:
    """The StatefulSet that a managed object store is to have; `None` if it has no secret yet, or cannot be made."""
    managed = store.spec.object_store.backend
    secret = world.seen.get("Secret", store.namespace, managed_name(store))
    if not isinstance(managed, ManagedStore) or secret is None:
        return None
    version = str(secret["metadata"].get("resourceVersion", ""))
    try:
        return workload_in(minio_manifests(store, managed, world.defaults, version).manifests)
    except InvalidResource:
        return None


def _stores(world: World) -> Iterator[StoreResource]:
    for body in world.seen.all_of("StateStore"):
        try:
            store = parse_store(body)
        except InvalidResource:
            continue  # its own status says so, and nothing of it is changed
        if not store.is_being_deleted and not store.spec.paused:
            yield store


def _standing(world: World, name: str, store: StoreResource, workloads: Sequence[Manifest]) -> Standing:
    bodies = [one for one in world.seen.all_of("Meta", store.namespace) if _is_of(one, store)]
    statuses = [store.status, *(body.get("status") for body in bodies)]
    server = _running_server(world, store)
    changing = any(map(is_changing, workloads)) or is_restarting(server, store.status, world.now())
    return Standing(name, changing, not any(map(is_degraded, statuses)))


def _has_to_change(world: World, store: StoreResource, workloads: Sequence[Manifest]) -> bool:
    """Whether a change of the store's server, its meta nodes or, if those have rolled, its compactors has to begin."""
    server = _server(world, store)
    if server is not None and is_pending(server, _running_server(world, store)):
        return True
    by_name = {found["metadata"]["name"]: found for found in workloads}
    metas = metas_of(world, store)
    refused = {
        meta_name(body["metadata"]["name"]) for body in world.seen.all_of("Meta", store.namespace) if _is_refused(body)
    }
    # A change that the operator refuses never begins, so nobody waits for it.
    wanted = [one for one in metas.workloads if one["metadata"]["name"] not in refused]
    if _have_rolled(metas):
        wanted += [
            workload for compactor, workload in wanted_compactors(world, store, metas) if not compactor.is_being_deleted
        ]
    return any(is_pending(workload, by_name.get(workload["metadata"]["name"])) for workload in wanted)


def _have_rolled(metas: StoreMetas) -> bool:
    return bool(metas.settled) and all(metas.settled.values())


def _running_server(world: World, store: StoreResource) -> Manifest | None:
    if not isinstance(store.spec.object_store.backend, ManagedStore):
        return None
    return world.seen.get("StatefulSet", store.namespace, managed_name(store))


def _is_refused(meta: Manifest) -> bool:
    held = (meta.get("status") or {}).get("conditions") or ()
    return any(one["type"] == "Ready" and one["reason"] == Reason.DOWNGRADE_REFUSED for one in held)


def _is_of(meta: Manifest, store: StoreResource) -> bool:
    return bool((meta["spec"].get("storeRef") or {}).get("name") == store.name)
