"""Runs of transactions, as far as they are in one worker, and what it keeps of a first run for a second one."""

from collections import deque
from typing import Any, NamedTuple

import msgspec

from tussock.compute.functions.epochs.graph import CallGraph
from tussock.compute.functions.function_times import TimedAccess
from tussock.compute.functions.program.context import Entity
from tussock.compute.functions.program.draws import TransactionDraws
from tussock.compute.functions.workers.messages import TravelToken

__all__ = ["FirstRun", "KeptStay", "Visit"]


class KeptStay(msgspec.Struct, gc=False):
    """A stay of a first run."""

    came: TravelToken
    end: str
    left: TravelToken
    """As it moved, or what was left of it."""
    calls: list[Any]
    """Functions that began, as in a `TokenStay`."""


class FirstRun(NamedTuple):
    """What a loser's first run did here: it has locks on that."""

    reads: set[Entity]
    writes: dict[Entity, Any]
    stays: list[KeptStay] | None
    """`None`: they are not kept."""


class Visit:
    """A transaction's run, as far as it is here."""

    __slots__ = ("bases", "carried", "draws", "first", "graph", "run", "stays", "timed")

    def __init__(self, run: int) -> None:
        self.run = run
        self.graph: CallGraph | None = None
        self.bases: list[int] = []
        """How many functions awaited others here before each of the calls that came from elsewhere."""
        self.carried: deque[msgspec.Raw] = deque()
        """Calls that nobody awaits and that came with the token; they run before those that were made here since."""
        self.draws: TransactionDraws | None = None
        self.first = FirstRun(set(), {}, None)
        """Of a run of the lock phase."""
        self.stays: list[KeptStay] | None = []
        """Of a first run; `None`: they are not kept."""
        self.timed: TimedAccess | None = None

    def first_of(self, run: int) -> FirstRun:
        """For the next run, whose locks are those of `run`."""
        if self.run != run or self.graph is None:
            return self.first
        return FirstRun(self.graph.run.reads, self.graph.run.writes, self.stays)
