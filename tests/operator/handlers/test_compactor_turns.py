"""An upgrade of the operator that changes only compactors restarts those of a few stores at a time."""

import random
from string import ascii_lowercase

import pytest

from support.operator.cluster_in_memory import NAMESPACE, ClusterInMemory, cluster_of
from support.operator.resources import DEFAULTS
from tussock.operator.cluster.seen import Key
from tussock.operator.manifests.labels import SPEC_ANNOTATION

NEXT = DEFAULTS._replace(node_image="registry.example/tussock-node:next")
NAMES = ascii_lowercase[:20]
STALLED = {"conditions": [{"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}]}


def image(cluster: ClusterInMemory, name: str) -> str:
    body = cluster.get("Deployment", f"{name}-compactor")
    return str(body["spec"]["template"]["spec"]["containers"][0]["image"])


def is_new(cluster: ClusterInMemory, name: str) -> bool:
    return image(cluster, name) == NEXT.node_image


def restarting(cluster: ClusterInMemory) -> list[str]:
    """The stores whose compactors Kubernetes is replacing."""
    found = []
    for body in cluster.seen.all_of("Deployment"):
        status = body["status"]
        if (status["observedGeneration"], status["updatedReplicas"]) != (
            body["metadata"]["generation"],
            body["spec"]["replicas"],
        ):
            found.append(body["metadata"]["name"].removesuffix("-compactor"))
    return found


def look(cluster: ClusterInMemory, names: str) -> None:
    """A pass over the Compactor of each of these stores, one after the other."""
    for name in names:
        cluster.look([Key("Compactor", NAMESPACE, name)])


@pytest.mark.parametrize("parallel", [1, 3])
def test_compactors_take_turns(parallel: int) -> None:
    """Of twenty stores never more than that many, by their names, in whatever order passes are made."""
    chance = random.Random(parallel)
    cluster = cluster_of(NAMES, parallel)
    cluster.begin(NEXT)
    begun: list[str] = []
    for _ in range(1000):
        if all(is_new(cluster, name) for name in NAMES) and not restarting(cluster):
            break
        cluster.look(chance.sample(cluster.keys(), 8))
        found = sorted(set(restarting(cluster)) - set(begun))
        begun += found
        assert len(restarting(cluster)) <= parallel
        if chance.random() < 0.1:
            cluster.begin(NEXT)  # another operator knows nothing of what this one has begun
        for name in restarting(cluster):
            if chance.random() < 0.7:
                cluster.advance("Deployment", f"{name}-compactor")
    assert sorted(begun) == list(NAMES)
    if parallel == 1:
        assert begun == list(NAMES)


def test_a_store_says_whose_compactors_come_first() -> None:
    """It serves meanwhile; after its turn the message goes."""
    cluster = cluster_of("ab", 1)
    cluster.begin(NEXT)
    look(cluster, "ba")
    told = f"All 2 compactors serve. An upgrade of the operator changes them after those of StateStore {NAMESPACE}/a."
    assert cluster.message("Compactor", "b") == told
    for _ in range(2):
        cluster.advance("Deployment", "a-compactor")
    look(cluster, "b")
    assert is_new(cluster, "b")
    for _ in range(2):
        cluster.advance("Deployment", "b-compactor")
    look(cluster, "b")
    assert cluster.message("Compactor", "b") == "All 2 compactors serve."


def test_compactors_follow_their_meta_nodes_without_another_turn() -> None:
    """Even if the user of another store changes that one meanwhile."""
    cluster = cluster_of("ab", 1, meta_image="")
    cluster.begin(NEXT)
    metas = [Key("Meta", NAMESPACE, name) for name in "ab"]
    cluster.look(metas)
    assert [name for name in "ab" if restarting(cluster) == [f"{name}-meta"]] == ["a"]
    cluster.edit("Meta", "b", replicas=3)
    cluster.look(metas)
    for _ in range(2):
        cluster.advance("Deployment", "a-meta")
    look(cluster, "ab")
    assert (is_new(cluster, "a"), is_new(cluster, "b")) == (True, False)


def test_what_a_user_asks_for_waits_for_no_store() -> None:
    """A change of the spec of a store or of a Compactor takes the new image with it; so does another Meta."""
    for kind, spec in (("Compactor", {"slots": 2}), ("StateStore", {"retentionSeconds": 7200})):
        cluster = cluster_of("abc", 1)
        cluster.begin(NEXT)
        look(cluster, "abc")
        assert restarting(cluster) == ["a"]
        cluster.edit(kind, "c", **spec)
        if kind == "StateStore":
            cluster.look([Key("Meta", NAMESPACE, "c")])
            for _ in range(2):
                cluster.advance("Deployment", "c-meta")
        look(cluster, "abc")
        assert sorted(restarting(cluster)) == ["a", "c"]
        assert not is_new(cluster, "b")


def test_an_edit_of_a_compactors_deployment_is_repaired_at_once() -> None:
    cluster = cluster_of("ab", 1)
    look(cluster, "ab")
    body = cluster.get("Deployment", "b-compactor")
    cluster.put("Deployment", {**body, "spec": {**body["spec"], "replicas": 7}})
    look(cluster, "b")
    assert cluster.get("Deployment", "b-compactor")["spec"]["replicas"] == 2


def test_compactors_without_progress_stop_all_others() -> None:
    """Kubernetes gives up on the first store's rollout, whose image does not start; no other one takes it."""
    cluster = cluster_of("abc", 1)
    cluster.begin(NEXT)
    look(cluster, "abc")
    cluster.advance("Deployment", "a-compactor")
    body = cluster.get("Deployment", "a-compactor")
    look(cluster, "bc")
    assert not is_new(cluster, "b")
    cluster.put("Deployment", {**body, "status": {**body["status"], **STALLED}})
    look(cluster, "cba")
    assert not is_new(cluster, "b")
    assert not is_new(cluster, "c")
    assert f"StateStore {NAMESPACE}/a (ProgressDeadlineExceeded) has failed it" in cluster.message("Compactor", "b")


def test_compactors_whose_meta_nodes_do_not_roll_out_stop_no_others() -> None:
    """They cannot begin, so nobody waits for them."""
    cluster = cluster_of("ab", 1)
    body = cluster.get("Deployment", "a-meta")
    cluster.put("Deployment", {**body, "status": {**body["status"], "readyReplicas": 0}})
    cluster.begin(NEXT)
    look(cluster, "ab")
    assert not is_new(cluster, "a")
    assert is_new(cluster, "b")


def test_an_operator_with_the_same_manifests_restarts_no_compactor() -> None:
    """An operator before turns left no annotation; it comes without a change of a Deployment."""
    cluster = cluster_of("a", 1)
    body = cluster.get("PodDisruptionBudget", "a-compactor")
    made_from = body["metadata"]["annotations"].pop(SPEC_ANNOTATION)
    body["metadata"]["annotations"]["tussock.dev/applied"] = "by-an-earlier-operator"
    cluster.put("PodDisruptionBudget", body)
    before = cluster.get("Deployment", "a-compactor")
    cluster.begin(DEFAULTS)
    look(cluster, "a")
    assert cluster.get("Deployment", "a-compactor") == before
    assert cluster.get("PodDisruptionBudget", "a-compactor")["metadata"]["annotations"][SPEC_ANNOTATION] == made_from
