"""The two releases, unpacked once."""

import pytest

from support.releases.older import ROOT, Release, older_release


@pytest.fixture(scope="session")
def older(tmp_path_factory: pytest.TempPathFactory) -> Release:
    return older_release(tmp_path_factory.mktemp("older"))


@pytest.fixture(scope="session")
def present() -> Release:
    return Release("present", ROOT)
