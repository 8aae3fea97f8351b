"""Stateful streams of Spark on Tussock and on Spark's own state store, as functions of a session.

Each answers the seconds of its batches (`triggerExecution`), in order, the first ones with the start of the workers
and with less state than the later ones. All streams get the same numbers, whose keys are spread by a hash. What a case
needs of the session's configuration is in `ROCKSDB`; it does not matter to Tussock.
"""

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

ROCKSDB = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.streaming.numRecentProgressUpdates": "5000",
}
"""Configuration for Spark's own state: RocksDB, writing changes and not whole files at each batch."""

TOTALS = pa.schema([("k", pa.int64()), ("n", pa.int64()), ("total", pa.int64())])
BALANCES = pa.schema([("k", pa.int64()), ("balance", pa.int64()), ("refused", pa.int64())])


def numbers(spark: Any, rows: int, keys: int) -> Any:
    """A stream of `rows` a batch: `k` out of `keys` keys, `v` ascending, `x` from -50 to 49."""
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", rows).option("numPartitions", 2)
    made = source.option("startTimestamp", 0).load()
    return made.selectExpr(f"pmod(xxhash64(value), {keys}L) k", "value v", "value * 7919 % 100 - 50 x")


def batch_seconds(writer: Any, batches: int, folder: Path) -> list[float]:
    """Run a stream for `batches` batches; the seconds of each."""
    checkpoint = tempfile.mkdtemp(dir=folder)
    query = writer.option("checkpointLocation", checkpoint).trigger(processingTime="0 seconds").start()
    while query.isActive and (query.lastProgress is None or query.lastProgress.batchId < batches):
        time.sleep(0.05)
    error, progress = query.exception(), query.recentProgress
    query.stop()
    if error is not None:
        raise error
    return [entry.durationMs["triggerExecution"] / 1000 for entry in progress if entry.batchId < batches]


def aggregation_tussock(spark: Any, store: Any, folder: Path, rows: int, keys: int, batches: int) -> list[float]:
    """Count and sum by key with `stateful` and `merges`; `store` is an open store, on whichever bucket."""
    import tussock.compute.spark as ts

    table = f"totals-{rows}-{keys}-{batches}"
    store.create_table(table, schema=TOTALS, primary_key=["k"])
    write = ts.stateful(table, key="k", fn=ts.merges(n="count", total=("sum", "v")), store=store, writer=table)
    return batch_seconds(numbers(spark, rows, keys).writeStream.foreachBatch(write), batches, folder)


def aggregation_spark(spark: Any, folder: Path, rows: int, keys: int, batches: int) -> list[float]:
    """The same by Spark's aggregation in update mode, its results thrown away."""
    sums = numbers(spark, rows, keys).groupBy("k").agg({"v": "sum", "*": "count"})
    return batch_seconds(sums.writeStream.outputMode("update").format("noop"), batches, folder)


def per_key_tussock(spark: Any, store: Any, folder: Path, rows: int, keys: int, batches: int) -> list[float]:
    """Accounts that refuse what they have not, which depends on the order of rows: in plain Python, with `per_key`."""
    import tussock.compute.spark as ts

    def book(_: int, rows: list[dict[str, Any]], state: dict[str, Any] | None, __: Any) -> dict[str, Any]:
        balance, refused = (state["balance"], state["refused"]) if state else (0, 0)
        for row in rows:
            if balance + row["x"] < 0:
                refused += 1
            else:
                balance += row["x"]
        return {"balance": balance, "refused": refused}

    table = f"accounts-{rows}-{keys}-{batches}"
    store.create_table(table, schema=BALANCES, primary_key=["k"])
    fn = ts.per_key(book)
    write = ts.stateful(table, key="k", fn=fn, store=store, writer=table, order_by="v")
    return batch_seconds(numbers(spark, rows, keys).writeStream.foreachBatch(write), batches, folder)


def application_tussock(spark: Any, store: Any, folder: Path, rows: int, keys: int, batches: int) -> list[float]:
    """The same accounts as an application: its border procedure runs once for each key of a batch."""
    import tussock.compute.spark as ts
    from tussock.compute import procedures as ps

    name = f"bank-{rows}-{keys}-{batches}"
    app = ps.App(store, name, partition_by="k")
    app.table(name, BALANCES, primary_key=["k"])

    @app.procedure("book", border=True, schema=pa.schema([("k", pa.int64()), ("v", pa.int64()), ("x", pa.int64())]))
    def book(tx: Any, batch: pa.Table) -> None:
        key = batch["k"][0].as_py()
        state = tx.table(name).get(key)
        balance, refused = (state["balance"], state["refused"]) if state else (0, 0)
        for x in batch["x"].to_pylist():
            if balance + x < 0:
                refused += 1
            else:
                balance += x
        tx.table(name).upsert([{"k": key, "balance": balance, "refused": refused}])

    each = ts.run_batches(app, order_by="v")
    return batch_seconds(numbers(spark, rows, keys).writeStream.foreachBatch(each), batches, folder)


def per_key_spark(spark: Any, folder: Path, rows: int, keys: int, batches: int) -> list[float]:
    """The same accounts by `transformWithState` with rows, which needs pandas; its results thrown away."""
    from pyspark.sql import Row
    from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

    class Accounts(StatefulProcessor):  # type: ignore[misc]
        def init(self, handle: StatefulProcessorHandle) -> None:
            self.account = handle.getValueState("account", "balance bigint, refused bigint")

        def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:  # noqa: ARG002, N802, N803
            state = self.account.get() if self.account.exists() else None
            balance, refused = (state[0], state[1]) if state else (0, 0)
            for row in sorted(rows, key=lambda row: row["v"]):
                if balance + row["x"] < 0:
                    refused += 1
                else:
                    balance += row["x"]
            self.account.update((balance, refused))
            yield Row(k=key[0], balance=balance, refused=refused)

        def close(self) -> None:
            pass

    made = numbers(spark, rows, keys).groupBy("k")
    accounts = made.transformWithState(Accounts(), "k bigint, balance bigint, refused bigint", "Update", "None")
    return batch_seconds(accounts.writeStream.outputMode("update").format("noop"), batches, folder)
