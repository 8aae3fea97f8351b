"""Helm, and releases of the chart in a real API server."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cluster.binaries import NoCluster, build, missing
from support.kubernetes.api_server import running_api_server
from support.kubernetes.helm import Helm
from support.kubernetes.kubectl import Kubectl

CHART = Path(__file__).resolve().parents[2] / "charts/tussock"


@pytest.fixture(scope="package")
def helm() -> Helm:
    """`helm` for what needs no cluster: built once, kept for all clones."""
    try:
        build(("helm",))
    except NoCluster as error:
        pytest.skip(str(error))
    return Helm(CHART)


@pytest.fixture(scope="package")
def cluster(helm: Helm, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Helm, Kubectl]]:
    """`helm` and `kubectl` against a real API server without any of our definitions."""
    folder = tmp_path_factory.mktemp("charts")
    with running_api_server(folder / "server") as kubeconfig:
        yield Helm(CHART, kubeconfig), Kubectl(kubeconfig, folder / "cache")


@pytest.fixture
def render(helm: Helm) -> Callable[..., dict[tuple[str, str], dict]]:
    """Renders the chart with values: objects by kind and name."""

    def render_chart(**values: object) -> dict[tuple[str, str], dict]:
        return {(one["kind"], one["metadata"]["name"]): one for one in helm.template(values)}

    return render_chart


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give the first run the time to build Helm and the API server."""
    here = Path(__file__).parent
    wanted = missing(("helm", "kubectl", "etcd", "kube-apiserver"))
    for item in items:
        if wanted and here in item.path.parents:
            item.add_marker(pytest.mark.timeout(2700))
