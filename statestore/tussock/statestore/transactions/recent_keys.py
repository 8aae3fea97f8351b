"""Keys of SSTs that this store has just committed, so that conflicts with them are found without reading them."""

from collections import OrderedDict

__all__ = ["RecentKeys"]

KEYS_MAX = 100_000
"""Of all SSTs together; the oldest ones go."""


class RecentKeys:
    """By SST id; one thread notes, any may ask."""

    def __init__(self) -> None:
        self._keys: OrderedDict[str, frozenset[bytes]] = OrderedDict()
        self._count = 0

    def note(self, sst_id: str, keys: frozenset[bytes]) -> None:
        """All keys of an SST."""
        self._keys[sst_id] = keys
        self._count += len(keys) + 1
        while self._count > KEYS_MAX:
            _, gone = self._keys.popitem(last=False)
            self._count -= len(gone) + 1

    def get(self, sst_id: str) -> frozenset[bytes] | None:
        """The keys of an SST; `None` if they are not known."""
        return self._keys.get(sst_id)
