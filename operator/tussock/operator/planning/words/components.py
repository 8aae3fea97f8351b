"""What the plans of meta nodes and compactors share: their store, their rollout, the secrets that they mount."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from tussock.operator.manifests.labels import digest
from tussock.operator.planning.words.comparison import differences, mark
from tussock.operator.planning.words.conditions import (
    Condition,
    Reason,
    Verdict,
    conditions,
    problem_verdict,
    progress_verdict,
)
from tussock.operator.planning.words.model import Annotate, Delete, Emit, Manifest, Ref, ref_of
from tussock.operator.planning.words.ownership import Holder, deletes
from tussock.operator.planning.words.rollout import rollout
from tussock.operator.resources.common import Resource

__all__ = [
    "SECRETS_SEEN",
    "image_of",
    "is_settled",
    "last_verdict",
    "loss_event",
    "match_message",
    "missing_secret",
    "named",
    "no_meta_message",
    "obstacle_of",
    "stamps",
    "status_conditions",
    "store_wait_verdict",
    "workload_deletes",
]

_NAMED_MAX = 5

SECRETS_SEEN = "tussock.dev/secrets-seen"
"""Annotation of pods: a change of it makes the kubelet refresh the pod's secrets now, not in a minute or two."""


def status_conditions(resource: Resource, verdict: Verdict, now: datetime) -> list[Condition]:
    """The conditions of a resource's next status."""
    return conditions(resource.status.get("conditions") or (), verdict, resource.metadata.generation, now)


def last_verdict(resource: Resource) -> Verdict | None:
    """The verdict in the status of a resource on its present spec; `None` without one.

    For a pass that knows less than the one before, as the first ones after the operator's start.
    """
    held = {found["type"]: found for found in resource.status.get("conditions") or ()}
    if not held or resource.status.get("observedGeneration") != resource.metadata.generation:
        return None
    if held["Ready"]["reason"] not in set(Reason) - {Reason.OPERATOR_FAILED}:
        return None  # from another release; or about a pass, and not about the resource
    values = [held[type_]["status"] == "True" for type_ in ("Ready", "Progressing", "Degraded")]
    return Verdict(Reason(held["Ready"]["reason"]), held["Ready"]["message"], *values)


def loss_event(store: Resource, status: Mapping[str, Any]) -> tuple[Emit, ...]:
    """An event about rows that were accepted as lost since the status that the store has."""
    rows = status.get("lostRows", 0) - store.status.get("lostRows", 0)
    if rows <= 0:
        return ()
    told = f"{rows} rows of damaged SSTs were accepted as lost. `tussock status` names the tables, `tussock check` the"
    return (Emit("Warning", "RowsLost", f"{told} keys; a backup or an intact copy of the objects has them."),)


def obstacle_of(store: Mapping[str, Any] | None, name: str) -> str:
    """Why nothing can start on a store with that body; empty if it can.

    Only the store's own findings count (`status.obstacle`). Its conditions cover its parts too, and a part that waited
    for its own report would wait for ever.
    """
    if store is None:
        return f"There is no StateStore {name} in this namespace; create it, or correct spec.storeRef."
    obstacle = (store.get("status") or {}).get("obstacle")
    if obstacle is None:
        return f"The operator is checking StateStore {name} for the first time."
    return f"StateStore {name} is not usable: {obstacle}" if obstacle else ""


def store_wait_verdict(store: Mapping[str, Any] | None, name: str) -> Verdict | None:
    """The verdict on a component that cannot start because of its store; `None` if it can."""
    obstacle = obstacle_of(store, name)
    return progress_verdict(Reason.WAITING_FOR_STORE, obstacle) if obstacle else None


def no_meta_message(store: Mapping[str, Any] | None, name: str) -> str:
    """A message that a store has no meta nodes: the operator creates those of its section, users the others."""
    if ((store or {}).get("spec") or {}).get("meta") is not None:
        return f"The operator is creating Meta {name} of StateStore {name}."
    return f"There is no Meta of StateStore {name}; create one, or set spec.meta of the store."


def match_message(kind: str, names: Sequence[str]) -> str:
    """A message that others wait until the resources of that kind match their specs; names a few of many."""
    if len(names) == 1:
        return f"Waiting until {kind} {names[0]} matches its spec."
    return f"Waiting until the {kind}s {named(names)} match their specs."


def missing_secret(
    credentials: tuple[str, Mapping[str, str]] | None, namespace: str, others: Mapping[Ref, Manifest], what: str
) -> Verdict | None:
    """A verdict on a bucket's secret if it is unusable: a pod would wait for it without a message.

    `credentials` are its name, and its keys by setting; `what` takes them, such as "the restore".
    """
    if credentials is None:
        return None
    name, keys = credentials
    secret = others.get(Ref("Secret", name))
    if secret is None:
        told = f"There is no Secret {name} in namespace {namespace}, from which {what} takes its credentials."
        return problem_verdict(
            Reason.SECRET_NOT_FOUND, f"{told} Create it with the keys {', '.join(sorted(keys.values()))}."
        )
    absent = sorted(key for key in keys.values() if key not in (secret.get("data") or {}))
    if absent:
        told = f"Secret {name}, from which {what} takes its credentials, has no key {', '.join(absent)}; add it."
        return problem_verdict(Reason.SECRET_KEY_MISSING, told)
    return None


def named(names: Sequence[str]) -> str:
    """Names for a message: a few of many."""
    shown, more = ", ".join(names[:_NAMED_MAX]), len(names) - _NAMED_MAX
    return shown if more <= 0 else f"{shown} and {more} more"


def workload_deletes(store: Mapping[str, Any] | None, workload: Manifest | None, holder: Holder) -> tuple[Delete, ...]:
    """A `Delete` of a component's workload, when its store is being deleted and jobs have drained.

    This includes components that users made themselves: such a resource stays, and has nothing to do.
    """
    found = ((store or {}).get("status") or {}).get("conditions") or ()
    drained = any(one["type"] == "Ready" and one["reason"] == Reason.DELETING for one in found)
    if workload is None or not drained:
        return ()
    return deletes({ref_of(workload): workload}, [ref_of(workload)], holder)


def is_settled(wanted: Manifest, observed: Manifest | None, now: datetime) -> bool:
    """Whether a workload matches its manifest and has rolled out, so that those that wait for it may continue."""
    if observed is None or differences(mark(wanted), observed):
        return False
    return rollout(observed, (), now).done


def stamps(
    pods: Sequence[Manifest], names: Sequence[str], secrets: Mapping[Ref, Manifest], *others: str
) -> tuple[Annotate, ...]:
    """Annotations that make kubelets fetch the newest state of the named secrets for these pods.

    `others` are texts that the pods mount beside them, and that change under running pods.
    """
    versions = list(others)
    for name in names:
        found = secrets.get(Ref("Secret", name))
        versions.append(f"{name}={found['metadata'].get('resourceVersion', '')}" if found else f"{name}=")
    if not versions:
        return ()
    # From versions and not from values: a digest of a short password could be guessed.
    seen = digest(*versions)
    return tuple(
        Annotate(ref_of(pod), {SECRETS_SEEN: seen})
        for pod in pods
        if not pod["metadata"].get("deletionTimestamp")
        and (pod["metadata"].get("annotations") or {}).get(SECRETS_SEEN) != seen
    )


def image_of(workload: Manifest | None) -> str:
    """The image of the first container of a workload; empty without one."""
    if workload is None:
        return ""
    containers: list[dict[str, Any]] = workload["spec"]["template"]["spec"]["containers"]
    return str(containers[0].get("image", ""))
