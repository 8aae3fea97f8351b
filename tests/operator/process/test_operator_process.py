"""Processes of the operator die, wait for each other, and continue the work of earlier ones."""

import json
import time
from pathlib import Path

import pytest

from support.buckets.minio import MinioServer
from support.kubernetes.api_server import ApiServer
from support.kubernetes.kubectl import Kubectl
from support.operator.process import Objects, OperatorProcess, eventually
from support.operator.stores_in_cluster import serving, store_on
from support.times import note
from tussock.operator.cluster.lease import LEASE_SECONDS, RENEW_SECONDS

pytestmark = pytest.mark.minio
CHILDREN = [
    (kind, f"s-{component}")
    for component in ("meta", "compactor")
    for kind in ("Deployment", "ServiceAccount", "PodDisruptionBudget")
] + [("Service", "s-meta"), ("Service", "s-meta-peers"), ("ConfigMap", "s-meta"), ("Meta", "s"), ("Compactor", "s")]


def is_leading(process: OperatorProcess) -> bool:
    return "event=leading" in process.log() or '"event": "leading"' in process.log()


def start(process: OperatorProcess) -> None:
    process.start()
    eventually("a leader", lambda: is_leading(process))


def test_killing_the_leader_moves_the_work(objects: Objects, minio: MinioServer, tmp_path: Path) -> None:
    """A second replica waits, and corrects a child once the dead one's lease has ended."""
    space = objects.namespace
    one, two = (
        OperatorProcess(objects.kubeconfig, tmp_path, space, lease=space, identity=name) for name in ("one", "two")
    )
    start(one)
    two.start()
    serving(objects, store_on(minio, objects, "s"))
    eventually("the second one", lambda: "waiting for the lease" in two.log())
    assert not is_leading(two)
    assert two.metric("tussock_operator_leader") == 0
    one.kill()
    killed = time.monotonic()
    objects.delete("Service", "s-meta")
    eventually("the Service again", lambda: objects.get("Service", "s-meta"))
    note("operator: leader killed to a child put right", time.monotonic() - killed)
    assert two.metric("tussock_operator_leader") == 1
    assert two.stop() == 0


def test_a_leader_that_ends_releases_the_lease(objects: Objects, tmp_path: Path) -> None:
    """The other replica leads before the lease would have ended."""
    space = objects.namespace
    one, two = (
        OperatorProcess(objects.kubeconfig, tmp_path, space, lease=space, identity=name) for name in ("one", "two")
    )
    start(one)
    two.start()
    eventually("the second one", lambda: "waiting for the lease" in two.log())
    assert one.stop() == 0
    eventually("the second one to lead", lambda: is_leading(two), LEASE_SECONDS - RENEW_SECONDS - 1)
    assert two.stop() == 0


def test_a_leader_whose_lease_was_taken_ends_at_once(objects: Objects, tmp_path: Path) -> None:
    """Another replica may lead from now on, so it abandons all work that has begun."""
    process = OperatorProcess(objects.kubeconfig, tmp_path, objects.namespace, lease=objects.namespace)
    start(process)
    # Other namespaces have their leases in the same one.
    leases = Objects(objects.kubeconfig, "default")

    def has_lost_lease() -> bool:
        # It may renew at the same moment, and so take the Lease back.
        leases.patch("Lease", objects.namespace, {"spec": {"holderIdentity": "another"}})
        return "lost_lease" in process.log()

    eventually("the end", has_lost_lease)
    assert process.stop() == 1
    last = [json.loads(line)["event"] for line in process.log().splitlines()][-2:]
    assert last == ["lost the lease", "stopped"]


@pytest.mark.parametrize("writes", [1, 3, 6, 9])
def test_the_work_of_a_killed_operator_is_continued(
    writes: int, objects: Objects, minio: MinioServer, tmp_path: Path
) -> None:
    """Killed after a number of writes, wherever it is then: the next one makes what is missing, nothing twice."""
    process = OperatorProcess(objects.kubeconfig, tmp_path, objects.namespace, lease=objects.namespace)
    start(process)
    objects.apply(store_on(minio, objects, "s"))
    eventually(f"{writes} writes", lambda: len(objects.writes()) >= writes)
    process.kill()
    again = OperatorProcess(
        objects.kubeconfig, tmp_path, objects.namespace, lease=f"{objects.namespace}-again", identity="again"
    )
    start(again)
    serving(objects, store_on(minio, objects, "s"))
    missing = [child for child in CHILDREN if objects.get(*child) is None]
    assert missing == []
    assert again.stop() == 0


def test_changes_while_no_operator_ran_are_made_up_for(objects: Objects, minio: MinioServer, tmp_path: Path) -> None:
    """A store that was created, and one that was deleted; a child that was edited, and one deleted."""
    first = OperatorProcess(objects.kubeconfig, tmp_path, objects.namespace, lease=objects.namespace)
    start(first)
    for name in ("s", "gone"):
        serving(objects, store_on(minio, objects, name))
    assert first.stop() == 0
    objects.delete("StateStore", "gone")
    objects.delete("ConfigMap", "s-meta")
    objects.patch("Deployment", "s-meta", {"spec": {"replicas": 4}})
    objects.apply(store_on(minio, objects, "new"))
    assert objects.get("StateStore", "gone") is not None
    second = OperatorProcess(
        objects.kubeconfig, tmp_path, objects.namespace, lease=objects.namespace, identity="second"
    )
    start(second)
    eventually("the deleted store gone", lambda: objects.get("StateStore", "gone") is None)
    eventually("the ConfigMap again", lambda: objects.get("ConfigMap", "s-meta"))
    eventually("two again", lambda: (objects.get("Deployment", "s-meta") or {})["spec"]["replicas"] == 2)
    eventually("the new store's meta nodes", lambda: objects.get("Deployment", "new-meta"))
    assert second.stop() == 0


def test_an_operator_that_starts_anew_writes_nothing(objects: Objects, minio: MinioServer, tmp_path: Path) -> None:
    """An upgrade of the operator, or a crash, writes no object that is as it should be, and no status or event.

    Story: each change of the operator's leader took every store to `Reconciling` and back.
    """
    first = OperatorProcess(objects.kubeconfig, tmp_path, objects.namespace, lease=objects.namespace)
    start(first)
    serving(objects, store_on(minio, objects, "s"))
    eventually("the last probe", lambda: "could not ask" in objects.ready("Meta", "s").get("message", ""))
    time.sleep(1)
    assert first.stop() == 0
    before, events = len(objects.writes()), [body["metadata"]["name"] for body in objects.events("s")]
    second = OperatorProcess(
        objects.kubeconfig, tmp_path, objects.namespace, lease=objects.namespace, identity="second"
    )
    start(second)
    eventually("passes", lambda: second.metric("tussock_operator_reconcile_seconds_count") >= 3)
    time.sleep(2)
    assert [line["requestURI"] for line in objects.writes()[before:]] == []
    assert events == [body["metadata"]["name"] for body in objects.events("s")]
    assert second.stop() == 0


@pytest.mark.slow
def test_an_operator_survives_a_restart_of_the_api_server(api_server: Path, minio: MinioServer, tmp_path: Path) -> None:
    """It corrects the edits, with a restart if it could not renew its lease in time."""
    server = ApiServer(tmp_path / "api")
    server.start()
    try:
        Kubectl(server.kubeconfig, tmp_path / "cache").define(Path(__file__).resolve().parents[3] / "crds")
        objects = Objects(server.kubeconfig, "away")
        objects.make_namespace()
        process = OperatorProcess(server.kubeconfig, tmp_path, "away", lease="away")
        process.keep()
        eventually("a leader", lambda: is_leading(process))
        serving(objects, store_on(minio, objects, "s"))
        server.kill()
        time.sleep(3)
        assert process.ask("/healthz") == "ok\n"
        server.start()
        objects.delete("Service", "s-meta")
        eventually("the Service again", lambda: objects.get("Service", "s-meta"))
        assert process.stop() == 0
    finally:
        server.stop()
