"""The verdict on a service, by its pods and by what its node says."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from tussock.operator.manifests.service.names import client_address, service_name
from tussock.operator.planning.compute.health import is_ready_pod
from tussock.operator.planning.compute.runs import LOST_SECONDS
from tussock.operator.planning.service.parts import ServiceParts, is_leaving
from tussock.operator.planning.words.conditions import Reason, Verdict, problem_verdict, progress_verdict, ready_verdict
from tussock.operator.planning.words.facts import NodeFact
from tussock.operator.planning.words.model import Manifest, seconds_since
from tussock.operator.planning.words.rollout import PodProblem, pod_problem
from tussock.operator.resources.compute import Compute

__all__ = ["STARTING_SECONDS", "health_of_service", "stop_verdict"]

STARTING_SECONDS = 300.0
"""A recovery takes seconds; a program waits five minutes for its workers, and then ends."""
_CAUSE_MAX = 500


def health_of_service(compute: Compute, parts: ServiceParts, node: NodeFact | None, now: datetime) -> Verdict:
    """The verdict on a service that is to run, and of which nothing waits; `node` is what its node says."""
    name = service_name(compute.name)
    leaving = [pod for pod in parts.node_pods if is_leaving(pod)]
    staying = [pod for pod in parts.node_pods if not is_leaving(pod)]
    if leaving and not staying:
        return stop_verdict(leaving[0], "the next one starts", now)
    if not staying:
        # Only its events say why a StatefulSet may not create a pod.
        told = f"Waiting for pod {name}-0; if it does not come: kubectl describe statefulset {name}."
        return progress_verdict(Reason.RUNNING, told)
    pod, workers = staying[0], _workers_problem(parts, now)
    if not is_ready_pod(pod):
        return _starting_verdict(pod, workers, node, now)
    return _serving_verdict(compute, pod, workers, node)


def stop_verdict(pod: Manifest, then: str, now: datetime) -> Verdict:
    """The verdict while a node's pod takes its time to end; `then` says what comes after it."""
    name = pod["metadata"]["name"]
    # By the API's rule, the deletion timestamp is the time by which the pod has to end.
    if seconds_since(pod["metadata"].get("deletionTimestamp"), now) > LOST_SECONDS:
        told = (
            f"Pod {name} was deleted and does not end: its node is lost. When it has gone, {then}: give that node the "
            f"taint node.kubernetes.io/out-of-service, or kubectl delete pod {name} --force. The store refuses what "
            "the old one still writes once another one has begun."
        )
        return problem_verdict(Reason.DRAINING, told, progressing=True)
    told = f"Waiting for pod {name} to answer what it has taken, and to commit; when it has ended, {then}."
    return progress_verdict(Reason.DRAINING, told)


def _starting_verdict(pod: Manifest, workers: PodProblem | None, node: NodeFact | None, now: datetime) -> Verdict:
    name, phase = pod["metadata"]["name"], (pod.get("status") or {}).get("phase") or "Pending"
    problem = pod_problem(pod, now)
    if problem is not None and problem.reason is not Reason.PROBE_FAILED:
        if problem.reason is Reason.UNSCHEDULABLE:
            return progress_verdict(problem.reason, problem.message)
        return problem_verdict(problem.reason, f"{problem.message}{_cause(pod)}", progressing=True)
    waits = node is not None and not node.problem and node.workers_joined < node.workers
    if waits and workers is not None:
        return problem_verdict(workers.reason, workers.message, progressing=True)
    if seconds_since(pod["metadata"].get("creationTimestamp"), now) >= STARTING_SECONDS:
        where = "kubectl logs" if phase == "Running" else "kubectl describe pod"
        told = f"Pod {name} is {phase} for more than {STARTING_SECONDS:g} s and takes no requests; see {where} {name}."
        return problem_verdict(Reason.PROBE_FAILED, told, progressing=True)
    if waits and node is not None:
        told = f"Pod {name} waits for workers: {node.workers_joined} of {node.workers} have joined."
        return progress_verdict(Reason.RUNNING, told)
    if phase == "Running":
        return progress_verdict(Reason.RUNNING, f"Pod {name} has started; it takes no requests yet.")
    return progress_verdict(Reason.RUNNING, f"Waiting for pod {name} to start.")


def _serving_verdict(compute: Compute, pod: Manifest, workers: PodProblem | None, node: NodeFact | None) -> Verdict:
    serves = f"Pod {pod['metadata']['name']} serves at {client_address(compute)}."
    if node is None:
        return ready_verdict(serves)
    if node.problem:
        who = "The operator could not ask it" if node.is_blind else "It does not say how it is"
        return ready_verdict(f"{serves} {who}: {node.problem}")
    wanted = compute.service.workers
    joined = f"{node.workers_joined} have joined"
    if workers is not None and node.workers_joined < wanted:
        return problem_verdict(workers.reason, workers.message, serving=True, progressing=True)
    if wanted and node.workers != wanted:
        told = f"{serves} The program goes on with {node.workers} workers; {wanted} are wanted, and {joined}."
        return progress_verdict(Reason.ROLLING_OUT, told, serving=True)
    if node.workers_joined < node.workers:
        told = f"{serves} Requests wait for workers: {node.workers} are wanted, and {joined}."
        return progress_verdict(Reason.ROLLING_OUT, told, serving=True)
    if node.trouble:
        return problem_verdict(Reason.FEED_STALLED, f"{serves} {node.trouble}", serving=True)
    if node.state == "paused":
        return ready_verdict(f"{serves} It is paused, so requests wait.")
    return ready_verdict(serves)


def _workers_problem(parts: ServiceParts, now: datetime) -> PodProblem | None:
    for pod in parts.worker_pods:
        if is_leaving(pod):
            continue
        found = pod_problem(pod, now)
        if found is not None:
            return PodProblem(found.reason, f"{found.message}{_cause(pod)}")
    if parts.workers is not None and (refused := _refusal(parts.workers)):
        name = parts.workers["metadata"]["name"]
        return PodProblem(Reason.POD_REFUSED, f"Deployment {name} may not create a pod: {refused}")
    return None


def _refusal(workload: Manifest) -> str:
    """Why the API server refuses pods of a Deployment; empty if it does not."""
    held = (workload.get("status") or {}).get("conditions") or ()
    failures = [one for one in held if one.get("type") == "ReplicaFailure" and one.get("status") == "True"]
    return str(failures[0].get("message", "")) if failures else ""


def _cause(pod: Mapping[str, Any]) -> str:
    """The last line that a container wrote before it ended, for a message; empty if it is not known."""
    for container in (pod.get("status") or {}).get("containerStatuses") or ():
        state = (container.get("lastState") or {}).get("terminated") or (container.get("state") or {}).get("terminated")
        lines = str((state or {}).get("message") or "").split("\n")
        last = next((line.strip() for line in reversed(lines) if line.strip()), "")
        if last:
            return f" Its last words: {last[:_CAUSE_MAX]}"
    return ""
