"""`kill -9` and `kill -STOP` of workers, and of the program with all of its workers."""

import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.children import child_environment
from support.depth import DEPTH
from support.functions import worker_process
from support.functions.accounts import accounts
from support.functions.worker_transfers import BankOfWorkers
from support.waiting import eventually
from tussock.compute import functions as fn
from tussock.statestore import StateStore, connect

KILLS = 2 * DEPTH


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StateStore]:
    with connect((tmp_path / "store").as_uri(), compaction=False) as opened:
        yield opened


@pytest.mark.parametrize("checkpoint", [0.1, 3600.0])
def test_no_request_fails_when_a_worker_is_killed(store: StateStore, checkpoint: float) -> None:
    """X30 to X33: all go back to the newest commit, and what came since runs again; replies and balances are exact."""
    chance = random.Random(int(checkpoint))
    bank = BankOfWorkers(store, 30, 100, checkpoint=checkpoint)
    with bank.runtime as runtime:
        for _ in range(KILLS):
            bank.send(chance, 400)
            os.kill(chance.choice(runtime.worker_processes()), signal.SIGKILL)
            bank.send(chance, 200)
            bank.settle()
        assert bank.balances() == bank.ledger
        # What ran again counts once.
        stats = runtime.stats()
        assert sum(stats[name] for name in ("lock_free", "locked", "aborted")) == KILLS * 600
    assert bank.stored(store) == {key: f'{{"balance":{balance}}}' for key, balance in bank.ledger.items()}


def test_a_worker_that_stalls_is_replaced(store: StateStore) -> None:
    """X8: it says nothing for five seconds, though its process is there."""
    chance = random.Random(5)
    bank = BankOfWorkers(store, 30, 100)
    with bank.runtime as runtime:
        bank.send(chance, 100)
        stalled = runtime.worker_processes()[1]
        os.kill(stalled, signal.SIGSTOP)
        bank.send(chance, 100)
        bank.settle()
        assert bank.balances() == bank.ledger
        assert stalled not in runtime.worker_processes()


def test_a_process_that_a_function_forked_off_answers_for_no_worker(store: StateStore) -> None:
    """Story: both came back from the function, the child was heard first, and the program ended."""
    operator = fn.Operator("forking", 4)

    @operator.register
    def forks(ctx: fn.FunctionContext, fails: bool) -> str:
        if not os.fork():
            if fails:
                raise ValueError("of the child")
            return "of the child"
        os.wait()
        ctx.put({"by": "the worker"})
        return "of the worker"

    with fn.Runtime(store, "p", [operator], workers=2) as runtime:
        before = runtime.worker_processes()
        for key in ("a", "b", "c", "d"):
            for fails in (False, True):
                assert runtime.send("forking", key, "forks", fails).result(30) == "of the worker"
            assert runtime.query("forking", key) == {"by": "the worker"}
        assert runtime.worker_processes() == before


def test_a_partition_without_changes_keeps_its_state(store: StateStore) -> None:
    """A published system takes an empty delta for the whole state when it recovers."""
    with fn.Runtime(store, "bank", [accounts()], workers=2, checkpoint=0.05) as runtime:
        for at in range(20):
            runtime.send("account", f"a{at}", "begin", at).result(30)
        for _ in range(3):
            commits = runtime.stats()["commits"]
            runtime.send("account", "a0", "begin", 100).result(30)
            eventually(lambda before=commits: runtime.stats()["commits"] > before)
        for process in runtime.worker_processes():
            os.kill(process, signal.SIGKILL)
        found = [runtime.query("account", f"a{at}") for at in range(20)]
        assert found == [{"balance": at or 100} for at in range(20)]


def test_killed_with_all_its_workers_a_program_goes_on(tmp_path: Path) -> None:
    """X26, X31: workers end with their program, replies that were given hold, and its successor has another number."""
    url = (tmp_path / "store").as_uri()
    command = [sys.executable, worker_process.__file__, url]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=child_environment())
    assert process.stdout is not None
    workers = [int(pid) for pid in process.stdout.readline().split()]
    replies = dict(line.split() for line in iter(process.stdout.readline, "done\n"))
    process.kill()
    process.wait()
    assert len(replies) == worker_process.REQUESTS
    eventually(lambda: not any(_is_running(pid) for pid in workers))
    with connect(url, compaction=False) as store, fn.Runtime(store, "bank", [accounts()], workers=3) as runtime:
        again = {str(at): str(worker_process.send(runtime, at).result(30)) for at in range(worker_process.REQUESTS)}
        assert again == replies
        found = [runtime.query("account", key) for key in ("x", "y")]
        assert found == [{"balance": 1000 - worker_process.REQUESTS}, {"balance": worker_process.REQUESTS}]


def _is_running(pid: int) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
