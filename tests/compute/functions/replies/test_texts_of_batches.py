"""By which text a batch function ended a request, where each run of it would have another one."""

import os
import signal
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from support.feeds.sums import rows_of
from support.waiting import eventually
from tussock.compute import functions as fn
from tussock.statestore import StateStore, connect

SECONDS = 60
ORDERS = pa.schema([("id", pa.int64()), ("key", pa.string()), ("amount", pa.int64())])


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StateStore]:
    with connect((tmp_path / "store").as_uri(), compaction=False) as opened:
        yield opened


def purses(runs: Iterator[int], told: list[str], limit: int = 0) -> fn.Operator:
    """As the text of an error that holds an address: no two runs give the same."""
    purse = fn.Operator("purse", schema=pa.schema([("amount", pa.int64())]), partitions=4)

    @purse.register_batch
    def take(batch: fn.FunctionBatch) -> Any:
        run, amount = next(runs), batch["amount"]
        told.append(f"<Order at {run}> is too small")
        batch.abort(pc.less(amount, limit), told[-1])
        batch.abort(pc.greater(amount, 100), f"<Order at {run}> is too large: caf\udce9")
        batch.put({"amount": amount})
        return amount

    @purse.register
    def look(ctx: fn.FunctionContext) -> Any:
        return ctx.get()

    return purse


def left(store: StateStore) -> dict[str, int]:
    """What purses hold."""
    return {row["key"]: row["amount"] for row in rows_of(store.table("purse"))}


@pytest.mark.parametrize("workers", [0, 2])
def test_a_text_that_each_run_has_anew_is_no_other_result(store: StateStore, workers: int) -> None:
    """Story: a text with an object's address was a dead end, since no start could replay what had been answered."""
    runs, told = count(), list[str]()
    first = fn.Runtime(store, "shop", [purses(runs, told)], checkpoint=3600, workers=workers)
    first.start()
    found = first.send_many("purse", "take", ["a", "b", "a", "c"], {"amount": [1, -1, 200, -2]})
    assert found["error"].to_pylist()[1] == found["error"].to_pylist()[3] == "<Order at 0> is too small"
    if workers:
        for process in first.worker_processes():
            os.kill(process, signal.SIGKILL)
        again = first.send_many("purse", "take", ["b"], {"amount": [-1]})
        assert again["error"].to_pylist() == [f"<Order at {next(runs) - 1}> is too small"]
    with fn.Runtime(store, "shop", [purses(runs, told)]) as second:
        assert (second.query("purse", "a"), second.query("purse", "b")) == ({"amount": 1}, None)
    with pytest.raises(fn.ApplicationFenced):
        first.stop()
    assert left(store) == {"a": 1}


@pytest.mark.parametrize("workers", [0, 2])
def test_a_row_keeps_the_text_that_it_was_first_ended_by(store: StateStore, workers: int) -> None:
    """In the table of replies, and for who sends the id again: after the loss of workers, and after a crash."""
    store.create_table("orders", ORDERS, primary_key=["id"])
    runs, told = count(), list[str]()

    def shop(**options: Any) -> fn.Runtime:
        runtime = fn.Runtime(store, "shop", [purses(runs, told)], **options)
        runtime.load("purse", [])
        feed = fn.TableFeed("orders")
        runtime.feed("purse", "take", feed, arguments=["amount"], request_id="id", replies="answers")
        return runtime

    with store.transaction() as tx:
        amounts = enumerate([1, -1, 200, -2])
        tx.table("orders").upsert([{"id": at, "key": f"p{at}", "amount": amount} for at, amount in amounts])
    first = shop(checkpoint=3600, workers=workers)
    first.start()
    eventually(lambda: first.stats()["batched"] + first.stats()["aborted"] >= 4)
    if workers:
        for process in first.worker_processes():
            os.kill(process, signal.SIGKILL)
    first.query("purse", "p0")
    with shop() as second:
        second.drain(SECONDS)
        with pytest.raises(fn.TransactionAborted, match="<Order at 0> is too small"):
            second.send("purse", "p1", "look", request_id="1").result(SECONDS)
    with pytest.raises(fn.ApplicationFenced):
        first.stop()
    small, large = "<Order at 0> is too small", "<Order at 0> is too large: caf\\udce9"
    assert {row["request_id"]: row["error"] for row in rows_of(store.table("answers"))} == {
        "0": None,
        "1": small,
        "2": large,
        "3": small,
    }
    assert len(told) > 1


def test_other_requests_that_are_ended_are_another_result(store: StateStore) -> None:
    """The replay is held to which of them, though not to the words."""
    runs = count()
    first = fn.Runtime(store, "shop", [purses(runs, [])], checkpoint=3600)
    first.start()
    first.send_many("purse", "take", ["a", "b"], {"amount": [1, -1]})
    with pytest.raises(fn.NotDeterministic):
        fn.Runtime(store, "shop", [purses(runs, [], limit=-5)]).start()
    with pytest.raises(fn.ApplicationFenced):
        first.stop()
