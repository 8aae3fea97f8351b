"""Workers that join: more and less of them while requests come, and too few."""

import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from support.applications.work_process import WorkProcess
from support.functions.accounts import accounts
from support.functions.joined_port import joined_port
from support.functions.worker_transfers import BankOfWorkers
from support.waiting import eventually
from tussock.compute import functions as fn
from tussock.compute.functions.workers.staff.lobby import Lobby
from tussock.statestore import InvalidOption, StateStore, connect

APP = "support.applications.served_bank:accounts_alone"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StateStore]:
    with connect((tmp_path / "store").as_uri(), compaction=False) as opened:
        yield opened


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as found:
        yield found


def test_joined_workers_come_and_go_while_requests_wait(store: StateStore, stack: ExitStack) -> None:
    """X37: 1, 4, 2 workers; no request fails, the scale waits for who is to join, and those beyond are spare ones."""
    chance = random.Random(6)
    bank = BankOfWorkers(store, 30, 100, workers=1)
    address = stack.enter_context(joined_port(bank.runtime))
    stack.enter_context(WorkProcess(address, store.url, app=APP))
    runtime = stack.enter_context(bank.runtime)
    pool = stack.enter_context(ThreadPoolExecutor(1))
    for workers in (4, 2):
        bank.send(chance, 200)
        scaled = pool.submit(runtime.scale, workers)
        if workers == 4:
            bank.settle()
            assert not scaled.done()
            for _ in range(3):
                stack.enter_context(WorkProcess(address, store.url, app=APP))
            eventually(lambda: runtime.status()["workers_joined"] == 4)
        scaled.result(60)
        bank.send(chance, 200)
        bank.settle()
        status = runtime.status()
        assert (status["workers"], status["workers_joined"]) == (workers, 4)
        assert runtime.worker_processes() == []
        assert bank.balances() == bank.ledger
    runtime.stop()
    assert bank.stored(store) == {key: f'{{"balance":{balance}}}' for key, balance in bank.ledger.items()}


def test_too_few_workers_are_told_by_their_number() -> None:
    """Nobody is taken of those who wait: a lost worker may need them."""
    lobby = Lobby("bank", fn.Runtime(connect("memory://few"), "bank", [accounts()]).parts().operators, "file:///bank")
    with pytest.raises(fn.WorkerFault, match=r"2 more workers were to join, and 0 have after 0\.01 s, 0 with those at"):
        lobby.hire(2, 0.01)
    lobby.close()
    with pytest.raises(fn.WorkerFault, match="has ended"):
        lobby.hire(1, None)


def test_where_workers_cannot_join(store: StateStore) -> None:
    """A program without workers, one that runs, and a store that nobody else sees."""
    with pytest.raises(InvalidOption, match="say how many are to join"):
        fn.Runtime(store, "bank", [accounts()]).take_workers()
    with pytest.raises(InvalidOption, match="in the memory of this process"):
        fn.Runtime(connect("memory://joined"), "bank", [accounts()], workers=1).take_workers()
    with (
        fn.Runtime(store, "bank", [accounts()]) as runtime,
        pytest.raises(InvalidOption, match="runs already: its workers are processes here"),
    ):
        runtime.take_workers()
