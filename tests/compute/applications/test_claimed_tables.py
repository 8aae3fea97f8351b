"""A start looks whose the tables are: it takes none of others, makes none anew, and shuts out nobody in vain."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from support.procedures.procedure_story import Story, batch
from tussock.compute import changelog as cl
from tussock.compute import functions as fn
from tussock.compute import procedures as ps
from tussock.compute.applications.borders.dead_letters import DEAD_LETTERS_SCHEMA
from tussock.statestore import InvalidOption, SchemaMismatch, StateStore, TableNotFound, TussockError, connect

BALANCE = pa.schema([("balance", pa.int64())])
ROWS = pa.schema([pa.field("key", pa.string(), nullable=False), ("balance", pa.int64())])
SECONDS = 30


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StateStore]:
    with connect((tmp_path / "store").as_uri(), compaction=False) as opened:
        yield opened


def accounts(schema: pa.Schema = BALANCE, name: str = "account") -> fn.Operator:
    operator = fn.Operator(name, schema=schema)

    @operator.register
    async def add(ctx: fn.FunctionContext, amount: int) -> int:
        balance = (ctx.get() or {"balance": 0})["balance"] + amount
        ctx.put({"balance": balance})
        return int(balance)

    return operator


def bank(store: StateStore, name: str = "bank", **options: Any) -> fn.Runtime:
    return fn.Runtime(store, name, [accounts()], **options)


def flow(store: StateStore, name: str = "bank") -> cl.Flow:
    return cl.Flow(store, [cl.Stream(store, "s", schema=ROWS, key=["key"])], name=name)


def add(runtime: fn.Runtime, amount: int = 1) -> int:
    return int(runtime.send("account", "k", "add", amount).result(SECONDS))


def test_a_second_program_on_an_operator_is_refused(store: StateStore) -> None:
    """Story: both ran, and the commit of one ended the other, for ever."""
    with bank(store) as first:
        assert add(first) == 1
        with pytest.raises(InvalidOption, match="table 'account' is that of application 'bank'"):
            bank(store, "shop").start()
        assert add(first) == 2
    assert "shop.replies" not in store.tables()
    with pytest.raises(InvalidOption, match="table 'account' is that of application 'bank'"):
        bank(store, "shop").load("account", [{"key": "k", "balance": 100}])
    assert store.table("account").get("k") == {"key": "k", "balance": 2}


def test_a_table_that_procedures_write_is_theirs(store: StateStore) -> None:
    """One that they only read may be that of several."""
    store.create_table("rate", ROWS, primary_key=["key"])
    story = Story(store)
    story.app.table("rate")
    with story.app:
        story.app.submit("SP1", batch(1)).result(SECONDS)
    other = ps.App(store, "other")
    other.table("rate")
    with other:
        pass
    third = ps.App(store, "third")
    third.table("sum")
    with pytest.raises(InvalidOption, match="table 'sum' is that of application 'story'"):
        third.start()


def in_other_ways(store: StateStore) -> list[tuple[Callable[[], Any], type[TussockError], str]]:
    """Starts under the name `bank` that cannot be."""
    app = ps.App(store, "bank")
    app.table("sums", ROWS, primary_key=["key"])
    other_columns = fn.Runtime(store, "bank", [accounts(pa.schema([("balance", pa.string())]))])
    two = fn.Runtime(store, "bank", [accounts(), accounts(name="raw")])
    return [
        (app.start, InvalidOption, "'bank': the store has an application of that name which is none of procedures"),
        (flow(store).start, InvalidOption, "'bank': the store has an application of that name which is no flow"),
        (other_columns.start, SchemaMismatch, r"column 'balance' was int64, and is string"),
        (two.start, SchemaMismatch, "table 'raw' is a raw table"),
    ]


def test_a_start_that_cannot_be_leaves_the_running_one_alone(store: StateStore, tmp_path: Path) -> None:
    """Story: it took the application over first, and then failed; no application was left. No table is made, either."""
    store.create_table("raw")
    with bank(store, checkpoint=0) as running:
        assert add(running) == 1
        with connect((tmp_path / "store").as_uri(), compaction=False) as other:
            ways = in_other_ways(other)
            before = set(other.tables())
            for start, error, message in ways:
                with pytest.raises(error, match=message) as caught:
                    start()
                assert "Object" not in str(caught.value)
            assert set(other.tables()) == before
        assert add(running) == 2


def test_a_program_does_not_start_on_a_running_application_of_another_kind(store: StateStore) -> None:
    """The other way round."""
    story = Story(store)
    with story.app:
        assert story.app.submit("SP1", batch(1)).result(SECONDS) == 4
        with pytest.raises(InvalidOption, match=r"'story': .* which is none of functions; give the program another"):
            bank(store, "story").start()
        with pytest.raises(InvalidOption, match="which is no flow"):
            flow(store, "story").start()
        assert story.app.submit("SP1", batch(1)).result(SECONDS) == 8
    assert not {"account", "story.histories", "s"} & set(store.tables())


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("table", ["account", "bank.replies"])
def test_a_table_that_was_dropped_is_not_made_anew(store: StateStore, table: str, *, again: bool) -> None:
    """Story: the program began with no accounts, as if nothing had been."""
    with bank(store) as runtime:
        add(runtime)
    schema, key = store.table(table).schema, store.table(table).primary_key
    store.drop_table(table)
    if again:
        store.create_table(table, schema, primary_key=list(key))
    with pytest.raises(TableNotFound, match=f"table '{table}' was dropped, .*--forget") as caught:
        bank(store).start()
    assert caught.value.args[1] == table
    assert (table in store.tables()) == again


def test_a_stream_that_was_dropped_is_not_made_anew(store: StateStore) -> None:
    """Of a flow, and the tables of procedures, which their declaration makes."""
    with flow(store) as running:
        running.streams["s"].push([cl.upsert(key="k", balance=1)]).result(SECONDS)
    store.drop_table("s")
    with pytest.raises(TableNotFound, match="table 's' was dropped"):
        flow(store).start()
    with Story(store).app as app:
        app.submit("SP1", batch(1)).result(SECONDS)
    store.drop_table("sum")
    with pytest.raises(TableNotFound, match="table 'sum' was dropped"):
        Story(store).app.start()


def test_rows_of_others_are_not_taken_over_without_a_word(store: StateStore) -> None:
    """A table of the operator's columns was taken for the operator's; `load` says that it is to be."""
    store.create_table("account", ROWS, primary_key=["key"])
    with bank(store, "empty"):
        pass
    store.create_table("saved", ROWS, primary_key=["key"])
    with store.transaction() as tx:
        tx.table("saved").upsert([{"key": "k", "balance": 7}])
    wanted = fn.Runtime(store, "savings", [accounts(name="saved")])
    with pytest.raises(InvalidOption, match=r"'saved' is there and has rows .* load\(\)"):
        wanted.start()
    wanted.load("saved", [])
    with wanted:
        assert wanted.query("saved", "k") == {"balance": 7}
    assert store.table("saved").get("k") == {"key": "k", "balance": 7}


def test_a_table_that_a_program_has_no_use_for_any_more_may_go(store: StateStore) -> None:
    """It is refused only while the program declares it."""
    with fn.Runtime(store, "bank", [accounts(), accounts(name="old")]) as runtime:
        add(runtime)
    store.drop_table("old")
    for expected in (2, 3):
        with bank(store) as again:
            assert add(again) == expected


def test_applications_of_a_time_without_notes_go_on(store: StateStore) -> None:
    """Their rows have no tables: what they declare is theirs."""
    with bank(store) as runtime:
        add(runtime)
    row = store.table("_applications").get("bank")
    with store.transaction() as tx:
        tx.table("_applications").upsert([{**row, "tables": None}])
    with bank(store) as again:
        assert add(again) == 2
    with pytest.raises(InvalidOption, match="table 'account' is that of application 'bank'"):
        bank(store, "shop").start()


def letters(store: StateStore) -> fn.Runtime:
    """A program with a feed that skips bad rows."""
    program = bank(store)
    program.feed("account", "add", fn.TableFeed("orders", on_bad="skip"), arguments=["amount"], request_id="id")
    return program


ORDERS = pa.schema([("id", pa.int64()), ("key", pa.string()), ("amount", pa.int64())])


@pytest.mark.parametrize("name", ["bank.replies", "bank.dead_letters"])
def test_a_table_of_others_is_not_taken_for_what_an_application_keeps(store: StateStore, name: str) -> None:
    """Story: the first reply or letter ended the program, and its next starts; of a raw table it was no named error."""
    store.create_table("orders", ORDERS, primary_key=["id"])
    before = {*store.tables(), "_applications", name}
    for make in (lambda: store.create_table(name, ROWS, primary_key=["key"]), lambda: store.create_table(name)):
        make()
        with pytest.raises(SchemaMismatch, match=f"table '{name}' has the columns .*: give it another name"):
            letters(store).start()
        assert set(store.tables()) == before
        store.drop_table(name)


def test_letters_of_a_program_that_was_forgotten_stay(store: StateStore) -> None:
    """Story: a new one of its name began to count anew, and wrote over them."""
    store.create_table("orders", ORDERS, primary_key=["id"])
    store.create_table("bank.dead_letters", DEAD_LETTERS_SCHEMA, primary_key=["number"])
    older = {"number": 7, "feed": "f", "batch_id": 1, "origin": "o", "cause": "older", "data": b""}
    with store.transaction() as tx:
        tx.table("bank.dead_letters").upsert([older])
        tx.table("orders").upsert([{"id": 1, "key": None, "amount": 1}])
    with letters(store) as program:
        program.drain(SECONDS)
    found = [row["number"] for batch in store.table("bank.dead_letters").read() for row in batch.to_pylist()]
    assert sorted(found) == [7, 8]
