"""Batch write from Spark against Parquet sorted within partitions, in one session; prints JSON.

Usage: `python benchmarks/spark_write.py [--rows 5000000] [--runs 5] [--url file:///...]`.
The rows (bigint key in random order, bigint, double, short string) are cached in Spark first, so both sinks are fed
from memory. Each run writes both, one after the other, so that whatever else the machine does meets both alike.
"""

import argparse
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

import spark_batch_cases as cases


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
    rows = cases.source_rows(spark, given.rows, given.cores)
    seconds = cases.batch_write(rows, folder, given.runs)
    medians = cases.medians(seconds)
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
