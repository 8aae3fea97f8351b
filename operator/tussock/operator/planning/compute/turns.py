"""How far a job is with an upgrade of the operator, judged by its pods.

A driver of another template has to stop before the next one starts, so each change stops a stream for some time. An
upgrade that changes the templates of all jobs changes a few at a time (`planning/turns.py`): from the pod that tries a
new image, over the old driver's end, until the next driver is ready.

| pods of the job | changing | has to change |
|---|---|---|
| a driver of the present template | until it is ready, if it is not the job's first one | no |
| a driver of another template, and nothing else has changed | no | yes |
| the same, and a trial of the image that goes on | yes | no |
| the same, and a trial that fails, or goes on for minutes | no | no: when it ends, the job waits for its turn again |
| the same, and a trial that has ended | no | yes |
| a driver that is being stopped, or has just gone | yes | no |
| a driver that has ended by itself | no | no: the next one starts at once, since nothing is left to stop |

Runs by schedule take no turns: they change only from one run to the next.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from tussock.operator.manifests.compute.job import DriverInputs
from tussock.operator.manifests.labels import SPEC_ANNOTATION
from tussock.operator.planning.compute.health import is_ready_pod
from tussock.operator.planning.compute.runs import JobRun, has_ended, is_lost
from tussock.operator.planning.turns import PROGRESS_SECONDS
from tussock.operator.planning.words.conditions import Reason, is_degraded
from tussock.operator.planning.words.model import Manifest, seconds_since
from tussock.operator.planning.words.rollout import pod_problem
from tussock.operator.resources.compute import Compute

__all__ = ["DriverTemplate", "inputs_of", "is_changing_driver", "is_due", "is_held_back", "is_stuck", "running_driver"]


class DriverTemplate(NamedTuple):
    """What a job's driver has to be made from."""

    digest: str
    """That of its pod (`TEMPLATE_ANNOTATION`)."""
    inputs: DriverInputs


def running_driver(compute: Compute, runs: Sequence[JobRun]) -> JobRun | None:
    """The driver that an upgrade would have to stop; `None` if there is none, or if its next run changes it anyway."""
    if compute.is_being_deleted or compute.spec.suspend or compute.spec.schedule:
        return None
    return next((run for run in runs if not (run.is_leaving or run.has_ended)), None)


def inputs_of(run: JobRun) -> DriverInputs | None:
    """What users had decided when this driver's template was last up to date; `None` for one of an earlier operator."""
    return DriverInputs.of_text((run.body["metadata"].get("annotations") or {}).get(SPEC_ANNOTATION, ""))


def is_due(run: JobRun, wanted: DriverTemplate) -> bool:
    """Whether the operator asks for another driver, and its users do not."""
    held = inputs_of(run)
    # Without them the driver is from an earlier operator, so the change comes with an upgrade.
    return run.template != wanted.digest and held in (None, wanted.inputs)


def is_held_back(compute: Compute) -> bool:
    """Whether a job lacks something for its next driver, by its status: a program, a secret, a certificate."""
    reasons = [one["reason"] for one in compute.status.get("conditions") or ()]
    return not {Reason.RECONCILING, Reason.CERTIFICATES_NOT_ISSUED, Reason.INVALID_SPEC}.isdisjoint(reasons)


def is_stuck(trial: Manifest | None, now: datetime) -> bool:
    """Whether the pod that tries an image makes no progress."""
    return trial is not None and _goes_on(trial) and not _is_trying(trial, now)


def is_changing_driver(compute: Compute, runs: Sequence[JobRun], trial: Manifest | None, now: datetime) -> bool:
    """Whether a job's driver is on its way to be replaced, and makes progress."""
    if compute.is_being_deleted or compute.spec.suspend or compute.spec.schedule:
        return False
    runs = [run for run in runs if not is_lost(run, now)]
    if not runs:
        # Between two pods. A pass that finds that none may start sets no name.
        return "driverPod" in compute.status and not is_degraded(compute.status) and not is_held_back(compute)
    if any(run.is_leaving and not run.has_ended for run in runs):
        return True
    run = running_driver(compute, runs)
    if run is None:
        return False
    return _is_starting(run, now) or (trial is not None and is_ready_pod(run.body) and _is_trying(trial, now))


def _is_starting(run: JobRun, now: datetime) -> bool:
    """A job's first driver is no change, and one that follows a failure would let others wait again and again."""
    if is_ready_pod(run.body) or not run.restarts or run.failures:
        return False
    problem = pod_problem(run.body, now)
    # A container that is not ready for a minute may still be starting: Spark and the first batch take that long.
    return _is_young(run.body, now) and (problem is None or problem.reason is Reason.PROBE_FAILED)


def _is_trying(trial: Manifest, now: datetime) -> bool:
    return _goes_on(trial) and pod_problem(trial, now) is None and _is_young(trial, now)


def _goes_on(trial: Manifest) -> bool:
    return not has_ended(trial) and not trial["metadata"].get("deletionTimestamp")


def _is_young(pod: Manifest, now: datetime) -> bool:
    return seconds_since(pod["metadata"].get("creationTimestamp"), now) <= PROGRESS_SECONDS
