"""Stores of a newer release, and an operator that would take them to an older one: as after a rollback of its chart."""

import pytest

from support.operator.cluster_in_memory import ClusterInMemory, cluster_of
from support.operator.resources import DEFAULTS

NEW = "registry.example/tussock-node:0.2.0"
OLD = "registry.example/tussock-node:0.1.0"


def cluster_of_newer_stores(parallel: int = 1) -> ClusterInMemory:
    """Stores `a` to `d` whose nodes run the newer release; that of `d` has not written yet."""
    cluster = cluster_of("abcd", parallel, meta_image="")
    cluster.begin(DEFAULTS._replace(node_image=NEW))
    settle(cluster)
    for name in "abc":
        body = cluster.get("Meta", name)
        cluster.put("Meta", {**body, "status": {**body["status"], "logFormat": 8}})
    assert images(cluster) == dict.fromkeys("abcd", NEW)
    return cluster


def settle(cluster: ClusterInMemory) -> None:
    """Let all turns end."""
    for _ in range(30):
        cluster.look(cluster.keys())
        for found in list(cluster.seen.all_of("Deployment")):
            cluster.advance("Deployment", found["metadata"]["name"])


def images(cluster: ClusterInMemory, part: str = "meta") -> dict[str, str]:
    return {
        name: cluster.get("Deployment", f"{name}-{part}")["spec"]["template"]["spec"]["containers"][0]["image"]
        for name in "abcd"
    }


def reasons(cluster: ClusterInMemory) -> dict[str, str]:
    return {name: cluster.get("Meta", name)["status"]["conditions"][0]["reason"] for name in "abcd"}


@pytest.mark.parametrize("parallel", [1, 3])
def test_an_operator_that_was_rolled_back_leaves_newer_stores_alone(parallel: int) -> None:
    """Neither meta nodes nor compactors change; the one store that can go back does, and waits for none of them."""
    cluster = cluster_of_newer_stores(parallel)
    cluster.begin(DEFAULTS._replace(node_image=OLD))
    settle(cluster)
    assert images(cluster) == {**dict.fromkeys("abc", NEW), "d": OLD}
    assert images(cluster, "compactor") == {**dict.fromkeys("abc", NEW), "d": OLD}
    assert reasons(cluster) == {**dict.fromkeys("abc", "DowngradeRefused"), "d": "Ready"}
    assert f"The meta nodes keep image {NEW}." in cluster.message("Meta", "a")


def test_a_refusal_stays_as_it_is_while_others_are_refused() -> None:
    """It does not come and go with the turns of stores."""
    cluster = cluster_of_newer_stores()
    cluster.begin(DEFAULTS._replace(node_image=OLD))
    settle(cluster)
    before = {name: cluster.get("Meta", name)["status"] for name in "abc"}
    for _ in range(6):
        cluster.after(3)
        cluster.look(cluster.keys())
        assert {name: cluster.get("Meta", name)["status"] for name in "abc"} == before


def test_a_newer_operator_ends_the_refusal() -> None:
    cluster = cluster_of_newer_stores()
    cluster.begin(DEFAULTS._replace(node_image=OLD))
    settle(cluster)
    cluster.begin(DEFAULTS._replace(node_image=NEW))
    settle(cluster)
    assert images(cluster) == dict.fromkeys("abcd", NEW)
    assert reasons(cluster) == dict.fromkeys("abcd", "Ready")


def test_an_image_in_a_spec_is_refused_and_the_next_one_taken() -> None:
    cluster = cluster_of_newer_stores()
    cluster.edit("Meta", "a", image=OLD)
    settle(cluster)
    assert (images(cluster)["a"], reasons(cluster)["a"]) == (NEW, "DowngradeRefused")
    cluster.edit("Meta", "a", image="registry.example/tussock-node:0.2.1")
    settle(cluster)
    assert images(cluster)["a"] == "registry.example/tussock-node:0.2.1"
    assert reasons(cluster)["a"] == "Ready"
