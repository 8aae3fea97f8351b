"""Programs that a test starts, and what they may import."""

import os
from collections.abc import Iterable
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
EXAMPLES = TESTS.parent / "examples"


def path_of_imports(*folders: str | Path) -> str:
    """A `PYTHONPATH`: those folders, the tests', and what this process was given."""
    own: Iterable[str] = filter(None, [os.environ.get("PYTHONPATH")])
    return os.pathsep.join([*map(str, folders), str(TESTS), *own])


def child_environment(*folders: str | Path) -> dict[str, str]:
    """The environment of this process, for a program that imports from `support` and from those folders."""
    return {**os.environ, "PYTHONPATH": path_of_imports(*folders)}
