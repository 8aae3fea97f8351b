"""Fixtures that more than one room's tests use."""

import os
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import hypothesis
import pytest

from cluster.binaries import API_SERVER, BUILD_SECONDS_MAX, NoCluster
from cluster.binaries import missing as missing_programs
from support.buckets.minio import MinioServer, NoMinio, build_binary, find_binary
from support.kubernetes.api_server import running_api_server
from support.spark.shared_classes import JAVA_OPTIONS, java_options

pytest_plugins = ("support.workers", "support.everyday", "support.times", "support.unraisable", "support.spark.loggers")

# How long an example takes says more of what else the machine does than of the code.
hypothesis.settings.register_profile("busy-machine", deadline=None)
hypothesis.settings.load_profile("busy-machine")

os.environ.setdefault("SPARK_SUBMIT_OPTS", java_options())
os.environ.setdefault("SPARK_LAUNCHER_OPTS", JAVA_OPTIONS)

# Thousands of processes would each compile all modules of Tussock anew, which is a fifth of their start.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

_memory_names = count(1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave the longest tests to CI, unless asked for; give tests of what has to be built first the time for it."""
    if not os.environ.get("TUSSOCK_LONG_TESTS"):
        for item in items:
            if item.get_closest_marker("long"):
                item.add_marker(pytest.mark.skip(reason="takes minutes: set TUSSOCK_LONG_TESTS=1, as .ci/run does"))
    try:
        must_build = find_binary() is None
    except NoMinio:
        must_build = False
    if must_build:
        for item in items:
            if item.get_closest_marker("minio"):
                item.add_marker(pytest.mark.timeout(BUILD_SECONDS_MAX + 300))
    if missing_programs(API_SERVER):
        for item in items:
            if "api_server" in getattr(item, "fixturenames", ()):
                item.add_marker(pytest.mark.timeout(BUILD_SECONDS_MAX + 300))


@pytest.fixture(scope="session")
def minio(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MinioServer]:
    """A running MinIO, with the environment set so that `s3://` URLs reach it; its tests carry the mark `minio`."""
    try:
        binary = find_binary()
        if binary is None:
            terminal = request.config.pluginmanager.get_plugin("terminalreporter")
            if terminal is not None:
                terminal.write_line("Building MinIO with Go, once; this takes some minutes.")
            binary = build_binary()
    except NoMinio as error:
        pytest.skip(str(error))
    server = MinioServer(binary, tmp_path_factory.mktemp("minio"))
    server.start()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in server.environment.items():
            patch.setenv(name, value)
        yield server
    server.stop()


@pytest.fixture(scope="session")
def api_server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The administrator's kubeconfig of a real API server without a cluster behind it; tests use their own names."""
    terminal = request.config.pluginmanager.get_plugin("terminalreporter")
    if terminal is not None and missing_programs(API_SERVER):
        terminal.write_line("Building etcd and kube-apiserver with Go, once; this takes some minutes.")
    try:
        with running_api_server(tmp_path_factory.mktemp("api-server")) as kubeconfig:
            yield kubeconfig
    except NoCluster as error:
        pytest.skip(str(error))


@pytest.fixture(params=["memory", "file", pytest.param("s3", marks=pytest.mark.minio)])
def bucket_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """URL of an empty bucket of each kind; opening it twice gives the same bucket."""
    if request.param == "memory":
        return f"memory://test-{next(_memory_names)}"
    if request.param == "file":
        return (tmp_path / "bucket").as_uri()
    server: MinioServer = request.getfixturevalue("minio")
    return server.fresh_url()
