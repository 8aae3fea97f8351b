"""A script of `FaultyBucket`: an outage that a test begins and ends."""

from collections.abc import Callable

from support.buckets.faulty_bucket import Call, Fate

__all__ = ["Outage"]


class Outage:
    """From `begin` on nothing can be written to the bucket, until `end`."""

    def __init__(self, *prefixes: str, on_loss: Callable[[], object] = lambda: None) -> None:
        """Of paths with these prefixes; `on_loss` is called with each request that is lost."""
        self._prefixes = prefixes
        self._on_loss = on_loss
        self._is_on = False

    def begin(self) -> None:
        """It is away."""
        self._is_on = True

    def end(self) -> None:
        """It is back."""
        self._is_on = False

    def __call__(self, call: Call) -> Fate:
        is_write = call.operation in ("put", "create") and call.path.startswith(self._prefixes)
        if not (self._is_on and is_write):
            return Fate.PASS
        self._on_loss()
        return Fate.LOSE_REQUEST
