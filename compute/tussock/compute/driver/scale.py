"""How many executors a running job has: the operator writes a number into a file, and Spark follows it.

The file is part of a ConfigMap, so it changes under a running pod, and a job scales without a restart. A pass compares
what is with what should be, so it does not matter which passes ran before it, or whether they ended.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

__all__ = ["ExecutorPool", "Scaler", "surplus", "wanted_executors"]


class ExecutorPool(Protocol):
    """What can be scaled, as `context.Executors`."""

    def active(self) -> list[str]:
        """Ids of the executors that take tasks."""

    def request(self, total: int) -> None:
        """Set the number of executors from now on."""

    def decommission(self, executors: list[str]) -> None:
        """Let these leave when they have finished what they run."""


def wanted_executors(path: Path) -> int | None:
    """The number in the file; `None` if there is no file: then Spark decides (dynamic allocation).

    Raises `ValueError` if the file holds something else.
    """
    try:
        text = path.read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        return None
    if not (text.isascii() and text.isdigit()):
        raise ValueError(f"{path} holds {text[:40]!r}; expected the number of executors")
    return int(text)


def surplus(active: Sequence[str], wanted: int) -> list[str]:
    """The executors that are too many: the newest, as they have cached the least. Spark numbers executors from 1."""
    return sorted(active, key=int)[wanted:]


class Scaler:
    """Scales executors to the number in a file, pass by pass."""

    def __init__(self, path: Path, started_with: int | None) -> None:
        self._path = path
        self._requested = started_with

    @property
    def requested(self) -> int | None:
        """The number that Spark was last asked for."""
        return self._requested

    def step(self, executors: ExecutorPool) -> list[str]:
        """One pass; returns the executors that leave. Raises `ValueError` if the file is invalid."""
        wanted = wanted_executors(self._path)
        if wanted is None:
            return []
        if wanted != self._requested:
            executors.request(wanted)
            self._requested = wanted
        leaving = surplus(executors.active(), wanted)
        if leaving:
            executors.decommission(leaving)
        return leaving
