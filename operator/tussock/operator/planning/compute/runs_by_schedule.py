"""What to do with the drivers of a batch job that has a schedule.

There is at most one driver; a due run waits for it (`Forbid`), or ends it (`Replace`). Two at a time would share writer
id and checkpoint, and each would take batches of the other for its own. Of the missed times only the newest is made up
for. The restart policy starts a failed run again until the next one is due.
"""

from collections.abc import Sequence
from datetime import datetime

from tussock.operator.manifests.compute.job import Job
from tussock.operator.planning.compute.drivers import Driving, ended_status, start, stop
from tussock.operator.planning.compute.failures import failure_verdict
from tussock.operator.planning.compute.gates import Gates
from tussock.operator.planning.compute.health import health_of
from tussock.operator.planning.compute.runs import Fate, JobRun, fate_of, free_name, is_lost, living_status
from tussock.operator.planning.schedules import parse_schedule
from tussock.operator.planning.words.conditions import Reason, Verdict, idle_verdict, problem_verdict, progress_verdict
from tussock.operator.planning.words.model import Action, Manifest, moment_of, stamp
from tussock.operator.resources.compute import Compute

__all__ = ["drive_by_schedule"]


def drive_by_schedule(
    compute: Compute,
    store: str,
    job: Job,
    runs: Sequence[JobRun],
    gates: Gates,
    now: datetime,
    executors: Sequence[Manifest] = (),
) -> Driving:
    """What to do now; `gates` are the conditions for a start, and for another start of the same run."""
    lost = [run for run in runs if is_lost(run, now)]
    name, runs = free_name(compute, lost), [run for run in runs if run not in lost]
    schedule = parse_schedule(compute.spec.schedule, compute.spec.time_zone)
    known = [compute.metadata.creation_timestamp, compute.status.get("lastScheduleTime", "")]
    last = max(filter(None, map(moment_of, [*known, *(run.scheduled for run in runs)])))
    newest, upcoming = schedule.latest_time(now), schedule.next_time(now)
    due = newest if newest > last else None
    found = _drive_due_run(compute, store, job, name, runs, due, gates.first, now) if due is not None else None
    if found is None:
        found = _drive_between_runs(compute, store, job, name, runs, upcoming, gates.again, now, executors)
    waits = [wait for wait in (found.again_seconds, (upcoming - now).total_seconds()) if wait is not None]
    status = {**found.status, "nextScheduleTime": stamp(upcoming)}
    handled = [run.scheduled for run in runs if run.scheduled]
    if handled and "lastScheduleTime" not in status:
        status["lastScheduleTime"] = max([*handled, compute.status.get("lastScheduleTime", "")])
    return Driving(found.verdict, found.actions, status, min(waits))


def _drive_due_run(
    compute: Compute,
    store: str,
    job: Job,
    name: str,
    runs: Sequence[JobRun],
    due: datetime,
    gate: Verdict | None,
    now: datetime,
) -> Driving | None:
    """What to do for a due run; `None` if it has to wait for the one before."""
    living = [run for run in runs if not run.has_ended]
    if gate is not None and not living:
        return Driving(gate)
    if living and compute.spec.concurrency_policy == "Forbid":
        return None
    stopping: tuple[Action, ...] = tuple(stop(run) for run in runs if not run.is_leaving)
    if runs:
        told = f"Stopping pod {runs[0].name} to start the run of {stamp(due)}."
        return Driving(progress_verdict(Reason.RUNNING, told), stopping, {"driverPod": runs[0].name})
    begun = start(compute, store, job, name, 0, _restarts(compute), now, stamp(due))
    return Driving(begun.verdict, begun.actions, {**begun.status, "lastScheduleTime": stamp(due)})


def _drive_between_runs(
    compute: Compute,
    store: str,
    job: Job,
    name: str,
    runs: Sequence[JobRun],
    upcoming: datetime,
    gate: Verdict | None,
    now: datetime,
    executors: Sequence[Manifest],
) -> Driving:
    """With nothing due: watch what runs, and start again what failed."""
    living = [run for run in runs if not run.has_ended]
    if living:
        run = max(living, key=lambda run: run.scheduled)
        if run.is_leaving:
            return Driving(
                progress_verdict(Reason.DRAINING, f"Waiting for pod {run.name} to stop."), (), living_status(run)
            )
        return Driving(health_of(compute, run.body, executors, now), (), living_status(run), 30.0)
    when = f"The next run is at {stamp(upcoming)}."
    if not runs:
        again = moment_of(compute.status.get("nextRestartTime"))
        if again is not None and again <= now:
            if gate is not None:
                return Driving(gate, (), {"driverPod": None})
            scheduled = compute.status.get("lastScheduleTime", "")
            failures = int(compute.status.get("failures", 0))
            return start(compute, store, job, name, failures, _restarts(compute), now, scheduled)
        return Driving(idle_verdict(Reason.SCHEDULED, when), (), {"driverPod": None})
    run = max(runs, key=lambda run: run.scheduled)
    found = fate_of(compute, run)
    status = ended_status(run, found)
    if found.fate is Fate.COMPLETED:
        return Driving(idle_verdict(Reason.SCHEDULED, f"The run of {run.scheduled} completed. {when}"), (), status)
    if found.fate is Fate.FAILED:
        verdict = failure_verdict(compute, found.failures, run.told)
        return Driving(verdict._replace(message=f"{verdict.message} {when}"), (), {**status, "nextRestartTime": None})
    assert found.at is not None
    wait = (found.at - now).total_seconds()
    if wait <= 0 and gate is not None:
        return Driving(gate, (), status)
    if wait <= 0:
        return Driving(progress_verdict(Reason.RUNNING, "Starting the driver again."), (stop(run),), status)
    told = f"The run of {run.scheduled} failed: {run.told or 'see its log'}. It starts again at {stamp(found.at)}."
    return Driving(problem_verdict(Reason.DRIVER_FAILED, told, progressing=True), (), status, wait)


def _restarts(compute: Compute) -> int:
    return int(compute.status.get("restarts", 0)) + ("startTime" in compute.status)
