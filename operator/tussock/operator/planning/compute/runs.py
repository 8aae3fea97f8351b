"""A driver's pod as a run of the job: whether it runs, how it ended, and what its restart policy says about that.

Counts are annotations of the pod itself, from its start on, so the same end is never counted twice, and an operator
that dies between two steps finds everything as it was.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from enum import Enum
from itertools import count
from typing import Any, NamedTuple

from tussock.operator.manifests.compute.job import TEMPLATE_ANNOTATION
from tussock.operator.manifests.compute.pods import ROLE_LABEL
from tussock.operator.planning.words.facts import DriverFact
from tussock.operator.planning.words.model import Manifest, moment_of, seconds_since, stamp
from tussock.operator.planning.words.ownership import Holder, owns
from tussock.operator.resources.compute import Compute, RestartPolicy

__all__ = [
    "DRAINED",
    "EVICTED_SECONDS",
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
    "present_run",
    "run_of",
    "runs_of",
]

FAILURES_ANNOTATION = "tussock.dev/failures"
"""How many runs before this one have failed in a row."""
RESTARTS_ANNOTATION = "tussock.dev/restarts"
"""The number of earlier starts of the driver."""
SCHEDULED_ANNOTATION = "tussock.dev/scheduled-at"
"""The time of the schedule for this run."""

DRAINED = 143
"""Exit code of a driver that was asked to stop, and did (`tussock.compute.driver`)."""
OUTAGE = 75
"""Exit code of a driver whose program failed because the store was away (`tussock.compute.driver.failures`)."""
LOST_SECONDS = 120.0
"""A pod that still exists this long after its deadline is lost. Its driver may still run, cut off: once
the next one has begun, the store refuses its commits, by the writer's generation."""
EVICTED_SECONDS = 10.0
"""The same for a pod that Kubernetes itself has deleted because of its node: only a dead kubelet leaves it there."""
_EVICTED = "DeletionByTaintManager"
"""The reason of the condition `DisruptionTarget`: the node has a taint `NoExecute` that the pod does not tolerate."""
_NUMBER = re.compile("[0-9]{1,9}")
_COMMITTED = re.compile(r"^committed epoch=([0-9]{1,18}) batch=([0-9]{1,18}) ms=([0-9]{1,14})$", re.MULTILINE)
"""The last line of a termination message (`tussock.compute.driver.failures`)."""
_TOLD_MAX = 1000
_LOG_MAX = 4000
"""Characters of a pod's termination message, of which a kubelet accepts 4096 bytes."""
_LONG_AGO = datetime.min.replace(tzinfo=UTC)
_HEALTHY_SECONDS_MIN = 60.0
"""A run that lasted this long, and the longest back-off, has failed for a new reason: the count starts again."""


class JobRun(NamedTuple):
    """One pod of the driver."""

    name: str
    is_leaving: bool
    """It was deleted and has not gone yet."""
    has_ended: bool
    exit_code: int | None
    """Of an ended run; `None` if it never started, or if the exit code is not known."""
    told: str
    """The cause of its failure in one line, from the program or the kubelet; may be empty."""
    log: str
    """The end of its traceback or of its log, as far as its pod keeps it."""
    committed: DriverFact | None
    """What it said at its end to have committed; `None` if it did not end by itself, or committed nothing."""
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
    """For good: a person has to change something."""
    RESTART = "restart"


class Next(NamedTuple):
    """What to do after a run has ended."""

    fate: Fate
    failures: int
    """In a row, including this one."""
    at: datetime | None = None
    """When to start again."""


def has_ended(pod: Manifest) -> bool:
    """Whether a pod has ended for good."""
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def runs_of(pods: Iterable[Manifest], holder: Holder) -> list[JobRun]:
    """The runs of the drivers that were made for the job `holder`, among pods with its labels; copies are none."""
    return [
        run_of(pod)
        for pod in pods
        if (pod["metadata"].get("labels") or {}).get(ROLE_LABEL) == "driver" and owns(holder, pod)
    ]


def run_of(pod: Manifest) -> JobRun:
    """The run of a driver's pod."""
    metadata, status = pod["metadata"], pod.get("status") or {}
    annotations = metadata.get("annotations") or {}
    container: Mapping[str, Any] = next(
        (found for found in status.get("containerStatuses") or () if found["name"] == "compute"), {}
    )
    state = (container.get("state") or {}).get("terminated") or {}
    is_over, scheduled = has_ended(pod), moment_of(annotations.get(SCHEDULED_ANNOTATION))
    started = state.get("startedAt") or status.get("startTime") or metadata.get("creationTimestamp")
    ended = state.get("finishedAt") or _ready_until(status) or started
    return JobRun(
        name=metadata["name"],
        is_leaving=bool(metadata.get("deletionTimestamp")),
        has_ended=is_over,
        exit_code=state.get("exitCode", 0 if status.get("phase") == "Succeeded" else None),
        told=_failure_cause(state, status),
        log=_last_words(state)[1],
        committed=_last_commit(state),
        started=moment_of(started),
        ended=moment_of(ended) if is_over else None,
        failures=_count(annotations.get(FAILURES_ANNOTATION, "")),
        restarts=_count(annotations.get(RESTARTS_ANNOTATION, "")),
        scheduled=stamp(scheduled) if scheduled is not None else "",
        template=annotations.get(TEMPLATE_ANNOTATION, ""),
        body=pod,
    )


def is_lost(run: JobRun, now: datetime) -> bool:
    """Whether a deleted pod's node is lost, so that the next driver starts although this one has not gone.

    Kubernetes leaves such a pod until the node comes back or a person gives it up. Two drivers at a time are safe
    (`LOST_SECONDS`), but a driver on a node that lives should end its batch: there, no other one starts.
    """
    # By the API's rule, the deletion timestamp is the time by which the pod has to end.
    over = seconds_since(run.body["metadata"].get("deletionTimestamp"), now)
    if not run.is_leaving or run.has_ended or not _is_evicted(run.body):
        return over > LOST_SECONDS
    return over > EVICTED_SECONDS or _is_cut_off(run.body)


def _is_evicted(pod: Manifest) -> bool:
    """Whether Kubernetes has deleted a pod because of a taint of its node, such as `unreachable`."""
    disrupted = _condition(pod, "DisruptionTarget")
    return disrupted.get("status") == "True" and disrupted.get("reason") == _EVICTED


def _is_cut_off(pod: Manifest) -> bool:
    """Whether an evicted pod is on a lost node, and not on one that a person has tainted.

    A kubelet writes both conditions, `Ready` and `ContainersReady`. Of the pods of a silent node the control plane
    denies `Ready` alone. A container that has not started has nothing to end in order, wherever it is.
    """
    if _condition(pod, "Ready").get("status") == "True":
        return False
    found = (pod.get("status") or {}).get("containerStatuses") or ()
    started = any(one["name"] == "compute" and one.get("started") for one in found)
    return not started or _condition(pod, "ContainersReady").get("status") == "True"


def _condition(pod: Manifest, type_: str) -> Mapping[str, Any]:
    found = (pod.get("status") or {}).get("conditions") or ()
    return next((condition for condition in found if condition.get("type") == type_), {})


def present_run(runs: Sequence[JobRun]) -> JobRun | None:
    """The run of a job without a schedule: one that goes on, or else the newest; `None` if there is none."""
    # Pods without a start, which a kubelet has not seen, are the newest.
    return max(runs, key=lambda run: (not run.has_ended, run.started is None, run.started or _LONG_AGO), default=None)


def free_name(name: str, lost: Sequence[JobRun]) -> str:
    """The name of the next driver's pod: `name`, unless a lost pod has it."""
    taken = {run.name for run in lost}
    return name if name not in taken else next(f"{name}-{n}" for n in count(2) if f"{name}-{n}" not in taken)


def _failure_cause(state: Mapping[str, Any], status: Mapping[str, Any]) -> str:
    """The cause from the termination message, or a reason: `OOMKilled`, or for the whole pod, such as `Evicted`."""
    if state.get("reason") == "OOMKilled":
        return "it used more memory than its limit (OOMKilled); raise driver.memory or driver.resources"
    cause = _last_words(state)[0]
    words = [cause, state.get("reason") or "", status.get("message") or status.get("reason") or ""]
    return next((word.strip() for word in words if word.strip() and word != "Error"), "")[:_TOLD_MAX]


def _last_words(state: Mapping[str, Any]) -> tuple[str, str]:
    """A pod's termination message: the cause in a line, and the rest, separated by an empty line.

    Without that line it is the end of the log, which the kubelet uses if the driver could not write a message.
    """
    said = _COMMITTED.sub("", str(state.get("message") or "")).strip()
    cause, parted, rest = said.partition("\n\n")
    if "\n" in cause:
        return said.splitlines()[-1], said[-_LOG_MAX:]
    return cause, rest[-_LOG_MAX:] if parted else ""


def _last_commit(state: Mapping[str, Any]) -> DriverFact | None:
    """The newest commit by a pod's termination message."""
    found = _COMMITTED.findall(str(state.get("message") or ""))
    if not found:
        return None
    epoch, batch, ms = found[-1]
    return DriverFact(int(epoch), int(batch), int(ms))


def _ready_until(status: Mapping[str, Any]) -> str | None:
    """When a pod without a container's state (evicted, or never started) stopped being ready."""
    return next(
        (found.get("lastTransitionTime") for found in status.get("conditions") or () if found["type"] == "Ready"), None
    )


def _count(text: str) -> int:
    """The number in an annotation; 0 if it holds none, since others may write there, too."""
    return int(text) if _NUMBER.fullmatch(text) else 0


def backoff_seconds(policy: RestartPolicy, failures: int) -> float:
    """The pause before a restart after this many failures in a row (0: it ended well): doubles up to a limit."""
    # Above 2 ** 32 every pause is at its limit, and the product would overflow some day.
    return float(min(policy.backoff_seconds * 2.0 ** min(max(failures - 1, 0), 32), policy.max_backoff_seconds))


def fate_of(compute: Compute, run: JobRun) -> Next:
    """What follows the end of a run.

    A driver that was asked to stop, for example by a kubelet that shuts its node down, has not failed. Neither has one
    that ended because the store was away: its restart waits for meta nodes that serve, without further delay.
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
    """The status fields of a running driver."""
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
