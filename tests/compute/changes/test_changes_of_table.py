"""A checkpoint of a stream of changes belongs to one table: another table is refused, even under the same name."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from support.models.change_history import History
from support.spark.change_query import Query
from tussock.compute.spark.changes.offsets import Offset
from tussock.compute.spark.reads.connections import close_stores
from tussock.statestore import InvalidOption, SchemaMismatch
from tussock.statestore.client import StateStore


@pytest.fixture(autouse=True)
def close_opened() -> Iterator[None]:
    """Close what this process opened as a source of Spark."""
    yield
    close_stores()


def anew(store: StateStore) -> None:
    """Drop the table and create another one of its name, with other rows."""
    schema = store.table("t").schema
    store.drop_table("t")
    table = store.create_table("t", schema=schema, primary_key=["id"])
    table.upsert([{"id": 2, "v": "other"}], epoch := store.new_epoch())
    store.commit_epoch(epoch)


@pytest.mark.parametrize("finished", [True, False], ids=["between two batches", "within a batch"])
def test_a_table_created_anew_is_not_the_one_that_was_read(store: StateStore, url: str, finished: bool) -> None:
    """Deletes of the old table's rows would never be reported, and a repeated batch would be another one."""
    history = History(store, 31)
    history.commit()
    query = Query(url)
    query.plan()
    if finished:
        query.run()
        query.drain()
    anew(store)
    close_stores()
    again = Query(url, query.log)
    expected = r"table 't' .*not the one whose changes the checkpoint has read \(id 1 then, 2 now\).*checkpoint"
    for act in (again.run, again.plan):
        with pytest.raises(SchemaMismatch, match=expected):
            act()


def test_another_table_is_not_read_from_the_checkpoint_of_the_first(store: StateStore, url: str) -> None:
    """The other table is refused, so no change of the first one is left out when it is named again."""
    history = History(store, 32)
    history.commit()
    store.create_table("u", schema=store.table("t").schema, primary_key=["id"])
    query = Query(url)
    query.drain()
    checkpoint = query.die()
    history.commit()
    with pytest.raises(InvalidOption, match="changes of table 't', and the query now reads table 'u' of the store at"):
        Query(url, checkpoint, path="u").plan()
    (batch,) = Query(url, checkpoint).drain()
    assert batch == history.between(history.epochs[0], history.epochs[1])


def test_a_checkpoint_without_a_table_is_accepted_and_gets_one(store: StateStore, url: str) -> None:
    """Checkpoints written before tables were noted have none; the note is added with the first new changes."""
    history = History(store, 33)
    history.commit()
    query = Query(url)
    query.drain()
    names = ("epoch", "start", "snapshot", "initial")
    old: list[dict[str, Any]] = [{name: record[name] for name in names} for record in query.die()]
    again = Query(url, list(old))
    assert again.plan() is None, "Spark compares texts, and would run an empty batch"
    history.commit()
    (batch,) = again.drain()
    assert batch == history.between(history.epochs[0], history.epochs[1])
    assert again.log[0] == old[0]
    assert (again.log[-1]["table_id"], again.log[-1]["table"]) == (1, "t")


@pytest.mark.parametrize("record", [{"table_id": -1}, {"table_id": "1"}, {"table": 7, "table_id": None}])
def test_a_note_that_names_no_table_is_foreign(record: dict[str, Any]) -> None:
    """A note without a table is no note of Tussock, whatever else it holds."""
    with pytest.raises(InvalidOption, match="not one of a stream of changes"):
        Offset.of({"epoch": 1, "start": 1, "snapshot": False, "initial": False, **record})


def test_a_raw_table_created_anew_is_refused_too(store: StateStore, url: str) -> None:
    """A raw table is treated as a typed one."""
    store.create_table("raw").ingest_batch([(b"a", b"1")], epoch := store.new_epoch())
    store.commit_epoch(epoch)
    query = Query(url, path="raw")
    query.plan()
    assert pa.Table.from_batches(query.run()).num_rows == 1
    store.drop_table("raw")
    store.create_table("raw")
    close_stores()
    with pytest.raises(SchemaMismatch, match=r"table 'raw' .* is not the one"):
        Query(url, query.log, path="raw").plan()
