"""Feeds of functions that share where replies go: a table, or a topic, is the program's, whichever a run declares."""

import json
from collections.abc import Mapping

import pytest

from support.feeds.broker import KafkaBroker
from support.feeds.sums import rows_of
from support.feeds.transfers import answers, commit, table_of, transfer
from support.waiting import eventually
from tussock.compute import functions as fn
from tussock.statestore import InvalidOption, StateStore

SECONDS = 60
RUNS = [["orders"], ["orders", "returns"], ["returns"], ["returns", "orders"], ["orders"], ["orders", "returns"]]
"""The feeds of each."""


def shop(store: StateStore, feeds: Mapping[str, str | fn.KafkaTopic]) -> fn.Runtime:
    """Orders and returns, each of a table of that name, with where their replies go; a reply is the feed's name."""
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
    seen: list[str] = []
    for feeds in RUNS:
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


def test_feeds_that_share_a_topic_come_and_go(store: StateStore, kafka: KafkaBroker) -> None:
    """Story: its outbox had the name of the feed that was declared first, and what waited there waited for that one."""
    topic, numbers = kafka.topic(), {"orders": 0, "returns": 1000}
    for name in numbers:
        table_of(store, name)
    for feeds in RUNS:
        for name in numbers:
            commit(store, transfer(numbers[name]), table=name)
            numbers[name] += 1
        with shop(store, dict.fromkeys(feeds, fn.KafkaTopic(kafka.servers, topic, key="request_id"))) as program:
            program.drain(SECONDS)
            assert set(program.stats()["outputs"]) == {f"shop.{topic}.outbox"}
    found = [json.loads(message.value()) for message in kafka.messages(topic)]
    expected = [(str(number), '"orders"') for number in range(6)]
    expected += [(str(number), '"returns"') for number in range(1000, 1006)]
    assert sorted((one["request_id"], one["reply"]) for one in found) == sorted(expected)


def test_replies_whose_topic_no_feed_has_wait_and_are_told_of(
    store: StateStore, kafka: KafkaBroker, caplog: pytest.LogCaptureFixture
) -> None:
    """They go out once a feed has it again, be it another one."""
    topic = kafka.topic()
    for name in ("orders", "returns"):
        table_of(store, name)
    commit(store, transfer(1), table="orders")
    away = fn.KafkaTopic("127.0.0.1:1", topic, key="request_id")
    with shop(store, {"orders": away}) as program:
        eventually(lambda: program.stats()["feeds"]["item.orders"]["rows"])
    with shop(store, {"returns": "answers"}):
        pass
    assert f'"replies wait for a topic that no feed has now" program=shop table=shop.{topic}.outbox' in caplog.text
    with shop(store, {"returns": fn.KafkaTopic(kafka.servers, topic, key="request_id")}) as program:
        program.drain(SECONDS)
    assert [json.loads(message.value())["request_id"] for message in kafka.messages(topic)] == ["1"]


def test_one_topic_has_one_form(store: StateStore) -> None:
    """Two outputs of one outbox would send each row twice, each in its way."""
    for name in ("orders", "returns"):
        table_of(store, name)
    with pytest.raises(InvalidOption, match=r"another feed has KafkaTopic.*give both the same one"):
        shop(store, {"orders": fn.KafkaTopic("h:1", "t"), "returns": fn.KafkaTopic("h:2", "t")})
    with pytest.raises(InvalidOption, match=r"both would be in table 'shop\.t\.outbox'"):
        shop(store, {"orders": fn.KafkaTopic("h:1", "t"), "returns": "shop.t.outbox"})
