"""Where an epoch over workers ends early, as the replies of its transactions take much.

Transactions run beside each other, so some behind the end may have run, or run at a worker: they have not happened, and
what workers tell of them is dropped.
"""

from collections.abc import Iterable, Sequence
from typing import Protocol, TypeVar

from tussock.compute.functions.epochs.epoch import REPLY_BYTES_MAX
from tussock.compute.functions.epochs.transaction import FunctionTransaction

__all__ = ["EarlyEnd"]


class EpochMember(Protocol):
    """A transaction, or its token."""

    @property
    def tid(self) -> int:
        """The number of the transaction."""


T = TypeVar("T", bound=EpochMember)


class EarlyEnd:
    """Of the execution of one epoch."""

    def __init__(self, transactions: Sequence[FunctionTransaction], least: int) -> None:
        """The first `least` run in any case, and one."""
        self._all = transactions
        self._least = max(least, 1)
        self._over: set[int] = set()
        self._nbytes = 0
        self.dropped: set[int] = set()
        """Numbers of those behind the end."""

    def end(self, tid: int) -> None:
        """A transaction has run."""
        self._over.add(tid)

    def count(self, reply_bytes: int) -> None:
        """A reply of that size has come."""
        self._nbytes += reply_bytes

    def asked(self, ones: Sequence[FunctionTransaction]) -> Sequence[FunctionTransaction]:
        """These call outside now: the epoch has them, and all before. In a later one they might call by other keys."""
        numbers = {one.tid for one in ones}
        self._least = max([self._least, *(at for at, one in enumerate(self._all, 1) if one.tid in numbers)])
        return ones

    def place(self) -> int | None:
        """How many transactions the epoch has, where it ends now: all before have run. `None`: it goes on."""
        if self._nbytes < REPLY_BYTES_MAX or self.dropped:
            return None
        over = self._over
        place = next((at for at, one in enumerate(self._all) if one.tid not in over), len(self._all))
        if place < self._least or place == len(self._all):
            return None
        self.dropped = {one.tid for one in self._all[place:]}
        return place

    def kept(self, ones: Iterable[T]) -> list[T]:
        """Those that the epoch still has, of transactions or their tokens."""
        return [one for one in ones if one.tid not in self.dropped]

    @property
    def left(self) -> int:
        """How many of the last transactions did not run."""
        return len(self.dropped)
