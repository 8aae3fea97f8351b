"""What dies while a stream runs, one thing after the other; in the end its results are compared with the truth.

One platform with three meta nodes goes through all of it, in this order. Processes are ended by SIGKILL, so nothing is
handed over. Times that are wanted are printed, and not held to: a machine may be busy with other things.
"""

from collections.abc import Iterator

import pytest

from cluster.client import Cluster
from support.boards import Board
from support.users import SECONDS, resource

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def board(cluster: Cluster, operator: str, image_names: dict[str, str]) -> Iterator[Board]:
    """A platform with three meta nodes, a compactor, and the stream with one executor, which has committed batches."""
    with cluster.namespace("faults") as namespace:
        found = Board(cluster, namespace, image_names["node"])
        store = resource("StateStore", "board", objectStore={"managed": {}}, meta={"replicas": 3}, compactor={})
        program, job = found.job()
        job["spec"]["restartPolicy"] = {"backoffSeconds": 1}
        try:
            with cluster.phase("faults: apply to the first batches"):
                cluster.apply(store, program, job, namespace=namespace)
                settle(found)
            yield found
        finally:
            with cluster.phase("faults: delete"):
                found.kubectl("delete", "tsx,tss", "--all", "--timeout=200s", seconds=240)


@pytest.fixture
def same_driver(board: Board) -> Iterator[None]:
    """What happens costs the stream no batch: one that failed would have ended its driver."""
    before = uid(board)
    yield
    board.await_batches()
    assert uid(board) == before


def uid(board: Board) -> str:
    """Which driver's pod there is."""
    return str(board.get("pod/board-driver")["metadata"]["uid"])


def settle(board: Board) -> None:
    """Wait until all of the platform serves, and the stream commits."""
    for what in ("tss/board", "tsm/board", "tsc/board", "tsx/board"):
        board.await_reason(what, "Ready", status="True")
    board.await_batches()


@pytest.mark.usefixtures("same_driver")
def test_the_leader_of_the_meta_nodes_is_killed(cluster: Cluster, board: Board) -> None:
    """Another one commits; the batch that was on its way is not lost, and not taken twice."""

    def leader() -> str | None:
        """In a status that is behind it may be one that is gone."""
        told = board.get("tsm/board")["status"].get("leader")
        return told if told in [pod["metadata"]["name"] for pod in board.pods("meta")] else None

    found = cluster.wait_for("leader", leader, SECONDS)
    with cluster.phase("faults: leader of three meta nodes killed, to the next batch (< 10 s wanted)"):
        cluster.kill(found, board.namespace)
        board.await_batches(1)


@pytest.mark.parametrize("part", ["compactor", "minio"])
def test_a_node_is_killed(cluster: Cluster, board: Board, part: str) -> None:
    [pod] = board.pods(part)
    with cluster.phase(f"faults: {part} killed, to two more batches and all in order"):
        cluster.kill(pod["metadata"]["name"], board.namespace)
        board.await_batches()
        settle(board)


def test_an_executor_is_killed(cluster: Cluster, board: Board) -> None:
    """Spark makes another one, and does the lost tasks again."""
    [executor] = board.executors()
    with cluster.phase("faults: executor killed, to two more batches by another one"):
        cluster.kill(executor, board.namespace)
        cluster.wait_for("another executor", lambda: executor not in board.executors() != [], SECONDS)
        board.await_batches()


def test_the_driver_is_killed(cluster: Cluster, board: Board) -> None:
    """The operator makes another one, which goes on at the checkpoint."""
    before = uid(board)

    def another() -> bool:
        """Between the two there is none for a moment."""
        found = cluster.get("pod", "board-driver", board.namespace)
        return found is not None and found["metadata"]["uid"] != before

    with cluster.phase("faults: driver killed, to two more batches by another one"):
        cluster.kill("board-driver", board.namespace)
        cluster.wait_for("another driver", another, SECONDS)
        settle(board)


def test_the_results_are_exact(cluster: Cluster, board: Board) -> None:
    """After all of it: every batch is in the tables, and none twice."""
    with cluster.phase("faults: results compared"):
        board.expect_exact()
