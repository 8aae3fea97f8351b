"""Checks whether a job has the certificate by which the meta service knows it, and requests a missing one.

A job has its own name in limits and log lines, and does not need the certificate that all writers share.
"""

from datetime import datetime
from typing import Any, NamedTuple

from tussock.operator.manifests.certificates import (
    ca_secret,
    cert_manager_manifests,
    issues_certificates,
    job_certificate,
)
from tussock.operator.planning.certificates import issuing_obstacle
from tussock.operator.planning.compute.secrets import foreign_secret_verdict
from tussock.operator.planning.words.conditions import Reason, Verdict, progress_verdict
from tussock.operator.planning.words.model import Delete, Manifest, Observed, Ref, Work
from tussock.operator.planning.words.ownership import deletes, holder_of, own_child
from tussock.operator.resources.compute import Compute
from tussock.operator.resources.store import StoreResource

__all__ = ["ISSUE_JOB_CERTIFICATE", "JobCertificate", "certificate_deletes", "plan_certificate"]

ISSUE_JOB_CERTIFICATE = "issue-job-certificate"


class JobCertificate(NamedTuple):
    """What to do for the certificate of a job."""

    manifests: tuple[Manifest, ...] = ()
    """Requests to cert-manager."""
    actions: tuple[Work, ...] = ()
    missing: Verdict | None = None
    """Why no driver can start yet; a running one continues."""
    foreign: Verdict | None = None
    """An object that does not belong to the job has its name; the operator neither uses nor touches that."""


def plan_certificate(
    compute: Compute, store: StoreResource, observed: Observed[Any], now: datetime, *, due: bool, has_cert_manager: bool
) -> JobCertificate:
    """What to do for the certificate of a job; `due`: one that the operator issues has to be made or renewed."""
    if not issues_certificates(store):
        return JobCertificate()
    wanted, others = job_certificate(compute, store), observed.others
    foreign = foreign_secret_verdict(compute, wanted.secret, others)
    if foreign is not None:
        return JobCertificate(foreign=foreign)
    is_there = Ref("Secret", wanted.secret) in others
    if store.spec.tls.mode == "certManager":
        # Without cert-manager the store's status says so, and the server would refuse an object of an unknown kind.
        asked = cert_manager_manifests(store, (wanted,), compute) if has_cert_manager else ()
        return JobCertificate(asked, missing=issuing_obstacle(store, [wanted.secret], observed.children, others, now))
    issuing = Ref("Secret", ca_secret(store)) in others and (due or not is_there)
    told = f"Waiting until the operator has issued {wanted.secret}."
    return JobCertificate(
        actions=(Work(ISSUE_JOB_CERTIFICATE, {}),) if issuing else (),
        missing=None if is_there else progress_verdict(Reason.RECONCILING, told),
    )


def certificate_deletes(compute: Compute, observed: Observed[Any]) -> tuple[Delete, ...]:
    """A `Delete` of the request to cert-manager, and of its Secret, which would stay. Others go with the job."""
    holder, children = holder_of(compute), observed.children
    asked = [ref for ref in sorted(children) if ref.kind == "Certificate" and own_child(children, ref, holder)]
    return deletes(children, [found for ref in asked for found in (ref, Ref("Secret", ref.name))], holder)
