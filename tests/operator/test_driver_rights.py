"""Spark itself, with the rights, the settings and the template that a job gets, against a real API server.

Nothing runs the executors, since there is no node here. What is seen is what Spark asks of the API, that the driver's
Role lets it do that, that the chart's policy takes the pods, and that it asks for nothing else.
"""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from kubernetes import client, config

from cluster.binaries import build
from support.computes import World, compute
from support.helm import Helm
from support.minio import free_port
from support.operators import Objects, eventually
from tussock.operator.planning.model import Ref

ROOT = Path(__file__).resolve().parents[2]
APPLICATION = """
import time
from pyspark.sql import SparkSession

SparkSession.builder.getOrCreate()
while True:
    time.sleep(1)
"""


def credentials(kubeconfig: Path, namespace: str, account: str, folder: Path) -> dict[str, str]:
    """Spark's settings for showing a token of that account, as the kubelet would mount it."""
    api = config.new_client_from_config(str(kubeconfig))
    request = client.AuthenticationV1TokenRequest(spec=client.V1TokenRequestSpec(audiences=[], expiration_seconds=3600))
    answer = client.CoreV1Api(api).create_namespaced_service_account_token(account, namespace, request)
    (folder / "token").write_text(answer.status.token)
    (folder / "ca.crt").write_bytes(Path(api.configuration.ssl_ca_cert).read_bytes())
    prefix = "spark.kubernetes.authenticate"
    return {
        "spark.master": f"k8s://{api.configuration.host}",
        f"{prefix}.oauthTokenFile": str(folder / "token"),
        f"{prefix}.caCertFile": str(folder / "ca.crt"),
    }


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(420)
def test_spark_needs_no_other_rights(objects: Objects, tmp_path: Path) -> None:
    """It makes executors by the template, owned by the driver's pod, more if the file says so, and takes them away."""
    build(("helm",))
    for one in Helm(ROOT / "charts/tussock").template({"crds": {"install": False}}):
        if one["kind"].startswith("ValidatingAdmission"):
            objects.apply(one)
    world = World(compute(mode="Batch", executor={"replicas": 1}))
    world.settle()
    for ref, child in world.children.items():
        child["metadata"] = {**child["metadata"], "namespace": objects.namespace}
        child["metadata"].pop("ownerReferences", None)
        if ref.kind == "RoleBinding":
            child["subjects"][0]["namespace"] = objects.namespace
        objects.apply(child)
    files = world.children[Ref("ConfigMap", "x-driver")]["data"]
    (tmp_path / "executors").write_text("1\n")
    (tmp_path / "executor-pod.json").write_text(files["executor-pod.json"])
    (tmp_path / "app.py").write_text(APPLICATION)
    conf = files["spark-defaults.conf"].replace("/etc/tussock/compute", str(tmp_path))
    conf = conf.replace("spark.kubernetes.namespace=team", f"spark.kubernetes.namespace={objects.namespace}")
    ports = {"spark.driver.port": "0", "spark.driver.blockManager.port": "0", "spark.ui.enabled": "false"}
    changed = {**credentials(objects.kubeconfig, objects.namespace, "x-driver", tmp_path), **ports}
    kept = [line for line in conf.splitlines() if line.partition("=")[0] not in changed]
    (tmp_path / "spark-defaults.conf").write_text("\n".join([*kept, *(f"{k}={v}" for k, v in changed.items())]) + "\n")
    environ = {
        **os.environ,
        "TUSSOCK_SPARK_CONF": str(tmp_path / "spark-defaults.conf"),
        "TUSSOCK_EXECUTORS_FILE": str(tmp_path / "executors"),
        "TUSSOCK_COMPUTE_MODE": "Batch",
        "TUSSOCK_STATUS_PORT": str(free_port()),
        "TUSSOCK_DRAIN_SECONDS": "40",
        "POD_IP": "127.0.0.1",
        "POD_NAME": "x-driver",
    }
    log = tmp_path / "driver.log"
    with log.open("wb") as out:
        command = [sys.executable, "-m", "tussock.compute.driver", str(tmp_path / "app.py")]
        process = subprocess.Popen(command, env=environ, cwd=tmp_path, stdout=out, stderr=out)

    def executors() -> list[dict[str, object]]:
        pods = objects.list("Pod")
        return [pod for pod in pods if pod["metadata"].get("labels", {}).get("spark-role") == "executor"]

    try:
        [pod] = eventually(f"an executor; {log}", executors, 150)
        driver = objects.get("Pod", "x-driver")
        assert driver is not None
        [owner] = pod["metadata"]["ownerReferences"]
        assert (owner["name"], owner["uid"]) == ("x-driver", driver["metadata"]["uid"])
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
        (tmp_path / "executors").write_text("3\n")
        eventually("three executors", lambda: len(executors()) == 3)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 143
        eventually("no executors", lambda: not executors())
    finally:
        process.kill()
        process.wait()
    user = f"system:serviceaccount:{objects.namespace}:x-driver"
    lines = (objects.kubeconfig.parent / "audit.log").read_text().splitlines()
    asked = [line for line in map(json.loads, lines) if line["user"]["username"] == user]
    assert {line["objectRef"]["resource"] for line in asked} == {"pods"}
    assert [line for line in asked if line["responseStatus"]["code"] >= 400] == []
    assert "orbidden" not in log.read_text()
