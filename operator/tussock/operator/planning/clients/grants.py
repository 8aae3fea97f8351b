"""Whether a client, or a job of another namespace, is let in at a store, as far as its nodes have been told.

The plans of the store's Metas write the declarations where the nodes read them. Here they are only compared with what
is there, so a status says what is so, also where a Meta cannot be changed.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from tussock.operator.manifests.clients import client_name, has_entry
from tussock.operator.planning.clients.declarations import StoreClients, is_granted, place_of
from tussock.operator.planning.words.components import named
from tussock.operator.planning.words.conditions import Reason, Verdict, problem_verdict, progress_verdict
from tussock.operator.planning.words.model import seconds_since
from tussock.operator.resources.common import StoreUser
from tussock.operator.resources.store import StoreResource

__all__ = ["LOOK_SECONDS", "Admission", "Parting", "has_grant", "lacking_metas", "no_grant_verdict", "parting_of"]

LOOK_SECONDS = 1.0
"""The interval of looks at what a Meta writes: a change of its ConfigMap wakes the Meta, and nobody else."""


@dataclass(frozen=True)
class Admission:
    """A store, whom it lets in, and what its nodes have been told of that."""

    store: StoreResource | None
    """`None` if there is none, or if it is invalid."""
    declarations: StoreClients = field(default_factory=StoreClients)
    """Those of all clients of the store."""
    files: Mapping[str, str] = field(default_factory=dict)
    """The clients file of each Meta of the store, as it is in the cluster."""


def has_grant(user: StoreUser, admission: Admission) -> bool:
    """Whether there is such a store that allows the user's namespace."""
    return admission.store is not None and is_granted(user, admission.store)


def lacking_metas(user: StoreUser, admission: Admission) -> list[str]:
    """The Metas whose nodes have not been told yet what holds for the user now."""
    entry = admission.declarations.entries.get(place_of(user), "")
    return [meta for meta, file in sorted(admission.files.items()) if not has_entry(file, client_name(user), entry)]


def no_grant_verdict(user: StoreUser, admission: Admission) -> Verdict:
    """The same without such a store as with one that does not allow it: so no namespace looks into another."""
    place = f"{user.store_namespace}/{user.spec.store_ref.name}"
    if admission.store is not None and lacking_metas(user, admission):
        told = f"StateStore {place} allows this namespace no more; the operator is telling its nodes of it."
        if admission.store.spec.paused:
            told = (
                f"StateStore {place} allows this namespace no more, but it is paused: until its spec.paused is false, "
                "its nodes are not told of it."
            )
        return progress_verdict(Reason.RECONCILING, told)
    return problem_verdict(
        Reason.STORE_NOT_GRANTED,
        f"There is no StateStore {place} that allows namespace {user.namespace}, or the operator does not watch that "
        f"namespace. Its owner has to add {user.namespace} to its spec.allowedNamespaces.",
    )


class Parting(NamedTuple):
    """What a deleted object still waits for."""

    verdict: Verdict
    left_seconds: float = 0.0
    """How long it may wait for its declaration to go; 0: it goes now."""
    gives_up: bool = False
    """It goes although nodes still let it in."""


def parting_of(user: StoreUser, admission: Admission, now: datetime, used_seconds: float = 0.0) -> Parting | None:
    """What a deleted object waits for, so that nobody is let in by it when it is gone; `None`: for nothing.

    `used_seconds` are what it may have needed for its own end before.
    """
    store, lacking = admission.store, lacking_metas(user, admission)
    if store is None or store.is_being_deleted or not lacking:
        return None
    deadline = store.spec.deletion_deadline_seconds + used_seconds
    left = deadline - seconds_since(user.metadata.deletion_timestamp, now)
    if left > 0:
        told = f"Waiting until the nodes of Meta {named(lacking)} are told that {client_name(user)} is let in no more."
        return Parting(progress_verdict(Reason.DELETING, told), left)
    told = (
        f"After {deadline:g} s the nodes of Meta {named(lacking)} still let {client_name(user)} in, since the operator "
        "cannot change their ConfigMap. The operator deletes this object all the same; the status of that Meta says "
        "why."
    )
    return Parting(problem_verdict(Reason.DELETION_GAVE_UP, told), gives_up=True)
