"""Streams, windows and tables are given as they were declared, or by their names, wherever they are given."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tussock.compute import procedures as ps
from tussock.statestore import InvalidOption, StateStore, connect

N = pa.schema([pa.field("n", pa.int64(), nullable=False)])
SECONDS = 60


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StateStore]:
    with connect((tmp_path / "store").as_uri(), compaction=False) as opened:
        yield opened


@pytest.mark.parametrize("form", [lambda declared: declared, lambda declared: declared.name], ids=["object", "name"])
def test_both_forms_do_the_same(store: StateStore, form: Callable[[Any], Any]) -> None:
    """on=, consumes=, emits=, writes=, triggers, outputs, `tx.emit`, `tx.table` and `window_rows`."""
    app = ps.App(store, "both")
    stream, sums = app.stream("numbers", N), app.table("sums", N, primary_key=["n"])
    window = app.window("newest", on=form(stream), rows=2)
    app.output(form(stream), "kept")
    fired: list[tuple[str, int]] = []

    @app.procedure("take", border=True, emits=form(stream), schema=N)
    def take(tx: Any, batch: pa.Table) -> None:
        tx.emit(form(stream), batch)

    @app.procedure("add", consumes=[form(stream)], writes=form(sums))
    def add(tx: Any, batch: pa.Table) -> None:
        tx.table(form(sums)).upsert(batch)

    for on in (stream, window, sums):

        @app.trigger(form(on))
        def note(tx: Any, rows: pa.Table, name: str = on.name) -> None:
            fired.append((name, rows.num_rows))

    with app:
        app.submit("take", [{"n": 1}, {"n": 2}, {"n": 3}]).result(SECONDS)
        assert app.window_rows(form(window)).to_pylist() == [{"n": 2}, {"n": 3}]
    assert [name for name, _ in fired] == [*["numbers", "newest"] * 3, *["sums"] * 3]
    assert fired[-4] == ("newest", 2)
    assert store.table("sums").get(3) == {"n": 3}
    assert sum(batch.num_rows for batch in store.table("kept").read()) == 3


def test_a_name_of_a_table_and_a_stream_is_the_table_for_a_trigger(store: StateStore) -> None:
    """The object says which one is meant."""
    app = ps.App(store, "shared")
    stream = app.stream("same", N)
    app.table("same", N, primary_key=["n"])
    fired: list[str] = []
    app.trigger("same")(noting(fired, "table"))
    app.trigger(stream)(noting(fired, "stream"))

    @app.procedure("take", border=True, emits="same", schema=N)
    def take(tx: Any, batch: pa.Table) -> pa.Table:
        tx.table("same").upsert(batch)
        return batch

    with app:
        app.submit("take", [{"n": 1}]).result(SECONDS)
    assert fired == ["table", "stream"]


def noting(fired: list[str], what: str) -> Callable[[Any, pa.Table], None]:
    def note(tx: Any, rows: pa.Table) -> None:
        fired.append(what)

    return note


def test_what_is_no_window_says_which_there_are(store: StateStore) -> None:
    """A stream, a window of another application, and what is nothing at all."""
    app, other = ps.App(store, "mine"), ps.App(store, "other")
    stream = app.stream("numbers", N)
    app.window("newest", on=stream, rows=2)
    foreign = other.window("newest", on=other.stream("numbers", N), rows=2)
    app.procedure("take", border=True, emits=stream)(lambda tx, batch: None)
    with app:
        for wrong in (stream, foreign, "nothere", 7, ["newest"]):
            with pytest.raises(InvalidOption, match=r"has no window .*there are \['newest'\]"):
                app.window_rows(wrong)  # type: ignore[arg-type]
