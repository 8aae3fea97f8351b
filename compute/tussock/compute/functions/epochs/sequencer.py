"""Numbers transactions without messages between those who number (Styx, section 5.1).

Of `n` sequencers the one with id `sid` gives `sid`, `sid + n`, `sid + 2n`, ...: together they give each number once.
At the end of an epoch all go on from the furthest one, so that one with few requests gives no lower numbers than the
others later, which would let its requests go first.
"""

from collections.abc import Sequence

__all__ = ["EpochCount", "Sequencer", "rebalance"]


class Sequencer:
    """One of `count` sequencers."""

    def __init__(self, sid: int, count: int, given: int = 0) -> None:
        """`sid` from 1 to `count`; `given`: how many numbers it gave before."""
        assert 1 <= sid <= count
        self.sid = sid
        self.count = count
        self.given = given

    def take(self, requests: int) -> range:
        """The numbers of that many transactions, ascending."""
        first = self.sid + self.given * self.count
        self.given += requests
        return range(first, first + requests * self.count, self.count)


def rebalance(sequencers: Sequence[Sequencer]) -> None:
    """At the end of an epoch: all go on from the furthest."""
    furthest = max(one.given for one in sequencers)
    for one in sequencers:
        one.given = furthest


class EpochCount:
    """How far a program has counted; used by its thread, and looked at by any."""

    def __init__(self) -> None:
        self.begin(0, [0])

    def begin(self, epoch: int, given: Sequence[int]) -> None:
        """Go on behind that epoch, and behind how many numbers each sequencer gave."""
        self.epoch = epoch
        self._sequencers = [Sequencer(at + 1, len(given), one) for at, one in enumerate(given)]
        self.since_cut = 0
        """What a recovery would run again, in transactions."""

    def next(self, requests: int) -> range:
        """Another epoch begins: the numbers of its new transactions."""
        self.epoch += 1
        numbers = self._sequencers[0].take(requests)
        rebalance(self._sequencers)
        return numbers

    def take_back(self, requests: int) -> None:
        """The last ones of the epoch did not run: another one has their numbers."""
        for one in self._sequencers:
            one.given -= requests

    @property
    def given(self) -> list[int]:
        """How many numbers each sequencer has given."""
        return [one.given for one in self._sequencers]

    @property
    def tid(self) -> int:
        """A number that no transaction is above."""
        return max(self.given) * len(self._sequencers)
