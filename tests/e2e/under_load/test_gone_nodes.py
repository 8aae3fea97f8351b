"""A node is lost and stays away: what ran on it starts elsewhere, and the stream goes on, without a person.

A second node joins the cluster for these tests. It ends as a machine does that has lost its power, so nothing on it
says a word. How long the stream stands still is printed beside the target, and held to a bound that only a
toleration of Kubernetes' 300 s would exceed, since a machine may be busy with other things.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import pytest

from cluster.node import Node
from cluster.second import SecondNode
from cluster.sharing import Peace
from cluster.view.client import Cluster
from support.depth import DEPTH
from support.kubernetes.boards import Board
from support.kubernetes.users import SECONDS

pytestmark = [
    pytest.mark.spark,
    pytest.mark.long,
    pytest.mark.skipif(
        DEPTH == 1, reason="five minutes with a second node: set TUSSOCK_DEPTH=2, as `make e2e` and the nights do"
    ),
]

OF_PLATFORM = "app.kubernetes.io/component"
"""A label that all pods of the platform have, and no client."""
STANDSTILL_SECONDS_MAX = 240
NEXT_BATCH = "the next batch (< 90 s wanted)"
OFF = "node.kubernetes.io/out-of-service=off:NoExecute"


@pytest.fixture(scope="module")
def second(cluster: Cluster, board: Board, node: Node, peace: Peace) -> Iterator[SecondNode]:
    """The second node; in the end it is taken away, and everything runs on the first one."""
    with peace.broken():
        try:
            with cluster.phase("gone nodes: a second node added"):
                node.second.up()
            yield node.second
        finally:
            with cluster.phase("gone nodes: taken away"):
                node.second.down()
        board.settle()


@contextmanager
def closed(cluster: Cluster, node_name: str) -> Iterator[None]:
    """No pod is scheduled to a node meanwhile."""
    cluster.kubectl("cordon", node_name)
    try:
        yield
    finally:
        cluster.kubectl("uncordon", node_name)


def places(board: Board) -> dict[str, str]:
    """The node of each pod of the platform that is not about to go."""
    found = board.cluster.list("pods", board.namespace, OF_PLATFORM)
    return {
        pod["metadata"]["name"]: pod["spec"].get("nodeName", "")
        for pod in found
        if "deletionTimestamp" not in pod["metadata"]
    }


def identities(board: Board) -> dict[str, tuple[str, int]]:
    """The uid and the restarts of each pod of the platform."""
    return {
        pod["metadata"]["name"]: (
            pod["metadata"]["uid"],
            sum(one["restartCount"] for one in pod["status"].get("containerStatuses", ())),
        )
        for pod in board.cluster.list("pods", board.namespace, OF_PLATFORM)
    }


def leader(board: Board) -> str:
    """The leader in the status; empty while the operator knows none."""
    return str(board.get("tsm/board")["status"].get("leader", ""))


def move(cluster: Cluster, board: Board, first: Node, second: SecondNode) -> None:
    """Bring the driver, its executor, the compactor, and the leader with another meta node to the second node."""
    with closed(cluster, first.node_name):
        leading = cluster.wait_for("a leader", lambda: leader(board), SECONDS)
        followers = {pod["metadata"]["name"] for pod in board.pods("meta")} - {leading}
        lost = [board.driver_pod(), *followers, *(pod["metadata"]["name"] for pod in board.pods("compactor"))]
        board.kubectl("delete", "pod", *lost, "--wait=false")

        def is_there() -> bool:
            """As many pods as before, and the driver's executor."""
            return len([node for node in places(board).values() if node == second.node_name]) >= len(lost) + 1

        cluster.wait_for("pods on the second node", is_there, SECONDS)
        board.settle()
    with closed(cluster, second.node_name):
        board.kubectl("delete", "pod", leading, "--wait=false")
        cluster.wait_for("a leader there", lambda: places(board).get(leader(board)) == second.node_name, SECONDS)
        board.settle()
    found = places(board)
    assert found[board.driver_pod()] == second.node_name
    assert {found[name] for name in board.executors()} == {second.node_name}
    assert {found[pod["metadata"]["name"]] for pod in board.pods("compactor")} == {second.node_name}


def is_silent(cluster: Cluster, node_name: str) -> bool:
    """Whether Kubernetes counts the node as lost."""
    found = cluster.get("node", node_name)
    assert found is not None
    return any(one["type"] == "Ready" and one["status"] == "Unknown" for one in found["status"]["conditions"])


def await_all(cluster: Cluster, of: str, probes: Mapping[str, Callable[[], object]]) -> dict[str, float]:
    """Wait for several things at once; returns and notes after how many seconds each was first seen.

    A probe that the cluster cannot answer keeps those behind it waiting.
    """
    started = time.monotonic()
    seen: dict[str, float] = {}

    def all_seen() -> bool:
        for what, probe in probes.items():
            if what not in seen and probe():
                seen[what] = time.monotonic() - started
                cluster.note(f"gone nodes: {of}, to {what}", seen[what])
        return len(seen) == len(probes)

    cluster.wait_for(f"all of {', '.join(probes)}", all_seen, SECONDS)
    return seen


def test_a_stream_goes_on_without_its_node(cluster: Cluster, board: Board, node: Node, second: SecondNode) -> None:
    """Driver, executor, leader and compactor are lost; others take their place, and no row is lost or doubled."""
    with cluster.phase("gone nodes: driver, leader and compactor brought to the second node"):
        move(cluster, board, node, second)
    lost, old_leader = board.driver_pod(), leader(board)
    compactors = {pod["metadata"]["name"] for pod in board.pods("compactor")}
    last = board.batch()  # the next one may be in the store already, and is then repeated
    second.lose()
    probes = {
        "another leader": lambda: leader(board) not in ("", old_leader),
        "Kubernetes knowing it": lambda: is_silent(cluster, second.node_name),
        "another compactor": lambda: {pod["metadata"]["name"] for pod in board.pods("compactor")} - compactors,
        "another driver": lambda: board.driver_pod() != lost,
        NEXT_BATCH: lambda: board.driver_pod() != lost and (board.driver()["committedBatch"] or -1) > last + 1,
    }
    assert await_all(cluster, "node lost", probes)[NEXT_BATCH] < STANDSTILL_SECONDS_MAX
    board.settle()
    assert set(places(board).values()) == {node.node_name}
    board.expect_exact()

    before = identities(board)
    gone = before.keys() - places(board).keys()
    assert lost in gone, "nobody has told the pods of a node that is silent to go"
    with cluster.phase("gone nodes: node back, to the end of its old pods"):
        second.up()
        cluster.wait_for("end of lost pods", lambda: identities(board).keys() <= before.keys() - gone, SECONDS)
    board.await_batches()
    assert identities(board) == {name: before[name] for name in before.keys() - gone}, "others were harmed"
    board.expect_exact()


def test_minio_goes_on_when_a_person_says_that_its_node_is_off(
    cluster: Cluster, board: Board, node: Node, second: SecondNode
) -> None:
    """Nobody else may start it: two servers on one disk would destroy it. Its disk is one that both nodes can mount."""
    with cluster.phase("gone nodes: MinIO brought to the second node"), closed(cluster, node.node_name):
        [minio] = [pod["metadata"]["name"] for pod in board.pods("minio")]
        board.kubectl("delete", "pod", minio)
        cluster.wait_for("MinIO there", lambda: places(board).get(minio) == second.node_name, SECONDS)
        board.settle()
    uid = board.get(f"pod/{minio}")["metadata"]["uid"]
    last = board.batch()
    second.lose()
    silent = {"Kubernetes knowing it": lambda: is_silent(cluster, second.node_name)}
    await_all(cluster, "node of MinIO lost", silent)
    time.sleep(10)  # twice as long as the other pods stay
    [alone] = board.pods("minio")
    assert alone["metadata"]["uid"] == uid, "it was given up, or another one was started"
    cluster.kubectl("taint", "node", second.node_name, OFF)
    probes = {
        "MinIO on the other node": lambda: places(board).get(minio) == node.node_name,
        "the next batch": lambda: (board.driver()["committedBatch"] or -1) > last + 1,
    }
    await_all(cluster, "node of MinIO said to be off", probes)
    board.settle()
    board.expect_exact()
