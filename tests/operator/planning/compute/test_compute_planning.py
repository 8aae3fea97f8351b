"""A job's plan: the order of its children, one driver at a time, restarts, suspension, upgrades, and its end."""

from typing import Any

import pytest

from support.operator.computes import NOW, SECRET_UID, World, at, body, compute, conditions, current_hash
from tussock.operator.manifests.compute.job import EXECUTORS_ANNOTATION, TEMPLATE_ANNOTATION
from tussock.operator.manifests.labels import SPEC_ANNOTATION
from tussock.operator.planning.compute.secrets import DRAW_SPARK_SECRET
from tussock.operator.planning.words.model import Annotate, Apply, Delete, Emit, Hold, Ref, Release, Work


def test_a_job_starts_when_its_platform_is_ready() -> None:
    """Rights, Service, policy, checkpoint and settings first, then the driver; a second pass does nothing."""
    world = World(compute())
    plan = world.plan()
    assert isinstance(plan.actions[0], Hold)
    made = [action.manifest["kind"] for action in plan.actions if isinstance(action, Apply)]
    assert made == [
        "ServiceAccount",
        "Role",
        "RoleBinding",
        "Service",
        "NetworkPolicy",
        "PersistentVolumeClaim",
        "ConfigMap",
        "Pod",
    ]
    world.settle()
    assert world.reason() == ("False", "Running")
    world.run()
    plan = world.settle()
    assert world.reason() == ("True", "Ready")
    assert [action for action in plan.actions if not isinstance(action, Hold)] == []
    assert plan.status["restarts"] == 0


def test_the_secret_of_spark_is_drawn_before_the_driver_starts() -> None:
    """Once; a driver without one, of an earlier operator, goes on until it exists, and is then replaced."""
    world = World(compute())
    secret = Ref("Secret", "x-spark")
    drawn = world.others.pop(secret)
    assert Work(DRAW_SPARK_SECRET, {}) in world.plan().actions
    world.settle()
    assert world.pods == []
    assert world.reason() == ("False", "Reconciling")
    world.others[secret] = drawn
    assert not [action for action in world.plan().actions if isinstance(action, Work)]
    world.settle()
    world.run()
    world.settle()
    del world.others[secret]
    assert not [action for action in world.plan().actions if isinstance(action, Delete)]
    world.settle()
    assert world.reason() == ("True", "Reconciling")
    world.others[secret] = {**drawn, "metadata": {**drawn["metadata"], "uid": "another"}}
    assert Delete(Ref("Pod", "x-driver")) in [Delete(a.ref) for a in world.plan().actions if isinstance(a, Delete)]


def test_a_foreign_secret_is_not_used_for_spark() -> None:
    """The foreign secret is not overwritten, either: strangers might know its value."""
    world = World(compute())
    world.others[Ref("Secret", "x-spark")]["metadata"] = {"name": "x-spark", "namespace": "team", "uid": "mine"}
    plan = world.settle()
    assert world.pods == []
    assert not [action for action in plan.actions if isinstance(action, Work)]
    assert world.reason() == ("False", "NameInUse")
    assert "There is a Secret x-spark in namespace team that does not belong to Compute x" in world.message()


def test_the_same_inputs_give_the_same_plan() -> None:
    world = World(compute())
    assert world.plan() == world.plan()
    world.settle()
    world.run()
    world.settle()
    before = world.plan()
    world.after(3600)
    assert world.plan() == before


@pytest.mark.parametrize("gap", ["store", "store-not-ready", "meta", "meta-not-ready", "meta-rolling", "compactor"])
@pytest.mark.parametrize("history", ["first", "crashed", "changed"])
def test_a_driver_waits_for_its_platform(gap: str, history: str) -> None:
    """A first start and a change wait for all of the platform to roll; a restart only for meta nodes that serve."""
    world = World(compute())
    if history != "first":
        world.settle()
        world.run()
        world.settle()
        if history == "crashed":
            del world.children[Ref("Pod", "x-driver")]
        else:
            world.set(arguments=["other"])
    if gap == "store":
        del world.others[Ref("StateStore", "s")]
    elif gap == "store-not-ready":
        world.others[Ref("StateStore", "s")]["status"]["obstacle"] = "There is no bucket."
    elif gap == "meta":
        del world.others[Ref("Meta", "s")]
        del world.settled[Ref("Meta", "s")]
    elif gap == "meta-not-ready":
        world.others[Ref("Meta", "s")]["status"]["conditions"] = conditions(ready=False)
    elif gap == "meta-rolling":
        world.settled[Ref("Meta", "s")] = False
    else:
        world.settled[Ref("Compactor", "s")] = False
    before = world.pods
    world.settle()
    passes = history == "crashed" and gap in ("meta-rolling", "compactor", "store-not-ready")
    if passes:
        assert world.pods == ["x-driver"]
        return
    assert world.pods == before
    expected = {"store": "WaitingForStore", "store-not-ready": "WaitingForStore", "compactor": "WaitingForCompactors"}
    assert world.reason("Progressing") == ("True", expected.get(gap, "WaitingForMeta"))


@pytest.mark.parametrize("has_section", [True, False])
def test_a_job_says_whether_the_meta_of_its_store_is_on_its_way(has_section: bool) -> None:
    """A user who gave the store a meta section was told to create one."""
    world = World(compute())
    del world.others[Ref("Meta", "s")]
    del world.settled[Ref("Meta", "s")]
    spec = world.others[Ref("StateStore", "s")]["spec"]
    spec.pop("meta", None)
    spec |= {"meta": {}} if has_section else {}
    world.settle()
    assert world.reason("Progressing") == ("True", "WaitingForMeta")
    making = "The operator is creating Meta s of StateStore s."
    advice = "There is no Meta of StateStore s; create one, or set spec.meta of the store."
    assert world.message() == (making if has_section else advice)


def test_a_changed_job_stops_before_it_starts_again() -> None:
    """There are never two drivers: the new one is made when the old one has ended, not when it is told to end."""
    world = World(compute())
    world.settle()
    world.run()
    world.settle()
    old = world.driver()["metadata"]["annotations"][TEMPLATE_ANNOTATION]
    world.set(arguments=["new"])
    plan = world.plan()
    assert Delete(Ref("Pod", "x-driver")) in plan.actions
    assert not [action for action in plan.actions if isinstance(action, Apply) and action.manifest["kind"] == "Pod"]
    world.job["status"] = plan.status
    world.driver()["metadata"]["deletionTimestamp"] = at(50)
    plan = world.plan()
    assert [action for action in plan.actions if isinstance(action, Delete)] == []
    assert plan.status["conditions"][0]["reason"] == "Draining"
    del world.children[Ref("Pod", "x-driver")]
    world.settle()
    assert world.driver()["metadata"]["annotations"][TEMPLATE_ANNOTATION] == current_hash(world) != old
    assert world.job["status"]["restarts"] == 1


def test_a_deleted_driver_is_reported() -> None:
    """Only if neither another template nor a suspension explains it; before its end nothing is started."""
    world = World(compute())
    world.settle()
    world.run()
    world.settle()
    world.driver()["metadata"]["deletionTimestamp"] = at(50)
    world.settle()
    assert world.reason() == ("False", "Draining")
    assert world.message().startswith("Pod x-driver was deleted; when it has ended its batch")
    world.set(suspend=True)
    world.settle()
    assert world.message() == "Waiting for pod x-driver to end its batch and stop."
    world.set(suspend=False)
    del world.children[Ref("Pod", "x-driver")]
    world.settle()
    assert (world.pods, world.reason()) == (["x-driver"], ("False", "Running"))
    assert world.job["status"]["restarts"] == 1


def test_an_image_is_tried_before_the_driver_is_stopped() -> None:
    """A small pod gets the image first; it is deleted with the former driver."""
    world = World(compute())
    world.settle()
    world.run()
    world.settle()
    world.set(image="localhost/other:1")
    world.settle()
    assert world.pods == ["x-driver", "x-image"]
    assert world.reason() == ("True", "RollingOut"), "the stream goes on"
    assert world.driver("x-image")["spec"]["containers"][0]["image"] == "localhost/other:1"
    world.driver("x-image")["status"] = {"phase": "Succeeded"}
    world.settle()
    assert world.pods == ["x-driver"]
    assert world.driver()["spec"]["containers"][0]["image"] == "localhost/other:1"


def test_a_missing_image_leaves_the_old_driver_alone() -> None:
    """The condition names the image; the right image heals it, and so does the former one."""
    world = World(compute())
    world.settle()
    world.run()
    world.settle()
    for wrong, right in (("localhost/wrong:1", "localhost/right:1"), ("localhost/wrong:2", "")):
        before = world.driver()["spec"]["containers"][0]["image"]
        world.set(image=wrong)
        world.settle()
        waiting = {"waiting": {"reason": "ErrImagePull", "message": "not found"}}
        container = {"name": "compute", "image": wrong, "state": waiting}
        world.driver("x-image")["status"] = {"phase": "Pending", "containerStatuses": [container]}
        world.settle()
        assert world.driver()["spec"]["containers"][0]["image"] == before
        assert (world.reason(), world.reason("Degraded")) == (("True", "ImagePullFailed"), ("True", "ImagePullFailed"))
        assert wrong in world.message()
        assert before in world.message()
        world.set(image=right)
        world.settle()
        world.driver("x-image")["status"] = {"phase": "Succeeded"}
        world.settle()
        world.run()
        world.settle()
        assert (world.pods, world.reason()) == (["x-driver"], ("True", "Ready"))
    assert world.driver()["spec"]["containers"][0]["image"] == "localhost/tussock-spark:dev"


def test_a_driver_that_does_not_run_is_replaced_at_once() -> None:
    """There is nothing to lose, so the image is not tried first."""
    world = World(compute(image="localhost/wrong:1"))
    world.settle()
    world.set(image="localhost/right:1")
    world.settle()
    assert world.pods == ["x-driver"]
    assert world.driver()["spec"]["containers"][0]["image"] == "localhost/right:1"


def test_executors_are_scaled_without_a_new_driver() -> None:
    """The number goes into the ConfigMap, and an annotation makes the kubelet update it."""
    world = World(compute())
    world.settle()
    world.run()
    world.settle()
    world.set(executor={"replicas": 5})
    actions = world.plan().actions
    [applied] = [action.manifest for action in actions if isinstance(action, Apply)]
    assert (applied["kind"], applied["data"]["executors"]) == ("ConfigMap", "5\n")
    annotations: dict[str, str | None] = {EXECUTORS_ANNOTATION: "5", SPEC_ANNOTATION: f"1.2.1//{SECRET_UID}"}
    assert Annotate(Ref("Pod", "x-driver"), annotations) in actions
    assert not [action for action in actions if isinstance(action, Delete)]


def test_new_bounds_of_executors_replace_the_driver() -> None:
    """Spark reads them when it starts."""
    world = World(compute(executor={"minReplicas": 0, "maxReplicas": 4}))
    world.settle()
    world.run()
    world.settle()
    assert "executors" not in world.children[Ref("ConfigMap", "x-driver")]["data"]
    world.set(executor={"minReplicas": 0, "maxReplicas": 8})
    assert Delete(Ref("Pod", "x-driver")) in world.plan().actions


@pytest.mark.parametrize("mode", ["Streaming", "Batch"])
@pytest.mark.parametrize("kind", [None, "Always", "OnFailure", "Never"])
@pytest.mark.parametrize("code", [0, 1, 143])
def test_the_restart_policy_decides_after_each_end(mode: str, kind: str | None, code: int) -> None:
    """Crossed: the kind of job, its policy, and the driver's exit (143: it was told to end)."""
    policy = {"backoffSeconds": 10, "maxBackoffSeconds": 300, **({"type": kind} if kind else {})}
    world = World(compute(mode=mode, restartPolicy=policy))
    world.settle()
    world.run()
    world.after(30).end(code)
    world.settle()
    effective = kind or ("Always" if mode == "Streaming" else "OnFailure")
    if code == 0 and effective != "Always":
        assert world.reason() == ("True", "Completed")
        assert world.pods == ["x-driver"], "its log can still be read"
        # Completed stays so, also when somebody takes the pod away.
        del world.children[Ref("Pod", "x-driver")]
        world.after(9000).settle()
        assert (world.pods, world.reason()) == ([], ("True", "Completed"))
    elif effective == "Never":
        assert world.reason("Degraded") == ("True", "Failed")
        del world.children[Ref("Pod", "x-driver")]
        world.after(9000).settle()
        assert (world.pods, world.reason("Degraded")) == ([], ("True", "Failed"))
    else:
        assert world.reason()[1] in ("BackingOff", "DriverFailed")
        assert world.job["status"]["failures"] == (code == 1)
        assert world.job["status"]["nextRestartTime"] == at(40)
        world.after(9.0).settle()
        assert world.pods == ["x-driver"]
        assert world.driver()["status"]["phase"] in ("Failed", "Succeeded")
        world.after(1.0).settle()
        assert "status" not in world.driver(), "a new pod"
        assert world.job["status"]["restarts"] == 1


def test_the_backoff_doubles_to_its_bound_and_then_the_job_fails() -> None:
    """10, 20, 40, 60, 60 seconds; the sixth failure in a row is one too many."""
    policy = {"backoffSeconds": 10, "maxBackoffSeconds": 60, "maxRestarts": 5}
    world = World(compute(restartPolicy=policy))
    pauses = []
    for _ in range(5):
        world.settle()
        world.run()
        world.after(1).end(1, message="ValueError: no such table")
        plan = world.settle()
        assert plan.again_seconds is not None
        pauses.append(plan.again_seconds)
        world.after(plan.again_seconds)
    assert pauses == [10, 20, 40, 60, 60]
    world.settle()
    world.run()
    world.after(1).end(1, message="ValueError: no such table")
    world.settle()
    assert world.reason("Degraded") == ("True", "Failed")
    assert "6 times in a row" in world.message()
    assert "ValueError: no such table" in world.message()
    assert world.job["status"]["restarts"] == 5
    # A change of the spec is a fresh start.
    world.set(arguments=["right"])
    world.settle()
    assert world.driver()["metadata"]["annotations"]["tussock.dev/failures"] == "0"
    assert world.job["status"]["failures"] == 0


def test_a_long_run_resets_the_count_of_failures() -> None:
    policy = {"backoffSeconds": 10, "maxBackoffSeconds": 60}
    world = World(compute(restartPolicy=policy))
    for _ in range(3):
        world.settle()
        world.run()
        plan = (world.after(1).end(1), world.settle())[1]
        world.after(plan.again_seconds or 0)
    world.settle()
    assert world.job["status"]["failures"] == 3
    world.run()
    world.after(61).end(1)
    world.settle()
    assert world.job["status"]["failures"] == 1


def test_a_deleted_driver_is_made_again_at_once() -> None:
    world = World(compute())
    world.settle()
    world.run()
    world.settle()
    del world.children[Ref("Pod", "x-driver")]
    world.settle()
    assert world.pods == ["x-driver"]
    assert (world.job["status"]["restarts"], world.job["status"]["failures"]) == (1, 0)


def test_an_operator_that_dies_between_two_steps_counts_nothing_twice() -> None:
    """The end of a run is in its pod, so unwritten plans are simply made again."""
    world = World(compute())
    world.settle()
    world.run()
    world.after(1).end(1)
    first = world.plan()
    assert world.plan() == first
    world.job["status"] = first.status
    assert world.plan().status == first.status


@pytest.mark.parametrize("where", ["running", "failed", "waiting"])
def test_a_suspended_job_stops_and_resumes_at_its_checkpoint(where: str) -> None:
    """The driver is told to stop in any state; the checkpoint stays, and resuming starts it at once."""
    world = World(compute())
    world.settle()
    if where != "waiting":
        world.run()
    if where == "failed":
        world.after(1).end(1)
        world.settle()
    world.set(suspend=True)
    world.settle()
    assert world.pods == []
    assert world.reason() == ("False", "Suspended")
    assert Ref("PersistentVolumeClaim", "x-checkpoint") in world.children
    world.set(suspend=False)
    world.settle()
    assert world.pods == ["x-driver"]


def test_a_job_that_is_made_suspended_never_starts() -> None:
    world = World(compute(suspend=True))
    world.settle()
    assert (world.pods, world.reason()) == ([], ("False", "Suspended"))


@pytest.mark.parametrize(
    ("theirs", "created", "name", "wins"),
    [
        ("x", -9001, "other", False),
        ("x", -8999, "other", True),
        ("x", -9000, "a", False),
        ("x", -9000, "z", True),
        ("y", -9001, "other", True),
    ],
)
def test_of_two_jobs_with_one_writer_id_the_older_runs(theirs: str, created: float, name: str, wins: bool) -> None:
    """Of two from the same second the one whose name sorts first runs; another id is independent."""
    world = World(compute())
    spec = {"storeRef": {"name": "s"}, "writerId": theirs}
    world.others[Ref("Compute", name)] = body("Compute", name, spec, creationTimestamp=at(created))
    world.settle()
    assert world.pods == (["x-driver"] if wins else [])
    if not wins:
        assert world.reason("Degraded") == ("True", "WriterIdInUse")
        assert name in world.message()
        del world.others[Ref("Compute", name)]
        world.settle()
        assert world.pods == ["x-driver"]


def test_the_same_writer_id_in_another_store_is_another() -> None:
    world = World(compute())
    spec = {"storeRef": {"name": "t"}, "writerId": "x"}
    world.others[Ref("Compute", "other")] = body("Compute", "other", spec, creationTimestamp=at(-10000))
    world.settle()
    assert world.pods == ["x-driver"]


def test_a_paused_job_is_left_alone() -> None:
    world = World(compute())
    world.settle()
    world.run()
    world.settle()
    world.others[Ref("StateStore", "s")]["spec"]["paused"] = True
    world.set(arguments=["other"])
    del world.children[Ref("Service", "x-driver")]
    assert world.plan().actions == ()
    assert world.plan().status["conditions"][0]["reason"] == "Paused"


def test_deletion_waits_for_the_driver() -> None:
    """It is told to stop once, waited for, and then the finalizer goes."""
    world = World(compute())
    world.settle()
    world.run()
    world.settle()
    world.job["metadata"]["deletionTimestamp"] = at(0)
    plan = world.plan()
    assert plan.actions == (Delete(Ref("Pod", "x-driver")),)
    world.driver()["metadata"]["deletionTimestamp"] = at(55)
    assert world.plan().actions == ()
    del world.children[Ref("Pod", "x-driver")]
    assert world.plan().actions == (Release(),)


def test_the_deletion_of_a_job_does_not_wait_for_ever() -> None:
    """Its node may be lost. An event reports it once, and the object goes."""
    world = World(compute(), deletionDeadlineSeconds=100)
    world.settle()
    world.job["metadata"]["deletionTimestamp"] = at(0)
    world.driver()["metadata"]["deletionTimestamp"] = at(55)
    world.after(99)
    assert world.plan().actions == ()
    actions = world.after(1).plan().actions
    assert [type(action) for action in actions] == [Emit, Release]
    assert "x-driver" in actions[0].message  # type: ignore[union-attr]


def test_a_job_without_a_store_can_be_deleted() -> None:
    world = World(compute(metadata={"deletionTimestamp": at(0)}))
    del world.others[Ref("StateStore", "s")]
    assert world.plan().actions == (Release(),)


def test_the_deletion_of_a_store_stops_its_jobs() -> None:
    world = World(compute())
    world.settle()
    world.run()
    world.others[Ref("StateStore", "s")]["metadata"]["deletionTimestamp"] = at(0)
    assert world.plan().actions == (Delete(Ref("Pod", "x-driver")),)


@pytest.mark.parametrize(
    ("status", "age", "reason", "says"),
    [
        (
            {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}},
            5,
            "ImagePullFailed",
            "no such image",
        ),
        ({"waiting": {"reason": "CreateContainerConfigError", "message": "secret a"}}, 5, "ContainerConfigFailed", "a"),
        ({"waiting": {"reason": "ContainerCreating"}}, 5, "Running", "Waiting"),
        ({"waiting": {"reason": "ContainerCreating"}}, 400, "ProbeFailed", "kubectl describe pod x-driver"),
        ({"running": {"startedAt": at(0)}}, 90, "Running", "started"),
        ({"running": {"startedAt": at(0)}}, 400, "ProbeFailed", "kubectl logs x-driver"),
    ],
)
def test_a_pod_that_does_not_start_is_reported(status: dict[str, Any], age: float, reason: str, says: str) -> None:
    world = World(compute())
    world.settle()
    phase = "Running" if "running" in status else "Pending"
    world.driver()["metadata"]["creationTimestamp"] = at(0)
    world.driver()["status"] = {"phase": phase, "containerStatuses": [{"name": "compute", "state": status}]}
    world.after(age).settle()
    assert world.reason()[1] == reason
    assert says in world.message()
    assert world.plan().again_seconds is not None, "time alone may change what is told"


def test_a_pod_without_a_node_is_reported_after_half_a_minute() -> None:
    """The message has the scheduler's own words."""
    world = World(compute())
    world.settle()
    refused = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "lastTransitionTime": at(0)}
    world.driver()["status"] = {"phase": "Pending", "conditions": [{**refused, "message": "0/1 nodes: cpu"}]}
    world.after(29).settle()
    assert world.reason()[1] == "Running"
    world.after(2).settle()
    assert world.reason()[1] == "Unschedulable"
    assert "0/1 nodes: cpu" in world.message()


def test_a_stream_whose_executors_find_no_node_is_not_ready() -> None:
    """The driver runs, and would wait for ever; with one executor at work, another one without a node is no failure."""
    world = World(compute())
    world.settle()
    world.run()
    labels = dict(world.driver()["metadata"]["labels"]) | {"tussock.dev/role": "executor"}
    refused = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "lastTransitionTime": at(0)}

    def executor(name: str, condition: dict[str, str], phase: str) -> None:
        pod = {"kind": "Pod", "metadata": {"name": name, "labels": labels, "annotations": {}}}
        world.children[Ref("Pod", name)] = {**pod, "status": {"phase": phase, "conditions": [condition]}}

    executor("x-exec-1", {**refused, "message": "0/1 nodes: cpu"}, "Pending")
    world.after(29).settle()
    assert world.reason() == ("True", "Ready")
    world.after(2).settle()
    assert world.reason() == ("False", "Unschedulable")
    assert "Pod x-exec-1 finds no node: 0/1 nodes: cpu" in world.message()
    executor("x-exec-2", {"type": "Ready", "status": "True"}, "Running")
    world.settle()
    assert world.reason() == ("True", "Ready")


def test_a_program_in_a_configmap_is_checked_and_followed() -> None:
    """Unknown: nothing is done; missing: the condition says so; another content: another driver."""
    world = World(compute(application={"configMap": {"name": "program", "key": "job.py"}}))
    world.application = None
    assert world.plan().actions == (Hold(),)
    world.application, world.missing = "", "There is no ConfigMap program."
    world.settle()
    assert (world.pods, world.message()) == ([], "There is no ConfigMap program.")
    world.application, world.missing = "one", ""
    world.settle()
    world.run()
    world.settle()
    world.application = None
    assert world.plan().actions == (Hold(),), "an operator that has just started does not know it yet"
    world.application = "two"
    assert Delete(Ref("Pod", "x-driver")) in world.plan().actions


def test_status_counts_executors_by_their_selector() -> None:
    """Ended ones do not count; autoscalers find them by the same selector."""
    world = World(compute())
    world.settle()
    world.run()
    labels = dict(world.driver()["metadata"]["labels"]) | {"tussock.dev/role": "executor"}
    for number, (phase, ready) in enumerate([("Running", "True"), ("Running", "False"), ("Failed", "False")]):
        pod = {"kind": "Pod", "metadata": {"name": f"x-exec-{number}", "labels": labels, "annotations": {}}}
        world.children[Ref("Pod", f"x-exec-{number}")] = {
            **pod,
            "status": {"phase": phase, "conditions": [{"type": "Ready", "status": ready}]},
        }
    world.settle()
    assert (world.job["status"]["replicas"], world.job["status"]["readyReplicas"]) == (2, 1)
    selector = dict(pair.split("=") for pair in world.job["status"]["selector"].split(","))
    assert selector.items() <= labels.items()
    assert selector["tussock.dev/role"] == "executor"


def test_nothing_secret_is_in_a_status_or_an_event() -> None:
    """The error of a program appears in its own words, at most 1000 characters of them."""
    world = World(compute())
    world.settle()
    world.run()
    world.after(1).end(1, message="x" * 5000)
    world.settle()
    assert len(world.message()) < 1400
    assert NOW.isoformat()[:10] in world.message()
