"""When a transaction is complete, without knowing how many calls it makes (Styx, section 5.3).

The root holds one share. A function that calls `n` others gives each of them the n-th part of what it has, and one that
calls nobody returns its share; the transaction is complete when one whole share has come back. Shares are exact: a
share is one part of a whole number of parts, so it is kept as that number. With floats, 21 parts of (1/3)/7 add up to
more than 1, and ten of 0.1 to less.
"""

from math import gcd

__all__ = ["ROOT", "Acks"]

ROOT = 1
"""The root's share: one part of one."""


class Acks:
    """The shares that have come back, as an exact fraction."""

    def __init__(self) -> None:
        self._parts = 0
        self._of = 1

    def add(self, of: int) -> None:
        """A share came back: one part of that many."""
        if of == self._of:
            self._parts += 1
            return
        common = gcd(of, self._of)
        self._parts = self._parts * (of // common) + self._of // common
        self._of *= of // common

    @property
    def parts(self) -> tuple[int, int]:
        """How many parts have come back, and of how many."""
        return self._parts, self._of

    def set(self, parts: int, of: int) -> None:
        """Go on from what has come back elsewhere."""
        self._parts, self._of = parts, of

    @property
    def is_complete(self) -> bool:
        """Whether the whole has come back."""
        return self._parts == self._of
