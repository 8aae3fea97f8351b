"""The plan of a `StateStoreClient`: its certificate, whether its declaration is in force, and its status.

The plans of the store's Metas write the declaration where the nodes read it; here it is only compared with what they
have written (`grants.py`).
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tussock.operator.manifests.certificates import client_certificate
from tussock.operator.manifests.clients import client_name, token_audience
from tussock.operator.manifests.meta import meta_address
from tussock.operator.manifests.transport_security import client_secret
from tussock.operator.planning.clients.certificates import OwnCertificate, certificate_deletes, plan_certificate
from tussock.operator.planning.clients.declarations import place_of
from tussock.operator.planning.clients.grants import (
    LOOK_SECONDS,
    Admission,
    has_grant,
    lacking_metas,
    no_grant_verdict,
    parting_of,
)
from tussock.operator.planning.words.comparison import applies
from tussock.operator.planning.words.components import named, no_meta_message, status_conditions, store_wait_verdict
from tussock.operator.planning.words.conditions import (
    Reason,
    Verdict,
    idle_verdict,
    is_serving,
    problem_verdict,
    progress_verdict,
    ready_verdict,
)
from tussock.operator.planning.words.model import (
    Action,
    Emit,
    Hold,
    Observed,
    Plan,
    Ref,
    Release,
    moment_of,
)
from tussock.operator.planning.words.ownership import belongs, holder_of
from tussock.operator.resources.client import StateStoreClient
from tussock.operator.resources.store import StoreResource

__all__ = ["ClientFacts", "plan_client"]

FOREIGN_SECONDS = 5.0
"""The interval of looks at a Secret of somebody else that has the name of the client's."""


@dataclass(frozen=True)
class ClientFacts(Admission):
    """What the plan of a `StateStoreClient` needs beside objects of its store."""

    certificate_due: bool = False
    """The operator issues its certificate, and has to make or renew it."""
    certificate_expires: str = ""
    """When its certificate ends (RFC 3339); empty if it has none."""
    has_cert_manager: bool = False
    """Whether cert-manager is in the cluster."""


def plan_client(client: StateStoreClient, observed: Observed[ClientFacts], now: datetime) -> Plan:
    """The plan for a declared client."""
    facts, name = observed.facts, client.spec.store_ref.name
    store, body = facts.store, observed.others.get(Ref("StateStore", name))
    if client.is_being_deleted:
        return _plan_deletion(client, observed, now)
    if client.is_far and not has_grant(client, facts):
        lacking = lacking_metas(client, facts)
        again = LOOK_SECONDS if lacking else None
        return Plan((Hold(),), _status(client, observed, no_grant_verdict(client, facts), now), again)
    refusal = facts.declarations.refused.get(place_of(client), "")
    if store is None or store.is_being_deleted or refusal:
        waits = store_wait_verdict(body, name) or progress_verdict(
            Reason.WAITING_FOR_STORE, f"StateStore {name} is invalid or being deleted; see its status."
        )
        if refusal:
            waits = problem_verdict(Reason.CLIENT_REFUSED, f"The declaration is not in force: {refusal}")
        return Plan((Hold(),), _status(client, observed, waits, now))
    shut_out, expires = _shut_out(client, now), moment_of(client.spec.expires_at)
    certificate = OwnCertificate()
    if shut_out is None and not store.spec.paused:
        certificate = plan_certificate(
            *(client, store, client_certificate(client, store), observed, now),
            due=facts.certificate_due,
            has_cert_manager=facts.has_cert_manager,
        )
    lacking = lacking_metas(client, facts)
    verdict, again = _verdict(client, store, observed, certificate, shut_out), None
    if lacking and not store.spec.paused:
        again = LOOK_SECONDS
    elif certificate.foreign is not None:
        again = FOREIGN_SECONDS  # nobody reports that a Secret goes which is not ours
    elif shut_out is None and expires is not None:
        again = max(0.0, (expires - now).total_seconds())
    actions: list[Action] = [Hold(), *applies(certificate.manifests, observed.children), *certificate.actions]
    return Plan(tuple(actions), _status(client, observed, verdict, now), again)


def _shut_out(client: StateStoreClient, now: datetime) -> Verdict | None:
    """The verdict on a client that is let in no more; `None` if it is let in."""
    expires = moment_of(client.spec.expires_at)
    if client.spec.revoked:
        told = "The client is revoked, and its sessions have ended; set spec.revoked to false to let it in again."
        return idle_verdict(Reason.REVOKED, told)
    # At that very moment, too, as the nodes do.
    if expires is not None and now >= expires:
        told = f"The client has expired ({client.spec.expires_at}); set another spec.expiresAt, or delete it."
        return idle_verdict(Reason.EXPIRED, told)
    return None


def _verdict(
    client: StateStoreClient,
    store: StoreResource,
    observed: Observed[ClientFacts],
    certificate: OwnCertificate,
    shut_out: Verdict | None,
) -> Verdict:
    facts, lacking = observed.facts, lacking_metas(client, observed.facts)
    metas = [observed.others[Ref("Meta", name)] for name in sorted(facts.files)]
    serves = bool(metas) and not lacking and any(map(is_serving, metas))
    if store.spec.paused:
        told = f"StateStore {store.name} is paused: the operator changes nothing until spec.paused is false"
        late = f", so this declaration is not in force in Meta {named(lacking)}" if lacking else ""
        is_ready = serves and shut_out is None and bool(facts.certificate_expires)
        return Verdict(Reason.PAUSED, f"{told}{late}.", ready=is_ready, progressing=False, degraded=False)
    if lacking:
        told = f"The operator is telling the nodes of Meta {named(lacking)} about the declaration."
        return progress_verdict(Reason.RECONCILING, told)
    if shut_out is not None:
        return shut_out
    if certificate.foreign is not None:
        return certificate.foreign
    waits = store_wait_verdict(observed.others.get(Ref("StateStore", store.name)), store.name)
    if certificate.missing is not None:
        return waits or certificate.missing
    if not serves:
        told = f"Waiting until Meta {named(sorted(facts.files))} serves."
        missing = no_meta_message(observed.others.get(Ref("StateStore", store.name)), store.name)
        return waits or progress_verdict(Reason.WAITING_FOR_META, told if metas else missing)
    secret, name = client_secret(client.name), client_name(client)
    if client.is_known_by_certificate:
        return ready_verdict(f"A program with the certificate in Secret {secret} may call as {name}.")
    tokens = {"spec.serviceAccounts": client.spec.service_accounts, "spec.oidc": client.spec.oidc}
    ways = [field for field, given in tokens.items() if given]
    return ready_verdict(
        f"A program with one of the tokens of {' or '.join(ways)} may call as {name}; the certificate in "
        f"Secret {secret} only opens the connection."
    )


def _plan_deletion(client: StateStoreClient, observed: Observed[ClientFacts], now: datetime) -> Plan:
    """The plan that lets the object go once its declaration is out of the nodes' files: then nobody is let in by it."""
    parting = parting_of(client, observed.facts, now)
    if parting is not None and not parting.gives_up:
        again = min(LOOK_SECONDS, parting.left_seconds)
        return Plan((), _status(client, observed, parting.verdict, now), again)
    end: tuple[Action, ...] = (*certificate_deletes(client, observed), Release())
    if parting is None:
        verdict = progress_verdict(Reason.DELETING, "No node lets this client in; Kubernetes deletes its certificate.")
        return Plan(end, _status(client, observed, verdict, now))
    event = Emit("Warning", str(parting.verdict.reason), parting.verdict.message)
    return Plan((event, *end), _status(client, observed, parting.verdict, now))


def _status(
    client: StateStoreClient, observed: Observed[ClientFacts], verdict: Verdict, now: datetime
) -> dict[str, Any]:
    facts = observed.facts
    status: dict[str, Any] = {
        "observedGeneration": client.metadata.generation,
        "conditions": status_conditions(client, verdict, now),
        "identity": f"client:{client_name(client)}",
    }
    if facts.store is not None and facts.files and has_grant(client, facts):
        addresses = [meta_address(meta, facts.store.namespace) for meta in sorted(facts.files)]
        if client.spec.service_accounts:
            status["audience"] = token_audience(facts.store)
        status["endpoint"] = f"tussock://{','.join(addresses)}"
    secret = observed.others.get(Ref("Secret", client_secret(client.name)))
    if secret is not None and belongs(secret, holder_of(client)):
        status["secretName"] = client_secret(client.name)
        # Nobody renews the certificate of a client that is shut out, and nobody should be told to.
        if facts.certificate_expires and _shut_out(client, now) is None:
            status["certificatesExpireTime"] = facts.certificate_expires
    return status
