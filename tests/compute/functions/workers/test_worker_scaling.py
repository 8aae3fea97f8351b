"""Workers more and less while requests come."""

import random
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from support.functions.accounts import accounts
from support.functions.worker_transfers import BankOfWorkers
from support.times import note
from tussock.compute import functions as fn
from tussock.statestore import InvalidOption, StateStore, connect
from tussock.statestore.base.system import RealSystem

WAIT_SECONDS_MAX = 2.0


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


def test_requests_wait_less_than_two_seconds_for_a_move(store: StateStore) -> None:
    """X37: 1, 4, 2 workers while requests come all the time; all of them have their reply in 2 s.

    A machine that is busy at one moment is no reason to fail: one of three attempts has to be in time.
    """
    chance = random.Random(5)
    bank = BankOfWorkers(store, 30, 1000, workers=1)
    found = []
    with bank.runtime as runtime:
        for _ in range(3):
            bank.waits = []
            for workers in (4, 2):
                _send_while(bank, chance, lambda workers=workers: runtime.scale(workers))
            bank.settle()
            assert bank.balances() == bank.ledger
            assert len(bank.waits) > 100
            found.append(max(bank.waits))
            if found[-1] < WAIT_SECONDS_MAX:
                note("functions: the slowest reply while 1 worker becomes 4, and these 2", found[-1])
                return
            runtime.scale(1)
    raise AssertionError(f"not once within {WAIT_SECONDS_MAX} s: {found}")


def _send_while(bank: BankOfWorkers, chance: random.Random, change: Callable[[], None]) -> None:
    """Some hundred requests a second until a change is made."""
    with ThreadPoolExecutor(1) as pool:
        changing = pool.submit(change)
        while not changing.done():
            bank.send(chance, 5)
            time.sleep(0.02)
        changing.result()


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
