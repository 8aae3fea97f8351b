"""Numbers transactions without messages between those who number (Styx, section 5.1).

Of `n` sequencers the one with id `sid` gives `sid`, `sid + n`, `sid + 2n`, ...: together they give each number once.
At the end of an epoch all go on from the furthest one, so that one with few requests gives no lower numbers than the
others later, which would let its requests go first.
"""

from collections.abc import Sequence

__all__ = ["Sequencer", "rebalance"]


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
