"""How far all stores are with an upgrade of the operator, judged by their workloads."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tussock.operator.cluster.seen import owner_of
from tussock.operator.handlers.rollouts import StoreMetas, metas_of, wanted_by, wanted_compactors
from tussock.operator.handlers.world import World
from tussock.operator.manifests.bucket_access import managed_name
from tussock.operator.manifests.labels import STORE_LABEL
from tussock.operator.manifests.meta import meta_manifests, meta_name
from tussock.operator.manifests.minio import minio_manifests
from tussock.operator.planning.turns import (
    NO_WAIT,
    Standing,
    UpgradeTurn,
    is_asked_by_operator,
    is_changing,
    is_pending,
    is_restarting,
    is_stalled,
    is_upgraded,
    predecessors,
)
from tussock.operator.planning.words.approvals import approved_nodes, approved_server
from tussock.operator.planning.words.conditions import Reason, is_degraded
from tussock.operator.planning.words.model import Manifest, Ref, workload_in
from tussock.operator.resources.common import InvalidResource
from tussock.operator.resources.compactor import Compactor
from tussock.operator.resources.meta import Meta
from tussock.operator.resources.object_store import ManagedStore
from tussock.operator.resources.store import StoreResource, parse_store

__all__ = ["turn_of_compactors", "turn_of_nodes", "turn_of_server"]


def turn_of_nodes(world: World, meta: Meta, store: StoreResource, children: Mapping[Ref, Manifest]) -> UpgradeTurn:
    """What an upgrade's change of a store's meta nodes waits for; nothing if it changes none, or may begin."""
    try:
        name = meta_name(meta.name)
        workload, note = children.get(Ref("Deployment", name)), children.get(Ref("PodDisruptionBudget", name))
        meta, _ = approved_nodes(meta, store, world.defaults, workload, note)
        wanted = meta_manifests(meta, store, world.defaults).manifests
    except InvalidResource:
        return NO_WAIT
    return _turn(world, store) if is_asked_by_operator(wanted, children) else NO_WAIT


def turn_of_compactors(
    world: World, compactor: Compactor, store: StoreResource, metas: StoreMetas, children: Mapping[Ref, Manifest]
) -> UpgradeTurn:
    """The same for compactors. They wait for their own meta nodes first, and follow those that have changed at once.

    These are still in their store's turn, so they wait for no other store, but for one that has failed.
    """
    if not _have_rolled(metas):
        return NO_WAIT
    try:
        wanted = wanted_by(world, compactor, store, metas)
    except InvalidResource:
        return NO_WAIT
    if is_asked_by_operator(wanted, children):
        return _turn(world, store)
    follows = is_asked_by_operator(wanted, children, after_metas=True)
    return UpgradeTurn(is_asked=True, failed=_failed(world, store)) if follows else NO_WAIT


def turn_of_server(world: World, store: StoreResource, children: Mapping[Ref, Manifest]) -> UpgradeTurn:
    """The same for the server of a managed object store, whose restart stops the whole store for a moment."""
    wanted = _server(world, store)
    return _turn(world, store) if wanted is not None and is_asked_by_operator([wanted], children) else NO_WAIT


def _turn(world: World, store: StoreResource) -> UpgradeTurn:
    if failed := _failed(world, store):
        return UpgradeTurn(is_asked=True, failed=failed)
    parts, running = _all(world)
    standings = [_standing(world, name, one, running[name]) for name, one in parts.items()]
    before = predecessors(
        f"{store.namespace}/{store.name}",
        standings,
        lambda name: _has_to_change(world, parts[name], running[name]),
        world.max_unavailable.of(len(parts)),
    )
    return UpgradeTurn(is_asked=True, before=before)


def _all(world: World) -> tuple[dict[str, StoreResource], dict[str, list[Manifest]]]:
    """All stores that the operator may change, by name, and their Deployments."""
    workloads: dict[tuple[str, str], list[Manifest]] = {}
    for found in world.seen.all_of("Deployment"):
        place = found["metadata"]["namespace"], (found["metadata"].get("labels") or {}).get(STORE_LABEL, "")
        workloads.setdefault(place, []).append(found)
    parts = {f"{one.namespace}/{one.name}": one for one in _stores(world)}
    return parts, {name: workloads.get((one.namespace, one.name), []) for name, one in parts.items()}


def _failed(world: World, store: StoreResource) -> str:
    """The first store that has failed an upgrade, with its reason; empty without one.

    Not `store` itself: what else is due there is tried there first, and makes nothing worse.
    """
    parts, running = _all(world)
    for name, one in sorted(parts.items()):
        if name != f"{store.namespace}/{store.name}" and (reason := _failure(world, one, running[name])):
            return f"{name} ({reason})"
    return ""


def _failure(world: World, store: StoreResource, workloads: Sequence[Manifest]) -> str:
    """The reason for which a store fails an upgrade; empty if it does not, or if another change of it is due already.

    A reason and no message: all stores that wait say it, and messages have numbers that change.
    """
    reason = _problem(world, store, workloads)
    # What a store needs is costly to find out, and almost none has failed.
    return reason if reason and not _has_to_change(world, store, workloads) else ""


def _problem(world: World, store: StoreResource, workloads: Sequence[Manifest]) -> str:
    """The reason for which a workload of a store does not serve as an upgrade has made it; empty without one."""
    for found in workloads:
        note = world.seen.get("PodDisruptionBudget", store.namespace, found["metadata"]["name"])
        if is_upgraded(found, note):
            status = _status_of_owner(world, found)
            if is_degraded(status):
                return _reason_of(status)
            if is_stalled(found):
                return "ProgressDeadlineExceeded"
    server = _running_server(world, store)
    if not is_upgraded(server, server) or is_restarting(server, store.status, world.now()):
        return ""
    # No upgrade fills a disk, and none of other stores has to wait until it has grown.
    degraded = is_degraded(store.status) and _reason_of(store.status) != Reason.VOLUME_FILLING
    return _reason_of(store.status) if degraded or not _serves(server) else ""


def _status_of_owner(world: World, workload: Manifest) -> Mapping[str, Any]:
    owner = owner_of(workload)
    return ((world.seen.get(*owner) if owner is not None else None) or {}).get("status") or {}


def _reason_of(status: Mapping[str, Any]) -> str:
    return next((str(one["reason"]) for one in status.get("conditions") or () if one["type"] == "Ready"), "")


def _serves(server: Manifest | None) -> bool:
    numbers = (server or {}).get("status") or {}
    return bool(numbers.get("readyReplicas"))


def _server(world: World, store: StoreResource) -> Manifest | None:
    """The StatefulSet that a managed object store is to have; `None` if it has no secret yet, or cannot be made."""
    secret = world.seen.get("Secret", store.namespace, managed_name(store))
    if secret is None:
        return None
    version = str(secret["metadata"].get("resourceVersion", ""))
    try:
        held, _ = approved_server(store, world.defaults, _running_server(world, store))
        managed = held.spec.object_store.managed
        return workload_in(minio_manifests(held, managed, world.defaults, version).manifests) if managed else None
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
    failed_before = bool(_problem(world, store, workloads))
    return Standing(name, changing and not failed_before, not any(map(is_degraded, statuses)), failed_before)


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
