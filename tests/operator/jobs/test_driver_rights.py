"""Spark itself, with the rights, the settings and the template that a job gets, against a real API server.

Nothing runs the executors, since there is no node here. What is seen is what Spark asks of the API, that the driver's
Role lets it do that, that the chart's policy takes the pods, and that it asks for nothing else.
"""

import json
import signal
from pathlib import Path

import pytest

from cluster.binaries import build
from support.kubernetes.helm import Helm
from support.operator.computes import World, compute
from support.operator.process import Objects, eventually
from support.operator.spark_drivers import ROOT, running_driver

APPLICATION = """
import time
from pyspark.sql import SparkSession

SparkSession.builder.getOrCreate()
while True:
    time.sleep(1)
"""


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(420)
def test_spark_needs_no_other_rights(objects: Objects, tmp_path: Path) -> None:
    """It makes executors by the template, owned by the driver's pod, more if the file says so, and deletes them."""
    build(("helm",))
    for one in Helm(ROOT / "charts/tussock").template({"crds": {"install": False}}):
        if one["kind"].startswith("ValidatingAdmission"):
            objects.apply(one)
    world = World(compute(mode="Batch", executor={"replicas": 1}))
    world.settle()
    with running_driver(objects, tmp_path, world, APPLICATION) as driver:
        [pod] = eventually(f"an executor; {driver.log}", driver.executors, 150)
        made = objects.get("Pod", "x-driver")
        assert made is not None
        [owner] = pod["metadata"]["ownerReferences"]
        assert (owner["name"], owner["uid"]) == ("x-driver", made["metadata"]["uid"])
        assert pod["metadata"]["labels"]["tussock.dev/role"] == "executor"
        assert pod["metadata"]["labels"]["tussock.dev/owner"] == "x"
        [container] = pod["spec"]["containers"]
        assert container["args"] == ["executor"]
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert container["resources"]["limits"]["memory"] == "1536Mi"
        assert container["workingDir"] == "/tmp"
        assert "decom" in json.dumps(container["lifecycle"]["preStop"])
        assert pod["spec"]["automountServiceAccountToken"] is False
        assert pod["spec"]["securityContext"]["runAsNonRoot"] is True
        (driver.folder / "executors").write_text("3\n")
        eventually("three executors", lambda: len(driver.executors()) == 3)
        driver.process.send_signal(signal.SIGTERM)
        assert driver.process.wait(60) == 143
        eventually("no executors", lambda: not driver.executors())
    user = f"system:serviceaccount:{objects.namespace}:x-driver"
    lines = (objects.kubeconfig.parent / "audit.log").read_text().splitlines()
    asked = [line for line in map(json.loads, lines) if line["user"]["username"] == user]
    assert {line["objectRef"]["resource"] for line in asked} == {"pods"}
    assert [line for line in asked if line["responseStatus"]["code"] >= 400] == []
    assert "orbidden" not in driver.log.read_text()
