"""Which Python Spark's workers run."""

import os
import sys
from pathlib import Path

import pytest

from tussock.compute.spark.interpreter import settle_worker_python


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A virtual environment with a `python3`, which is not on the PATH, and nothing said about Spark."""
    # Set first, so that what the function sets is undone, too.
    monkeypatch.setenv("PYSPARK_PYTHON", "")
    monkeypatch.delenv("PYSPARK_PYTHON")
    folder = tmp_path / "venv"
    (folder / "bin").mkdir(parents=True)
    python = folder / "bin" / "python3"
    python.touch(0o755)
    monkeypatch.setattr(sys, "prefix", str(folder))
    monkeypatch.setattr(sys, "base_prefix", "/usr")
    monkeypatch.setattr(sys, "executable", str(python))
    monkeypatch.setenv("PATH", str(tmp_path))
    return python


def test_an_environment_off_the_path_is_used(environment: Path) -> None:
    """Otherwise workers would run a Python without the packages."""
    settle_worker_python()
    assert os.environ["PYSPARK_PYTHON"] == str(environment)


def test_an_active_environment_needs_nothing(environment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`python3` is the right one already, and by its short name it is so on other machines, too."""
    monkeypatch.setenv("PATH", str(environment.parent))
    settle_worker_python()
    assert "PYSPARK_PYTHON" not in os.environ


def test_outside_of_environments_nothing_changes(environment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Python of the system's is what the PATH is for."""
    monkeypatch.setattr(sys, "base_prefix", sys.prefix)
    settle_worker_python()
    assert "PYSPARK_PYTHON" not in os.environ


def test_what_the_user_says_stands(environment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`PYSPARK_PYTHON` is never replaced."""
    monkeypatch.setenv("PYSPARK_PYTHON", "/opt/python")
    settle_worker_python()
    assert os.environ["PYSPARK_PYTHON"] == "/opt/python"
