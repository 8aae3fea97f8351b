"""An endless stream: a board of flights, and running totals of each carrier, exactly once.

Runs as the program of a `Compute`, which sets `TUSSOCK_STORE`, `TUSSOCK_CHECKPOINT` and `TUSSOCK_WRITER_ID`. Its events
are made up from their numbers, so that it needs no data; `board_truth.py` knows what has to come out of them.

    board_stream.py [--rows-per-batch 300] [--seconds 1] [--batches 0]
"""

import argparse
import os

import pyarrow as pa
from board_truth import CANCELLED_EVERY, CARRIERS, LAG, ORIGINS
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from tussock.compute import spark as tussock_spark
from tussock.statestore import StateStore, TableExists, connect

STREAM = "board"

SCHEMAS = {
    "board": (
        {
            "flight": pa.int64(),
            "carrier": pa.string(),
            "origin": pa.string(),
            "status": pa.string(),
            "delay": pa.int64(),
        },
        "flight",
    ),
    "carrier_totals": (
        {
            "carrier": pa.string(),
            "scheduled": pa.int64(),
            "departed": pa.int64(),
            "arrived": pa.int64(),
            "cancelled": pa.int64(),
            "delay": pa.int64(),
            "worst_delay": pa.int64(),
        },
        "carrier",
    ),
    # How many events are in the other two tables. It is written in the same epoch, so it is right in each of them.
    "progress": ({"stream": pa.string(), "events": pa.int64(), "batch": pa.int64()}, "stream"),
}
SUMS = ("scheduled", "departed", "arrived", "cancelled", "delay")


def create_tables(store: StateStore) -> None:
    """Make the tables that are not there: this is not the driver's first start, perhaps."""
    for name, (columns, key) in SCHEMAS.items():
        try:
            store.create_table(name, schema=pa.schema(list(columns.items())), primary_key=[key])
        except TableExists:
            continue


def events_of(numbers: DataFrame) -> DataFrame:
    """The event of each number (`value`): every third schedules a flight, those between concern earlier ones."""
    names = {"carrier": CARRIERS, "origin": ORIGINS}
    step = fn.col("value") % 3
    flights = numbers.select(
        fn.col("value").alias("seq"),
        step.alias("step"),
        ((fn.col("value") - step) / 3 - step * LAG).cast("bigint").alias("flight"),
    ).where("flight >= 0")
    chosen = {
        name: fn.element_at(fn.array(*map(fn.lit, words)), (fn.col("flight") % len(words) + 1).cast("int"))
        for name, words in names.items()
    }
    cancelled = fn.col("flight") % CANCELLED_EVERY == 0
    status = (
        fn.when(fn.col("step") == 0, "scheduled")
        .when(cancelled, "cancelled")
        .when(fn.col("step") == 1, "departed")
        .otherwise("arrived")
    )
    # A cancelled flight has no third event.
    kept = flights.where(~(cancelled & (fn.col("step") == 2)))
    delay = fn.when((fn.col("step") > 0) & ~cancelled, fn.col("flight") * 37 % 61 - 10)
    return kept.select(
        "seq",
        "step",
        "flight",
        *(column.alias(name) for name, column in chosen.items()),
        status.alias("status"),
        delay.alias("delay"),
    )


def totals_of(events: DataFrame) -> DataFrame:
    """What the events of a batch add to each carrier's totals."""
    departs = fn.when(fn.col("status") == "departed", fn.col("delay"))
    counts = [fn.sum((fn.col("status") == name).cast("bigint")).alias(name) for name in SUMS[:-1]]
    delay = fn.coalesce(fn.sum(departs), fn.lit(0)).alias("delay")
    return events.groupBy("carrier").agg(*counts, delay, fn.max(departs).alias("worst_delay"))


def write_batch(numbers: DataFrame, batch: int, store: StateStore, writer: str) -> int:
    """Write a micro-batch to all three tables in one epoch; returns the epoch."""
    numbers.persist()
    try:
        events = events_of(numbers)
        progress = numbers.agg(fn.count("*").alias("events")).select(
            fn.lit(STREAM).alias("stream"), "events", fn.lit(batch).cast("bigint").alias("batch")
        )
        return tussock_spark.write_epoch(
            batch,
            {
                # Of several events of one flight in a batch the last one stays, by `seq`.
                "board": events.drop("step"),
                "carrier_totals": (totals_of(events), {**dict.fromkeys(SUMS, "sum"), "worst_delay": "max"}),
                "progress": (progress, {"events": "sum", "batch": "max"}),
            },
            store=store,
            writer=writer,
            order_by="seq",
        )
    finally:
        numbers.unpersist()


def run(options: argparse.Namespace) -> None:
    """Stream until the job is stopped, or until it has done the given number of batches."""
    spark = SparkSession.Builder().appName("tussock board").getOrCreate()
    tussock_spark.register(spark)
    with connect(os.environ["TUSSOCK_STORE"]) as store:
        create_tables(store)
        numbers = spark.readStream.format("rate-micro-batch").options(
            rowsPerBatch=options.rows_per_batch, numPartitions=2, startTimestamp=0
        )
        writer = os.environ["TUSSOCK_WRITER_ID"]
        query = (
            numbers.load()
            .select("value")
            .writeStream.queryName(STREAM)
            .option("checkpointLocation", f"file://{os.environ['TUSSOCK_CHECKPOINT']}/{STREAM}")
            .trigger(processingTime=f"{options.seconds} seconds")
            .foreachBatch(lambda rows, batch: write_batch(rows, batch, store, writer))
            .start()
        )
        while options.batches and query.isActive:
            progress = query.lastProgress
            if progress is not None and progress["batchId"] + 1 >= options.batches:
                query.stop()
            else:
                query.awaitTermination(0.2)
        query.awaitTermination()


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows-per-batch", type=int, default=300)
    parser.add_argument("--seconds", type=float, default=1.0, help="between the starts of two batches")
    parser.add_argument("--batches", type=int, default=0, help="number of batches after which to end; 0: never")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    run(parse())
