"""Changes by users while the stream runs: images, numbers of nodes, pauses. No row is lost or doubled.

After each change the tables are compared with the truth.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

import pytest

from cluster.view.client import Cluster
from support.kubernetes.boards import Board
from support.kubernetes.pod_watch import watched_pods
from support.kubernetes.users import SECONDS

pytestmark = [pytest.mark.spark, pytest.mark.long]


def names(pods: list[dict[str, Any]]) -> set[str]:
    """The names of pods."""
    return {pod["metadata"]["name"] for pod in pods}


def ready_with(image: str, pods: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The pods that have an image and are ready."""
    return [
        pod
        for pod in pods
        if pod["spec"]["containers"][0]["image"] == image
        and any(one["type"] == "Ready" and one["status"] == "True" for one in pod["status"].get("conditions", ()))
    ]


def test_new_images_roll_in_order(cluster: Cluster, board: Board, next_image_names: Mapping[str, str]) -> None:
    """Followers, the leader, compactors, the job; each when the former is ready, and with the usual number serving."""
    before, restarts = board.batch(), board.get("tsx/board")["status"]["restarts"]
    leader, metas = board.get("tsm/board")["status"]["leader"], names(board.pods("meta"))
    node, spark = next_image_names["node"], next_image_names["spark"]
    with cluster.phase("images changed: to all rolled"), watched_pods(cluster, board.namespace) as watch:
        board.patch("tss/board", images=dict(next_image_names))
        for component, image, count in (("meta", node, 3), ("compactor", node, 1), ("compute", spark, 2)):

            def is_rolled_out(component: str = component, image: str = image, count: int = count) -> bool:
                pods = board.pods(component)
                return len(ready_with(image, pods)) == count == len(pods)

            with cluster.phase(f"images changed: {component}"):
                cluster.wait_for(f"{count} of {component} with image {image}", is_rolled_out, SECONDS)
        board.await_batches(since=before)

    leaving = {name: watch.first(f"{name} leaving", name=name, leaving=True) for name in metas}
    assert leader in metas
    assert max(leaving, key=lambda name: leaving[name]) == leader
    new_metas = [watch.first(f"{name} ready", name=name, ready=True) for name in names(board.pods("meta"))]
    new_compactor = {"component": "compactor", "image": node}
    assert max([*leaving.values(), *new_metas]) < watch.first("a new compactor", **new_compactor)
    new_driver = watch.first("a new driver", role="driver", image=spark)
    assert watch.first("a ready compactor", **new_compactor, ready=True) < new_driver
    assert watch.fewest_serving("meta", 3) == 3
    assert watch.fewest_serving("compactor", 1) == 1
    status = board.get("tsx/board")["status"]
    assert (status["restarts"], status["failures"]) == (restarts + 1, 0)
    board.expect_exact()


def test_missing_images_stop_the_rollout(cluster: Cluster, board: Board, image_names: Mapping[str, str]) -> None:
    """Running pods go on, the conditions name image and pod, and the right image heals it without a restart."""
    bad = {part: f"{image_names[part].rpartition(':')[0]}:never-built" for part in ("node", "spark")}
    good = board.get("tss/board")["spec"].get("images", {}).get("node")

    def all_names() -> dict[str, set[str]]:
        return {component: names(board.pods(component)) for component in ("meta", "compactor", "compute")}

    before = all_names()
    with cluster.phase("bad images: to a message, of the job and of the store"):
        board.patch("tsx/board", image=bad["spark"])
        board.await_reason("tsx/board", "ImagePullFailed", bad["spark"], "continues meanwhile", status="True")
        board.patch("tss/board", images={"node": bad["node"]})
        held = board.await_reason("tsm/board", "ImagePullFailed", bad["node"], "Pod board-meta-", status="True")
        assert "The old pods still serve." in held.message
        board.await_reason("tss/board", "ImagePullFailed", "Meta board: Pod board-meta-", bad["node"], status="True")
        for what in ("tsc/board", "tsx/board"):
            board.await_reason(what, "WaitingForMeta", status="True")
    said = board.kubectl("tussock", "status", "board")
    assert [line.split()[:4] for line in said.splitlines()[1:]] == [
        ["StateStore", "board", "True", "ImagePullFailed"],
        ["Meta", "board", "True", "ImagePullFailed"],
        ["Compactor", "board", "True", "WaitingForMeta"],
        ["Compute", "board", "True", "WaitingForMeta"],
    ]
    board.await_batches()
    assert all(kept <= names(board.pods(component)) for component, kept in before.items())
    with cluster.phase("bad images: healed"):
        board.patch("tss/board", images={"node": good})
        board.patch("tsx/board", image=None)
        for what in ("tsm/board", "tsc/board", "tss/board", "tsx/board"):
            board.await_reason(what, "Ready", status="True")
    cluster.wait_for("just the pods from before", lambda: all_names() == before, SECONDS)
    board.expect_exact()


def test_compactors_and_executors_are_scaled(cluster: Cluster, board: Board) -> None:
    """Up and down under load, by `kubectl scale`; the status has the selector's number."""

    def expect(compactors: int, executors: int) -> None:
        for what, count in (("tsc/board", compactors), ("tsx/board", executors)):
            cluster.wait_for(f"{count} of {what}", partial(is_scaled, what, count), SECONDS)
        cluster.wait_for(f"{executors} executors", lambda: board.driver()["executors"] == executors, SECONDS)
        board.await_reason("tsc/board", "Ready", status="True")

    def is_scaled(what: str, count: int) -> bool:
        status = board.get(what)["status"]
        found = cluster.list("pods", board.namespace, status["selector"])
        return status["replicas"] == status["readyReplicas"] == count == len(found)

    driver = board.get("pod/board-driver")["metadata"]["uid"]
    with cluster.phase("scaled up: 1 to 3 compactors, 1 to 2 executors"):
        board.kubectl("scale", "tsc/board", "--replicas=3")
        board.kubectl("scale", "tsx/board", "--replicas=2")
        expect(3, 2)
    board.await_batches()
    with cluster.phase("a table compacted by hand"):
        assert board.kubectl("tussock", "compact", "board", "board") == "Table board of board is compacted.\n"
    with cluster.phase("scaled down: 3 to 1 compactors, 2 to 1 executors"):
        board.kubectl("scale", "tsc/board", "tsx/board", "--replicas=1")
        expect(1, 1)
    board.await_batches()
    assert board.get("pod/board-driver")["metadata"]["uid"] == driver
    board.expect_exact()


def test_a_paused_store_and_a_suspended_job_are_left_alone(cluster: Cluster, board: Board) -> None:
    """A paused store is left alone, with manual changes; a suspended job continues at its checkpoint."""
    with cluster.phase("paused: edits stay"):
        board.patch("tss/board", paused=True)
        for what in ("tss/board", "tsm/board", "tsc/board", "tsx/board"):
            board.await_reason(what, "Paused", status="True")
        board.kubectl("scale", "deployment/board-compactor", "--replicas=0")
        board.kubectl("delete", "poddisruptionbudget/board-meta")
        # The operator has seen this change, and so the two from before it.
        board.kubectl("scale", "tsc/board", "--replicas=2")
        board.await_reason("tsc/board", "Paused")
        board.await_batches()
        assert board.get("deployment/board-compactor")["spec"]["replicas"] == 0
        assert cluster.get("poddisruptionbudget", "board-meta", board.namespace) is None
    with cluster.phase("paused no more: edits put right"):
        board.patch("tss/board", paused=False)
        cluster.wait_for("budget", lambda: cluster.get("poddisruptionbudget", "board-meta", board.namespace), SECONDS)
        cluster.wait_for("compactors", lambda: board.get("tsc/board")["status"]["readyReplicas"] == 2, SECONDS)
        board.kubectl("scale", "tsc/board", "--replicas=1")
    with cluster.phase("suspended"):
        board.patch("tsx/board", suspend=True)
        board.await_reason("tsx/board", "Suspended", status="False")
        cluster.wait_for("no executors", lambda: not board.executors(), SECONDS)
    events = board.expect_exact()
    with cluster.phase("suspended no more: to more batches"):
        board.patch("tsx/board", suspend=False)
        board.await_reason("tsx/board", "Ready", status="True")
        board.await_batches()
    board.expect_exact(events + 400)
