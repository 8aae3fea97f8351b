"""The store that the client's tests run on: the same suite over memory, a folder and a real MinIO."""

from collections.abc import Iterator

import pytest

from tussock.statestore import StateStore, connect


@pytest.fixture
def store(bucket_url: str) -> Iterator[StateStore]:
    """An empty store on each kind of bucket; nothing is compacted unless the test says so."""
    with connect(bucket_url, compaction=False) as opened:
        yield opened


@pytest.fixture
def other(store: StateStore) -> Iterator[StateStore]:
    """A second client on the same bucket, as another process would be."""
    with connect(store.url, compaction=False) as opened:
        yield opened
