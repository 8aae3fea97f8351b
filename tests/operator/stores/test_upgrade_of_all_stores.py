"""An upgrade of the operator with a new default image: one store after the other, at a real API server."""

from pathlib import Path

import pytest

from support.buckets.minio import MinioServer
from support.operator.process import NeverHappened, Objects, eventually, kept_operator
from support.operator.stores_in_cluster import serving, store_on

pytestmark = [pytest.mark.minio, pytest.mark.slow]
PARALLEL = 4
FORMER, NEXT = "localhost/tussock-node:test", "localhost/tussock-node:next"


def image(objects: Objects, workload: str) -> str:
    """The image of a Deployment's pods."""
    body = objects.get("Deployment", workload) or {}
    return str(body["spec"]["template"]["spec"]["containers"][0]["image"])


def upgraded(parallel: int) -> dict[str, str]:
    """An operator with the new image that changes that many stores at a time."""
    return {"node_image": NEXT, "max_unavailable": str(parallel)}


def restarting(objects: Objects) -> set[str]:
    """The stores whose compactors are to change, and have not: no controller of a cluster runs here."""
    found = set()
    for body in objects.list("Deployment"):
        status, metadata = body.get("status") or {}, body["metadata"]
        if status.get("observedGeneration") != metadata["generation"]:
            found.add(metadata["name"].removesuffix("-compactor"))
    return found


def await_restarting(objects: Objects, what: str, names: set[str]) -> None:
    """Wait until just these stores are to change; fails with those that are."""
    try:
        eventually(what, lambda: restarting(objects) == names)
    except NeverHappened as error:
        raise NeverHappened(f"{error}; to change: {sorted(restarting(objects))}, expected {sorted(names)}") from None


def stall(objects: Objects, name: str) -> None:
    """Report that the compactors of a store do not come up, as Kubernetes does after five minutes."""
    body = objects.get("Deployment", f"{name}-compactor") or {}
    given_up = {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}
    status = {"observedGeneration": body["metadata"]["generation"], "replicas": 2, "updatedReplicas": 1}
    objects.patch("Deployment", f"{name}-compactor", {"status": {**status, "conditions": [given_up]}}, "status")


def test_stores_take_their_turns(objects: Objects, minio: MinioServer, tmp_path: Path) -> None:
    """The second waits until the first has rolled out, says so, and stays ready; a change of its spec does not wait."""
    first = kept_operator(objects, tmp_path)
    for name in "ab":
        serving(objects, store_on(minio, objects, name))
    assert first.stop() == 0
    second = kept_operator(objects, tmp_path, "two", **upgraded(1))
    eventually("the first one's turn", lambda: image(objects, "a-meta") == NEXT)
    told = f"An upgrade of the operator changes them after those of StateStore {objects.namespace}/a."
    eventually("what the second waits for", lambda: told in objects.ready("Meta", "b")["message"])
    assert objects.ready("Meta", "b")["status"] == "True"
    assert image(objects, "b-meta") == FORMER

    objects.patch("StateStore", "b", {"spec": {"meta": {"replicas": 3}}})
    eventually("what its user asks for", lambda: (objects.get("Deployment", "b-meta") or {})["spec"]["replicas"] == 3)
    for name in "ab":
        for workload in (f"{name}-meta", f"{name}-compactor"):
            eventually(f"{workload}'s turn", lambda workload=workload: image(objects, workload) == NEXT)
            objects.serve("Deployment", workload)
        objects.await_reason("StateStore", name, "Ready")
    assert second.stop() == 0, second.log()[-2000:]


@pytest.mark.timeout(600)
def test_compactors_of_twenty_stores_take_their_turns(objects: Objects, minio: MinioServer, tmp_path: Path) -> None:
    """Four at a time by an upgrade that changes only them: these stores name the image of their meta nodes.

    An operator that is killed in the middle changes nothing about it, and a user's edit waits for no turn. Compactors
    that do not come up stop all that have not begun, for the next operator, too, until they serve.
    """
    names = [f"s{number:02}" for number in range(20)]
    edited, failing = names[15], names[1]
    first = kept_operator(objects, tmp_path)
    for name in names:
        store = store_on(minio, objects, name)
        store["spec"]["meta"] = {"replicas": 1, "image": "localhost/pinned:1"}
        objects.apply(store)
    for workload in (f"{name}-{kind}" for kind in ("meta", "compactor") for name in names):
        objects.serve("Deployment", workload)
    for name in names:
        objects.await_reason("StateStore", name, "Ready")
    assert first.stop() == 0
    second = kept_operator(objects, tmp_path, "two", **upgraded(PARALLEL))
    await_restarting(objects, "the first turns", set(names[:PARALLEL]))
    told = "All 1 compactors serve. An upgrade of the operator changes them after those of other stores."
    eventually("what the last one waits for", lambda: objects.ready("Compactor", names[-1])["message"] == told)
    assert objects.ready("StateStore", names[-1])["reason"] == "Ready"

    objects.patch("StateStore", edited, {"spec": {"compactor": {"slots": 3}}})
    await_restarting(objects, "what its user asks for", {edited, *names[:PARALLEL]})
    objects.serve("Deployment", f"{edited}-compactor")
    stall(objects, failing)
    stopped = f"StateStore {objects.namespace}/{failing} (ProgressDeadlineExceeded) has failed it"
    eventually("what stops the last one", lambda: stopped in objects.ready("StateStore", names[-1])["message"])
    assert objects.ready("StateStore", names[-1])["reason"] == "UpgradeStopped"
    order = sorted(restarting(objects))
    assert order == sorted(set(names[:PARALLEL]) - {failing})
    second.kill()
    third = kept_operator(objects, tmp_path, "three", **upgraded(PARALLEL))
    for name in order:
        objects.serve("Deployment", f"{name}-compactor")
        objects.await_reason("Compactor", name, "Ready")
    assert restarting(objects) == set()
    objects.serve("Deployment", f"{failing}-compactor")

    left = set(names) - {edited, failing, *order}
    while left:
        eventually("turns", lambda: len(restarting(objects)) >= min(PARALLEL, len(left)))
        for name in sorted(restarting(objects)):
            assert len(restarting(objects)) <= PARALLEL
            objects.serve("Deployment", f"{name}-compactor")
            order.append(name)
            left.remove(name)
    assert order == [name for name in names if name not in (edited, failing)]
    for name in names:
        objects.await_reason("StateStore", name, "Ready")
        assert image(objects, f"{name}-compactor") == NEXT
        assert image(objects, f"{name}-meta") == "localhost/pinned:1"
    assert third.stop() == 0, third.log()[-2000:]
