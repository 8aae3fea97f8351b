"""A program that streams into a store with Spark until it is killed or told to stop: the victim of the crash test.

Usage: `python stream.py STORE FOLDER MASTER`. Four streams read the same numbers 0, 1, 2, ... at once: the sink;
a `foreachBatch` that commits four epochs, one of `write_epoch` with merges and others of `upsert` and `stateful`, with
names and without; a `stateful` with state, two outputs and timers; and an application of procedures, with a transaction
after it. A query that fails is started again, as a
supervisor would do it.

The file FOLDER/die names a writer: after its next commit to the store, which is before Spark notes that batch, the
program kills its whole process group. The file FOLDER/stop ends it.
"""

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from support.spark.shared_classes import java_options
from support.spark.truth import GROUP, KEYS, ODD_KEY, ODD_STATE, ODD_SUM, ODD_VALUE, ROWS_PER_BATCH

STREAMING = "streaming"
"""The line that it prints when all queries have been started."""
FAILED = "failed: "
"""The beginning of a line about a query that ended by itself."""
CONF = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "1g",
    "spark.executor.memory": "512m",
    # Executors die long before their code is worth a second compiler.
    "spark.executor.extraJavaOptions": java_options(),
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    # The test kills many workers and executors of one driver; Spark would give up on the job, or on the cluster.
    "spark.task.maxFailures": "100",
    "spark.stage.maxConsecutiveAttempts": "100",
    "spark.deploy.maxExecutorRetries": "-1",
}


def main(url: str, folder: Path, master: str) -> None:
    """Stream until killed, or told to stop."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    import tussock.compute.spark as ts

    builder = SparkSession.builder.master(master).config("spark.local.dir", str(folder / "local"))
    for name, value in CONF.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    ts.register(spark)
    spark.dataSource.register(dying_source(folder))
    numbers = spark.readStream.format("rate-micro-batch").options(rowsPerBatch=ROWS_PER_BATCH, numPartitions=2)
    rows = numbers.option("startTimestamp", 0).load()
    rows = rows.selectExpr("value v", f"value div {GROUP} % {KEYS} k", "timestamp_seconds(value) at")
    streams = {
        "sink": sink(rows, url),
        "totals": rows.writeStream.foreachBatch(totals(url, folder)),
        "accounts": rows.writeStream.foreachBatch(accounts(url, folder)),
        "sums": rows.writeStream.foreachBatch(sums(url, folder)),
    }

    def start(name: str) -> Any:
        query = streams[name].option("checkpointLocation", str(folder / "checkpoints" / name))
        return query.trigger(processingTime="0 seconds").start()

    running = {name: start(name) for name in streams}
    print(STREAMING, flush=True)
    while not (folder / "stop").exists():
        for name, query in running.items():
            if not query.isActive:
                print(f"{FAILED}{name}: {query.exception()}", flush=True)
                running[name] = start(name)
        time.sleep(0.02)
    for query in running.values():
        query.stop()
    spark.stop()


def die_if_told(folder: Path, writer: str) -> None:
    """Kill Python and Java of the driver at once, if it is this writer's turn."""
    if (folder / "die").exists() and (folder / "die").read_text() == writer:
        # Python workers are in other process groups, but in the session that the driver leads.
        os.killpg(os.getsid(0), signal.SIGKILL)


def dying_source(folder: Path) -> type:
    """The format `dying`: the sink of `tussock`, which may kill the driver after a commit."""
    from tussock.compute.spark.options.options import parse_write
    from tussock.compute.spark.source import TussockDataSource
    from tussock.compute.spark.writes.writer import StreamWriter, plan_upload

    class DyingWriter(StreamWriter):
        def commit(self, messages: Any, batchId: int) -> None:  # noqa: N803 - Spark's name
            super().commit(messages, batchId)
            die_if_told(folder, "sink")

    class DyingSource(TussockDataSource):
        @classmethod
        def name(cls) -> str:
            return "dying"

        def streamWriter(self, schema: Any, overwrite: bool) -> StreamWriter:  # noqa: N802 - Spark's name
            return DyingWriter(plan_upload(parse_write(self.options), schema, overwrite=overwrite), overwrite)

    return DyingSource


def sink(rows: Any, url: str) -> Any:
    """`writeStream.format`: each number, with a value that another attempt would not have."""
    options = {"store": url, "writerId": "sink", "table": "sink"}
    return rows.selectExpr("v id", "uuid() v").writeStream.format("dying").options(**options)


def totals(url: str, folder: Path) -> Callable[[Any, int], None]:
    """Sums per key and the numbers themselves in one epoch, then counts per key in others, some without a name."""
    import tussock.compute.spark as ts

    count = ts.upsert("counts", store=url, writer="counts", merge={"n": "sum"})
    # Several doubles are one float: they have to be one key before they are summed.
    odd_sum = ts.upsert(ODD_SUM, store=url, merge={ODD_VALUE: "sum"})
    odd_state = ts.stateful(ODD_STATE, key=ODD_KEY, fn=ts.merges(**{ODD_VALUE: "count"}), store=url)
    key, value = ("`" + name.replace("`", "``") + "`" for name in (ODD_KEY, ODD_VALUE))

    def write(rows: Any, batch: int) -> None:
        tables = {
            "totals": (rows.selectExpr("k", "1L n", "v total"), {"n": "sum", "total": "sum"}),
            "seen": rows.selectExpr("v id", f"{batch}L batch"),
        }
        ts.write_epoch(batch, tables, store=url, writer="totals")
        die_if_told(folder, "totals")
        count(rows.selectExpr("k", "1L n"), batch)
        die_if_told(folder, "counts")
        odd_sum(rows.selectExpr(f"1 + k + v % 4 * 1e-12D {key}", f"1L {value}"), batch)
        die_if_told(folder, ODD_SUM)
        odd_state(rows.selectExpr(f"k {key}"), batch)
        die_if_told(folder, ODD_STATE)

    return write


def accounts(url: str, folder: Path) -> Callable[[Any, int], None]:
    """State per key, what each batch added to it, and timers that fire in the batch after that of their key's rows."""
    import tussock.compute.spark as ts

    def book(key: int, rows: list[Any], state: Any, turn: Any) -> Any:
        state = state or {"n": 0, "total": 0, "fired": 0}
        if turn.fired is not None:
            turn.emit("calls", {"k": key, "at": turn.fired, "watermark": turn.watermark})
            state["fired"] += 1
        if rows:
            values = [row["v"] for row in rows]
            added = {"n": len(values), "total": sum(values)}
            turn.emit("bookings", {"k": key, "batch": values[0] // ROWS_PER_BATCH, **added})
            turn.timer(rows[-1]["at"])
            state = {**state, **{name: state[name] + value for name, value in added.items()}}
        return state

    outputs = {"bookings": "bookings", "calls": "calls"}
    times = {"event_time": "at", "delay": 0, "order_by": "v"}
    state = ts.stateful(
        "accounts", key="k", fn=ts.per_key(book), store=url, writer="accounts", outputs=outputs, **times
    )

    def write(rows: Any, batch: int) -> None:
        state(rows, batch)
        die_if_told(folder, "accounts")

    return write


def sums(url: str, folder: Path) -> Callable[[Any, int], None]:
    """An application with two procedures, then a transaction that copies a table with what it has just written."""
    import pyarrow as pa

    import tussock.compute.spark as ts
    from tussock.compute.procedures import App
    from tussock.statestore import connect

    store = connect(url, compaction=False)
    schema = pa.schema([(name, pa.int64()) for name in ("k", "v")])
    app = App(store, "sums", partition_by="k")
    app.table("sums")
    app.table("steps")
    booked = app.stream("booked", schema)

    @app.procedure("book", border=True, schema=schema, emits=booked)
    def book(tx: Any, batch: Any) -> Any:
        key, values = batch["k"][0].as_py(), batch["v"].to_pylist()
        row = tx.table("sums").get(key) or {"k": key, "n": 0, "total": 0}
        tx.table("sums").upsert([{"k": key, "n": row["n"] + len(values), "total": row["total"] + sum(values)}])
        return batch

    @app.procedure("note", consumes=booked)
    def note(tx: Any, batch: Any) -> None:
        tx.table("steps").upsert([{"k": batch["k"][0].as_py(), "batch": tx.batch_id - 1, "n": batch.num_rows}])

    run = ts.run_batches(app, writer="sums")

    def write(rows: Any, batch: int) -> None:
        run(rows, batch)
        die_if_told(folder, "sums")
        with ts.transaction(rows.sparkSession, store=store, writer="moves", batch_id=batch) as tx:
            tx.upsert("moved", rows.selectExpr("v id", "k"))
            # All rows so far, those above included.
            tx.upsert("copied", tx.table("moved"))
        die_if_told(folder, "moves")

    return write


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3])
