"""How long functions take, as a program tells it: from a sample, of each function by itself."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from support.store.stores import open_on
from tussock.compute import functions as fn
from tussock.compute.functions.errors import TransactionAborted
from tussock.compute.functions.function_times import FunctionTimes
from tussock.statestore import StateStore, connect
from tussock.statestore.base.system import RealSystem
from tussock.statestore.buckets import open_bucket

SECONDS = 60
SCHEMA = pa.schema([("value", pa.int64())])


class HandClock(RealSystem):
    """Time passes by itself, and where the test says so."""

    passed = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.passed


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StateStore]:
    with connect((tmp_path / "store").as_uri(), compaction=False) as opened:
        yield opened


def times_of(runtime: fn.Runtime) -> dict[str, dict[str, Any]]:
    """By function."""
    return {one["function"]: one for one in runtime.stats()["function_times"]}


def test_the_time_of_a_function_is_its_own() -> None:
    """Not that of a function that it awaits, nor of one that runs when it has returned; what raises is timed, too."""
    clock = HandClock()
    step = fn.Operator("step")

    @step.register
    async def outer(ctx: fn.FunctionContext) -> None:
        clock.passed += 1
        await ctx.call("step", "b", "inner")
        clock.passed += 2
        ctx.call_async("step", "c", "later")

    @step.register
    async def inner(ctx: fn.FunctionContext) -> None:
        clock.passed += 4

    @step.register
    def later(ctx: fn.FunctionContext) -> None:
        clock.passed += 0.5

    @step.register
    async def fail(ctx: fn.FunctionContext) -> None:
        clock.passed += 8
        raise ValueError("no")

    with open_on(open_bucket("memory://"), clock) as store, fn.Runtime(store, "p", [step], timeout=3600) as runtime:
        runtime.send("step", "a", "outer").result(SECONDS)
        with pytest.raises(fn.TransactionAborted):
            runtime.send("step", "a", "fail").result(SECONDS)
        found = times_of(runtime)
        # Less than a second passes by itself, or the machine is of no use.
        assert {name: int(one["median_ms"]) // 500 for name, one in found.items()} == {
            "fail": 16,
            "inner": 8,
            "outer": 6,
            "later": 1,
        }
        assert [one["calls"] for one in found.values()] == [1, 1, 1, 1]
        assert list(found) == ["fail", "inner", "outer", "later"], "the slowest first"
        assert sum(one["share"] for one in found.values()) == pytest.approx(1, abs=0.01)
        assert found["inner"]["largest_ms"] == found["inner"]["median_ms"]
        graph = runtime.call_graph(tid=1)
        assert graph is not None
        assert [call["function"] for call in graph["calls"]] == ["outer", "inner", "later"]


@pytest.mark.parametrize("workers", [0, 2])
def test_one_request_of_an_epoch_stands_for_all_of_its_function(store: StateStore, workers: int) -> None:
    """Ninety and ten requests of one epoch are two that are timed; all that they call is, wherever it runs."""
    step = fn.Operator("step", partitions=8)

    @step.register
    async def often(ctx: fn.FunctionContext) -> None:
        ctx.call_async("step", f"{ctx.key} of", "called")

    @step.register
    async def seldom(ctx: fn.FunctionContext) -> int:
        return int(await ctx.call("step", f"{ctx.key} of", "awaited"))

    @step.register
    async def called(ctx: fn.FunctionContext) -> None:
        ctx.put({"value": 1})

    @step.register
    async def awaited(ctx: fn.FunctionContext) -> int:
        time.sleep(0.1)
        return 1

    with fn.Runtime(store, "p", [step], epoch_ms=10_000, epoch_max=100, workers=workers) as runtime:
        asked = [runtime.send("step", f"{at}", "seldom" if at % 10 == 0 else "often") for at in range(100)]
        assert sum(one.result(SECONDS) or 0 for one in asked) == 10
        found = times_of(runtime)
    assert {name: one["calls"] for name, one in found.items()} == {
        "often": 90,
        "called": 90,
        "seldom": 10,
        "awaited": 10,
    }
    assert found["awaited"]["median_ms"] >= 100
    # One call of each was timed, and a busy machine may take the processor from either for a while.
    assert found["seldom"]["median_ms"] < found["awaited"]["median_ms"]
    assert found["awaited"]["share"] > 0.5


@pytest.mark.parametrize("workers", [0, 2])
def test_what_the_time_limit_stops_is_named(store: StateStore, workers: int) -> None:
    """First of all, be it a function that was called, or a batch function."""
    step = fn.Operator("step", schema=SCHEMA)

    @step.register
    async def begin(ctx: fn.FunctionContext, is_endless: bool) -> None:
        if is_endless:
            await ctx.call("step", "b", "loop")

    @step.register
    async def loop(ctx: fn.FunctionContext) -> None:
        while True:
            pass

    @step.register_batch
    def loops(batch: fn.FunctionBatch) -> None:
        while True:
            pass

    with fn.Runtime(store, "p", [step], timeout=1.0, workers=workers) as runtime:
        runtime.send("step", "a", "begin", False).result(SECONDS)
        with pytest.raises(fn.TransactionAborted, match=r"step\.loop did not return in time"):
            runtime.send("step", "a", "begin", True).result(SECONDS)
        with pytest.raises(fn.TransactionAborted, match="did not return in time"):
            runtime.send_many("step", "loops", ["a"])
        stats = runtime.stats()
        assert stats["stopped"] == 2
        assert [one["stopped"] for one in stats["function_times"]] == [1, 1, 0]
        assert {one["function"] for one in stats["function_times"][:2]} == {"loop", "loops"}
        assert times_of(runtime)["loop"]["median_ms"] >= 900


def test_each_batch_is_timed(store: StateStore) -> None:
    """As one call, however many requests it has."""
    step = fn.Operator("step", schema=SCHEMA)

    @step.register_batch
    def write(batch: fn.FunctionBatch) -> None:
        time.sleep(0.02)
        batch.put({"value": pa.array([1] * batch.num_rows)})

    with fn.Runtime(store, "p", [step]) as runtime:
        for _ in range(2):
            runtime.send_many("step", "write", ["a", "b"])
        assert times_of(runtime)["write"]["calls"] == 2
        assert times_of(runtime)["write"]["median_ms"] >= 20


def test_times_are_of_the_newest_calls_and_of_so_many_functions() -> None:
    """Median and largest forget; a program with more names than are kept tells of the first ones."""
    times = FunctionTimes(lambda: 0.0)
    times.note("step", "slow once", 60.0)
    for _ in range(128):
        times.note("step", "slow once", 0.001)
    line = times.stats()["function_times"][0]
    assert (line["calls"], line["median_ms"], line["largest_ms"]) == (129, 1.0, 1.0)
    for number in range(3000):
        times.note("step", f"f{number}", 0.002)
        times.stop(TransactionAborted("late", "Overdue", "step", "a", f"g{number}"))
    stats = times.stats()
    assert (len(stats["function_times"]), stats["stopped"]) == (20, 3000)
    assert {one["function"][0] for one in stats["function_times"]} == {"g"}
