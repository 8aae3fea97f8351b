"""Which clients of a store, and jobs of other namespaces, its meta nodes are told of, and why not of the others.

All of them share one file, which the nodes refuse whole for one mistake. So each declaration is looked at alone, and
one that would spoil the file is left out and says so in its status; of two that contradict each other the older counts.
A client that is left out is not let in: no pattern of the roles fits the certificate of a declared client.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tussock.operator.manifests.certificates import issues_certificates
from tussock.operator.manifests.clients import client_entry, client_name, job_entry
from tussock.operator.planning.words.model import moment_of
from tussock.operator.resources.client import StateStoreClient
from tussock.operator.resources.common import StoreUser
from tussock.operator.resources.compute import Compute
from tussock.operator.resources.object_store import VolumeStore
from tussock.operator.resources.store import StoreResource

__all__ = ["CLIENTS_MAX", "ENTRIES_BYTES_MAX", "Place", "StoreClients", "declare", "is_granted", "place_of"]

CLIENTS_MAX = 500
"""Of one store."""
ENTRIES_BYTES_MAX = 640 << 10
"""Of all entries together: a ConfigMap holds a MiB, with the settings of the service and what the API adds."""

Place = tuple[str, str, str]
"""Kind, namespace and name of a client, or of a job."""


class StoreClients(NamedTuple):
    """The declared clients of a store."""

    entries: Mapping[Place, str] = {}
    """What the file says of each, in the order of the file."""
    refused: Mapping[Place, str] = {}
    """Why it says nothing of the others, and what to do."""


def place_of(user: StoreUser) -> Place:
    """Where the object is."""
    return user.kind, user.namespace, user.name


def is_granted(user: StoreUser, store: StoreResource) -> bool:
    """Whether the namespace of a client, or of a job, may name the store."""
    return user.namespace in (store.namespace, *store.spec.allowed_namespaces)


def declare(store: StoreResource, users: Sequence[StateStoreClient | Compute]) -> StoreClients:
    """The declarations of `users`, all of which name the store: its clients, and jobs of other namespaces.

    Clients that are being deleted count no more, nor anybody of a namespace that the store does not allow. A job that
    is being deleted counts as long as it is given: its last batch may still run.
    """
    entries: dict[Place, str] = {}
    refused: dict[Place, str] = {}
    known: dict[tuple[Any, ...], str] = {}
    size = 0
    # By age, so that a newer one takes nothing from those that are in force.
    for user in sorted(users, key=lambda one: (one.metadata.creation_timestamp, *place_of(one))):
        is_over = isinstance(user, StateStoreClient) and user.is_being_deleted
        if is_over or not is_granted(user, store):
            continue
        misfit = _misfit(user, store) or _rival(user, known)
        entry = "" if misfit else _entry(user, store)
        if not misfit and (len(entries) >= CLIENTS_MAX or size + len(entry.encode()) > ENTRIES_BYTES_MAX):
            misfit = (
                f"StateStore {store.name} has {len(entries)} declared clients with {size} bytes of declarations, and "
                f"there is room for {CLIENTS_MAX} clients and {ENTRIES_BYTES_MAX} bytes. Delete some, or shorten their "
                "tables."
            )
        if misfit:
            refused[place_of(user)] = misfit
            continue
        size += len(entry.encode())
        entries[place_of(user)] = entry
        known |= dict.fromkeys(_ways(user), client_name(user))
    return StoreClients(entries, refused)


def _entry(user: StateStoreClient | Compute, store: StoreResource) -> str:
    if isinstance(user, Compute):
        return job_entry(user, store)
    return client_entry(user, store, moment_of(user.spec.expires_at))


def _misfit(user: StateStoreClient | Compute, store: StoreResource) -> str:
    """Why a declaration cannot be in force, whatever others say; empty if it can."""
    if misfit := _misfit_of_store(user, store):
        return misfit
    return _misfit_of_client(user, store) if isinstance(user, StateStoreClient) else ""


def _misfit_of_store(user: StateStoreClient | Compute, store: StoreResource) -> str:
    """Why nobody of this kind and namespace can be a client of the store."""
    if not issues_certificates(store):
        return (
            f"spec.tls.mode of StateStore {store.name} is {store.spec.tls.mode}, with which no client has its own "
            "certificate: a client that reaches the store may do everything, or has the one certificate that may. Set "
            "it to managed or certManager."
        )
    issuer = store.spec.tls.issuer_ref
    if user.is_far and issuer is not None and issuer.kind == "Issuer":
        return (
            f"Issuer {issuer.name} of StateStore {store.name} issues certificates in its own namespace only. Use a "
            "ClusterIssuer in spec.tls.issuerRef of the store, or spec.tls.mode managed."
        )
    if isinstance(user, Compute) and isinstance(store.spec.object_store.backend, VolumeStore):
        return (
            f"StateStore {store.name} is on a volume, which only pods beside it can mount. Create this "
            "Compute there, without spec.storeRef.namespace."
        )
    return ""


def _misfit_of_client(client: StateStoreClient, store: StoreResource) -> str:
    spec = client.spec
    if client.is_far and spec.role not in ("reader", "writer"):
        # A user who writes objects there chooses the role, and was allowed to use the store, not to manage it.
        return f"A client of another namespace may be a reader or a writer, and spec.role is {spec.role}."
    if spec.expires_at and moment_of(spec.expires_at) is None:
        return f"spec.expiresAt is {spec.expires_at!r}, which is no time; write one such as 2027-03-01T00:00:00Z."
    if spec.tables and spec.role != "writer":
        return (
            "spec.tables are of a writer: readers read the bucket themselves, and others work on all. Leave them out."
        )
    if not client.is_known_by_certificate and not spec.oidc and not spec.service_accounts:
        return "Nobody is known by it: spec.certificate is false, and there is no other way. Leave it out."
    if spec.service_accounts and not store.spec.token_reviews:
        return (
            f"spec.tokenReviews of StateStore {store.name} is false, so its nodes know no tokens of service accounts. "
            "Set it to true, or leave spec.serviceAccounts out."
        )
    if any(not one.subject and not one.claims for one in spec.oidc):
        return "An identity of spec.oidc names nobody: give it a subject or claims."
    return ""


def _ways(user: StateStoreClient | Compute) -> dict[tuple[Any, ...], str]:
    """By what a client is known, where two could name the same; and what people call that."""
    if isinstance(user, Compute):
        return {}
    accounts = {
        (user.namespace, name): f"service account {user.namespace}/{name}" for name in user.spec.service_accounts
    }
    identities = [(one.issuer, one.audience, one.subject, *sorted(one.claims.items())) for one in user.spec.oidc]
    return {**accounts, **dict.fromkeys(identities, "identity of spec.oidc")}


def _rival(user: StateStoreClient | Compute, known: Mapping[tuple[Any, ...], str]) -> str:
    """Why nobody could say which of two clients calls; empty if it is clear."""
    rivals = sorted((known[one], what) for one, what in _ways(user).items() if one in known)
    if not rivals:
        return ""
    name, what = rivals[0]
    return f"StateStoreClient {name} is known by the same {what}. Take it out of one of the two."
