"""The progress of a Deployment or StatefulSet, and what blocks it.

Kubernetes reports this in many places: the workload's status, the conditions of pods, the states of containers. The
message has the first problem that explains the rest, with the pod's name and Kubernetes' own words.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from tussock.operator.planning.words.conditions import Reason, Verdict, problem_verdict, progress_verdict, ready_verdict
from tussock.operator.planning.words.model import Manifest, seconds_since
from tussock.operator.planning.words.releases import WAY_OUT, newer_format

__all__ = ["PodProblem", "Rollout", "last_message", "pod_problem", "rollout", "verdict_of"]

UNSCHEDULABLE_SECONDS = 30.0
"""The scheduler may wait this long for a new node before it is worth a message."""
NOT_READY_SECONDS = 60.0
"""A container that runs this long without being ready is worth a message, even if it is just slow."""

_SAID_MAX = 500
"""Characters of a pod's termination message."""

_PULL = {"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "RegistryUnavailable"}
_CONFIG = {"CreateContainerConfigError", "CreateContainerError", "RunContainerError"}


class PodProblem(NamedTuple):
    """Why a pod does not run."""

    reason: Reason
    message: str


class Rollout(NamedTuple):
    """A workload in numbers, and its problem."""

    wanted: int
    replicas: int
    updated: int
    ready: int
    """Old and new ones together: those that serve."""
    done: bool
    """All pods match the spec and are ready, and there are no others."""
    problem: PodProblem | None = None


def rollout(workload: Manifest | None, pods: Sequence[Manifest], now: datetime, wanted: int = 1) -> Rollout:
    """The progress of `workload`, whose pods are `pods`; if it does not exist yet, `wanted` is its size."""
    if workload is None:
        return Rollout(wanted, 0, 0, 0, done=False)
    spec, status = workload.get("spec") or {}, workload.get("status") or {}
    wanted = spec.get("replicas", 1)
    replicas, updated = status.get("replicas", 0), status.get("updatedReplicas", 0)
    serving = status.get("readyReplicas", 0)
    current = status.get("observedGeneration", 0) >= workload["metadata"].get("generation", 0)
    done = current and replicas == updated == serving == wanted
    problem = None if done else _first_problem(workload, pods, now)
    return Rollout(wanted, replicas, updated, serving, done, problem)


def verdict_of(found: Rollout, what: str, image: str) -> Verdict:
    """The verdict on a component with that rollout; `what` are its nodes, such as `meta nodes`."""
    serving = found.ready > 0 or (found.done and found.wanted == 0)
    if found.problem:
        old = " The old pods still serve." if serving else ""
        if found.problem.reason is Reason.UNSCHEDULABLE:
            return progress_verdict(Reason.UNSCHEDULABLE, found.problem.message + old, serving=serving)
        return problem_verdict(found.problem.reason, found.problem.message + old, serving=serving, progressing=True)
    if found.done and not found.wanted:
        return ready_verdict(f"The spec asks for no {what}.")
    if found.done:
        return ready_verdict(f"All {found.wanted} {what} serve.")
    if found.updated > found.wanted and found.ready >= found.wanted:
        left = found.updated - found.wanted
        told = f"{found.wanted} {what} serve; {left} more {'is' if left == 1 else 'are'} being stopped."
        return progress_verdict(Reason.ROLLING_OUT, told, serving=serving)
    # Old pods serve until new ones do, so serving pods are counted as old first.
    new = max(0, found.ready - (found.replicas - found.updated))
    return progress_verdict(
        Reason.ROLLING_OUT,
        f"{new} of {found.wanted} {what} serve with image {image}.",
        serving=serving,
    )


def last_message(status: Mapping[str, Any]) -> str:
    """The termination message of a pod's last failed attempt, from its status; empty if none has failed."""
    for container in status.get("containerStatuses") or ():
        for state in (container.get("state") or {}, container.get("lastState") or {}):
            ended = state.get("terminated") or {}
            if ended.get("exitCode"):
                said = " ".join(str(ended.get("message") or f"exit code {ended['exitCode']}").split())
                return f"{said[-_SAID_MAX:].rstrip('.')}."
    return ""


def pod_problem(pod: Manifest, now: datetime) -> PodProblem | None:
    """What is wrong with a pod, in Kubernetes' words and ours; `None` if nothing is."""
    name, status = pod["metadata"]["name"], pod.get("status") or {}
    if pod["metadata"].get("deletionTimestamp"):
        return None
    scheduled = _condition(status, "PodScheduled")
    if scheduled.get("status") == "False" and scheduled.get("reason") == "Unschedulable":
        if seconds_since(scheduled.get("lastTransitionTime"), now) < UNSCHEDULABLE_SECONDS:
            return None
        return PodProblem(Reason.UNSCHEDULABLE, f"Pod {name} finds no node: {scheduled.get('message', '')}.")
    for container in [*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())]:
        found = _container_problem(name, container, now)
        if found:
            return found
    return None


def _container_problem(pod: str, container: Mapping[str, Any], now: datetime) -> PodProblem | None:
    state = container.get("state") or {}
    waiting, running = state.get("waiting") or {}, state.get("running")
    reason, said = waiting.get("reason", ""), waiting.get("message", "")
    if reason in _PULL:
        return PodProblem(
            Reason.IMAGE_PULL_FAILED,
            f"Pod {pod} cannot pull image {container.get('image', '')}: {said or reason}. Set an image that exists "
            "and that the nodes may pull (spec.images, pullSecrets).",
        )
    if reason in _CONFIG:
        return PodProblem(
            Reason.CONTAINER_CONFIG_FAILED,
            f"Kubernetes cannot create the container of pod {pod}: {said or reason}. Provide what the message names.",
        )
    ended = (container.get("lastState") or {}).get("terminated") or state.get("terminated") or {}
    if (unread := newer_format(str(ended.get("message") or ""))) and not container.get("ready"):
        # At its first end already: no other one will read more.
        return PodProblem(
            Reason.DOWNGRADE_REFUSED,
            f"Pod {pod} has image {container.get('image', '')}, whose release is too old for this store: {unread}. "
            f"{WAY_OUT}",
        )
    if reason == "CrashLoopBackOff" or (container.get("restartCount", 0) >= 2 and not container.get("ready")):
        why = f"{ended.get('reason', 'Error')}, exit code {ended.get('exitCode', '?')}"
        return PodProblem(
            Reason.CRASH_LOOPING,
            f"The container of pod {pod} has ended {_times(container.get('restartCount', 0))} ({why}). See "
            f"kubectl logs --previous {pod}.",
        )
    if running and not container.get("ready") and seconds_since(running.get("startedAt"), now) > NOT_READY_SECONDS:
        return PodProblem(
            Reason.PROBE_FAILED,
            f"Pod {pod} runs but is not ready. Its probe says why: kubectl describe pod {pod}.",
        )
    return None


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _first_problem(workload: Manifest, pods: Sequence[Manifest], now: datetime) -> PodProblem | None:
    failure = _condition(workload.get("status") or {}, "ReplicaFailure")
    if failure.get("status") == "True":
        name = workload["metadata"]["name"]
        return PodProblem(
            Reason.POD_REFUSED, f"{workload['kind']} {name} may not create a pod: {failure.get('message', '')}"
        )
    # New pods first: their problem is why the rollout stops.
    newest = sorted(pods, key=lambda pod: pod["metadata"].get("creationTimestamp") or "", reverse=True)
    problems = ((pod, found) for pod in newest if (found := pod_problem(pod, now)))
    return next((found for pod, found in problems if not _is_left_behind(workload, pod, found)), None)


def _is_left_behind(workload: Manifest, pod: Manifest, problem: PodProblem) -> bool:
    """Whether a pod is of the release before, in an upgrade that has written the new one's format: it will go."""
    if problem.reason is not Reason.DOWNGRADE_REFUSED:
        return False
    images = [
        [container.get("image") for container in (spec or {}).get("containers") or ()]
        for spec in (pod.get("spec"), ((workload.get("spec") or {}).get("template") or {}).get("spec"))
    ]
    return images[0] != images[1]


def _condition(status: Mapping[str, Any], type_: str) -> Mapping[str, Any]:
    return next((found for found in status.get("conditions") or () if found.get("type") == type_), {})
