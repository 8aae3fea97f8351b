"""A transaction that was stopped in the lock phase is stopped there again at a replay, and not before."""

from contextlib import suppress
from typing import Any

import pytest

from tussock.compute import functions as fn
from tussock.statestore import connect


def make_cell() -> fn.Operator:
    """Cells of a number each, of which some functions wait for ever once others have run."""
    cell = fn.Operator("cell", 4)

    @cell.register
    async def fill(ctx: fn.FunctionContext, value: int) -> None:
        ctx.put({"value": value})

    @cell.register
    async def look(ctx: fn.FunctionContext) -> int:
        state = ctx.get()
        return 0 if state is None else int(state["value"])

    @cell.register
    async def stall_once_filled(ctx: fn.FunctionContext, other: str) -> None:
        while ctx.get() is not None:
            pass
        ctx.call_async("cell", other, "fill", 7)

    @cell.register
    async def add_up(ctx: fn.FunctionContext, one: str, other: str) -> int:
        total = await ctx.call("cell", one, "look") + await ctx.call("cell", other, "look")
        ctx.put({"value": total})
        return int(total)

    return cell


@pytest.mark.parametrize("workers", [(0, 0), (2, 0), (0, 2)])
def test_who_was_stopped_in_the_lock_phase_stands_in_the_way_again(workers: tuple[int, int], tmp_path: Any) -> None:
    """Those behind it had lost to what it wrote in its first run, and saw what had committed meanwhile."""
    url = tmp_path.as_uri()

    def bank(count: int) -> tuple[Any, fn.Runtime]:
        store = connect(url)
        # Only the log has what has run: no commit comes.
        return store, fn.Runtime(store, "p", [make_cell()], timeout=1.0, checkpoint=3600, workers=count)

    first_store, first = bank(workers[0])
    first.start()
    first.pause()
    futures = [
        first.send("cell", "x", "fill", 1),
        first.send("cell", "x", "stall_once_filled", "y"),
        first.send("cell", "sum", "add_up", "y", "z"),
        first.send("cell", "z", "fill", 5),
    ]
    first.resume()
    assert [futures[at].result(60) for at in (0, 2, 3)] == [None, 5, None]
    with pytest.raises(fn.TransactionAborted, match="did not return in time"):
        futures[1].result(60)
    second_store, second = bank(workers[1])
    with second:  # shuts the first one out, and replays what it ran
        assert [second.query("cell", key) for key in ("x", "y", "z", "sum")] == [
            {"value": 1},
            None,
            {"value": 5},
            {"value": 5},
        ]
    with pytest.raises(fn.ApplicationFenced):
        first.send("cell", "x", "fill", 2).result(60)
    with suppress(fn.ApplicationFenced):
        first.stop()
    for store in (first_store, second_store):
        store.close()
