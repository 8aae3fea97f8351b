"""Stores."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tussock.statestore import StateStore, connect


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StateStore]:
    with connect((tmp_path / "store").as_uri(), compaction=False) as opened:
        yield opened
