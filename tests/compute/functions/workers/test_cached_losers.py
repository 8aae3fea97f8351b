"""Losers that run again in all their workers at once, from what these have cached of the first run (X24, X25).

Each test has one epoch of requests that meet, on simulated workers, whose exchanges it counts.
"""

import random
from collections.abc import Callable
from typing import Any

import pytest

from support.functions.accounts import run_together
from support.functions.simulated_crew import Crews
from support.procedures.histories import QuickSystem
from support.store.stores import open_on
from tussock.compute import functions as fn
from tussock.compute.functions.program.directory import Operators
from tussock.compute.functions.workers import worker_site
from tussock.compute.functions.workers.assignment import Assignment
from tussock.statestore.buckets import open_bucket
from tussock.statestore.contract.object_store import ObjectStore

Request = tuple[Any, ...]
Run = Callable[..., tuple[list[Any], dict[str, Any], Crews]]


def numbers() -> fn.Operator:
    """Entities that hold a number, which begins at 0."""
    number = fn.Operator("number", partitions=16)

    def value_of(ctx: fn.FunctionContext) -> int:
        return int((ctx.get() or {"n": 0})["n"])

    @number.register
    async def add(ctx: fn.FunctionContext, amount: int) -> int:
        value = value_of(ctx) + amount
        if value < 0:
            raise ValueError(f"{value} is below 0")
        ctx.put({"n": value})
        return value

    @number.register
    async def count(ctx: fn.FunctionContext, to: str, amount: int) -> int:
        """Counts here, and adds there."""
        value = value_of(ctx) + 1
        ctx.put({"n": value})
        ctx.call_async("number", to, "add", amount)
        return value

    @number.register
    async def tell(ctx: fn.FunctionContext, to: str) -> None:
        """Adds there what is here: another argument each time."""
        value = value_of(ctx) + 1
        ctx.put({"n": value})
        ctx.call_async("number", to, "add", value)

    @number.register
    async def agree(ctx: fn.FunctionContext, to: str) -> None:
        value = value_of(ctx)
        ctx.put({"n": value + 1})
        ctx.call_async("number", to, "expect", value)

    @number.register
    async def expect(ctx: fn.FunctionContext, value: int) -> None:
        if value_of(ctx) != value:
            raise ValueError("told another number")
        ctx.put({"n": value + 1})

    @number.register
    async def branch(ctx: fn.FunctionContext, to: str) -> None:
        """The first one calls once, later ones twice."""
        value = value_of(ctx)
        ctx.put({"n": value + 1})
        for _ in range(1 + (value > 0)):
            ctx.call_async("number", to, "add", 1)

    @number.register
    async def wander(ctx: fn.FunctionContext, to: str, third: str) -> None:
        """The first one writes `to`, later ones write `third`."""
        value = value_of(ctx)
        ctx.put({"n": value + 1})
        await ctx.call("number", to if value == 0 else third, "add", 1)

    @number.register
    async def leave(ctx: fn.FunctionContext, to: str) -> None:
        """Only the first one writes here."""
        value = value_of(ctx)
        if value == 0:
            ctx.put({"n": 1})
        ctx.call_async("number", to, "add", 1)

    @number.register
    async def look(ctx: fn.FunctionContext) -> int:
        return value_of(ctx)

    @number.register
    async def ask(ctx: fn.FunctionContext, to: str, function: str, *arguments: Any) -> int:
        """Adds here what another one says."""
        said = int(await ctx.call("number", to, function, *arguments))
        value = value_of(ctx) + said + 1
        ctx.put({"n": value})
        return value

    @number.register
    async def draw(ctx: fn.FunctionContext, to: str, above: int) -> None:
        """Draws if the number here is above that."""
        value = value_of(ctx)
        if value > above:
            ctx.random()
        ctx.put({"n": value + 1})
        ctx.call_async("number", to, "add", 1)

    @number.register
    async def draw_and_fail(ctx: fn.FunctionContext, to: str) -> None:
        value = value_of(ctx)
        if value > 0 and ctx.random() >= 0:
            raise ValueError("drawn in vain")
        ctx.put({"n": value + 1})
        ctx.call_async("number", to, "add", 1)

    @number.register
    async def choose(ctx: fn.FunctionContext, near: str, to: str) -> None:
        """The first one looks in one way, later ones in another."""
        value = value_of(ctx)
        ctx.put({"n": value + 1})
        await ctx.call("number", near, "peek" if value else "look")
        ctx.call_async("number", to, "add", 1)

    @number.register
    async def peek(ctx: fn.FunctionContext) -> int:
        return value_of(ctx)

    @number.register
    async def carry(ctx: fn.FunctionContext, here: str, there: str, calls: int) -> None:
        ctx.put({"n": value_of(ctx) + 1})
        for at in range(calls):
            ctx.call_async("number", (here, there)[at % 2], "weigh", "x" * ((1 << 20) - 100))

    @number.register
    async def weigh(ctx: fn.FunctionContext, text: str) -> None:
        ctx.put({"n": value_of(ctx) + len(text)})

    return number


def _keys() -> tuple[list[str], list[str]]:
    """Keys of the first of two workers, and of the second."""
    assignment = Assignment(Operators([numbers()]), 2)
    keys = [f"k{at}" for at in range(200)]
    return tuple([key for key in keys if assignment.home((0, key)) == worker] for worker in (0, 1))  # type: ignore[return-value]


HERE, THERE = _keys()
A, B, C = HERE[0], THERE[0], THERE[1]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs requests as one epoch in two workers, and in this process, and replays it there the other way around.

    All four have the same states and call graphs, and the digests of the record.
    `begin`: the number that the first entity of each worker has.
    """

    def runtime(bucket: ObjectStore, count: int, workers: int) -> tuple[fn.Runtime, Crews]:
        crews = Crews(bucket, random.Random(1), loss=0.0)
        monkeypatch.setattr(worker_site, "crew_of", crews)
        options: dict[str, Any] = {"epoch_ms": 20_000, "epoch_max": count, "checkpoint": 3600, "workers": workers}
        return fn.Runtime(open_on(bucket, QuickSystem()), "p", [numbers()], **options), crews

    def run_both(*requests: Request, begin: int = 0) -> tuple[list[Any], dict[str, Any], Crews]:
        found = []
        for workers, others in ((2, 0), (0, 2)):
            bucket = open_bucket("memory://")
            older, crews = runtime(bucket, len(requests), workers)
            older.load("number", [{"key": key, "n": begin} for key in (A, B)])
            older.start()
            replies = run_together(older, *[("number", *request) for request in requests])
            newer, _ = runtime(bucket, len(requests), others)
            newer.start()
            results = []
            for one in (older, newer):
                states = {key: (one.query("number", key) or {"n": None})["n"] for key in (*HERE, *THERE)}
                results.append((states, [one.call_graph(tid=at + 1) for at in range(len(requests))]))
            assert results[0] == results[1]
            found.append((replies, results[0], older.stats(), crews))
            newer.stop()
            with pytest.raises(fn.ApplicationFenced):
                older.stop()
        (replies, result, stats, crews), alone = found
        assert (replies, result) == alone[:2]
        return replies, {**stats, **result[0]}, crews

    return run_both


def test_losers_on_one_key_take_one_exchange(run: Run) -> None:
    """X24: all workers run their parts at once, and those behind a loser in the same exchange, as it commits."""
    requests = [(HERE[1 + at], "count", B, 1) for at in range(40)]
    replies, stats, crews = run(*requests)
    assert replies == [1] * 40
    assert stats[B] == 40
    assert (stats["locked"], stats["cached"], crews.cached) == (39, 39, {"same": 78})
    # The first runs: one exchange with each worker. The losers: one with both.
    assert crews.steps == 4


def test_a_loser_on_one_worker_may_call_otherwise(run: Run) -> None:
    """What does not leave the worker needs no cache: other arguments there are what they are."""
    _, stats, crews = run(*[(A, "tell", HERE[1])] * 10)
    assert stats[HERE[1]] == 55
    assert (stats["cached"], crews.cached) == (9, {"same": 9})


def test_a_loser_that_aborts_on_what_others_left_does_so_at_once(run: Run) -> None:
    """X6: its other worker, which believed that it commits, and losers that ran on that, count no more."""
    requests = [(A, "count", B, amount) for amount in (-10, -10, -10, -5, -5)]
    replies, stats, crews = run(*requests, begin=25)
    assert replies == [26, 27, "-5 is below 0", 28, "-5 is below 0"]
    assert (stats[A], stats[B], stats["cached"]) == (28, 0, 2)
    # The last two ran on what the third had written in one worker: they ran again.
    assert crews.cached == {"same": 9, "aborted": 3}
    assert crews.steps == 6


@pytest.mark.parametrize(
    ("requests", "ends"),
    [
        pytest.param([(A, "tell", B)] * 3, {"changed": 3, "same": 3}, id="another argument"),
        pytest.param([(A, "branch", B)] * 3, None, id="another call"),
        pytest.param([(A, "wander", B, C)] * 2, None, id="another entity"),
        pytest.param([(A, "leave", B)] * 2, None, id="another write"),
        pytest.param([(A, "agree", B)] * 2, {"changed": 1, "aborted": 1}, id="an abort behind another argument"),
        pytest.param([(A, "ask", B, "add", 1)] * 2, None, id="another value is awaited"),
        pytest.param([(A, "draw", B, 0)] * 2, None, id="a draw that the first run had not"),
        pytest.param([(A, "draw_and_fail", B)] * 2, {"changed": 1, "same": 1}, id="a draw, and an abort"),
        pytest.param([(A, "choose", HERE[1], B)] * 2, {"changed": 1, "same": 1}, id="another function"),
    ],
)
def test_a_loser_that_does_something_else_moves(run: Run, requests: list[Request], ends: Any) -> None:
    """X25: it is forgotten, and the loser runs from its beginning, with the result that it has in one process."""
    _, stats, crews = run(*requests)
    assert crews.cached["changed"] > 0
    assert ends is None or crews.cached == ends
    assert stats["cached"] == 0


def test_a_value_that_is_awaited_and_stays_is_cached(run: Run) -> None:
    """A function goes on with what the other worker said in the first run, while that one says it again."""
    replies, stats, crews = run(*[(A, "ask", B, "look")] * 5)
    assert replies == [1, 2, 3, 4, 5]
    assert (stats["cached"], crews.cached, crews.steps) == (4, {"same": 8}, 5)


def test_who_has_drawn_moves(run: Run) -> None:
    """What a transaction has drawn goes along with it."""
    _, stats, crews = run(*[(A, "draw", B, -1)] * 3)
    assert (stats["locked"], stats["cached"], crews.cached) == (2, 0, {})


def test_an_epoch_keeps_64_mib_of_tokens(run: Run) -> None:
    """X25: beyond that a worker says that it has nothing, and the loser moves."""
    _, stats, crews = run(*[(A, "carry", HERE[1], B, 14)] * 2)
    assert (stats["locked"], stats["cached"]) == (1, 0)
    assert crews.cached["changed"] > 0
