"""Pods with the labels of a job's pods whose owner is not the job: copies, which the operator leaves alone."""

from typing import Any

import pytest

from support.operator.computes import World, compute
from tussock.operator.planning.words.model import Delete, Manifest, Ref

TRIAL, DRIVER, COPY = Ref("Pod", "x-image"), Ref("Pod", "x-driver"), Ref("Pod", "copy")


def deleted(world: World) -> list[Ref]:
    return [action.ref for action in world.plan().actions if isinstance(action, Delete)]


def copied(pod: Manifest, name: str, references: list[dict[str, Any]]) -> Manifest:
    return {**pod, "metadata": {**pod["metadata"], "name": name, "ownerReferences": references}}


@pytest.mark.parametrize("references", [[], [{"uid": "another"}]])
def test_a_copy_of_a_driver_is_no_run(references: list[dict[str, Any]]) -> None:
    """It is not stopped, the job's status does not tell of it, and the deletion of the job does not wait for it."""
    world = World(compute())
    world.settle()
    world.run()
    world.children[COPY] = copied(world.driver(), COPY.name, references)
    world.settle()
    assert world.job["status"]["driverPod"] == DRIVER.name
    world.set(suspend=True)
    assert deleted(world) == [DRIVER]
    world.settle()
    assert world.reason() == ("False", "Suspended")
    world.job["metadata"]["deletionTimestamp"] = world.job["metadata"]["creationTimestamp"]
    world.settle()
    assert "The driver has ended" in world.message()
    assert COPY in world.children


def test_a_pod_that_only_has_the_name_of_an_images_trial_is_not_deleted() -> None:
    """It has the labels, too, and is in the way of the next image."""
    world = World(compute(image="one"))
    world.settle()
    world.run()
    world.set(image="two")
    world.settle()
    assert TRIAL in world.children
    world.set(image="three")
    assert deleted(world) == [TRIAL]
    world.children[TRIAL] = copied(world.children[TRIAL], TRIAL.name, [])
    assert deleted(world) == []
