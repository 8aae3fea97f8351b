"""Where the time of a task goes: reads of what is stored, the user's function, encoding, and waits for the bucket."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

import msgspec

from tussock.statestore.base.system import RealSystem

__all__ = ["Meter", "TimeSpent"]

T = TypeVar("T")


class TimeSpent(msgspec.Struct, frozen=True):
    """Seconds of one task, or of several together, by step. What happens at the same time counts once per task.

    The steps of a task add up to its time, without its waits for rows: those belong to what computes the rows.
    """

    read: float = 0.0
    """Reads of stored rows, state and timers."""
    function: float = 0.0
    """The function passed to `stateful`."""
    encode: float = 0.0
    """The rest: sorting and merging rows, and building SSTs."""
    upload: float = 0.0
    """Waits for SSTs to be in the bucket, without uploads that ran while others were encoded."""

    @property
    def total(self) -> float:
        """All steps together."""
        return self.read + self.function + self.encode + self.upload

    @classmethod
    def sum(cls, parts: Sequence["TimeSpent"]) -> "TimeSpent":
        """The sum over several tasks."""
        return cls(*(sum(getattr(part, name) for part in parts) for name in cls.__struct_fields__))


class Meter:
    """Measures one task from now on; only for the thread that does its work."""

    def __init__(self) -> None:
        self._now = RealSystem().monotonic
        self._began = self._now()
        self._idle = self._read = self._function = self._upload = 0.0

    def rows(self, batches: Iterable[T]) -> Iterator[T]:
        """The batches; waits for them do not count."""
        source = iter(batches)
        while True:
            began = self._now()
            batch = next(source, None)
            self._idle += self._now() - began
            if batch is None:
                return
            yield batch

    @contextmanager
    def reading(self) -> Iterator[None]:
        """What happens inside counts as a read."""
        began = self._now()
        try:
            yield
        finally:
            self._read += self._now() - began

    @contextmanager
    def calling(self) -> Iterator[None]:
        """What happens inside counts as the user's function."""
        began = self._now()
        try:
            yield
        finally:
            self._function += self._now() - began

    def add_wait(self, seconds: float) -> None:
        """Add seconds in which the task waited for the bucket to take its SSTs."""
        self._upload += seconds

    def spent(self) -> TimeSpent:
        """What the task has spent so far."""
        rest = self._now() - self._began - self._idle - self._read - self._function - self._upload
        return TimeSpent(self._read, self._function, max(rest, 0.0), self._upload)
