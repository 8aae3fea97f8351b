"""The controller of `StateStoreClient`."""

from collections.abc import Mapping
from typing import Any

from tussock.operator.cluster.seen import key_of
from tussock.operator.handlers.certificates import certificates_end, own_certificate_fact
from tussock.operator.handlers.clients.admissions import admission_of, issue_granted, surroundings
from tussock.operator.handlers.world import Controller, World
from tussock.operator.manifests.certificates import client_certificate
from tussock.operator.planning.clients.certificates import ISSUE_OWN_CERTIFICATE
from tussock.operator.planning.clients.grants import has_grant
from tussock.operator.planning.clients.plan import ClientFacts, plan_client
from tussock.operator.planning.words.model import Manifest, Observed
from tussock.operator.resources.client import StateStoreClient, parse_client

__all__ = ["STATE_STORE_CLIENT"]


def _observe(world: World, client: StateStoreClient, body: Manifest) -> Observed[ClientFacts]:
    admission, others = admission_of(world, client), surroundings(world, client)
    children = world.seen.children(key_of(body))
    store = admission.store
    if store is None:
        return Observed(ClientFacts(None), children, others)
    certificate = None
    if not client.is_being_deleted and has_grant(client, admission):
        certificate = own_certificate_fact(world, client, store, client_certificate(client, store))
    facts = ClientFacts(
        store,
        admission.declarations,
        admission.files,
        certificate_due=certificate is not None and certificate.due,
        certificate_expires=certificates_end(store, certificate, client.status, children),
        has_cert_manager=world.has_cert_manager,
    )
    return Observed(facts, children, others)


async def _issue_certificate(world: World, client: StateStoreClient, _: Mapping[str, Any]) -> None:
    await issue_granted(world, client, client_certificate)


STATE_STORE_CLIENT = Controller(
    kind="StateStoreClient",
    parse=parse_client,
    observe=_observe,
    plan=plan_client,
    works={ISSUE_OWN_CERTIFICATE: _issue_certificate},
)
"""The controller of `StateStoreClient`."""
