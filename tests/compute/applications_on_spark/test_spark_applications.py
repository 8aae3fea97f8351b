"""`ts.run`: applications of procedures inside the tasks of a streaming query do what they do embedded."""

import os
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle

import tussock.compute.spark as ts
from support.procedures import ledger as ledger_module
from support.procedures.ledger import MOVE, TABLES, Ledger, ledger_app, random_moves
from tussock.compute import procedures as ps
from tussock.statestore import connect
from tussock.statestore.client import StateStore
from tussock.statestore.errors import Conflict, InvalidOption

pytestmark = pytest.mark.spark

# Spark's workers do not find the folder of the tests.
cloudpickle.register_pickle_by_value(ledger_module)

SPARK_MOVE = "bank string, account bigint, seq bigint, amount bigint"
K = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.int64())])


def rows_of(store: StateStore, name: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for batch in store.table(name).read() for row in batch.to_pylist())


def contents(store: StateStore) -> dict[str, list[tuple[Any, ...]]]:
    return {name: rows_of(store, name) for name in TABLES}


def frame(spark: Any, moves: list[dict[str, Any]], chance: random.Random) -> Any:
    """The movements in any order."""
    rows = [tuple(move[name] for name in MOVE.names) for move in moves]
    chance.shuffle(rows)
    return spark.createDataFrame(rows, SPARK_MOVE)


@pytest.mark.long
def test_tables_are_those_of_an_embedded_run_whatever_the_partitions(spark: Any, tmp_path: Path) -> None:
    """Random batches, of which some fail: embedded, in 1 and 7 tasks, and in plain Python; each is one epoch."""
    chance = random.Random(27)
    batches = [random_moves(chance, at) for at in range(7)]
    ledger = Ledger()
    fine = [ledger.batch(at + 1, moves) for at, moves in enumerate(batches)]
    assert {True, False} == set(fine)
    expected = None
    with connect((tmp_path / "embedded").as_uri(), compaction=False) as store:
        with ledger_app(store) as app:
            for at, moves in enumerate(batches):
                ticket = app.submit("book", moves, batch_id=at + 1)
                assert (ticket.exception(60) is None) == fine[at]
        expected = contents(store)
    assert {name: [row[: 3 if name == "marks" else None] for row in rows] for name, rows in expected.items()} == (
        ledger.tables()
    )
    for partitions in (1, 7):
        with connect((tmp_path / str(partitions)).as_uri(), compaction=False) as store:
            each = ts.run_batches(ledger_app(store), order_by="seq", errors="skip", partitions=partitions)
            for at, moves in enumerate(batches):
                before = store.committed_epoch
                each(frame(spark, moves, chance), at)
                assert store.committed_epoch > before
            assert contents(store) == expected, f"{partitions} partitions"


def test_a_batch_is_in_the_store_once(spark: Any, store: StateStore, tmp_path: Path) -> None:
    """A task that dies runs again; a repeated batch runs nothing; one that fails leaves nothing."""
    fails = tmp_path / "failed"
    app = ps.App(store, "once", partition_by="k")
    app.table("sums", K, primary_key=["k"])

    @app.procedure("add", border=True, schema=K)
    def add(tx: Any, batch: pa.Table) -> None:
        key = batch["k"][0].as_py()
        if key == 13:
            raise ValueError("thirteen")
        if key == 3 and not fails.exists():
            fails.touch()
            os._exit(1)
        row = tx.table("sums").get(key) or {"k": key, "v": 0}
        tx.table("sums").upsert([{"k": key, "v": row["v"] + sum(batch["v"].to_pylist())}])

    each = ts.run_batches(app, partitions=2)
    rows = spark.range(10).selectExpr("id % 5 k", "id v")
    each(rows, 0)
    assert fails.exists()
    epoch = store.committed_epoch
    once = [(k, 2 * k + 5) for k in range(5)]
    assert rows_of(store, "sums") == once
    each(rows, 0)
    ts.run_batches(app, partitions=4)(rows, 0)
    assert store.committed_epoch == epoch
    with pytest.raises(ps.ProcedureError, match=r"'add' failed on batch 2.*ValueError: thirteen"):
        each(spark.range(20).selectExpr("id k", "1L v"), 1)
    assert store.committed_epoch == epoch
    each(spark.range(5).selectExpr("id k", "1L v"), 1)
    assert rows_of(store, "sums") == [(k, v + 1) for k, v in once]


def test_another_writer_of_its_tables_is_a_conflict(spark: Any, store: StateStore, url: str) -> None:
    """Nothing of the batch is visible, and it may be repeated."""
    app = ps.App(store, "shared", partition_by="k")
    app.table("sums", K, primary_key=["k"])

    @app.procedure("add", border=True, schema=K)
    def add(tx: Any, batch: pa.Table) -> None:
        if tx.table("sums").get(batch["k"][0].as_py()) is None:
            with connect(url, compaction=False) as other:
                other.table("sums").upsert(batch, epoch := other.new_epoch())
                other.commit_epoch(epoch)
        tx.table("sums").upsert(pa.table({"k": batch["k"], "v": [77]}, schema=K))

    each = ts.run_batches(app, partitions=1)
    rows = spark.sql("select 1L k, 5L v")
    with pytest.raises(Conflict, match="'sums'"):
        each(rows, 0)
    assert rows_of(store, "sums") == [(1, 5)]
    each(rows, 0)
    assert rows_of(store, "sums") == [(1, 77)]


def test_a_query_runs_and_goes_on(spark: Any, store: StateStore, url: str, tmp_path: Path) -> None:
    """After a restart a query goes on with the next batch; another query may not take its place."""
    source, checkpoint = tmp_path / "source", str(tmp_path / "checkpoint")

    def add(first: int) -> None:
        spark.range(first, first + 10).selectExpr("id % 3 k", "id v").coalesce(1).write.mode("append").json(str(source))

    def go(where: str) -> None:
        app = ps.App(store, "query", partition_by="k")
        app.table("sums", K, primary_key=["k"])

        @app.procedure("add", border=True, schema=K)
        def sum_up(tx: Any, batch: pa.Table) -> None:
            key = batch["k"][0].as_py()
            row = tx.table("sums").get(key) or {"k": key, "v": 0}
            tx.table("sums").upsert([{"k": key, "v": row["v"] + sum(batch["v"].to_pylist())}])

        stream = spark.readStream.schema("k bigint, v bigint").json(str(source))
        query = ts.run(app, stream, checkpoint=where, trigger={"availableNow": True}, partitions=2)
        query.awaitTermination(300)

    for first in (0, 10):
        add(first)
        go(checkpoint)
        assert rows_of(store, "sums") == [(k, sum(range(k, first + 10, 3))) for k in range(3)]
    add(20)
    with pytest.raises(Exception, match="Fenced"):
        go(str(tmp_path / "another"))


def test_what_cannot_run_in_tasks_is_refused(spark: Any, store: StateStore) -> None:
    """Each with its reason, and before anything runs."""

    def refused(why: str, app: Any, **options: Any) -> None:
        with pytest.raises(InvalidOption, match=why):
            ts.run_batches(app, **options)

    def plain(fn: Any = lambda tx, batch: None, **options: Any) -> Any:
        app = ps.App(store, "plain", **{"partition_by": "k", **options})
        app.procedure("p", border=True, schema=K)(fn)
        return app

    refused("is not partitioned", plain(partition_by=None))
    refused("no application of procedures", store)
    refused("errors='never'", plain(), errors="never")
    refused("partitions is 0", plain(), partitions=0)
    refused("no border procedure 'q'", plain(), procedure="q")
    refused("cannot be sent to Spark's tasks", plain(lambda tx, batch: store.tables()))
    calls = plain()
    calls.call_procedure("look")(lambda tx: None)
    refused("call procedure 'look', which nobody can reach", calls)
    several = plain()
    several.procedure("q", border=True, schema=K)(lambda tx, batch: None)
    refused("several border procedures", several)
    window = plain()
    window.window("w", on=window.stream("s", K), rows=2)
    refused("window 'w'", window)
    with connect("memory://not-for-spark") as memory:
        refused("memory", ps.App(memory, "m", partition_by="k"))
    with pytest.raises(InvalidOption, match="streaming DataFrame"):
        ts.run(plain(), spark.range(1), checkpoint="x")
    with plain() as running:
        refused("is running", running)
    each = ts.run_batches(plain())
    for rows, why in (
        ("select 1L k", "lack its columns"),
        ("select 1L v", "no column 'k'"),
        ("select 'x' k, 1L v", "k"),
    ):
        with pytest.raises(Exception, match=why):
            each(spark.sql(rows), 0)
