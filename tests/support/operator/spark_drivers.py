"""A driver's process with the settings, template and rights that a job gets, against a real API server.

Nothing runs the executors that it makes, since there is no node; `run_executor` does what a kubelet would.
"""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pyspark
from kubernetes import client, config

from support.buckets.minio import free_port
from support.operator.computes import World
from support.operator.process import Body, Objects
from tussock.operator.planning.words.model import Ref

__all__ = ["DRIVER_IP", "Driver", "executor_environment", "running_driver", "running_executor"]

ROOT = Path(__file__).resolve().parents[3]
DRIVER_IP, EXECUTOR_IP = "127.0.0.2", "127.0.0.3"
"""All of 127.0.0.0/8 is this machine, so each pod may have a different address, as on a node."""
SECRET = "/etc/tussock/spark/secret"


class Driver(NamedTuple):
    """A running driver."""

    process: subprocess.Popen[bytes]
    log: Path
    folder: Path
    """Stands for its files: `executors` has their number, `secret` the password of Spark's traffic."""
    ui_port: int
    objects: Objects

    def executors(self) -> list[Body]:
        """The executors' pods that it has made."""
        pods = self.objects.list("Pod")
        return [pod for pod in pods if pod["metadata"].get("labels", {}).get("spark-role") == "executor"]


@contextmanager
def running_driver(objects: Objects, folder: Path, world: World, application: str, *arguments: str) -> Iterator[Driver]:
    """Run the driver of the job of `world`, whose children are applied first; it is killed at the end."""
    for ref, child in world.children.items():
        child["metadata"] = {**child["metadata"], "namespace": objects.namespace}
        child["metadata"].pop("ownerReferences", None)
        if ref.kind == "RoleBinding":
            child["subjects"][0]["namespace"] = objects.namespace
        objects.apply(child)
    files = world.children[Ref("ConfigMap", "x-driver")]["data"]
    (folder / "executors").write_text(files.get("executors", "1\n"))
    (folder / "executor-pod.json").write_text(files["executor-pod.json"])
    (folder / "app.py").write_text(application)
    (folder / "secret").write_text("of the job " * 4)
    conf = files["spark-defaults.conf"].replace("/etc/tussock/compute", str(folder))
    conf = conf.replace(SECRET, str(folder / "secret"))
    conf = conf.replace("spark.kubernetes.namespace=team", f"spark.kubernetes.namespace={objects.namespace}")
    ui_port = free_port()
    ports = {"spark.driver.port": "0", "spark.driver.blockManager.port": "0", "spark.blockManager.port": "0"}
    changed = {**_credentials(objects, "x-driver", folder), **ports, "spark.ui.port": str(ui_port)}
    kept = [line for line in conf.splitlines() if line.partition("=")[0] not in changed]
    (folder / "spark-defaults.conf").write_text("\n".join([*kept, *(f"{k}={v}" for k, v in changed.items())]) + "\n")
    [container] = world.driver()["spec"]["containers"]
    environ = {
        **os.environ,
        **{entry["name"]: entry["value"] for entry in container["env"] if entry["name"] == "SPARK_LOCAL_IP"},
        "TUSSOCK_SPARK_CONF": str(folder / "spark-defaults.conf"),
        "TUSSOCK_EXECUTORS_FILE": str(folder / "executors"),
        "TUSSOCK_COMPUTE_MODE": "Batch",
        "TUSSOCK_STATUS_PORT": str(free_port()),
        "TUSSOCK_DRAIN_SECONDS": "40",
        "POD_IP": DRIVER_IP,
        "POD_NAME": "x-driver",
    }
    log = folder / "driver.log"
    with log.open("wb") as out:
        command = [sys.executable, "-m", "tussock.compute.driver", str(folder / "app.py"), *arguments]
        process = subprocess.Popen(command, env=environ, cwd=folder, stdout=out, stderr=out)
    try:
        yield Driver(process, log, folder, ui_port, objects)
    finally:
        process.kill()
        process.wait()


def executor_environment(pod: Body, folder: Path) -> dict[str, str]:
    """The variables that Spark and the template give an executor, filled in as by a node."""
    told = {**_values(pod), "SPARK_EXECUTOR_POD_IP": EXECUTOR_IP, "SPARK_EXECUTOR_POD_NAME": pod["metadata"]["name"]}
    home = {"SPARK_HOME": str(Path(pyspark.__file__).parent), "PYSPARK_PYTHON": sys.executable}
    return {**os.environ, **told, **home, "SPARK_LOCAL_DIRS": str(folder), "SPARK_CONF_DIR": str(folder)}


@contextmanager
def running_executor(environment: Mapping[str, str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run an executor by the entrypoint of the project's image."""
    command = [sys.executable, str(ROOT / "images/spark/entrypoint.py"), "executor"]
    with log.open("wb") as out:
        process = subprocess.Popen(command, env=dict(environment), cwd=log.parent, stdout=out, stderr=out)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def _values(pod: Body) -> dict[str, str]:
    [container] = pod["spec"]["containers"]
    return {entry["name"]: entry["value"] for entry in container["env"] if entry.get("value") is not None}


def _credentials(objects: Objects, account: str, folder: Path) -> dict[str, str]:
    """Spark's settings for showing a token of that account, as the kubelet would mount it."""
    api: Any = config.new_client_from_config(str(objects.kubeconfig))
    request = client.AuthenticationV1TokenRequest(spec=client.V1TokenRequestSpec(audiences=[], expiration_seconds=3600))
    core = client.CoreV1Api(api)
    answer = core.create_namespaced_service_account_token(account, objects.namespace, request)
    (folder / "token").write_text(answer.status.token)
    (folder / "ca.crt").write_bytes(Path(api.configuration.ssl_ca_cert).read_bytes())
    prefix = "spark.kubernetes.authenticate"
    return {
        "spark.master": f"k8s://{api.configuration.host}",
        f"{prefix}.oauthTokenFile": str(folder / "token"),
        f"{prefix}.caCertFile": str(folder / "ca.crt"),
    }
