"""What to do with the drivers of a batch job that has a schedule.

There is at most one driver at a time; a due run waits for it (`Forbid`), or ends it (`Replace`). Two at a time would
share writer id and checkpoint, and each would take batches of the other for its own. Of the missed times only the
newest is made up for. The restart policy starts a failed run again until the next one is due.

Each run names its pod after its time, so that the pods of earlier ones can stay for their logs (`history.py`). Drivers
of two runs at a time are kept apart by the passes, which know of each pod as soon as the API server has made it; and
should there ever be two, the store refuses what the older one commits, by the writer's generation.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import NamedTuple

from tussock.operator.manifests.compute.job import Job
from tussock.operator.manifests.compute.pods import driver_name
from tussock.operator.planning.compute.drivers import Driving, ended_status, start, stop, suspension
from tussock.operator.planning.compute.failures import failure_verdict
from tussock.operator.planning.compute.gates import Gates
from tussock.operator.planning.compute.health import health_of
from tussock.operator.planning.compute.runs import (
    DRAINED,
    Fate,
    JobRun,
    fate_of,
    free_name,
    is_lost,
    living_status,
)
from tussock.operator.planning.compute.scheduled.history import Result, RunHistory, history_of
from tussock.operator.planning.schedules import parse_schedule
from tussock.operator.planning.words.conditions import Reason, Verdict, idle_verdict, problem_verdict, progress_verdict
from tussock.operator.planning.words.facts import DriverFact
from tussock.operator.planning.words.model import Manifest, moment_of, stamp
from tussock.operator.resources.compute import Compute

__all__ = ["drive_by_schedule", "run_name"]

_LOOK_SECONDS = 30.0
"""The interval of looks at a running driver: no event reports what it has committed."""


class _Moment(NamedTuple):
    """What every step needs to know."""

    compute: Compute
    store: str
    job: Job
    gates: Gates
    now: datetime
    upcoming: datetime
    """The next time of the schedule."""
    taken: Sequence[JobRun]
    """Pods on lost nodes, whose names are taken."""

    def start(self, scheduled: datetime, failures: int) -> Driving:
        """Make a driver for the run of that time."""
        status = self.compute.status
        restarts = int(status.get("restarts", 0)) + ("startTime" in status)
        name = free_name(run_name(self.compute.name, scheduled), self.taken)
        return start(self.compute, self.store, self.job, name, failures, restarts, self.now, stamp(scheduled))

    @property
    def next_words(self) -> str:
        """A sentence about the next run."""
        return f"The next run is at {stamp(self.upcoming)}."


def run_name(compute: str, scheduled: datetime) -> str:
    """The name of the driver's pod for the run of that time: the time to the minute, in UTC."""
    return f"{driver_name(compute)}-{scheduled.astimezone(UTC):%Y%m%d-%H%M}"


def drive_by_schedule(
    compute: Compute,
    store: str,
    job: Job,
    runs: Sequence[JobRun],
    gates: Gates,
    now: datetime,
    executors: Sequence[Manifest] = (),
    driver: DriverFact | None = None,
) -> Driving:
    """What to do now; `gates` are the conditions for a start, and for another start of the same run.

    `executors` are the pods of running executors, `driver` is what the running driver reports.
    """
    schedule = parse_schedule(compute.spec.schedule, compute.spec.time_zone)
    lost = [run for run in runs if is_lost(run, now)]
    runs = [run for run in runs if run not in lost]
    moment = _Moment(compute, store, job, gates, now, schedule.next_time(now), lost)
    history = history_of(compute, runs, driver, now)
    living = max((run for run in runs if not run.has_ended), key=lambda run: run.scheduled, default=None)
    begun = history.newest.scheduled_time if history.newest else ""
    known = [compute.metadata.creation_timestamp, compute.status.get("lastScheduleTime", ""), begun]
    newest = schedule.latest_time(now)
    if compute.spec.suspend:
        found = _suspend(living)
    elif newest > max(filter(None, map(moment_of, known))):
        found = _drive_due_run(moment, living, newest, executors)
    elif living is not None:
        found = _watch(moment, living, executors)
    else:
        found = _drive_between_runs(moment, runs, history)
    surplus = tuple(stop(run) for run in history.surplus)
    status = {"runs": history.status() or None, **found.status}
    if not compute.spec.suspend:
        status["nextScheduleTime"] = stamp(moment.upcoming)
    if begun and "lastScheduleTime" not in status:
        status["lastScheduleTime"] = max(begun, compute.status.get("lastScheduleTime", ""))
    waits = [found.again_seconds, history.next_seconds]
    if not compute.spec.suspend:
        waits.append((moment.upcoming - now).total_seconds())
    again = min((wait for wait in waits if wait is not None), default=None)
    return replace(found, actions=(*found.actions, *surplus), status=status, again_seconds=again)


def _suspend(living: JobRun | None) -> Driving:
    """Stop what runs; the run is not continued later, since the next one does its work."""
    if living is None:
        return Driving(suspension(), (), {"driverPod": None, "nextRestartTime": None})
    told = f"Waiting for pod {living.name} to end its batch before the job is suspended."
    stops = () if living.is_leaving else (stop(living),)
    return Driving(progress_verdict(Reason.DRAINING, told), stops, living_status(living))


def _drive_due_run(moment: _Moment, living: JobRun | None, due: datetime, executors: Sequence[Manifest]) -> Driving:
    """What to do for a due run."""
    if living is None:
        if moment.gates.first is not None:
            return Driving(moment.gates.first, (), {"driverPod": None})
        begun = moment.start(due, failures=0)
        return replace(begun, status={**begun.status, "lastScheduleTime": stamp(due)})
    if moment.compute.spec.concurrency_policy == "Forbid":
        return _watch(moment, living, executors)
    told = f"Stopping pod {living.name} to start the run of {stamp(due)}."
    stops = () if living.is_leaving else (stop(living),)
    return Driving(progress_verdict(Reason.RUNNING, told), stops, {"driverPod": living.name})


def _watch(moment: _Moment, living: JobRun, executors: Sequence[Manifest]) -> Driving:
    """A driver that has not ended is left alone."""
    if living.is_leaving:
        verdict = progress_verdict(Reason.DRAINING, f"Waiting for pod {living.name} to stop.")
        return Driving(verdict, (), living_status(living))
    verdict = health_of(moment.compute, living.body, executors, moment.now)
    return Driving(verdict, (), living_status(living), _LOOK_SECONDS)


def _drive_between_runs(moment: _Moment, runs: Sequence[JobRun], history: RunHistory) -> Driving:
    """With nothing due and nothing that runs: start a run again that has not come to its end, or wait."""
    compute, newest = moment.compute, history.newest
    run = next((run for run in runs if newest is not None and run.name == newest.pod), None)
    if newest is not None and newest.result is Result.RUNNING:
        return _start_again(moment, run, newest.scheduled_time)
    if run is None or (newest and newest.scheduled_time < compute.status.get("lastScheduleTime", "")):
        # Of the last run the limits or its time have left no pod.
        return Driving(_rest(moment), (), {"driverPod": None})
    found = fate_of(compute, run)
    status = {**ended_status(run, found), "nextRestartTime": None}
    if found.fate is Fate.COMPLETED:
        told = f"The run of {run.scheduled} completed. {moment.next_words}"
        return Driving(idle_verdict(Reason.SCHEDULED, told), (), status)
    if found.fate is Fate.FAILED:
        verdict = failure_verdict(compute, found.failures, run.told)
        return Driving(verdict._replace(message=f"{verdict.message} {moment.next_words}"), (), status)
    return Driving(idle_verdict(Reason.SCHEDULED, moment.next_words), (), status)


def _rest(moment: _Moment) -> Verdict:
    """The verdict without a pod of the last run: a failure is one until the next run begins."""
    status = moment.compute.status
    has_failed = status.get("lastExitCode") not in (None, 0, DRAINED) and "completionTime" in status
    if not has_failed:
        return idle_verdict(Reason.SCHEDULED, moment.next_words)
    told = str((status.get("lastFailure") or {}).get("message", ""))
    verdict = failure_verdict(moment.compute, int(status.get("failures", 1)), told)
    return verdict._replace(message=f"{verdict.message} {moment.next_words}")


def _start_again(moment: _Moment, run: JobRun | None, scheduled: str) -> Driving:
    """The next driver of a run whose last one has failed, and leaves its pod, or is gone."""
    compute = moment.compute
    if run is None:
        due, failures = moment_of(scheduled), int(compute.status.get("failures", 0))
        at = moment_of(compute.status.get("nextRestartTime"))
        status = {"driverPod": None, "nextRestartTime": compute.status.get("nextRestartTime")}
        told = f"The run of {scheduled} has not come to its end."
    else:
        found = fate_of(compute, run)
        due, failures, at, status = None, found.failures, found.at, ended_status(run, found)
        told = f"The run of {run.scheduled or scheduled} failed: {run.told or 'see its log'}."
    wait = (at - moment.now).total_seconds() if at is not None else 0.0
    if wait > 0 and at is not None:
        told = f"{told} It starts again at {stamp(at)}."
        return Driving(problem_verdict(Reason.DRIVER_FAILED, told, progressing=True), (), status, wait)
    if moment.gates.again is not None:
        return Driving(moment.gates.again, (), status)
    if run is not None:
        return Driving(progress_verdict(Reason.RUNNING, "Starting the driver again."), (stop(run),), status)
    assert due is not None
    return moment.start(due, failures)
