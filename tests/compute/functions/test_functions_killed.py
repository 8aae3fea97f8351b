"""`kill -9` of a process whose threads ask for transfers, at random moments, the start of its successor included."""

import os
from pathlib import Path

import pytest

from support.depth import DEPTH
from support.functions.killed_lives import kill_transfers

SEED = int(os.environ.get("FUNCTION_KILLS_SEED", "1"))
KILLS = 2 * DEPTH


@pytest.mark.slow
@pytest.mark.timeout(120 + 60 * DEPTH)
@pytest.mark.parametrize("seed", [SEED, SEED + 1])
def test_killed_transfers_happen_once_and_have_one_reply(tmp_path: Path, seed: int) -> None:
    """X7, X26, X30 to X33: each request has one reply, whenever it is asked for, and the accounts are the ledger."""
    kill_transfers(tmp_path, seed, KILLS // 2)
