"""The plan of a service: what is made, in which order it changes and ends, and what the status says."""

from typing import Any

import pytest

from support.operator.computes import at, body, conditions
from support.operator.services.service_world import NODE, WORKERS, ServiceWorld, service
from tussock.operator.manifests.service.children import WORKERS_ANNOTATION
from tussock.operator.planning.compute.facts import PROGRAM_SECONDS
from tussock.operator.planning.words.model import Delete, Hold, Ref, Release
from tussock.operator.resources.common import InvalidResource
from tussock.operator.resources.compute import parse_compute

IMAGE = Ref("Pod", "x-image")


def variables(world: ServiceWorld, ref: Ref) -> dict[str, str]:
    """The environment of a workload's container, or of a pod."""
    found = world.children[ref]["spec"]
    spec = found.get("template", {"spec": found})["spec"]
    return {one["name"]: one.get("value", "") for one in spec["containers"][0]["env"]}


def test_a_service_starts_when_its_platform_is_ready() -> None:
    """Nothing runs before the meta nodes have rolled out; then node and workers are made, and Ready follows the pod."""
    world = ServiceWorld(service(workers=2))
    world.facts.settled[Ref("Meta", "s")] = False  # type: ignore[index]
    world.settle()
    assert world.ready() == ("False", "WaitingForMeta")
    assert NODE not in world.children
    assert WORKERS not in world.children
    world.facts.settled[Ref("Meta", "s")] = True  # type: ignore[index]
    assert Hold() in world.settle().actions
    assert world.ready() == ("False", "Running")
    assert world.workers == ["x-workers-0", "x-workers-1"]
    world.run(ready=False)
    world.say(state="starting", workers=2, workers_joined=1)
    world.settle()
    assert world.message() == "Pod x-service-0 waits for workers: 1 of 2 have joined."
    world.run()
    world.say(state="running", workers_joined=2, waiting=3, outstanding=4, uncommitted=5)
    world.settle()
    assert world.ready() == ("True", "Ready")
    assert world.message() == "Pod x-service-0 serves at x-service.team.svc:7380."
    assert world.job["status"]["service"] == {
        "endpoint": "x-service.team.svc:7380",
        "application": "bank",
        "layer": "functions",
        "state": "running",
        "version": "0.1.0",
        "workers": 2,
        "workersJoined": 2,
        "waiting": 3,
        "outstanding": 4,
        "uncommitted": 5,
    }
    assert (world.job["status"]["replicas"], world.job["status"]["readyReplicas"]) == (2, 2)


def test_a_service_at_rest_changes_nothing() -> None:
    """A pass over it has no action but the finalizer, which is there."""
    world = ServiceWorld(service(workers=2)).serve(2)
    assert set(world.plan().actions) == {Hold()}


def test_without_workers_there_is_a_node_alone() -> None:
    """No Deployment, no door for workers, and nothing of them in the node."""
    world = ServiceWorld(service()).serve()
    assert {ref.name for ref in world.children} == {"x-service", "x-service-0"}
    assert "TUSSOCK_SERVE_WORKERS_FILE" not in variables(world, NODE)
    assert "workers" not in world.job["status"]["service"]


@pytest.mark.parametrize("change", [{"env": [{"name": "A", "value": "b"}]}, {"service": {"module": "bank:other"}}])
def test_the_old_node_ends_before_the_next_begins_and_workers_after_it(change: dict[str, Any]) -> None:
    """There are never two nodes; the old one has its workers until it has gone, and then all of them change."""
    world = ServiceWorld(service(workers=2)).serve(2)
    old = variables(world, WORKERS)
    world.set(**change)
    world.settle()
    pod = world.pod("x-service-0")
    assert pod is not None
    assert "deletionTimestamp" in pod["metadata"]
    assert world.ready() == ("False", "Draining")
    assert "to answer what it has taken" in world.message()
    assert variables(world, WORKERS) == old
    assert [world.children[WORKERS]["spec"]["template"]["spec"]["containers"][0]["args"][1]] == ["bank:make"]
    world.gone()
    world.settle()
    new = world.pod("x-service-0")
    assert new is not None
    assert new["made-from"] != pod["made-from"]
    for name in world.workers:
        assert world.children[Ref("Pod", name)]["made-from"] == world.children[WORKERS]["spec"]["template"]
    assert world.children[WORKERS]["spec"]["template"]["spec"]["containers"][0]["args"][1] == (
        change.get("service", {}).get("module", "bank:make")
    )
    world.run()
    world.settle()
    assert world.ready() == ("True", "Ready")


def test_more_workers_come_without_another_start() -> None:
    """The file changes, the pod is told to look, the Deployment grows; the node's template stays."""
    world = ServiceWorld(service(workers=1)).serve(1)
    template = world.children[NODE]["spec"]["template"]
    world.set(service={"workers": 3})
    world.settle()
    assert world.children[NODE]["spec"]["template"] == template
    assert world.children[Ref("ConfigMap", "x-workers")]["data"] == {"workers": "3\n"}
    pod = world.pod("x-service-0")
    assert pod is not None
    assert pod["metadata"]["annotations"][WORKERS_ANNOTATION] == "3"
    assert len(world.workers) == 3
    assert world.ready() == ("True", "RollingOut")
    assert "goes on with 1 workers; 3 are wanted, and 1 have joined" in world.message()
    world.say(workers=3, workers_joined=3)
    world.settle()
    assert world.ready() == ("True", "Ready")


def test_another_port_changes_the_service_alone() -> None:
    """The node's pod stays, and nobody is told of a change that is none."""
    world = ServiceWorld(service()).serve()
    pod = world.pod("x-service-0")
    world.set(service={"port": 443})
    world.step()
    assert world.ready() == ("True", "Ready")
    assert "serves at x-service.team.svc:443." in world.message()
    world.settle()
    assert world.pod("x-service-0") == pod


def test_fewer_workers_go_once_the_node_does_without_them() -> None:
    """A worker that goes too early would be one at work: a node that cannot be asked keeps all, and a dead one none."""
    world = ServiceWorld(service(workers=3)).serve(3)
    world.set(service={"workers": 2})
    world.settle()
    assert len(world.workers) == 3
    world.say(problem="no route.", is_blind=True)
    world.settle()
    assert len(world.workers) == 3
    world.say(problem="", is_blind=False, workers=2)
    world.settle()
    assert len(world.workers) == 2
    world.set(service={"workers": 1})
    world.children[NODE]["spec"]["replicas"] = 0
    world.gone()
    world.step()
    assert world.children[WORKERS]["spec"]["replicas"] == 1


def test_a_node_without_workers_any_more_needs_them_until_it_has_gone() -> None:
    """From workers to none: the old node ends with them, and what was theirs goes after it."""
    world = ServiceWorld(service(workers=2)).serve(2)
    world.set(service={"workers": 0})
    world.settle()
    theirs = {Ref("ConfigMap", "x-workers"), Ref("Service", "x-workers"), WORKERS}
    assert theirs <= world.children.keys()
    assert len(world.workers) == 2
    world.gone()
    world.settle()
    assert not theirs & world.children.keys()
    assert world.workers == []


def test_a_suspended_service_ends_its_node_first() -> None:
    """Then the workers; their workloads stay, and the next node goes on with the state."""
    world = ServiceWorld(service(workers=2)).serve(2)
    world.set(suspend=True)
    world.settle()
    assert world.ready() == ("False", "Draining")
    assert len(world.workers) == 2
    world.gone()
    world.settle()
    assert world.ready() == ("False", "Suspended")
    assert not world.degraded()
    assert world.workers == []
    world.set(suspend=False)
    world.settle()
    assert world.pod("x-service-0") is not None
    assert len(world.workers) == 2


def test_a_suspended_service_makes_nothing_at_first() -> None:
    """What is suspended from its beginning has no workloads."""
    world = ServiceWorld(service(workers=2, suspend=True))
    world.settle()
    assert NODE not in world.children
    assert world.ready() == ("False", "Suspended")


def test_a_deletion_ends_the_node_then_the_workers_then_releases() -> None:
    """Workers outlive the node's drain, and the finalizer waits for the node."""
    world = ServiceWorld(service(workers=2)).serve(2)
    world.delete()
    plan = world.settle()
    assert NODE not in world.children
    assert WORKERS in world.children
    assert world.ready() == ("False", "Draining")
    assert Release() not in plan.actions
    world.gone()
    plan = world.step()
    assert plan.actions[-1] == Release()
    assert WORKERS not in world.children


def test_a_deletion_does_not_wait_for_ever() -> None:
    """After the store's deadline, and the node's own time, it gives up with an event."""
    world = ServiceWorld(service(drainSeconds=100)).serve()
    world.delete()
    world.settle()
    assert Release() not in world.after(150).step().actions
    plan = world.after(100).step()
    assert Release() in plan.actions
    assert world.events == ["DeletionGaveUp"]
    assert "may be lost" in world.message()


def test_a_store_that_goes_ends_its_services() -> None:
    """Their pods go before the meta nodes do; the Compute stays."""
    world = ServiceWorld(service(workers=1)).serve(1)
    world.others[Ref("StateStore", "s")]["metadata"]["deletionTimestamp"] = at(0)
    world.settle()
    assert NODE not in world.children
    assert world.ready() == ("False", "Deleting")
    world.gone()
    world.settle()
    assert WORKERS not in world.children


def test_a_paused_store_keeps_its_services_as_they_are() -> None:
    """Nothing is applied, whatever the spec says."""
    world = ServiceWorld(service()).serve()
    world.others[Ref("StateStore", "s")]["spec"]["paused"] = True
    world.set(env=[{"name": "A", "value": "b"}])
    assert world.step().actions == ()
    assert world.ready() == ("True", "Paused")


def test_a_new_image_is_tried_before_the_node_stops_for_it() -> None:
    """One that nobody can pull leaves the old node at work, and a corrected one needs no other help."""
    world = ServiceWorld(service(workers=1, image="bank:1")).serve(1)
    world.set(image="bank:none")
    world.settle()
    trial = world.children[IMAGE]
    assert trial["spec"]["containers"][0]["image"] == "bank:none"
    assert world.ready() == ("True", "RollingOut")
    trial["status"] = {
        "phase": "Pending",
        "containerStatuses": [
            {"name": "compute", "image": "bank:none", "state": {"waiting": {"reason": "ErrImagePull"}}}
        ],
    }
    world.settle()
    assert world.ready() == ("True", "ImagePullFailed")
    assert world.degraded()
    assert "The node with image bank:1 continues meanwhile." in world.message()
    world.set(image="bank:2")
    world.settle()
    trial = world.children[IMAGE]
    assert trial["spec"]["containers"][0]["image"] == "bank:2"
    trial["status"] = {"phase": "Succeeded"}
    world.settle()
    assert world.ready() == ("False", "Draining")
    assert IMAGE not in world.children
    world.gone()
    world.settle()
    pod = world.pod("x-service-0")
    assert pod is not None
    assert pod["spec"]["containers"][0]["image"] == "bank:2"


def test_a_change_waits_for_the_platform_and_for_its_turn() -> None:
    """Meanwhile the old node serves, and the message says what it waits for."""
    world = ServiceWorld(service()).serve()
    world.set(env=[{"name": "A", "value": "b"}])
    world.facts.settled[Ref("Compactor", "s")] = False  # type: ignore[index]
    world.settle()
    assert world.ready() == ("True", "WaitingForCompactors")
    world.facts.settled[Ref("Compactor", "s")] = True  # type: ignore[index]
    world.facts = type(world.facts)(**{**vars(world.facts), "before": ("team/a",)})
    world.settle()
    assert world.ready() == ("True", "Ready")
    assert "An upgrade of the operator changes its node after that of Compute team/a." in world.message()
    assert "A" not in variables(world, NODE)
    world.facts = type(world.facts)(**{**vars(world.facts), "before": ()})
    world.settle()
    assert "A" in variables(world, NODE)


def test_code_that_changes_in_its_config_map_makes_another_node() -> None:
    """Once it was read; code that is gone stops no running node, and lets none begin."""
    world = ServiceWorld(service(configMap={"name": "bank"}))
    world.facts = type(world.facts)(**{**vars(world.facts), "application": None})
    assert world.step().actions == (Hold(),)
    world.facts = type(world.facts)(**{**vars(world.facts), "application": "1", "missing": "There is none."})
    world.settle()
    assert (world.ready(), world.degraded()) == (("False", "InvalidSpec"), True)
    assert NODE not in world.children
    world.facts = type(world.facts)(**{**vars(world.facts), "missing": ""})
    world.serve()
    assert world.plan().again_seconds == PROGRAM_SECONDS
    world.facts = type(world.facts)(**{**vars(world.facts), "application": "2"})
    world.settle()
    assert world.ready() == ("False", "Draining")


def test_of_two_services_with_one_application_the_younger_stops() -> None:
    """Each start would shut the other one out; it goes on when the older is gone, or its own spec changes."""
    world = ServiceWorld(service(workers=1)).serve(1)
    older = service("w", {"service": {"application": "bank"}}, metadata={"creationTimestamp": at(-9999)})
    world.others[Ref("Compute", "w")] = older
    world.settle()
    assert (world.ready(), world.degraded()) == (("False", "ApplicationInUse"), True)
    assert "Compute w runs application 'bank' of StateStore s, too" in world.message()
    world.gone()
    world.settle()
    assert world.ready() == ("False", "ApplicationInUse")
    assert world.pod("x-service-0") is None
    older["spec"]["suspend"] = True
    world.settle()
    assert world.pod("x-service-0") is not None
    older["spec"]["suspend"] = False
    world.settle()
    world.gone()
    world.settle()
    world.set(service={"module": "bank:other"})
    world.say(application="other")
    world.settle()
    assert world.pod("x-service-0") is not None


def test_the_older_of_two_services_stays() -> None:
    """And one of another store, or a job, is no rival."""
    world = ServiceWorld(service()).serve()
    younger = service("y", {"service": {"application": "bank"}}, metadata={"creationTimestamp": at(-10)})
    elsewhere = service("a", {"service": {"application": "bank"}}, metadata={"creationTimestamp": at(-9999)})
    elsewhere["spec"]["storeRef"] = {"name": "t"}
    job = body("Compute", "b", {"storeRef": {"name": "s"}, "application": {"file": "/a.py"}, "writerId": "x"})
    job["metadata"]["creationTimestamp"] = at(-9999)
    for one in (younger, elsewhere, job):
        world.others[Ref("Compute", one["metadata"]["name"])] = one
    world.settle()
    assert world.ready() == ("True", "Ready")


def test_a_service_needs_a_store_with_meta_nodes() -> None:
    """Without a store it waits, and says so."""
    world = ServiceWorld(service())
    del world.others[Ref("StateStore", "s")]
    world.settle()
    assert world.ready() == ("False", "WaitingForStore")
    assert "There is no StateStore s in this namespace" in world.message()


def test_a_certificate_comes_before_the_node() -> None:
    """The store's CA issues it; without it nothing starts."""
    world = ServiceWorld(service())
    del world.others[Ref("Secret", "x-service-tls")]
    plan = world.settle()
    assert [type(one).__name__ for one in plan.actions] == ["Hold", "Work"]
    assert world.message() == "Waiting until the operator has issued x-service-tls."


def test_a_foreign_secret_is_neither_used_nor_touched() -> None:
    """A running node ends, since it must not show what somebody else has made."""
    world = ServiceWorld(service()).serve()
    world.others[Ref("Secret", "x-service-tls")]["metadata"]["ownerReferences"] = []
    world.others[Ref("Secret", "x-service-tls")]["metadata"]["labels"] = {}
    world.settle()
    assert (world.ready(), world.degraded()) == (("False", "NameInUse"), True)
    assert Delete(Ref("Secret", "x-service-tls")) not in world.plan().actions


def test_what_a_users_template_cannot_change_is_told() -> None:
    """Its own labels and limits hold; those of the operator are put back, with an event."""
    template = {
        "metadata": {"labels": {"team": "bank", "tussock.dev/role": "none"}},
        "spec": {
            "containers": [
                {
                    "name": "compute",
                    "env": [{"name": "TUSSOCK_SERVE_LIMITS__OUTSTANDING", "value": "7"}],
                    "command": ["sh"],
                }
            ]
        },
    }
    world = ServiceWorld(service(workers=1, podTemplate=template)).serve(1)
    for ref, role in ((NODE, "node"), (WORKERS, "worker")):
        pod = world.children[ref]["spec"]["template"]
        assert pod["metadata"]["labels"]["team"] == "bank"
        assert pod["metadata"]["labels"]["tussock.dev/role"] == role
        assert "command" not in pod["spec"]["containers"][0]
        assert variables(world, ref)["TUSSOCK_SERVE_LIMITS__OUTSTANDING"] == "7"
    assert world.events == ["PodTemplateKept"]


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        pytest.param({}, "has neither of spec.application", id="neither"),
        pytest.param(
            {"service": {"module": "b:m"}, "application": {"file": "/a.py"}}, "has both of spec.application", id="both"
        ),
        pytest.param({"service": {"module": "bank"}}, "is not MODULE:APP", id="no app"),
        pytest.param({"service": {"module": "a-b:c"}}, "is not MODULE:APP", id="no name of Python"),
        pytest.param({"service": {"module": "a.b:c", "configMap": {"name": "x"}}}, "is in a folder", id="a folder"),
        pytest.param({"service": {"module": "b:m", "port": 0}}, "spec.service.port: 0 is not from 1", id="port 0"),
        pytest.param({"service": {"module": "b:m", "port": 65536}}, "spec.service.port", id="port too large"),
        pytest.param({"service": {"module": "b:m", "port": 7381}}, "the port of the page", id="port of the page"),
        pytest.param({"service": {"module": "b:m", "workers": -1}}, "-1 is not from 0 to 64", id="workers below zero"),
        pytest.param({"service": {"module": "b:m", "workers": 10**9}}, "is not from 0 to 64", id="workers huge"),
        pytest.param({"service": {"module": "b:m", "drainSeconds": 0}}, "is not from 1 to 3600", id="no drain"),
        pytest.param(
            {"service": {"module": "b", "workers": 65}}, "spec.service.module.*; spec.service.workers", id="two at once"
        ),
    ],
)
def test_a_spec_that_the_server_would_refuse_is_refused_here_too(spec: dict[str, Any], said: str) -> None:
    """It was stored under another definition; the message has the object, the field and what to do."""
    found = body("Compute", "x", {"storeRef": {"name": "s"}, **spec})
    with pytest.raises(InvalidResource, match=rf"^Compute team/x.*{said}.*[aA]pply it again"):
        parse_compute(found)


def test_a_service_without_an_image_is_refused() -> None:
    """The message says where to set one."""
    world = ServiceWorld(service())
    world.facts = type(world.facts)(settled=world.facts.settled)
    with pytest.raises(InvalidResource, match=r"Compute x has no image: set spec.image, or spec.images.node"):
        world.plan()


def test_conditions_of_others_are_not_a_services() -> None:
    """A meta node that does not serve stops no running node."""
    world = ServiceWorld(service()).serve()
    world.others[Ref("Meta", "s")]["status"]["conditions"] = conditions(ready=False, reason="NoLeader")
    world.settle()
    assert world.ready() == ("True", "Ready")
