"""A job's pods on a real node, by the manifests that the operator makes: Spark starts, scales, loses pods, stays exact.

The operator itself is no part of this: what it would write, the test writes, so each step is seen alone. The store is
on a volume. The stream is that of `examples/board`, whose every epoch can be compared with the truth.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster.client import Cluster
from cluster.pods import claim, pod, service
from tussock.operator.manifests.compute import EXECUTORS_ANNOTATION, Job, compute_manifests
from tussock.operator.manifests.settings import Defaults
from tussock.operator.resources.compute import Compute, parse_compute
from tussock.operator.resources.store import parse_store

BOARD = Path(__file__).resolve().parents[2] / "examples" / "board"
META = "meta:7370"
SECONDS = 300
"""Spark takes ten times as long on a machine that is busy with other things."""
STORE = "/var/lib/tussock/store"
VOLUME = {"persistentVolumeClaim": {"claimName": "store"}}


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
            "driver": small,
            "executor": {"replicas": executors, **small},
        }
        compute = parse_compute({"metadata": meta, "spec": spec})
        where = {"volume": {"claimName": "store"}}
        body = {"metadata": {**meta, "name": "s"}, "spec": {"objectStore": where, "tls": {"mode": "none"}}}
        return compute, compute_manifests(compute, parse_store(body), [META], Defaults(spark_image=self._image))

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
        self._cluster.wait_for(f"{count} executors", lambda: self.status()["executors"] == count, SECONDS)
        self._cluster.wait_for(f"{count} pods", lambda: len(self.executors()) == count, SECONDS)

    def await_batches(self, more: int = 3) -> None:
        """Wait until so many more batches are in the store."""
        wanted = self.status()["committedBatch"] + more
        self._cluster.wait_for(f"batch {wanted}", lambda: self.status()["committedBatch"] >= wanted, SECONDS)

    def kill(self, name: str) -> None:
        """As when its node is lost: nobody is asked, nothing is handed over."""
        force = ["--grace-period=0", "--force", "--wait=true"]
        self._cluster.kubectl("delete", f"pod/{name}", f"--namespace={self._namespace}", *force)

    def check(self, name: str, node_image: str) -> dict[str, Any]:
        """The verdict of `board_truth.py` in a pod of its own: `events`, and what is `wrong`."""
        checker = pod(
            name,
            node_image,
            command=["python", "-c", CHECK],
            environment={"TUSSOCK_STORE": f"tussock://{META}", "PYTHONPATH": "/program"},
            volumes={
                "/program": {"configMap": {"name": "board"}},
                STORE: {"persistentVolumeClaim": {"claimName": "store"}},
            },
        )
        self._cluster.apply(checker, namespace=self._namespace)

        def ended() -> str | None:
            found = self._cluster.get("pod", name, self._namespace)
            phase = found["status"]["phase"] if found else None
            return phase if phase in ("Succeeded", "Failed") else None

        phase = self._cluster.wait_for(f"end of pod {name}", ended, 120)
        log = self._cluster.kubectl("logs", name, f"--namespace={self._namespace}")
        assert phase == "Succeeded", log
        verdict = json.loads(log.strip().splitlines()[-1])
        assert isinstance(verdict, dict)
        return verdict


CHECK = """
import json, os
from board_truth import differences
from tussock.statestore import connect

with connect(os.environ["TUSSOCK_STORE"]) as store:
    count, wrong = differences(store)
print(json.dumps({"events": count, "wrong": wrong}))
"""


@pytest.fixture
def namespace(cluster: Cluster, image_names: dict[str, str]) -> Iterator[str]:
    """A namespace with a store on a volume, its meta node and the program."""
    serve = ["--store", f"file://{STORE}", "--listen", "0.0.0.0:7370", "--http-listen", "0.0.0.0:7371"]
    meta = pod(
        "meta",
        image_names["node"],
        arguments=["meta", "serve", *serve, "--advertise", META],
        ready=(7371, "/readyz"),
        volumes={STORE: VOLUME},
    )
    files = {path.name: path.read_text() for path in BOARD.glob("*.py")}
    program = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "board"}, "data": files}
    with cluster.namespace("jobs") as name:
        cluster.apply(claim("store"), service("meta", 7370, 7371), meta, program, namespace=name)
        cluster.wait_ready("pod/meta", namespace=name)
        yield name


@pytest.mark.spark
def test_a_stream_stays_exact_through_scaling_and_losses(
    cluster: Cluster, namespace: str, image_names: dict[str, str]
) -> None:
    """One executor, two, one; an executor lost, the driver lost, the driver told to stop: no event missing or twice."""
    board = Board(cluster, namespace, image_names["spark"])
    board.apply(1)
    with cluster.phase("driver: apply to ready"):
        board.start(1)
        cluster.wait_ready("pod/board-driver", namespace=namespace, seconds=SECONDS)
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
        cluster.wait_ready("pod/board-driver", namespace=namespace, seconds=SECONDS)
        board.await_batches()
    with cluster.phase("driver told to stop: to its end"):
        cluster.kubectl("delete", "pod/board-driver", f"--namespace={namespace}", "--wait=true")
    cluster.wait_for("no executors", lambda: not board.executors(), 60)
    found = board.check("check", image_names["node"])
    print(f"{found['events']} events")
    assert found["wrong"] == []
    assert found["events"] >= 3000
