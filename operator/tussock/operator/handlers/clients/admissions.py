"""What a client, or a job, sees of a store that may be in another namespace, and whom the store has been told of."""

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from tussock.operator.cluster.seen import Key
from tussock.operator.handlers.certificates import issue_own_certificate
from tussock.operator.handlers.rollouts import store_of
from tussock.operator.handlers.world import World
from tussock.operator.manifests.certificates import Certificate, ca_secret
from tussock.operator.manifests.meta import meta_name
from tussock.operator.manifests.meta_config import CLIENTS_FILE
from tussock.operator.planning.clients.declarations import StoreClients, declare, is_granted
from tussock.operator.planning.clients.grants import Admission
from tussock.operator.planning.compute.runs import runs_of
from tussock.operator.planning.words.model import Manifest, Ref
from tussock.operator.planning.words.ownership import holder_in
from tussock.operator.resources.client import StateStoreClient, parse_client
from tussock.operator.resources.common import InvalidResource, StoreUser, store_place
from tussock.operator.resources.compute import Compute, parse_compute
from tussock.operator.resources.store import StoreResource

__all__ = ["admission_of", "declarations_of", "far_jobs", "granted_store", "issue_granted", "surroundings"]

UserT = TypeVar("UserT", bound=StoreUser)

STORES_MAX = 1000
"""Whose declarations are kept in memory."""


def surroundings(world: World, user: StoreUser, *own: str) -> dict[Ref, Manifest]:
    """The store with its parts, from its namespace, and Secrets and the kinds `own` of the user's namespace."""
    found = world.refs(user.store_namespace, "StateStore", "Meta", "Compactor")
    found |= world.refs(user.namespace, "Secret", *own)
    store = store_of(world, user.store_namespace, user.spec.store_ref.name)
    if user.is_far and store is not None:
        # The key of the CA stays where the store is; a Secret of that name here is something else.
        authority = Ref("Secret", ca_secret(store))
        found.pop(authority, None)
        if (body := world.seen.get("Secret", store.namespace, authority.name)) is not None:
            found[authority] = body
    return found


def admission_of(world: World, user: StoreUser) -> Admission:
    """The store that the user names, and what its nodes have been told."""
    store = store_of(world, user.store_namespace, user.spec.store_ref.name)
    if store is None:
        return Admission(None)
    return Admission(store, declarations_of(world, store), _files(world, store))


def granted_store(world: World, user: StoreUser) -> StoreResource | None:
    """The store that the user names; `None` if there is none that allows the user's namespace."""
    store = store_of(world, user.store_namespace, user.spec.store_ref.name)
    return store if store is not None and is_granted(user, store) else None


async def issue_granted(world: World, user: UserT, wanted: Callable[[UserT, StoreResource], Certificate]) -> None:
    """Make or renew the certificate of a job, or of a client; nothing without a store that allows its namespace."""
    store = granted_store(world, user)
    if store is not None:
        await issue_own_certificate(world, user, store, wanted(user, store))


def declarations_of(world: World, store: StoreResource) -> StoreClients:
    """The declared clients of a store. Each client's pass asks, so the answer is kept until one of them changes."""
    bodies = list(_bodies(world, store))
    # A status changes no declaration.
    state = (store.metadata.generation, store.metadata.uid, *map(_state, bodies))
    kept = world.declarations.get((store.namespace, store.name))
    if kept is not None and kept[0] == state:
        return kept[1]
    found = declare(store, list(_parsed(bodies)))
    if len(world.declarations) >= STORES_MAX:
        world.declarations.clear()
    world.declarations[store.namespace, store.name] = state, found
    return found


def far_jobs(world: World, store: StoreResource) -> Iterator[Manifest]:
    """The bodies of the store's jobs in the other namespaces that it allows."""
    for body in world.seen.all_of("Compute"):
        namespace = body["metadata"]["namespace"]
        is_granted = namespace != store.namespace and namespace in store.spec.allowed_namespaces
        if is_granted and store_place(body) == (store.namespace, store.name):
            yield body


def _bodies(world: World, store: StoreResource) -> Iterator[Manifest]:
    for body in world.seen.all_of("StateStoreClient"):
        if store_place(body) == (store.namespace, store.name):
            yield body
    yield from (body for body in far_jobs(world, store) if not _is_over(world, body))


def _is_over(world: World, body: Manifest) -> bool:
    """Whether a job was deleted and its drivers are gone: until then they need the store to end in order."""
    if "deletionTimestamp" not in body["metadata"]:
        return False
    children = world.seen.children(Key("Compute", body["metadata"]["namespace"], body["metadata"]["name"]))
    return not runs_of((child for ref, child in children.items() if ref.kind == "Pod"), holder_in(body))


def _state(body: Manifest) -> tuple[Any, ...]:
    metadata = body["metadata"]
    return metadata["uid"], metadata.get("generation"), "deletionTimestamp" in metadata


def _parsed(bodies: list[Manifest]) -> Iterator[StateStoreClient | Compute]:
    for body in bodies:
        try:
            yield parse_compute(body) if body["kind"] == "Compute" else parse_client(body)
        except InvalidResource:
            continue  # its own status says so, and nobody is let in by it


def _files(world: World, store: StoreResource) -> dict[str, str]:
    """The clients file of each Meta of the store, as the cluster has it; empty without one."""
    found = {}
    for body in world.seen.all_of("Meta", store.namespace):
        if store_place(body) == (store.namespace, store.name):
            name = body["metadata"]["name"]
            file = world.seen.get("ConfigMap", store.namespace, meta_name(name)) or {}
            found[name] = str((file.get("data") or {}).get(CLIENTS_FILE, ""))
    return found
