"""Processes that die between the log and the store's commit: FX11, FX12, and what a recovery is held to."""

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.functions.accounts import accounts, run_together
from support.functions.crash_program import draws, replies
from tussock.compute import functions as fn
from tussock.statestore import StateStore, connect

TESTS = Path(__file__).resolve().parents[2]


def dies(folder: Path, story: str) -> str:
    """What a process printed, which then ended as by `kill -9`."""
    command = [sys.executable, "-m", "support.functions.crash_program", (folder / "store").as_uri()]
    command += [str(folder / "outside"), story]
    ran = subprocess.run(command, cwd=TESTS, capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 9, ran.stderr
    return ran.stdout.strip()


def logged(store: Path) -> bytes:
    """All that the input logs of a store have."""
    return b"".join(one.read_bytes() for one in store.glob("applications/*/input/*"))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StateStore]:
    with connect((tmp_path / "store").as_uri(), compaction=False) as opened:
        yield opened


def test_fx11_an_epoch_is_cut_as_it_was(tmp_path: Path) -> None:
    """X26, X31 to X33: replayed slowly, the second transfer is aborted again; each request has its first reply."""
    assert dies(tmp_path, "cut") == "0|not enough credit: B"
    with connect((tmp_path / "store").as_uri(), compaction=False) as store:
        assert store.table("account").get("A") == {"key": "A", "state": '{"balance":10}'}
        with fn.Runtime(store, "bank", [accounts()], epoch_ms=0) as runtime:
            assert {key: (runtime.query("account", key) or {})["balance"] for key in "ABC"} == {"A": 0, "B": 10, "C": 0}
            graphs = [runtime.call_graph("one"), runtime.call_graph("two")]
            assert [(one["tid"], one["epoch"], one["phase"]) for one in graphs if one] == [
                (1, 1, "lock_free"),
                (2, 1, "aborted"),
            ]
            again = runtime.send("account", "A", "transfer", "B", 10, request_id="one")
            other = runtime.send("account", "B", "transfer", "C", 5, request_id="two")
            assert (replies(again), replies(other)) == ("0", "not enough credit: B")
            assert runtime.stats()["tid"] == 2
            assert replies(runtime.send("account", "B", "transfer", "C", 5)) == "5"


def test_fx12_what_was_drawn_is_drawn_again(tmp_path: Path) -> None:
    """X35, X36: after the reply the answer is the recorded one, and nobody outside is asked again.

    With the next commit the record is gone from the log.
    """
    told = dies(tmp_path, "draws")
    outside = tmp_path / "outside"
    key = outside.read_bytes().strip()
    assert key in logged(tmp_path / "store")
    with connect((tmp_path / "store").as_uri(), compaction=False) as store:
        operator = draws(outside, dies=False)
        with fn.Runtime(store, "draws", [operator]) as runtime:
            state = runtime.query("draw", "x")
            assert state is not None
            assert str([state["found"]]) == told
            assert len(outside.read_text().splitlines()) == 1
    assert key not in logged(tmp_path / "store")


def test_fx12_who_died_with_the_answer_asks_once_more_by_the_same_key(tmp_path: Path) -> None:
    """X36: the key was durable before the call, so the other side can tell that it is the same one."""
    assert dies(tmp_path, "dies") == ""
    outside = tmp_path / "outside"
    with connect((tmp_path / "store").as_uri(), compaction=False) as store:
        with fn.Runtime(store, "draws", [draws(outside, dies=False)]) as runtime:
            state = runtime.query("draw", "x")
            assert state is not None
            assert state["found"][3] == 2
        keys = outside.read_text().splitlines()
        assert len(keys) == 2
        assert keys[0] == keys[1] == f"pay-{state['found'][2]}"


def test_a_changed_function_is_found_at_the_replay(tmp_path: Path) -> None:
    """X34: the message names the epoch and its requests."""
    dies(tmp_path, "cut")
    changed = fn.Operator("account", partitions=4)

    @changed.register
    async def transfer(ctx: fn.FunctionContext, to: str, amount: int) -> int:
        ctx.put({"balance": 5})
        return amount

    with connect((tmp_path / "store").as_uri(), compaction=False) as store:
        with pytest.raises(
            fn.NotDeterministic,
            match=r"epoch 1 of program 'bank' .*2: account.transfer of 'B' \(request 'two'\) was aborted then",
        ):
            fn.Runtime(store, "bank", [changed]).start()
        with pytest.raises(fn.NotDeterministic, match="no function 'transfer'"):
            fn.Runtime(store, "bank", [fn.Operator("account", partitions=4)]).start()


def test_a_pause_longer_than_all_timeouts_loses_no_checkpoint(store: StateStore) -> None:
    """A published system stops its snapshots silently after a second of idleness; and an empty delta changes nothing.

    The first program's partitions without changes between two commits keep their state, too.
    """
    with fn.Runtime(store, "bank", [accounts()], checkpoint=0.05) as runtime:
        run_together(runtime, ("account", "A", "begin", 10), ("account", "B", "begin", 20))
        time.sleep(1.2)
        run_together(runtime, ("account", "A", "credit", 1))
        _eventually_committed(store, "A", 11)
        time.sleep(1.2)
        run_together(runtime, ("account", "A", "credit", 1))
        _eventually_committed(store, "A", 12)
    with fn.Runtime(store, "bank", [accounts()]) as runtime:
        assert runtime.query("account", "B") == {"balance": 20}


def _eventually_committed(store: StateStore, key: str, balance: int) -> None:
    until = time.monotonic() + 20
    while time.monotonic() < until:
        row = store.table("account").get(key)
        if row is not None and row["state"] == f'{{"balance":{balance}}}':
            return
        time.sleep(0.01)
    raise AssertionError(f"{key} was not committed with {balance}")
