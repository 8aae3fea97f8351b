"""Which declared clients of a store its meta nodes are told of, and why not of the others.

All of them share one file, which the nodes refuse whole for one mistake. So each declaration is looked at alone, and
one that would spoil the file is left out and says so in its status; of two that contradict each other the older counts.
A client that is left out is not let in: no pattern of the roles fits the certificate of a declared client.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tussock.operator.manifests.certificates import issues_certificates
from tussock.operator.manifests.clients import client_entry, client_name
from tussock.operator.planning.words.model import moment_of
from tussock.operator.resources.client import StateStoreClient
from tussock.operator.resources.store import StoreResource

__all__ = ["CLIENTS_MAX", "ENTRIES_BYTES_MAX", "Place", "StoreClients", "declare", "is_granted", "place_of"]

CLIENTS_MAX = 500
"""Of one store."""
ENTRIES_BYTES_MAX = 640 << 10
"""Of all entries together: a ConfigMap holds a MiB, with the settings of the service and what the API adds."""

Place = tuple[str, str]
"""Namespace and name of a client."""


class StoreClients(NamedTuple):
    """The declared clients of a store."""

    entries: Mapping[Place, str] = {}
    """What the file says of each, in the order of the file."""
    refused: Mapping[Place, str] = {}
    """Why it says nothing of the others, and what to do."""


def place_of(client: StateStoreClient) -> Place:
    """Where the client's object is."""
    return client.namespace, client.name


def is_granted(client: StateStoreClient, store: StoreResource) -> bool:
    """Whether the client's namespace may name the store."""
    return client.namespace in (store.namespace, *store.spec.allowed_namespaces)


def declare(store: StoreResource, clients: Sequence[StateStoreClient]) -> StoreClients:
    """The declarations of `clients`, all of which name the store.

    Those that are being deleted count no more, nor those of a namespace that the store does not allow.
    """
    entries: dict[Place, str] = {}
    refused: dict[Place, str] = {}
    known: dict[tuple[Any, ...], str] = {}
    size = 0
    # By age, so that a newer one takes nothing from those that are in force.
    for client in sorted(clients, key=lambda one: (one.metadata.creation_timestamp, *place_of(one))):
        if client.is_being_deleted or not is_granted(client, store):
            continue
        misfit = _misfit(client, store) or _rival(client, known)
        entry = "" if misfit else client_entry(client, store, moment_of(client.spec.expires_at))
        if not misfit and (len(entries) >= CLIENTS_MAX or size + len(entry.encode()) > ENTRIES_BYTES_MAX):
            misfit = (
                f"StateStore {store.name} has {len(entries)} declared clients with {size} bytes of declarations, and "
                f"there is room for {CLIENTS_MAX} clients and {ENTRIES_BYTES_MAX} bytes. Delete some, or shorten their "
                "tables."
            )
        if misfit:
            refused[place_of(client)] = misfit
            continue
        size += len(entry.encode())
        entries[place_of(client)] = entry
        known |= dict.fromkeys(_ways(client), client_name(client))
    return StoreClients(entries, refused)


def _misfit(client: StateStoreClient, store: StoreResource) -> str:
    """Why a declaration cannot be in force, whatever others say; empty if it can."""
    spec = client.spec
    if not issues_certificates(store):
        return (
            f"spec.tls.mode of StateStore {store.name} is {store.spec.tls.mode}, with which no client has its own "
            "certificate: a client that reaches the store may do everything, or has the one certificate that may. Set "
            "it to managed or certManager."
        )
    is_far, issuer = client.namespace != store.namespace, store.spec.tls.issuer_ref
    if is_far and spec.role not in ("reader", "writer"):
        # A user who writes objects there chooses the role, and was allowed to use the store, not to manage it.
        return f"A client of another namespace may be a reader or a writer, and spec.role is {spec.role}."
    if is_far and issuer is not None and issuer.kind == "Issuer":
        return (
            f"Issuer {issuer.name} of StateStore {store.name} issues certificates in its own namespace only. Use a "
            "ClusterIssuer in spec.tls.issuerRef of the store, or spec.tls.mode managed."
        )
    if spec.expires_at and moment_of(spec.expires_at) is None:
        return f"spec.expiresAt is {spec.expires_at!r}, which is no time; write one such as 2027-03-01T00:00:00Z."
    if spec.tables and spec.role != "writer":
        return (
            "spec.tables are of a writer: readers read the bucket themselves, and others work on all. Leave them out."
        )
    if not client.is_known_by_certificate and not spec.oidc:
        return "Nobody is known by it: spec.certificate is false, and there is no other way. Leave it out."
    if any(not one.subject and not one.claims for one in spec.oidc):
        return "An identity of spec.oidc names nobody: give it a subject or claims."
    return ""


def _ways(client: StateStoreClient) -> list[tuple[Any, ...]]:
    """By what the client is known, where two could name the same."""
    return [(one.issuer, one.audience, one.subject, *sorted(one.claims.items())) for one in client.spec.oidc]


def _rival(client: StateStoreClient, known: Mapping[tuple[Any, ...], str]) -> str:
    """Why nobody could say which of two clients calls; empty if it is clear."""
    rivals = sorted({known[one] for one in _ways(client) if one in known})
    if not rivals:
        return ""
    return f"StateStoreClient {rivals[0]} is known by the same identity of spec.oidc. Take it out of one of the two."
