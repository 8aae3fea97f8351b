"""Which keys the transactions of an epoch touched, and who has to run again for it; keys are numbers."""

from collections.abc import Sequence

import numpy as np

from tussock.compute.functions.epochs.conflicts import Conflicts, losers

__all__ = ["TouchedKeys"]


class TouchedKeys:
    """Reads and writes of all transactions, each of which is its place in the order of the numbers."""

    def __init__(self) -> None:
        self.read_by: list[int] = []
        self.read_key: list[int] = []
        self.write_by: list[int] = []
        self.write_key: list[int] = []

    def lost(self, conflicts: Conflicts, transactions: int, keys: int, used: int) -> list[bool]:
        """For each transaction whether it has to run again. Keys are below `keys`, and `used` of them are touched."""
        if transactions < 2 or not self.write_by or used == len(self.read_by) + len(self.write_by):
            return [False] * transactions
        lost = losers(
            conflicts,
            transactions,
            keys,
            (np.array(self.read_by, np.int64), np.array(self.read_key, np.int64)),
            (np.array(self.write_by, np.int64), np.array(self.write_key, np.int64)),
        )
        found: list[bool] = lost.tolist()
        return found

    def met(self, lost: Sequence[bool]) -> list[int]:
        """For each transaction that lost a key that a lower one writes, if there is one."""
        first = dict(zip(reversed(self.write_key), reversed(self.write_by), strict=True))
        found: dict[int, int] = {}
        for by, keys in ((self.write_by, self.write_key), (self.read_by, self.read_key)):
            for at, key in zip(by, keys, strict=True):
                if lost[at] and at not in found and first.get(key, at) < at:
                    found[at] = key
        return list(found.values())
