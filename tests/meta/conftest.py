"""Fixtures of the version log's tests."""

import pytest

from support.store.versions import FakeSystem, ModelBucket


@pytest.fixture
def system() -> FakeSystem:
    return FakeSystem()


@pytest.fixture
def bucket(system: FakeSystem) -> ModelBucket:
    return ModelBucket(system)
