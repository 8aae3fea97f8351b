"""A program whose tasks are run twice by Spark's speculation, on a standalone cluster of two hosts.

Usage: `python speculation.py MASTER FOLDER WRITE...`. Each write goes to table `t` of its store: FOLDER/batch,
FOLDER/sink, FOLDER/stateful or FOLDER/application. In each, the first attempt of one task stands still, as a rule after
it has uploaded some of its rows, until the write is committed, which thus needs another attempt. Rows say which attempt
wrote them.

Spark's event log is in FOLDER/events; the local property `write` of a stage says whose it is.
"""

import os
import sys
import time
from pathlib import Path
from typing import Any

ROWS = 40_000
"""Even ids belong to the task that stands still."""
BUFFER_BYTES = 1 << 20
"""A task's rows are about twenty times as large, so it uploads while it runs."""
WIDE = "array_join(transform(sequence(1, 8), part -> sha2(string(id * 8 + part), 512)), '') v"
"""About 1,000 characters of each row, which compression does not make few."""
CONF = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "1g",
    "spark.driver.host": "127.0.0.1",
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.sql.shuffle.partitions": "2",
    "spark.eventLog.enabled": "true",
    "spark.eventLog.rolling.enabled": "false",
    "spark.eventLog.compress": "false",
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.minTaskRuntime": "100ms",
    "spark.speculation.multiplier": "1",
    "spark.speculation.quantile": "0.5",
    # Else only tasks are speculated that have told how far they are.
    "spark.speculation.efficiency.enabled": "false",
}


def main(master: str, folder: Path, names: list[str]) -> None:
    """Write in each of these ways."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(master).config("spark.local.dir", str(folder / "local"))
    builder = builder.config("spark.eventLog.dir", (folder / "events").as_uri())
    for name, value in CONF.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    writes = {"batch": write_batch, "sink": write_sink, "stateful": write_stateful, "application": write_application}
    for name in names:
        spark.sparkContext.setLocalProperty("write", name)
        done = folder / f"{name}.done"
        writes[name](spark, (folder / name).as_uri(), str(done))
        done.touch()
    spark.stop()


def wide_rows(rows: Any, done: str) -> Any:
    """`id`, the attempt that wrote the row, and a wide value; the first attempt stands still at its last row."""
    from pyspark import TaskContext
    from pyspark.sql.functions import udf

    def attempt(number: int) -> int:
        found = int(TaskContext.get().attemptNumber())
        while number == ROWS - 2 and found == 0 and not os.path.exists(done):
            time.sleep(0.05)
        return found

    return rows.select("id", udf(attempt, "int")("id").alias("attempt")).selectExpr("*", WIDE)


def write_batch(spark: Any, url: str, done: str) -> None:
    """`df.write`."""
    half = ROWS // 2
    rows = spark.range(0, ROWS, 1, 2).selectExpr(f"id % {half} * 2 + id div {half} id")
    options = {"store": url, "bufferBytes": BUFFER_BYTES}
    wide_rows(rows, done).write.format("tussock").mode("append").options(**options).save("t")


def write_sink(spark: Any, url: str, done: str) -> None:
    """`df.writeStream`."""
    numbers = spark.readStream.format("rate-micro-batch").options(rowsPerBatch=ROWS, numPartitions=2, startTimestamp=0)
    sink = wide_rows(numbers.load().selectExpr("value id"), done).writeStream.format("tussock")
    options = {"store": url, "bufferBytes": BUFFER_BYTES, "checkpointLocation": f"{url}-checkpoint"}
    sink.options(**options).trigger(availableNow=True).start("t").awaitTermination()


def write_stateful(spark: Any, url: str, done: str) -> None:
    """`stateful`, a task of which calls its function for some of the keys at a time, and uploads in between."""
    import pyarrow as pa
    from pyspark import TaskContext

    import tussock.compute.spark as ts

    calls = []

    def keep(batch: Any) -> Any:
        context = TaskContext.get()
        attempt = context.attemptNumber()
        if context.partitionId() == 0 and attempt == 0:
            calls.append(attempt)
            while len(calls) == 4 and not os.path.exists(done):
                time.sleep(0.05)
        attempts = pa.array([attempt] * batch.rows.num_rows, pa.int32())
        return ts.Update(state=batch.rows.append_column("attempt", attempts))

    rows = spark.range(0, ROWS, 1, 2).selectExpr("id", WIDE)
    write = ts.stateful("t", key="id", fn=keep, store=url, writer="w", partitions=2, chunk_bytes=BUFFER_BYTES)
    write(rows, 0)


def write_application(spark: Any, url: str, done: str) -> None:
    """`ts.run_batches`: a task runs the procedure for each of its keys."""
    import pyarrow as pa
    from pyspark import TaskContext

    import tussock.compute.spark as ts
    from tussock.compute import procedures as ps
    from tussock.statestore import connect

    schema = pa.schema([("id", pa.int64()), ("attempt", pa.int32()), ("v", pa.string())])
    calls = []

    def keep(tx: Any, batch: Any) -> None:
        context = TaskContext.get()
        attempt = context.attemptNumber()
        if context.partitionId() == 0 and attempt == 0:
            calls.append(attempt)
            while len(calls) == ROWS // 3 and not os.path.exists(done):
                time.sleep(0.05)
        row = batch.to_pylist()[0]
        tx.table("t").upsert([{"id": row["id"], "attempt": attempt, "v": row["v"]}])

    with connect(url) as store:
        app = ps.App(store, "slow", partition_by="id")
        app.table("t", schema, primary_key=["id"])
        app.procedure("keep", border=True, schema=pa.schema([("id", pa.int64()), ("v", pa.string())]))(keep)
        each = ts.run_batches(app, partitions=2)
        each(spark.range(0, ROWS, 1, 2).selectExpr("id", WIDE), 0)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3:])
