"""A job's pods on a real node, by the manifests that the operator makes: Spark starts, scales, loses pods, stays exact.

The operator itself is no part of this: what it would write, the test writes, so each step is seen alone. The stream is
that of `examples/board`, whose every epoch can be compared with the truth.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from cluster.client import Cluster
from cluster.pods import pod
from e2e.test_node_and_images import META, platform, result_of  # noqa: F401 - a fixture is used by its name
from tussock.operator.manifests.compute import EXECUTORS_ANNOTATION, Job, compute_manifests
from tussock.operator.manifests.settings import Defaults
from tussock.operator.resources.compute import Compute, parse_compute
from tussock.operator.resources.store import parse_store

BOARD = Path(__file__).resolve().parents[2] / "examples" / "board"
KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL", "AWS_ALLOW_HTTP", "AWS_REGION")


class Board:
    """The job in a namespace, and what the test asks of it."""

    def __init__(self, cluster: Cluster, namespace: str, image: str) -> None:
        self._cluster, self._namespace, self._image = cluster, namespace, image

    def job(self, executors: int) -> tuple[Compute, Job]:
        meta = {"name": "board", "namespace": self._namespace, "uid": "none"}
        small = {"memory": "512Mi", "resources": {"requests": {"cpu": "100m"}, "limits": {"memory": "1200Mi"}}}
        spec: dict[str, Any] = {
            "storeRef": {"name": "s"},
            "application": {"configMap": {"name": "board", "key": "board_stream.py"}},
            "arguments": ["--rows-per-batch", "200", "--seconds", "0.5"],
            "sparkConf": {"spark.sql.shuffle.partitions": "2"},
            # Without the operator the meta service hands no credentials out here.
            "env": [{"name": key, "valueFrom": {"secretKeyRef": {"name": "bucket", "key": key}}} for key in KEYS],
            "driver": small,
            "executor": {"replicas": executors, **small},
        }
        compute = parse_compute({"metadata": meta, "spec": spec})
        where = {"s3": {"bucket": "tussock", "endpoint": "http://minio:9000", "allowHttp": True}}
        body = {"metadata": {**meta, "name": "s"}, "spec": {"objectStore": where, "tls": {"mode": "none"}}}
        address = META.removeprefix("tussock://")
        return compute, compute_manifests(compute, parse_store(body), [address], Defaults(spark_image=self._image))

    def apply(self, executors: int) -> None:
        """What the operator applies for this number of executors, but for the driver."""
        _, job = self.job(executors)
        for manifest in job.manifests:
            manifest["metadata"].pop("ownerReferences", None)  # the object is not there
        self._cluster.apply(*job.manifests, namespace=self._namespace)

    def start(self, executors: int) -> None:
        """What the operator does when there is no driver."""
        compute, job = self.job(executors)
        made = job.driver_pod(compute, "s", "board-driver", {})
        made["metadata"].pop("ownerReferences", None)
        self._cluster.apply(made, namespace=self._namespace)

    def scale(self, executors: int) -> None:
        """What the operator does when `executor.replicas` has changed."""
        self.apply(executors)
        words = ["annotate", "--overwrite", "pod/board-driver", f"{EXECUTORS_ANNOTATION}={executors}"]
        self._cluster.kubectl(*words, f"--namespace={self._namespace}")

    def status(self) -> dict[str, Any]:
        """What the driver says, through the API server's proxy."""
        path = f"/api/v1/namespaces/{self._namespace}/pods/board-driver:7372/proxy/status"
        found = json.loads(self._cluster.kubectl("get", "--raw", path))
        assert isinstance(found, dict)
        return found

    def executors(self) -> list[str]:
        """The pods of executors that have not ended."""
        found = self._cluster.list("pods", self._namespace, "tussock.dev/role=executor")
        return [pod["metadata"]["name"] for pod in found if pod["status"]["phase"] in ("Pending", "Running")]

    def await_executors(self, count: int) -> None:
        self._cluster.wait_for(f"{count} executors", lambda: self.status()["executors"] == count, 120)
        self._cluster.wait_for(f"{count} pods", lambda: len(self.executors()) == count, 120)

    def await_batches(self, more: int = 3) -> None:
        """Wait until so many more batches are in the store."""
        wanted = self.status()["committedBatch"] + more
        self._cluster.wait_for(f"batch {wanted}", lambda: self.status()["committedBatch"] >= wanted, 120)

    def kill(self, name: str) -> None:
        """As when its node is lost: nobody is asked, nothing is handed over."""
        force = ["--grace-period=0", "--force", "--wait=true"]
        self._cluster.kubectl("delete", f"pod/{name}", f"--namespace={self._namespace}", *force)

    def check(self, name: str, node_image: str) -> str:
        """The verdict of `board_truth.py` in a pod of its own."""
        env = [{"name": "TUSSOCK_STORE", "value": META}]
        checker = pod(
            name,
            node_image,
            command=["python", "-c", "import board_truth_json"],
            secrets=["bucket"],
            volumes={"/program": {"configMap": {"name": "board"}}},
        )
        [container] = checker["spec"]["containers"]
        container["env"] = [*container.get("env", []), *env, {"name": "PYTHONPATH", "value": "/program"}]
        self._cluster.apply(checker, namespace=self._namespace)
        return str(result_of(self._cluster, self._namespace, name))


CHECK = """
import json, os
from board_truth import differences
from tussock.statestore import connect

with connect(os.environ["TUSSOCK_STORE"]) as store:
    count, wrong = differences(store)
print(json.dumps({"events": count, "wrong": wrong}))
"""


@pytest.mark.spark
def test_a_stream_stays_exact_through_scaling_and_losses(
    cluster: Cluster,
    platform: str,  # noqa: F811
    image_names: dict[str, str],
) -> None:
    """One executor, two, one; an executor lost, the driver lost, the driver told to stop: no event missing or twice."""
    board = Board(cluster, platform, image_names["spark"])
    files = {path.name: path.read_text() for path in BOARD.glob("*.py")}
    made = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "board"}}
    cluster.apply({**made, "data": {**files, "board_truth_json.py": CHECK}}, namespace=platform)
    board.apply(1)
    with cluster.phase("driver: apply to ready"):
        board.start(1)
        cluster.wait_ready("pod/board-driver", namespace=platform, seconds=180)
    with cluster.phase("driver: ready to the first three batches"):
        board.await_batches()
    board.await_executors(1)
    with cluster.phase("executors: from 1 to 2"):
        board.scale(2)
        board.await_executors(2)
    board.await_batches()
    with cluster.phase("executors: from 2 to 1"):
        board.scale(1)
        board.await_executors(1)
    board.await_batches()
    with cluster.phase("executor killed: to three more batches"):
        [lost] = board.executors()
        board.kill(lost)
        board.await_batches()
    with cluster.phase("driver killed: to three more batches"):
        board.kill("board-driver")
        board.start(1)
        cluster.wait_ready("pod/board-driver", namespace=platform, seconds=180)
        board.await_batches()
    with cluster.phase("driver told to stop: to its end"):
        cluster.kubectl("delete", "pod/board-driver", f"--namespace={platform}", "--wait=true")
    cluster.wait_for("no executors", lambda: not board.executors(), 60)
    found = board.check("check", image_names["node"])
    print(found)
    assert "'wrong': []" in found
