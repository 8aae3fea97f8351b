"""One epoch: its transactions run on one snapshot, commit where nothing stands against it, and run again where it does.

1. Execution: each runs on the state that the epoch began with, and sees nothing of the others.
2. Those whose functions raised are gone, with what they read and wrote.
3. Lock-free: those that lose against none commit, in the order of the numbers.
4. Lock phase: the losers run again in the order of their numbers, each on what is committed by then. In one process
   a lock on all that it touched is what one after the other gives; so a run that touches the same entities as its
   first one commits. One that touches others waits for the next epoch, where its number lets it go first.

Serial order of an epoch: what raised, what committed without locks, the lock phase; in each by number. A pure function
of transactions and state, but for what the transactions draw (Styx, section 6).
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from tussock.compute.functions.entities.entities import Entities
from tussock.compute.functions.epochs.conflicts import Conflicts, losers
from tussock.compute.functions.epochs.transaction import FunctionTransaction
from tussock.compute.functions.program.context import Entity, GraphRun

__all__ = ["EndedEpoch", "run_epoch"]

Execute = Callable[[FunctionTransaction], GraphRun]


class EndedEpoch(NamedTuple):
    """What became of an epoch's transactions."""

    ended: list[FunctionTransaction]
    """Committed or aborted, in the serial order."""
    deferred: list[FunctionTransaction]
    """For the next epoch, by number."""
    hot: list[Entity]
    """Entities over which transactions lost, one entry for each that did."""


def run_epoch(
    entities: Entities,
    transactions: Sequence[FunctionTransaction],
    execute: Execute,
    conflicts: Conflicts,
    *,
    lock_phase: bool = True,
) -> EndedEpoch:
    """Run transactions, ascending by number, and apply what commits; `execute` runs one on the entities as they are."""
    for one in transactions:
        one.run = execute(one)
        one.runs += 1
    ended = [one for one in transactions if one.run is not None and one.run.aborted is not None]
    alive = [one for one in transactions if one.run is not None and one.run.aborted is None] if ended else transactions
    lost, hot = _lost(alive, conflicts)
    again: list[FunctionTransaction] = []
    for one, has_lost in zip(alive, lost, strict=True):
        if has_lost:
            again.append(one)
        else:
            assert one.run is not None
            one.is_lock_free = True
            entities.apply(one.run.writes)
            ended.append(one)
    if not lock_phase:
        return EndedEpoch(ended, again, hot)
    deferred = []
    for one in again:
        if _run_locked(entities, one, execute):
            ended.append(one)
        else:
            deferred.append(one)
    return EndedEpoch(ended, deferred, hot)


def _run_locked(entities: Entities, one: FunctionTransaction, execute: Execute) -> bool:
    """Run a loser again; `False` if it touches what it has no lock on."""
    first = one.run
    assert first is not None
    one.is_lock_free = False
    run = one.run = execute(one)
    one.runs += 1
    if run.aborted is not None:
        return run.reads <= first.reads | first.writes.keys()
    if run.reads != first.reads or run.writes.keys() != first.writes.keys():
        return False
    entities.apply(run.writes)
    return True


def _lost(transactions: Sequence[FunctionTransaction], conflicts: Conflicts) -> tuple[Iterable[bool], list[Entity]]:
    if len(transactions) < 2:
        return [False] * len(transactions), []
    codes: dict[Entity, int] = {}
    read_by: list[int] = []
    read_key: list[int] = []
    write_by: list[int] = []
    write_key: list[int] = []
    for at, one in enumerate(transactions):
        run = one.run
        assert run is not None
        for entity in run.reads:
            read_by.append(at)
            read_key.append(codes.setdefault(entity, len(codes)))
        for entity in run.writes:
            write_by.append(at)
            write_key.append(codes.setdefault(entity, len(codes)))
    if not write_by or len(codes) == len(read_by) + len(write_by):
        return [False] * len(transactions), []
    lost = losers(
        conflicts,
        len(transactions),
        len(codes),
        (np.array(read_by, np.int64), np.array(read_key, np.int64)),
        (np.array(write_by, np.int64), np.array(write_key, np.int64)),
    )
    return lost.tolist(), _hot(transactions, lost.nonzero()[0].tolist(), codes, write_by, write_key)


def _hot(
    transactions: Sequence[FunctionTransaction],
    lost: Sequence[int],
    codes: dict[Entity, int],
    write_by: Sequence[int],
    write_key: Sequence[int],
) -> list[Entity]:
    """For each loser an entity that a lower one writes."""
    if not lost:
        return []
    first = dict(zip(reversed(write_key), reversed(write_by), strict=True))
    found = []
    for at in lost:
        run = transactions[at].run
        assert run is not None
        for entity in (*run.writes, *run.reads):
            if first.get(codes[entity], at) < at:
                found.append(entity)
                break
    return found
