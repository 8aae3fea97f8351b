"""From `helm install` to right results: the chart, the operator, a managed object store, a platform, a stream.

Everything is as a user has it: the chart as it is, `examples/kubernetes/quickstart.yaml` as it is. While the stream
runs, its one meta node is killed; then its epochs are compared with the timetable of 2013. Where a platform has more
to lose, `under_load/test_faults.py` kills the rest.
"""

import re
from pathlib import Path

import pytest

from cluster.view.client import Cluster

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(__file__).parent / "programs" / "check_flights.py"
SECONDS = 300


class Quickstart:
    """The quickstart in a namespace, and what can be seen of it."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self._cluster, self._namespace = cluster, namespace

    def days(self) -> int:
        """The number of days that the present driver reports as written."""
        log = self._cluster.log("flights-driver", self._namespace)
        return len(re.findall(r"^\d{4}-\d\d-\d\d: \d+ events, epoch \d+$", log, re.MULTILINE))

    def await_days(self, total: int) -> None:
        """Wait until the driver has written `total` days."""
        self._cluster.wait_for(f"{total} days", lambda: self.days() >= total, SECONDS)

    def kill_meta(self) -> None:
        """Kill the meta node, which is the only one."""
        [pod] = self._cluster.list("pods", self._namespace, "app.kubernetes.io/component=meta")
        self._cluster.kill(pod["metadata"]["name"], self._namespace)

    def condition(self, kind: str, name: str, type_: str) -> tuple[str, str, str]:
        """Status, reason and message of a condition; empty if there is none."""
        found = self._cluster.get(kind, name, self._namespace) or {}
        for one in found.get("status", {}).get("conditions", []):
            if one["type"] == type_:
                return one["status"], one["reason"], one["message"]
        return "", "", ""


@pytest.mark.spark
@pytest.mark.usefixtures("operator")
def test_quickstart_from_chart_to_results(cluster: Cluster) -> None:
    """The first epoch comes soon, the stream survives the loss of its meta node, and every day is right."""
    with cluster.namespace("quickstart") as namespace:
        where = f"--namespace={namespace}"
        quickstart = Quickstart(cluster, namespace)
        try:
            with cluster.phase("quickstart: apply to the first committed epoch"):
                cluster.kubectl("apply", where, "-f", str(ROOT / "examples/kubernetes/quickstart.yaml"))
                quickstart.await_days(1)
            cluster.wait_ready(
                "tss/flights", "tsm/flights", "tsc/flights", "tsx/flights", namespace=namespace, seconds=120
            )
            print(cluster.kubectl("get", "tussock", where))
            with cluster.phase("quickstart: the only meta node killed, to two more days"):
                before = quickstart.days()
                quickstart.kill_meta()
                quickstart.await_days(before + 2)
            with cluster.phase("quickstart: ten days"):
                quickstart.await_days(10)
            with cluster.phase("quickstart: suspend"):
                patch = '{"spec": {"suspend": true}}'
                cluster.kubectl("patch", "tsx/flights", where, "--type=merge", "-p", patch)
                cluster.wait_for(
                    "suspended job", lambda: quickstart.condition("tsx", "flights", "Ready")[1] == "Suspended", SECONDS
                )
            check(cluster, quickstart, namespace)
        finally:
            with cluster.phase("quickstart: delete"):
                cluster.kubectl("delete", "tsx,tsc,tsm,tss", "--all", where, "--timeout=200s", seconds=240)


def check(cluster: Cluster, quickstart: Quickstart, namespace: str) -> None:
    """A job that runs once compares the store with the truth."""
    program = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "check"},
        "data": {"check.py": PROGRAM.read_text()},
    }
    job = {
        "apiVersion": "tussock.dev/v1alpha1",
        "kind": "Compute",
        "metadata": {"name": "check"},
        "spec": {
            "storeRef": {"name": "flights"},
            "mode": "Batch",
            "restartPolicy": {"type": "Never"},
            "application": {"configMap": {"name": "check", "key": "check.py"}},
        },
    }
    cluster.apply(program, job, namespace=namespace)

    def end_reason() -> str:
        reason = quickstart.condition("tsx", "check", "Ready")[1]
        return reason if reason in ("Completed", "Failed", "DriverFailed") else ""

    with cluster.phase("quickstart: results compared"):
        reason = cluster.wait_for("verdict", end_reason, SECONDS)
    assert reason == "Completed", quickstart.condition("tsx", "check", "Ready")
