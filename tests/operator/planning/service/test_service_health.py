"""The verdict on a service, by its pods and by what its node says."""

from typing import Any

import pytest

from support.operator.services.service_world import ServiceWorld, service
from tussock.operator.planning.words.model import Ref

WAITING = {"ready": False, "state": {"waiting": {"reason": "CrashLoopBackOff"}}, "restartCount": 3}
ENDED = {"lastState": {"terminated": {"exitCode": 2, "reason": "Error", "message": "a\nno module 'bank'\n\n"}}}
UNSCHEDULABLE = {
    "phase": "Pending",
    "conditions": [
        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes are available"}
    ],
}


def world_with(**said: Any) -> ServiceWorld:
    """A service of two workers that serves, whose node says that."""
    world = ServiceWorld(service(workers=2)).serve(2)
    world.say(**said)
    world.settle()
    return world


@pytest.mark.parametrize(
    ("said", "ready", "degraded", "message"),
    [
        pytest.param({}, ("True", "Ready"), False, "serves at x-service.team.svc:7380.", id="well"),
        pytest.param({"state": "paused"}, ("True", "Ready"), False, "It is paused, so requests wait.", id="paused"),
        pytest.param(
            {"trouble": "Feed votes: the broker is away"},
            *(("True", "FeedStalled"), True, "Feed votes: the broker is away"),
            id="a feed stands",
        ),
        pytest.param(
            {"workers_joined": 1},
            *(("True", "RollingOut"), False, "Requests wait for workers: 2 are wanted, and 1 have joined."),
            id="a worker is missing",
        ),
        pytest.param(
            {"problem": "10.0.0.7:7381 did not answer.", "is_blind": True},
            *(("True", "Ready"), False, "The operator could not ask it: 10.0.0.7:7381 did not answer."),
            id="no route",
        ),
        pytest.param(
            {"problem": "10.0.0.7:7381 answered 401 no."},
            *(("True", "Ready"), False, "It does not say how it is: 10.0.0.7:7381 answered 401 no."),
            id="no answer",
        ),
    ],
)
def test_what_the_node_says_is_in_the_condition(
    said: dict[str, Any], ready: tuple[str, str], degraded: bool, message: str
) -> None:
    """Ready follows the pod; the message adds what a user has to know."""
    world = world_with(**said)
    assert (world.ready(), world.degraded()) == (ready, degraded)
    assert message in world.message()


def test_lag_changes_the_status_and_not_the_condition() -> None:
    """Each count in a message would be an event."""
    world = world_with()
    before = world.job["status"]["conditions"]
    world.say(waiting=9, outstanding=8, uncommitted=7)
    world.settle()
    assert world.job["status"]["conditions"] == before
    assert world.job["status"]["service"]["waiting"] == 9


def test_a_worker_that_cannot_run_is_named() -> None:
    """While one is missing for it, with its last words; the node's pod still serves."""
    world = world_with(workers_joined=1)
    world.run("x-workers-0", **{**WAITING, **ENDED})
    world.settle()
    assert (world.ready(), world.degraded()) == (("True", "CrashLooping"), True)
    assert "pod x-workers-0 has ended 3 times" in world.message()
    assert world.message().endswith("Its last words: no module 'bank'")
    world.say(workers_joined=2)
    world.settle()
    assert world.ready() == ("True", "Ready")


def test_a_node_that_cannot_start_says_its_last_words() -> None:
    """Such as a module that is not there."""
    world = ServiceWorld(service())
    world.settle()
    world.run(**{**WAITING, **ENDED, "ready": False})
    world.settle()
    assert (world.ready(), world.degraded()) == (("False", "CrashLooping"), True)
    assert "(Error, exit code 2)" in world.message()
    assert world.message().endswith("Its last words: no module 'bank'")


def test_a_corrected_service_replaces_a_node_that_never_served() -> None:
    """Without a trial of its image, as there is nothing to lose."""
    world = ServiceWorld(service(image="bank:none"))
    world.settle()
    world.set(image="bank:1")
    world.settle()
    assert world.ready() == ("False", "Draining")
    world.gone()
    world.settle()
    world.run()
    world.settle()
    assert world.ready() == ("True", "Ready")


def test_a_node_that_finds_no_room_waits_for_it() -> None:
    """In the scheduler's words, after half a minute."""
    world = ServiceWorld(service())
    world.settle()
    pod = world.children[Ref("Pod", "x-service-0")]
    pod["status"] = {**UNSCHEDULABLE}
    pod["status"]["conditions"][0]["lastTransitionTime"] = pod["metadata"]["creationTimestamp"]
    world.after(40).settle()
    assert (world.ready(), world.degraded()) == (("False", "Unschedulable"), False)
    assert "0/1 nodes are available" in world.message()


def test_a_node_that_does_not_come_up_is_a_problem_after_five_minutes() -> None:
    """A recovery takes seconds, and a program gives up on its workers by then."""
    world = ServiceWorld(service())
    world.settle()
    world.run(ready=False)
    world.settle()
    assert world.message() == "Pod x-service-0 has started; it takes no requests yet."
    world.after(301).settle()
    assert (world.ready(), world.degraded()) == (("False", "ProbeFailed"), True)
    assert "see kubectl logs x-service-0" in world.message()


def test_workers_that_cannot_come_are_why_a_node_does_not_start() -> None:
    """Their problem explains it, so it is the one that is told."""
    world = ServiceWorld(service(workers=2))
    world.settle()
    world.run(ready=False)
    world.say(state="starting", workers=2, workers_joined=0)
    world.run("x-workers-1", **{**WAITING, **ENDED})
    world.settle()
    assert (world.ready(), world.degraded()) == (("False", "CrashLooping"), True)
    assert "x-workers-1" in world.message()


def test_a_deleted_node_that_does_not_end_is_lost() -> None:
    """The message says how to let it go, and why that is safe."""
    world = ServiceWorld(service()).serve()
    pod = world.pod("x-service-0")
    assert pod is not None
    world.leave(pod)
    world.settle()
    assert (world.ready(), world.degraded()) == (("False", "Draining"), False)
    world.after(65 + 121).settle()
    assert (world.ready(), world.degraded()) == (("False", "Draining"), True)
    assert "its node is lost" in world.message()
    assert "kubectl delete pod x-service-0 --force" in world.message()


def test_copies_of_pods_count_for_nothing() -> None:
    """People copy pods to look into them, with all labels."""
    world = ServiceWorld(service(workers=1)).serve(1)
    for name in ("x-service-0", "x-workers-0"):
        found = world.children[Ref("Pod", name)]
        metadata = {**found["metadata"], "name": f"{name}-copy", "annotations": {}, "ownerReferences": []}
        world.children[Ref("Pod", f"{name}-copy")] = {**found, "metadata": metadata}
    plan = world.plan()
    assert plan.status["replicas"] == 1
    world.set(env=[{"name": "A", "value": "b"}])
    world.step()
    del world.children[Ref("Pod", "x-service-0")]
    world.step()
    assert {"name": "A", "value": "b"} in (
        world.children[Ref("Deployment", "x-workers")]["spec"]["template"]["spec"]["containers"][0]["env"]
    )
