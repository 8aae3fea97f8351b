"""What programs may do, where workers share it: draws, outside calls, batch functions, large and endless ones."""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from support.functions.accounts import run_together
from support.functions.crash_program import draws
from tussock.compute import functions as fn
from tussock.statestore import InvalidOption, StateStore, connect


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StateStore]:
    with connect((tmp_path / "store").as_uri(), compaction=False) as opened:
        yield opened


def visits() -> fn.Operator:
    """Entities that visit each other; those named `0`, `1`, ... are on several workers."""
    place = fn.Operator("place", partitions=8)

    @place.register
    async def visit(ctx: fn.FunctionContext, route: list[str]) -> list[Any]:
        seen = (ctx.get() or {"seen": 0})["seen"] + 1
        ctx.put({"seen": seen})
        return [ctx.key, *(await ctx.call("place", route[0], "visit", route[1:]) if route else [])]

    @place.register
    async def spread(ctx: fn.FunctionContext, children: list[Any]) -> None:
        ctx.put({"seen": len(children)})
        for at, below in enumerate(children):
            ctx.call_async("place", f"{ctx.key}.{at}", "spread", below)

    @place.register
    async def draw(ctx: fn.FunctionContext, route: list[str]) -> list[float]:
        mine = ctx.random()
        below = await ctx.call("place", route[0], "draw", route[1:]) if route else []
        ctx.put({"drawn": [mine, ctx.random()]})
        return [mine, *below]

    @place.register
    async def carry(ctx: fn.FunctionContext, text: str, count: int) -> None:
        for at in range(count):
            ctx.call_async("place", str(at), "take", text)

    @place.register
    async def take(ctx: fn.FunctionContext, text: str) -> None:
        ctx.put({"bytes": len(text)})

    @place.register
    async def loop(ctx: fn.FunctionContext, others: list[str]) -> None:
        if others:
            await ctx.call("place", others[0], "loop", others[1:])
        while True:
            pass

    @place.register
    async def sleep(ctx: fn.FunctionContext) -> None:
        time.sleep(60)

    return place


def test_functions_wait_for_others_on_other_workers(store: StateStore) -> None:
    """X2, X16: a chain back and forth, and the call graph of Fig. 6 with its exact shares."""
    route = [str(at % 7) for at in range(60)]
    with fn.Runtime(store, "p", [visits()], workers=3) as runtime:
        assert runtime.send("place", "0", "visit", route).result(30) == ["0", *route]
        assert runtime.query("place", "3") == {"seen": route.count("3")}
        runtime.send("place", "r", "spread", [[], [], [[], []]], request_id="fig-6").result(30)
        graph = runtime.call_graph("fig-6")
        assert graph is not None
        calls = graph["calls"]
        leaves = [one["share"] for at, one in enumerate(calls) if all(other["caller"] != at for other in calls)]
        assert leaves == ["1/3", "1/3", "1/6", "1/6"]
        # Shares of more than 64 bits: each call halves what is left.
        deep = [str(at % 5) for at in range(200)]
        assert len(runtime.send("place", "0", "visit", deep).result(30)) == 201


def test_what_is_drawn_moves_along_and_is_drawn_again(tmp_path: Path) -> None:
    """X35: functions of several workers draw for one transaction; a replay by another number has the same."""
    url = (tmp_path / "store").as_uri()
    route = [str(at) for at in range(6)]
    with connect(url, compaction=False) as store:
        runtime = fn.Runtime(store, "p", [visits()], workers=2, checkpoint=3600)
        runtime.start()
        drawn = runtime.send("place", "a", "draw", route, request_id="one").result(30)
        kept = [runtime.query("place", key) for key in ["a", *route]]
        assert len({*drawn}) == 7
        # Another runner takes the program over, and replays what this one has not committed.
        with connect(url, compaction=False) as other, fn.Runtime(other, "p", [visits()], workers=3) as successor:
            assert [successor.query("place", key) for key in ["a", *route]] == kept
            assert successor.send("place", "a", "draw", route, request_id="one").result(30) == drawn
        future = runtime.send("place", "a", "draw", route)
        with pytest.raises(fn.ApplicationFenced):
            future.result(30)
        with pytest.raises(fn.ApplicationFenced):
            runtime.stop()


def test_an_outside_call_is_made_once(store: StateStore, tmp_path: Path) -> None:
    """X36: from a worker, when what led to it is durable; nothing runs twice outside."""
    outside = tmp_path / "outside"
    with fn.Runtime(store, "draws", [draws(outside, dies=False)], workers=2) as runtime:
        found = run_together(runtime, *[("draw", key, "draw") for key in "xyz"])
        assert sorted(one[3] for one in found) == [1, 2, 3]
        assert outside.read_text().split() == [f"pay-{one[2]}" for one in sorted(found, key=lambda one: one[3])]


def test_a_worker_that_dies_with_an_answer_asks_once_more(store: StateStore, tmp_path: Path) -> None:
    """X36: by the same key, as the other side can tell; the caller waits, and gets one reply."""
    outside = tmp_path / "outside"
    payer = fn.Operator("payer")

    @payer.register
    async def pay(ctx: fn.FunctionContext) -> list[Any]:
        def ask(key: str) -> int:
            with outside.open("a") as file:
                file.write(key + "\n")
            asked = outside.read_text().splitlines()
            if len(asked) == 1:
                os._exit(9)
            return len(asked)

        name = str(ctx.uuid())
        return [name, ctx.call_external(f"pay-{name}", ask)]

    with fn.Runtime(store, "p", [payer], workers=2) as runtime:
        name, asked = runtime.send("payer", "x", "pay").result(30)
        assert asked == 2
        assert outside.read_text().split() == [f"pay-{name}"] * 2


def test_batch_functions_over_workers(store: StateStore) -> None:
    """Columns in and out; the states are with several workers, and each has what the batch wrote."""
    account = fn.Operator("account", 8, schema=pa.schema([("balance", pa.int64())]), key=pa.int64())

    @account.register_batch(touches={"to": "account"})
    def transfers(batch: fn.FunctionBatch) -> Any:
        mine, amount = batch.state("balance"), batch["amount"]
        batch.abort(pc.less(mine, amount), "not enough credit")
        batch.put({"balance": pc.subtract(mine, amount)})
        batch.put({"balance": pc.add(batch.state("balance", of="to"), amount)}, of="to")
        return pc.subtract(mine, amount)

    @account.register_batch
    def close(batch: fn.FunctionBatch) -> None:
        batch.delete()

    runtime = fn.Runtime(store, "bank", [account], workers=3)
    runtime.load("account", [{"key": key, "balance": 10} for key in range(100)])
    with runtime:
        keys = list(range(0, 100, 2))
        columns = {"to": [key + 1 for key in keys], "amount": [key % 3 * 6 for key in keys]}
        replies = runtime.send_many("account", "transfers", keys, columns)
        assert replies["error"].to_pylist() == [None if key % 3 < 2 else "not enough credit" for key in keys]
        runtime.send_many("account", "close", [98, 99])
        found = {key: runtime.query("account", key) for key in range(100)}
        expected = {key: 10 - (6 if key % 3 == 1 else 0) for key in keys}
        expected |= {key + 1: 20 - balance for key, balance in expected.items()}
        assert found == {key: {"balance": expected[key]} if key < 98 else None for key in range(100)}
    assert sorted(row["key"] for batch in store.table("account").read() for row in batch.to_pylist()) == [*range(98)]


@pytest.mark.parametrize("workers", [0, 2])
def test_what_a_batch_function_writes_counts_towards_the_next_commit(store: StateStore, workers: int) -> None:
    """At once, also in workers: no step of an epoch has to come first."""
    place = fn.Operator("place", 8, schema=pa.schema([("seen", pa.int64())]), key=pa.int64())

    @place.register_batch
    def visit(batch: fn.FunctionBatch) -> None:
        batch.put({"seen": batch["seen"]})

    with fn.Runtime(store, "p", [place], workers=workers, checkpoint=3600) as runtime:
        assert runtime.stats()["dirty"] == 0
        runtime.send_many("place", "visit", list(range(100)), {"seen": list(range(100))})
        assert runtime.stats()["dirty"] == 100


def test_calls_that_do_not_fit_into_a_message_end_their_transaction_only(store: StateStore) -> None:
    """A transaction takes at most 16 MiB with it; messages of many are cut."""
    text = "x" * 1_000_000
    with fn.Runtime(store, "p", [visits()], workers=2, epoch_ms=100) as runtime:
        with pytest.raises(fn.TransactionAborted, match="at most 16 MiB"):
            runtime.send("place", "a", "carry", text, 40).result(30)
        assert run_together(runtime, *[("place", f"b{at}", "carry", text, 5) for at in range(10)]) == [None] * 10
        assert runtime.query("place", "4") == {"bytes": 1_000_000}


def test_a_function_without_end_is_stopped_in_its_worker(store: StateStore) -> None:
    """Its transaction is aborted by name, and others of the epoch are not."""
    with fn.Runtime(store, "p", [visits()], workers=2, timeout=0.5, epoch_ms=50) as runtime:
        sent = ("place", "0", "loop", ["1", "2", "3"]), ("place", "9", "visit", ["8"])
        found = run_together(runtime, *sent)
        assert found == ["function place.loop did not return in time, and was stopped", ["9", "8"]]


def test_a_function_that_cannot_be_stopped_ends_the_program(store: StateStore) -> None:
    """It waits in a library, so the program ends and says so."""
    runtime = fn.Runtime(store, "p", [visits()], workers=2, timeout=0.3)
    runtime.start()
    with pytest.raises(fn.ApplicationStopped, match="cannot be stopped"):
        runtime.send("place", "0", "sleep").result(30)
    with pytest.raises(fn.ApplicationStopped):
        runtime.stop()


def test_a_program_that_cannot_be_sent_is_refused(store: StateStore) -> None:
    """A function that holds what belongs to its process, such as an open store."""
    holder = fn.Operator("holder")

    @holder.register
    async def look(ctx: fn.FunctionContext) -> int:
        return len(store.tables())

    with pytest.raises(InvalidOption, match="cannot be sent to workers"):
        fn.Runtime(store, "p", [holder], workers=1).start()
    large = fn.Operator("large")
    held = b"x" * (33 << 20)

    @large.register
    async def size(ctx: fn.FunctionContext) -> int:
        return len(held)

    with pytest.raises(InvalidOption, match="at most 32 MiB fit"):
        fn.Runtime(store, "p", [large], workers=1).start()
