"""Tables, windows, streams and outputs of an application whose declaration has more columns, or wider ones."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tussock.compute import procedures as ps
from tussock.statestore import InvalidOption, SchemaMismatch, StateStore, connect

SECONDS = 60
FIRST = pa.schema([("k", pa.int64()), ("v", pa.int32())])
GROWN = pa.schema([("k", pa.int64()), ("note", pa.string()), ("v", pa.int64())])


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StateStore]:
    with connect((tmp_path / "store").as_uri(), compaction=False) as opened:
        yield opened


def app_of(store: StateStore, schema: pa.Schema, **options: Any) -> ps.App:
    """A table, a window, an output, and a stream that waits for another border's batch."""
    app = ps.App(store, "a", checkpoint=3600.0, **options)
    app.table("t", schema, primary_key=["k"])
    kept, left, right = (app.stream(name, schema) for name in ("kept", "left", "right"))
    app.window("recent", on=kept, rows=10)
    app.output(kept, "out")

    @app.procedure("first", border=True, emits=[kept, left], schema=schema)
    def first(tx: Any, batch: Any) -> None:
        tx.table("t").upsert(batch)
        tx.emit(kept, batch)
        tx.emit(left, batch)

    @app.procedure("second", border=True, emits=right, schema=schema)
    def second(tx: Any, batch: Any) -> Any:
        return batch

    @app.procedure("both", consumes=[left, right])
    def both(tx: Any, one: Any, other: Any) -> None:
        tx.reply([one.to_pylist(), other.num_rows])

    return app


def test_all_that_is_kept_follows(store: StateStore) -> None:
    """What waits in a stream, too."""
    with app_of(store, FIRST) as app:
        app.submit("first", [{"k": 1, "v": 2}], batch_id=1).result(SECONDS)
    row = {"k": 1, "note": None, "v": 2}
    with app_of(store, GROWN) as app:
        assert app.window_rows("recent").to_pylist() == [row]
        assert app.submit("second", [], batch_id=1).result(SECONDS) == [[row], 0]
        more = {"k": 2, "note": "new", "v": 2**40}
        app.submit("first", [more], batch_id=2).result(SECONDS)
        assert app.window_rows("recent").to_pylist() == [row, more]
    with app_of(store, GROWN) as app:
        assert app.window_rows("recent").to_pylist() == [row, more]
    assert [store.table("t").get(key) for key in (1, 2)] == [row, more]
    out = [one for batch in store.table("out").read() for one in batch.to_pylist()]
    assert [{name: one[name] for name in GROWN.names} for one in out] == [row, more]
    for schema, wrong in (
        (FIRST, "'v' is int64 in the store, and int32"),
        (GROWN.remove(1), "'note' is in the store o"),
    ):
        with pytest.raises(InvalidOption, match=f"another schema: column {wrong}"):
            app_of(store, schema)


def test_what_the_log_has_is_of_the_former_columns(store: StateStore) -> None:
    """So an application that runs, or was killed, goes on with the tables that it has."""
    running = app_of(store, FIRST)
    running.start()
    running.submit("first", [{"k": 1, "v": 2}]).result(SECONDS)
    with connect(store.url, compaction=False) as other:
        with pytest.raises(
            SchemaMismatch, match=r"was not stopped in order.*note string.*repair application a --give-up"
        ):
            app_of(other, GROWN).start()
        assert other.table("t").schema.names == other.table("a.recent").schema.names[2:] == ["k", "v"]
    running.submit("first", [{"k": 2, "v": 2}]).result(SECONDS)
    running.stop()
    with app_of(store, GROWN) as app:
        assert app.window_rows("recent").num_rows == 2


def test_a_window_that_cannot_follow_is_told(store: StateStore) -> None:
    """Story: its rows could not be committed, and each start ended so."""
    with app_of(store, FIRST) as app:
        app.submit("first", [{"k": 1, "v": 2}]).result(SECONDS)
    other = ps.App(store, "a")
    other.table("t")
    other.window("recent", on=other.stream("kept", pa.schema([("k", pa.string())])), rows=10)
    with pytest.raises(
        SchemaMismatch, match=r"table 'a.recent' has other columns, and cannot follow: column 'k' was int"
    ):
        other.start()


def test_tasks_of_spark_have_tables_as_they_are(store: StateStore) -> None:
    app_of(store, FIRST)
    grown = app_of(store, GROWN)
    with pytest.raises(InvalidOption, match=r"tables \['t'\] lack columns .* by store.alter_table"):
        grown.partitioned_program("first")
