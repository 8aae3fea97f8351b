"""Checks whether a job, a service or a declared client has its own certificate, and requests a missing one.

By it the meta service tells them apart: each has its own name in limits and log lines, and can be shut out alone.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

from tussock.operator.manifests.certificates import (
    Certificate,
    ca_secret,
    cert_manager_manifests,
    issues_certificates,
)
from tussock.operator.planning.certificates import issuing_obstacle
from tussock.operator.planning.words.conditions import Reason, Verdict, progress_verdict
from tussock.operator.planning.words.model import Delete, Manifest, Observed, Ref, Work
from tussock.operator.planning.words.ownership import belongs, deletes, foreign_object_verdict, holder_of, own_child
from tussock.operator.resources.common import Resource
from tussock.operator.resources.store import StoreResource

__all__ = [
    "ISSUE_OWN_CERTIFICATE",
    "OwnCertificate",
    "certificate_deletes",
    "foreign_secret_verdict",
    "plan_certificate",
]

ISSUE_OWN_CERTIFICATE = "issue-own-certificate"


class OwnCertificate(NamedTuple):
    """What to do for the certificate of a job, a service or a declared client."""

    manifests: tuple[Manifest, ...] = ()
    """Requests to cert-manager."""
    actions: tuple[Work, ...] = ()
    missing: Verdict | None = None
    """Why no driver can start yet; a running one continues."""
    foreign: Verdict | None = None
    """An object that does not belong to the resource has its name; the operator neither uses nor touches that."""


def plan_certificate(
    owner: Resource,
    store: StoreResource,
    wanted: Certificate,
    observed: Observed[Any],
    now: datetime,
    *,
    due: bool,
    has_cert_manager: bool,
) -> OwnCertificate:
    """What to do for the certificate `wanted`; `due`: one that the operator issues has to be made or renewed."""
    if not issues_certificates(store):
        return OwnCertificate()
    others = observed.others
    foreign = foreign_secret_verdict(owner, wanted.secret, others)
    if foreign is not None:
        return OwnCertificate(foreign=foreign)
    is_there = Ref("Secret", wanted.secret) in others
    if store.spec.tls.mode == "certManager":
        # Without cert-manager the store's status says so, and the server would refuse an object of an unknown kind.
        asked = cert_manager_manifests(store, (wanted,), owner) if has_cert_manager else ()
        return OwnCertificate(asked, missing=issuing_obstacle(store, [wanted.secret], observed.children, others, now))
    issuing = Ref("Secret", ca_secret(store)) in others and (due or not is_there)
    told = f"Waiting until the operator has issued {wanted.secret}."
    return OwnCertificate(
        actions=(Work(ISSUE_OWN_CERTIFICATE, {}),) if issuing else (),
        missing=None if is_there else progress_verdict(Reason.RECONCILING, told),
    )


def certificate_deletes(owner: Resource, observed: Observed[Any]) -> tuple[Delete, ...]:
    """A `Delete` of the request to cert-manager, and of its Secret, which would stay. Others go with their owner."""
    holder, children = holder_of(owner), observed.children
    asked = [ref for ref in sorted(children) if ref.kind == "Certificate" and own_child(children, ref, holder)]
    return deletes(children, [found for ref in asked for found in (ref, Ref("Secret", ref.name))], holder)


def foreign_secret_verdict(owner: Resource, name: str, others: Mapping[Ref, Manifest]) -> Verdict | None:
    """The verdict if a Secret with the name of one of `owner` is foreign; the operator neither uses nor touches it."""
    ref = Ref("Secret", name)
    holder = holder_of(owner)
    if ref not in others or belongs(others[ref], holder):
        return None
    return foreign_object_verdict(ref, others[ref], owner.namespace, holder)
