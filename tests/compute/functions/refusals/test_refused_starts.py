"""A start that cannot work is refused before it shuts anybody out: the program that runs goes on."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from support.functions.accounts import accounts, cells
from tussock.compute import functions as fn
from tussock.statestore import SchemaMismatch, StateStore, connect

SECONDS = 30


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StateStore]:
    with connect((tmp_path / "store").as_uri(), compaction=False) as opened:
        yield opened


def changed() -> fn.Operator:
    """`add` of another release."""
    cell = fn.Operator("cell", partitions=4)

    @cell.register
    async def add(ctx: fn.FunctionContext, amount: int) -> int:
        value = (ctx.get() or {"value": 0})["value"] + 2 * amount
        ctx.put({"value": value})
        return int(value)

    return cell


def same_but_longer() -> fn.Operator:
    """`add` of another release, with the same results."""
    cell = fn.Operator("cell", partitions=4)

    @cell.register
    async def add(ctx: fn.FunctionContext, amount: int) -> int:
        before = ctx.get()
        value = amount if before is None else before["value"] + amount
        ctx.put({"value": value})
        return int(value)

    return cell


def runtime_of(store: StateStore, cell: fn.Operator) -> fn.Runtime:
    return fn.Runtime(store, "p", [cell], checkpoint=3600.0)


def test_other_functions_are_found_before_the_takeover(store: StateStore) -> None:
    """Story: the start failed with `NotDeterministic`, and the program that had run until then was fenced out."""
    with runtime_of(store, cells()) as running:
        assert [running.send("cell", "a", "add", 1).result(SECONDS) for _ in range(3)] == [1, 2, 3]
        with connect(store.url, compaction=False) as other:
            for operator in (changed(), fn.Operator("cell", partitions=4)):
                with pytest.raises(fn.NotDeterministic):
                    runtime_of(other, operator).start()
        assert running.send("cell", "a", "add", 1).result(SECONDS) == 4
    with connect(store.url, compaction=False) as other:
        assert other.table("cell").get("a") == {"key": "a", "state": '{"value":4}'}
        # All of it is committed, so nothing runs again.
        with runtime_of(other, changed()) as runtime:
            assert runtime.send("cell", "a", "add", 1).result(SECONDS) == 6


def copying() -> fn.Operator:
    """Requests that read what others write."""
    cell = fn.Operator("cell", partitions=4)

    @cell.register
    def value(ctx: fn.FunctionContext) -> int:
        return int((ctx.get() or {"value": 0})["value"])

    @cell.register
    async def copy(ctx: fn.FunctionContext, other: str) -> None:
        ctx.put({"value": 1 + await ctx.call("cell", other, "value")})

    return cell


@pytest.mark.parametrize("option", [{"conflicts": "snapshot"}, {"lock_phase": False}])
def test_other_rules_of_conflicts_are_found_before_the_takeover(store: StateStore, option: dict[str, Any]) -> None:
    """Story: the functions were the same, so nothing was tried, and the program that had run was fenced out."""
    with runtime_of(store, copying()) as first:
        first.send("cell", "y", "copy", "z").result(SECONDS)
    with runtime_of(store, copying()) as running:
        running.pause()
        sent = [running.send("cell", key, "copy", other) for key, other in ("ab", "bc", "ca")]
        running.resume()
        assert [one.result(SECONDS) for one in sent] == [None] * 3
        with connect(store.url, compaction=False) as other, pytest.raises(fn.NotDeterministic):
            fn.Runtime(other, "p", [copying()], checkpoint=3600.0, **option).start()
        assert [running.query("cell", key) for key in "abc"] == [{"value": 1}, {"value": 1}, {"value": 2}]
    # All of it is committed.
    with fn.Runtime(store, "p", [copying()], **option) as runtime:
        assert runtime.query("cell", "c") == {"value": 2}


def test_functions_with_the_same_results_take_over(store: StateStore) -> None:
    """Other code is no fault; what was replayed before is replayed again, with what came since."""
    running = runtime_of(store, cells())
    running.start()
    assert running.send("cell", "a", "add", 1).result(SECONDS) == 1
    with connect(store.url, compaction=False) as other, runtime_of(other, same_but_longer()) as runtime:
        assert runtime.send("cell", "a", "add", 1).result(SECONDS) == 2
        with pytest.raises(fn.ApplicationFenced):
            running.send("cell", "a", "add", 1).result(SECONDS)
    with pytest.raises(fn.ApplicationFenced):
        running.stop()


def test_a_feed_that_does_not_fit_is_found_before_the_takeover(store: StateStore) -> None:
    """Its columns are not those that the function takes."""
    store.create_table("orders", pa.schema([("id", pa.int64()), ("payer", pa.string())]), primary_key=["id"])
    with fn.Runtime(store, "bank", [accounts()]) as running:
        with connect(store.url, compaction=False) as other:
            fed = fn.Runtime(other, "bank", [accounts()])
            fed.feed("account", "transfer", fn.TableFeed("orders"), key="payer", request_id="id")
            with pytest.raises(SchemaMismatch):
                fed.start()
        running.send("account", "A", "begin", 5).result(SECONDS)
        assert running.query("account", "A") == {"balance": 5}
