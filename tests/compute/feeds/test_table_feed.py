"""A table as input, and a table as output: each epoch is a batch, each batch once."""

import threading
from typing import Any

import pyarrow as pa
import pytest

from support.feeds.sums import ITEM, SUM, rows_of, sums_app, sums_of
from support.waiting import eventually
from tussock.compute import procedures as ps
from tussock.statestore import InvalidOption, StateStore, TableNotFound, WaitTimeout, connect


def write(store: StateStore, rows: list[dict[str, int]], gone: list[int] | None = None) -> int:
    """One epoch."""
    table = store.table("items")
    epoch = store.new_epoch()
    if rows:
        table.upsert(rows, epoch)
    if gone:
        table.delete(gone, epoch)
    return store.commit_epoch(epoch)


def item(number: int) -> dict[str, int]:
    return {"id": number, "key": number % 3, "value": number}


@pytest.fixture
def items(store: StateStore) -> StateStore:
    store.create_table("items", ITEM, primary_key=["id"])
    return store


def emitted(store: StateStore) -> dict[int, list[tuple[int, int]]]:
    found: dict[int, list[tuple[int, int]]] = {}
    for row in rows_of(store.table("emitted")):
        found.setdefault(row["key"], []).append((row["id"], row["total"]))
    return found


def has_failed(app: ps.App) -> bool:
    try:
        app.drain(0.01)
    except WaitTimeout:
        return False
    except ps.InputLost:
        return True
    return False


class Batches:
    """An application that notes what it is given."""

    def __init__(self, store: StateStore, feed: ps.TableFeed, name: str | None = None) -> None:
        self.seen: list[tuple[int, list[dict[str, Any]]]] = []
        self.app = ps.App(store, "batches", checkpoint=60)
        self.app.feed("look", feed, name=name)

        @self.app.procedure("look", border=True)
        def look(tx: Any, batch: pa.Table) -> None:
            self.seen.append((tx.batch_id, batch.to_pylist()))

    def run(self) -> list[tuple[int, list[dict[str, Any]]]]:
        with self.app:
            self.app.drain(60)
        return self.seen


@pytest.mark.parametrize("recovery", ["weak", "strong"])
@pytest.mark.parametrize("checkpoint", [0, 60])
def test_each_epoch_is_a_batch_and_its_output_is_in_order(items: StateStore, recovery: Any, checkpoint: float) -> None:
    """Also what another writer commits while the application runs."""
    with sums_app(items, ps.TableFeed("items"), "emitted", recovery=recovery, checkpoint=checkpoint) as app:
        for number in range(20):
            write(items, [item(number)])
        app.drain(60)
        # The rows at the start are the first batch, which may hold a few of them.
        assert app.stats()["feeds"]["add"]["rows"] == 20
    assert emitted(items) == sums_of([item(number) for number in range(20)])
    sequences = [row["_sequence"] for row in rows_of(items.table("emitted"))]
    assert sequences == sorted(sequences)
    assert items.table("emitted").primary_key == ("_sequence", "_position")


def test_a_successor_goes_on_where_the_former_one_stopped(items: StateStore) -> None:
    """What is committed while nobody runs comes at the next start, epoch by epoch."""
    write(items, [item(1), item(2)])
    assert sorted(row["id"] for row in Batches(items, ps.TableFeed("items")).run()[0][1]) == [1, 2]
    write(items, [item(3)])
    write(items, [item(4)])
    assert Batches(items, ps.TableFeed("items")).run() == [(2, [item(3)]), (3, [item(4)])]
    assert Batches(items, ps.TableFeed("items")).run() == []


@pytest.mark.parametrize(("start", "seen"), [("earliest", [[item(1), item(2)], [item(3)]]), ("latest", [[item(3)]])])
def test_where_a_new_application_begins(items: StateStore, start: Any, seen: list[Any]) -> None:
    """With the rows that are there, or with what comes."""
    write(items, [item(1)])
    write(items, [item(2)])
    batches = Batches(items, ps.TableFeed("items", start=start))
    with batches.app:
        batches.app.drain(60)
        write(items, [item(3)])
        batches.app.drain(60)
    shown = [sorted(rows, key=lambda row: row["id"]) for _, rows in batches.seen]
    assert shown == seen


def test_a_start_after_an_epoch(items: StateStore) -> None:
    """What came later is read, an epoch at a time."""
    first = write(items, [item(1)])
    write(items, [item(2)])
    assert Batches(items, ps.TableFeed("items", start=first)).run() == [(1, [item(2)])]


def test_latest_is_the_first_start_even_if_nothing_was_read(items: StateStore) -> None:
    """It is durable when the start returns."""
    write(items, [item(1)])
    assert Batches(items, ps.TableFeed("items", start="latest")).run() == []
    write(items, [item(2)])
    assert Batches(items, ps.TableFeed("items", start="latest")).run() == [(1, [item(2)])]


def test_operations_show_deletes(items: StateStore) -> None:
    """A column says what was done; without it there are the rows that were written."""
    write(items, [item(1), item(2)])
    first = items.committed_epoch
    with_operations = ps.TableFeed("items", operations=True)
    batches = Batches(items, with_operations)
    batches.run()
    write(items, [{**item(1), "value": 7}, item(3)], gone=[2])
    again = Batches(items, with_operations)
    [(_, rows)] = again.run()
    assert {(row["id"], row["_op"]) for row in rows} == {(1, "update"), (2, "delete"), (3, "insert")}
    plain = ps.App(items, "plain")
    seen: list[Any] = []
    plain.feed("look", ps.TableFeed("items", start=first))
    plain.procedure("look", border=True)(lambda tx, batch: seen.append(batch.to_pylist()))
    with plain:
        plain.drain(60)
    assert [{row["id"] for row in rows} for rows in seen] == [{1, 3}]
    assert {row["_op"] for _, found in batches.seen for row in found} == {"insert"}


def test_a_position_belongs_to_a_name(items: StateStore) -> None:
    """Under another name a feed begins anew."""
    write(items, [item(1)])
    Batches(items, ps.TableFeed("items")).run()
    anew = Batches(items, ps.TableFeed("items"), name="second")
    assert anew.run() == [(2, [item(1)])]


def test_another_table_under_the_name_of_a_feed_is_named(items: StateStore) -> None:
    """Story: the message told that the new table had been dropped and made again, and what it had was lost."""
    write(items, [item(1)])
    Batches(items, ps.TableFeed("items")).run()
    items.create_table("others", ITEM, primary_key=["id"])
    with pytest.raises(InvalidOption, match="has read from table 'items' under this name, and not from 'others'"):
        Batches(items, ps.TableFeed("others")).run()


def test_a_table_that_was_made_again_is_another_one(items: StateStore) -> None:
    """At a start, and while the application runs."""
    write(items, [item(1)])
    Batches(items, ps.TableFeed("items")).run()
    items.drop_table("items")
    with pytest.raises(TableNotFound, match="feed 'look' of application 'batches'"):
        Batches(items, ps.TableFeed("items")).run()
    items.create_table("items", ITEM, primary_key=["id"])
    with pytest.raises(ps.InputLost, match="was dropped and made again"):
        Batches(items, ps.TableFeed("items")).run()
    app = sums_app(items, ps.TableFeed("items"), "emitted")
    app.start()
    items.drop_table("items")
    eventually(lambda: has_failed(app))
    with pytest.raises(ps.InputLost, match="'items' is gone"):
        app.stop()


def test_epochs_that_the_store_no_longer_keeps(tmp_path: Any) -> None:
    """An error that names them, where the application was away for longer than the retention."""
    with connect((tmp_path / "short").as_uri(), retention=0.0, compaction=False) as store:
        store.create_table("items", ITEM, primary_key=["id"])
        write(store, [item(1)])
        Batches(store, ps.TableFeed("items")).run()
        for number in range(2, 6):
            write(store, [item(number)])
        store.compact("items")
        with pytest.raises(ps.InputLost, match="no longer kept"):
            Batches(store, ps.TableFeed("items")).run()


def test_an_output_keeps_the_newest_rows(items: StateStore) -> None:
    """At least as many as it is declared for, whole batches of them."""
    for life in range(3):
        app = ps.App(items, "kept", checkpoint=0)
        stream = app.stream("s", SUM)
        app.output(stream, "newest", keep_rows=5)

        @app.procedure("give", border=True, emits=stream)
        def give(tx: Any, batch: pa.Table) -> Any:
            return batch

        with app:
            for number in range(4):
                rows = [{"key": life, "id": number, "total": at} for at in range(3)]
                app.submit("give", rows).result(60)
    rows = rows_of(items.table("newest"))
    assert [(row["_sequence"], row["_position"]) for row in rows] == [(at, of) for at in (11, 12) for of in range(3)]


def test_a_batch_that_fails_emits_nothing(items: StateStore) -> None:
    """The numbers of the output have no gap for it."""
    app = ps.App(items, "failing")
    stream = app.stream("s", SUM)
    app.output(stream, "out")

    @app.procedure("give", border=True, emits=stream)
    def give(tx: Any, batch: pa.Table) -> None:
        tx.emit(stream, batch)
        if tx.batch_id == 2:
            raise ValueError("no")

    with app:
        tickets = [app.submit("give", [{"key": 1, "id": at, "total": at}]) for at in range(3)]
        assert isinstance(tickets[1].exception(60), ps.ProcedureError)
        tickets[2].result(60)
    assert [(row["_sequence"], row["id"]) for row in rows_of(items.table("out"))] == [(1, 0), (2, 2)]


def test_a_writer_and_a_reader_at_once(items: StateStore) -> None:
    """Another thread commits as fast as it can; nothing is missed, nothing comes twice."""

    def work() -> None:
        for number in range(60):
            write(items, [item(number)])

    writer = threading.Thread(target=work)
    with sums_app(items, ps.TableFeed("items"), "emitted", checkpoint=0.05) as app:
        writer.start()
        writer.join()
        app.drain(60)
    assert emitted(items) == sums_of([item(number) for number in range(60)])


def test_an_output_table_of_others_is_refused(items: StateStore) -> None:
    """By its columns, or because it has rows."""
    with pytest.raises(InvalidOption, match="is there with the columns"):
        sums_app(items, ps.TableFeed("items"), "items").start()
    with sums_app(items, ps.TableFeed("items"), "emitted") as app:
        write(items, [item(1)])
        app.drain(60)
    items.create_table("filled", items.table("emitted").schema, primary_key=["_sequence", "_position"])
    with items.transaction() as tx:
        tx.table("filled").upsert(next(iter(items.table("emitted").read())))
    other = ps.App(items, "other")
    other.output(other.stream("totals", SUM), "filled")
    with pytest.raises(InvalidOption, match="'filled' is there and has rows that the application did not write"):
        other.start()
    second = ps.App(items, "other")
    second.output(second.stream("totals", SUM), "emitted")
    with pytest.raises(InvalidOption, match="'emitted' is that of application 'sums'"):
        second.start()
