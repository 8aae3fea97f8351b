"""Programs that run to their end in a pod of the cluster, and an object store for them and for others."""

import json
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from cluster.view.client import Cluster
from cluster.view.pods import claim, pod, secret, service

__all__ = ["PROGRAMS", "BucketServer", "minio_pod", "result_of", "run_program", "start_minio"]

PROGRAMS = Path(__file__).resolve().parents[2] / "e2e" / "programs"


class BucketServer(NamedTuple):
    """A MinIO in a namespace, with the bucket `tussock`."""

    endpoint: str
    user: str
    password: str

    def environment(self) -> dict[str, str]:
        """The content of a secret for pods that use the bucket through environment variables."""
        keys = {"AWS_ACCESS_KEY_ID": self.user, "AWS_SECRET_ACCESS_KEY": self.password}
        return {**keys, "AWS_ENDPOINT_URL": self.endpoint, "AWS_ALLOW_HTTP": "true", "AWS_REGION": "us-east-1"}


def start_minio(cluster: Cluster, namespace: str, image_names: Mapping[str, str], small: str = "") -> BucketServer:
    """MinIO and its bucket; pods of the namespace find its variables in the secret `bucket`; `small` of `minio_pod`."""
    user, password = "user" + secrets.token_hex(4), secrets.token_hex(16)
    server = BucketServer(f"http://minio.{namespace}.svc:9000", user, password)
    cluster.apply(
        secret("minio", {"MINIO_ROOT_USER": user, "MINIO_ROOT_PASSWORD": password}),
        secret("bucket", server.environment()),
        claim("minio"),
        service("minio", 9000),
        minio_pod(image_names, small),
        namespace=namespace,
    )
    cluster.wait_ready("pod/minio", namespace=namespace)
    run_program(cluster, namespace, "make_bucket", image_names["node"], secret_names=["bucket"])
    return server


def minio_pod(image_names: Mapping[str, str], small: str = "") -> dict[str, Any]:
    """The pod of the server, on the volume of a claim.

    With `small`, such as `200Mi`, it is on a disk of that size in memory, which the container `beside`, a Python that
    sleeps, can write, too.
    """
    data = {"emptyDir": {"medium": "Memory", "sizeLimit": small}} if small else None
    volumes = {"/data": data or {"persistentVolumeClaim": {"claimName": "minio"}}}
    found = pod(
        "minio",
        image_names["minio"],
        arguments=["server", "--address=:9000", "/data"],
        secrets=["minio"],
        ready=(9000, "/minio/health/ready"),
        volumes=volumes,
    )
    if small:
        sleeping = ["python", "-c", "import time; time.sleep(1e6)"]
        beside = pod("minio", image_names["node"], command=sleeping, volumes=volumes)
        found["spec"]["containers"].append({**beside["spec"]["containers"][0], "name": "beside"})
    return found


def run_program(
    cluster: Cluster,
    namespace: str,
    name: str,
    image: str,
    *,
    secret_names: Sequence[str] = (),
    files: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
    volumes: Mapping[str, Mapping[str, Any]] | None = None,
    labels: Mapping[str, str] | None = None,
    called: str = "",
) -> dict[str, object]:
    """Run one of `programs` in a pod until it succeeds; returns the last line that it printed, which is JSON.

    `files` are beside the program. A program that runs more than once in a namespace is `called` something else.
    """
    pod_name = called or name.replace("_", "-")
    data = {"program.py": (PROGRAMS / f"{name}.py").read_text(), **(files or {})}
    runs = pod(
        pod_name,
        image,
        command=["python", "/program/program.py"],
        environment=environment,
        secrets=secret_names,
        volumes={"/program": {"configMap": {"name": pod_name}}, **(volumes or {})},
    )
    runs["metadata"]["labels"].update(labels or {})
    program = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": pod_name}, "data": data}
    cluster.apply(program, runs, namespace=namespace)
    return result_of(cluster, namespace, pod_name)


def result_of(cluster: Cluster, namespace: str, name: str, seconds: float = 180) -> dict[str, object]:
    """The last line that a pod printed, once it has succeeded."""

    def final_phase() -> str | None:
        found = cluster.get("pod", name, namespace)
        phase = found["status"]["phase"] if found else None
        return phase if phase in ("Succeeded", "Failed") else None

    phase = cluster.wait_for(f"end of pod {name}", final_phase, seconds)
    log = cluster.kubectl("logs", name, f"--namespace={namespace}")
    assert phase == "Succeeded", log
    result = json.loads(log.strip().splitlines()[-1])
    assert isinstance(result, dict)
    return result
