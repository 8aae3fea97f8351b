"""The command run in this process, and a store to run it on."""

import sys

import pytest

from support.store.command import Ran, Sample, Tussock, build_sample
from tussock.cli.main import main


@pytest.fixture
def tussock(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Tussock:
    """Run `tussock` with these arguments."""

    def run(*arguments: str) -> Ran:
        monkeypatch.setattr(sys, "argv", ["tussock", *arguments])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        code = ended.value.code
        return Ran(code if isinstance(code, int) else 0, out, err)

    return run


@pytest.fixture(scope="session")
def _session_sample(tmp_path_factory: pytest.TempPathFactory) -> Sample:
    return build_sample(tmp_path_factory.mktemp("sample") / "store")


@pytest.fixture
def sample(_session_sample: Sample, monkeypatch: pytest.MonkeyPatch) -> Sample:
    """A store that tests only read from; `TUSSOCK_STORE` points to it."""
    monkeypatch.setenv("TUSSOCK_STORE", _session_sample.url)
    return _session_sample
