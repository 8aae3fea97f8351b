"""A real API server with Tussock's definitions, an operator on it, and names that no other test has."""

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from support.buckets.minio import MinioServer
from support.kubernetes.kubectl import Kubectl
from support.operator.process import Body, Objects, OperatorProcess, eventually
from support.operator.stores_in_cluster import store_on

CRDS = Path(__file__).resolve().parents[2] / "crds"
_numbers = count(1)


@pytest.fixture(scope="session")
def definitions(api_server: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The kubeconfig of an API server that knows Tussock's kinds."""
    kubectl = Kubectl(api_server, tmp_path_factory.mktemp("kubectl"))
    kubectl.define(CRDS)
    return api_server


@pytest.fixture
def objects(definitions: Path) -> Objects:
    """A namespace of this test alone, which no operator watches."""
    found = Objects(definitions, f"test-{next(_numbers)}")
    found.make_namespace()
    return found


@pytest.fixture(scope="session")
def shared(definitions: Path) -> Objects:
    """The namespace that the fixture `operator` watches; each test makes objects under its own names in it."""
    found = Objects(definitions, "shared")
    found.make_namespace()
    return found


@pytest.fixture(scope="session")
def operator(definitions: Path, shared: Objects, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OperatorProcess]:
    """One operator for all tests that do not harm it."""
    process = OperatorProcess(definitions, tmp_path_factory.mktemp("operator"), shared.namespace, lease="shared")
    process.keep()
    eventually("an operator that leads", lambda: "leading" in process.log())
    yield process
    assert process.stop() == 0, process.log()[-2000:]
    assert "Traceback" not in process.log(), process.log()[-4000:]


@pytest.fixture(autouse=True)
def no_operator_is_left() -> Iterator[None]:
    """End the processes that a failed test left behind."""
    before = set(OperatorProcess.running)
    yield
    for process in OperatorProcess.running - before:
        process.kill()


@pytest.fixture
def name() -> str:
    """A name that no other test uses."""
    return f"s{next(_numbers)}"


@pytest.fixture
def store(name: str, minio: MinioServer, shared: Objects) -> Body:
    """A store on a new prefix in a real bucket, with the secret that it names; not created yet."""
    return store_on(minio, shared, name)
