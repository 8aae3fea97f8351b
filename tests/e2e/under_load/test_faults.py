"""Processes die one after the other while a stream runs; in the end its results are compared with the truth.

The platform goes through all of it in this order. Processes are ended by SIGKILL, so nothing is
handed over. Times that are wanted are printed, and not held to: a machine may be busy with other things.
"""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from cluster.node import Node
from cluster.parts.daemons import wait_for
from cluster.sharing import Peace
from cluster.view.client import Cluster
from support.kubernetes.boards import Board
from support.kubernetes.users import SECONDS

pytestmark = [pytest.mark.spark, pytest.mark.long]

OF_STORE = "tussock.dev/store=board"
QUIET = "networkpolicies,poddisruptionbudgets,roles,rolebindings,serviceaccounts,services,configmaps"
"""Kinds of children that can be missing for a while."""
AWAY_SECONDS = 10
"""Longer than an operator leads that cannot renew its Lease."""
STATUS = "import sys, urllib.request as r; print(r.urlopen(sys.argv[1], timeout=5).read().decode())"


@pytest.fixture
def same_driver(board: Board) -> Iterator[None]:
    """Assert that the driver is the same: a failed batch would have ended it."""
    before = uid(board, "pod/board-driver")
    yield
    board.await_batches()
    assert uid(board, "pod/board-driver") == before


def uid(board: Board, what: str) -> str:
    return str(board.get(what)["metadata"]["uid"])


def starts(board: Board) -> dict[str, int]:
    """The number of restarts of each pod's containers; a pod that no kubelet has begun yet has none."""
    found = board.cluster.list("pods", board.namespace, OF_STORE)
    return {
        pod["metadata"]["name"]: sum(one["restartCount"] for one in pod["status"].get("containerStatuses", ()))
        for pod in found
    }


def is_another(board: Board, what: str, before: str) -> bool:
    """Whether the object of this name has another uid than before."""
    found = board.cluster.get(*what.split("/"), board.namespace)
    return found is not None and found["metadata"]["uid"] != before


def put_right(board: Board, *lost: str) -> dict[str, float]:
    """Delete children at once; returns after how many seconds each had a successor."""
    before = {what: uid(board, what) for what in lost}
    board.kubectl("delete", *lost, "--wait=false")
    started = time.monotonic()
    after: dict[str, float] = {}

    def all_back() -> bool:
        for what in before.keys() - after.keys():
            if is_another(board, what, before[what]):
                after[what] = time.monotonic() - started
        return before.keys() == after.keys()

    board.cluster.wait_for(f"others for {', '.join(lost)}", all_back, SECONDS)
    return after


def children(board: Board, kinds: str) -> dict[str, str]:
    """The uids of the store's children of some kinds."""
    return {
        f"{kind}/{one['metadata']['name']}": one["metadata"]["uid"]
        for kind in kinds.split(",")
        for one in board.cluster.list(kind, board.namespace, OF_STORE)
    }


@pytest.mark.usefixtures("same_driver")
def test_the_leader_of_the_meta_nodes_is_killed(cluster: Cluster, board: Board) -> None:
    """Another node commits; the batch in flight is not lost, and not committed twice."""

    def leader() -> str | None:
        """The leader in the status, which may be late and name a dead one."""
        told = board.get("tsm/board")["status"].get("leader")
        return told if told in [pod["metadata"]["name"] for pod in board.pods("meta")] else None

    found = cluster.wait_for("leader", leader, SECONDS)
    with cluster.phase("faults: leader of three meta nodes killed, to the next batch (< 10 s wanted)"):
        cluster.kill(found, board.namespace)
        board.await_batches(1)


@pytest.mark.parametrize("part", ["compactor", "minio"])
def test_a_killed_compactor_or_minio_is_replaced(cluster: Cluster, board: Board, part: str) -> None:
    [pod] = board.pods(part)
    with cluster.phase(f"faults: {part} killed, to two more batches and all in order"):
        cluster.kill(pod["metadata"]["name"], board.namespace)
        board.await_batches()
        board.settle()


def test_an_executor_is_killed(cluster: Cluster, board: Board) -> None:
    """Spark makes another one, and repeats the lost tasks."""
    [executor] = board.executors()
    with cluster.phase("faults: executor killed, to two more batches by another one"):
        cluster.kill(executor, board.namespace)
        cluster.wait_for("another executor", lambda: executor not in board.executors() != [], SECONDS)
        board.await_batches()


def test_the_driver_is_killed(cluster: Cluster, board: Board) -> None:
    """The operator makes another one, which is deleted as it starts; the third one continues at the checkpoint."""
    pod = "pod/board-driver"
    before = uid(board, pod)
    with cluster.phase("faults: driver killed, the next one deleted, to two more batches by a third one"):
        cluster.kill("board-driver", board.namespace)
        cluster.wait_for("another driver", lambda: is_another(board, pod, before), SECONDS)
        cluster.note("faults: pod of the driver deleted, to another one (< 5 s wanted)", put_right(board, pod)[pod])
        board.settle()


@pytest.mark.usefixtures("same_driver")
def test_the_operator_is_killed_in_the_middle(cluster: Cluster, board: Board, operator: str) -> None:
    """Three kills, each a little later after the work was given; the next operator finishes the work each time."""
    killed = ""
    for moment, compactors in ((0.0, 2), (0.2, 3), (0.5, 1)):
        # One that was too late for its work to be interrupted is not the one to kill next.
        leading_operator(cluster, operator, since=killed)
        before = children(board, QUIET)
        with cluster.phase(f"faults: operator killed {moment} s after it got work, to all done"):
            board.kubectl("scale", "tsc/board", f"--replicas={compactors}")
            board.kubectl("delete", *before, "--wait=false")
            time.sleep(moment)
            cluster.kill(leading_operator(cluster, operator, since=killed), operator)
            killed = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
            cluster.wait_for("all children", lambda: others_for(before, children(board, QUIET)), SECONDS)  # noqa: B023
            cluster.wait_for(
                f"{compactors} compactors",
                lambda: len(board.pods("compactor")) == compactors,  # noqa: B023
                SECONDS,
            )
            board.settle()


def leading_operator(cluster: Cluster, operator: str, since: str) -> str:
    """The pod of the leading operator, whose Lease was renewed since a moment."""

    def holder() -> str | None:
        lease = cluster.get("lease", "tussock-operator", operator)
        return lease["spec"]["holderIdentity"] if lease and lease["spec"]["renewTime"] > since else None

    return cluster.wait_for("an operator that leads", holder, SECONDS)


def others_for(before: dict[str, str], now: dict[str, str]) -> bool:
    """Whether each deleted child has a successor."""
    return before.keys() == now.keys() and not set(before.values()) & set(now.values())


@pytest.mark.usefixtures("same_driver")
def test_the_kubelet_is_killed(cluster: Cluster, board: Board, node: Node, peace: Peace) -> None:
    """Running pods go on without it, and are left alone when it comes back."""
    with peace.broken():
        before = starts(board)
        node.daemon("kubelet").stop(signal.SIGKILL)
        try:
            board.await_batches()
        finally:
            node.start("kubelet")
        with cluster.phase("faults: kubelet back, to a pod that it has made"):
            [compactor] = board.pods("compactor")
            board.kubectl("delete", f"pod/{compactor['metadata']['name']}", "--wait=false")
            cluster.wait_for("another compactor", lambda: board.pods("compactor") not in ([], [compactor]), SECONDS)
            board.settle()
        after = starts(board)
    kept = before.keys() - {compactor["metadata"]["name"]}
    assert {name: after[name] for name in kept} == {name: before[name] for name in kept}


@pytest.mark.usefixtures("same_driver")
def test_the_api_server_is_away(cluster: Cluster, board: Board, node: Node, peace: Peace) -> None:
    """The stream does not need it, and the operator survives."""
    address = board.get("pod/board-driver")["status"]["podIP"]

    def committed_epoch() -> int:
        words = node.network.inside(sys.executable, "-c", STATUS, f"http://{address}:7372/status")
        told: dict[str, Any] = json.loads(subprocess.run(words, check=True, capture_output=True, timeout=30).stdout)
        return int(told["committedBatch"])

    with peace.broken():
        node.daemon("kube-apiserver").stop(signal.SIGKILL)
        try:
            since, gone = committed_epoch(), time.monotonic()
            wait_for("batches", lambda: committed_epoch() >= since + 5, seconds=SECONDS)
            wait_for("end of the lease", lambda: time.monotonic() - gone > AWAY_SECONDS)
        finally:
            node.start("kube-apiserver")
        with cluster.phase("faults: API server back, to a child put right"):
            wait_for("API server", node.api_is_ready, node.daemon("kube-apiserver"))
            put_right(board, "service/board-meta-peers")
        board.settle()


def test_every_child_that_is_deleted_comes_back(cluster: Cluster, board: Board) -> None:
    """Each kind but pods, which died before, and claims of volumes, which Kubernetes keeps while a pod has them."""
    times: dict[str, float] = {}
    leaves = [name for name in children(board, "secrets") if name.endswith("-tls")]
    for named, lost in (
        ("nothing else stands or falls with", [*children(board, QUIET), "deployment/board-compactor"]),
        ("everybody trusts: a new authority", ["secret/board-ca", *leaves]),
        ("the bucket consists of: a new user", ["secret/board-minio", *children(board, "statefulsets")]),
        # Compactors start when meta nodes serve, so these are deleted by themselves.
        ("the pods of meta nodes belong to", ["deployment/board-meta"]),
        ("a platform consists of", ["compactor/board", "meta/board"]),
    ):
        with cluster.phase(f"faults: deleted what {named}; to all in order"):
            for what, seconds in put_right(board, *lost).items():
                kind = what.partition("/")[0]
                times[kind] = max(times.get(kind, 0), seconds)
            board.settle()
    for kind, seconds in times.items():
        cluster.note(f"faults: {kind} deleted, to another one (< 5 s wanted)", seconds)


def test_the_results_are_exact(cluster: Cluster, board: Board) -> None:
    """After all faults every batch is in the tables, and none twice."""
    with cluster.phase("faults: results compared"):
        board.expect_exact()
