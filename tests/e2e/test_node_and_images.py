"""The images run a platform by plain manifests, without the operator, which relies on the same things.

Every pod is of the restricted profile (the namespace enforces it) with a root file system that can't be written.
"""

import signal
from collections.abc import Iterator

import pytest

from cluster import images
from cluster.view.client import Cluster
from cluster.view.pods import pod, service
from support.kubernetes.programs_in_pods import PROGRAMS, result_of, run_program, start_minio

META = "tussock://meta:7370"
COMPRESSED_BYTES_MAX = {"operator": 120e6, "node": 250e6}


@pytest.fixture(scope="module")
def platform(cluster: Cluster, image_names: dict[str, str]) -> Iterator[str]:
    """A namespace with MinIO on a volume, one replica of the meta service, and a compactor."""
    with cluster.namespace("plain") as namespace:
        with cluster.phase("plain manifests to a platform that is ready"):
            start_platform(cluster, namespace, image_names)
        yield namespace


def start_platform(cluster: Cluster, namespace: str, image_names: dict[str, str]) -> None:
    """MinIO, then its bucket, then the service and a compactor; returns when all are ready."""
    start_minio(cluster, namespace, image_names)
    cluster.apply(
        service("meta", 7370, 7371),
        pod(
            "meta",
            image_names["node"],
            arguments=[
                *("meta", "serve", "--store", "s3://tussock/plain", "--advertise", "meta:7370"),
                *("--listen", "0.0.0.0:7370", "--http-listen", "0.0.0.0:7371"),
            ],
            secrets=["bucket"],
            ready=(7371, "/readyz"),
        ),
        pod("compactor", image_names["node"], arguments=["compactor", "--meta", "meta:7370"], secrets=["bucket"]),
        namespace=namespace,
    )
    cluster.wait_ready("pod/meta", "pod/compactor", namespace=namespace)


def test_writes_are_counted_and_the_api_server_comes_back(cluster: Cluster) -> None:
    """Other tests rely on this: a write is in the audit log, and a killed API server starts again with all objects."""
    if cluster.node is None:
        pytest.skip("on another cluster there is no audit log, and its API server is not ours to kill")
    with cluster.namespace("writes") as namespace:
        name = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "counted"}}
        cluster.apply(name, namespace=namespace)
        server = cluster.node.daemon("kube-apiserver")
        server.stop(signal.SIGKILL)
        assert not cluster.node.api_is_ready()
        cluster.node.start("kube-apiserver")
        cluster.wait_for("API server", cluster.node.api_is_ready)
        assert cluster.get("configmap", "counted", namespace) is not None
        place = {"namespace": namespace, "name": "counted"}
        writes = [line for line in cluster.audited_writes() if line["objectRef"].items() >= place.items()]
        assert [(line["verb"], line["user"]["username"]) for line in writes] == [("patch", "admin")]
        assert "fieldManager=kubectl" in writes[0]["requestURI"]


@pytest.mark.parametrize("part", ["operator", "node"])
def test_image_is_small(cluster: Cluster, image_names: dict[str, str], part: str) -> None:
    """The bytes of an image in a registry stay below its limit."""
    if cluster.node is None:
        pytest.skip("the images of another cluster were built elsewhere")
    size = images.compressed_bytes(image_names[part])
    print(f"image {part}: {size / 1e6:.1f} MB compressed")
    assert size < COMPRESSED_BYTES_MAX[part]


@pytest.mark.parametrize("part", ["operator", "node", "spark"])
def test_image_runs_as_its_user(cluster: Cluster, image_names: dict[str, str], part: str, platform: str) -> None:
    """By default an image runs as 10001, finds its modules compiled, and can write nothing but /tmp."""
    name = f"user-of-{part}"
    text = (PROGRAMS / "who_am_i.py").read_text()
    cluster.apply(pod(name, image_names[part], command=["python", "-c", text]), namespace=platform)
    result = result_of(cluster, platform, name)
    assert (result["user"], result["group"]) == (10001, 10001)
    assert result["writable"] == ["/tmp"]
    assert result["not_compiled"] == []


def test_client_commits_and_reads_epochs(cluster: Cluster, platform: str, image_names: dict[str, str]) -> None:
    """A client in a pod commits two epochs, reads both, and has the compactor merge them."""
    with cluster.phase("client pod commits, reads and compacts"):
        result = run_program(cluster, platform, "commit_and_read", image_names["node"], secret_names=["bucket"])
    assert result == {"now": {"a": "2", "b": None}, "before": {"a": "1", "b": "1"}, "runs": 1}
