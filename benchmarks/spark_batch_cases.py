"""Batch write and batch read from Spark beside Parquet, as functions of a session and a folder, without state.

The rows have a bigint key in random order, a bigint, a double and a short string. Each run does both sides, one
directly after the other, so that whatever else the machine does meets both alike; the first run only warms up Java and
the Python workers and is not counted.
"""

import shutil
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from tussock.statestore import connect

SCHEMA = pa.schema([("id", pa.int64()), ("n", pa.int64()), ("x", pa.float64()), ("s", pa.string())])


def source_rows(spark: Any, rows: int, partitions: int) -> Any:
    """The rows, cached in Spark and placed by key as a job would have them after its aggregation."""
    made = spark.range(0, rows, 1, partitions).selectExpr(
        "id * 7919 % 1000000007 id", "id n", "id * 0.5D x", "concat('row-', id % 1000) s"
    )
    placed = made.repartition(partitions, "id").cache()
    placed.count()
    return placed


def new_store(folder: Path) -> str:
    """URL of a store with the empty table `t`."""
    with connect(folder.as_uri()) as store:
        store.create_table("t", schema=SCHEMA, primary_key=["id"])
    return folder.as_uri()


def batch_write(rows: Any, folder: Path, runs: int) -> dict[str, list[float]]:
    """Seconds of writing the DataFrame `rows` to Tussock, to Parquet sorted within partitions, and to plain Parquet."""

    def round_of(run: int) -> dict[str, Callable[[], object]]:
        url = new_store(folder / f"store{run}")
        return {
            "tussock": lambda: rows.write.format("tussock").mode("append").option("store", url).save("t"),
            "parquet_sorted": lambda: rows.sortWithinPartitions("id").write.parquet(str(folder / f"sorted{run}")),
            "parquet": lambda: rows.write.parquet(str(folder / f"plain{run}")),
        }

    return _timed(round_of, runs, folder)


def batch_read(spark: Any, rows: Any, folder: Path, runs: int) -> dict[str, list[float]]:
    """Seconds of a sum over two columns and a maximum over a third of all rows: a compacted table, and Parquet."""
    url, parquet = new_store(folder / "read"), str(folder / "read-parquet")
    rows.write.format("tussock").mode("append").option("store", url).save("t")
    with connect(url) as store:
        store.compact("t")
    rows.write.parquet(parquet)
    answers = set()

    def total(frame: Any) -> None:
        answers.add(tuple(frame.selectExpr("sum(id)", "sum(x)", "max(s)", "count(n)").collect()[0]))

    def round_of(_: int) -> dict[str, Callable[[], object]]:
        return {
            "tussock": lambda: total(spark.read.format("tussock").option("store", url).load("t")),
            "parquet": lambda: total(spark.read.parquet(parquet)),
        }

    seconds = _timed(round_of, runs)
    if len(answers) != 1:
        raise RuntimeError(f"the two sides differ: {answers}")
    return seconds


def medians(seconds: dict[str, list[float]]) -> dict[str, float]:
    """The middle run of each side."""
    return {name: statistics.median(times) for name, times in seconds.items()}


def _timed(
    round_of: Callable[[int], dict[str, Callable[[], object]]], runs: int, scratch: Path | None = None
) -> dict[str, list[float]]:
    seconds: dict[str, list[float]] = {}
    for run in range(runs + 1):
        for name, work in round_of(run).items():
            started = time.perf_counter()
            work()
            if run:
                seconds.setdefault(name, []).append(time.perf_counter() - started)
        for part in scratch.iterdir() if scratch is not None else ():
            shutil.rmtree(part)
    return seconds
