"""Numbers transactions without messages between those who number (Styx, section 5.1).

Of `n` sequencers the one with id `sid` gives `sid`, `sid + n`, `sid + 2n`, ...: together they give each number once.
At the end of an epoch all go on from the furthest one, so that one with few requests gives no lower numbers than the
others later, which would let its requests go first.
"""

from collections.abc import Sequence
from operator import itemgetter

from tussock.compute.applications.records import Record, RecordKind
from tussock.compute.functions.epochs.transaction import FunctionRequest
from tussock.compute.functions.program.values import pack, unpack

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
    """How far a program has counted; used by its thread, and looked at by any.

    Callers have one sequencer, and each feed has another: their requests take turns, so that a feed with many of them
    does not let those of others wait behind it.
    """

    def __init__(self) -> None:
        self.begin(0, [0], ())

    def begin(self, epoch: int, given: Sequence[int], feeds: Sequence[list[str]]) -> None:
        """Go on behind that epoch, and behind how many numbers each sequencer gave: of callers, and of `feeds`.

        These are pairs of a name and a table of replies, which is noted beside it.
        """
        self.epoch = epoch
        self.feeds = list(feeds)
        """Those with a sequencer; requests of another one are numbered with those of callers."""
        self._sequencers = [Sequencer(at + 1, len(given), one) for at, one in enumerate(given)]
        self._sids = {name: sid for sid, (name, _) in enumerate(feeds, 1)}
        self._before = self.given
        self.since_cut = 0
        """What a recovery would run again, in transactions."""

    def divide(self, seq: int, feeds: list[list[str]]) -> Record | None:
        """From the next epoch on these feeds have sequencers, and the record of that, with this number, says so.

        A replay has to give the same numbers. `None` if they have them.
        """
        if feeds == self.feeds:
            return None
        record = Record(seq, RecordKind.SEQUENCERS, "", 0, pack(feeds), [], None)
        self.divide_again(record)
        return record

    def divide_again(self, record: Record) -> None:
        """The same of a record; numbers go on behind those that were given."""
        feeds, since_cut = unpack(record.given), self.since_cut
        count = 1 + len(feeds)
        self.begin(self.epoch, [-(-self.tid // count)] * count, feeds)
        self.since_cut = since_cut

    def next(self, requests: list[FunctionRequest]) -> tuple[Sequence[int], list[FunctionRequest]]:
        """Another epoch begins: the numbers of its new transactions, ascending, and their requests in this order."""
        self.epoch += 1
        self._before = self.given
        if len(self._sequencers) == 1:
            return self._sequencers[0].take(len(requests)), requests
        parts: list[list[FunctionRequest]] = [[] for _ in self._sequencers]
        for one in requests:
            parts[0 if one.fed is None else self._sids.get(one.fed.feed, 0)].append(one)
        taken = [
            pair
            for sequencer, part in zip(self._sequencers, parts, strict=True)
            for pair in zip(sequencer.take(len(part)), part, strict=True)
        ]
        rebalance(self._sequencers)
        taken.sort(key=itemgetter(0))
        return [number for number, _ in taken], [one for _, one in taken]

    def pass_over(self, requests: int) -> None:
        """Another epoch begins, with as many requests that nobody looks at one by one."""
        self.epoch += 1
        self._sequencers[0].take(requests)
        rebalance(self._sequencers)

    def take_back(self, last: int | None) -> None:
        """Of the epoch's new transactions those above that number did not run: others get theirs. `None`: none ran."""
        furthest = 0 if last is None else -(-last // len(self._sequencers))
        for one, before in zip(self._sequencers, self._before, strict=True):
            one.given = max(before, furthest)

    @property
    def given(self) -> list[int]:
        """How many numbers each sequencer has given."""
        return [one.given for one in self._sequencers]

    @property
    def tid(self) -> int:
        """A number that no transaction is above."""
        return max(self.given) * len(self._sequencers)
