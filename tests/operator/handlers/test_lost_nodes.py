"""A stream whose node is lost: what passes before its next driver is made, on Kubernetes' own timetable.

The clock is the test's. What the control plane writes, and when, is as in Kubernetes 1.34.
"""

from datetime import timedelta
from typing import Any

import pytest

from support.operator.cluster_in_memory import NAMESPACE, ClusterInMemory, cluster_of
from tussock.operator.cluster.seen import Key
from tussock.operator.manifests.pod.node_loss import TOLERATION_SECONDS
from tussock.operator.planning.words.model import stamp

SILENT_SECONDS = 50
"""After this time without a sign of a node the control plane taints it (`--node-monitor-grace-period`)."""
LOOK_SECONDS = 5
"""How often it looks (`--node-monitor-period`)."""
START_SECONDS = 27
"""From a driver's pod to its first commit, at most, where the node has the image."""
JOB = Key("Compute", NAMESPACE, "x")


def stream() -> ClusterInMemory:
    """A store that serves, and a job that runs."""
    cluster = cluster_of("s", 1)
    cluster.make("Compute", "x", {"storeRef": {"name": "s"}, "application": {"file": "/opt/app.py"}})
    cluster.look([JOB])
    serve(cluster, "x-driver")
    cluster.look([JOB])
    assert cluster.get("Compute", "x")["status"]["conditions"][0]["status"] == "True"
    return cluster


def serve(cluster: ClusterInMemory, pod: str) -> None:
    """Let a driver run, with all that its kubelet writes."""
    cluster.run(pod)
    status = cluster.get("Pod", pod)["status"]
    status["containerStatuses"][0]["started"] = True
    cluster.report(pod, **{**status, "conditions": states(Ready=True, ContainersReady=True)})


def states(**values: bool) -> list[dict[str, Any]]:
    return [{"type": type_, "status": str(value), "reason": ""} for type_, value in values.items()]


def toleration(pod: dict[str, Any]) -> int:
    """How long a pod stays on a node that is unreachable, in seconds."""
    return next(
        int(found["tolerationSeconds"])
        for found in pod["spec"]["tolerations"]
        if found["key"] == "node.kubernetes.io/unreachable"
    )


def lose_node(cluster: ClusterInMemory, pod: str) -> None:
    """What the control plane does, in its time, from the moment at which the pod's node falls silent."""
    cluster.after(SILENT_SECONDS + LOOK_SECONDS)
    body = cluster.get("Pod", pod)
    status = {**body["status"], "conditions": states(Ready=False, ContainersReady=True)}
    cluster.report(pod, **status)
    before = drivers(cluster)
    cluster.look([JOB])
    assert drivers(cluster) == before, "Kubernetes has not given it up yet"
    cluster.after(toleration(body))
    evicted = {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager"}
    cluster.report(pod, **{**status, "conditions": [*status["conditions"], evicted]})
    body = cluster.get("Pod", pod)
    end = cluster.now + timedelta(seconds=body["spec"]["terminationGracePeriodSeconds"])
    cluster.put("Pod", {**body, "metadata": {**body["metadata"], "deletionTimestamp": stamp(end)}})


def drivers(cluster: ClusterInMemory) -> list[str]:
    return sorted(found["metadata"]["name"] for found in cluster.seen.all_of("Pod", NAMESPACE))


def test_a_stream_commits_again_within_90_seconds_after_its_node_was_lost() -> None:
    """The operator adds nothing: one pass after the eviction the next driver is there."""
    cluster = stream()
    began = cluster.now
    lose_node(cluster, "x-driver")
    cluster.look([JOB])
    assert drivers(cluster) == ["x-driver", "x-driver-2"]
    cluster.after(START_SECONDS)
    serve(cluster, "x-driver-2")
    cluster.look([JOB])
    status = cluster.get("Compute", "x")["status"]
    assert (status["driverPod"], status["conditions"][0]["status"]) == ("x-driver-2", "True")
    assert (cluster.now - began).total_seconds() < 90


@pytest.mark.parametrize("comes_back", [True, False])
def test_a_node_that_comes_back_ends_nothing(comes_back: bool) -> None:
    """Its kubelet ends the old pod then; the new driver stays, under its name, and no third one starts."""
    cluster = stream()
    lose_node(cluster, "x-driver")
    cluster.look([JOB])
    serve(cluster, "x-driver-2")
    if comes_back:
        cluster.remove("Pod", "x-driver")
    for _ in range(10):
        cluster.after(60)
        cluster.look([JOB])
    assert drivers(cluster) == ["x-driver-2"] if comes_back else ["x-driver", "x-driver-2"]
    assert cluster.get("Compute", "x")["status"]["driverPod"] == "x-driver-2"


def test_a_second_lost_node_takes_no_longer() -> None:
    """The next driver has a third name, as the first two pods are still there."""
    cluster = stream()
    lose_node(cluster, "x-driver")
    cluster.look([JOB])
    serve(cluster, "x-driver-2")
    cluster.look([JOB])
    lose_node(cluster, "x-driver-2")
    cluster.look([JOB])
    assert drivers(cluster) == ["x-driver", "x-driver-2", "x-driver-3"]


def test_every_pod_that_another_can_replace_leaves_a_lost_node() -> None:
    """The nodes of a store and the template of executors, too."""
    cluster = stream()
    workloads = {
        found["metadata"]["name"]: found["spec"]["template"]
        for kind in ("Deployment", "StatefulSet")
        for found in cluster.seen.all_of(kind, NAMESPACE)
    }
    assert {name: toleration(template) for name, template in workloads.items()} == {
        "s-meta": TOLERATION_SECONDS,
        "s-compactor": TOLERATION_SECONDS,
    }
    executors = cluster.get("ConfigMap", "x-driver")["data"]["executor-pod.json"]
    assert executors.count('"tolerationSeconds": 5') == 2
