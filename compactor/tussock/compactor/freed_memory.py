"""Memory that the C library keeps of what was freed, given back while a compaction goes on.

Batches of all sizes, which several threads allocate and free, leave gaps in the heap that the C library keeps: they
grew to 300 MiB beside 300 MiB in use, the more slowly a merge went on.
"""

import ctypes
from collections.abc import Callable
from functools import cache

__all__ = ["FreedMemory"]

EVERY_BYTES = 64 << 20
"""Of merged rows: about one SST. It takes some 30 ms then, in which such an SST takes one or two seconds."""


class FreedMemory:
    """Gives it back once in a while, in a task of many bytes: it looks at all of the process's heap."""

    def __init__(self) -> None:
        self._merged = 0

    def note(self, nbytes: int) -> None:
        """That many bytes were merged since the last call."""
        self._merged += nbytes
        if self._merged >= EVERY_BYTES:
            self._merged = 0
            give_back()


def give_back() -> None:
    """Have the C library give back pages in which nothing lies; does nothing where it is not glibc's."""
    _trim()(0)


@cache
def _trim() -> Callable[[int], object]:
    try:
        trim: Callable[[int], object] = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):
        return lambda _: None
    return trim
