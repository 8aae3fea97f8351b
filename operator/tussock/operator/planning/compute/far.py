"""A job in another namespace than its store: it runs while the store allows that, and its nodes have been told.

It is declared at the store's nodes as a client is, so that nobody is let in by its certificate any more when the grant,
or the job, is gone (`planning/clients/`). Its pods find in their namespace what the operator makes there: the job's own
certificate. A secret of the bucket that pods have to mount is not copied: users who may give it put it there.
"""

from typing import NamedTuple

from tussock.operator.manifests.bucket_access import secret_of_clients
from tussock.operator.planning.clients.declarations import place_of
from tussock.operator.planning.clients.grants import LOOK_SECONDS, has_grant, lacking_metas, no_grant_verdict
from tussock.operator.planning.compute.facts import ComputeFacts
from tussock.operator.planning.compute.gates import Gates
from tussock.operator.planning.words.components import missing_secret, named
from tussock.operator.planning.words.conditions import Reason, Verdict, problem_verdict, progress_verdict
from tussock.operator.planning.words.model import Observed, Ref
from tussock.operator.resources.compute import Compute
from tussock.operator.resources.store import StoreResource

__all__ = ["Exclusion", "Wait", "exclusion", "gated", "wait_of"]

SECRET_SECONDS = 5.0
"""The interval of looks for a Secret that a user has to create: its name is in the spec of another object."""


class Exclusion(NamedTuple):
    """Why a job is not let in."""

    verdict: Verdict
    again_seconds: float | None = None
    stops: bool = True
    """Whether its drivers stop."""


class Wait(NamedTuple):
    """What a driver waits for."""

    verdict: Verdict
    again_seconds: float


def exclusion(compute: Compute, observed: Observed[ComputeFacts]) -> Exclusion | None:
    """Why the store does not let a job of another namespace in; `None` if it does, and for a job beside its store."""
    if not compute.is_far:
        return None
    admission = observed.facts.admission
    if not has_grant(compute, admission):
        lacking = lacking_metas(compute, admission)
        # One that is there and cannot be read was not taken from the job, as far as anybody knows.
        is_unreadable = admission.store is None and Ref("StateStore", compute.spec.store_ref.name) in observed.others
        verdict = no_grant_verdict(compute, admission)
        return Exclusion(verdict, LOOK_SECONDS if lacking else None, stops=not is_unreadable)
    refusal = admission.declarations.refused.get(place_of(compute), "")
    if refusal:
        return Exclusion(problem_verdict(Reason.CLIENT_REFUSED, f"The store does not let this job in: {refusal}"))
    return None


def wait_of(compute: Compute, store: StoreResource, observed: Observed[ComputeFacts]) -> Wait | None:
    """What the first driver of a job in another namespace waits for, beside what each job does."""
    if not compute.is_far:
        return None
    lacking = lacking_metas(compute, observed.facts.admission)
    if lacking:
        told = f"The operator is telling the nodes of Meta {named(lacking)} about this job."
        return Wait(progress_verdict(Reason.RECONCILING, told), LOOK_SECONDS)
    missing = missing_secret(secret_of_clients(store), compute.namespace, observed.others, "the job")
    return None if missing is None else Wait(missing, SECRET_SECONDS)


def gated(gates: Gates, wait: Wait | None) -> Gates:
    """The gates, closed while the job waits."""
    if wait is None:
        return gates
    return gates._replace(first=gates.first or wait.verdict, again=gates.again or wait.verdict)
