"""Fixtures that more than one room's tests use."""

import os
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from support.minio import BUILD_SECONDS_MAX, MinioServer, NoMinio, build_binary, find_binary

_memory_names = count(1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave the longest tests to CI, unless asked for; give the first run of MinIO's tests the time to build it."""
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


@pytest.fixture(params=["memory", "file", pytest.param("s3", marks=pytest.mark.minio)])
def bucket_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """URL of an empty bucket of each kind; opening it twice gives the same bucket."""
    if request.param == "memory":
        return f"memory://test-{next(_memory_names)}"
    if request.param == "file":
        return (tmp_path / "bucket").as_uri()
    server: MinioServer = request.getfixturevalue("minio")
    return server.fresh_url()
