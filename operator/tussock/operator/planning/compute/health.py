"""The verdict on a job whose driver's pod has not ended."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from tussock.operator.planning.words.conditions import Reason, Verdict, problem_verdict, progress_verdict, ready_verdict
from tussock.operator.planning.words.model import Manifest, seconds_since
from tussock.operator.planning.words.rollout import pod_problem
from tussock.operator.resources.compute import Compute

__all__ = ["health_of", "is_ready_pod"]

STARTING_SECONDS = 300.0
"""Spark starts in ten seconds, or in a minute on a busy machine; volumes may take time before that."""


def is_ready_pod(pod: Mapping[str, Any]) -> bool:
    """Whether the kubelet says that a pod is ready."""
    found = (pod.get("status") or {}).get("conditions") or ()
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in found)


def health_of(compute: Compute, pod: Manifest, executors: Sequence[Manifest], now: datetime) -> Verdict:
    """The verdict on a job whose driver is this pod, which has not ended; `executors` are the pods of its executors."""
    name, phase = pod["metadata"]["name"], (pod.get("status") or {}).get("phase") or "Pending"
    if is_ready_pod(pod):
        serving = sum(map(is_ready_pod, executors))
        problem = next(filter(None, (pod_problem(executor, now) for executor in executors)), None)
        if problem is not None and not serving:
            # Spark waits for its first executor without reporting it.
            return problem_verdict(problem.reason, problem.message, progressing=True)
        if compute.spec.mode == "Batch":
            return progress_verdict(Reason.RUNNING, f"Pod {name} runs the program.")
        return ready_verdict(f"Pod {name} runs the stream; {serving} executors are ready.")
    problem = pod_problem(pod, now)
    # A container that is not ready for a minute may still be starting: Spark and the first batch take that long.
    if problem is not None and problem.reason is not Reason.PROBE_FAILED:
        return problem_verdict(problem.reason, problem.message, progressing=True)
    age = seconds_since(pod["metadata"].get("creationTimestamp"), now)
    if age >= STARTING_SECONDS:
        where = "kubectl logs" if phase == "Running" else "kubectl describe pod"
        # Without the minutes, since each would be a write of the status.
        told = (
            f"Pod {name} is {phase} for more than {STARTING_SECONDS:g} s and its job does not run; see {where} {name}."
        )
        return problem_verdict(Reason.PROBE_FAILED, told, progressing=True)
    if _has_ended(pod):
        return progress_verdict(Reason.DRAINING, f"Pod {name} is ending.")
    if phase == "Running":
        return progress_verdict(Reason.RUNNING, f"Pod {name} has started; the job does not run yet.")
    return progress_verdict(Reason.RUNNING, f"Waiting for pod {name} to start.")


def _has_ended(pod: Manifest) -> bool:
    """Whether the driver's container has ended: the kubelet reports that before the end of the pod."""
    found = (pod.get("status") or {}).get("containerStatuses") or ()
    return any(one["name"] == "compute" and (one.get("state") or {}).get("terminated") for one in found)
