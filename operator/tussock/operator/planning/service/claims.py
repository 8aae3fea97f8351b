"""Two services of a store must not run one application: each start shuts the other one out.

The name of an application is in its code, so it is known when a node has said it. The older service keeps it; the
other one stops, and stays so until the older one is gone or suspended, or its own spec names another application.
"""

from collections.abc import Mapping
from typing import Any

from tussock.operator.planning.words.conditions import Reason, Verdict, problem_verdict
from tussock.operator.planning.words.facts import NodeFact
from tussock.operator.planning.words.model import Manifest, Ref
from tussock.operator.resources.common import store_place
from tussock.operator.resources.compute import Compute

__all__ = ["application_conflict", "application_of"]


def application_of(compute: Compute, node: NodeFact | None) -> str:
    """The application's name by the node, or by the status on the present spec; empty if it is not known."""
    if node is not None and node.application:
        return node.application
    is_same_spec = compute.status.get("observedGeneration") == compute.metadata.generation
    return _named(compute.status) if is_same_spec else ""


def application_conflict(compute: Compute, node: NodeFact | None, others: Mapping[Ref, Manifest]) -> Verdict | None:
    """The verdict if an older service of the store runs the same application; the name decides between equal ages."""
    mine = application_of(compute, node)
    age = (compute.metadata.creation_timestamp, compute.name)
    for ref, body in sorted(others.items()):
        if ref.kind != "Compute" or ref.name == compute.name or not mine or not _runs(body, compute):
            continue
        if _named(body.get("status") or {}) != mine or (_created(body), ref.name) >= age:
            continue
        told = (
            f"Compute {ref.name} runs application {mine!r} of StateStore {compute.spec.store_ref.name}, too, and each "
            "start shuts the other one out. Delete or suspend one of the two, or give the application another name."
        )
        return problem_verdict(Reason.APPLICATION_IN_USE, told)
    return None


def _runs(body: Manifest, compute: Compute) -> bool:
    spec, place = body["spec"], (compute.store_namespace, compute.spec.store_ref.name)
    if spec.get("service") is None or spec.get("suspend") or body["metadata"].get("deletionTimestamp"):
        return False
    return store_place(body) == place


def _named(status: Mapping[str, Any]) -> str:
    return str((status.get("service") or {}).get("application", ""))


def _created(body: Manifest) -> str:
    return body["metadata"].get("creationTimestamp") or ""
