"""Messages about a failed driver: in the condition, and in the status for as long as the job exists."""

from typing import Any

from tussock.operator.planning.compute.runs import DRAINED, OUTAGE, JobRun, Next
from tussock.operator.planning.compute.volumes import advice_on_full_disk
from tussock.operator.planning.words.conditions import Reason, Verdict, problem_verdict, progress_verdict
from tussock.operator.planning.words.model import stamp
from tussock.operator.resources.compute import Compute

__all__ = ["backoff_verdict", "failure_verdict", "last_failure"]

_NOT_ITS_BATCHES = ("comes from", "was never committed", "too old to know")
"""Words of a `Fenced` that the store raises if a writer's batches belong to another query."""


def last_failure(run: JobRun) -> dict[str, Any] | None:
    """What to keep of a failed run, whose pod and log go; `None` for a run that did not fail."""
    if run.exit_code in (0, DRAINED):
        return None
    found: dict[str, Any] = {"message": run.told, "log": run.log, "exitCode": run.exit_code}
    if run.ended is not None:
        found["time"] = stamp(run.ended)
    return {name: value for name, value in found.items() if value not in ("", None)}


def failure_verdict(compute: Compute, failures: int, told: str) -> Verdict:
    """The verdict on a job that has failed for good."""
    what = f"; the last failure: {told}" if told else ""
    most = compute.spec.restart_policy.max_restarts
    rule = "" if most is None else f" (maxRestarts is {most})"
    return problem_verdict(
        _reason(told, Reason.FAILED),
        f"The driver failed {_times(failures)}{rule}{what}.{_advice(compute, told)} See `kubectl logs` of its pod "
        "for more; a change of the spec starts it again.",
    )


def backoff_verdict(compute: Compute, run: JobRun, found: Next) -> Verdict:
    """The verdict on a driver that has ended and starts again after a pause."""
    at = stamp(found.at) if found.at else ""
    if run.exit_code in (0, DRAINED):
        return progress_verdict(
            Reason.BACKING_OFF, f"The driver ended with code {run.exit_code}; it starts again at {at}."
        )
    what = f": {run.told}" if run.told else ""
    if run.exit_code == OUTAGE:
        told = f"The driver ended because it could not reach the store{what}. It starts again at {at}; "
        told += "this does not count as a failure of the program."
        return problem_verdict(Reason.BACKING_OFF, told, progressing=True)
    code = "without a code" if run.exit_code is None else f"with code {run.exit_code}"
    return problem_verdict(
        _reason(run.told, Reason.DRIVER_FAILED),
        f"The driver failed {code}{what}.{_advice(compute, run.told)} It has failed "
        f"{_times(found.failures)} and starts again at {at}; see `kubectl logs {run.name}` for more.",
        progressing=True,
    )


def _times(failures: int) -> str:
    return "once" if failures == 1 else f"{failures} times in a row"


def _reason(told: str, otherwise: Reason) -> Reason:
    return Reason.CHECKPOINT_LOST if _is_another_query(told) else otherwise


def _advice(compute: Compute, told: str) -> str:
    """Advice if a job can never continue under its writer id without a change."""
    if not _is_another_query(told):
        return advice_on_full_disk(compute, told)
    return (
        f" Its checkpoint is not the one with which writer {compute.writer_id!r} began: restore that one, or delete "
        "this Compute and create one with another writerId."
    )


def _is_another_query(told: str) -> bool:
    return told.startswith("Fenced: ") and any(words in told for words in _NOT_ITS_BATCHES)
