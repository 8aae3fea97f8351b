"""Transfers that two workers share: exact balances, in all modes, over restarts."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.functions.accounts import cells, run_together
from support.functions.worker_transfers import BankOfWorkers
from support.service.platforms import Platform
from tussock.compute import functions as fn
from tussock.statestore import InvalidOption, StateStore, connect


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StateStore]:
    with connect((tmp_path / "store").as_uri(), compaction=False) as opened:
        yield opened


def test_transfers_between_workers_are_exact(store: StateStore) -> None:
    """Each request has its reply, and accounts of both workers are the ledger, in memory and in the store."""
    bank = BankOfWorkers(store, 40, 50)
    with bank.runtime:
        chance = random.Random(1)
        for _ in range(4):
            bank.send(chance, 250)
            bank.settle()
        assert bank.balances() == bank.ledger
        stats = bank.runtime.stats()
        assert stats["workers"] == 2
        assert stats["lock_free"] > 0
        assert stats["locked"] > 0
        assert stats["aborted"] > 0
    assert bank.stored(store) == {key: f'{{"balance":{balance}}}' for key, balance in bank.ledger.items()}


@pytest.mark.parametrize("conflicts", ["serializable", "reorder", "snapshot"])
def test_a_write_skew_over_workers(store: StateStore, conflicts: Any) -> None:
    """X18: keys of two workers; only snapshot isolation lets both transactions see the old values.

    A published system decides per partition, and commits both in the mode `reorder`, too.
    """
    with fn.Runtime(store, "p", [cells()], conflicts=conflicts, workers=2) as runtime:
        run_together(runtime, ("cell", "A", "write", 1), ("cell", "B", "write", 2))
        run_together(runtime, ("cell", "B", "copy_of", "A"), ("cell", "A", "copy_of", "B"))
        found = {key: (runtime.query("cell", key) or {})["value"] for key in "AB"}
        assert found == ({"A": 2, "B": 1} if conflicts == "snapshot" else {"A": 1, "B": 1})


def calling_many(calls: int) -> fn.Operator:
    """Each of the calls appends to one of four cells; half of them are made by a call."""
    cell = fn.Operator("cell", partitions=4)

    @cell.register
    async def call_many(ctx: Any, first: int, is_first: bool) -> None:
        for number in range(first, first + calls // 2):
            ctx.call_async("cell", f"c{number % 4}", "append", number)
            if is_first and number == 10:
                ctx.call_async("cell", "c0", "call_many", calls // 2, False)

    @cell.register
    async def append(ctx: Any, number: int) -> None:
        ctx.put({"numbers": [*(ctx.get() or {"numbers": []})["numbers"], number]})

    return cell


def test_many_calls_that_nobody_awaits_run_in_their_order(store: StateStore) -> None:
    """They move with the transaction, unread by the workers that do not run them; in one process it is the same."""
    found = []
    for name, workers in (("here", 0), ("there", 2)):
        with (
            connect(f"{store.url}-{name}", compaction=False) as own,
            fn.Runtime(own, name, [calling_many(400)], workers=workers) as runtime,
        ):
            runtime.send("cell", "root", "call_many", 0, True).result(60)
            found.append([(runtime.query("cell", f"c{at}") or {})["numbers"] for at in range(4)])
    assert found[0] == found[1]
    assert sorted(number for numbers in found[0] for number in numbers) == list(range(400))


def test_a_store_in_memory_has_no_workers() -> None:
    """Other processes do not see it."""
    with connect("memory://") as store, pytest.raises(InvalidOption, match="in the memory of this process"):
        fn.Runtime(store, "p", [cells()], workers=1).start()


def test_transfers_on_a_platform(tmp_path: Path) -> None:
    """X28: a commit of all workers is one epoch of the platform, and workers read there."""
    with Platform((tmp_path / "bucket").as_uri()) as platform:
        store = platform.connect()
        bank = BankOfWorkers(store, 20, 50, checkpoint=3600)
        before = store.committed_epoch
        with bank.runtime:
            bank.send(random.Random(7), 300)
            bank.settle()
            bank.runtime.scale(3)
            bank.send(random.Random(8), 100)
            bank.settle()
            assert bank.balances() == bank.ledger
            assert bank.runtime.stats()["commits"] == 1
        assert store.committed_epoch > before
        assert bank.stored(store) == {key: f'{{"balance":{balance}}}' for key, balance in bank.ledger.items()}
