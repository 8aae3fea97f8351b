"""`kill -9` of a program of TPC-C at random moments, with workers and without."""

import os
from pathlib import Path

import pytest

from support.depth import DEPTH
from support.functions.killed_tpcc import kill_tpcc

SEED = int(os.environ.get("FUNCTION_KILLS_SEED", "1"))
KILLS = 2 * DEPTH


@pytest.mark.slow
@pytest.mark.timeout(180 + 60 * DEPTH)
@pytest.mark.parametrize("workers", [0, 2])
def test_killed_orders_and_payments_keep_the_conditions_of_tpcc(tmp_path: Path, workers: int) -> None:
    """X7, X26, X30 to X33: at the end and at committed epochs; a successor may have another number of workers."""
    kill_tpcc(tmp_path, SEED + workers, KILLS, workers)
