"""`write_epoch` and `upsert`: several tables in one epoch, keyed read-modify-write, exactly once."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tussock.compute.spark as ts
from support.store.stores import changes_of
from tussock.compute.spark.batches.identity import default_writer
from tussock.statestore import connect
from tussock.statestore.client import StateStore
from tussock.statestore.errors import Conflict, InvalidOption, TableNotFound

pytestmark = pytest.mark.spark

MERGE = {"n": "sum", "most": "max"}


@pytest.fixture
def totals(store: StateStore) -> Any:
    """A table of {k: string (key), n: int64, most: int64}."""
    schema = pa.schema([("k", pa.string()), ("n", pa.int64()), ("most", pa.int64())])
    return store.create_table("totals", schema=schema, primary_key=["k"])


def batch_of(spark: Any, start: int, end: int) -> Any:
    return spark.range(start, end).selectExpr("concat('k', id % 7) k", "1L n", "id most")


def table_rows(table: Any) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for batch in table.read() for row in batch.to_pylist())


def expected_totals(end: int) -> list[tuple[str, int, int]]:
    return [(f"k{k}", len(range(k, end, 7)), max(range(k, end, 7))) for k in range(7)]


def test_tables_of_an_epoch_become_visible_together(spark: Any, store: StateStore, totals: Any) -> None:
    """State and output of a micro-batch have one epoch; merged rows add to what was there."""
    for batch in range(3):
        rows = batch_of(spark, batch * 50, batch * 50 + 50)
        tables = {"totals": (rows, MERGE), "t": rows.selectExpr("most id", "k v")}
        epoch = ts.write_epoch(batch, tables, store=store, writer="w")
        assert {store.version().find_table(name).last_epoch for name in tables} == {epoch}
    assert table_rows(totals) == expected_totals(150)
    assert len(table_rows(store.table("t"))) == 150


def test_repeated_batch_computes_nothing(spark: Any, store: StateStore, totals: Any) -> None:
    """A committed batch gives its epoch, even if its rows could not be computed again."""
    first = ts.write_epoch(4, {"totals": (batch_of(spark, 0, 50), MERGE)}, store=store, writer="w")
    broken = spark.range(1).selectExpr("'k0' k", "assert_true(false, 'computed again') is null n", "1L most")
    assert ts.write_epoch(4, {"totals": (broken, MERGE)}, store=store, writer="w") == first
    assert table_rows(totals) == expected_totals(50)


def test_commit_whose_answer_was_lost_is_not_repeated(spark: Any, store: StateStore, totals: Any, url: str) -> None:
    """The process that repeats the batch finds it in the store's ledger."""
    with connect(url) as lost:
        epoch = ts.write_epoch(0, {"totals": (batch_of(spark, 0, 50), MERGE)}, store=lost, writer="w")
    write = ts.upsert("totals", store=store, writer="w", merge=MERGE)
    write(batch_of(spark, 0, 50), 0)
    assert store.committed_epoch == epoch
    assert table_rows(totals) == expected_totals(50)


@pytest.mark.parametrize("partitions", [1, 2, 8])
def test_partition_counts_change_no_total(spark: Any, store: StateStore, totals: Any, partitions: int) -> None:
    """Totals are those of plain arithmetic, however the keys are divided."""
    for batch in range(2):
        rows = batch_of(spark, batch * 50, batch * 50 + 50)
        ts.write_epoch(batch, {"totals": (rows, MERGE)}, store=store, writer="w", partitions=partitions)
    assert table_rows(totals) == expected_totals(100)


def test_aligned_tasks_write_one_run(spark: Any, store: StateStore, url: str) -> None:
    """Tasks write disjoint ranges of vnodes, so a batch adds one run to L0 and not one per task."""
    with connect(url, compaction=False) as quiet:
        for batch in range(2):
            rows = spark.range(1000).selectExpr("id", "'x' v")
            ts.write_epoch(batch, {"t": rows}, store=quiet, writer="w", partitions=8)
        levels = quiet.version().find_table("t").levels.l0
        assert len(levels) == 2
        assert all(len(level.ssts) == 8 for level in levels)


def test_merge_over_a_concurrent_commit_is_a_conflict(spark: Any, store: StateStore, totals: Any, url: str) -> None:
    """Another writer commits to the table while the tasks run: the batch fails whole, and may be repeated."""

    def interrupt(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with connect(url) as other:
            table = other.table("totals")
            table.upsert([{"k": "k0", "n": 1000, "most": 0}], epoch := other.new_epoch())
            other.commit_epoch(epoch)
        yield from batches

    rows = batch_of(spark, 0, 50).coalesce(1)
    with pytest.raises(Conflict, match="table 'totals' was read at epoch"):
        ts.write_epoch(0, {"totals": (rows.mapInArrow(interrupt, rows.schema), MERGE)}, store=store, writer="w")
    assert [row[:2] for row in table_rows(store.table("totals"))] == [("k0", 1000)]
    ts.write_epoch(0, {"totals": (batch_of(spark, 0, 50), MERGE)}, store=store, writer="w")
    assert table_rows(totals)[0] == ("k0", 1008, 49)


def test_newest_by_order_column_wins(spark: Any, store: StateStore) -> None:
    """`order_by` decides among rows of one key and need not be a column of the table; deletes take part."""
    rows = spark.createDataFrame(
        [
            (1, "old", 1, "upsert"),
            (1, "new", 2, "upsert"),
            (2, "x", 5, "upsert"),
            (2, None, 6, "delete"),
            (3, "y", 9, "delete"),
            (3, "z", 10, "insert"),
        ],
        "id bigint, v string, seq int, op string",
    ).repartition(4)
    ts.write_epoch(0, {"t": rows}, store=store, writer="w", op_column="op", order_by="seq")
    assert table_rows(store.table("t")) == [(1, "new", None), (3, "z", None)]


def test_no_retention_is_needed_for_a_merge(spark: Any, url: str) -> None:
    """The driver's pin keeps the read epoch for the tasks, even with a retention of 0."""
    with connect(url, retention=0) as store:
        schema = pa.schema([("k", pa.string()), ("n", pa.int64()), ("most", pa.int64())])
        table = store.create_table("totals", schema=schema, primary_key=["k"])
        for batch in range(3):
            rows = batch_of(spark, batch * 50, batch * 50 + 50)
            ts.write_epoch(batch, {"totals": (rows, MERGE)}, store=store, writer="w")
        assert table_rows(table) == expected_totals(150)
        assert store.pins() == []


def stream_of(spark: Any, rows: int) -> Any:
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", rows).option("numPartitions", 2)
    return source.option("startTimestamp", 0).load()


def run_batches(query: Any, count: int) -> int:
    """Let a query run until it has done `count` batches; returns how many it did."""
    done = threading.Event()
    for _ in range(600):
        query.exception() and pytest.fail(str(query.exception()))
        if query.lastProgress is not None and query.lastProgress.batchId + 1 >= count:
            break
        done.wait(0.1)
    query.stop()
    return query.lastProgress.batchId + 1


def test_update_mode_goes_through_foreach_batch(
    spark: Any, store: StateStore, totals: Any, url: str, tmp_path: Path
) -> None:
    """An aggregate in update mode, upserted by batch, covers all rows; the query is the writer."""
    counts = stream_of(spark, 70).groupBy(ts_key()).agg({"value": "count"}).toDF("k", "n")
    query = (
        counts.writeStream.outputMode("update")
        .foreachBatch(ts.upsert("totals", store=url))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(processingTime="0 seconds")
        .start()
    )
    writer = default_writer(str(query.id), ["totals"])
    done = run_batches(query, 3)
    committed = max(batch for batch in range(done + 2) if store.committed_batch(writer, batch) is not None)
    assert committed >= done - 1
    assert [row[:2] for row in table_rows(totals)] == [(f"k{k}", 10 * (committed + 1)) for k in range(7)]


def ts_key() -> Any:
    from pyspark.sql.functions import expr

    return expr("concat('k', value % 7)")


def test_sink_is_exactly_once_over_restarts(spark: Any, store: StateStore, url: str, tmp_path: Path) -> None:
    """A batch whose commit Spark forgot runs again after the restart and changes nothing."""
    schema = pa.schema([("id", pa.int64()), ("v", pa.string())])
    store.create_table("sink", schema=schema, primary_key=["id"])
    checkpoint = tmp_path / "checkpoint"

    def start() -> Any:
        rows = stream_of(spark, 10).selectExpr("value id", "uuid() v")
        writer = rows.writeStream.format("tussock").option("store", url).option("checkpointLocation", str(checkpoint))
        return writer.trigger(processingTime="0 seconds").start("sink")

    first = start()
    run_batches(first, 2)
    seen = len(changes_of(store.table("sink")))
    last = seen // 10 - 1
    assert store.committed_batch(str(first.id), last) is not None
    # What a crash between our commit and Spark's leaves behind.
    for path in (checkpoint / "commits").glob(f"*{last}*"):
        path.unlink()
    second = start()
    run_batches(second, last + 2)
    assert second.id == first.id
    changes = changes_of(store.table("sink"))
    assert len(changes) % 10 == 0
    assert sorted(row["id"] for row in changes) == list(range(len(changes))), "a row was written twice or never"


@pytest.mark.parametrize(
    ("act", "error", "message"),
    [
        (lambda s, st: ts.write_epoch(0, {}, store=st, writer="w"), InvalidOption, "no tables"),
        (lambda s, st: ts.write_epoch(0, {"t": s.range(1)}, store=st), InvalidOption, "writer is missing"),
        (lambda s, st: ts.write_epoch(1 << 64, {"t": s.range(1)}, store=st, writer="w"), InvalidOption, "batch_id is"),
        (lambda s, st: ts.upsert("t", store=st, writer="w")(s.range(1), -1), InvalidOption, "batch_id is -1; expected"),
        (lambda s, st: ts.write_epoch(0, {"x": s.range(1)}, store=st, writer="w"), TableNotFound, "no table 'x'"),
        (
            lambda s, st: ts.write_epoch(0, {"t": s.range(1)}, store=st, writer="w", partitions=257),
            InvalidOption,
            "expected 1 to 256",
        ),
        (
            lambda s, st: ts.write_epoch(0, {"t": (s.range(1), {"v": "sum"})}, store=st, writer="w"),
            InvalidOption,
            "cannot be merged",
        ),
        (lambda s, st: ts.write_epoch(0, {"t": s.range(1)}, store="memory://m", writer="w"), InvalidOption, "memory"),
    ],
)
def test_bad_calls_are_refused_before_anything_runs(
    spark: Any, store: StateStore, act: Any, error: type[Exception], message: str
) -> None:
    """The named error comes straight to the caller."""
    with pytest.raises(error, match=message):
        act(spark, store)
    assert store.committed_epoch == 0


def test_wrong_columns_are_named(spark: Any, store: StateStore) -> None:
    """Spark wraps what its planner raises; the message is Tussock's."""
    with pytest.raises(Exception, match=r"SchemaMismatch: table 't': unknown columns \['y'\]"):
        ts.write_epoch(0, {"t": spark.range(1).selectExpr("id", "1 y")}, store=store, writer="w")
    assert store.committed_epoch == 0
