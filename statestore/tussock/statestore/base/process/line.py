"""A line of those who wait, from which one thread at a time takes the first ones, to serve them together.

The thread may be interrupted at any step: Ctrl-C, or a signal whose handler raises, ends the main thread wherever it
is. What it had taken must not be lost then, as somebody waits for it: the next thread that takes is told of it. For
that each step here leaves nobody out: one is in the line until it is noted that it was taken.
"""

from collections import deque
from itertools import islice
from typing import Generic, TypeVar

__all__ = ["Line"]

T = TypeVar("T")


class Line(Generic[T]):
    """Those that wait, the oldest first; all calls come with the owner's lock held."""

    def __init__(self) -> None:
        self.waiting: deque[T] = deque()
        """To be looked at only."""
        self._taken: list[T] = []

    def add(self, one: T) -> None:
        """It waits from now on."""
        self.waiting.append(one)

    def withdraw(self, one: T) -> None:
        """It waits no longer; nothing happens if it does not."""
        if one in self.waiting:
            self.waiting.remove(one)

    def take(self, count: int) -> list[T]:
        """The first `count`, or as many as there are; they are the caller's until it calls `end`."""
        self._taken = list(islice(self.waiting, count))
        for _ in self._taken:
            self.waiting.popleft()
        return self._taken

    def end(self, again: list[T]) -> None:
        """All that were taken were served, but for those that wait `again`, before all others."""
        self.waiting.extendleft(reversed(again))
        self._taken = []

    def abandoned(self) -> list[T]:
        """What one took and did not `end`; to be asked before one takes, by the only thread that does."""
        for one in self._taken:
            self.withdraw(one)
        left, self._taken = self._taken, []
        return left
