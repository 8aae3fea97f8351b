"""A driver's pod as a run of the job: whether it goes on, how it ended, and what its restart policy makes of that.

What is counted is kept in annotations of the pod itself, from its start on, so the same end is never counted twice,
and an operator that dies between two steps finds everything where it was.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from enum import Enum
from itertools import count
from typing import Any, NamedTuple

from tussock.operator.manifests.compute.job import TEMPLATE_ANNOTATION
from tussock.operator.manifests.compute.pods import driver_name
from tussock.operator.planning.words.model import Manifest, seconds_since
from tussock.operator.resources.compute import Compute, RestartPolicy

__all__ = [
    "DRAINED",
    "FAILURES_ANNOTATION",
    "OUTAGE",
    "RESTARTS_ANNOTATION",
    "SCHEDULED_ANNOTATION",
    "Fate",
    "JobRun",
    "Next",
    "backoff_seconds",
    "fate_of",
    "free_name",
    "has_ended",
    "is_lost",
    "living_status",
    "run_of",
    "stamp",
]

FAILURES_ANNOTATION = "tussock.dev/failures"
"""How many runs before this one have failed in a row."""
RESTARTS_ANNOTATION = "tussock.dev/restarts"
"""How often the driver was started before."""
SCHEDULED_ANNOTATION = "tussock.dev/scheduled-at"
"""The time of the schedule that this run is for."""

DRAINED = 143
"""Exit code of a driver that somebody told to stop, and that did (`tussock.compute.driver`)."""
OUTAGE = 75
"""Exit code of a driver whose program the store failed, by being away (`tussock.compute.driver.failures`)."""
LOST_SECONDS = 120.0
"""A pod that is still there so long after it had to be gone is lost. Its driver may run on, cut off from the cluster:
the store refuses what it commits once the next one has begun, by the writer's generation."""
_TOLD_MAX = 1000
_LOG_MAX = 4000
"""Characters of a pod's last words, of which a kubelet takes 4096 bytes."""
_HEALTHY_SECONDS_MIN = 60.0
"""Who ran at least for so long, and for the longest back-off, failed of something new: counting begins anew."""


class JobRun(NamedTuple):
    """One pod of the driver."""

    name: str
    is_leaving: bool
    """It was deleted and has not gone yet."""
    has_ended: bool
    exit_code: int | None
    """Of one that has ended; `None` if it never came to run, or nobody knows."""
    told: str
    """What it failed of, in its own words or the kubelet's, in one line; may be empty."""
    log: str
    """The end of its traceback or of its log, as far as its pod keeps one."""
    started: datetime | None
    ended: datetime | None
    failures: int
    restarts: int
    scheduled: str
    template: str
    body: Manifest


class Fate(Enum):
    """What follows a run's end."""

    COMPLETED = "completed"
    FAILED = "failed"
    """For good: somebody has to change something."""
    RESTART = "restart"


class Next(NamedTuple):
    """What to do after a run has ended."""

    fate: Fate
    failures: int
    """In a row, this one included."""
    at: datetime | None = None
    """When to start again."""


def has_ended(pod: Manifest) -> bool:
    """Whether a pod runs no more, and never will again."""
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def run_of(pod: Manifest) -> JobRun:
    """The run that a driver's pod is."""
    metadata, status = pod["metadata"], pod.get("status") or {}
    annotations = metadata.get("annotations") or {}
    container: Mapping[str, Any] = next(
        (found for found in status.get("containerStatuses") or () if found["name"] == "compute"), {}
    )
    state = (container.get("state") or {}).get("terminated") or {}
    is_over = has_ended(pod)
    started = state.get("startedAt") or status.get("startTime") or metadata.get("creationTimestamp")
    ended = state.get("finishedAt") or _ready_until(status) or started
    return JobRun(
        name=metadata["name"],
        is_leaving=bool(metadata.get("deletionTimestamp")),
        has_ended=is_over,
        exit_code=state.get("exitCode", 0 if status.get("phase") == "Succeeded" else None),
        told=_told(state, status),
        log=_last_words(state)[1],
        started=_moment(started),
        ended=_moment(ended) if is_over else None,
        failures=int(annotations.get(FAILURES_ANNOTATION, "0")),
        restarts=int(annotations.get(RESTARTS_ANNOTATION, "0")),
        scheduled=annotations.get(SCHEDULED_ANNOTATION, ""),
        template=annotations.get(TEMPLATE_ANNOTATION, ""),
        body=pod,
    )


def is_lost(run: JobRun, now: datetime) -> bool:
    """Whether a pod that was deleted does not go, though its time is over: nobody hears of its node any more.

    Kubernetes leaves such a pod there until the node comes back or a person gives it up.
    """
    # By the API's own rule the time of deletion is that by which the pod may take to end.
    return seconds_since(run.body["metadata"].get("deletionTimestamp"), now) > LOST_SECONDS


def free_name(compute: Compute, lost: Sequence[JobRun]) -> str:
    """The name of the next driver's pod: the usual one, unless a lost pod has it."""
    name, taken = driver_name(compute.name), {run.name for run in lost}
    return name if name not in taken else next(f"{name}-{n}" for n in count(2) if f"{name}-{n}" not in taken)


def _told(state: Mapping[str, Any], status: Mapping[str, Any]) -> str:
    """The cause in the termination message, else the reason: `OOMKilled`, or of the whole pod, such as `Evicted`."""
    if state.get("reason") == "OOMKilled":
        return "it used more memory than its limit (OOMKilled); raise driver.memory or driver.resources"
    cause = _last_words(state)[0]
    words = [cause, state.get("reason") or "", status.get("message") or status.get("reason") or ""]
    return next((word.strip() for word in words if word.strip() and word != "Error"), "")[:_TOLD_MAX]


def _last_words(state: Mapping[str, Any]) -> tuple[str, str]:
    """What a pod said at its end: the cause in a line, and the rest, which an empty line parts from it.

    Without that line it is the end of the log, which a kubelet takes where the driver could not say anything.
    """
    said = str(state.get("message") or "").strip()
    cause, parted, rest = said.partition("\n\n")
    if "\n" in cause:
        return said.splitlines()[-1], said[-_LOG_MAX:]
    return cause, rest[-_LOG_MAX:] if parted else ""


def _ready_until(status: Mapping[str, Any]) -> str | None:
    """When a pod without a container's state (evicted, or never started) stopped being ready."""
    return next(
        (found.get("lastTransitionTime") for found in status.get("conditions") or () if found["type"] == "Ready"), None
    )


def _moment(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None


def backoff_seconds(policy: RestartPolicy, failures: int) -> float:
    """The pause before a restart after so many failures in a row (0: it ended well): doubled each time, to a bound."""
    # Beyond 2 ** 32 every pause is at its bound, and the product would overflow some day.
    return float(min(policy.backoff_seconds * 2.0 ** min(max(failures - 1, 0), 32), policy.max_backoff_seconds))


def fate_of(compute: Compute, run: JobRun) -> Next:
    """What follows the end of a run.

    A driver that was told to stop, by a kubelet that shuts its node down for example, has not failed. Nor has one that
    ended because the store was away: its restart waits for meta nodes that serve, and is no later for it.
    """
    policy = compute.spec.restart_policy
    kind = policy.type or ("Always" if compute.spec.mode == "Streaming" else "OnFailure")
    ended = run.ended
    assert ended is not None
    if run.exit_code == 0:
        if kind == "Always":
            return Next(Fate.RESTART, 0, ended + timedelta(seconds=backoff_seconds(policy, 0)))
        return Next(Fate.COMPLETED, 0)
    if run.exit_code in (DRAINED, OUTAGE) and kind != "Never":
        return Next(Fate.RESTART, run.failures, ended + timedelta(seconds=backoff_seconds(policy, 0)))
    healthy = max(_HEALTHY_SECONDS_MIN, policy.max_backoff_seconds)
    ran = (ended - run.started).total_seconds() if run.started else 0.0
    failures = 1 if ran >= healthy else run.failures + 1
    if kind == "Never" or (policy.max_restarts is not None and failures > policy.max_restarts):
        return Next(Fate.FAILED, failures)
    return Next(Fate.RESTART, failures, ended + timedelta(seconds=backoff_seconds(policy, failures)))


def living_status(run: JobRun) -> dict[str, Any]:
    """The fields of a status that tell of a driver that runs."""
    status: dict[str, Any] = {
        "driverPod": run.name,
        "restarts": run.restarts,
        "failures": run.failures,
        "completionTime": None,
        "lastExitCode": None,
        "nextRestartTime": None,
    }
    if run.started is not None:
        status["startTime"] = stamp(run.started)
    return status


def stamp(moment: datetime) -> str:
    """A time as the API writes it."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
