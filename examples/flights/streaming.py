"""The stream: Spark reads the event files one by one and writes four tables of the store in one epoch a micro-batch."""

import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
from flights.timetable import KEY
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from tussock.compute import spark as tussock_spark
from tussock.statestore import StateStore

__all__ = ["create_tables", "start_spark", "stream_files", "write_batch"]

_MOMENT = pa.timestamp("us", tz="UTC")

_SCHEMAS: dict[str, tuple[dict[str, pa.DataType], list[str], list[str]]] = {
    # Distributed by day, so that the flights of a day are one range of keys.
    "flights": (
        {
            "day": pa.date32(),
            "carrier": pa.string(),
            "flight": pa.int32(),
            "origin": pa.string(),
            "dest": pa.string(),
            "tailnum": pa.string(),
            "distance": pa.int32(),
            "hour_at": _MOMENT,
            "status": pa.string(),
            "scheduled_at": _MOMENT,
            "departed_at": _MOMENT,
            "arrived_at": _MOMENT,
            "dep_delay": pa.int32(),
            "arr_delay": pa.int32(),
        },
        list(KEY),
        ["day"],
    ),
    "carrier_totals": (
        {
            "carrier": pa.string(),
            "scheduled": pa.int64(),
            "departed": pa.int64(),
            "arrived": pa.int64(),
            "cancelled": pa.int64(),
            "dep_delay": pa.int64(),
            "arr_delay": pa.int64(),
            "miles": pa.int64(),
            "worst_delay": pa.int32(),
        },
        ["carrier"],
        ["carrier"],
    ),
    "origin_hours": (
        {
            "origin": pa.string(),
            "hour_at": _MOMENT,
            "scheduled": pa.int64(),
            "departed": pa.int64(),
            "cancelled": pa.int64(),
            "dep_delay": pa.int64(),
        },
        ["origin", "hour_at"],
        ["origin"],
    ),
    # Which days of 2013 a batch brought. The epoch of a day's row is the epoch that holds the day's last event.
    "calendar": ({"day": pa.date32(), "batch": pa.int64(), "events": pa.int64()}, ["day"], ["day"]),
}

_SUMS = ("scheduled", "departed", "arrived", "cancelled", "dep_delay", "arr_delay", "miles")
_CARRIER_MERGE = {**dict.fromkeys(_SUMS, "sum"), "worst_delay": "max"}
_HOUR_MERGE = dict.fromkeys(("scheduled", "departed", "cancelled", "dep_delay"), "sum")


def create_tables(store: StateStore) -> None:
    """The four tables, empty; those that are there already are left alone."""
    there = store.tables()
    for name, (columns, key, distribution) in _SCHEMAS.items():
        if name not in there:
            store.create_table(
                name, schema=pa.schema(list(columns.items())), primary_key=key, distribution_key=distribution
            )


def start_spark(scratch: Path) -> SparkSession:
    """A session on two cores of this machine whose clock is UTC; what the JVM logs goes to `scratch/spark.log`."""
    # Spark would start its workers with the first `python3` of the path, which need not be this one.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas")
    builder = SparkSession.Builder().master("local[2]").appName("tussock flights")
    settings = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": (scratch / "warehouse").as_uri(),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    with _stderr_to(scratch / "spark.log"):
        session = builder.getOrCreate()
    tussock_spark.register(session)
    return session


@contextmanager
def _stderr_to(path: Path) -> Iterator[None]:
    """Processes that are started meanwhile write their stderr to `path`, for as long as they live."""
    sys.stderr.flush()
    kept = os.dup(2)
    with path.open("ab") as log:
        os.dup2(log.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def stream_files(
    spark: SparkSession,
    store: StateStore,
    source: Path,
    checkpoint: Path,
    done: Callable[[int, int], None],
) -> None:
    """Stream all files of `source` into the store, one file a micro-batch; `done(batch, epoch)` after each."""

    def write(events: DataFrame, batch_id: int) -> None:
        done(batch_id, write_batch(events, batch_id, store))

    schema = spark.read.parquet(source.as_uri()).schema
    files = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(source.as_uri())
    query = files.writeStream.option("checkpointLocation", checkpoint.as_uri()).foreachBatch(write)
    query.trigger(availableNow=True).start().awaitTermination()


def write_batch(events: DataFrame, batch_id: int, store: StateStore, writer: str | None = None) -> int:
    """Write one micro-batch to all four tables in one epoch, exactly once; returns the epoch.

    `writer` is the query's id if not given, which lasts as long as its checkpoint.
    """
    events.persist()
    try:
        flights = events.withColumnRenamed("kind", "status").drop("event_at", "event_day")
        parts = {
            # Each event carries its flight's state: of several events of one flight, the last one (by `seq`) stays.
            "flights": flights,
            "carrier_totals": (_carrier_rows(events), _CARRIER_MERGE),
            "origin_hours": (_hour_rows(events), _HOUR_MERGE),
            "calendar": _calendar_rows(events, batch_id),
        }
        return tussock_spark.write_epoch(batch_id, parts, store=store, writer=writer, order_by="seq")
    finally:
        events.unpersist()


def _is(kind: str) -> fn.Column:
    return (fn.col("kind") == kind).cast("bigint")


def _when(kind: str, column: str) -> fn.Column:
    return fn.when(fn.col("kind") == kind, fn.col(column))


def _carrier_rows(events: DataFrame) -> DataFrame:
    return events.groupBy("carrier").agg(
        fn.sum(_is("scheduled")).alias("scheduled"),
        fn.sum(_is("departed")).alias("departed"),
        fn.sum(_is("arrived")).alias("arrived"),
        fn.sum(_is("cancelled")).alias("cancelled"),
        fn.coalesce(fn.sum(_when("departed", "dep_delay")), fn.lit(0)).alias("dep_delay"),
        fn.coalesce(fn.sum(_when("arrived", "arr_delay")), fn.lit(0)).alias("arr_delay"),
        fn.coalesce(fn.sum(_when("arrived", "distance")), fn.lit(0)).alias("miles"),
        fn.max(_when("departed", "dep_delay")).alias("worst_delay"),
    )


def _hour_rows(events: DataFrame) -> DataFrame:
    return events.groupBy("origin", "hour_at").agg(
        fn.sum(_is("scheduled")).alias("scheduled"),
        fn.sum(_is("departed")).alias("departed"),
        fn.sum(_is("cancelled")).alias("cancelled"),
        fn.coalesce(fn.sum(_when("departed", "dep_delay")), fn.lit(0)).alias("dep_delay"),
    )


def _calendar_rows(events: DataFrame, batch_id: int) -> DataFrame:
    days = events.groupBy(fn.col("event_day").alias("day")).agg(fn.count("*").alias("events"))
    return days.withColumn("batch", fn.lit(batch_id).cast("bigint"))
