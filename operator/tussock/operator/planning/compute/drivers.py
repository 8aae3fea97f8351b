"""What to do with the driver of a job without a schedule: start, leave, stop, start again.

| driver | spec | action |
|---|---|---|
| none | job completed, or suspended | nothing |
| none | | start it when the platform is ready and the back-off is over |
| leaving | | wait; if its node is lost, start the next one under another name |
| runs | suspended | stop it |
| runs | another template | stop it when the platform has rolled, and in its turn (`turns.py`); then as with none |
| runs | | leave it |
| ended | | follow its restart policy (`runs.fate_of`); try another template at once |
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from tussock.operator.manifests.compute.job import Job
from tussock.operator.manifests.compute.pods import driver_name
from tussock.operator.planning.compute.failures import backoff_verdict, failure_verdict, last_failure
from tussock.operator.planning.compute.gates import Gates
from tussock.operator.planning.compute.health import health_of, is_ready_pod
from tussock.operator.planning.compute.runs import (
    FAILURES_ANNOTATION,
    RESTARTS_ANNOTATION,
    SCHEDULED_ANNOTATION,
    Fate,
    JobRun,
    Next,
    fate_of,
    free_name,
    is_lost,
    living_status,
    present_run,
)
from tussock.operator.planning.turns import TURN_SECONDS
from tussock.operator.planning.words.comparison import mark
from tussock.operator.planning.words.conditions import Reason, Verdict, idle_verdict, problem_verdict, progress_verdict
from tussock.operator.planning.words.model import Action, Apply, Delete, Emit, Manifest, Ref, moment_of, stamp
from tussock.operator.resources.compute import Compute

_LOOK_SECONDS = 15.0
"""The interval of looks at a driver: no event reports what it has committed, or that it does not come up."""

__all__ = ["Driving", "completion", "drive", "ended_status", "start", "stop", "suspension"]


@dataclass(frozen=True)
class Driving:
    """What to do with drivers, and the job's verdict."""

    verdict: Verdict
    actions: tuple[Action, ...] = ()
    status: Mapping[str, Any] = field(default_factory=dict)
    """Status fields to set, or to remove for `None`; all others stay."""
    again_seconds: float | None = None


def drive(
    compute: Compute,
    store: str,
    job: Job,
    runs: Sequence[JobRun],
    gates: Gates,
    now: datetime,
    executors: Sequence[Manifest] = (),
) -> Driving:
    """What to do now; `executors` are the pods of running executors."""
    lost = [run for run in runs if is_lost(run, now)]
    run = present_run([run for run in runs if run not in lost])
    if run is None:
        name = free_name(driver_name(compute.name), lost)
        return _add_node_lost_event(lost, _drive_without_pod(compute, store, job, name, gates, now))
    # Those of a schedule that the job has no more.
    earlier = tuple(stop(one) for one in runs if one.has_ended and not one.is_leaving and one is not run)
    found = _drive_with_pod(compute, job, run, gates, now, executors)
    return replace(found, actions=(*found.actions, *earlier)) if earlier else found


def _drive_with_pod(
    compute: Compute, job: Job, run: JobRun, gates: Gates, now: datetime, executors: Sequence[Manifest]
) -> Driving:
    if run.is_leaving:
        status = {"driverPod": run.name}
        return Driving(_drain_verdict(compute, job, run), status=status, again_seconds=_LOOK_SECONDS)
    if run.has_ended:
        return _drive_ended_pod(compute, job, run, gates, now)
    return _drive_running_pod(compute, job, run, gates, now, executors)


def _drain_verdict(compute: Compute, job: Job, run: JobRun) -> Verdict:
    """The verdict while a pod takes its time to end; it says so if another client has deleted the pod."""
    if run.template == job.template_hash and not compute.spec.suspend:
        told = f"Pod {run.name} was deleted; when it has ended its batch and stopped, another one starts."
    else:
        told = f"Waiting for pod {run.name} to end its batch and stop."
    return progress_verdict(Reason.DRAINING, told)


def _add_node_lost_event(lost: Sequence[JobRun], found: Driving) -> Driving:
    """Adds an event if a driver starts although an older one has not gone."""
    if not lost or not found.actions:
        return found
    told = (
        f"Pod {lost[0].name} was deleted and has not ended: its node is lost. Another driver starts in its place, "
        "and the store refuses anything that the old one still commits. If only one node can mount the checkpoint's "
        "volume, the new pod waits until the cluster gives up the old node (taint node.kubernetes.io/out-of-service)."
    )
    return replace(found, actions=(*found.actions, Emit("Warning", "NodeLost", told)))


def _drive_without_pod(compute: Compute, store: str, job: Job, name: str, gates: Gates, now: datetime) -> Driving:
    old = compute.status
    is_same_spec = old.get("observedGeneration") == compute.metadata.generation
    code = old.get("lastExitCode") if "completionTime" in old else None
    kind = compute.spec.restart_policy.type or ("Always" if compute.spec.mode == "Streaming" else "OnFailure")
    if code == 0 and kind != "Always":
        return completion(compute, {"driverPod": None})
    if compute.spec.suspend:
        return Driving(suspension(), status={"driverPod": None, "nextRestartTime": None})
    failures = int(old.get("failures", 0))
    if code not in (None, 0) and not is_same_spec:
        # The spec has changed since: earlier failures do not count.
        failures = 0
    elif code not in (None, 0) and _is_over(compute, failures):
        told = str((old.get("lastFailure") or {}).get("message", ""))
        return Driving(failure_verdict(compute, failures, told), status={"driverPod": None})
    status: dict[str, Any] = {"driverPod": None, "failures": failures}
    if failures == 0:
        status.update(completionTime=None, lastExitCode=None, nextRestartTime=None)
    elif (wait := _seconds_until(old.get("nextRestartTime"), now)) > 0:
        verdict = problem_verdict(
            Reason.BACKING_OFF, f"The driver starts again at {old['nextRestartTime']}.", progressing=True
        )
        return Driving(verdict, status=status, again_seconds=wait)
    has_run = "startTime" in old
    gate = gates.again if has_run else gates.first
    if gate is not None:
        return Driving(gate, status=status)
    restarts = int(old.get("restarts", 0)) + has_run
    return start(compute, store, job, name, failures, restarts, now)


def start(
    compute: Compute, store: str, job: Job, name: str, failures: int, restarts: int, now: datetime, scheduled: str = ""
) -> Driving:
    """Make a driver."""
    annotations = {FAILURES_ANNOTATION: str(failures), RESTARTS_ANNOTATION: str(restarts)}
    if scheduled:
        annotations[SCHEDULED_ANNOTATION] = scheduled
    status = {
        "driverPod": name,
        "startTime": stamp(now),
        "restarts": restarts,
        "failures": failures,
        "completionTime": None,
        "lastExitCode": None,
        "nextRestartTime": None,
    }
    pod = job.driver_pod(compute, store, name, annotations)
    return Driving(progress_verdict(Reason.RUNNING, f"Waiting for pod {name} to start."), (Apply(mark(pod)),), status)


def stop(run: JobRun) -> Delete:
    """Stop a driver in order, or remove one that has ended."""
    return Delete(Ref("Pod", run.name))


def _drive_running_pod(
    compute: Compute, job: Job, run: JobRun, gates: Gates, now: datetime, executors: Sequence[Manifest]
) -> Driving:
    status = living_status(run)
    serving = is_ready_pod(run.body)
    if compute.spec.suspend:
        verdict = progress_verdict(
            Reason.DRAINING, f"Waiting for pod {run.name} to end its batch before the job is suspended."
        )
        return Driving(verdict, (stop(run),), status)
    if run.template != job.template_hash:
        if gates.first is not None:
            return Driving(gates.first._replace(ready=serving), status=status)
        if gates.turn:
            verdict = health_of(compute, run.body, executors, now)
            verdict = verdict._replace(message=f"{verdict.message} {gates.turn}")
            return Driving(verdict, status=status, again_seconds=TURN_SECONDS)
        verdict = progress_verdict(Reason.ROLLING_OUT, f"Stopping pod {run.name} to start it with the current spec.")
        return Driving(verdict, (stop(run),), status)
    verdict = health_of(compute, run.body, executors, now)
    # The verdict on a pod that does not come up changes with time alone.
    return Driving(verdict, status=status, again_seconds=_LOOK_SECONDS)


def ended_status(run: JobRun, found: Next) -> dict[str, Any]:
    """The status fields of a driver that has ended."""
    status: dict[str, Any] = {
        "driverPod": run.name,
        "restarts": run.restarts,
        "failures": found.failures,
        # Evicted before it ran, or lost with its node: there is no exit code, and it has not completed.
        "lastExitCode": 1 if run.exit_code is None else run.exit_code,
        "nextRestartTime": stamp(found.at) if found.at is not None else None,
    }
    if failed := last_failure(run):
        status["lastFailure"] = failed
    if run.started is not None:
        status["startTime"] = stamp(run.started)
    if run.ended is not None:
        status["completionTime"] = stamp(run.ended)
    return status


def _drive_ended_pod(compute: Compute, job: Job, run: JobRun, gates: Gates, now: datetime) -> Driving:
    found = fate_of(compute, run)
    status = ended_status(run, found)
    if found.fate is Fate.COMPLETED:
        return _outlive(compute, run, completion(compute, status), now)
    if compute.spec.suspend:
        return Driving(suspension(), (stop(run),), {**status, "nextRestartTime": None})
    if run.template != job.template_hash:
        if gates.first is not None:
            return Driving(gates.first, status=status)
        verdict = progress_verdict(Reason.ROLLING_OUT, "Starting the driver with the current spec.")
        fresh = {**status, "failures": 0, "nextRestartTime": None, "completionTime": None, "lastExitCode": None}
        return Driving(verdict, (stop(run),), fresh)
    if found.fate is Fate.FAILED:
        return _outlive(compute, run, Driving(failure_verdict(compute, found.failures, run.told), status=status), now)
    assert found.at is not None
    wait = (found.at - now).total_seconds()
    if wait > 0:
        return Driving(backoff_verdict(compute, run, found), status=status, again_seconds=wait)
    if gates.again is not None:
        return Driving(gates.again, status=status)
    return Driving(progress_verdict(Reason.RUNNING, "Starting the driver again."), (stop(run),), status)


def _outlive(compute: Compute, run: JobRun, found: Driving, now: datetime) -> Driving:
    """Removes the pod of a job that is over when it has been there for its time; the status keeps what became of it."""
    seconds = compute.spec.ttl_seconds_after_finished
    if seconds is None or run.ended is None:
        return found
    left = seconds - (now - run.ended).total_seconds()
    if compute.status.get("completionTime") != stamp(run.ended):
        # First the status has to say that the job is over: without that and without the pod it would start again.
        left = max(left, 1.0)
    if left > 0:
        return replace(found, again_seconds=left)
    return replace(found, actions=(*found.actions, stop(run)), status={**found.status, "driverPod": None})


def completion(compute: Compute, status: Mapping[str, Any]) -> Driving:
    """The job is done: it matches its spec, and nothing more happens."""
    when = status.get("completionTime") or compute.status.get("completionTime")
    verdict = Verdict(
        Reason.COMPLETED, f"The program completed at {when}.", ready=True, progressing=False, degraded=False
    )
    return Driving(verdict, status={**status, "nextRestartTime": None})


def suspension() -> Verdict:
    """The verdict on a job that is suspended and has no driver."""
    return idle_verdict(
        Reason.SUSPENDED, "The job is suspended and keeps its checkpoint. It continues when spec.suspend is false."
    )


def _is_over(compute: Compute, failures: int) -> bool:
    policy = compute.spec.restart_policy
    return policy.type == "Never" or (policy.max_restarts is not None and failures > policy.max_restarts)


def _seconds_until(text: str | None, now: datetime) -> float:
    moment = moment_of(text)
    return (moment - now).total_seconds() if moment is not None else 0.0
