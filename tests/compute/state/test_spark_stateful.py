"""`stateful` compared with Spark's own stateful operators on the same events, and exactly once through restarts."""

from collections import Counter
from collections.abc import Iterator
from datetime import UTC
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tussock.compute.spark as ts
from support.buckets.minio import MinioServer
from support.service.platforms import Platform
from support.spark.events import DDL, DELAY, END, GAP, add_file, event_batches, spark_results
from support.spark.stateful_batches import run_batch, table_rows
from tussock.compute.spark.batches.identity import default_writer
from tussock.compute.spark.reads.connections import close_stores
from tussock.statestore import connect
from tussock.statestore.client import StateStore
from tussock.statestore.errors import Conflict, InvalidOption

pytestmark = pytest.mark.spark

SEED = 20_131_006
TIME = pa.timestamp("us", "UTC")
VALUES = [("n", pa.int64()), ("some", pa.int64()), ("total", pa.int64()), ("low", pa.int64()), ("high", pa.int64())]
MERGES = {"n": "count", "some": ("count", "v"), "total": ("sum", "v"), "low": ("min", "v"), "high": ("max", "v")}
PARTITIONS = [1, 2, 7, 16]


@pytest.fixture(scope="module")
def spark_said(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The results of Spark's aggregation, session windows and deduplications for the events."""
    from pyspark.sql import functions as f

    values = [
        f.count("*").alias("n"),
        f.count("v").alias("some"),
        f.sum("v").alias("total"),
        f.min("v").alias("low"),
        f.max("v").alias("high"),
    ]
    gap = f"{GAP.seconds} seconds"
    queries: dict[str, tuple[str, Any]] = {
        "aggregates": ("update", lambda events: events.groupBy("k").agg(*values)),
        "sessions": ("append", lambda events: events.groupBy("k", f.session_window("at", gap)).agg(*values)),
        "within": ("append", lambda events: events.dropDuplicatesWithinWatermark(["k"])),
        "distinct": ("append", lambda events: events.dropDuplicates(["k", "at"])),
    }
    return dict(spark_results(spark, tmp_path_factory.mktemp("builtin"), event_batches(SEED), queries))


ON_ANY_STORE = pytest.mark.parametrize(
    "url", ["file", pytest.param("s3", marks=pytest.mark.minio), "tussock"], indirect=True
)
"""Buckets and services for a few tests through Spark itself; all others have a store on disk."""


@pytest.fixture
def url(request: pytest.FixtureRequest, spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An empty place for a store: on disk, in a bucket, or behind a meta service."""
    kind = getattr(request, "param", "file")
    if kind == "s3":
        server: MinioServer = request.getfixturevalue("minio")
        for name, value in server.environment.items():
            # Spark was started before MinIO, so its workers have to be told where that is.
            monkeypatch.setitem(spark.sparkContext.environment, name, value)
        yield server.fresh_url()
    elif kind == "tussock":
        with Platform((tmp_path / "store").as_uri()) as platform:
            yield platform.url
            # Else they would seek the service for ever.
            close_stores()
    else:
        yield (tmp_path / "store").as_uri()


@pytest.fixture
def quiet(url: str) -> Any:
    """A store without compaction, for many small batches."""
    with connect(url, compaction=False) as opened:
        yield opened


def run_all(write: Any, store: StateStore, partitions: int) -> None:
    """Run all batches, those in the middle with another number of tasks."""
    for number, batch in enumerate(event_batches(SEED)):
        run_batch(write, store, batch, number, tasks=4 if number == 2 else partitions)


def expected_aggregates(said: dict[str, Any]) -> dict[str, dict[str, Any]]:
    # In update mode the last answer for a key holds.
    return {row["k"]: row for row in said["aggregates"]}


@pytest.mark.parametrize("partitions", PARTITIONS)
def test_aggregates_equal_those_of_spark(spark_said: dict[str, Any], quiet: StateStore, partitions: int) -> None:
    """count, sum, min and max per key, with nulls."""
    schema = pa.schema([("k", pa.string()), *VALUES])
    table = quiet.create_table("totals", schema=schema, primary_key=["k"])
    run_all(ts.stateful("totals", key="k", fn=ts.merges(**MERGES), store=quiet), quiet, partitions)
    assert {row["k"]: row for row in table_rows(table)} == expected_aggregates(spark_said)


@pytest.mark.parametrize("partitions", PARTITIONS)
def test_sessions_equal_those_of_spark(spark_said: dict[str, Any], quiet: StateStore, partitions: int) -> None:
    """Sessions with late rows, rows in between two sessions, and rows exactly a gap apart."""
    window = [("start", TIME), ("end", TIME)]
    struct = pa.struct([*window, *VALUES])
    quiet.create_table("open", schema=pa.schema([("k", pa.string()), ("open", pa.list_(struct))]), primary_key=["k"])
    closed = pa.schema([("k", pa.string()), *window, *VALUES])
    table = quiet.create_table("closed", schema=closed, primary_key=["k", "start"])
    fn = ts.sessions(GAP, event_time="at", **MERGES)
    options: dict[str, Any] = {"event_time": "at", "delay": DELAY, "outputs": {"closed": "closed"}}
    run_all(ts.stateful("open", key="k", fn=fn, store=quiet, **options), quiet, partitions)
    expected = []
    for row in spark_said["sessions"]:
        start, end = (row["session_window"][name].astimezone(UTC) for name in ("start", "end"))
        expected.append((row["k"], start, end, *(row[name] for name, _ in VALUES)))
    found = [tuple(row.values()) for row in table_rows(table)]
    assert len(found) > 40
    # The stream's end closes the first of the two last rows here, too, in the batch that Spark adds by itself.
    assert sorted(row for row in found if row[0] != END) == sorted(row for row in expected if row[0] != END)
    assert [row["k"] for row in table_rows(quiet.table("open"))] == [END]


@pytest.mark.parametrize("partitions", PARTITIONS)
@pytest.mark.parametrize(("said", "key", "keep"), [("within", ["k"], DELAY), ("distinct", ["k", "at"], 0)])
def test_deduplication_equals_that_of_spark(
    spark_said: dict[str, Any], quiet: StateStore, partitions: int, said: str, key: list[str], keep: Any
) -> None:
    """The first row of a key passes, late rows do not, and after its time a key may pass again."""
    fields = {"k": pa.string(), "v": pa.int64(), "at": TIME}
    schema = pa.schema([*((name, fields[name]) for name in key), ("expires", TIME)])
    quiet.create_table("seen", schema=schema, primary_key=key)
    quiet.create_table("unique", schema=pa.schema(list(fields.items())), primary_key=["k", "at"])
    fn = ts.deduplicate(event_time="at", keep=keep)
    options: dict[str, Any] = {"event_time": "at", "delay": DELAY, "outputs": {"unique": "unique"}}
    run_all(ts.stateful("seen", key=key, fn=fn, store=quiet, **options), quiet, partitions)
    found = Counter((row["k"], row["at"], row["v"]) for row in table_rows(quiet.table("unique")))
    expected = Counter((row["k"], row["at"].astimezone(UTC), row["v"]) for row in spark_said[said])
    assert len(found) > 15
    assert found == expected
    assert {row["k"] for row in table_rows(quiet.table("seen"))} == {END}


@ON_ANY_STORE
def test_a_stream_is_exactly_once_over_restarts(
    spark: Any, spark_said: dict[str, Any], store: StateStore, url: str, tmp_path: Path
) -> None:
    """Restarts with other partitions, one of which repeats a batch that Spark has forgotten: the totals are right."""
    schema = pa.schema([("k", pa.string()), *VALUES])
    table = store.create_table("totals", schema=schema, primary_key=["k"])
    source, checkpoint = tmp_path / "source", tmp_path / "checkpoint"
    source.mkdir()
    writers = set()
    for number, batch in enumerate(event_batches(SEED)):
        add_file(source, number, batch)
        if number not in (2, 4, 6):
            continue
        events = spark.readStream.schema(DDL).option("maxFilesPerTrigger", 1).parquet(str(source))
        write = ts.stateful("totals", key="k", fn=ts.merges(**MERGES), store=url, partitions=[2, 7, 1][number // 2 - 1])
        query = events.writeStream.foreachBatch(write).option("checkpointLocation", str(checkpoint))
        running = query.trigger(availableNow=True).start()
        running.awaitTermination()
        writers.add(str(running.id))
        assert store.committed_batch(default_writer(str(running.id), ["totals"]), number) is not None
        # What a crash between our commit and Spark's leaves behind.
        for path in (checkpoint / "commits").glob(f"*{number}*"):
            path.unlink()
    assert len(writers) == 1
    assert {row["k"]: row for row in table_rows(table)} == expected_aggregates(spark_said)


@ON_ANY_STORE
def test_one_job_writes_state_and_outputs(spark: Any, store: StateStore) -> None:
    """Python logic in Spark's tasks; a repeated batch computes nothing; a task without rows fires its timers."""
    store.create_table("bank", schema=pa.schema([("id", pa.int64()), ("sum", pa.int64())]), primary_key=["id"])
    store.create_table("rejects", schema=pa.schema([("id", pa.int64()), ("at", TIME)]), primary_key=["id"])

    def account(key: int, rows: list[Any], state: Any, turn: Any) -> Any:
        if turn.fired is not None:
            turn.emit("bad", {"id": key, "at": turn.fired})
            return None
        turn.timer(rows[-1]["at"])
        return {"sum": (state["sum"] if state else 0) + sum(row["x"] for row in rows)}

    options: dict[str, Any] = {"event_time": "at", "delay": 0, "outputs": {"bad": "rejects"}, "partitions": 4}
    write = ts.stateful("bank", key="id", fn=ts.per_key(account), store=store, writer="w", order_by="at", **options)
    tracker = spark.sparkContext.statusTracker()
    rows = spark.range(8).selectExpr("id % 4 id", "id x", "timestamp_seconds(id) at")
    group = f"one batch into {store.url}"
    spark.sparkContext.setJobGroup(group, "stateful")
    write(rows, 0)
    spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)
    # One job, or two if Spark runs the exchange as a separate one.
    assert 1 <= len(tracker.getJobIdsForGroup(group)) <= 2
    assert [row["sum"] for row in table_rows(store.table("bank"))] == [4, 6, 8, 10]
    epoch = store.committed_epoch
    write(spark.range(1).selectExpr("assert_true(false, 'again') is null id", "1L x", "now() at"), 0)
    assert store.committed_epoch == epoch
    write(rows.where("id < 0"), 1)
    assert len(table_rows(store.table("rejects"))) == 4
    assert table_rows(store.table("bank")) == []


def test_wrong_calls_are_refused(spark: Any, store: StateStore, url: str) -> None:
    """Wrong arguments are refused before any task runs, and a function's own error keeps its words."""
    with pytest.raises(InvalidOption, match="writer is missing"):
        ts.stateful("t", key="id", fn=ts.merges(v="last"), store=store)(spark.range(1), 0)
    with pytest.raises(InvalidOption, match="memory"):
        ts.stateful("t", key="id", fn=ts.merges(v="last"), store="memory://m", writer="w")(spark.range(1), 0)

    def broken(batch: ts.KeyedBatch) -> ts.Update:
        raise ValueError("the rate of row 3 is unknown")

    with pytest.raises(Exception, match="ValueError: the rate of row 3 is unknown"):
        ts.stateful("t", key="id", fn=broken, store=store, writer="w")(spark.range(1), 0)
    assert store.committed_epoch == 0
    with connect(url) as other:
        table = other.table("t")
        write = ts.stateful("t", key="id", fn=ts.merges(v="last"), store=store, writer="w")
        pinned = store.pin_snapshot
        rows = spark.range(1).selectExpr("id", "'y' v")
        with pytest.MonkeyPatch.context() as patch:
            # Someone commits right after the driver has taken the epoch at which its tasks read.
            def pin() -> Any:
                snapshot = pinned()
                patch.undo()
                table.upsert([{"id": 0, "v": "x"}], epoch := other.new_epoch())
                other.commit_epoch(epoch)
                return snapshot

            patch.setattr(store, "pin_snapshot", pin)
            with pytest.raises(Conflict, match="table 't' was read at epoch"):
                write(rows, 1)
        write(rows, 1)
    assert table_rows(store.table("t")) == [{"id": 0, "v": "y", "x": None}]
