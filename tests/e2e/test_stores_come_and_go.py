"""A store's begin and end as users see them: obstacles and their messages, backups, restores, deletion.

All stores are in one bucket of a separate MinIO. No stream runs here; rows come from a small client.
"""

from collections.abc import Iterator

import pytest

from cluster.view.client import Cluster
from support.kubernetes.boards import QUICK_START
from support.kubernetes.bucket_users import Bucket, bucket_in
from support.kubernetes.users import resource

WRONG = "a-password-that-nobody-may-see"


@pytest.fixture(scope="module")
def bucket(cluster: Cluster, operator: str, image_names: dict[str, str]) -> Iterator[Bucket]:
    """A namespace with a MinIO and its bucket."""
    with cluster.namespace("stores") as namespace, bucket_in(cluster, namespace, image_names) as found:
        yield found


@pytest.mark.spark
def test_obstacles_say_what_to_do(cluster: Cluster, bucket: Bucket) -> None:
    """Secret, bucket and room: each has its reason and a message that names the object, and heals by itself."""
    much = {"requests": {"cpu": "1000"}}
    job = resource(
        "Compute",
        "waits",
        storeRef={"name": "late"},
        application={"configMap": {"name": "waits", "key": "job.py"}},
        checkpoint={"emptyDir": {}},
        sparkConf={"spark.driver.extraJavaOptions": QUICK_START},
        driver={"memory": "512Mi", "resources": {"requests": {"cpu": "100m"}}},
        executor={"replicas": 1, "memory": "512Mi", "resources": much},
    )
    program = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "waits"}, "data": {"job.py": ENDLESS}}
    with cluster.phase("obstacles: each to its message"):
        cluster.apply(
            bucket.store("late", keys="not-yet"),
            bucket.store("lost", bucket="no-such-bucket"),
            bucket.store("large", meta={"resources": much}),
            program,
            job,
            namespace=bucket.namespace,
        )
        bucket.await_reason("tss/late", "SecretNotFound", "Secret not-yet", "access-key-id", status="False")
        bucket.await_reason("tss/lost", "BucketNotFound", "no-such-bucket", bucket.server.endpoint, status="False")
        bucket.await_reason("tsx/waits", "WaitingForStore", "Secret not-yet", status="False")
        cluster.apply(bucket.keys("not-yet", WRONG), namespace=bucket.namespace)
        bucket.await_reason("tss/late", "BucketAccessDenied", "the secret access key is wrong", status="False")
        assert not bucket.cluster.get("tsm", "late", bucket.namespace)
        cluster.apply(bucket.keys("not-yet"), namespace=bucket.namespace)
        bucket.await_reason("tss/late", "Ready", status="True")
    with cluster.phase("obstacles: meta nodes and executors that no node takes"):
        for what in ("tsm/large", "tss/large"):
            bucket.await_reason(what, "Unschedulable", "Pod large-meta-", "Insufficient cpu", status="False")
        bucket.await_reason("tsx/waits", "Unschedulable", "Pod waits-", "-exec-1", "Insufficient cpu", status="False")
    said = bucket.kubectl("tussock", "status")
    for store, reason in (("late", "Ready"), ("lost", "BucketNotFound"), ("large", "Unschedulable")):
        assert [line for line in said.splitlines() if line.split()[:4:3] == ["StateStore", reason] and store in line]
    assert WRONG not in said + bucket.kubectl("get", "tss,events", "--output=yaml")
    # A driver that is told to stop waits for its batch, which here never ends.
    bucket.kubectl("delete", "tsx/waits", "--wait=false")
    with cluster.phase("obstacles: room made for the meta node"):
        bucket.patch("tss/large", meta={"resources": None})
        bucket.await_reason("tss/large", "Ready", status="True")


ENDLESS = """
import os
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
stream = spark.readStream.format("rate").load().writeStream.format("noop")
stream.option("checkpointLocation", os.environ["TUSSOCK_CHECKPOINT"]).start().awaitTermination()
"""


def test_a_backup_outlives_its_store(cluster: Cluster, bucket: Bucket) -> None:
    """Backup, more rows, a deletion that retains the data, restore: the backup's rows. Then a deletion of the data."""
    with cluster.phase("backup: store with rows, and its backup"):
        cluster.apply(bucket.store("first", compactor={}), namespace=bucket.namespace)
        bucket.await_reason("tss/first", "Ready", status="True")
        kept = bucket.rows("first", to=3)
        said = bucket.kubectl("tussock", "backup", "first", "monday", "--comment=before more rows")
        made = bucket.get("tsb/monday")["status"]
        assert said == f"Backup {made['backupName']} of first holds epoch {made['epoch']}.\n"
        assert bucket.rows("first", to=5) != kept
        assert made["backupName"] in bucket.kubectl("tussock", "epochs", "first")
    log = bucket.kubectl("tussock", "logs", "first", "--component=meta", "--tail=-1")
    assert '"leading"' in log
    with cluster.phase("backup: store deleted with its data retained"):
        before = bucket.objects(put="nobody/s first-of-another/sst/x")
        bucket.kubectl("delete", "tsb/monday", "tss/first", "--timeout=120s", seconds=150)
    after = bucket.objects()
    assert {name for name in before if not name.startswith(("first/leader", "first/tussock-owner"))} <= after
    assert "first/tussock-owner" in before - after
    with cluster.phase("backup: restored into a new store"):
        source = bucket.store("first")["spec"]["objectStore"]
        cluster.apply(
            bucket.store(
                "second",
                restoreFrom={"backupName": made["backupName"], "objectStore": source},
                deletionPolicy="Delete",
            ),
            namespace=bucket.namespace,
        )
        bucket.await_reason("tss/second", "Ready", status="True")
        assert bucket.get("tss/second")["status"]["restoredFrom"] == made["backupName"]
    assert bucket.rows("second") == kept
    assert any(name.startswith("second/sst/") for name in bucket.objects())
    with cluster.phase("backup: store deleted with its data"):
        bucket.kubectl("delete", "tss/second", "--timeout=120s", seconds=150)
    assert bucket.objects() == after
