"""The plan of a service: its children, the order in which they change and end, and its status.

A node ends in order: it takes no further request, replies to those that it has, and commits. Workers outlive it, since
what it has taken runs in them. So a deletion and a suspension end the node first.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from tussock.operator.manifests.certificates import job_certificate
from tussock.operator.manifests.labels import Manifest
from tussock.operator.manifests.meta import meta_address
from tussock.operator.manifests.service.children import (
    WORKERS_ANNOTATION,
    ServiceChildren,
    service_manifests,
    worker_selector,
)
from tussock.operator.manifests.service.names import client_address, workers_name
from tussock.operator.manifests.transport_security import has_tls, service_secret
from tussock.operator.planning.clients.certificates import certificate_deletes, plan_certificate
from tussock.operator.planning.compute.facts import PROGRAM_SECONDS, ComputeFacts
from tussock.operator.planning.compute.gates import Gates, gates_of, stores_metas
from tussock.operator.planning.compute.health import is_ready_pod
from tussock.operator.planning.service.claims import application_conflict, application_of
from tussock.operator.planning.service.health import health_of_service, stop_verdict
from tussock.operator.planning.service.parts import ServiceParts, is_leaving, parts_of
from tussock.operator.planning.service.roll import Roll, roll
from tussock.operator.planning.turns import turn_message
from tussock.operator.planning.words.comparison import applies, prunes
from tussock.operator.planning.words.components import image_of, stamps, status_conditions
from tussock.operator.planning.words.conditions import (
    Reason,
    Verdict,
    idle_verdict,
    problem_verdict,
    progress_verdict,
)
from tussock.operator.planning.words.model import (
    Action,
    Annotate,
    Apply,
    Emit,
    Hold,
    Observed,
    Plan,
    Ref,
    Release,
    ref_of,
    seconds_since,
)
from tussock.operator.planning.words.ownership import deletes, holder_of
from tussock.operator.resources.compute import Compute
from tussock.operator.resources.store import StoreResource, parse_store

__all__ = ["CHANGING_SECONDS", "plan_service"]

LOOK_SECONDS = 15.0
"""The interval of looks at a node that serves: no event reports how it is."""
CHANGING_SECONDS = 2.0
"""The same while it starts, or is scaled."""
_DELETION_SECONDS = 120.0
"""If the store, which has the deadline, is gone: seconds until a deletion gives up on a node that does not end."""
_GRACE_SECONDS = 15.0


def plan_service(compute: Compute, observed: Observed[ComputeFacts], now: datetime) -> Plan:
    """The plan for a service. Raises `InvalidResource` if its spec is invalid."""
    parts, facts = parts_of(compute, observed), observed.facts
    body = observed.others.get(Ref("StateStore", compute.spec.store_ref.name))
    store = parse_store(body) if body is not None else None
    if compute.is_being_deleted:
        return _plan_deletion(compute, observed, store, parts, now)
    if store is not None and store.is_being_deleted:
        told = f"StateStore {store.name} is being deleted, so the node ends."
        verdict = progress_verdict(Reason.DELETING, told)
        return _plan(compute, observed, parts, _ends(compute, observed, parts), verdict, now)
    if store is not None and store.spec.paused:
        told = f"StateStore {store.name} is paused: the operator changes nothing until spec.paused is false."
        paused = Verdict(Reason.PAUSED, told, ready=parts.is_serving, progressing=False, degraded=False)
        return _plan(compute, observed, parts, (), paused, now)
    metas, gates = stores_metas(compute, observed.others), gates_of(compute, observed.others, facts.settled)
    if store is None or not metas:
        assert gates.first is not None
        waiting = gates.first._replace(ready=parts.is_serving)
        return _plan(compute, observed, parts, (Hold(),), waiting, now)
    if facts.application is None:
        # Without its digest, the code of a running node would seem changed.
        return Plan((Hold(),), compute.status, PROGRAM_SECONDS)
    addresses = [meta_address(meta, compute.namespace) for meta in metas]
    made = service_manifests(compute, store, addresses, facts.defaults, facts.application)
    return _plan_children(compute, store, made, parts, gates, observed, now)


def _plan_children(
    compute: Compute,
    store: StoreResource,
    made: ServiceChildren,
    parts: ServiceParts,
    gates: Gates,
    observed: Observed[ComputeFacts],
    now: datetime,
) -> Plan:
    facts = observed.facts
    certificate = plan_certificate(
        *(compute, store, job_certificate(compute, store), observed, now),
        due=facts.certificate_due,
        has_cert_manager=facts.has_cert_manager,
    )
    conflict = certificate.foreign or application_conflict(compute, facts.node, observed.others)
    if facts.missing:
        gates = Gates(problem_verdict(Reason.INVALID_SPEC, facts.missing), None)
    elif certificate.missing is not None:
        gates = gates._replace(first=gates.first or certificate.missing)
    if facts.before:
        gates = gates._replace(turn=turn_message("its node after that", "Compute", facts.before))
    stops = compute.spec.suspend or conflict is not None
    found = roll(compute, store, made, parts, gates, facts.node, now, stops=stops)
    wanted = [*made.around, *certificate.manifests, *found.wanted]
    applied = applies(wanted, observed.children)
    actions: list[Action] = [Hold(), *applied, *certificate.actions, *found.actions]
    actions += _prunes(compute, made, found, [*made.around, *certificate.manifests], observed)
    actions += _refreshes(compute, store, parts, observed)
    actions += _kept_event(applied, made.kept)
    if conflict is not None:
        verdict = conflict
    elif compute.spec.suspend:
        verdict = _suspension(parts, now)
    elif found.verdict is not None:
        verdict = found.verdict
    else:
        verdict = health_of_service(compute, parts, facts.node, now)
        if found.turn:
            verdict = verdict._replace(message=f"{verdict.message} {found.turn}")
        elif verdict.reason is Reason.READY and found.changes_node:
            told = f"The operator is changing the node to image {made.image}."
            verdict = progress_verdict(Reason.ROLLING_OUT, told, serving=True)
    return _plan(compute, observed, parts, tuple(actions), verdict, now, found.again_seconds)


def _prunes(
    compute: Compute,
    made: ServiceChildren,
    found: Roll,
    others: list[Manifest],
    observed: Observed[ComputeFacts],
) -> list[Action]:
    """What is not wanted any more, but for what a node needs that has not ended yet."""
    kept = [*others, made.node, *([made.workers] if made.workers is not None else []), *observed.pods()]
    left = prunes(kept, observed.children, holder_of(compute))
    return [one for one in left if not (found.keeps_workers and one.ref.name == workers_name(compute.name))]


def _suspension(parts: ServiceParts, now: datetime) -> Verdict:
    if parts.node_pods:
        pod = parts.node_pods[0]
        if is_leaving(pod):
            return stop_verdict(pod, "the service is suspended", now)
        return progress_verdict(Reason.DRAINING, f"Stopping pod {pod['metadata']['name']}, to suspend the service.")
    told = "The service is suspended; its state is in the store. It continues when spec.suspend is false."
    return idle_verdict(Reason.SUSPENDED, told)


def _refreshes(
    compute: Compute, store: StoreResource, parts: ServiceParts, observed: Observed[ComputeFacts]
) -> list[Action]:
    """Annotations that make kubelets fetch changed files of running pods; by themselves they take a minute or two."""
    secrets = [service_secret(store, compute.name)] if has_tls(store) else []
    found: list[Action] = list(stamps([*parts.node_pods, *parts.worker_pods], secrets, observed.others))
    wanted: dict[str, str | None] = {WORKERS_ANNOTATION: str(compute.service.workers)}
    for pod in parts.node_pods if compute.service.workers else ():
        held = pod["metadata"].get("annotations") or {}
        if not is_leaving(pod) and not wanted.items() <= held.items():
            found.append(Annotate(ref_of(pod), wanted))
    return found


def _kept_event(applied: tuple[Apply, ...], kept: tuple[str, ...]) -> tuple[Emit, ...]:
    """An event about parts of pod templates that could not hold, each time a workload is applied."""
    if not kept or not any(one.manifest["kind"] in ("StatefulSet", "Deployment") for one in applied):
        return ()
    told = f"The operator sets or forbids, and so ignored, these fields of the pod templates: {', '.join(kept)}."
    return (Emit("Warning", "PodTemplateKept", told),)


def _ends(compute: Compute, observed: Observed[ComputeFacts], parts: ServiceParts) -> tuple[Action, ...]:
    """The node ends, and when its pod has gone, the workers."""
    going = [parts.node, parts.trial, *([] if parts.node_pods else [parts.workers])]
    refs = [ref_of(one) for one in going if one is not None]
    return deletes(observed.children, refs, holder_of(compute))


def _plan_deletion(
    compute: Compute,
    observed: Observed[ComputeFacts],
    store: StoreResource | None,
    parts: ServiceParts,
    now: datetime,
) -> Plan:
    """The plan that lets the node end in order, then releases; Kubernetes deletes the rest with the owner."""
    ends = _ends(compute, observed, parts)
    if not parts.node_pods:
        told = "The node has ended; Kubernetes deletes the other children with this Compute."
        actions = (*ends, *certificate_deletes(compute, observed), Release())
        return _plan(compute, observed, parts, actions, progress_verdict(Reason.DELETING, told), now)
    deadline = store.spec.deletion_deadline_seconds if store else _DELETION_SECONDS
    # A node may use its whole time for the end, whatever the deadline is.
    whole = max(deadline, 2.0 * compute.service.drain_seconds + _GRACE_SECONDS)
    left = whole - seconds_since(compute.metadata.deletion_timestamp, now)
    pod = parts.node_pods[0]["metadata"]["name"]
    if left <= 0:
        told = (
            f"Pod {pod} has not ended after {whole:g} s; its node may be lost. The operator deletes this Compute "
            "without waiting for it."
        )
        event = Emit("Warning", str(Reason.DELETION_GAVE_UP), told)
        actions = (event, *ends, *certificate_deletes(compute, observed), Release())
        return _plan(compute, observed, parts, actions, problem_verdict(Reason.DELETION_GAVE_UP, told), now)
    told = f"Waiting for pod {pod} to answer what it has taken, and to commit."
    return _plan(compute, observed, parts, ends, progress_verdict(Reason.DRAINING, told), now, left)


def _plan(
    compute: Compute,
    observed: Observed[ComputeFacts],
    parts: ServiceParts,
    actions: tuple[Action, ...],
    verdict: Verdict,
    now: datetime,
    again_seconds: float | None = None,
) -> Plan:
    workers = [pod for pod in parts.worker_pods if not is_leaving(pod)]
    status: dict[str, Any] = {
        "observedGeneration": compute.metadata.generation,
        "conditions": status_conditions(compute, verdict, now),
        "selector": ",".join(f"{key}={value}" for key, value in sorted(worker_selector(compute).items())),
        "service": _service_status(compute, observed, parts),
    }
    if compute.service.workers:
        status |= {"replicas": len(workers), "readyReplicas": sum(map(is_ready_pod, workers))}
    if image := image_of(parts.node) or compute.status.get("image", ""):
        status["image"] = image
    if observed.facts.certificate_expires:
        status["certificatesExpireTime"] = observed.facts.certificate_expires
    waits = [] if again_seconds is None else [again_seconds]
    if not compute.is_being_deleted:
        if compute.service.config_map is not None:
            waits.append(PROGRAM_SECONDS)
        if parts.node_pods:
            node = observed.facts.node
            is_at_rest = verdict.reason is Reason.READY and (node is None or node.workers_joined == node.workers)
            waits.append(LOOK_SECONDS if is_at_rest else CHANGING_SECONDS)
    return Plan(actions, status, min(waits, default=None))


def _service_status(compute: Compute, observed: Observed[ComputeFacts], parts: ServiceParts) -> Mapping[str, Any]:
    """What the node has said; without a node only what lasts."""
    node, old = observed.facts.node, compute.status.get("service") or {}
    status: dict[str, Any] = {"endpoint": client_address(compute)}
    if application := application_of(compute, node):
        status["application"] = application
    if node is None or node.problem:
        lasting = ("layer", "version") if not parts.node_pods else tuple(name for name in old if name not in status)
        return {**status, **{name: old[name] for name in lasting if name in old and name != "application"}}
    told = {"layer": node.layer, "state": node.state, "version": node.version, "trouble": node.trouble}
    counts = {"waiting": node.waiting, "outstanding": node.outstanding, "uncommitted": node.uncommitted}
    if compute.service.workers:
        counts |= {"workers": node.workers, "workersJoined": node.workers_joined}
    return {**status, **{name: text for name, text in told.items() if text}, **counts}
