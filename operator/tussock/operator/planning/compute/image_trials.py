"""Tries a new image of a job before the driver is stopped for it.

There is one driver at a time, so the old one has to go before the new one comes, and with an image that no node can
pull the stream would stop. Therefore a small pod pulls the image first, on a node that would take the driver, and ends
at once. If that fails, the old driver continues, and the condition says why. The trial also brings the image to a node,
which makes the change itself short.
"""

from collections.abc import Sequence
from datetime import datetime

from tussock.operator.manifests.compute.job import Job
from tussock.operator.manifests.compute.pods import image_trial, trial_name
from tussock.operator.planning.compute.drivers import Driving
from tussock.operator.planning.compute.health import is_ready_pod
from tussock.operator.planning.compute.runs import JobRun, has_ended, living_status
from tussock.operator.planning.words.conditions import Reason, problem_verdict, progress_verdict
from tussock.operator.planning.words.model import Apply, Delete, Manifest, Ref
from tussock.operator.planning.words.rollout import pod_problem
from tussock.operator.resources.compute import Compute
from tussock.operator.resources.store import StoreResource

__all__ = ["try_image"]

LOOK_SECONDS = 15.0
"""The interval of looks: only the passing of time shows that a pod finds no node."""


def try_image(
    compute: Compute, store: StoreResource, job: Job, runs: Sequence[JobRun], trial: Manifest | None, now: datetime
) -> Driving | None:
    """What to do before a driver that runs gives way to one of another image; `None` if nothing is in the way."""
    run = next((run for run in runs if not (run.has_ended or run.is_leaving)), None)
    if run is None or not is_ready_pod(run.body) or _image(run.body) == job.image:
        return None  # there is nothing to lose
    status = living_status(run)
    if trial is None:
        made = Apply(image_trial(compute, store, job.template, job.image))
        return Driving(progress_verdict(Reason.ROLLING_OUT, _message(job), serving=True), (made,), status)
    if _image(trial) != job.image:
        gone = (Delete(Ref("Pod", trial_name(compute.name))),) if not trial["metadata"].get("deletionTimestamp") else ()
        return Driving(progress_verdict(Reason.ROLLING_OUT, _message(job), serving=True), gone, status)
    problem = pod_problem(trial, now)
    if problem is not None and not has_ended(trial):
        told = f"{problem.message} The driver with image {_image(run.body)} continues meanwhile."
        return Driving(problem_verdict(problem.reason, told, serving=True, progressing=True), (), status, LOOK_SECONDS)
    if not has_ended(trial):
        return Driving(progress_verdict(Reason.ROLLING_OUT, _message(job), serving=True), (), status, LOOK_SECONDS)
    # Whatever its exit code: the image was there.
    return None


def _image(pod: Manifest) -> str:
    found = next((one for one in pod["spec"]["containers"] if one["name"] == "compute"), pod["spec"]["containers"][0])
    return str(found["image"])


def _message(job: Job) -> str:
    return f"Trying image {job.image} before the driver stops for it."
