"""`kill -9` of a program with its workers, whose successor has another number of them, or none."""

import os
from pathlib import Path

import pytest

from support.depth import DEPTH
from support.functions.killed_lives import kill_transfers

SEED = int(os.environ.get("FUNCTION_KILLS_SEED", "1"))


@pytest.mark.slow
@pytest.mark.timeout(180 + 60 * DEPTH)
def test_killed_transfers_of_workers_happen_once(tmp_path: Path) -> None:
    """X7, X26, X30 to X33, X37: a log that workers wrote is replayed by any number of them."""
    kill_transfers(tmp_path, SEED + 2, 2 * DEPTH, workers_max=3)
