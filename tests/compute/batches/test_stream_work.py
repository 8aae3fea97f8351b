"""A listener's reports of how micro-batches are written, from real streams, for each way to write."""

import json
import logging
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tussock.compute.spark as ts
from support import inside
from tussock.compute.spark.batches import listener
from tussock.compute.spark.batches.identity import default_writer
from tussock.compute.spark.batches.notes import NOTES_FOLDER
from tussock.meta.log.format import decode_entry, sequence_of
from tussock.meta.version.deltas.commits import CommitEpoch
from tussock.statestore import connect
from tussock.statestore.base.service_logs import JsonFormatter
from tussock.statestore.buckets import open_bucket
from tussock.statestore.client import StateStore
from tussock.statestore.contract.records import stored_bytes

pytestmark = pytest.mark.spark

BATCHES = 3
ROWS = 400
KEYS = 100
STEPS = ("read", "function", "encode", "upload")


@pytest.fixture
def quiet(url: str) -> Iterator[StateStore]:
    """A store without compaction, with a table of rows, one of sums and one of state."""
    value = [("n", pa.int64()), ("v", pa.int64())]
    with connect(url, compaction=False) as opened:
        opened.create_table("rows", schema=pa.schema([("id", pa.int64()), ("v", pa.int64())]), primary_key=["id"])
        for name in ("sums", "state"):
            opened.create_table(name, schema=pa.schema([("k", pa.int64()), *value]), primary_key=["k"])
        yield opened


class Stream:
    """A stream of `BATCHES` batches of `ROWS` rows, each a file, and the reports about it."""

    def __init__(self, spark: Any, folder: Path, caplog: pytest.LogCaptureFixture) -> None:
        self.spark, self.folder, self.caplog = spark, folder, caplog
        (folder / "files").mkdir()
        for number in range(BATCHES):
            ids = range(number * ROWS, (number + 1) * ROWS)
            rows = pa.table({"id": ids, "k": [at % KEYS for at in ids], "v": [at * 7 for at in ids]})
            pq.write_table(rows, folder / "files" / f"{number}.parquet")

    def run(self, attach: Callable[[Any], Any], columns: str = "id, k, v") -> str:
        """Work off all files by the writer that `attach` returns; returns the query's id."""
        source = self.spark.readStream.schema("id bigint, k bigint, v bigint").option("maxFilesPerTrigger", 1)
        rows = source.parquet(str(self.folder / "files")).selectExpr(*columns.split(", "))
        writer = attach(rows.writeStream).queryName("work").option("checkpointLocation", str(self.folder / "check"))
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        self.await_batches()
        return str(query.id)

    def await_batches(self) -> None:
        """Return once the listener has seen every batch, which Spark reports later."""
        self.spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()

    def forget_last(self) -> None:
        """Delete Spark's note of the last batch, as if the driver had died after the commit in the store."""
        for path in (self.folder / "check" / "commits").glob(f"*{BATCHES - 1}*"):
            path.unlink()

    def batch_lines(self) -> list[dict[str, Any]]:
        """The log's lines of batches since the last call, in the format of an operator's driver."""
        lines = [json.loads(JsonFormatter().format(record)) for record in self.caplog.records]
        self.caplog.clear()
        return [line for line in lines if line["event"] == "batch"]


@pytest.fixture
def stream(
    spark: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Stream]:
    """A stream with a listener whose counts begin at zero."""
    inside.forget_stream_metrics(monkeypatch)
    caplog.set_level(logging.INFO, "tussock.compute.streams")
    heard = ts.TussockListener()
    spark.streams.addListener(heard)
    yield Stream(spark, tmp_path, caplog)
    spark.streams.removeListener(heard)


def ssts_of(store: StateStore, epoch: int) -> tuple[int, int]:
    """Rows and bytes of the SSTs of an epoch, by the log: they may be compacted by now."""
    bucket = open_bucket(store.url)
    paths = [(info.path, seq) for info in bucket.list("log/") if (seq := sequence_of(info.path)) is not None]
    deltas = [delta for path, seq in paths for delta in decode_entry(path, seq, bucket.get(path)).deltas]
    commits = [delta for delta in deltas if isinstance(delta, CommitEpoch) and delta.epoch == epoch]
    ssts = [sst for commit in commits for runs in commit.tables.values() for run in runs for sst in run.ssts]
    return sum(sst.rows for sst in ssts), sum(map(stored_bytes, ssts))


def check(line: dict[str, Any], store: StateStore, writer: str, positive: set[str]) -> None:
    """Assert that a batch's figures are those of its epoch, and its times fit into Spark's."""
    assert line["written_epoch"] == store.committed_batch(writer, line["batch"])
    assert (line["written_rows"], line["written_bytes"]) == ssts_of(store, line["written_epoch"])
    assert line["written_rows"] > 0
    assert line["repeated"] is False
    assert {step for step in (*STEPS, "commit") if line[f"{step}_ms"] > 0} == positive
    slowest = line["slowest_task_ms"]
    assert set(slowest) == set(STEPS)
    for step in STEPS:
        assert slowest[step] <= line[f"{step}_ms"]
    if line["tasks"] == 1:
        assert slowest == {step: line[f"{step}_ms"] for step in STEPS}
    # Both clocks are rounded.
    whole = line["steps_ms"]["addBatch"] + 1
    assert sum(slowest.values()) + line["commit_ms"] <= whole
    assert sum(line[f"{step}_ms"] for step in STEPS) <= whole * line["tasks"]


def metrics() -> dict[str, float]:
    """The counts of the query `work`, by name and step."""
    text = (listener.metrics_text() or b"").decode()
    found = re.findall(r'^(\w+)\{query="work"(?:,step="(\w+)")?\} (\S+)$', text, re.MULTILINE)
    return {f"{name} {step}".strip(): float(value) for name, step, value in found}


def check_metrics(lines: list[dict[str, Any]]) -> None:
    """Assert that the metrics are the sums of the log's lines."""
    found = metrics()
    fresh = [line for line in lines if not line["repeated"]]
    assert found["tussock_stream_written_rows_total"] == sum(line["written_rows"] for line in fresh)
    assert found["tussock_stream_written_bytes_total"] == sum(line["written_bytes"] for line in fresh)
    assert found["tussock_stream_written_epoch"] == float(lines[-1]["written_epoch"])
    assert found["tussock_stream_repeated_batches_total"] == len(lines) - len(fresh)
    assert found["tussock_stream_slowest_task_seconds_count"] == len(fresh)
    for step in (*STEPS, "commit"):
        told = sum(line[f"{step}_ms"] for line in fresh) / 1000
        assert found[f"tussock_stream_write_seconds_sum {step}"] == pytest.approx(told, abs=0.001)
        assert found[f"tussock_stream_write_seconds_count {step}"] == len(fresh)


def test_a_sink_reports_the_cost_of_its_batches(stream: Stream, quiet: StateStore, url: str) -> None:
    """A Python worker of Spark has committed them; a repeated batch reports only that."""

    def sink(writer: Any) -> Any:
        return writer.format("tussock").option("store", url).option("table", "rows")

    query = stream.run(sink, "id, v")
    lines = stream.batch_lines()
    assert [(line["batch"], line["written_rows"]) for line in lines] == [(number, ROWS) for number in range(BATCHES)]
    for line in lines:
        check(line, quiet, query, {"encode", "upload", "commit"})
    stream.forget_last()
    assert stream.run(sink, "id, v") == query
    (again,) = stream.batch_lines()
    assert (again["batch"], again["repeated"]) == (BATCHES - 1, True)
    assert again["written_epoch"] == lines[-1]["written_epoch"] == quiet.committed_epoch
    assert not {"written_rows", "written_bytes", "tasks", "commit_ms", "slowest_task_ms"} & set(again)
    check_metrics([*lines, again])


def test_complete_mode_counts_what_it_deletes(stream: Stream, quiet: StateStore, url: str) -> None:
    """The driver reads the old keys and deletes them: one more task, and its rows are in the SSTs."""
    source = stream.spark.readStream.schema("id bigint, k bigint, v bigint").option("maxFilesPerTrigger", 1)
    sums = source.parquet(str(stream.folder / "files")).groupBy("k").sum("v").selectExpr("k", "`sum(v)` AS v")
    sink = sums.writeStream.outputMode("complete").format("tussock").option("store", url).option("table", "sums")
    sink = sink.option("checkpointLocation", str(stream.folder / "check")).queryName("work")
    query = sink.trigger(availableNow=True).start()
    query.awaitTermination()
    stream.await_batches()
    lines = stream.batch_lines()
    assert [line["written_rows"] for line in lines] == [KEYS, 2 * KEYS, 2 * KEYS]
    for line in lines:
        # The first finds an empty table, which is too short a read for the clock.
        read = {"read"} if line["batch"] or line["read_ms"] else set()
        check(line, quiet, str(query.id), {"encode", "upload", "commit"} | read)
    check_metrics(lines)


def test_a_foreach_batch_function_reports_the_cost_of_its_batches(stream: Stream, quiet: StateStore) -> None:
    """A merge reads from the second batch on; a repeated batch computes nothing."""
    write = ts.upsert("sums", store=quiet, merge={"v": "sum", "n": "sum"})
    query = stream.run(lambda writer: writer.foreachBatch(write), "k, v, 1L AS n")
    lines = stream.batch_lines()
    assert [line["written_rows"] for line in lines] == [KEYS] * BATCHES
    for line in lines:
        check(
            line,
            quiet,
            default_writer(query, ["sums"]),
            {"encode", "upload", "commit"} | ({"read"} if line["batch"] else set()),
        )
    stream.forget_last()
    stream.run(lambda writer: writer.foreachBatch(write), "k, v, 1L AS n")
    (again,) = stream.batch_lines()
    assert (again["batch"], again["repeated"], again["written_epoch"]) == (2, True, lines[-1]["written_epoch"])
    check_metrics([*lines, again])


def test_several_tables_are_reported_together(stream: Stream, quiet: StateStore) -> None:
    """One epoch gives one line, for the tasks of all tables."""

    def write(rows: Any, number: int) -> None:
        sums = rows.selectExpr("k", "v", "1L AS n"), {"v": "sum", "n": "sum"}
        ts.write_epoch(number, {"rows": rows.drop("k"), "sums": sums}, store=quiet, partitions=2)

    query = stream.run(lambda writer: writer.foreachBatch(write))
    lines = stream.batch_lines()
    assert [(line["written_rows"], line["tasks"]) for line in lines] == [(ROWS + KEYS, 4)] * BATCHES
    for line in lines:
        check(
            line,
            quiet,
            default_writer(query, ["rows", "sums"]),
            {"encode", "upload", "commit"} | ({"read"} if line["batch"] else set()),
        )
    check_metrics(lines)


def test_several_commits_of_a_batch_are_added(stream: Stream, quiet: StateStore) -> None:
    """A function may commit twice, as two writers; the line has the newer epoch and the sums."""

    def write(rows: Any, number: int) -> None:
        ts.write_epoch(number, {"rows": rows.drop("k")}, store=quiet, writer="first", partitions=1)
        sums = rows.selectExpr("k", "v", "1L AS n"), {"v": "sum", "n": "sum"}
        ts.write_epoch(number, {"sums": sums}, store=quiet, writer="second", partitions=1)

    stream.run(lambda writer: writer.foreachBatch(write))
    lines = stream.batch_lines()
    assert len(lines) == BATCHES
    for line in lines:
        epochs = [quiet.committed_batch(writer, line["batch"]) for writer in ("first", "second")]
        parts = [ssts_of(quiet, epoch or 0) for epoch in epochs]
        assert line["written_epoch"] == epochs[1]
        assert (line["written_rows"], line["written_bytes"]) == tuple(map(sum, zip(*parts, strict=True)))
        assert line["tasks"] == 2
    check_metrics(lines)


def test_keyed_state_reports_its_cost(stream: Stream, quiet: StateStore) -> None:
    """The time of the function is reported apart from the store's."""
    write = ts.stateful("state", key="k", fn=ts.merges(n="count", v=("sum", "v")), store=quiet)
    query = stream.run(lambda writer: writer.foreachBatch(write))
    lines = stream.batch_lines()
    assert [line["written_rows"] for line in lines] == [KEYS] * BATCHES
    for line in lines:
        read = {"read"} if line["batch"] else set()
        check(line, quiet, default_writer(query, ["state"]), {"function", "encode", "upload", "commit"} | read)
    check_metrics(lines)


PROGRAM = """
import json, logging, sys
import tussock.compute.spark as ts
from pyspark.sql import SparkSession
from tussock.statestore.base.service_logs import start_logging

start_logging("info", "json", sys.stdout)
url, checkpoint = sys.argv[1:]
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", False).getOrCreate()
ts.register(spark)
spark.streams.addListener(ts.TussockListener())
rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
rows = rows.selectExpr("value AS id", "value AS v")
sink = rows.writeStream.format("tussock").option("store", url).option("table", "rows")
sink.option("checkpointLocation", checkpoint).trigger(availableNow=True).start().awaitTermination()
spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
spark.stop()
"""


@pytest.mark.long
def test_a_sink_reports_its_cost_outside_of_the_operator(quiet: StateStore, url: str, tmp_path: Path) -> None:
    """`register` lets the committing worker report, and undoes that in the end."""
    (tmp_path / "tmp").mkdir()
    (tmp_path / "program.py").write_text(PROGRAM)
    environ = {name: value for name, value in os.environ.items() if name != NOTES_FOLDER}
    environ["TMPDIR"] = str(tmp_path / "tmp")
    command = [sys.executable, str(tmp_path / "program.py"), url, str(tmp_path / "check")]
    ran = subprocess.run(command, env=environ, capture_output=True, check=False, text=True)
    assert ran.returncode == 0, ran.stderr[-3000:]
    lines = [json.loads(line) for line in ran.stdout.splitlines() if line.startswith("{")]
    told = [line for line in lines if line["event"] == "batch"]
    assert [line["written_rows"] for line in told] == [10] * len(told)
    assert told[-1]["written_epoch"] == quiet.committed_epoch
    assert list((tmp_path / "tmp").glob("tussock-commits-*")) == []
