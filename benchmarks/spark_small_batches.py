"""A stream of many small batches: does the time of a batch stay flat, and L0 bounded? Prints JSON.

Usage: `python benchmarks/spark_small_batches.py [--batches 1000] [--window 100] [--rows 1000] [--shape sink|merge]`.
No service runs beside the stream, so what keeps the store in shape is the compaction in the process that commits: for
the sink a Python worker of Spark's, for `write_epoch` (merge) this one. L0 is looked at from outside, between batches.
"""

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pyarrow as pa

from tussock.statestore import connect

SCHEMA = pa.schema([("k", pa.int64()), ("n", pa.int64()), ("total", pa.int64())])


def started() -> Any:
    """A session of Spark for it."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    import tussock.compute.spark as ts

    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", False)
        .config("spark.driver.memory", "2g")
        .config("spark.sql.shuffle.partitions", 2)
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    ts.register(spark)
    return spark


def run(spark: Any, batches: int, window: int, rows: int, shape: str, folder: Path) -> dict[str, Any]:
    """Stream that many batches; medians of their seconds, and the most runs of L0 seen, per `window` batches."""
    import tussock.compute.spark as ts

    url = (folder / "store").as_uri()
    watch = connect(url, compaction=False)
    watch.create_table("t", schema=SCHEMA, primary_key=["k"])
    spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", batches + 1000)
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", rows).option("numPartitions", 2)
    numbers = source.option("startTimestamp", 0).load()
    changes = numbers.selectExpr("value * 7919 % 100000 k", "1L n", "value total")
    if shape == "merge":
        merge = {"n": "sum", "total": "sum"}
        writer = changes.writeStream.foreachBatch(ts.upsert("t", store=url, writer="bench", merge=merge))
    else:
        writer = changes.writeStream.format("tussock").options(store=url, table="t")
    query = writer.option("checkpointLocation", str(folder / "c")).trigger(processingTime="0 seconds").start()
    longest: dict[int, int] = {}
    while query.isActive and (query.lastProgress is None or query.lastProgress.batchId < batches - 1):
        state = watch.version().find_table("t")
        batch = query.lastProgress.batchId if query.lastProgress else 0
        if state is not None:
            at = batch // window
            longest[at] = max(longest.get(at, 0), len(state.levels.l0))
        time.sleep(0.1)
    error = query.exception()
    progress = [entry for entry in query.recentProgress if entry.batchId < batches]
    query.stop()
    if error is not None:
        raise error
    seconds = {entry.batchId: entry.durationMs["triggerExecution"] / 1000 for entry in progress}
    levels = watch.version().find_table("t").levels  # type: ignore[union-attr]
    watch.close()
    windows = [
        {
            "batches": f"{start}-{min(start + window, batches) - 1}",
            "median_seconds": round(
                statistics.median(seconds[at] for at in range(start, min(start + window, batches)) if at in seconds), 3
            ),
            "l0_runs_max": longest.get(start // window, 0),
        }
        for start in range(0, batches, window)
    ]
    return {
        "shape": shape,
        "rows_per_batch": rows,
        "windows": windows,
        "l0_runs_at_end": len(levels.l0),
        "ssts_at_end": len(levels.ssts()),
    }


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--batches", type=int, default=1000)
    options.add_argument("--window", type=int, default=100)
    options.add_argument("--rows", type=int, default=1000)
    options.add_argument("--shape", choices=("sink", "merge"), default="sink")
    given = options.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="tussock-bench-"))
    try:
        spark = started()
        print(json.dumps(run(spark, given.batches, given.window, given.rows, given.shape, folder)))
        spark.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
