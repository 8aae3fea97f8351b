"""Feeds of functions that share a table of replies: it is the program's, whichever of them a run declares first."""

from collections.abc import Mapping

from support.feeds.sums import rows_of
from support.feeds.transfers import answers, commit, table_of, transfer
from tussock.compute import functions as fn
from tussock.statestore import StateStore

SECONDS = 60


def shop(store: StateStore, feeds: Mapping[str, str]) -> fn.Runtime:
    """Orders and returns, each of a table of that name, with their tables of replies; a reply is the feed's name."""
    item = fn.Operator("item")

    @item.register
    async def take(ctx: fn.FunctionContext, name: str, row: int) -> str:
        state = ctx.get() or {"rows": []}
        ctx.put({"rows": [*state["rows"], [name, row]]})
        return name

    @item.register
    async def orders(ctx: fn.FunctionContext, row: int) -> str:
        return str(await ctx.call("item", ctx.key, "take", "orders", row))

    @item.register
    async def returns(ctx: fn.FunctionContext, row: int) -> str:
        return str(await ctx.call("item", ctx.key, "take", "returns", row))

    program = fn.Runtime(store, "shop", [item])
    for name, replies in feeds.items():
        program.feed(
            *("item", name, fn.TableFeed(name)), key="payer", arguments=["id"], request_id="id", replies=replies
        )
    return program


def test_feeds_that_share_replies_come_and_go(store: StateStore) -> None:
    """Whichever is declared, and in whatever order, each row has its reply, behind those that were there."""
    numbers = {"orders": 0, "returns": 1000}
    for name in numbers:
        table_of(store, name)
    runs = [["orders"], ["orders", "returns"], ["returns"], ["returns", "orders"], ["orders"], ["orders", "returns"]]
    seen: list[str] = []
    for feeds in runs:
        for name in numbers:
            commit(store, transfer(numbers[name]), table=name)
            numbers[name] += 1
        with shop(store, dict.fromkeys(feeds, "answers")) as program:
            program.drain(SECONDS)
        rows = sorted(rows_of(store.table("answers")), key=lambda row: (row["_sequence"], row["_position"]))
        ids = [row["request_id"] for row in rows]
        assert ids[: len(seen)] == seen, "what was there stays as it was"
        seen = ids
    found = answers(store)
    assert len(seen) == len(found) == 12
    assert {one: reply for one, (reply, _) in found.items()} == {
        **{str(number): '"orders"' for number in range(6)},
        **{str(number): '"returns"' for number in range(1000, 1006)},
    }


def test_feeds_that_swap_their_tables_of_replies_overwrite_none(store: StateStore) -> None:
    """One feed has had one epoch with replies and the other one six: the next ones come behind, in both tables."""
    for name in ("orders", "returns"):
        table_of(store, name)
    for number in range(6):
        commit(store, transfer(number), table="orders")
        if not number:
            commit(store, transfer(1000), table="returns")
        with shop(store, {"orders": "first", "returns": "second"}) as program:
            program.drain(SECONDS)
    for number in range(6, 9):
        commit(store, transfer(number), table="orders")
        commit(store, transfer(1000 + number), table="returns")
        with shop(store, {"orders": "second", "returns": "first"}) as program:
            program.drain(SECONDS)
    assert set(answers(store, "first")) == {*map(str, range(6)), "1006", "1007", "1008"}
    assert set(answers(store, "second")) == {"1000", "6", "7", "8"}
