"""An upgrade of the operator that changes nodes of services restarts a few at a time."""

import random

import pytest

from support.operator.cluster_in_memory import NAMESPACE, ClusterInMemory
from support.operator.resources import DEFAULTS
from tussock.operator.cluster.seen import Key
from tussock.operator.planning.words.model import Manifest

NEXT = DEFAULTS._replace(node_image="registry.example/tussock-node:next")
TEN = [f"app{number}" for number in range(10)]
ABC = ["a", "b", "c"]
CODE = {"configMap": {"name": "programs"}}


def cluster_of(names: list[str], parallel: int, **service: object) -> ClusterInMemory:
    """A store whose meta node keeps its image, and services that serve; those with a ConfigMap have the same one."""
    cluster = ClusterInMemory(parallel)
    cluster.programs |= dict.fromkeys(names, ("digest", ""))
    cluster.make("StateStore", "s", {"objectStore": {"managed": {}}, "tls": {"mode": "none"}})
    cluster.make("Meta", "s", {"storeRef": {"name": "s"}, "image": "registry.example/pinned:1"})
    for _ in range(3):
        cluster.look(cluster.keys())
        for found in list(cluster.seen.all_of("Deployment")):
            cluster.advance("Deployment", found["metadata"]["name"])
    for name in names:
        cluster.make("Compute", name, {"storeRef": {"name": "s"}, "service": {"module": "bank:make", **service}})
    for _ in range(3):
        look(cluster, *names)
        for name in names:
            step(cluster, name)
    look(cluster, *names)
    assert [name for name in names if is_serving(cluster, name)] == names
    return cluster


def look(cluster: ClusterInMemory, *names: str) -> None:
    """A pass over each of these services, one after the other."""
    for name in names:
        cluster.look([Key("Compute", NAMESPACE, name)])


def node_of(cluster: ClusterInMemory, name: str) -> Manifest | None:
    return cluster.find("Pod", f"{name}-service-0")


def is_serving(cluster: ClusterInMemory, name: str) -> bool:
    pod = node_of(cluster, name)
    return pod is not None and pod.get("status", {}).get("phase") == "Running"


def is_next(cluster: ClusterInMemory, name: str) -> bool:
    pod = node_of(cluster, name)
    return pod is not None and pod["spec"]["containers"][0]["image"] == NEXT.node_image


def is_tried(cluster: ClusterInMemory, name: str) -> bool:
    return cluster.find("Pod", f"{name}-image") is not None


def step(cluster: ClusterInMemory, name: str) -> None:
    """One step of a cluster: a trial ends, the old pod goes, the next one comes, it is ready."""
    if (trial := cluster.find("Pod", f"{name}-image")) is not None:
        cluster.advance("Pod", trial["metadata"]["name"])
    wanted, pod = cluster.find("StatefulSet", f"{name}-service"), node_of(cluster, name)
    if wanted is None:
        return
    template = wanted["spec"]["template"]
    if pod is None:
        metadata = {**template["metadata"], "name": f"{name}-service-0", "creationTimestamp": cluster.stamp()}
        cluster.put("Pod", {"kind": "Pod", "metadata": metadata, "spec": template["spec"], "status": {}})
    elif pod["spec"] != template["spec"]:
        cluster.remove("Pod", f"{name}-service-0")
    elif not is_serving(cluster, name):
        cluster.run(f"{name}-service-0")
    updated = int((pod := node_of(cluster, name)) is not None and pod["spec"] == template["spec"])
    numbers = {"replicas": 1, "updatedReplicas": updated, "readyReplicas": int(is_serving(cluster, name))}
    status = {"observedGeneration": wanted["metadata"]["generation"], **numbers}
    cluster.put("StatefulSet", {**wanted, "status": status})


@pytest.mark.parametrize("parallel", [1, 3])
def test_services_take_turns(parallel: int) -> None:
    """Of ten never more than that many restart, by their names, also across restarts of the operator."""
    chance = random.Random(parallel)
    cluster = cluster_of(TEN, parallel)
    cluster.begin(NEXT)
    begun: list[str] = []
    for _ in range(2000):
        stopped = [name for name in TEN if not is_serving(cluster, name)]
        begun += sorted(set(stopped) - set(begun))
        assert len(stopped) <= parallel
        if all(is_next(cluster, name) for name in TEN) and not stopped:
            break
        cluster.look(chance.sample(cluster.keys(), 4))
        if chance.random() < 0.1:
            cluster.begin(NEXT)  # another operator knows nothing of what this one has begun
        for name in TEN:
            if chance.random() < 0.7:
                step(cluster, name)
    assert sorted(begun) == TEN
    if parallel == 1:
        assert begun == TEN


def test_a_service_says_for_which_one_it_waits() -> None:
    """It serves meanwhile, as it is."""
    cluster = cluster_of(ABC, 1)
    cluster.begin(NEXT)
    look(cluster, *ABC)
    assert [name for name in ABC if is_tried(cluster, name)] == ["a"]
    assert f"An upgrade of the operator changes its node after that of Compute {NAMESPACE}/a." in cluster.message(
        "Compute", "b"
    )
    assert cluster.get("Compute", "b")["status"]["conditions"][0]["status"] == "True"


@pytest.mark.parametrize("edit", ["spec", "code"])
def test_what_a_user_asks_for_waits_for_no_service(edit: str) -> None:
    """A change of the spec, or of the ConfigMap, comes at once, with what the upgrade changes."""
    cluster = cluster_of(ABC, 1, **CODE)
    cluster.begin(NEXT)
    if edit == "spec":
        cluster.edit("Compute", "b", env=[{"name": "A", "value": "b"}])
    else:
        cluster.programs["b"] = ("another", "")
    look(cluster, *ABC)
    assert [name for name in ABC if is_tried(cluster, name)] == ["a", "b"]
    assert "after that of" in cluster.message("Compute", "c")


def test_a_suspended_service_holds_up_no_other() -> None:
    """It changes when it goes on."""
    cluster = cluster_of(ABC, 1)
    cluster.edit("Compute", "a", suspend=True)
    look(cluster, "a")
    cluster.remove("Pod", "a-service-0")
    look(cluster, "a")
    cluster.begin(NEXT)
    look(cluster, *ABC)
    assert is_tried(cluster, "b")


def test_jobs_and_services_do_not_wait_for_each_other() -> None:
    """A node that restarts stops no stream: each has a queue."""
    cluster = cluster_of(ABC, 1)
    cluster.make("Compute", "0", {"storeRef": {"name": "s"}, "application": {"file": "/opt/app.py"}})
    look(cluster, "0")
    cluster.run("0-driver")
    look(cluster, "0")
    cluster.begin(NEXT._replace(spark_image="registry.example/tussock-spark:next"))
    look(cluster, "0", *ABC)
    assert [name for name in ["0", *ABC] if is_tried(cluster, name)] == ["0", "a"]
