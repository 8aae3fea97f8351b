"""Feeds and outputs that are refused, at the declaration or at the start; and what the input log says of feeds."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from support.feeds.sums import ITEM
from support.waiting import eventually
from tussock.compute import procedures as ps
from tussock.statestore import InvalidOption, SchemaMismatch, StateStore, TableNotFound


def nothing(*_: Any) -> None:
    """A procedure."""


@pytest.fixture
def app(store: StateStore) -> ps.App:
    """With a border, a procedure behind it, and a stream between them."""
    store.create_table("items", ITEM, primary_key=["id"])
    store.create_table("raw")
    declared = ps.App(store, "declared")
    stream = declared.stream("s", ITEM)
    declared.procedure("border", border=True, emits=stream)(nothing)
    declared.procedure("behind", consumes=stream)(nothing)
    return declared


ITEMS = ps.TableFeed("items")
WRONG: dict[str, tuple[Callable[[ps.App], Any], type[Exception], str]] = {
    "no-border": (lambda app: app.feed("behind", ITEMS), InvalidOption, "'behind' it consumes streams"),
    "no-procedure": (lambda app: app.feed("none", ITEMS), InvalidOption, "'none' there is none of that name"),
    "no-feed": (lambda app: app.feed("border", "items"), InvalidOption, "expected a TableFeed or a KafkaFeed"),
    "two-feeds": (lambda app: [app.feed("border", ITEMS) for _ in range(2)], InvalidOption, "has a feed already"),
    "name": (lambda app: app.feed("border", ITEMS, name="a b"), InvalidOption, "name='a b'"),
    "no-table": (lambda app: app.feed("border", ps.TableFeed("no")), TableNotFound, "feed 'border' of .* 'no'"),
    "raw-table": (lambda app: app.feed("border", ps.TableFeed("raw")), InvalidOption, "is a raw table"),
    "later-epoch": (
        lambda app: app.feed("border", ps.TableFeed("items", start=1 << 60)),
        InvalidOption,
        "is no committed epoch",
    ),
    "start": (lambda app: ps.TableFeed("items", start="now"), InvalidOption, "start='now'"),  # type: ignore[arg-type]
    "table": (lambda app: ps.TableFeed(""), InvalidOption, "a table feed is of table ''"),
    "operations": (lambda app: ps.TableFeed("items", operations=1), InvalidOption, "operations=1"),  # type: ignore[arg-type]
    "on-bad": (lambda app: ps.TableFeed("items", on_bad="no"), InvalidOption, "on_bad='no'"),  # type: ignore[arg-type]
    "no-stream": (lambda app: app.output("absent", "t"), InvalidOption, "expected a stream"),
    "no-target": (lambda app: app.output(app.stream("t", ITEM), 5), InvalidOption, "expected a table or a KafkaTopic"),  # type: ignore[arg-type]
    "keep": (lambda app: app.output(app.stream("t", ITEM), "t", keep_rows=0), InvalidOption, "keep_rows=0"),
    "two-outputs": (
        lambda app: (lambda stream: [app.output(stream, name) for name in "tu"])(app.stream("t", ITEM)),
        InvalidOption,
        "has an output already",
    ),
    "used-table": (
        lambda app: [app.table("items"), app.output(app.stream("t", ITEM), "items")],
        InvalidOption,
        "is used by the application already",
    ),
    "own-output": (
        lambda app: [app.output(app.stream("t", ITEM), "out"), app.feed("border", ps.TableFeed("out"))],
        InvalidOption,
        "reads an output table of the same application",
    ),
    "keep-of-topic": (
        lambda app: app.output(app.stream("t", ITEM), ps.KafkaTopic("h:1", "t"), keep_rows=5),
        InvalidOption,
        "keep_rows= is for tables",
    ),
}


@pytest.mark.parametrize("case", list(WRONG))
def test_what_is_refused(app: ps.App, case: str) -> None:
    """Each by its name, and nothing has started."""
    declare, error, message = WRONG[case]

    def declare_and_start() -> None:
        declare(app)
        app.start()

    with pytest.raises(error, match=message):
        declare_and_start()
    with pytest.raises(ps.ApplicationStopped):
        app.stats()


def test_a_procedure_that_expects_another_schema(store: StateStore) -> None:
    store.create_table("items", ITEM, primary_key=["id"])
    app = ps.App(store, "strict")
    app.feed("take", ps.TableFeed("items"))
    app.procedure("take", border=True, schema=pa.schema([("id", pa.string())]))(nothing)
    with pytest.raises(SchemaMismatch, match="expects id string, and the feed has id int64 not null"):
        app.start()


def test_clients_do_not_submit_to_a_fed_procedure(app: ps.App) -> None:
    """Their batches would come between those of the source."""
    app.feed("border", ITEMS)
    with app, pytest.raises(InvalidOption, match="gets its batches from a feed"):
        app.submit("border", [])


def test_a_feed_that_is_no_longer_declared(store: StateStore) -> None:
    """While the log refers to it, the application does not start without it."""
    store.create_table("items", ITEM, primary_key=["id"])

    def app_with(feed: str | None) -> ps.App:
        app = ps.App(store, "changed", checkpoint=3600)
        if feed is not None:
            app.feed("take", ITEMS, name=feed)
        app.procedure("take", border=True)(nothing)
        return app

    first = app_with("one")
    first.start()
    write = store.new_epoch()
    store.table("items").upsert([{"id": 1, "key": 1, "value": 1}], write)
    store.commit_epoch(write)
    eventually(lambda: first.stats()["feeds"]["take"]["rows"] >= 1)
    first.trace(last=1)
    for other in (None, "two"):
        with pytest.raises(InvalidOption, match=r"has a batch of feed 'one' .*start with the former feed"):
            app_with(other).start()
    with app_with("one") as again:
        again.drain(60)


def test_outputs_that_have_swapped_their_tables_do_not_start(store: StateStore) -> None:
    """The stream with the fewer batches would write over the rows of the other one."""

    def app_with(tables: dict[str, str]) -> ps.App:
        app = ps.App(store, "swapped")
        for name, table in tables.items():
            stream = app.stream(name, ITEM)
            app.output(stream, table)
            app.procedure(f"take_{name}", border=True, emits=stream, schema=ITEM)(lambda tx, batch: batch)
        return app

    row = {"id": 1, "key": 1, "value": 1}
    with app_with({"a": "first", "b": "second"}) as app:
        for name in ("a", "a", "b"):
            app.submit(f"take_{name}", [row]).result(60)
    with pytest.raises(InvalidOption, match="'first' has rows above its sequence 1, which another output has written"):
        app_with({"b": "first", "a": "second"}).start()
    with app_with({"a": "first", "b": "second"}) as app:
        app.submit("take_b", [row]).result(60)
    assert [sum(batch.num_rows for batch in store.table(one).read()) for one in ("first", "second")] == [2, 2]
