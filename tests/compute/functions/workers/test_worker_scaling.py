"""Workers more and less while requests come."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.functions.accounts import accounts
from support.functions.worker_transfers import BankOfWorkers
from support.times import note
from tussock.compute import functions as fn
from tussock.statestore import InvalidOption, StateStore, connect
from tussock.statestore.base.system import RealSystem


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StateStore]:
    with connect((tmp_path / "store").as_uri(), compaction=False) as opened:
        yield opened


def test_workers_come_and_go_while_requests_wait(store: StateStore) -> None:
    """X37: 1, 4, 2 workers; no request fails, and accounts are the ledger at each number."""
    clock = RealSystem()
    chance = random.Random(3)
    bank = BankOfWorkers(store, 30, 100, workers=1)
    with bank.runtime as runtime:
        for workers in (4, 2, 1):
            bank.send(chance, 200)
            began = clock.monotonic()
            runtime.scale(workers)
            note(f"functions: scaled to {workers} workers", clock.monotonic() - began)
            bank.send(chance, 200)
            bank.settle()
            assert runtime.stats()["workers"] == workers
            assert len(runtime.worker_processes()) == workers
            assert bank.balances() == bank.ledger
    assert bank.stored(store) == {key: f'{{"balance":{balance}}}' for key, balance in bank.ledger.items()}


def test_a_number_of_workers_that_cannot_be(store: StateStore) -> None:
    """None below 1, none above 64, and no workers for a program that runs in this process."""
    with pytest.raises(InvalidOption, match="workers=-1; expected 0 to 64"):
        fn.Runtime(store, "bank", [accounts()], workers=-1)
    with fn.Runtime(store, "bank", [accounts()]) as runtime:
        with pytest.raises(InvalidOption, match="workers=0; expected 1 to 64"):
            runtime.scale(0)
        with pytest.raises(InvalidOption, match="start it with workers=1 or more"):
            runtime.scale(2)
        assert runtime.worker_processes() == []
