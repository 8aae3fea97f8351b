"""The cluster of the end-to-end tests: `$KUBECONFIG`, or this project's node if this machine can run one."""

import os
import tempfile
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from cluster import images
from cluster.binaries import PROGRAMS, NoCluster, missing
from cluster.node import check_machine
from cluster.sharing import Peace, share, shared_node
from cluster.view.client import Cluster

# Where another cluster finds the images that were built from this clone.
IMAGE_PREFIX = os.environ.get("TUSSOCK_IMAGE_PREFIX", "localhost/")
SECONDS_MAX = 1500
OPERATORS = "tussock-system"
ROOT = Path(__file__).resolve().parents[2]


@pytest.hookimpl(tryfirst=True)  # before `-m` chooses
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All tests of this folder are slow, and the first of them starts the node and builds the images."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.slow)
            item.add_marker(pytest.mark.timeout(SECONDS_MAX))


@pytest.fixture(scope="package")
def cluster() -> Iterator[Cluster]:
    """A Kubernetes cluster for the whole run; this project's node ends with the last run that uses it."""
    named = os.environ.get("KUBECONFIG")
    if named:
        yield Cluster(Path(named))
        return
    try:
        check_machine()
        if absent := missing():
            raise NoCluster(f"not built: {', '.join(absent)}; `make e2e` builds them")
        started = time.monotonic()
        with shared_node() as node:
            cluster = Cluster(node.kubeconfig, node)
            cluster.note("start the node", time.monotonic() - started)
            yield cluster
    except NoCluster as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module", autouse=True)
def peace(cluster: Cluster) -> Iterator[Peace]:
    """No other run harms what it shares with this one, while the tests of a module run."""
    with Peace(_of(cluster)).keep() as kept:
        yield kept


def _of(cluster: Cluster) -> Path:
    """The file by which runs agree on a cluster."""
    return Path(tempfile.gettempdir(), f"{OPERATORS}-{zlib.crc32(str(cluster.kubeconfig).encode()):08x}")


@pytest.fixture(scope="package")
def image_names(cluster: Cluster) -> dict[str, str]:
    """The images `operator`, `node`, `spark` and `minio`, built from this clone and known to the cluster."""
    names = {part: f"{IMAGE_PREFIX}tussock-{part}:dev" for part in ("operator", "node", "spark")}
    names["minio"] = f"{IMAGE_PREFIX}minio:dev"
    if cluster.node is not None:
        for part, name in names.items():
            with cluster.phase(f"build and load image {part}"):
                if part == "minio":
                    folder = PROGRAMS["minio"].path.parent
                    image = images.build(name, ROOT / "tests" / "cluster" / "minio" / "Dockerfile", folder)
                else:
                    image = images.build(name, ROOT / "images" / part / "Dockerfile")
                cluster.node.load(image, name)
    return names


@pytest.fixture(scope="package")
def next_image_names(cluster: Cluster, image_names: dict[str, str]) -> dict[str, str]:
    """The images `node` and `spark` by another tag: the same content, and to Kubernetes a new version."""
    names = {part: image_names[part].removesuffix("dev") + "next" for part in ("node", "spark")}
    if cluster.node is not None:
        for part, name in names.items():
            cluster.node.tag(image_names[part], name)
    return names


@pytest.fixture(scope="package")
def operator(cluster: Cluster, image_names: dict[str, str]) -> Iterator[str]:
    """The namespace of an operator that the chart has installed, for the whole cluster and all runs on it."""
    registry, _, rest = image_names["operator"].rpartition("/")
    tag = rest.partition(":")[2]
    minio, _, minio_tag = image_names["minio"].rpartition("/")[2].partition(":")
    values = {"image": {"registry": registry, "tag": tag, "minio": minio, "minioTag": minio_tag}}
    where = ["--namespace", OPERATORS]

    def install() -> None:
        helm = ["helm", "upgrade", "--install", "tussock", str(ROOT / "charts/tussock"), "--values", "-"]
        with cluster.phase("helm install to a ready operator"):
            wait = ["--create-namespace", "--wait", "--timeout", "5m"]
            done = cluster.run(*helm, *where, *wait, stdin=yaml.safe_dump(values), seconds=330)
            assert done.returncode == 0, done.stderr
        tested = cluster.run("helm", "test", "tussock", *where, seconds=120)
        assert tested.returncode == 0, tested.stdout + tested.stderr

    def uninstall() -> None:
        done = cluster.run("helm", "uninstall", "tussock", *where, "--wait", seconds=120)
        assert done.returncode == 0, done.stderr

    with share(_of(cluster), install, uninstall):
        yield OPERATORS
