"""`make bench-spark`: measures Tussock in Spark beside Spark's own state store, Parquet and joins; prints a table.

    python benchmarks/spark_bench.py [--only NAME ...] [--folder FOLDER] [--publish]

Every figure is a new process with a new session (`local[2]`), which runs both sides one directly after the other.
State is kept on MinIO and, beside it, on local files; Spark's own is RocksDB on local files with changelog
checkpointing. A batch's time is Spark's `triggerExecution`; the first batches, which start the workers and find little
state, are not counted. All seconds go to `benchmarks/results/` as JSON.
"""

import argparse
import contextlib
import datetime
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import report
import spark_batch_cases
import spark_join_cases
import spark_state_cases as state_cases
from meta_processes import minio
from quiet import refuse_if_busy

from tussock.statestore import StateStore, connect

HERE = Path(__file__).parent
RESULTS = HERE / "results"
BEGIN = "<!-- measured spark: begin (written by spark_bench.py --publish) -->"
END = "<!-- measured spark: end -->"
ROWS = 5_000_000
RUNS = 3

Seconds = dict[str, list[float]]


class Place(NamedTuple):
    """Where a figure is measured."""

    spark: Any
    folder: Path
    url: str
    """Of a bucket on MinIO."""

    @contextlib.contextmanager
    def stores(self) -> Iterator[dict[str, StateStore]]:
        """An empty store on MinIO and one on local files, which this process compacts."""
        with connect(self.url) as remote, connect((self.folder / "local").as_uri()) as local:
            yield {"MinIO": remote, "local files": local}


class Figure(NamedTuple):
    """One line of the table, or two: the names of the sides in what `run` answers, ours first, and what is wanted."""

    title: str
    run: Callable[[Place], Seconds]
    peer: str
    wanted: dict[str, float]
    """Our sides, and how many times as fast as the peer each should be."""


def aggregation(rows: int, keys: int, batches: int, counted: int) -> Callable[[Place], Seconds]:
    """Count and sum by key; the last `counted` of `batches` batches."""

    def run(place: Place) -> Seconds:
        spark, folder, _ = place
        with place.stores() as found:
            seconds = {
                side: state_cases.aggregation_tussock(spark, store, folder, rows, keys, batches)
                for side, store in found.items()
            }
        seconds["peer"] = state_cases.aggregation_spark(spark, folder, rows, keys, batches)
        return {side: times[-counted:] for side, times in seconds.items()}

    return run


def per_key(place: Place) -> Seconds:
    """Accounts, 20,000 rows a batch on 5,000 keys, in plain Python on both sides."""
    spark, folder, _ = place
    batches, counted = 10, 6
    with place.stores() as found:
        seconds = {
            side: state_cases.per_key_tussock(spark, store, folder, 20_000, 5_000, batches)
            for side, store in found.items()
        }
    seconds["peer"] = state_cases.per_key_spark(spark, folder, 20_000, 5_000, batches)
    return {side: times[-counted:] for side, times in seconds.items()}


def application(rows: int, keys: int, batches: int, counted: int) -> Callable[[Place], Seconds]:
    """The accounts as an application of procedures, partitioned by key; the last `counted` of `batches` batches."""

    def run(place: Place) -> Seconds:
        spark, folder, _ = place
        with place.stores() as found:
            seconds = {
                side: state_cases.application_tussock(spark, store, folder, rows, keys, batches)
                for side, store in found.items()
            }
        seconds["peer"] = state_cases.per_key_spark(spark, folder, rows, keys, batches)
        return {side: times[-counted:] for side, times in seconds.items()}

    return run


def steady(place: Place) -> Seconds:
    """The batches around the tenth, the hundredth and the thousandth of one stream, its state constant."""
    with place.stores() as found:
        times = state_cases.aggregation_tussock(place.spark, found["MinIO"], place.folder, 20_000, 5_000, 1_010)
    return {"100th": times[90:110], "1,000th": times[990:1_010], "peer": times[5:15]}


def batch_write(place: Place) -> Seconds:
    """Five million rows, cached in Spark; the peer's are sorted within partitions, as ours are."""
    rows = spark_batch_cases.source_rows(place.spark, ROWS, 2)
    found = spark_batch_cases.batch_write(rows, place.folder, RUNS)
    return {"local files": found["tussock"], "peer": found["parquet_sorted"]}


def batch_read(place: Place) -> Seconds:
    """All columns of five million rows reduced to one row."""
    rows = spark_batch_cases.source_rows(place.spark, ROWS, 2)
    found = spark_batch_cases.batch_read(place.spark, rows, place.folder, RUNS)
    return {"local files": found["tussock"], "peer": found["parquet"]}


def lookup_join(place: Place) -> Seconds:
    """Five million rows and a table of a million keys."""
    found = spark_join_cases.lookup_join(place.spark, place.folder, ROWS, 1_000_000, RUNS)
    return {"local files": found["lookup"], "peer": found["shuffled"]}


ROCKSDB = "Spark's aggregation on RocksDB"
FIGURES = {
    "large": Figure(
        "aggregation, 500 k rows a batch, 2 M keys",
        aggregation(500_000, 2_000_000, 14, 5),
        ROCKSDB,
        {"MinIO": 4.0, "local files": 5.0},
    ),
    "medium": Figure(
        "aggregation, 200 k rows a batch, 500 k keys",
        aggregation(200_000, 500_000, 14, 6),
        ROCKSDB,
        {"MinIO": 2.5, "local files": 2.5},
    ),
    "small": Figure(
        "aggregation, 20 k rows a batch, 5 k keys",
        aggregation(20_000, 5_000, 20, 10),
        ROCKSDB,
        {"MinIO": 1.0, "local files": 1.0},
    ),
    "per-key": Figure(
        "custom logic by key, 20 k rows a batch, 5 k keys",
        per_key,
        "transformWithState (Row) on RocksDB",
        {"MinIO": 3.5, "local files": 3.5},
    ),
    "application": Figure(
        "application of a procedure, 20 k rows a batch, 5 k keys",
        application(20_000, 5_000, 10, 6),
        "transformWithState (Row) on RocksDB",
        {"MinIO": 3.5, "local files": 3.5},
    ),
    "application-large": Figure(
        "application of a procedure, 500 k rows a batch, 100 k keys",
        application(500_000, 100_000, 5, 3),
        "transformWithState (Row) on RocksDB",
        {"MinIO": 5.0, "local files": 5.0},
    ),
    "write": Figure("batch write, 5 M rows", batch_write, "Parquet, sorted within partitions", {"local files": 0.9}),
    "read": Figure("batch read, 5 M rows, compacted", batch_read, "Parquet", {"local files": 0.5}),
    "join": Figure("lookup join, 5 M rows, 1 M keys", lookup_join, "shuffled join with Parquet", {"local files": 1.5}),
    "steady": Figure(
        "the same stream's batches, against the tenth", steady, "10th batch", {"100th": 1 / 1.2, "1,000th": 1 / 1.2}
    ),
}


def measure(name: str, folder: Path) -> Seconds:
    """Run a figure in this process, with a session made for it."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    import tussock.compute.spark as ts

    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", False)
    builder = builder.config("spark.driver.memory", "4g").config("spark.sql.shuffle.partitions", 2)
    for key, value in state_cases.ROCKSDB.items():
        builder = builder.config(key, value)
    # The server first: Spark's workers have the environment that the session began with.
    with minio(folder) as server:
        spark = builder.getOrCreate()
        spark.sparkContext.setLogLevel("OFF")
        ts.register(spark)
        work = folder / "work"
        work.mkdir()
        try:
            return FIGURES[name].run(Place(spark, work, server.fresh_url()))
        finally:
            spark.stop()


def sample(name: str, parent: Path) -> Seconds:
    """Run a figure in a new process, in a folder that is deleted after it."""
    folder = Path(tempfile.mkdtemp(dir=parent))
    command = [sys.executable, str(HERE / "spark_bench.py"), "--measure", name, "--folder", str(folder)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"{name} failed with code {done.returncode}:\n{done.stderr[-3000:]}")
        answer: Seconds = json.loads(done.stdout.splitlines()[-1])
        return answer
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def lines_of(name: str, seconds: Seconds) -> list[list[str]]:
    """The table's lines of one figure: medians and their ratio."""
    figure = FIGURES[name]
    theirs = statistics.median(seconds["peer"])
    lines = []
    for side, wanted in figure.wanted.items():
        ours = statistics.median(seconds[side])
        ratio = theirs / ours
        verdict = "reached" if ratio >= wanted else "MISSED"
        spread = f"{min(seconds[side]):.2f} to {max(seconds[side]):.2f}"
        cells = [figure.title, side, figure.peer, f"{ours:.2f} s", f"{theirs:.2f} s"]
        lines.append([*cells, f"**{ratio:.2f}x**", spread, f"{wanted:.2f}x {verdict}"])
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=FIGURES, default=list(FIGURES), metavar="NAME")
    parser.add_argument("--folder", type=Path, default=RESULTS / "work", help="for the data: on a disk, about 6 GB")
    parser.add_argument("--publish", action="store_true", help="rewrite the table in benchmarks/README.md")
    parser.add_argument("--measure", choices=FIGURES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    folder = options.folder.resolve()
    if options.measure:
        print(json.dumps(measure(options.measure, folder)))
        return
    if options.publish:
        refuse_if_busy()
    folder.mkdir(parents=True, exist_ok=True)
    load, found, table = os.getloadavg()[0], {}, []
    for name in options.only:
        found[name] = sample(name, folder)
        for line in lines_of(name, found[name]):
            table.append(line)
            print(f"{datetime.datetime.now(datetime.UTC):%H:%M:%S} " + ", ".join(line), flush=True)
    now, loads = datetime.datetime.now(datetime.UTC), [load, os.getloadavg()[0]]
    file = RESULTS / f"{now:%Y%m%dT%H%M%S}-spark.json"
    file.write_text(json.dumps({"machine": report.machine(), "load": loads, "seconds": found}, indent=1))
    head = ["figure", "Tussock on", "against", "Tussock", "peer", "ratio", "Tussock's spread, s", "wanted"]
    packages = report.machine()["packages"]
    said = (
        f"Measured on {now:%Y-%m-%d} with `make bench-spark`, Spark {packages['pyspark']}, load average {loads[0]:.1f} "
        f"at the start and {loads[1]:.1f} at the end; medians."
    )
    lines = [
        said,
        "",
        *report.markdown_table(head, table, 3),
    ]
    print("\n" + "\n".join(lines) + f"\n\nAll seconds: {file}")
    if options.publish:
        report.publish(lines, BEGIN, END)


if __name__ == "__main__":
    main()
