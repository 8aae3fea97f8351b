"""One epoch: its transactions run on one snapshot, commit where nothing stands against it, and run again where it does.

1. Execution: each runs on the state that the epoch began with, and sees nothing of the others.
2. Those whose functions raised are gone, with what they read and wrote.
3. Lock-free: those that lose against none commit, in the order of the numbers.
4. Lock phase: the losers run again in the order of their numbers, each on what is committed by then. In one process
   a lock on all that it touched is what one after the other gives; so a run that touches the same entities as its
   first one commits. One that touches others waits for the next epoch, where its number lets it go first. It ends
   where it reads the first of these.

The replies of an epoch are kept until its record is durable, so it ends early where they take much: those behind do not
run, and begin a later epoch.

Serial order of an epoch: what raised, what committed without locks, the lock phase; in each by number. A pure function
of transactions and state, but for what the transactions draw (Styx, section 6).
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from tussock.compute.functions.entities.entities import Entities
from tussock.compute.functions.epochs.conflicts import Conflicts
from tussock.compute.functions.epochs.digest import writes_digest
from tussock.compute.functions.epochs.locked_access import LockedAccess
from tussock.compute.functions.epochs.touched_keys import TouchedKeys
from tussock.compute.functions.epochs.transaction import FunctionTransaction
from tussock.compute.functions.errors import Diverged
from tussock.compute.functions.program.context import Entity, EntityAccess, GraphRun

__all__ = ["REPLY_BYTES_MAX", "EndedEpoch", "run_epoch"]

REPLY_BYTES_MAX = 64 << 20
"""Of the replies of an epoch: the transaction that reaches it is its last one."""


class Execute(Protocol):
    """Runs a transaction on the entities as they are; in the lock phase, through what it may read."""

    def __call__(self, one: FunctionTransaction, access: EntityAccess, /) -> GraphRun:
        """Raises `Diverged` if the access does."""


class EndedEpoch(NamedTuple):
    """What became of an epoch's transactions."""

    ended: list[FunctionTransaction]
    """Committed or aborted, in the serial order."""
    deferred: list[FunctionTransaction]
    """For the next epoch, by number."""
    hot: list[Entity]
    """Entities over which transactions lost, one entry for each that did."""
    written: int
    """Digest of all that was written."""
    left: int = 0
    """How many of the last transactions did not run."""

    @property
    def reply_bytes(self) -> int:
        """What the replies take, without small ones."""
        return sum([one.run.value_bytes for one in self.ended if one.run is not None])


def run_epoch(
    entities: Entities,
    transactions: Sequence[FunctionTransaction],
    execute: Execute,
    conflicts: Conflicts,
    *,
    lock_phase: bool = True,
    least: int = 0,
) -> EndedEpoch:
    """Run transactions, ascending by number, and apply what commits. The first `least` run in any case."""
    nbytes = left = 0
    for at, one in enumerate(transactions, 1):
        run = one.run = execute(one, entities)
        one.runs += 1
        nbytes += run.value_bytes
        if nbytes >= REPLY_BYTES_MAX and at >= least:
            left = len(transactions) - at
            transactions = transactions[:at]
            break
    ended = [one for one in transactions if one.run is not None and one.run.aborted is not None]
    alive = [one for one in transactions if one.run is not None and one.run.aborted is None] if ended else transactions
    lost, hot = _lost(alive, conflicts)
    written = 0
    again: list[FunctionTransaction] = []
    for one, has_lost in zip(alive, lost, strict=True):
        if has_lost:
            again.append(one)
        else:
            assert one.run is not None
            one.is_lock_free = True
            entities.apply(one.run.writes)
            written += writes_digest(one.tid, one.run.writes)
            ended.append(one)
    if not lock_phase:
        return EndedEpoch(ended, again, hot, written, left)
    deferred = []
    for one in again:
        if _run_locked(entities, one, execute):
            assert one.run is not None
            written += writes_digest(one.tid, one.run.writes)
            ended.append(one)
        else:
            deferred.append(one)
    return EndedEpoch(ended, deferred, hot, written, left)


def _run_locked(entities: Entities, one: FunctionTransaction, execute: Execute) -> bool:
    """Run a loser again; `False` if it touches what it has no lock on."""
    first = one.run
    assert first is not None
    one.is_lock_free = False
    one.runs += 1
    try:
        run = one.run = execute(one, LockedAccess(entities, first.reads, first.writes))
    except Diverged:
        return False
    if run.aborted is not None:
        return run.reads <= first.reads | first.writes.keys()
    if run.reads != first.reads or run.writes.keys() != first.writes.keys():
        return False
    entities.apply(run.writes)
    return True


def _lost(transactions: Sequence[FunctionTransaction], conflicts: Conflicts) -> tuple[list[bool], list[Entity]]:
    if len(transactions) < 2:
        return [False] * len(transactions), []
    codes: dict[Entity, int] = {}
    keys = TouchedKeys()
    for at, one in enumerate(transactions):
        run = one.run
        assert run is not None
        for entity in run.reads:
            keys.read_by.append(at)
            keys.read_key.append(codes.setdefault(entity, len(codes)))
        for entity in run.writes:
            keys.write_by.append(at)
            keys.write_key.append(codes.setdefault(entity, len(codes)))
    lost = keys.lost(conflicts, len(transactions), len(codes), len(codes))
    if True not in lost:
        return lost, []
    entities = list(codes)
    return lost, [entities[key] for key in keys.met(lost)]
