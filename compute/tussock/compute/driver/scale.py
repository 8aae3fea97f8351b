"""How many executors a running job has: the operator writes it into a file, and Spark follows it.

The file has a number, or bounds and how far streams may be behind (`lag.py`). It is part of a ConfigMap, so it changes
under a running pod, and a job scales without a restart. A pass compares what is with what should be, so it does not
matter which passes ran before it, or whether they ended.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from tussock.compute.driver.lag import Course, Goal, StreamLook, next_course, words

__all__ = ["ExecutorPool", "Scaler", "first_number", "surplus", "wanted_executors"]

_GOAL = re.compile(r"([1-9][0-9]{0,4})-([1-9][0-9]{0,4}) within ([1-9][0-9]{0,9}) s", re.ASCII)


class ExecutorPool(Protocol):
    """What can be scaled, as `context.Executors`."""

    def active(self) -> list[str]:
        """Ids of the executors that take tasks."""

    def request(self, total: int) -> None:
        """Set the number of executors from now on."""

    def decommission(self, executors: list[str]) -> None:
        """Let these leave when they have finished what they run."""


def wanted_executors(path: Path) -> int | Goal | None:
    """The number in the file, or the goal; `None` if there is no file: then Spark decides (dynamic allocation).

    Raises `ValueError` if the file holds something else.
    """
    try:
        text = path.read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        return None
    if found := _GOAL.fullmatch(text):
        least, most, seconds = map(int, found.groups())
        if least <= most:
            return Goal(least, most, seconds)
    elif text.isascii() and text.isdigit():
        return int(text)
    raise ValueError(f"{path} holds {text[:40]!r}; expected the number of executors, or a goal: '1-8 within 30 s'")


def first_number(asked: int | Goal | None) -> int | None:
    """With how many executors Spark starts; `None`: it decides."""
    return asked.least if isinstance(asked, Goal) else asked


def surplus(active: Sequence[str], wanted: int) -> list[str]:
    """The executors that are too many: the newest, as they have cached the least. Spark numbers executors from 1."""
    return sorted(active, key=int)[wanted:]


class Scaler:
    """Scales executors to what a file asks for, pass by pass."""

    def __init__(self, path: Path, started_with: int | None) -> None:
        self._path = path
        self._requested = started_with
        self._course: Course | None = None
        self.why = ""
        """Why there are as many as there are, where the driver decides."""

    @property
    def requested(self) -> int | None:
        """The number that Spark was last asked for."""
        return self._requested

    def step(self, executors: ExecutorPool, behind: float | None, batches: int, now: float) -> list[str]:
        """One pass; returns the executors that leave. Raises `ValueError` if the file is invalid.

        `behind` and `batches` are those of a `StreamLook`, `now` is the time of a clock that never goes back.
        """
        asked = wanted_executors(self._path)
        if asked is None:
            return []
        active = executors.active()
        wanted = self._decide(asked, StreamLook(behind, batches, len(active)), now)
        if wanted != self._requested:
            executors.request(wanted)
            self._requested = wanted
        leaving = surplus(active, wanted)
        if leaving:
            executors.decommission(leaving)
        return leaving

    def _decide(self, asked: int | Goal, look: StreamLook, now: float) -> int:
        if isinstance(asked, int):
            self._course, self.why = None, ""
            return asked
        # It goes on from the number that the job has: the fewest at its start, or what was asked for until now.
        course = self._course or Course(self._requested or asked.least, "The driver chooses from now on.", now)
        self._course = next_course(asked, course, look, now)
        self.why = words(asked, self._course, look, now)
        return self._course.wanted
