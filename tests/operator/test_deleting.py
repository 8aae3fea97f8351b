"""A store that is deleted goes in order, leaves what is to stay, and never hangs."""

import io

import pytest
from minio import Minio

from support.minio import BUCKET, MinioServer, free_port
from support.operators import Body, Objects, eventually
from support.stores_in_cluster import serving

pytestmark = [pytest.mark.minio, pytest.mark.usefixtures("operator")]


def client_of(minio: MinioServer) -> Minio:
    return Minio(minio.endpoint.removeprefix("http://"), access_key=minio.user, secret_key=minio.password, secure=False)


def fill(minio: MinioServer, *names: str) -> None:
    for name in names:
        client_of(minio).put_object(BUCKET, name, io.BytesIO(b"x"), 1)


def names_in(minio: MinioServer, prefix: str) -> set[str]:
    found = client_of(minio).list_objects(BUCKET, prefix=prefix, recursive=True)
    return {str(entry.object_name).removeprefix(prefix) for entry in found}


@pytest.mark.parametrize(
    ("policy", "left"),
    [
        ("Retain", {"log/1.delta", "sst/a.data", "leader/1", "other/tussock-owner", "other/log/1.delta"}),
        ("Delete", {"other/tussock-owner", "other/log/1.delta"}),
    ],
)
def test_data_stay_or_go_by_policy(
    policy: str, left: set[str], store: Body, shared: Objects, minio: MinioServer
) -> None:
    """The marker goes in both cases, so that another store may have the prefix; what is no store's stays."""
    store["spec"]["deletionPolicy"] = policy
    name = serving(shared, store)
    prefix = f"shared/{name}/"
    wanted = ["log/1.delta", "sst/a.data", "leader/1", "other/tussock-owner", "other/log/1.delta"]
    fill(minio, *(prefix + path for path in wanted), f"shared/{name}x/log/1.delta")
    assert "tussock-owner" in names_in(minio, prefix)
    shared.delete("StateStore", name)
    eventually("the store gone", lambda: shared.get("StateStore", name) is None)
    assert names_in(minio, prefix) == left
    assert names_in(minio, f"shared/{name}x/") == {"log/1.delta"}
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


def make_pod(shared: Objects, name: str, labels: dict[str, str]) -> None:
    container = {"name": "c", "image": "localhost/none"}
    shared.apply(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "labels": labels},
            "spec": {"containers": [container], "terminationGracePeriodSeconds": 0},
        }
    )


def test_a_bucket_that_is_gone_does_not_keep_a_store(store: Body, shared: Objects) -> None:
    """After the deadline the store goes, and an event tells what was left."""
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
