"""A replay with another result names the transactions that differ, and in what, as far as its record tells."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from support.functions.accounts import run_together
from support.waiting import eventually
from tussock.compute import functions as fn
from tussock.statestore import StateStore, connect

SECONDS = 60
ORDERS = pa.schema([("id", pa.int64()), ("key", pa.string()), ("coins", pa.int64())])


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StateStore]:
    with connect((tmp_path / "store").as_uri(), compaction=False) as opened:
        yield opened


def purses(now: str = "") -> fn.Operator:
    """`now`: what functions do that they did not do when they ran first."""
    purse = fn.Operator("purse", schema=pa.schema([("coins", pa.int64())]), partitions=4)

    @purse.register
    async def fill(ctx: fn.FunctionContext, coins: int) -> int:
        if (now == "refuse") != (coins > 1):
            raise ValueError(f"no place for {coins} coins")
        if now == "draw":
            ctx.random()
        ctx.put({"coins": coins + (now == "more")})
        if now == "spill":
            ctx.call_async("purse", "floor", "drop", coins)
        return coins + 100 * (now == "praise")

    @purse.register
    async def drop(ctx: fn.FunctionContext, coins: int) -> None:
        ctx.put({"coins": coins})

    @purse.register_batch
    def pour(batch: fn.FunctionBatch) -> Any:
        coins = batch["coins"].to_pylist()
        if now == "raise":
            raise ValueError("the floor is wet")
        batch.abort([(now == "refuse") != (one > 1) for one in coins], "no place")
        batch.put({"coins": coins})
        return [one + 100 * (now == "praise") for one in coins]

    return purse


def told_at_the_replay(store: StateStore, now: str, send: Any, workers: int = 0, *, is_fed: bool = False) -> str:
    """What the next start says, after a program has run what `send` sends, and its functions do that now."""

    def shop(now: str, **options: Any) -> fn.Runtime:
        runtime = fn.Runtime(store, "shop", [purses(now)], **options)
        if is_fed:
            feed = fn.TableFeed("orders")
            runtime.feed("purse", "pour", feed, arguments=["coins"], request_id="id", replies="answers")
        return runtime

    first = shop("", checkpoint=3600)
    first.start()
    send(first)
    with pytest.raises(fn.NotDeterministic) as caught:
        shop(now, workers=workers).start()
    with pytest.raises(fn.ApplicationFenced):
        first.stop()
    return str(caught.value)


def three(runtime: fn.Runtime) -> None:
    """In one epoch: one is aborted, and one of the others has an id."""
    runtime.pause()
    futures = [runtime.send("purse", key, "fill", coins) for key, coins in (("a", 1), ("b", 2))]
    futures.append(runtime.send("purse", "c", "fill", 1, request_id="order-3"))
    runtime.resume()
    assert [type(one.exception(SECONDS)) for one in futures] == [type(None), fn.TransactionAborted, type(None)]


REFUSED = [
    "1: purse.fill of 'a' is aborted now (ValueError: no place for 1 coins",
    "2: purse.fill of 'b' was aborted then ('no place for 2 coins'), and returns now",
    "3: purse.fill of 'c' (request 'order-3') is aborted now",
]
ANY_OF_THREE = ["the same ones are aborted", "2: purse.fill of 'b', 1: purse.fill of 'a', 3: purse.fill of 'c'"]


@pytest.mark.parametrize(
    ("now", "told"),
    [
        ("refuse", REFUSED),
        ("praise", ANY_OF_THREE),
        ("more", ANY_OF_THREE),
        ("draw", ["transaction 1: purse.fill of 'a': the replay asked for 'random 0'"]),
    ],
)
@pytest.mark.parametrize("workers", [0, 2])
def test_transactions_that_differ_are_named(store: StateStore, workers: int, now: str, told: list[str]) -> None:
    """Story: it named ten of the epoch, whichever they were, and of a draw none."""
    found = told_at_the_replay(store, now, three, workers)
    assert "record 1 of the input log" in found
    assert [one for one in told if one not in found] == [], found


def test_what_is_written_besides_is_named(store: StateStore) -> None:
    """Replies are the same, and one transaction's writes are all that differs."""

    def one(runtime: fn.Runtime) -> None:
        assert run_together(runtime, ("purse", "a", "fill", 1), ("purse", "b", "drop", 1)) == [1, None]

    found = told_at_the_replay(store, "spill", one)
    assert "replies are the same, and 1: purse.fill of 'a' had not written purse 'floor', which it does now" in found


@pytest.mark.parametrize(
    ("now", "told"),
    [
        ("refuse", ["of 'a', is aborted now ('no place')", "of 'b', was aborted then ('no place'), and is not now"]),
        ("praise", ["the same requests are aborted", "'a'", "'b'"]),
        ("raise", ["it raises ValueError: the floor is wet (", "now"]),
    ],
)
@pytest.mark.parametrize("is_fed", [False, True])
def test_requests_of_a_batch_function_that_differ_are_named(
    store: StateStore, is_fed: bool, now: str, told: list[str]
) -> None:
    """Of callers, and of the rows of a feed."""

    def send(runtime: fn.Runtime) -> None:
        if is_fed:
            eventually(lambda: runtime.stats()["batched"] + runtime.stats()["aborted"] == 2)
            runtime.query("purse", "a")
        else:
            found = runtime.send_many("purse", "pour", ["a", "b"], {"coins": [1, 2]})
            assert found["error"].to_pylist() == [None, "no place"]

    store.create_table("orders", ORDERS, primary_key=["id"])
    with store.transaction() as tx:
        tx.table("orders").upsert([{"id": at, "key": key, "coins": at} for at, key in enumerate("ab", 1)])
    found = told_at_the_replay(store, now, send, is_fed=is_fed)
    assert "batch function purse.pour" in found
    assert [one for one in told if one not in found] == [], found
