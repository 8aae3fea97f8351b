"""Simulated workers, held to plain Python that runs the requests one after the other."""

import random
from typing import Any

import pytest

from support.depth import DEPTH
from support.functions.function_histories import History
from support.functions.random_programs import KEYS, make_request, things
from support.functions.simulated_crew import Crews
from support.procedures.histories import QuickSystem
from support.store.stores import open_on
from tussock.compute import functions as fn
from tussock.compute.functions.workers import worker_site
from tussock.statestore.buckets import open_bucket

SEEDS = 8 * DEPTH


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_random_history_of_workers_is_a_serial_one(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """X5, X6, X15 to X23, X30 to X32, X37: whatever dies when, however late answers are, and however many there are."""
    history = History(seed, workers_max=4)
    chance = random.Random(f"crew {seed}")
    crews = Crews(history.bucket, chance, loss=chance.choice((0.0, 0.01, 0.05)), outage=chance.choice((0.0, 0.1)))
    monkeypatch.setattr(worker_site, "crew_of", crews)
    history.run()


@pytest.mark.parametrize(("first", "second"), [(0, 3), (4, 2)])
@pytest.mark.parametrize(
    "rules",
    [
        pytest.param({"conflicts": "serializable"}, id="serializable"),
        pytest.param({"conflicts": "reorder"}, id="reorder"),
        pytest.param({"conflicts": "snapshot"}, id="snapshot"),
        pytest.param({"lock_phase": False}, id="no lock phase"),
    ],
)
def test_any_number_of_workers_has_the_same_result(
    rules: dict[str, Any], first: int, second: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """X34: what one number of workers has logged, another number replays, held to the digests of writes and replies."""
    bucket = open_bucket("memory://")
    chance = random.Random(f"{rules} {first} {second}")
    crews = Crews(bucket, chance, loss=0.0)
    monkeypatch.setattr(worker_site, "crew_of", crews)

    def runtime(workers: int) -> fn.Runtime:
        options: dict[str, Any] = {**rules, "epoch_ms": 5, "checkpoint": 3600, "workers": workers}
        return fn.Runtime(open_on(bucket, QuickSystem()), "random", [things()], **options)

    older = runtime(first)
    older.start()
    futures = [older.send("thing", key, "act", steps) for key, steps in (make_request(chance) for _ in range(100))]
    assert len([future for future in futures if future.exception(30) is None]) > 30
    states = {key: older.query("thing", key) for key in KEYS}
    stats = older.stats()
    newer = runtime(second)
    newer.start()
    assert {key: newer.query("thing", key) for key in KEYS} == states
    assert {name: newer.stats()[name] for name in COUNTS} == {name: stats[name] for name in COUNTS}
    if rules.get("lock_phase", True):
        assert crews.cached["same"] > 0
        assert crews.cached["changed"] > 0
    newer.stop()
    with pytest.raises(fn.ApplicationFenced):
        older.stop()


COUNTS = ("epoch", "tid", "lock_free", "locked", "aborted", "deferrals", "function_calls")
