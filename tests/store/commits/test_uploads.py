"""Rows that are uploaded in one process and committed in another, as by Spark's tasks and driver."""

import pickle

import pyarrow as pa
import pytest

from tussock.statestore import SchemaMismatch, StateStore, connect
from tussock.statestore.contract.records import Run

SCHEMA = pa.schema([pa.field("id", pa.int64()), pa.field("name", pa.string(), nullable=False)])


@pytest.fixture
def store() -> StateStore:
    with connect("memory://", compaction=False) as opened:
        opened.create_table("people", SCHEMA, ["id"])
        yield opened


def rows(store: StateStore) -> dict[int, str]:
    return {row["id"]: row["name"] for batch in store.table("people").read() for row in batch.to_pylist()}


def test_uploads_are_seen_when_they_are_committed_and_not_before(store: StateStore) -> None:
    """The runs of an upload travel between processes; two uploads make one epoch."""
    table = store.table("people")
    first = table.upload([pa.record_batch({"id": [1, 2], "name": ["a", "b"]})])
    second = table.upload([pa.record_batch({"id": [3], "name": ["c"]})])
    assert rows(store) == {}
    epoch = store.commit_uploaded({"people": pickle.loads(pickle.dumps(second + first))}, writer="job", batch_id=1)
    assert rows(store) == {1: "a", 2: "b", 3: "c"}
    again = table.upload([pa.record_batch({"id": [9], "name": ["never"]})])
    assert store.commit_uploaded({"people": again}, writer="job", batch_id=1) == epoch
    assert rows(store) == {1: "a", 2: "b", 3: "c"}


def test_the_first_upload_in_the_list_wins_for_a_key(store: StateStore) -> None:
    """Within an upload the later row wins; over several the order of the list decides, not that of their creation."""
    table = store.table("people")

    def uploads() -> tuple[list[Run], list[Run]]:
        first = pa.record_batch({"id": [1, 1, 2], "name": ["old", "first", "first"]})
        second = pa.record_batch({"id": [1, 1, 3], "name": ["old", "second", "second"]})
        return table.upload([first]), table.upload([second])

    first, second = uploads()
    store.commit_uploaded({"people": second + first})
    assert rows(store) == {1: "second", 2: "first", 3: "second"}
    first, second = uploads()
    store.commit_uploaded({"people": first + second})
    assert rows(store) == {1: "first", 2: "first", 3: "second"}


def test_a_delete_needs_its_key_only(store: StateStore) -> None:
    """A column that may not be null may be so in a deleted row, and only there."""
    table = store.table("people")
    store.commit_uploaded({"people": table.upload([pa.record_batch({"id": [1, 2, 3], "name": ["a", "b", "c"]})])})
    mixed = pa.record_batch({"id": [1, 2], "name": [None, "z"], "gone": [True, False]})
    store.commit_uploaded({"people": table.upload([mixed], delete_column="gone")})
    assert rows(store) == {2: "z", 3: "c"}
    bad = pa.record_batch({"id": [2, 3], "name": ["y", None], "gone": [True, False]})
    with pytest.raises(SchemaMismatch, match="'name' is null"):
        table.upload([bad], delete_column="gone")
    assert rows(store) == {2: "z", 3: "c"}


def test_the_later_of_two_rows_wins_over_batches_and_flushes() -> None:
    """Also with a buffer that is too small for two batches, each of which becomes a sorted run."""
    with connect("memory://", compaction=False, buffer_bytes=0) as store:
        table = store.create_table("people", SCHEMA, ["id"])
        runs = table.upload([pa.record_batch({"id": [1, 2], "name": [name, name]}) for name in ("old", "new")])
        assert len(runs) == 2
        store.commit_uploaded({"people": runs})
        assert rows(store) == {1: "new", 2: "new"}
