"""A program that streams into a store with Spark until it is killed: the victim of the crash test.

Usage: `python spark_stream.py FOLDER MASTER BATCHES DIE_AFTER`. Two queries over the same numbers 0, 1, 2, ...: one
merges running totals and upserts each number in one epoch by `write_epoch`, the other is the sink. It ends once both
have committed `BATCHES` batches. Where `DIE_AFTER` is not negative it kills its whole process group right after
that batch of the totals was committed to the store, which is before Spark notes it.
"""

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

ROWS_PER_BATCH = 200
KEYS = 13


def main(folder: Path, master: str, batches: int, die_after: int) -> int:
    """Stream; 0 when done, 3 if a query failed."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    import tussock.compute.spark as ts

    spark = (
        SparkSession.builder.master(master)
        .config("spark.ui.enabled", False)
        .config("spark.driver.memory", "1g")
        .config("spark.executor.memory", "512m")
        .config("spark.sql.shuffle.partitions", 2)
        .config("spark.local.dir", str(folder / "local"))
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    ts.register(spark)
    url = (folder / "store").as_uri()

    def numbers() -> Any:
        source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS_PER_BATCH)
        return source.option("numPartitions", 2).option("startTimestamp", 0).load().selectExpr("value")

    def total(rows: Any, batch: int) -> None:
        sums = rows.selectExpr(f"value % {KEYS} k", "1L n", "value total")
        tables = {
            "totals": (sums, {"n": "sum", "total": "sum"}),
            "seen": rows.selectExpr("value id", f"{batch}L batch"),
        }
        ts.write_epoch(batch, tables, store=url, writer="totals")
        (folder / "progress").write_text(str(batch))
        if batch == die_after:
            os.killpg(0, signal.SIGKILL)

    queries = [
        numbers().writeStream.foreachBatch(total).option("checkpointLocation", str(folder / "c1")),
        numbers()
        .selectExpr("value id", "uuid() v")
        .writeStream.format("tussock")
        .options(store=url, writerId="sink", table="sink")
        .option("checkpointLocation", str(folder / "c2")),
    ]
    running = [query.trigger(processingTime="0 seconds").start() for query in queries]
    while True:
        if any(not query.isActive for query in running):
            return 3
        if all(query.lastProgress and query.lastProgress.batchId >= batches - 1 for query in running):
            for query in running:
                query.stop()
            return 0
        time.sleep(0.05)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
