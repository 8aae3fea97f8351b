"""An older release of Tussock, from the history of this repository, as processes beside those of the present one."""

import io
import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest

__all__ = ["OLDEST", "ClientProcess", "Release", "older_release"]

OLDEST = "3edcc0a4"
"""The oldest state of the code with which `docs/upgrades.md` promises to work: of 26 November 2026, soon after the
format of the log had all of version 7. A release with another format moves it."""
PACKAGES = ("statestore", "meta", "compactor", "cli", "compute")

ROOT = Path(__file__).resolve().parents[3]
_PROGRAM = Path(__file__).with_name("client_program.py")


class Release:
    """A state of the code, by the folder that its packages are in."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.environment = {"PYTHONPATH": ":".join(str(folder / package) for package in PACKAGES)}
        """Comes before what is installed, so that the same Python runs this release."""

    def __repr__(self) -> str:
        return self.name


def older_release(folder: Path) -> Release:
    """The release of `OLDEST`, unpacked; skips the test where the history is not there, as in a shallow copy."""
    told = subprocess.run(
        ["git", "-C", str(ROOT), "archive", OLDEST, *PACKAGES], capture_output=True, check=False, timeout=120
    )
    if told.returncode:
        pytest.skip(f"commit {OLDEST} is not in the history here: {told.stderr.decode(errors='replace').strip()}")
    with tarfile.open(fileobj=io.BytesIO(told.stdout)) as packed:
        packed.extractall(folder, filter="data")
    return Release("older", folder)


class ClientProcess:
    """A client of a store in a process that runs a release: see `client_program.py` for what it can be asked."""

    def __init__(self, release: Release, url: str) -> None:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TUSSOCK_")}
        self._process = subprocess.Popen(
            [sys.executable, str(_PROGRAM), url],
            env={**environment, **release.environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.folder = str(self._ask())
        """The folder of the code that it runs."""

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any) -> Any:
            assert self._process.stdin is not None
            self._process.stdin.write(json.dumps([name, *arguments]) + "\n")
            self._process.stdin.flush()
            return self._ask()

        return call

    def _ask(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"the client has ended with code {self._process.wait(60)}"
        answer = json.loads(line)
        if "error" in answer:
            raise AssertionError(answer["error"])
        return answer["value"]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(60)
        self._process.stdout.close()
