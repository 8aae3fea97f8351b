"""Applications with `partition_by`, embedded: the graph runs key by key; what cannot be is refused with the reason."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from support.procedures.ledger import TABLES, Ledger, ledger_app, random_moves
from tussock.compute import procedures as ps
from tussock.statestore import InvalidOption, StateStore, connect

K = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.int64())])
V = pa.schema([("v", pa.int64())])


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StateStore]:
    with connect((tmp_path / "store").as_uri(), compaction=False) as opened:
        yield opened


def rows_of(store: StateStore, name: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for batch in store.table(name).read() for row in batch.to_pylist())


def check(store: StateStore, ledger: Ledger) -> list[tuple[Any, ...]]:
    """Compare the tables; returns the marks with what was drawn."""
    found = {name: rows_of(store, name) for name in TABLES}
    marks = found["marks"]
    found["marks"] = [row[:3] for row in marks]
    assert found == ledger.tables()
    return marks


@pytest.mark.parametrize("seed", range(3))
def test_a_partitioned_application_does_what_plain_python_does(store: StateStore, seed: int) -> None:
    """Random batches, of which some fail, and a restart that replays some of them."""
    chance, ledger = random.Random(seed), Ledger()
    with ledger_app(store, checkpoint=1000) as app:
        for batch_id in range(1, 40):
            moves = random_moves(chance, batch_id)
            ticket = app.submit("book", moves, batch_id=batch_id)
            if ledger.batch(batch_id, moves):
                ticket.result(30)
            else:
                with pytest.raises(ps.ProcedureError, match="Unwanted"):
                    ticket.result(30)
    check(store, ledger)


def test_the_graph_runs_once_for_each_key(store: StateStore) -> None:
    """In ascending order of the keys; the tuples of a key keep their order; an empty batch runs nothing."""
    app = ps.App(store, "a", partition_by="k")
    app.table("t", K, primary_key=["k"])
    out = app.stream("out", K)
    seen: list[Any] = []
    app.procedure("first", border=True, schema=K, emits=out)(
        lambda tx, batch: (seen.append(("first", batch["k"].to_pylist(), batch["v"].to_pylist())), batch)[1]
    )
    app.procedure("second", consumes=out)(lambda tx, batch: seen.append(("second", batch["k"].to_pylist())))
    with app:
        app.submit("first", [{"k": 2, "v": 1}, {"k": -1, "v": 9}, {"k": 2, "v": 0}]).result(10)
        app.submit("first", []).result(10)
        assert app.trace() == [("first", 1), ("second", 1)] * 2
    assert seen == [("first", [-1], [9]), ("second", [-1]), ("first", [2, 2], [1, 0]), ("second", [2, 2])]


@pytest.mark.parametrize(
    ("do", "why"),
    [
        (lambda tx: tx.table("t").get(2), "runs for the key"),
        (lambda tx: tx.table("t").multi_get([(1,), (2,)]), "runs for the key"),
        (lambda tx: tx.table("t").upsert([{"k": 1, "v": 0}, {"k": 2, "v": 0}]), "runs for the key"),
        (lambda tx: tx.table("t").upsert(pa.table({"k": [1, 2], "v": [0, 0]}, schema=K)), r"asks for \(2,\)"),
        (lambda tx: tx.table("t").ingest_batch(pa.record_batch([[2], [0]], schema=K)), "runs for the key"),
        (lambda tx: tx.table("t").delete([2]), "runs for the key"),
        (lambda tx: tx.table("t").delete(pa.table({"k": [2]})), "runs for the key"),
        (lambda tx: list(tx.table("t").read(prefix=[2])), "runs for the key"),
        (lambda tx: list(tx.table("t").read(between=((1,), (2,)))), "runs for the key"),
        (lambda tx: [{"k": 2, "v": 0}], "of another key"),
        (lambda tx: tx.call_external(str, "x"), "call nothing outside"),
    ],
)
def test_other_keys_are_out_of_reach(store: StateStore, do: Any, why: str) -> None:
    """A procedure that reads, writes or emits rows of another key fails its batch, and nothing of it stays."""
    app = ps.App(store, "a", partition_by=["k"])
    app.table("t", K, primary_key=["k"])
    out = app.stream("out", K)

    @app.procedure("p", border=True, schema=K, emits=out)
    def p(tx: Any, batch: pa.Table) -> Any:
        tx.table("t").upsert(batch)
        assert [part.num_rows for part in tx.table("t").read()] == [1]
        return do(tx)

    with app, pytest.raises(ps.ProcedureError, match=why):
        app.submit("p", [{"k": 1, "v": 5}]).result(10)
    assert rows_of(store, "t") == []


def declare(app: Any, *, schema: Any = K, emits: Any = None) -> None:
    app.procedure("p", border=True, schema=schema, emits=emits)(lambda tx, batch: None)


def with_window(app: Any) -> None:
    stream = app.stream("s", K)
    app.window("w", on=stream, rows=3)
    declare(app, emits=stream)


def with_two_borders(app: Any) -> None:
    left, right = app.stream("l", K), app.stream("r", K)
    app.procedure("one", border=True, schema=K, emits=left)(lambda tx, batch: None)
    app.procedure("two", border=True, schema=K, emits=right)(lambda tx, batch: None)
    app.procedure("both", consumes=[left, right])(lambda tx, one, other: None)


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (with_window, "window 'w' shows the newest tuples of all keys"),
        (with_two_borders, "waits for batches of the borders"),
        (lambda app: declare(app, schema=V), "lack"),
        (lambda app: declare(app, schema=None), "has no schema"),
        (lambda app: declare(app, schema=pa.schema([("k", pa.float64())])), "equal values are the same key"),
        (lambda app: declare(app, emits=app.stream("s", V)), "stream 's' lacks 'k'"),
        (lambda app: declare(app, emits=app.stream("s", pa.schema([("k", pa.int32())]))), "a key has one type"),
        (lambda app: (app.table("u", K, primary_key=["v", "k"]), declare(app)), r"begins with \['k'\]"),
        (lambda app: None, "no border procedure"),
    ],
)
def test_what_cannot_be_partitioned_is_refused(store: StateStore, make: Any, why: str) -> None:
    """At the start, with the reason."""
    app = ps.App(store, "a", partition_by=["k"])
    make(app)
    with pytest.raises(InvalidOption, match=why):
        app.start()


def test_options_that_are_refused(store: StateStore) -> None:
    """Columns that are none, and strong recovery."""
    for columns in ([], [""], ["k", "k"], 7, [7]):
        with pytest.raises(InvalidOption, match="partition_by"):
            ps.App(store, "a", partition_by=columns)  # type: ignore[arg-type]
    with pytest.raises(InvalidOption, match="once for each key"):
        ps.App(store, "a", partition_by="k", recovery="strong")


def test_a_null_in_the_key_fails_the_batch(store: StateStore) -> None:
    """The batch is rolled back, as by any error."""
    schema = pa.schema([("k", pa.int64()), ("v", pa.int64())])
    app = ps.App(store, "a", partition_by="k")
    app.procedure("p", border=True, schema=schema)(lambda tx, batch: None)
    with app, pytest.raises(ps.ProcedureError, match="'k'"):
        app.submit("p", [{"k": 1, "v": 1}, {"k": None, "v": 2}]).result(10)
