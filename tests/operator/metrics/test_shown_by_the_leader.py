"""Processes of the operator show resources: the one that leads, as they are; the other takes over."""

import re
from pathlib import Path

from support.operator.process import Objects, OperatorProcess, eventually


def series(process: OperatorProcess) -> dict[str, float]:
    """The series about resources, by their names and labels without the namespace."""
    lines = [line for line in process.ask("/metrics").splitlines() if line.startswith("tussock_resource_")]
    return {
        re.sub(r'namespace="[^"]*",?', "", name).replace(",}", "}"): float(value)
        for name, _, value in (line.rpartition(" ") for line in lines)
    }


def test_the_leader_shows_resources_until_they_are_gone(objects: Objects, tmp_path: Path) -> None:
    """A job without its store is not ready; the replica that waits shows nothing, until it leads."""
    space = objects.namespace
    one, two = (
        OperatorProcess(objects.kubeconfig, tmp_path, space, lease=space, identity=name) for name in ("one", "two")
    )
    one.start()
    eventually("a leader", lambda: "leading" in one.log())
    two.start()
    spec = {"storeRef": {"name": "s"}, "application": {"file": "/opt/job.py"}, "mode": "Batch"}
    job = {"apiVersion": "tussock.dev/v1alpha1", "kind": "Compute", "metadata": {"name": "job"}, "spec": spec}
    objects.apply(job)
    expected = {
        'tussock_resource_ready{kind="Compute",name="job"}': 0,
        'tussock_resource_restarts_total{kind="Compute",name="job"}': 0,
    }
    eventually("the job", lambda: series(one) == expected)
    eventually("the second one", lambda: "waiting for the lease" in two.log())
    assert series(two) == {}
    assert one.stop() == 0
    eventually("the job at the second one", lambda: series(two) == expected)
    objects.delete("Compute", "job")
    eventually("nothing", lambda: series(two) == {})
    assert two.stop() == 0
