"""Tables come and go without an epoch: a transaction sees those that are there when it begins."""

import pyarrow as pa
import pytest

from tussock.statestore import InvalidOption, StateStore, TableNotFound

SCHEMA = pa.schema([("id", pa.string()), ("n", pa.int64())])
OTHER_SCHEMA = pa.schema([("key", pa.int32()), ("text", pa.string())])


@pytest.fixture
def dropped(store: StateStore) -> StateStore:
    """A store whose newest epoch wrote to table `t`, which was dropped then."""
    store.create_table("t", SCHEMA, primary_key=["id"])
    store.create_table("other", SCHEMA, primary_key=["id"])
    with store.transaction() as tx:
        tx.table("t").upsert([{"id": "a", "n": 1}])
    store.drop_table("t")
    return store


def test_a_dropped_table_is_not_found(dropped: StateStore) -> None:
    """Though it has rows at the newest epoch, which is the transaction's."""
    with dropped.transaction() as tx, pytest.raises(TableNotFound, match="no table 't'"):
        tx.table("t")


def test_a_table_that_was_created_anew_is_the_new_one(dropped: StateStore) -> None:
    """It is empty, and takes writes, without a commit of others between."""
    dropped.create_table("t", SCHEMA, primary_key=["id"])
    with dropped.transaction() as tx:
        assert tx.table("t").get("a") is None
        tx.table("t").upsert([{"id": "b", "n": 2}])
    assert [row for batch in dropped.table("t").read() for row in batch.to_pylist()] == [{"id": "b", "n": 2}]


def test_a_read_of_the_new_table_is_no_conflict(dropped: StateStore) -> None:
    """What is copied out of it is nothing."""
    dropped.create_table("t", SCHEMA, primary_key=["id"])
    with dropped.transaction() as tx:
        row = tx.table("t").get("a")
        tx.table("other").upsert([{"id": "copy", "n": -1 if row is None else row["n"]}])
    assert dropped.table("other").get("copy") == {"id": "copy", "n": -1}


def test_the_new_table_has_its_new_schema(dropped: StateStore) -> None:
    dropped.create_table("t", OTHER_SCHEMA, primary_key=["key"])
    with dropped.transaction() as tx:
        tx.table("t").upsert([{"key": 1, "text": "x"}])
    assert dropped.table("t").get(1) == {"key": 1, "text": "x"}


def test_the_former_table_is_read_to_the_end(store: StateStore, other: StateStore) -> None:
    """One that is dropped and created anew while the transaction runs is the former one for it."""
    table = store.create_table("t", SCHEMA, primary_key=["id"])
    epoch = store.new_epoch()
    table.upsert([{"id": "a", "n": 1}], epoch)
    store.commit_epoch(epoch)
    with store.transaction() as tx:
        assert tx.snapshot_epoch == epoch
        other.drop_table("t")
        other.create_table("t", SCHEMA, primary_key=["id"])
        store.wait_epoch(epoch)
        assert tx.table("t").get("a") == {"id": "a", "n": 1}


def test_a_table_that_comes_after_the_beginning_is_there_and_empty(store: StateStore, other: StateStore) -> None:
    """Another process may have created it a moment before, which this one does not know of yet."""
    with store.transaction() as tx:
        other.create_table("late", SCHEMA, primary_key=["id"])
        assert tx.table("late").get("a") is None
        tx.table("late").upsert([{"id": "a", "n": 1}])
    assert store.table("late").get("a") == {"id": "a", "n": 1}


def test_the_epoch_of_the_transaction_may_be_named(store: StateStore) -> None:
    """As a snapshot's own may; a read at it sees own rows as one without does, and another epoch is refused."""
    store.create_table("t", SCHEMA, primary_key=["id"])
    with store.transaction() as tx:
        tx.table("t").upsert([{"id": "a", "n": 1}])
    before = tx.epoch
    with store.transaction() as tx:
        table = tx.table("t")
        table.upsert([{"id": "b", "n": 2}])
        at = tx.snapshot_epoch
        assert [table.get(key, epoch=at) for key in "abc"] == [table.get(key) for key in "abc"]
        assert sum(batch.num_rows for batch in table.read(epoch=at)) == 2
        with pytest.raises(InvalidOption, match=f"reads at its snapshot, epoch {before}, not at {before - 1}"):
            table.get("a", epoch=before - 1)
    assert store.table("t").get("b") == {"id": "b", "n": 2}
