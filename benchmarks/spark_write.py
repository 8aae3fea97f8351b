"""Batch write from Spark against Parquet sorted within partitions, in one session; prints JSON.

Usage: `python benchmarks/spark_write.py [--rows 5000000] [--runs 5] [--url file:///...]`.
The rows (bigint key in random order, bigint, double, short string) are cached in Spark first, so both sinks are fed
from memory. Each run writes both, one after the other, so that whatever else the machine does meets both alike.
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

import pyarrow as pa

from tussock.statestore import connect

SCHEMA = pa.schema([("id", pa.int64()), ("n", pa.int64()), ("x", pa.float64()), ("s", pa.string())])


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--rows", type=int, default=5_000_000)
    options.add_argument("--runs", type=int, default=5)
    options.add_argument("--cores", type=int, default=2)
    given = options.parse_args()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    import tussock.compute.spark as ts

    spark = (
        SparkSession.builder.master(f"local[{given.cores}]")
        .config("spark.ui.enabled", False)
        .config("spark.driver.memory", "3g")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    ts.register(spark)
    folder = Path(tempfile.mkdtemp(prefix="tussock-bench-"))
    rows = spark.range(0, given.rows, 1, given.cores).selectExpr(
        "id * 7919 % 1000000007 id", "id n", "id * 0.5D x", "concat('row-', id % 1000) s"
    )
    # Aligned by key as a job would have them after its aggregation; outside of the clock, since both sinks get it.
    rows = rows.repartition(given.cores, "id").cache()
    rows.count()
    seconds: dict[str, list[float]] = {"tussock": [], "parquet_sorted": [], "parquet": []}
    for run in range(given.runs + 1):
        store = connect((folder / f"store{run}").as_uri())
        store.create_table("t", schema=SCHEMA, primary_key=["id"])
        url = store.url
        store.close()
        sinks = {
            "tussock": lambda url=url: rows.write.format("tussock").mode("append").option("store", url).save("t"),
            "parquet_sorted": lambda run=run: rows.sortWithinPartitions("id").write.parquet(str(folder / f"s{run}")),
            "parquet": lambda run=run: rows.write.parquet(str(folder / f"p{run}")),
        }
        for name, write in sinks.items():
            started = time.perf_counter()
            write()
            # The first run only warms up Java and the Python workers.
            if run:
                seconds[name].append(time.perf_counter() - started)
        for part in folder.iterdir():
            shutil.rmtree(part)
    medians = {name: statistics.median(times) for name, times in seconds.items()}
    result = {
        "rows": given.rows,
        "seconds": {name: [round(value, 3) for value in times] for name, times in seconds.items()},
        "median_seconds": {name: round(value, 3) for name, value in medians.items()},
        "rows_per_second": {name: round(given.rows / value) for name, value in medians.items()},
        "ratio_to_parquet_sorted": round(medians["parquet_sorted"] / medians["tussock"], 3),
    }
    print(json.dumps(result))
    spark.stop()
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
