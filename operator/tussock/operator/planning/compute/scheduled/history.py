"""The history of a job's runs by its schedule: one record a run in the status, and the pods of runs that are over.

A run is one time of the schedule, however many drivers it takes. Its record comes from its pods, and from the record of
the pass before: a pod may go at any moment, by a limit, its time to live or another client, and the record stays. So
it also shows which run has not come to its end although no pod is left.

| the run's newest pod | record |
|---|---|
| has not ended | `Running` |
| has ended well | `Succeeded` |
| has failed, and starts again by the restart policy | `Running`; `Failed` once another run has begun |
| has failed for good | `Failed` |
| was stopped for another run, or by a suspension | `Stopped` |
| is gone before its end | `Running`, since it starts again; `Stopped` once another run has begun |

Nothing of a run goes before the status says that it is over: an operator that died between the two would start it
again.
"""

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, NamedTuple

import msgspec

from tussock.operator.planning.compute.runs import DRAINED, Fate, JobRun, fate_of
from tussock.operator.planning.words.facts import DriverFact
from tussock.operator.planning.words.model import stamp
from tussock.operator.resources.compute import Compute

__all__ = ["Result", "RunHistory", "RunRecord", "history_of"]

_SETTLE_SECONDS = 1.0
"""Until the next pass, when the status has what this one has found."""
_MESSAGE_MAX = 300
"""Characters of a failure; the newest one is whole in `lastFailure`. A history of 200 runs stays below 100 KiB."""


class Result(StrEnum):
    """What became of a run."""

    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    STOPPED = "Stopped"


class RunRecord(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One run, as the status has it."""

    scheduled_time: str
    pod: str = ""
    result: Result
    start_time: str = ""
    """Of its first driver."""
    completion_time: str = ""
    exit_code: int | None = None
    failures: int = 0
    """Of its drivers, in a row."""
    message: str = ""
    committed_epoch: int = 0


class RunHistory(NamedTuple):
    """The records of a job's runs, and what is too much."""

    newest: RunRecord | None
    """The run that began last, also if the limits leave no record of it."""
    records: tuple[RunRecord, ...]
    """The newest first, within the limits."""
    surplus: tuple[JobRun, ...]
    """Runs that are over and whose pods have to go: beyond the limits, or after their time to live."""
    next_seconds: float | None
    """Until the next of them has to go; `None` if none has to."""

    def status(self) -> list[dict[str, Any]]:
        """The records as a status has them."""
        return [msgspec.to_builtins(record) for record in self.records]


def history_of(compute: Compute, runs: Sequence[JobRun], driver: DriverFact | None, now: datetime) -> RunHistory:
    """The history by the status and by the pods that there are; `driver` is what the running one reports."""
    records = {record.scheduled_time: record for record in _recorded(compute.status)}
    settled = {time for time, record in records.items() if record.result is not Result.RUNNING}
    by_time = _by_time(runs, records)
    newest = max([*records, *by_time], default="")
    for time, run in by_time.items():
        records[time] = _seen_record(compute, run, time, records.get(time), driver, is_newest=time == newest)
    for time, record in records.items():
        if record.result is Result.RUNNING and time not in by_time and (time != newest or compute.spec.suspend):
            why = f"another run began at {newest}" if time != newest else "the job was suspended"
            told = record.message or f"Its driver was stopped before its end: {why}."
            records[time] = msgspec.structs.replace(
                record, result=Result.STOPPED, completion_time=stamp(now), message=told
            )
    ordered = sorted(records.values(), key=lambda record: record.scheduled_time, reverse=True)
    kept = _within_limits(compute, ordered, settled)
    fresh = {record.pod for record in ordered if record.scheduled_time not in settled}
    over = [run for run in runs if run.has_ended and not run.is_leaving and run.name not in fresh]
    names = {record.pod for record in kept}
    # A pod from before the schedule has no record, and goes when there is one.
    surplus = [run for run in over if run.name not in names and records]
    ends = _ends_of_life(compute, [run for run in over if run not in surplus])
    surplus += [run for run, end in ends if end <= now]
    waits = [(end - now).total_seconds() for _, end in ends if end > now]
    if any(record.scheduled_time not in settled and record.result is not Result.RUNNING for record in ordered):
        waits.append(_SETTLE_SECONDS)
    return RunHistory(ordered[0] if ordered else None, tuple(kept), tuple(surplus), min(waits, default=None))


def _recorded(status: Mapping[str, Any]) -> Iterable[RunRecord]:
    """The records of the pass before, without those that somebody has spoilt."""
    for entry in status.get("runs") or ():
        try:
            yield msgspec.convert(entry, RunRecord)
        except msgspec.ValidationError:
            continue


def _by_time(runs: Sequence[JobRun], records: Mapping[str, RunRecord]) -> dict[str, JobRun]:
    """The pod of each run; of two, as with a lost node, the one that is not being deleted.

    A pod that has lost the time of its run still has the name that the record knows.
    """
    times = {record.pod: time for time, record in records.items()}
    found: dict[str, JobRun] = {}
    for run in sorted(runs, key=lambda run: not run.is_leaving):
        time = run.scheduled or times.get(run.name)
        # The pod of a record that is gone takes a moment to go.
        if time and (time in records or not (run.has_ended and run.is_leaving)):
            found[time] = run
    return found


def _seen_record(
    compute: Compute, run: JobRun, time: str, old: RunRecord | None, driver: DriverFact | None, *, is_newest: bool
) -> RunRecord:
    """The record of a run by its pod. One that is over stays so, whatever changes in the spec."""
    if old is not None and old.result is not Result.RUNNING and run.has_ended:
        return old
    result, failures = _result(compute, run, is_newest=is_newest)
    commit = run.committed if run.has_ended else driver if is_newest else None
    epochs = [old.committed_epoch if old else 0, commit.committed_epoch if commit else 0]
    message = "" if result is Result.SUCCEEDED else run.told or (old.message if old else "")
    starts = [one for one in (old.start_time if old else "", stamp(run.started) if run.started else "") if one]
    return RunRecord(
        scheduled_time=time,
        pod=run.name,
        result=result,
        start_time=min(starts, default=""),
        completion_time=stamp(run.ended) if run.ended is not None and result is not Result.RUNNING else "",
        exit_code=run.exit_code if result is not Result.RUNNING else None,
        failures=failures,
        message=message[:_MESSAGE_MAX],
        committed_epoch=max(epochs),
    )


def _result(compute: Compute, run: JobRun, *, is_newest: bool) -> tuple[Result, int]:
    """What became of a run, and how many of its drivers have failed in a row."""
    if not run.has_ended:
        return Result.RUNNING, run.failures
    found = fate_of(compute, run)
    if found.fate is Fate.COMPLETED:
        return Result.SUCCEEDED, run.failures
    goes_on = found.fate is Fate.RESTART and is_newest and not compute.spec.suspend
    if goes_on:
        return Result.RUNNING, found.failures
    if found.fate is Fate.RESTART and run.exit_code == DRAINED:
        return Result.STOPPED, found.failures
    return Result.FAILED, found.failures


def _within_limits(compute: Compute, records: Sequence[RunRecord], settled: AbstractSet[str]) -> list[RunRecord]:
    """The newest records that the limits leave; runs that were stopped count as failed: their work is not done."""
    room = {
        Result.SUCCEEDED: compute.spec.successful_run_history_limit,
        Result.FAILED: compute.spec.failed_run_history_limit,
    }
    kept = []
    for record in records:
        kind = Result.FAILED if record.result is Result.STOPPED else record.result
        if kind in room and not room[kind] and record.scheduled_time in settled:
            continue
        if room.get(kind):
            room[kind] -= 1
        kept.append(record)
    return kept


def _ends_of_life(compute: Compute, over: Sequence[JobRun]) -> list[tuple[JobRun, datetime]]:
    """When the pods of runs that are over have lived for their time; none if they have no such time."""
    seconds = compute.spec.ttl_seconds_after_finished
    if seconds is None:
        return []
    return [(run, run.ended + timedelta(seconds=seconds)) for run in over if run.ended is not None]
