"""Conflicts by arrays, held to a loop over rows; and what shares do."""

import random
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


@pytest.mark.parametrize("mode", ["serializable", "reorder", "snapshot"])
def test_conflicts_are_those_of_a_loop_over_rows(mode: Any) -> None:
    """X18 to X20, for random sets; the lowest transaction never loses."""
    chance = random.Random(7)
    for _ in range(CASES):
        keys, count = chance.randint(1, 12), chance.randint(1, 12)
        reads = [{chance.randrange(keys) for _ in range(chance.randint(0, 3))} for _ in range(count)]
        writes = [{chance.randrange(keys) for _ in range(chance.randint(0, 3))} for _ in range(count)]
        pairs = [
            (
                np.array([at for at, ones in enumerate(sets) for _ in ones], np.int64),
                np.array([one for ones in sets for one in ones], np.int64),
            )
            for sets in (reads, writes)
        ]
        found = losers(mode, count, keys, pairs[0], pairs[1]).tolist()
        assert found == by_rows(mode, reads, writes)
        assert not found[0]
