"""How many requests wait for their replies, of all callers and of each, and how many bytes they have."""

from collections import Counter
from collections.abc import Hashable

from tussock.compute.applications.errors import Full
from tussock.compute.service.server.settings import RequestLimits

__all__ = ["AGAIN_MS", "Outstanding"]

AGAIN_MS = 50


class Outstanding:
    """Used by the event loop only."""

    def __init__(self, limits: RequestLimits) -> None:
        """Nothing waits."""
        self._limits = limits
        self._of_callers: Counter[Hashable] = Counter()
        self.requests = 0
        self.nbytes = 0

    def enter(self, who: Hashable, size: int) -> None:
        """Count a request in; `Full` if there are too many, and nothing is counted."""
        limits = self._limits
        if self.requests >= limits.outstanding:
            raise _full(f"{self.requests:,} requests wait for their replies")
        if self._of_callers[who] >= limits.identity_outstanding:
            raise _full(f"{self._of_callers[who]:,} requests of this caller wait for their replies")
        if self.nbytes + size > limits.outstanding_bytes:
            raise _full(f"{self.nbytes:,} bytes of requests wait for their replies")
        self._of_callers[who] += 1
        self.requests += 1
        self.nbytes += size

    def leave(self, who: Hashable, size: int) -> None:
        """Count it out."""
        self.requests -= 1
        self.nbytes -= size
        self._of_callers[who] -= 1
        if self._of_callers[who] <= 0:
            del self._of_callers[who]


def _full(what: str) -> Full:
    return Full(f"{what} already; this one did not begin: try again in {AGAIN_MS} ms", AGAIN_MS)
