"""Workers that run elsewhere: processes that join over gRPC, and that nobody of the program has started."""

import random
import signal
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from support.applications.served_bank import PEOPLE, START
from support.applications.work_process import BANK, ProgramProcess, WorkProcess
from support.children import TESTS, path_of_imports
from support.depth import DEPTH
from support.waiting import eventually
from tussock.compute import functions as fn
from tussock.statestore import WaitTimeout, connect

SECONDS = 100
KILLS = 2 * DEPTH
NAMES = [f"p{at}" for at in range(PEOPLE)]


@pytest.fixture
def url(tmp_path: Path) -> str:
    return (tmp_path / "store").as_uri()


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as found:
        yield found


class Ledger:
    """What clients have asked for, and what was replied."""

    def __init__(self) -> None:
        self.balances = dict.fromkeys(NAMES, START)
        self._sent: list[tuple[str, str, int, str, Future[Any]]] = []
        self._ids = 0

    def send(self, client: fn.Client, chance: random.Random, count: int) -> None:
        """Ask for transfers, each under its id, and do not wait."""
        for _ in range(count):
            debtor, creditor = chance.sample(NAMES, 2)
            self._ids += 1
            request_id, amount = f"r{self._ids}", chance.randint(1, 15)
            future = client.send("account", debtor, "transfer", creditor, amount, request_id=request_id)
            self._sent.append((debtor, creditor, amount, request_id, future))

    def settle(self, client: fn.Client) -> None:
        """Wait for all; each has one reply, also when it is asked for again."""
        for debtor, creditor, amount, request_id, future in self._sent:
            error = future.exception(SECONDS)
            again = client.send("account", debtor, "transfer", creditor, amount, request_id=request_id)
            if error is None:
                self.balances[debtor] -= amount
                self.balances[creditor] += amount
                assert again.result(SECONDS) == future.result()
            else:
                assert str(error) == f"not enough credit: {debtor}", error
                assert str(again.exception(SECONDS)) == str(error)
        self._sent = []

    def check(self, client: fn.Client) -> None:
        """The program says the same."""
        found = {name: (client.query("account", name) or {}).get("balance") for name in NAMES}
        assert found == self.balances


def test_workers_join_and_give_the_results_of_processes_here(url: str, stack: ExitStack) -> None:
    """The program waits for as many as it wants, says so, and serves; a drain commits, and the store has the ledger."""
    program = stack.enter_context(ProgramProcess(url, 2))
    address = program.workers_address
    stack.enter_context(WorkProcess(address, url)).wait_until_ready()
    workers = [stack.enter_context(WorkProcess(address, url))]
    ledger, chance = Ledger(), random.Random(1)
    with fn.Client(program.address, deadline=SECONDS, outstanding=1000) as client:
        ledger.send(client, chance, 400)
        ledger.settle(client)
        ledger.check(client)
        client.send_many("purse", "fill", [1, 2], {"coins": [9, 0]})
        replies = client.send_many("purse", "give", [1], {"to": [2], "coins": [4]})
        assert replies["reply"].to_pylist() == [5]
        status = client.status()
        assert (status["workers"], status["workers_joined"]) == (2, 2)
    assert "tussock_application_workers_joined 2.0" in program.get("/metrics")[1]
    program.terminate()
    assert program.wait() == 0
    with connect(url, compaction=False) as store:
        rows = [row for batch in store.table("account").read() for row in batch.to_pylist()]
    assert {row["key"]: row["state"] for row in rows} == {
        name: f'{{"balance":{balance}}}' for name, balance in ledger.balances.items()
    }
    for worker in workers:
        worker.terminate()
        assert worker.wait() == 0


def test_a_program_waits_for_its_workers_and_says_so(url: str, stack: ExitStack) -> None:
    """Before the start `/readyz` names how many there are; a signal ends the wait."""
    program = stack.enter_context(ProgramProcess(url, 2))
    worker = stack.enter_context(WorkProcess(program.workers_address, url))
    worker.wait_until_ready()
    program.wait_for(event="worker joined")
    assert program.get("/readyz") == (503, "not ready: the application is starting: 1 of 2 workers have joined\n")
    status = program.status()
    assert (status["state"], status["workers"], status["workers_joined"]) == ("starting", 2, 1)
    program.terminate()
    assert program.wait() == 0


def test_a_missing_worker_is_a_trouble(url: str, stack: ExitStack) -> None:
    """Story: nothing ran, and the status said that all is well. A look says what it waits for, and the end of it."""
    program = stack.enter_context(ProgramProcess(url, 2))
    address = program.workers_address
    workers = [stack.enter_context(WorkProcess(address, url)) for _ in range(2)]
    with fn.Client(program.address, deadline=SECONDS) as client, fn.Client(program.address, deadline=0.5) as hasty:
        client.send_many("account", "credit", NAMES, {"amount": [0] * PEOPLE})
        assert client.status()["trouble"] == []
        workers[0].process.kill()
        eventually(lambda: client.status()["trouble"])
        (trouble,) = client.status()["trouble"]
        assert (trouble["what"], "1 of 2 workers have joined" in trouble["error"]) == ("workers", True)
        waiting = client.send_many_async("account", "credit", NAMES, {"amount": [1] * PEOPLE})
        with pytest.raises(WaitTimeout, match="the query had no answer in time: what runs waits for workers: "):
            # One of a worker that is there may be before the requests.
            [hasty.query("account", name) for name in NAMES]
        assert "tussock_application_troubles 1.0" in program.get("/metrics")[1]
        # Requests are taken, and wait.
        assert (client.status()["ready"], program.get("/readyz")[0]) == (True, 200)
        stack.enter_context(WorkProcess(address, url))
        assert waiting.result(SECONDS)["error"].null_count == PEOPLE
        eventually(lambda: client.status()["trouble"] == [])
        assert client.query("account", NAMES[0]) == {"balance": START + 1}


@pytest.mark.slow
def test_no_request_fails_when_a_joined_worker_is_killed(url: str, stack: ExitStack) -> None:
    """X30 to X33: a spare one takes the place at once; without one, requests wait for the next that joins."""
    program = stack.enter_context(ProgramProcess(url, 2))
    address = program.workers_address
    workers = [stack.enter_context(WorkProcess(address, url)) for _ in range(3)]
    ledger, chance = Ledger(), random.Random(2)
    with fn.Client(program.address, deadline=SECONDS, outstanding=1000) as client:
        for number in range(KILLS):
            eventually(lambda: client.status()["workers_joined"] == 3)
            ledger.send(client, chance, 200)
            # One that is stopped is there, and says nothing.
            end = signal.SIGSTOP if number % 2 else signal.SIGKILL
            workers.pop(chance.randrange(3)).process.send_signal(end)
            ledger.send(client, chance, 100)
            workers.append(stack.enter_context(WorkProcess(address, url)))
            ledger.settle(client)
            ledger.check(client)
        for worker in workers:
            worker.process.kill()
        eventually(lambda: client.status()["workers_joined"] == 0)
        waiting = client.send("account", "p0", "credit", 0)
        assert not waiting.done()
        for _ in range(2):
            stack.enter_context(WorkProcess(address, url))
        assert waiting.result(SECONDS) is None
        ledger.check(client)


@pytest.mark.slow
def test_a_program_whose_workers_are_gone_ends_when_it_is_told(url: str, stack: ExitStack) -> None:
    """Not with 0, as a request waits; its successor runs that, and has what was answered."""
    program = stack.enter_context(ProgramProcess(url, 1, "--drain-seconds", "1"))
    workers_address = program.workers_address
    with stack.enter_context(WorkProcess(workers_address, url)), fn.Client(program.address, deadline=SECONDS) as client:
        assert client.send("account", "p0", "transfer", "p1", 30, request_id="once").result(SECONDS) == START - 30
    with fn.Client(program.address, deadline=SECONDS) as client:
        eventually(lambda: client.status()["workers_joined"] == 0)
        waiting = client.send("account", "p0", "transfer", "p1", 5, request_id="twice")
        eventually(lambda: client.status()["outstanding"] == 1)
        program.terminate()
        assert program.wait() == 1
        later = ProgramProcess(url, 1, "--listen", program.address, workers_listen=workers_address)
        stack.enter_context(later)
        stack.enter_context(WorkProcess(workers_address, url))
        assert waiting.result(SECONDS) == START - 35
        again = client.send("account", "p0", "transfer", "p1", 30, request_id="once")
        assert again.result(SECONDS) == START - 30


@pytest.mark.slow
def test_workers_join_the_program_that_takes_the_place_of_a_killed_one(url: str, stack: ExitStack) -> None:
    """X26, X31: they dial again; replies that were given hold, and nothing happens twice."""
    first = stack.enter_context(ProgramProcess(url, 2))
    workers_address = first.workers_address
    workers = [stack.enter_context(WorkProcess(workers_address, url)) for _ in range(2)]
    address = first.address
    ledger, chance = Ledger(), random.Random(4)
    with fn.Client(address, deadline=SECONDS, outstanding=1000) as client:
        for _ in range(KILLS):
            ledger.send(client, chance, 200)
            first.process.kill()
            first.wait()
            ledger.send(client, chance, 100)
            first = stack.enter_context(ProgramProcess(url, 2, "--listen", address, workers_listen=workers_address))
            ledger.settle(client)
            ledger.check(client)
    assert [worker.process.poll() for worker in workers] == [None, None]


@pytest.mark.slow
def test_a_worker_dials_a_program_that_is_not_there_yet(url: str, stack: ExitStack) -> None:
    """It says so once, and joins when the program comes; SIGTERM ends one that dials, too."""
    program = stack.enter_context(ProgramProcess(url, 1))
    address = program.workers_address
    program.process.kill()
    program.wait()
    worker, other = (stack.enter_context(WorkProcess(address, url)) for _ in range(2))
    assert "UNAVAILABLE" in worker.wait_for(event="dialling again")["error"]
    other.wait_for(event="dialling again")
    other.terminate()
    assert other.wait() == 0
    later = stack.enter_context(ProgramProcess(url, 1, workers_listen=address))
    with fn.Client(later.address, deadline=SECONDS) as client:
        assert client.send("account", "p0", "transfer", "p1", 30).result(SECONDS) == START - 30
    assert sum(line.get("event") == "dialling again" for line in worker.lines) <= 3


def refused(worker: WorkProcess) -> str:
    """The error of a worker that has ended by it."""
    assert worker.wait() == 1, worker.raw
    return worker.raw[-1]


def test_a_worker_of_another_version_of_the_module_is_refused(tmp_path: Path, url: str, stack: ExitStack) -> None:
    """Both sides name what differs and what to do; the program goes on waiting for another."""
    program = stack.enter_context(ProgramProcess(url, 1))
    text = (TESTS / "support" / "functions" / "accounts.py").read_text(encoding="utf-8")
    changed = text.replace('state["balance"] < amount', 'state["balance"] <= amount')
    assert changed != text
    (tmp_path / "later_bank.py").write_text(
        changed + "\n\nfrom support.applications import served_bank\n\nserved_bank.accounts = accounts\n"
        "make = served_bank.make\n"
    )
    worker = WorkProcess(
        program.workers_address, url, app="later_bank:make", environment={"PYTHONPATH": path_of_imports(tmp_path)}
    )
    told = refused(stack.enter_context(worker))
    assert "has other functions" in told
    assert "let both run the same Tussock, Python and module" in told
    assert "has other functions" in program.wait_for(event="worker refused")["error"]
    stack.enter_context(WorkProcess(program.workers_address, url))
    assert program.address


@pytest.mark.slow
def test_workers_of_something_else_are_refused(tmp_path: Path, url: str, stack: ExitStack) -> None:
    """Another program, another store, procedures, no module: they end with the reason, which the program has, too."""
    program = stack.enter_context(ProgramProcess(url, 1))
    cases = {
        "has program 'bank': give the worker": ("support.applications.served_bank:other", url),
        "give both the same --store": (BANK, (tmp_path / "other").as_uri()),
        "workers are for functions": ("support.applications.served_program:make", url),
        "there is no module 'support.applications.nowhere'": ("support.applications.nowhere:make", url),
    }
    program.wait_for(event="taking workers")
    workers = {
        told: stack.enter_context(WorkProcess(program.workers_address, store, app=app))
        for told, (app, store) in cases.items()
    }
    for told, worker in workers.items():
        assert worker.wait() in (1, 2)
        assert told in worker.raw[-1]
        program.wait_for(lambda line, told=told: told in line.get("error", ""), event="worker refused")
