"""A checkpoint's volume that fills: said before it is full, once, and over when it has grown."""

from typing import Any

import pytest

from support.operator.computes import World, compute
from tussock.operator.planning.words.conditions import transitions
from tussock.operator.planning.words.facts import DriverFact
from tussock.operator.planning.words.model import Ref


def running(**spec: Any) -> World:
    """A job whose driver runs."""
    world = World(compute(**spec))
    world.settle()
    world.run()
    world.settle()
    return world


def say(world: World, percent: int | None) -> World:
    """The driver says how full the volume is."""
    world.reported = DriverFact(7, 1, 1763725000000, "", percent)
    world.settle()
    return world


def test_a_stream_goes_on_and_says_that_its_volume_fills() -> None:
    """The warning names the claim, and what to do; it ends with a larger volume, and not by a few deleted files."""
    world = running()
    said = []
    for percent in (84, 85, 92, 84, 80, 79, 84):
        before = world.job["status"]["conditions"]
        say(world, percent)
        assert world.job["status"]["checkpointUsedPercent"] == percent
        events = transitions(before, world.job["status"]["conditions"])
        said.append((world.reason(), world.reason("Degraded")[0], [(one.type, one.reason) for one in events]))
    well, filling = ("True", "Ready"), ("True", "VolumeFilling")
    assert said == [
        (well, "False", []),
        (filling, "True", [("Warning", "VolumeFilling")]),
        *[(filling, "True", [])] * 3,
        (well, "False", [("Normal", "Ready")]),
        (well, "False", []),
    ]
    say(world, 90)
    assert "x-checkpoint" in world.message()
    assert "90 % full" in world.message()
    assert "spec.checkpoint.size" in world.message()


def test_a_larger_size_reaches_the_claim_while_the_driver_runs() -> None:
    world = say(running(), 90)
    world.set(checkpoint={"size": "5Gi"})
    world.settle()
    claim = world.children[Ref("PersistentVolumeClaim", "x-checkpoint")]
    assert claim["spec"]["resources"]["requests"]["storage"] == "5Gi"
    assert world.pods == ["x-driver"]
    assert "deletionTimestamp" not in world.driver()["metadata"]
    assert say(world, 20).reason() == ("True", "Ready")


def test_a_claim_of_the_user_is_for_the_user_to_change() -> None:
    world = say(running(checkpoint={"claimName": "mine"}), 90)
    assert "Make claim mine larger" in world.message()


def test_an_empty_dir_is_no_volume() -> None:
    """It is the node's disk, which the kubelet watches."""
    world = say(running(checkpoint={"emptyDir": {}}), 99)
    assert world.reason() == ("True", "Ready")
    assert "checkpointUsedPercent" not in world.job["status"]


def test_what_was_said_last_stays_while_no_driver_answers() -> None:
    """It is what the volume was like; a job that is at rest is not degraded by it."""
    world = say(running(), 90)
    world.reported = None
    world.settle()
    assert world.reason() == ("True", "VolumeFilling")
    world.set(suspend=True)
    world.settle()
    assert world.reason("Degraded") == ("False", "Suspended")
    assert world.job["status"]["checkpointUsedPercent"] == 90


@pytest.mark.parametrize(("used", "told"), [(100, "spec.checkpoint.size"), (10, "give /tmp more room")])
def test_a_driver_that_fails_for_lack_of_room_says_what_to_do(used: int, told: str) -> None:
    """And starts again by its restart policy, so that it goes on when there is room."""
    world = say(running(), used)
    world.reported = None
    world.after(5).end(1, message="java.io.IOException: No space left on device")
    world.settle()
    assert world.reason() == ("False", "DriverFailed")
    assert told in world.message()
    world.after(10).settle()
    assert world.pods == ["x-driver"]
    assert "status" not in world.driver()
