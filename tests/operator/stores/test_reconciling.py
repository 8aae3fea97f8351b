"""The operator keeps children as they should be, against a real API server.

No kubelet runs there, so the tests write what a cluster's own controllers would report of workloads and pods, through
the API's status subresource.
"""

import time
from pathlib import Path
from typing import Any

import pytest

from support.buckets.minio import MinioServer
from support.operator.process import PUT_RIGHT_SECONDS, Body, Objects, OperatorProcess, eventually
from support.operator.stores_in_cluster import serving, store_on

pytestmark = [pytest.mark.minio, pytest.mark.usefixtures("operator")]


def test_a_store_gets_its_children_in_order(store: Body, shared: Objects) -> None:
    """Bucket, then meta nodes, then compactors: each waits for the one before, and says so."""
    name = store["metadata"]["name"]
    shared.apply(store)
    eventually("the meta nodes", lambda: shared.get("Deployment", f"{name}-meta"))
    assert shared.await_reason("Compactor", name, "WaitingForMeta")["status"] == "False"
    assert shared.get("Deployment", f"{name}-compactor") is None
    assert shared.await_reason("Meta", name, "RollingOut")["message"].startswith("0 of 2 meta nodes serve")
    shared.serve("Deployment", f"{name}-meta")
    shared.serve("Deployment", f"{name}-compactor")
    assert shared.await_reason("StateStore", name, "Ready")["status"] == "True"
    body = shared.get("StateStore", name)
    assert body is not None
    assert body["status"]["observedGeneration"] == body["metadata"]["generation"]
    assert body["status"]["endpoint"] == f"tussock://{name}-meta.{shared.namespace}.svc:7370"
    assert body["status"]["meta"] == {"replicas": 2, "readyReplicas": 2}
    assert shared.condition("StateStore", name, "Degraded")["status"] == "False"
    for kind in ("Service", "ConfigMap", "ServiceAccount", "PodDisruptionBudget", "NetworkPolicy"):
        child = shared.get(kind, f"{name}-meta")
        assert child is not None
        assert child["metadata"]["ownerReferences"][0]["controller"] is True


def edit_replicas(shared: Objects, name: str) -> None:
    shared.patch("Deployment", f"{name}-meta", {"spec": {"replicas": 5}})


def edit_image(shared: Objects, name: str) -> None:
    child = shared.get("Deployment", f"{name}-meta")
    assert child is not None
    containers = child["spec"]["template"]["spec"]["containers"]
    containers[0]["image"] = "somewhere/else:1"
    shared.patch("Deployment", f"{name}-meta", {"spec": {"template": {"spec": {"containers": containers}}}})


def remove_labels(shared: Objects, name: str) -> None:
    """Remove Tussock's labels, whereupon the watch reports a deletion."""
    label = {"app.kubernetes.io/managed-by": None}
    shared.patch("Deployment", f"{name}-meta", {"metadata": {"labels": label}})


@pytest.mark.parametrize("edit", [edit_replicas, edit_image, remove_labels])
def test_an_edited_child_is_put_right(edit: Any, store: Body, shared: Objects) -> None:
    """Within seconds, with one event; fields of other managers stay."""
    name = serving(shared, store)
    before = shared.patch("Deployment", f"{name}-meta", {"metadata": {"labels": {"team": "blue"}}})
    edit(shared, name)

    def is_right() -> bool:
        child = shared.get("Deployment", f"{name}-meta")
        assert child is not None
        labels = child["metadata"]["labels"] == before["metadata"]["labels"]
        return labels and child["spec"] == before["spec"]

    eventually("the child as it was", is_right, PUT_RIGHT_SECONDS)
    eventually("the event", lambda: "ChildRestored" in [event["reason"] for event in shared.events(name)])
    assert [event["reason"] for event in shared.events(name)].count("ChildRestored") == 1


@pytest.mark.parametrize("kind", ["Deployment", "Service", "ConfigMap", "ServiceAccount", "PodDisruptionBudget"])
def test_a_deleted_child_is_back(kind: str, store: Body, shared: Objects) -> None:
    name = serving(shared, store)
    before = shared.get(kind, f"{name}-meta")
    shared.delete(kind, f"{name}-meta")

    def is_back() -> bool:
        child = shared.get(kind, f"{name}-meta")
        return child is not None and before is not None and child["metadata"]["uid"] != before["metadata"]["uid"]

    eventually(f"{kind} again", is_back, PUT_RIGHT_SECONDS)


def test_nothing_is_written_when_nothing_differs(objects: Objects, minio: MinioServer, tmp_path: Path) -> None:
    """Passes are made, since foreign annotations wake the operator, and the audit log has none of its writes.

    The operator watches this namespace only, so each pass is one over this store, and each write one for it. One child
    has lost its labels and got them back, which its watch reports as a deletion and a creation.
    """
    process = OperatorProcess(objects.kubeconfig, tmp_path, objects.namespace, lease=objects.namespace)
    process.start()
    name = serving(objects, store_on(minio, objects, "s"))
    remove_labels(objects, name)
    eventually("the labels again", lambda: "app.kubernetes.io/managed-by" in _labels(objects, f"{name}-meta"))
    await_calm(objects)
    writes = len(objects.writes())

    def wake(kind: str, child: str, value: str) -> None:
        passes = process.metric("tussock_operator_reconcile_seconds_count")
        objects.patch(kind, child, {"metadata": {"annotations": {"somebody": value}}})
        eventually("a pass", lambda: process.metric("tussock_operator_reconcile_seconds_count") > passes)

    for number in range(3):
        wake("StateStore", name, str(number))
        wake("Service", f"{name}-meta", str(number))
    assert [line["requestURI"] for line in objects.writes()[writes:]] == []
    assert process.stop() == 0


def _labels(objects: Objects, deployment: str) -> Body:
    return (objects.get("Deployment", deployment) or {})["metadata"]["labels"]


def await_calm(objects: Objects) -> None:
    """Wait until nothing has been written for three seconds: the last probe has returned."""
    writes, since = -1, time.monotonic()

    def is_calm() -> bool:
        nonlocal writes, since
        if len(objects.writes()) != writes:
            writes, since = len(objects.writes()), time.monotonic()
        return time.monotonic() - since > 3

    eventually("no more writes", is_calm)


def test_compactors_are_scaled_by_their_own_object(store: Body, shared: Objects) -> None:
    """A store whose section has no replicas leaves them to `kubectl scale` and autoscalers."""
    name = serving(shared, store)
    shared.patch("Compactor", name, {"spec": {"replicas": 3}}, "scale")

    def replicas() -> bool:
        child = shared.get("Deployment", f"{name}-compactor")
        return child is not None and child["spec"]["replicas"] == 3

    eventually("three compactors", replicas, PUT_RIGHT_SECONDS)
    shared.serve("Deployment", f"{name}-compactor")
    scale = eventually("the scale's status", lambda: _scale(shared, name))
    assert scale["selector"]
    time.sleep(1)
    assert replicas()


def _scale(shared: Objects, name: str) -> Body | None:
    body = shared.get("Compactor", name)
    status = (body or {}).get("status", {})
    return status if status.get("replicas") == 3 else None


def test_a_new_image_reaches_compactors_after_meta_nodes(store: Body, shared: Objects) -> None:
    """While the meta nodes roll, the compactors keep the old one."""
    name = serving(shared, store)
    store["spec"]["images"] = {"node": "localhost/tussock-node:2"}
    shared.apply(store)
    eventually("a new image of the meta nodes", lambda: _image(shared, f"{name}-meta") == "localhost/tussock-node:2")
    shared.await_reason("Compactor", name, "WaitingForMeta")
    time.sleep(1)
    assert _image(shared, f"{name}-compactor") == "localhost/tussock-node:test"
    shared.serve("Deployment", f"{name}-meta")
    eventually("and then of compactors", lambda: _image(shared, f"{name}-compactor") == "localhost/tussock-node:2")


def _image(shared: Objects, name: str) -> str:
    child = shared.get("Deployment", name)
    assert child is not None
    return str(child["spec"]["template"]["spec"]["containers"][0]["image"])


def test_a_paused_store_is_left_alone(store: Body, shared: Objects) -> None:
    """Manual edits stay until the pause ends."""
    name = serving(shared, store)
    store["spec"]["paused"] = True
    shared.apply(store)
    shared.await_reason("Meta", name, "Paused")
    edit_replicas(shared, name)
    shared.delete("Service", f"{name}-meta")
    time.sleep(2)
    child = shared.get("Deployment", f"{name}-meta")
    assert child is not None
    assert child["spec"]["replicas"] == 5
    assert shared.get("Service", f"{name}-meta") is None
    store["spec"]["paused"] = False
    shared.apply(store)
    eventually("the Service again", lambda: shared.get("Service", f"{name}-meta"), PUT_RIGHT_SECONDS)
    eventually("two again", lambda: _replicas(shared, f"{name}-meta") == 2, PUT_RIGHT_SECONDS)


def _replicas(shared: Objects, name: str) -> int:
    child = shared.get("Deployment", name)
    assert child is not None
    return int(child["spec"]["replicas"])


def test_removing_a_section_deletes_its_component(store: Body, shared: Objects) -> None:
    name = serving(shared, store)
    del store["spec"]["compactor"]
    shared.apply(store)
    eventually("no Compactor", lambda: shared.get("Compactor", name) is None)


def test_pods_get_an_annotation_for_a_new_secret(store: Body, shared: Objects) -> None:
    """The annotation changes with the secret, within seconds, and holds none of its values."""
    name = serving(shared, store)
    pod = make_pod(shared, name, f"{name}-meta-1")
    eventually("a stamp", lambda: _stamp(shared, pod))
    first = _stamp(shared, pod)
    shared.patch("Secret", f"{name}-bucket", {"metadata": {"annotations": {"rotated": "1"}}})
    eventually("another stamp", lambda: _stamp(shared, pod) != first, PUT_RIGHT_SECONDS)


def _stamp(shared: Objects, pod: str) -> str:
    body = shared.get("Pod", pod)
    assert body is not None
    return str((body["metadata"].get("annotations") or {}).get("tussock.dev/secrets-seen", ""))


def make_pod(shared: Objects, owner: str, name: str) -> str:
    """Make a pod from the template of the meta nodes as a ReplicaSet would; no kubelet runs it."""
    template = (shared.get("Deployment", f"{owner}-meta") or {})["spec"]["template"]
    shared.apply(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "labels": template["metadata"]["labels"]},
            "spec": {"containers": [{"name": "meta", "image": "localhost/tussock-node:test"}]},
        }
    )
    return name


def test_a_bad_image_stops_the_rollout_and_is_reported(store: Body, shared: Objects) -> None:
    """`Degraded` names image and pod; the old pods serve, so `Ready` stays; a good image heals it."""
    name = serving(shared, store)
    store["spec"]["images"] = {"node": "nowhere/node:9"}
    shared.apply(store)
    eventually("the bad image", lambda: _image(shared, f"{name}-meta") == "nowhere/node:9")
    make_pod(shared, name, f"{name}-meta-bad")
    waiting = {"reason": "ImagePullBackOff", "message": 'Back-off pulling image "nowhere/node:9"'}
    container = {"name": "meta", "image": "nowhere/node:9", "imageID": "", "ready": False, "restartCount": 0}
    status = {"containerStatuses": [{**container, "state": {"waiting": waiting}}]}
    shared.patch("Pod", f"{name}-meta-bad", {"status": status}, "status")
    found = shared.await_reason("Meta", name, "ImagePullFailed")
    assert found["status"] == "True"
    assert "nowhere/node:9" in found["message"]
    assert f"{name}-meta-bad" in found["message"]
    assert shared.condition("Meta", name, "Degraded")["status"] == "True"
    assert shared.await_reason("StateStore", name, "ImagePullFailed")["status"] == "True"
    store["spec"]["images"] = {}
    shared.apply(store)
    shared.delete("Pod", f"{name}-meta-bad")
    eventually("the good image", lambda: _image(shared, f"{name}-meta") == "localhost/tussock-node:test")
    shared.serve("Deployment", f"{name}-meta")
    shared.await_reason("StateStore", name, "Ready")
