"""Tries a new image before the driver of a job, or the node of a service, is stopped for it.

There is one at a time, so the old one has to go before the new one comes, and with an image that no node can pull the
stream would stop. Therefore a small pod pulls the image first, on a node that would take the driver, and ends at once.
If that fails, the old driver continues, and the condition says why. The trial also brings the image to a node, which
makes the change itself short.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from tussock.operator.manifests.compute.job import Job
from tussock.operator.manifests.compute.pods import image_trial
from tussock.operator.planning.compute.drivers import Driving
from tussock.operator.planning.compute.health import is_ready_pod
from tussock.operator.planning.compute.runs import JobRun, has_ended, living_status
from tussock.operator.planning.words.conditions import Reason, Verdict, problem_verdict, progress_verdict
from tussock.operator.planning.words.model import Action, Apply, Delete, Manifest, ref_of
from tussock.operator.planning.words.rollout import pod_problem
from tussock.operator.resources.compute import Compute
from tussock.operator.resources.store import StoreResource

__all__ = ["step_of_trial", "try_image"]

LOOK_SECONDS = 15.0
"""The interval of looks: only the passing of time shows that a pod finds no node."""


class Trial(NamedTuple):
    """What to do before the change to an image that is tried first."""

    verdict: Verdict
    actions: tuple[Action, ...] = ()
    again_seconds: float | None = None


def try_image(
    compute: Compute, store: StoreResource, job: Job, runs: Sequence[JobRun], trial: Manifest | None, now: datetime
) -> Driving | None:
    """What to do before a driver that runs gives way to one of another image; `None` if nothing is in the way."""
    run = next((run for run in runs if not (run.has_ended or run.is_leaving)), None)
    if run is None or not is_ready_pod(run.body):
        return None  # there is nothing to lose
    made = image_trial(compute, store, job.template, job.image)
    found = step_of_trial(made, "driver", _image(run.body), trial, now)
    return None if found is None else Driving(found.verdict, found.actions, living_status(run), found.again_seconds)


def step_of_trial(made: Manifest, what: str, running: str, trial: Manifest | None, now: datetime) -> Trial | None:
    """The next step of a trial by the pod `made`, for `what`, such as a driver, whose image is `running`.

    `None` if the image is the same, or if it was there. `trial` is the pod that tries an image now.
    """
    image = _image(made)
    if running == image:
        return None
    told = progress_verdict(Reason.ROLLING_OUT, f"Trying image {image} before the {what} stops for it.", serving=True)
    if trial is None:
        return Trial(told, (Apply(made),))
    if _image(trial) != image:
        gone = (Delete(ref_of(trial)),) if not trial["metadata"].get("deletionTimestamp") else ()
        return Trial(told, gone)
    if has_ended(trial):
        # Whatever its exit code: the image was there.
        return None
    problem = pod_problem(trial, now)
    if problem is None:
        return Trial(told, (), LOOK_SECONDS)
    message = f"{problem.message} The {what} with image {running} continues meanwhile."
    return Trial(problem_verdict(problem.reason, message, serving=True, progressing=True), (), LOOK_SECONDS)


def _image(pod: Manifest) -> str:
    found = next((one for one in pod["spec"]["containers"] if one["name"] == "compute"), pod["spec"]["containers"][0])
    return str(found["image"])
