"""The ends of a driver: because of the store, under another's writer id, or with its node."""

from datetime import timedelta

import pytest

from support.operator.computes import World, at, compute, conditions
from tussock.meta.version.ledger import find_batch, record
from tussock.operator.planning.words.model import Apply, Emit, Ref
from tussock.statestore.errors import Fenced

POLICY = {"backoffSeconds": 10, "maxBackoffSeconds": 300, "maxRestarts": 1}


def running(**spec: object) -> World:
    world = World(compute(**spec))
    world.settle()
    world.run()
    world.settle()
    return world


def test_an_outage_of_the_store_is_no_failure_of_the_program() -> None:
    """Story: a job's own back-off, 40 s at its third end, outlasted the outage of its bucket."""
    world = running(restartPolicy=POLICY)
    for _ in range(5):
        world.after(5).end(75, message="MetaUnavailable: no meta node answers")
        plan = world.settle()
        assert world.reason("Degraded") == ("True", "BackingOff")
        assert "not count as a failure of the program" in world.message()
        assert plan.again_seconds == 10
        world.after(10).settle()
        world.run()
        world.settle()
    assert world.reason() == ("True", "Ready")
    assert (world.job["status"]["failures"], world.job["status"]["restarts"]) == (0, 5)


def test_after_an_outage_the_driver_waits_for_meta_nodes() -> None:
    world = running()
    meta = world.others[Ref("Meta", "s")]["status"]
    meta["conditions"] = conditions(ready=False)
    world.after(5).end(75, message="MetaUnavailable: no meta node answers")
    world.after(300).settle()
    assert world.reason("Progressing") == ("True", "WaitingForMeta")
    assert "status" in world.driver()
    meta["conditions"] = conditions()
    world.settle()
    assert "status" not in world.driver(), "another one, at once"


def test_the_cause_and_the_trace_of_a_failed_run_stay() -> None:
    """The next run's pod replaces this one's, and with it its log."""
    world = running(restartPolicy={**POLICY, "maxRestarts": 9})
    trace = 'Traceback (most recent call last):\n  File "/opt/app.py", line 9'
    world.after(5).end(1, message=f"ValueError: price of order 4711 is negative\n\n{trace}")
    plan = world.settle()
    assert "ValueError: price of order 4711 is negative. " in world.message().replace("It starts", " It starts")
    assert "Traceback" not in world.message()
    world.after(plan.again_seconds or 0).settle()
    world.run()
    world.settle()
    assert world.reason() == ("True", "Ready")
    expected = {"message": "ValueError: price of order 4711 is negative", "log": trace, "exitCode": 1, "time": at(5)}
    assert world.job["status"]["lastFailure"] == expected


def test_a_driver_without_a_termination_message_leaves_the_end_of_its_log() -> None:
    world = running()
    world.after(5).end(134, message='{"event": "starting"}\n# SIGSEGV in libjvm\n')
    world.settle()
    assert "# SIGSEGV in libjvm" in world.message()
    assert "starting" in world.job["status"]["lastFailure"]["log"]


def fenced_answer(source: str) -> str:
    """The store's answer to batch 0 of a query, under a writer that has committed for query `a`."""
    batches = ((634, 17),)
    known = record(batches[:0], None, 634, "query a", [])
    with pytest.raises(Fenced) as error:
        find_batch("x", 0, batches, known, source)
    return f"Fenced: {error.value}"


@pytest.mark.parametrize("source", ["query b", "query a"])
@pytest.mark.parametrize("most", [0, 9])
def test_a_lost_checkpoint_is_reported_with_the_way_out(source: str, most: int) -> None:
    """Story: a claim was deleted to reset a job; its batches from 0 on were skipped without a word, `Ready=True`."""
    world = running(restartPolicy={**POLICY, "maxRestarts": most})
    world.after(5).end(1, message=fenced_answer(source))
    world.settle()
    assert world.reason("Degraded") == ("True", "CheckpointLost")
    assert "another writerId" in world.message()
    assert "writer 'x'" in world.message()


def test_a_new_checkpoint_of_an_old_job_is_reported_at_once() -> None:
    """Not for a job that has never run: it has nothing to lose."""

    def events(world: World) -> list[str]:
        return [action.reason for action in world.plan().actions if isinstance(action, Emit)]

    world = World(compute(checkpoint={"size": "1Gi"}))
    assert events(world) == []
    world.settle()
    world.run()
    world.settle()
    del world.children[Ref("PersistentVolumeClaim", "x-checkpoint")]
    assert events(world) == ["CheckpointLost"]
    world.settle()
    assert events(world) == []


def test_another_fence_is_an_ordinary_failure() -> None:
    world = running()
    world.after(5).end(1, message="Fenced: generation 3 of writer x was replaced")
    world.settle()
    assert world.reason("Degraded") == ("True", "DriverFailed")
    assert "has failed once and starts again" in world.message()


@pytest.mark.parametrize(
    ("schedule", "first", "second"),
    [("", "x-driver", "x-driver-2"), ("*/5 * * * *", "x-driver-20261121-1200", "x-driver-20261121-1205")],
)
def test_a_driver_on_a_lost_node_is_replaced(schedule: str, first: str, second: str) -> None:
    """Under another name, after a bounded time, once; the old pod may come and go meanwhile.

    Story: Kubernetes leaves the pod there for ever, and the stream stood until a person removed it.
    """
    spec = {"schedule": schedule, "mode": "Batch", "metadata": {"creationTimestamp": at(-600)}} if schedule else {}
    world = running(**spec)
    world.driver()["metadata"]["deletionTimestamp"] = at(0)
    world.after(100).settle()
    assert (world.pods, world.reason()) == ([first], ("False", "Draining"))
    world.after(300)
    [event] = [action for action in world.plan().actions if isinstance(action, Emit)] or [None]
    assert schedule or (event is not None and event.reason == "NodeLost")
    world.settle()
    assert world.pods == [first, second]
    assert world.job["status"]["driverPod"] == second
    world.run(second)
    world.settle()
    world.after(5).settle()
    assert world.pods == [first, second]
    del world.children[Ref("Pod", first)]
    world.settle()
    assert not [action for action in world.plan().actions if isinstance(action, Apply)]
    assert world.pods == [second], "the node came back, and its pod went"


def test_an_ended_container_is_not_reported_as_starting() -> None:
    """The kubelet reports the container a second before it reports the pod."""
    world = running()
    world.after(5).end(1, message="ValueError: x")
    world.driver()["status"]["phase"] = "Running"
    world.settle()
    assert "is ending" in world.message()


@pytest.mark.parametrize("reason", ["Unschedulable", "CreateContainerConfigError"])
def test_an_image_is_tried_on_the_nodes_of_the_driver(reason: str) -> None:
    """Story: the trial pod lacked the pod template, so on a pool with a taint no new image ever rolled out."""
    placing = {
        "nodeSelector": {"pool": "spark"},
        "tolerations": [{"key": "spark", "operator": "Exists"}],
        "imagePullSecrets": [{"name": "registry"}],
        "priorityClassName": "high",
    }
    world = running(podTemplate={"spec": placing})
    world.set(image="localhost/other:1")
    world.settle()
    spec = world.driver("x-image")["spec"]
    # With ours behind the user's: it leaves a lost node as the driver does.
    assert {name: spec[name][:1] if name == "tolerations" else spec[name] for name in placing} == placing
    assert spec["serviceAccountName"] == "x-driver"
    if reason == "Unschedulable":
        found = {
            "type": "PodScheduled",
            "status": "False",
            "reason": reason,
            "message": "no node",
            "lastTransitionTime": at(0),
        }
        world.driver("x-image")["status"] = {"phase": "Pending", "conditions": [found]}
    else:
        waiting = {"waiting": {"reason": reason, "message": "no node"}}
        container = {"name": "compute", "image": "localhost/other:1", "state": waiting}
        world.driver("x-image")["status"] = {"phase": "Pending", "containerStatuses": [container]}
    world.after(60).settle()
    expected = reason if reason == "Unschedulable" else "ContainerConfigFailed"
    assert (world.reason(), world.reason("Degraded")) == (("True", expected), ("True", expected))
    assert "no node" in world.message()
    assert "continues meanwhile" in world.message()


def evict(world: World, *, ready: bool, containers_ready: bool, started: bool = True) -> None:
    """The control plane deletes the driver's pod because of a taint of its node; the pod has these conditions then."""
    pod = world.driver()
    states = {"DisruptionTarget": True, "Ready": ready, "ContainersReady": containers_ready}
    found = [{"type": type_, "status": str(state), "reason": ""} for type_, state in states.items()]
    found[0]["reason"] = "DeletionByTaintManager"
    pod["status"]["conditions"] = found
    pod["status"]["containerStatuses"][0]["started"] = started
    seconds = pod["spec"]["terminationGracePeriodSeconds"]
    pod["metadata"]["deletionTimestamp"] = (world.now + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def test_a_driver_on_a_silent_node_is_replaced_at_once() -> None:
    """Of its pod the control plane denies `Ready`, and nobody the rest."""
    world = running()
    evict(world, ready=False, containers_ready=True)
    [told] = [action.message for action in world.plan().actions if isinstance(action, Emit)]
    assert "its node is lost" in told
    world.settle()
    assert world.pods == ["x-driver", "x-driver-2"]
    world.run("x-driver-2")
    world.after(3600).settle()
    assert world.pods == ["x-driver", "x-driver-2"]
    assert world.reason() == ("True", "Ready")


def test_a_run_on_a_silent_node_starts_again_at_once_and_holds_up_no_other() -> None:
    """It has not come to its end, so its time is not lost with the node."""
    world = running(schedule="* * * * *", mode="Batch", metadata={"creationTimestamp": at(-600)})
    first = "x-driver-20261121-1200"
    evict(world, ready=False, containers_ready=True)
    world.settle()
    assert world.pods == [first, f"{first}-2"]
    assert [(entry["pod"], entry["result"]) for entry in world.job["status"]["runs"]] == [(f"{first}-2", "Running")]
    world.run(f"{first}-2")
    world.after(60).end(0, f"{first}-2")
    world.settle()
    assert world.pods == [first, f"{first}-2", "x-driver-20261121-1201"]


def test_a_driver_that_had_not_started_on_a_silent_node_is_replaced_at_once() -> None:
    """It has no batch to end."""
    world = running()
    world.run(ready=False)
    evict(world, ready=False, containers_ready=False, started=False)
    world.settle()
    assert world.pods == ["x-driver", "x-driver-2"]


@pytest.mark.parametrize(("ready", "containers_ready"), [(True, True), (False, False)])
def test_a_driver_that_is_evicted_from_a_living_node_ends_its_batch(ready: bool, containers_ready: bool) -> None:
    """As where a person has tainted it. Its kubelet writes both conditions, and ends it within its grace."""
    world = running()
    evict(world, ready=ready, containers_ready=containers_ready)
    world.after(55).settle()
    assert (world.pods, world.reason()) == (["x-driver"], ("False", "Draining"))
    world.after(9).settle()
    assert world.pods == ["x-driver"]
    world.after(2).settle()
    assert world.pods == ["x-driver", "x-driver-2"]


def test_a_driver_that_was_evicted_and_has_ended_is_not_lost() -> None:
    """Its exit code counts, and its name is free when it has gone."""
    world = running()
    evict(world, ready=False, containers_ready=True)
    conditions_before = world.driver()["status"]["conditions"]
    world.after(5).end(143)
    world.driver()["status"]["conditions"] = conditions_before
    world.settle()
    assert "x-driver-2" not in world.pods
