"""Conflicts by arrays, held to a loop over rows, and to there being a serial order of those that do not lose."""

import random
from graphlib import CycleError, TopologicalSorter
from typing import Any

import numpy as np
import pytest

from support.depth import DEPTH
from tussock.compute.functions.epochs.conflicts import Conflicts, losers

CASES = 300 * DEPTH


def by_rows(mode: Conflicts, reads: list[set[int]], writes: list[set[int]]) -> list[bool]:
    """The same, transaction by transaction."""
    lost = []
    for at, (read, written) in enumerate(zip(reads, writes, strict=True)):
        lower_writes = set().union(*writes[:at])
        lower_reads = set().union(*reads[:at])
        waw, raw, war = bool(written & lower_writes), bool(read & lower_writes), bool(written & lower_reads)
        lost.append(waw or (mode == "serializable" and raw) or (mode == "reorder" and raw and war))
    return lost


def draw_sets(chance: random.Random) -> tuple[int, list[set[int]], list[set[int]]]:
    """How many keys there are, and which of them each transaction reads and writes."""
    keys, count = chance.randint(1, 12), chance.randint(1, 12)
    reads = [{chance.randrange(keys) for _ in range(chance.randint(0, 3))} for _ in range(count)]
    writes = [{chance.randrange(keys) for _ in range(chance.randint(0, 3))} for _ in range(count)]
    return keys, reads, writes


def by_arrays(mode: Conflicts, keys: int, reads: list[set[int]], writes: list[set[int]]) -> list[bool]:
    pairs = [
        (
            np.array([at for at, ones in enumerate(sets) for _ in ones], np.int64),
            np.array([one for ones in sets for one in ones], np.int64),
        )
        for sets in (reads, writes)
    ]
    return losers(mode, len(reads), keys, pairs[0], pairs[1]).tolist()


@pytest.mark.parametrize("mode", ["serializable", "reorder", "snapshot"])
def test_conflicts_are_those_of_a_loop_over_rows(mode: Any) -> None:
    """X18 to X20, for random sets; the lowest transaction never loses."""
    chance = random.Random(7)
    for _ in range(CASES):
        keys, reads, writes = draw_sets(chance)
        found = by_arrays(mode, keys, reads, writes)
        assert found == by_rows(mode, reads, writes)
        assert not found[0]


@pytest.mark.parametrize(("mode", "has_cycles"), [("serializable", False), ("reorder", False), ("snapshot", True)])
def test_those_that_do_not_lose_have_a_serial_order(mode: Any, has_cycles: bool) -> None:
    """No two write one key, and readers can go before its writer: but for `snapshot`, where two may cross."""
    chance = random.Random(8)
    cycles = 0
    for _ in range(CASES):
        keys, reads, writes = draw_sets(chance)
        lost = by_arrays(mode, keys, reads, writes)
        won = [at for at, has_lost in enumerate(lost) if not has_lost]
        assert sum(len(writes[at]) for at in won) == len(set().union(*(writes[at] for at in won)))
        before = {at: {other for other in won if other != at and reads[other] & writes[at]} for at in won}
        if mode == "serializable":
            assert all(other < at for at in won for other in before[at]), "their order is that of the numbers"
        try:
            TopologicalSorter(before).prepare()
        except CycleError:
            cycles += 1
    assert (cycles > 0) == has_cycles
