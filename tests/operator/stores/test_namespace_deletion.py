"""The deletion of a namespace deletes its stores at once, though what their clean-up needs goes first."""

from pathlib import Path

import pytest

from support.buckets.minio import MinioServer
from support.operator.process import Objects, OperatorProcess, eventually
from support.operator.stores_in_cluster import serving, store_on

pytestmark = pytest.mark.minio


def test_a_store_does_not_wait_for_credentials_that_are_gone_for_good(
    objects: Objects, minio: MinioServer, tmp_path: Path
) -> None:
    """Within its deadline it reports what stays in the bucket, and goes; a managed store has nothing to leave."""
    process = OperatorProcess(objects.kubeconfig, tmp_path, objects.namespace, lease=objects.namespace)
    process.start()
    own, far = store_on(minio, objects, "own"), store_on(minio, objects, "far")
    own["spec"] |= {"objectStore": {"managed": {}}, "deletionPolicy": "Retain"}
    far["spec"]["deletionPolicy"] = "Delete"
    for store in (own, far):
        store["spec"]["deletionDeadlineSeconds"] = 3600
    objects.apply(own)
    serving(objects, far)
    eventually("the cleaner's mark", lambda: (objects.get("StateStore", "own") or {})["metadata"].get("finalizers"))
    objects.delete_namespace()
    # What the controller of namespaces does, which does not run here, in the worst order.
    objects.delete("Secret", "far-bucket")
    for name in ("own", "far"):
        objects.delete("StateStore", name)
    for name in ("own", "far"):
        eventually(f"{name} gone", lambda name=name: objects.get("StateStore", name) is None)
    assert "The deletion ends without cleaning up: The secret of the bucket is gone" in process.log()
    assert process.stop() == 0
