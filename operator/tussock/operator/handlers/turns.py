"""How far all stores are with an upgrade of the operator, judged by their workloads."""

from collections.abc import Iterator, Mapping

from tussock.operator.handlers.world import World
from tussock.operator.manifests.bucket_access import managed_name
from tussock.operator.manifests.labels import STORE_LABEL
from tussock.operator.manifests.meta import meta_manifests
from tussock.operator.manifests.minio import minio_manifests
from tussock.operator.planning.turns import (
    StoreTurn,
    is_asked_by_operator,
    is_changing,
    is_pending,
    is_restarting,
    predecessors,
)
from tussock.operator.planning.words.model import Manifest, Ref
from tussock.operator.resources.common import InvalidResource
from tussock.operator.resources.meta import Meta, parse_meta
from tussock.operator.resources.object_store import ManagedStore
from tussock.operator.resources.store import StoreResource, parse_store

__all__ = ["stores_before_nodes", "stores_before_server"]


def stores_before_nodes(
    world: World, meta: Meta, store: StoreResource, children: Mapping[Ref, Manifest]
) -> tuple[str, ...]:
    """The stores that an upgrade changes before that of `meta`; none if it changes nothing, or may begin."""
    try:
        wanted = meta_manifests(meta, store, world.defaults).manifests
    except InvalidResource:
        return ()
    return _before(world, store) if is_asked_by_operator(wanted, children) else ()


def stores_before_server(world: World, store: StoreResource, children: Mapping[Ref, Manifest]) -> tuple[str, ...]:
    """The same for the server of a managed object store, whose restart stops the whole store for a moment."""
    wanted = _server(world, store)
    return _before(world, store) if wanted is not None and is_asked_by_operator([wanted], children) else ()


def _before(world: World, store: StoreResource) -> tuple[str, ...]:
    return predecessors(f"{store.namespace}/{store.name}", list(_turns(world)), world.rollout_parallel)


def _server(world: World, store: StoreResource) -> Manifest | None:
    """The StatefulSet that a managed object store is to have; `None` if it has no secret yet, or cannot be made."""
    managed = store.spec.object_store.backend
    secret = world.seen.get("Secret", store.namespace, managed_name(store))
    if not isinstance(managed, ManagedStore) or secret is None:
        return None
    version = str(secret["metadata"].get("resourceVersion", ""))
    try:
        made = minio_manifests(store, managed, world.defaults, version).manifests
    except InvalidResource:
        return None
    return next(one for one in made if one["kind"] == "StatefulSet")


def _turns(world: World) -> Iterator[StoreTurn]:
    workloads: dict[tuple[str, str], list[Manifest]] = {}
    for found in world.seen.all_of("Deployment"):
        place = found["metadata"]["namespace"], (found["metadata"].get("labels") or {}).get(STORE_LABEL, "")
        workloads.setdefault(place, []).append(found)
    for body in world.seen.all_of("StateStore"):
        try:
            store = parse_store(body)
            if not store.is_being_deleted and not store.spec.paused:
                yield _turn(world, store, body, workloads.get((store.namespace, store.name), []))
        except InvalidResource:
            continue  # its own status says so, and nothing of it is changed


def _turn(world: World, store: StoreResource, body: Manifest, workloads: list[Manifest]) -> StoreTurn:
    bodies = [one for one in world.seen.all_of("Meta", store.namespace) if _is_of(one, store)]
    by_name = {found["metadata"]["name"]: found for found in workloads}
    server = _server(world, store)
    found = world.seen.get("StatefulSet", store.namespace, managed_name(store)) if server is not None else None
    pending = server is not None and is_pending(server, found)
    for meta in map(parse_meta, bodies):
        wanted = meta_manifests(meta, store, world.defaults).manifests
        [workload] = [one for one in wanted if one["kind"] == "Deployment"]
        pending = pending or is_pending(workload, by_name.get(workload["metadata"]["name"]))
    return StoreTurn(
        name=f"{store.namespace}/{store.name}",
        pending=pending,
        changing=any(map(is_changing, workloads)) or is_restarting(found, body, world.now()),
        well=not any(map(_is_degraded, (body, *bodies))),
    )


def _is_of(meta: Manifest, store: StoreResource) -> bool:
    return bool((meta["spec"].get("storeRef") or {}).get("name") == store.name)


def _is_degraded(body: Manifest) -> bool:
    found = (body.get("status") or {}).get("conditions") or ()
    return any(one["type"] == "Degraded" and one["status"] == "True" for one in found)
