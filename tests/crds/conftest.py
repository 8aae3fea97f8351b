"""An API server with Tussock's definitions in it, for all tests of this folder."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.binaries import API_SERVER, BUILD_SECONDS_MAX, NoCluster, missing
from support.kubernetes.api_server import running_api_server
from support.kubernetes.kubectl import Kubectl

CRDS = Path(__file__).resolve().parents[2] / "crds"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give the first run the time to build the API server."""
    here = Path(__file__).parent
    for item in items:
        if missing(API_SERVER) and here in item.path.parents and "kubectl" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.timeout(BUILD_SECONDS_MAX + 300))


@pytest.fixture(scope="package")
def kubectl(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubectl]:
    """`kubectl` against a real API server that knows the six kinds."""
    folder = tmp_path_factory.mktemp("api")
    try:
        with running_api_server(folder / "server") as kubeconfig:
            kubectl = Kubectl(kubeconfig, folder / "cache")
            kubectl.define(CRDS)
            yield kubectl
    except NoCluster as error:
        pytest.skip(str(error))
