"""Losses for good: the node of a driver, and then the job's checkpoint. The last of the tests under load.

After the latter the job cannot go on under its writer id.
"""

import signal

import pytest

from cluster.node import Node
from cluster.sharing import Peace
from cluster.view.client import Cluster
from support.kubernetes.boards import Board
from support.kubernetes.users import SECONDS

pytestmark = [pytest.mark.spark, pytest.mark.long]


def events(board: Board, reason: str) -> list[str]:
    """The messages of the namespace's events with this reason."""
    return [one["message"] for one in board.cluster.list("events", board.namespace) if one["reason"] == reason]


def test_the_node_of_a_driver_is_lost(cluster: Cluster, board: Board, node: Node, peace: Peace) -> None:
    """Its pod does not go, so another driver starts under another name; the old one commits until that begins.

    Nobody tells the pods of a node without a kubelet to end. Without a controller manager the others count as pods of
    other nodes, which live.
    """
    lost = board.driver_pod()
    with peace.broken():
        for name in ("kube-controller-manager", "kubelet"):
            node.daemon(name).stop(signal.SIGKILL)
        try:
            board.kubectl("delete", f"pod/{lost}", "--grace-period=1", "--wait=false")
            before = board.batch()
            with cluster.phase("losses: driver on a lost node, to another one (120 s are waited)"):
                cluster.wait_for("another driver", lambda: board.driver_pod() != lost, SECONDS)
            assert cluster.get("pod", lost, board.namespace) is not None
            status = f"/api/v1/namespaces/{board.namespace}/pods/{lost}:7372/proxy/status"
            assert cluster.answer(status)["committedBatch"] > before, "the old one runs on"
        finally:
            node.start("kubelet")
            node.start("kube-controller-manager")
        with cluster.phase("losses: node back, to batches of the other driver"):
            board.settle()
            cluster.wait_for("end of the lost pod", lambda: not cluster.get("pod", lost, board.namespace))
    assert any(f"Pod {lost} " in told for told in events(board, "NodeLost"))
    board.expect_exact()


def test_a_lost_checkpoint_is_reported_and_stops_the_job(cluster: Cluster, board: Board) -> None:
    """A user deletes its claim: a new one is empty, and the store refuses the query that begins there.

    Story: it counted its batches from 0 on, the store took them all for repeated ones, and the job was `Ready`.
    """
    claim = "persistentvolumeclaim/board-checkpoint"
    before = board.get(claim)["metadata"]["uid"]
    board.await_batches()
    with cluster.phase("losses: claim of the checkpoint and driver deleted, to the message"):
        board.kubectl("delete", claim, f"pod/{board.driver_pod()}", "--wait=false")
        board.await_reason("tsx/board", "CheckpointLost", "another writerId", status="False")
    assert board.get(claim)["metadata"]["uid"] != before
    assert any("board-checkpoint" in told for told in events(board, "CheckpointLost"))
    count = board.expect_exact()
    failures = board.get("tsx/board")["status"]["failures"]
    cluster.wait_for("another try", lambda: board.get("tsx/board")["status"]["failures"] > failures, SECONDS)
    board.await_reason("tsx/board", "CheckpointLost", status="False")
    assert board.expect_exact() == count
