"""The controller of `StateStoreClient`, and the declared clients of a store for the plans of its Metas."""

from collections.abc import Iterator, Mapping
from typing import Any

from tussock.operator.cluster.seen import key_of
from tussock.operator.handlers.certificates import certificates_end, issue_own_certificate, own_certificate_fact
from tussock.operator.handlers.rollouts import store_of
from tussock.operator.handlers.world import Controller, World
from tussock.operator.manifests.certificates import ca_secret, client_certificate
from tussock.operator.manifests.meta import meta_name
from tussock.operator.manifests.meta_config import CLIENTS_FILE
from tussock.operator.planning.clients.certificates import ISSUE_OWN_CERTIFICATE
from tussock.operator.planning.clients.declarations import StoreClients, declare, is_granted
from tussock.operator.planning.clients.plan import ClientFacts, plan_client
from tussock.operator.planning.parts import resources_of_store
from tussock.operator.planning.words.model import Manifest, Observed, Ref
from tussock.operator.resources.client import StateStoreClient, parse_client
from tussock.operator.resources.common import InvalidResource, store_place
from tussock.operator.resources.store import StoreResource

__all__ = ["STATE_STORE_CLIENT", "declarations_of"]

STORES_MAX = 1000
"""Whose declarations are kept in memory."""


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


def _bodies(world: World, store: StoreResource) -> Iterator[Manifest]:
    for body in world.seen.all_of("StateStoreClient"):
        if store_place(body) == (store.namespace, store.name):
            yield body


def _state(body: Manifest) -> tuple[Any, ...]:
    metadata = body["metadata"]
    return metadata["uid"], metadata.get("generation"), "deletionTimestamp" in metadata


def _parsed(bodies: list[Manifest]) -> Iterator[StateStoreClient]:
    for body in bodies:
        try:
            yield parse_client(body)
        except InvalidResource:
            continue  # its own status says so, and nobody is let in by it


def _observe(world: World, client: StateStoreClient, body: Manifest) -> Observed[ClientFacts]:
    store = store_of(world, client.store_namespace, client.spec.store_ref.name)
    others = world.refs(client.store_namespace, "StateStore", "Meta") | world.refs(client.namespace, "Secret")
    children = world.seen.children(key_of(body))
    if store is None:
        return Observed(ClientFacts(None), children, others)
    # The key of the CA stays where the store is.
    authority = Ref("Secret", ca_secret(store))
    others.pop(authority, None)
    if (found := world.seen.get("Secret", store.namespace, authority.name)) is not None:
        others[authority] = found
    certificate = None
    if not client.is_being_deleted and is_granted(client, store):
        certificate = own_certificate_fact(world, client, store, client_certificate(client, store))
    facts = ClientFacts(
        store,
        declarations_of(world, store),
        {found["metadata"]["name"]: _file(world, found) for found in resources_of_store(others, "Meta", store)},
        certificate_due=certificate is not None and certificate.due,
        certificate_expires=certificates_end(store, certificate, client.status, children),
        has_cert_manager=world.has_cert_manager,
    )
    return Observed(facts, children, others)


def _file(world: World, meta: Manifest) -> str:
    """The clients file of a Meta as the cluster has it; empty without one."""
    found = world.seen.get("ConfigMap", meta["metadata"]["namespace"], meta_name(meta["metadata"]["name"]))
    return str(((found or {}).get("data") or {}).get(CLIENTS_FILE, ""))


async def _issue_certificate(world: World, client: StateStoreClient, _: Mapping[str, Any]) -> None:
    store = store_of(world, client.store_namespace, client.spec.store_ref.name)
    if store is not None and is_granted(client, store):
        await issue_own_certificate(world, client, store, client_certificate(client, store))


STATE_STORE_CLIENT = Controller(
    kind="StateStoreClient",
    parse=parse_client,
    observe=_observe,
    plan=plan_client,
    works={ISSUE_OWN_CERTIFICATE: _issue_certificate},
)
"""The controller of `StateStoreClient`."""
