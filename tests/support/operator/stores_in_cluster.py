"""StateStores for tests: a manifest on a real bucket, and one whose nodes serve."""

from typing import Any

from support.buckets.minio import BUCKET, MinioServer
from support.operator.process import Body, Objects


def store_on(minio: MinioServer, objects: Objects, name: str) -> Body:
    """The manifest of a store; its secret is created."""
    keys = {"access-key-id": minio.user, "secret-access-key": minio.password}
    objects.apply({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": f"{name}-bucket"}, "stringData": keys})
    s3 = {"endpoint": minio.endpoint, "bucket": BUCKET, "prefix": f"{objects.namespace}/{name}", "allowHttp": True}
    return {
        "apiVersion": "tussock.dev/v1alpha1",
        "kind": "StateStore",
        "metadata": {"name": name},
        "spec": {
            "objectStore": {"s3": {**s3, "credentialsSecret": {"name": f"{name}-bucket"}}},
            "tls": {"mode": "none"},
            "meta": {"replicas": 2},
            "compactor": {},
        },
    }


def serving(objects: Objects, store: Body) -> str:
    """Create a store and let its nodes serve; returns its name."""
    name: str = store["metadata"]["name"]
    objects.apply(store)
    for workload in (f"{name}-meta", f"{name}-compactor"):
        objects.serve("Deployment", workload)
    objects.await_reason("StateStore", name, "Ready")
    return name


def unprobed_store(name: str, **spec: Any) -> Body:
    """A store whose bucket the operator does not look at, as only its pods have credentials."""
    s3 = {"bucket": "states", "region": "eu-central-1", "prefix": name, "serviceAccount": "buckets"}
    base = {"objectStore": {"s3": s3}, "tls": {"mode": "none"}, "meta": {"replicas": 2}, "compactor": {}}
    return {
        "apiVersion": "tussock.dev/v1alpha1",
        "kind": "StateStore",
        "metadata": {"name": name},
        "spec": {**base, **spec},
    }
