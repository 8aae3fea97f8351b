"""A stream whose driver chooses its executors: what it reads, what its status says, and when it is restarted."""

from typing import Any

import pytest

from support.operator.computes import World, compute
from tussock.operator.manifests.compute.job import EXECUTORS_ANNOTATION
from tussock.operator.planning.words.facts import DriverFact
from tussock.operator.planning.words.model import Ref

BY_LAG = {"minReplicas": 1, "maxReplicas": 8, "targetLagSeconds": 30}


def running(executor: dict[str, Any]) -> World:
    world = World(compute(executor=executor))
    world.settle()
    world.run()
    world.settle()
    return world


def files(world: World) -> dict[str, str]:
    found: dict[str, str] = world.children[Ref("ConfigMap", "x-driver")]["data"]
    return found


def say(world: World, wanted: int | None, told: str = "") -> World:
    world.reported = DriverFact(7, 1, 1763725000000, executors_wanted=wanted, scaling=told)
    world.settle()
    return world


def test_the_driver_reads_bounds_and_goal() -> None:
    world = running(BY_LAG)
    assert files(world)["executors"] == "1-8 within 30 s\n"
    assert "spark.dynamicAllocation.enabled=false" in files(world)["spark-defaults.conf"]
    assert world.driver()["metadata"]["annotations"][EXECUTORS_ANNOTATION] == "1-8 within 30 s"


@pytest.mark.parametrize("before", [BY_LAG, {"replicas": 3}])
def test_another_goal_reaches_the_driver_that_runs(before: dict[str, Any]) -> None:
    """From a number, too: the kubelet updates the file at once, since the pod changes."""
    world = running(before)
    world.set(executor={"minReplicas": 2, "maxReplicas": 5, "targetLagSeconds": 60})
    world.settle()
    assert files(world)["executors"] == "2-5 within 60 s\n"
    assert world.pods == ["x-driver"]
    assert "status" in world.driver(), "it is the same pod"
    assert world.driver()["metadata"]["annotations"][EXECUTORS_ANNOTATION] == "2-5 within 60 s"


def test_the_status_has_the_choice_and_its_reason() -> None:
    """What was said last stays while the driver does not answer, and goes with the goal."""
    world = say(running(BY_LAG), 3, "2 to 3 executors: so.")
    expected = {"wanted": 3, "message": "2 to 3 executors: so."}
    assert world.job["status"]["scaling"] == expected
    world.reported = None
    world.settle()
    assert world.job["status"]["scaling"] == expected
    world.set(executor={"replicas": 3})
    assert "scaling" not in say(world, 3).job["status"]


def test_a_driver_that_says_nothing_of_it_has_no_choice() -> None:
    assert "scaling" not in say(running(BY_LAG), None).job["status"]
