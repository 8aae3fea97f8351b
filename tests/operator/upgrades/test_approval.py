"""`spec.upgrade.mode: Approve`: a change of image waits until somebody approves of just that image."""

import pytest

from support.operator.cluster_in_memory import NAMESPACE, ClusterInMemory, cluster_of
from support.operator.resources import DEFAULTS, store_with
from tussock.operator.cluster.seen import Key
from tussock.operator.manifests.minio import minio_manifests
from tussock.operator.planning.words.approvals import APPROVED, approved_server, joined
from tussock.operator.planning.words.model import workload_in

FIRST, NEXT, LATER = (f"registry.example/tussock-node:{tag}" for tag in ("1.2.3", "next", "later"))


def cluster_that_asks(names: str = "a", *, by_default: bool = False) -> ClusterInMemory:
    """Stores that serve with the first image, and change to no other one by themselves."""
    cluster = cluster_of(names, 1, meta_image="")
    if by_default:
        cluster.begin(DEFAULTS._replace(upgrade_mode="Approve"))
    for name in "" if by_default else names:
        cluster.edit("StateStore", name, upgrade={"mode": "Approve"})
    settle(cluster)
    return cluster


def begin(cluster: ClusterInMemory, image: str) -> None:
    """An operator with another default image."""
    cluster.begin(cluster.world.defaults._replace(node_image=image))
    settle(cluster)


def settle(cluster: ClusterInMemory) -> None:
    for _ in range(8):
        cluster.look(cluster.keys())
        for found in list(cluster.seen.all_of("Deployment")):
            cluster.advance("Deployment", found["metadata"]["name"])
    cluster.look(cluster.keys())


def approve(cluster: ClusterInMemory, name: str, images: str) -> None:
    body = cluster.get("StateStore", name)
    annotations = {**(body["metadata"].get("annotations") or {}), APPROVED: images}
    cluster.put("StateStore", {**body, "metadata": {**body["metadata"], "annotations": annotations}})


def image(cluster: ClusterInMemory, workload: str) -> str:
    containers = cluster.get("Deployment", workload)["spec"]["template"]["spec"]["containers"]
    return str(containers[0]["image"])


def images(cluster: ClusterInMemory, name: str = "a") -> set[str]:
    return {image(cluster, f"{name}-{part}") for part in ("meta", "compactor")}


@pytest.mark.parametrize("by_default", [False, True], ids=["by the spec", "by the operator's default"])
def test_a_new_image_waits_until_it_is_approved(by_default: bool) -> None:
    """The nodes serve on; the status has the image, since when it waits, and what to do."""
    cluster = cluster_that_asks(by_default=by_default)
    since = cluster.stamp()
    begin(cluster, NEXT)
    cluster.after(600)
    settle(cluster)
    assert images(cluster) == {FIRST}
    for kind in ("Meta", "Compactor"):
        status = cluster.get(kind, "a")["status"]
        assert (status["pendingImage"], status["pendingImageTime"]) == (NEXT, since)
        held = [(one["type"], one["status"], one["reason"]) for one in status["conditions"]]
        assert held[0] == ("Ready", "True", "WaitingForApproval")
        assert [one[1] for one in held[1:]] == ["False", "False"]
        assert (
            f"kubectl tussock approve a, or give the StateStore the annotation {APPROVED}: {NEXT}"
            in (status["conditions"][0]["message"])
        )
    approve(cluster, "a", NEXT)
    settle(cluster)
    assert images(cluster) == {NEXT}
    for kind in ("Meta", "Compactor"):
        assert "pendingImage" not in cluster.get(kind, "a")["status"]
        assert cluster.get(kind, "a")["status"]["conditions"][0]["reason"] == "Ready"


def test_an_approval_holds_for_no_other_image() -> None:
    """Neither for a later one, nor for a text that only resembles it."""
    cluster = cluster_that_asks()
    begin(cluster, NEXT)
    for given in ("", f"{NEXT}1", NEXT[:-1], LATER, "true", "*"):
        approve(cluster, "a", given)
        settle(cluster)
        assert images(cluster) == {FIRST}, given
    approve(cluster, "a", f"{LATER}, {NEXT}")
    settle(cluster)
    assert images(cluster) == {NEXT}
    approve(cluster, "a", NEXT)
    begin(cluster, LATER)
    assert images(cluster) == {NEXT}
    assert cluster.get("Meta", "a")["status"]["pendingImage"] == LATER


def test_the_time_begins_anew_with_another_image() -> None:
    cluster = cluster_that_asks()
    begin(cluster, NEXT)
    cluster.after(60)
    begin(cluster, LATER)
    status = cluster.get("Meta", "a")["status"]
    assert (status["pendingImage"], status["pendingImageTime"]) == (LATER, cluster.stamp())


def test_what_a_user_changes_besides_does_not_wait() -> None:
    """The number of nodes, and all else, with the image that they have; and an image in a spec waits as well."""
    cluster = cluster_that_asks()
    begin(cluster, NEXT)
    cluster.edit("Compactor", "a", replicas=5)
    cluster.edit("Meta", "a", replicas=3, podTemplate={"metadata": {"labels": {"team": "x"}}})
    settle(cluster)
    assert cluster.get("Deployment", "a-compactor")["spec"]["replicas"] == 5
    assert cluster.get("Deployment", "a-meta")["spec"]["replicas"] == 3
    assert cluster.get("Deployment", "a-meta")["spec"]["template"]["metadata"]["labels"]["team"] == "x"
    assert images(cluster) == {FIRST}
    cluster.edit("Meta", "a", image=LATER)
    settle(cluster)
    assert image(cluster, "a-meta") == FIRST
    assert cluster.get("Meta", "a")["status"]["pendingImage"] == LATER


def test_the_first_image_needs_no_approval() -> None:
    cluster = cluster_that_asks()
    for kind, spec in (("StateStore", {"objectStore": {"managed": {}}, "tls": {"mode": "none"}}), ("Meta", {})):
        if kind == "StateStore":
            cluster.make(kind, "n", {**spec, "upgrade": {"mode": "Approve"}})
        else:
            cluster.make(kind, "n", {"storeRef": {"name": "n"}})
    settle(cluster)
    assert image(cluster, "n-meta") == FIRST


@pytest.mark.parametrize("edit", ["edited", "deleted"])
def test_a_client_cannot_bring_another_image_in_by_hand(edit: str) -> None:
    """An edited Deployment gets the image back, and a deleted one comes back with the approved one."""
    cluster = cluster_that_asks()
    begin(cluster, NEXT)
    body = cluster.get("Deployment", "a-meta")
    if edit == "deleted":
        cluster.remove("Deployment", "a-meta")
    else:
        pod = body["spec"]["template"]["spec"]
        containers = [{**pod["containers"][0], "image": LATER}, *pod["containers"][1:]]
        template = {**body["spec"]["template"], "spec": {**pod, "containers": containers}}
        cluster.put("Deployment", {**body, "spec": {**body["spec"], "template": template}})
    settle(cluster)
    assert image(cluster, "a-meta") == FIRST


def test_approved_images_take_their_turns() -> None:
    """Approvals of many stores at once do not roll all of them at once; one without an approval holds up nobody."""
    cluster = cluster_that_asks("abc")
    begin(cluster, NEXT)
    for name in "bc":
        approve(cluster, name, NEXT)
    cluster.look([Key("Meta", NAMESPACE, name) for name in "cba"])
    cluster.look([Key("Meta", NAMESPACE, name) for name in "cba"])
    assert [image(cluster, f"{name}-meta") for name in "abc"] == [FIRST, NEXT, FIRST]
    settle(cluster)
    settle(cluster)
    assert [image(cluster, f"{name}-meta") for name in "abc"] == [FIRST, NEXT, NEXT]


def test_mode_automatic_of_a_store_overrides_the_default() -> None:
    cluster = cluster_of("a", 1, meta_image="")
    cluster.edit("StateStore", "a", upgrade={"mode": "Automatic"})
    cluster.begin(DEFAULTS._replace(upgrade_mode="Approve"))
    begin(cluster, NEXT)
    assert images(cluster) == {NEXT}


def test_the_server_of_a_managed_object_store_waits_too() -> None:
    """Its restart stops the whole store for a moment."""
    store = store_with({"managed": {}}, upgrade={"mode": "Approve"})
    assert store.spec.object_store.managed is not None
    held = workload_in(minio_manifests(store, store.spec.object_store.managed, DEFAULTS, "7").manifests)
    assert approved_server(store, DEFAULTS, held) == (store, "")
    defaults = DEFAULTS._replace(minio_image="minio:next")
    kept, pending = approved_server(store, defaults, held)
    assert pending == "minio:next"
    assert kept.spec.object_store.managed is not None
    assert kept.spec.object_store.managed.image == DEFAULTS.minio_image
    assert approved_server(store, defaults, None) == (store, "")


def test_images_that_wait_are_told_once_each() -> None:
    """As the annotation takes them: with commas, in one order whatever order the parts have."""
    assert joined(["b", "a,b", "", "c"]) == joined(["c", "b,a"]) == "a,b,c"
    assert joined([]) == joined(["", ""]) == ""
