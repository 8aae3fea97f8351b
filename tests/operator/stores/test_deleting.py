"""A deleted store is taken down in order, leaves what is to stay, and never hangs."""

import io
import json
from collections.abc import Sequence

import pytest

from support.buckets.contents import client_of, fill, names_in
from support.buckets.minio import BUCKET, MinioServer, free_port
from support.operator.process import Body, Objects, eventually
from support.operator.stores_in_cluster import serving

pytestmark = [pytest.mark.minio, pytest.mark.usefixtures("operator")]


ENTRY = f"log/{1:020d}.delta"
STORE = {ENTRY, f"sst/{'a' * 32}.data", f"leader/{1:020d}"}


def marker_in(minio: MinioServer, prefix: str) -> str:
    """The uid in the marker below a prefix; empty without a marker."""
    if "tussock-owner" not in names_in(minio, prefix):
        return ""
    return str(json.loads(client_of(minio).get_object(BUCKET, f"{prefix}tussock-owner").read())["uid"])


@pytest.mark.parametrize(
    ("policy", "left"),
    [
        ("Retain", {*STORE, "other/tussock-owner", f"other/{ENTRY}", "tmp/mine"}),
        ("Delete", {"other/tussock-owner", f"other/{ENTRY}", "tmp/mine"}),
    ],
)
def test_data_stay_or_go_by_policy(
    policy: str, left: set[str], store: Body, shared: Objects, minio: MinioServer
) -> None:
    """The marker goes in both cases, so that another store may have the prefix; foreign objects stay."""
    store["spec"]["deletionPolicy"] = policy
    name = serving(shared, store)
    prefix = f"shared/{name}/"
    wanted = [*STORE, "other/tussock-owner", f"other/{ENTRY}", "tmp/mine"]
    fill(minio, *(prefix + path for path in wanted), f"shared/{name}x/{ENTRY}")
    assert "tussock-owner" in names_in(minio, prefix)
    shared.delete("StateStore", name)
    eventually("the store gone", lambda: shared.get("StateStore", name) is None)
    assert names_in(minio, prefix) == left
    assert names_in(minio, f"shared/{name}x/") == {ENTRY}
    assert shared.get("Meta", name) is None
    assert shared.get("Compactor", name) is None


def test_jobs_drain_before_meta_nodes_go(store: Body, shared: Objects) -> None:
    """While a pod of a job runs, the meta nodes stay, since the job commits its last epoch with them."""
    name = serving(shared, store)
    labels = {
        "app.kubernetes.io/managed-by": "tussock-operator",
        "app.kubernetes.io/component": "compute",
        "tussock.dev/store": name,
    }
    for pod, component in (("driver", "compute"), ("meta", "meta")):
        make_pod(shared, f"{name}-{pod}", {**labels, "app.kubernetes.io/component": component})
    eventually("pods seen", lambda: shared.get("Pod", f"{name}-meta"))
    shared.delete("StateStore", name)
    found = shared.await_reason("StateStore", name, "Draining")
    assert f"{name}-driver" in found["message"]
    assert shared.get("Meta", name) is not None
    shared.delete("Pod", f"{name}-driver")
    found = shared.await_reason("StateStore", name, "Deleting")
    eventually("no Meta", lambda: shared.get("Meta", name) is None)
    eventually("who is waited for", lambda: f"{name}-meta" in shared.ready("StateStore", name)["message"])
    shared.delete("Pod", f"{name}-meta")
    eventually("the store gone", lambda: shared.get("StateStore", name) is None)


def make_pod(shared: Objects, name: str, labels: dict[str, str], finalizers: Sequence[str] = ()) -> None:
    container = {"name": "c", "image": "localhost/none"}
    shared.apply(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "labels": labels, "finalizers": list(finalizers)},
            "spec": {"containers": [container], "terminationGracePeriodSeconds": 0},
        }
    )


def test_a_missing_bucket_does_not_block_the_deletion_of_a_store(store: Body, shared: Objects) -> None:
    """The store goes after the deadline, and an event says what was left."""
    name = serving(shared, store)
    # As if the bucket's server had been taken away; the field cannot be changed on a store that lives.
    store["spec"]["deletionDeadlineSeconds"] = 10
    shared.apply(store)
    shared.delete("Secret", f"{name}-bucket")
    shared.delete("StateStore", name)
    eventually("a word about the secret", lambda: "secret" in shared.ready("StateStore", name).get("message", ""))
    eventually("the store gone", lambda: shared.get("StateStore", name) is None)
    eventually("its event", lambda: "DeletionGaveUp" in [event["reason"] for event in shared.events(name)])
    event = next(event for event in shared.events(name) if event["reason"] == "DeletionGaveUp")
    assert event["type"] == "Warning"
    assert "10 s" in event["note"]


def test_a_store_that_never_found_its_bucket_can_be_deleted(store: Body, shared: Objects) -> None:
    name = store["metadata"]["name"]
    store["spec"]["objectStore"]["s3"]["endpoint"] = f"http://127.0.0.1:{free_port()}"
    store["spec"]["deletionDeadlineSeconds"] = 10
    shared.apply(store)
    shared.await_reason("StateStore", name, "BucketUnreachable")
    shared.delete("StateStore", name)
    eventually("the store gone", lambda: shared.get("StateStore", name) is None)


def with_identity(store: Body) -> Body:
    """The bucket of a store whose nodes have a workload identity, and the operator none."""
    s3 = {field: value for field, value in store["spec"]["objectStore"]["s3"].items() if field != "credentialsSecret"}
    return {"s3": {**s3, "serviceAccount": "nodes"}}


@pytest.mark.parametrize("first_has_secret", [True, False])
def test_the_deletion_of_a_refused_store_touches_nothing(
    first_has_secret: bool, store: Body, shared: Objects, minio: MinioServer
) -> None:
    """Of two stores on one prefix the second is refused, and its user deletes it as the message advises.

    The first store has no marker: its operator was never given credentials, or a user has just removed the marker.
    """
    name, prefix = store["metadata"]["name"], f"shared/{store['metadata']['name']}/"
    second = {**store, "metadata": {"name": f"{name}-b"}, "spec": {**store["spec"], "deletionPolicy": "Delete"}}
    if not first_has_secret:
        store = {**store, "spec": {**store["spec"], "objectStore": with_identity(store)}}
    serving(shared, store)
    fill(minio, *(prefix + path for path in STORE))
    shared.apply(second)
    refusal = shared.await_reason("StateStore", f"{name}-b", "PrefixInUse")["message"]
    assert "Delete this StateStore" not in refusal
    client_of(minio).remove_object(BUCKET, f"{prefix}tussock-owner")
    shared.delete("StateStore", f"{name}-b")
    eventually("the second store gone", lambda: shared.get("StateStore", f"{name}-b") is None)
    assert names_in(minio, prefix) >= STORE
    note = next(event["note"] for event in shared.events(f"{name}-b") if event["reason"] == "DeletionGaveUp")
    assert f"belongs to StateStore {shared.namespace}/{name}, and the operator changed nothing" in note


@pytest.mark.parametrize("policy", ["Retain", "Delete"])
def test_a_refused_store_gives_its_own_marker_back(
    policy: str, store: Body, shared: Objects, minio: MinioServer
) -> None:
    """As one that lost a race has: its bucket answered, and the store within its prefix was faster.

    Story: the marker stayed, and the next store of that prefix was refused for one that was gone.
    """
    name, prefix = store["metadata"]["name"], f"shared/{store['metadata']['name']}/"
    s3 = store["spec"]["objectStore"]["s3"]
    inner = {**store, "spec": {**store["spec"], "objectStore": {"s3": {**s3, "prefix": f"{prefix}inner"}}}}
    serving(shared, inner)
    outer = {**store, "metadata": {"name": f"{name}-b"}, "spec": {**store["spec"], "deletionPolicy": policy}}
    uid = shared.apply(outer)["metadata"]["uid"]
    shared.await_reason("StateStore", f"{name}-b", "PrefixInUse")
    marker = json.dumps({"uid": uid, "namespace": shared.namespace, "name": f"{name}-b", "found": "nothing"}).encode()
    client_of(minio).put_object(BUCKET, f"{prefix}tussock-owner", io.BytesIO(marker), len(marker))
    fill(minio, *(prefix + path for path in STORE))
    shared.delete("StateStore", f"{name}-b")
    eventually("the refused store gone", lambda: shared.get("StateStore", f"{name}-b") is None)
    assert names_in(minio, prefix) == {"inner/tussock-owner", *STORE}


def test_a_refused_store_without_a_key_goes_at_once(store: Body, shared: Objects) -> None:
    """It cannot look for its marker, and has none."""
    name = serving(shared, store)
    second = {**store, "metadata": {"name": f"{name}-b"}, "spec": {**store["spec"]}}
    s3 = store["spec"]["objectStore"]["s3"]
    second["spec"]["objectStore"] = {"s3": {**s3, "credentialsSecret": {"name": f"{name}-none"}}}
    shared.apply(second)
    shared.await_reason("StateStore", f"{name}-b", "PrefixInUse")
    shared.delete("StateStore", f"{name}-b")
    eventually("the second store gone", lambda: shared.get("StateStore", f"{name}-b") is None, 30)


def test_a_deleted_store_without_a_marker_reports_what_it_leaves(
    store: Body, shared: Objects, minio: MinioServer
) -> None:
    """The operator has no credentials, and cannot prove whose the objects are."""
    store["spec"] |= {"objectStore": with_identity(store), "deletionPolicy": "Delete"}
    name = serving(shared, store)
    fill(minio, *(f"shared/{name}/{path}" for path in STORE))
    shared.delete("StateStore", name)
    eventually("the store gone", lambda: shared.get("StateStore", name) is None)
    assert names_in(minio, f"shared/{name}/") == STORE
    note = next(event["note"] for event in shared.events(name) if event["reason"] == "DeletionGaveUp")
    assert "no marker that shows which store its objects belong to. They stay" in note


def test_backups_keep_the_data_of_a_store(store: Body, shared: Objects, minio: MinioServer) -> None:
    """With `Delete`, an event says so and names them."""
    store["spec"]["deletionPolicy"] = "Delete"
    name = serving(shared, store)
    held = {*STORE, f"backup/nightly.{'b' * 32}"}
    fill(minio, *(f"shared/{name}/{path}" for path in held))
    shared.delete("StateStore", name)
    eventually("the store gone", lambda: shared.get("StateStore", name) is None)
    assert names_in(minio, f"shared/{name}/") == held
    note = next(event["note"] for event in shared.events(name) if event["reason"] == "DeletionGaveUp")
    assert "backups in it or clones of it need them (nightly)" in note


@pytest.mark.parametrize("policy", ["Retain", "Delete"])
def test_a_pod_on_a_lost_node_does_not_block_the_clean_up(
    policy: str, store: Body, shared: Objects, minio: MinioServer
) -> None:
    """The pod never ends. The bucket is cleaned up, the event names the pod, and the store can be made again."""
    store["spec"] |= {"deletionPolicy": policy, "deletionDeadlineSeconds": 10}
    name = serving(shared, store)
    fill(minio, *(f"shared/{name}/{path}" for path in STORE))
    labels = {"app.kubernetes.io/managed-by": "tussock-operator", "tussock.dev/store": name}
    make_pod(shared, f"{name}-lost", {**labels, "app.kubernetes.io/component": "meta"}, finalizers=["test/lost-node"])
    eventually("the pod", lambda: shared.get("Pod", f"{name}-lost"))
    shared.delete("StateStore", name)
    eventually("who is waited for", lambda: f"{name}-lost" in shared.ready("StateStore", name)["message"])
    shared.delete("Pod", f"{name}-lost")
    eventually("the store gone", lambda: shared.get("StateStore", name) is None)
    assert names_in(minio, f"shared/{name}/") == (STORE if policy == "Retain" else set())
    note = next(event["note"] for event in shared.events(name) if event["reason"] == "DeletionGaveUp")
    assert f"Pods have not ended: {name}-lost" in note
    assert "without cleaning up" not in note
    uid = shared.apply(store)["metadata"]["uid"]
    eventually("the next one's marker", lambda: marker_in(minio, f"shared/{name}/") == uid)
    shared.patch("Pod", f"{name}-lost", {"metadata": {"finalizers": None}})
