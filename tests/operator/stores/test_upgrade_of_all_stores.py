"""An upgrade of the operator with a new default image: one store after the other, at a real API server."""

from pathlib import Path

import pytest

from support.buckets.minio import MinioServer
from support.operator.process import Objects, OperatorProcess, eventually
from support.operator.stores_in_cluster import serving, store_on

pytestmark = [pytest.mark.minio, pytest.mark.slow]
FORMER, NEXT = "localhost/tussock-node:test", "localhost/tussock-node:next"


def image(objects: Objects, workload: str) -> str:
    """The image of a Deployment's pods."""
    body = objects.get("Deployment", workload) or {}
    return str(body["spec"]["template"]["spec"]["containers"][0]["image"])


def test_stores_take_their_turns(objects: Objects, minio: MinioServer, tmp_path: Path) -> None:
    """The second waits until the first has rolled out, says so, and stays ready; a change of its spec does not wait."""
    first = OperatorProcess(objects.kubeconfig, tmp_path, objects.namespace, lease=objects.namespace)
    first.keep()
    for name in "ab":
        serving(objects, store_on(minio, objects, name))
    assert first.stop() == 0
    environment = {"TUSSOCK_OPERATOR_NODE_IMAGE": NEXT}
    second = OperatorProcess(
        *(objects.kubeconfig, tmp_path, objects.namespace),
        lease=objects.namespace,
        identity="two",
        environment=environment,
    )
    second.keep()
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
