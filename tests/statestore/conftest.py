"""Fixtures for reading and writing SSTs: an empty bucket in memory and a reader with a small cache."""

from collections.abc import Iterator

import pytest

from tussock.statestore.base.system import RealSystem
from tussock.statestore.buckets import open_bucket
from tussock.statestore.contract.object_store import ObjectStore
from tussock.statestore.sst.reader import Sstables


@pytest.fixture
def bucket() -> ObjectStore:
    return open_bucket("memory://")


@pytest.fixture
def sstables(bucket: ObjectStore) -> Iterator[Sstables]:
    opened = Sstables(bucket, 1 << 20, RealSystem())
    yield opened
    opened.close()
