"""The store of the client's tests: the same suite embedded in three kinds of bucket, and on a platform."""

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from support.buckets.minio import MinioServer
from support.service.platforms import QUIET, Platform
from tussock.statestore import StateStore, connect

_names = count(1)


@pytest.fixture(params=["memory", "file", pytest.param("s3", marks=pytest.mark.minio), "platform"])
def bucket_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of an empty store in a bucket of each kind, or of a meta service; the same at each use."""
    if request.param == "memory":
        yield f"memory://store-{next(_names)}"
    elif request.param == "file":
        yield (tmp_path / "bucket").as_uri()
    elif request.param == "s3":
        server: MinioServer = request.getfixturevalue("minio")
        yield server.fresh_url()
    else:
        with Platform(f"memory://platform-{next(_names)}", compactors=1, picker=QUIET) as platform:
            yield platform.url


@pytest.fixture
def store(bucket_url: str) -> Iterator[StateStore]:
    """An empty store of each kind, without compaction unless the test asks for it."""
    with connect(bucket_url, compaction=False) as opened:
        yield opened


@pytest.fixture
def other(store: StateStore) -> Iterator[StateStore]:
    """A second client of the same store, as another process would be."""
    with connect(store.url, compaction=False) as opened:
        yield opened
