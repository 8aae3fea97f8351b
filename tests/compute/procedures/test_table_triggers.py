"""What makes a trigger on a table run, how often, and in which order it runs among what else follows."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tussock.compute import procedures as ps
from tussock.statestore import StateStore, connect

KV = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.int64())])
N = pa.schema([("n", pa.int64())])
SECONDS = 60


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StateStore]:
    with connect((tmp_path / "store").as_uri(), compaction=False) as opened:
        yield opened


@pytest.fixture
def seen() -> list[Any]:
    return []


@pytest.fixture
def app(store: StateStore, seen: list[Any]) -> Iterator[ps.App]:
    """A table with a trigger that notes its row, and what the table holds under the key at that moment."""
    declared = ps.App(store, "watched")
    rows = declared.table("rows", KV, primary_key=["k"])

    @declared.trigger(rows)
    def note(tx: Any, inserted: pa.Table) -> None:
        assert inserted.num_rows == 1
        (row,) = inserted.to_pylist()
        seen.append((row["k"], row["v"], tx.table("rows").get(row["k"])["v"]))

    @declared.procedure("write", border=True, schema=KV)
    def write(tx: Any, batch: pa.Table) -> None:
        tx.table("rows").upsert(batch)

    @declared.procedure("remove", border=True, schema=KV)
    def remove(tx: Any, batch: pa.Table) -> None:
        tx.table("rows").delete([(key,) for key in batch["k"].to_pylist()])

    @declared.call_procedure("set")
    def set_row(tx: Any, key: int, value: int) -> None:
        tx.table("rows").upsert([{"k": key, "v": value}])

    with declared:
        yield declared


def test_an_upsert_of_a_row_that_is_there_fires_too(app: ps.App, seen: list[Any]) -> None:
    """Also one that changes nothing."""
    for value in (1, 2, 2):
        app.submit("write", [{"k": 7, "v": value}]).result(SECONDS)
    assert seen == [(7, 1, 1), (7, 2, 2), (7, 2, 2)]


def test_each_row_of_an_upsert_fires_after_all_are_written(app: ps.App, seen: list[Any]) -> None:
    """Of several rows with one key each one, in their order; the table has the last of them already."""
    app.submit("write", [{"k": 1, "v": 1}, {"k": 2, "v": 5}, {"k": 1, "v": 3}]).result(SECONDS)
    assert seen == [(1, 1, 3), (2, 5, 5), (1, 3, 3)]


def test_a_delete_fires_nothing(app: ps.App, seen: list[Any], store: StateStore) -> None:
    app.submit("write", [{"k": 1, "v": 1}]).result(SECONDS)
    app.submit("remove", [{"k": 1, "v": None}]).result(SECONDS)
    assert seen == [(1, 1, 1)]
    app.stop()
    assert store.table("rows").get(1) is None


def test_a_write_of_a_call_fires_too(app: ps.App, seen: list[Any]) -> None:
    app.call("set", 4, 9)
    assert seen == [(4, 9, 9)]


def test_triggers_run_before_what_consumes_the_stream(store: StateStore) -> None:
    """In the middle of the procedure that emits, tuple by tuple, in the order of their declaration."""
    app = ps.App(store, "ordered")
    seen: list[str] = []
    stream = app.stream("numbers", N)

    @app.procedure("after", consumes=stream)
    def after(tx: Any, batch: pa.Table) -> None:
        seen.append(f"after {batch['n'].to_pylist()}")

    app.window("by_rows", on=stream, rows=2)
    app.window("by_batches", on=stream, batches=2)

    for on, name in ((stream, "first"), (stream, "second"), ("by_rows", "slid"), ("by_batches", "ended")):

        @app.trigger(on)
        def note(tx: Any, rows: pa.Table, name: str = name) -> None:
            seen.append(f"{name} {rows['n'].to_pylist()}")

    @app.procedure("source", border=True, emits=stream)
    def source(tx: Any, batch: pa.Table) -> list[dict[str, int]]:
        tx.emit(stream, [{"n": 1}])
        seen.append("between")
        return [{"n": 2}]

    with app:
        app.submit("source", [{"x": 0}]).result(SECONDS)
    assert seen == [
        *("first [1]", "second [1]", "slid [1]"),
        "between",
        *("first [2]", "second [2]", "slid [1, 2]"),
        "ended [1, 2]",
        "after [1, 2]",
    ]
