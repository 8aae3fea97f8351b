"""The progress of a workload and its problem, from the many places where Kubernetes reports them."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tussock.operator.planning.words.conditions import Reason
from tussock.operator.planning.words.rollout import Rollout, pod_problem, rollout, verdict_of

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)


def ago(seconds: float) -> str:
    return (NOW - timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def workload(wanted: int = 2, replicas: int = 2, updated: int = 2, ready: int = 2, **rest: Any) -> dict[str, Any]:
    numbers = {"replicas": replicas, "updatedReplicas": updated, "readyReplicas": ready}
    return {
        "kind": "Deployment",
        "metadata": {"name": "w", "generation": 2},
        "spec": {"replicas": wanted},
        "status": {"observedGeneration": 2, **numbers, **rest},
    }


def pod(name: str = "p", conditions: Any = (), **container: Any) -> dict[str, Any]:
    status: dict[str, Any] = {"conditions": list(conditions)}
    if container:
        status["containerStatuses"] = [{"image": "node:1", "ready": False, **container}]
    return {"kind": "Pod", "metadata": {"name": name, "creationTimestamp": ago(300)}, "status": status}


def unschedulable(seconds: float) -> dict[str, Any]:
    return {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "0/3 nodes are available: 3 Insufficient memory",
        "lastTransitionTime": ago(seconds),
    }


@pytest.mark.parametrize(
    ("body", "done"),
    [
        pytest.param(workload(), True, id="all"),
        pytest.param(workload(updated=1), False, id="an-old-one-left"),
        pytest.param(workload(ready=1), False, id="one-not-ready"),
        pytest.param(workload(replicas=3), False, id="one-too-many"),
        pytest.param(workload(wanted=3), False, id="one-too-few"),
        pytest.param(workload(observedGeneration=1), False, id="of-an-older-spec"),
        pytest.param(workload(0, 0, 0, 0), True, id="none-wanted"),
        pytest.param(None, False, id="not-made"),
    ],
)
def test_a_change_is_done_when_all_pods_are_new_and_ready(body: dict[str, Any] | None, done: bool) -> None:
    assert rollout(body, (), NOW).done is done


PULL = {"waiting": {"reason": "ImagePullBackOff", "message": "Back-off pulling image"}}
CONFIG = {"waiting": {"reason": "CreateContainerConfigError", "message": 'secret "x" not found'}}
LOOP = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 40s"}}
KILLED = {"terminated": {"reason": "OOMKilled", "exitCode": 137}}
OLD = (
    "log/7: offset 4: written in format version 8, and this reader knows versions up to 7; open the store with a newer"
)
TOO_OLD = {"terminated": {"reason": "Error", "exitCode": 1, "message": f'{{"event": "x"}}\nerror: {OLD} Tussock\n'}}
PROBLEMS: dict[str, tuple[dict[str, Any], Reason | None, tuple[str, ...]]] = {
    "image": (pod(state=PULL), Reason.IMAGE_PULL_FAILED, ("Pod p", "node:1", "Back-off pulling image")),
    "configuration": (pod(state=CONFIG), Reason.CONTAINER_CONFIG_FAILED, ("p", 'secret "x" not found')),
    "crash loop": (
        pod(state=LOOP, lastState=KILLED, restartCount=4),
        Reason.CRASH_LOOPING,
        ("ended 4 times", "OOMKilled", "137", "kubectl logs --previous p"),
    ),
    "between two crashes": (
        pod(state={"running": {"startedAt": ago(2)}}, lastState=KILLED, restartCount=2),
        Reason.CRASH_LOOPING,
        ("ended 2 times",),
    ),
    "in a loop after one end": (
        pod(state=LOOP, lastState=KILLED, restartCount=1),
        Reason.CRASH_LOOPING,
        ("ended once",),
    ),
    "of an older release, at its first end": (
        pod(state=TOO_OLD, restartCount=0),
        Reason.DOWNGRADE_REFUSED,
        ("Pod p has image node:1", f"for this store: {OLD} Tussock.", "of a newer one", "restore a backup from before"),
    ),
    "of an older release, in a loop": (
        pod(state=LOOP, lastState=TOO_OLD, restartCount=4),
        Reason.DOWNGRADE_REFUSED,
        (OLD,),
    ),
    "one crash": (pod(state={"running": {"startedAt": ago(2)}}, lastState=KILLED, restartCount=1), None, ()),
    "starts": (pod(state={"running": {"startedAt": ago(30)}}), None, ()),
    "not ready for long": (pod(state={"running": {"startedAt": ago(90)}}), Reason.PROBE_FAILED, ("describe pod p",)),
    "ready": (pod(ready=True, state={"running": {"startedAt": ago(90)}}), None, ()),
    "no node yet": (pod(conditions=[unschedulable(10)]), None, ()),
    "no node": (pod(conditions=[unschedulable(31)]), Reason.UNSCHEDULABLE, ("3 Insufficient memory", "Pod p")),
    "being pulled": (pod(state={"waiting": {"reason": "ContainerCreating"}}), None, ()),
}


@pytest.mark.parametrize(("body", "reason", "words"), PROBLEMS.values(), ids=PROBLEMS)
def test_the_problem_of_a_pod_is_described(body: dict[str, Any], reason: Reason | None, words: tuple[str, ...]) -> None:
    found = pod_problem(body, NOW)
    assert (found.reason if found else None) is reason
    for word in words:
        assert found is not None
        assert word in found.message


@pytest.mark.parametrize("newer", [True, False])
def test_a_pod_that_an_upgrade_leaves_behind_is_no_downgrade(newer: bool) -> None:
    """It was restarted after the new release had written; only a pod of the image that is asked for is one."""
    body = pod(state=LOOP, lastState=TOO_OLD, restartCount=1)
    body["spec"] = {"containers": [{"image": "node:1"}]}
    found = workload(replicas=3, updated=1)
    found["spec"]["template"] = {"spec": {"containers": [{"image": "node:2" if newer else "node:1"}]}}
    problem = rollout(found, [body], NOW).problem
    assert (None if problem is None else problem.reason) == (None if newer else Reason.DOWNGRADE_REFUSED)


def test_an_ending_pod_has_no_problem() -> None:
    body = pod(state=PULL)
    body["metadata"]["deletionTimestamp"] = ago(1)
    assert pod_problem(body, NOW) is None


def test_the_newest_pod_explains_why_a_change_stops() -> None:
    """Old pods may have other troubles, which are not the reason."""
    old, new = pod("old", state=LOOP), pod("new", state=PULL)
    new["metadata"]["creationTimestamp"] = ago(10)
    found = rollout(workload(updated=1), [old, new], NOW)
    assert found.problem is not None
    assert found.problem.reason is Reason.IMAGE_PULL_FAILED


def test_a_workload_that_may_make_no_pods_says_why() -> None:
    refused = {"type": "ReplicaFailure", "status": "True", "message": "exceeded quota: small"}
    found = rollout(workload(ready=0, replicas=0, updated=0, conditions=[refused]), [], NOW)
    assert found.problem is not None
    assert found.problem.reason is Reason.POD_REFUSED
    assert "exceeded quota" in found.problem.message


def test_a_scale_down_counts_only_wanted_pods() -> None:
    """Story: `3 of 1 meta nodes serve`."""
    found = rollout(workload(1, 3, 3, 3), (), NOW)
    assert verdict_of(found, "meta nodes", "node:1").message == "1 meta nodes serve; 2 more are being stopped."


def test_a_finished_rollout_has_no_problem() -> None:
    """A pod that restarts now and then does not degrade a workload that serves in full."""
    assert rollout(workload(), [pod(state=LOOP)], NOW).problem is None


@pytest.mark.parametrize("serving", [True, False])
@pytest.mark.parametrize("reason", [Reason.IMAGE_PULL_FAILED, Reason.CRASH_LOOPING, Reason.UNSCHEDULABLE])
def test_a_problem_degrades_and_no_node_only_delays(reason: Reason, serving: bool) -> None:
    """`Ready` stays as long as one pod serves."""
    body = (
        pod(conditions=[unschedulable(60)])
        if reason is Reason.UNSCHEDULABLE
        else pod(state={Reason.IMAGE_PULL_FAILED: PULL, Reason.CRASH_LOOPING: LOOP}[reason])
    )
    found = verdict_of(rollout(workload(updated=1, ready=int(serving)), [body], NOW), "nodes", "node:1")
    assert found.reason is reason
    assert (found.ready, found.progressing) == (serving, True)
    assert found.degraded is (reason is not Reason.UNSCHEDULABLE)
    assert ("still serve" in found.message) is serving


@pytest.mark.parametrize(
    ("replicas", "updated", "ready", "told"), [(4, 1, 3, 0), (4, 2, 3, 1), (4, 2, 4, 2), (3, 3, 2, 2), (3, 0, 3, 0)]
)
def test_a_rollout_reports_how_many_new_pods_serve(replicas: int, updated: int, ready: int, told: int) -> None:
    """An old pod that still serves does not count."""
    found = verdict_of(Rollout(3, replicas, updated, ready, done=False), "nodes", "node:2")
    assert found.message == f"{told} of 3 nodes serve with image node:2."
    assert (found.ready, found.progressing, found.degraded) == (True, True, False)
