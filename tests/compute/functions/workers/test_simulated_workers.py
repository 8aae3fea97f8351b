"""Simulated workers, held to plain Python that runs the requests one after the other."""

import random

import pytest

from support.depth import DEPTH
from support.functions.function_histories import History
from support.functions.simulated_crew import Crews
from tussock.compute.functions.workers import worker_site

SEEDS = 40 * DEPTH


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_random_history_of_workers_is_a_serial_one(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """X5, X6, X15 to X23, X30 to X32, X37: whatever dies when, however late answers are, and however many there are."""
    history = History(seed, workers_max=4)
    chance = random.Random(f"crew {seed}")
    crews = Crews(history.bucket, chance, loss=chance.choice((0.0, 0.01, 0.05)))
    monkeypatch.setattr(worker_site, "Crew", crews)
    history.run()
