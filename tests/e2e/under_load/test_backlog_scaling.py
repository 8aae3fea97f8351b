"""An autoscaler of the cluster scales compactors by what waits for compaction, as the stream makes it.

It is that of `examples/kubernetes/autoscaling/hpa.yaml`, and Kubernetes' own controller obeys it.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster.node import Node
from cluster.view.client import Cluster
from support.depth import DEPTH
from support.kubernetes.boards import Board
from support.kubernetes.external_metrics import METRIC, served_metrics
from support.kubernetes.users import SECONDS

pytestmark = [
    pytest.mark.spark,
    pytest.mark.long,
    pytest.mark.skipif(
        DEPTH == 1, reason="a minute and a half of an autoscaler: set TUSSOCK_DEPTH=2, as `make e2e` and the nights do"
    ),
]

EXAMPLE = Path(__file__).resolve().parents[3] / "examples/kubernetes/autoscaling/hpa.yaml"
COMPACTORS_MAX = 3


def autoscaler() -> dict[str, Any]:
    """The example's, for this store; it takes compactors away without waiting for the next burst."""
    body: dict[str, Any] = yaml.safe_load(EXAMPLE.read_text())
    body["metadata"]["name"] = "board"
    spec = body["spec"]
    spec["scaleTargetRef"]["name"] = "board"
    spec["maxReplicas"] = COMPACTORS_MAX
    spec["metrics"][0]["external"]["metric"]["selector"]["matchLabels"] = {"store": "board"}
    spec["behavior"]["scaleDown"]["stabilizationWindowSeconds"] = 0
    return body


def tasks_wanted(board: Board) -> int:
    """The metric, as the autoscaler reads it."""
    path = f"/apis/external.metrics.k8s.io/v1beta1/namespaces/{board.namespace}/{METRIC}"
    [item] = board.cluster.answer(f"{path}?labelSelector=store%3Dboard")["items"]
    return int(item["value"])


def compactors(board: Board) -> tuple[int, int]:
    """How many there are to be, and how many serve."""
    body = board.get("tsc/board")
    return body["spec"].get("replicas", 1), body["status"].get("readyReplicas", 0)


@pytest.fixture
def scaled_by_backlog(cluster: Cluster, board: Board, node: Node) -> Iterator[None]:
    """The autoscaler, and who serves its metric; afterwards there is one compactor, and nothing is paused."""
    with served_metrics(cluster, node):
        cluster.apply(autoscaler(), namespace=board.namespace)
        try:
            yield
        finally:
            board.kubectl("delete", "hpa/board")
    board.kubectl("scale", "tsc/board", "--replicas=1")
    board.run("compaction", store="board", role="admin", environment={"WORD": "resume"})
    board.settle()


@pytest.mark.usefixtures("scaled_by_backlog")
def test_compactors_are_scaled_by_what_waits_for_them(cluster: Cluster, board: Board) -> None:
    """Work waits, so there are more compactors; they do it, and then there is one again.

    The stream alone makes the work. One compactor would keep up with it, so compaction is paused until there are more.
    """
    driver = board.get(f"pod/{board.driver_pod()}")["metadata"]["uid"]
    board.run("compaction", store="board", role="admin", environment={"WORD": "pause"})
    with cluster.phase("autoscaling: work waits, to three compactors"):
        wanted = (COMPACTORS_MAX, COMPACTORS_MAX)
        cluster.wait_for("three compactors", lambda: compactors(board) == wanted, SECONDS)
    # Two tasks for each, as the example says.
    assert tasks_wanted(board) > 2 * (COMPACTORS_MAX - 1)
    told = {one["type"]: one for one in board.get("hpa/board")["status"]["conditions"]}
    assert told["ScalingActive"]["reason"] == "ValidMetricFound", told
    with cluster.phase("autoscaling: compaction resumed, to its work done and one compactor"):
        board.run("compaction", store="board", role="admin", environment={"WORD": "resume"})
        cluster.wait_for("end of what waits", lambda: tasks_wanted(board) <= 2, SECONDS)
        cluster.wait_for("one compactor", lambda: compactors(board) == (1, 1), SECONDS)
    board.settle()
    assert board.get(f"pod/{board.driver_pod()}")["metadata"]["uid"] == driver
    board.expect_exact()
