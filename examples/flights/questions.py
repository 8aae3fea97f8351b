"""What the demo asks the store, as Polars frames; each answer can be had at any epoch."""

from collections.abc import Sequence
from datetime import date

import polars as pl
import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as fn

from tussock.statestore import StateStore, TypedTable

__all__ = ["calendar_epochs", "changes_by_status", "day_flights", "delays_by_spark", "status_counts", "table_frame"]


def table_frame(
    store: StateStore, name: str, epoch: int | None = None, columns: Sequence[str] | None = None
) -> pl.DataFrame:
    """A table (some of its columns) as of an epoch, the newest if `None`."""
    return _frame(store.table(name), list(store.table(name).read(columns, epoch=epoch)), columns)


def status_counts(store: StateStore, epoch: int | None = None) -> pl.DataFrame:
    """`status`, `flights`; reads one column of the flights."""
    statuses = table_frame(store, "flights", epoch, ["status"])
    return statuses.group_by("status").agg(flights=pl.len().cast(pl.Int64))


def day_flights(store: StateStore, day: date, epoch: int | None = None) -> pl.DataFrame:
    """The flights of one day: a scan of the range of keys that begin with it."""
    table = store.table("flights")
    return _frame(table, list(table.read(epoch=epoch, prefix=(day,))), None)


def calendar_epochs(store: StateStore) -> dict[date, int]:
    """For each day the epoch that holds its last event: the one that committed the day's row in `calendar`."""
    changes = store.table("calendar").changes(0)
    return {row["day"]: row["epoch"] for batch in changes for row in batch.select(["day", "epoch"]).to_pylist()}


def changes_by_status(store: StateStore, after: int, upto: int) -> pl.DataFrame:
    """`status`, `changes`: what was committed to the flights in (after, upto]."""
    batches = [batch.select(["status"]) for batch in store.table("flights").changes(after, upto)]
    changes = _frame(store.table("flights"), batches, ["status"])
    return changes.group_by("status").agg(changes=pl.len().cast(pl.Int64))


def delays_by_spark(spark: SparkSession, url: str, epoch: int) -> pl.DataFrame:
    """`origin`, `departed`, `minutes`: flights that left and their delay, summed by Spark over a read at an epoch."""
    flights = spark.read.format("tussock").option("store", url).option("table", "flights").option("epoch", epoch).load()
    sums = flights.groupBy("origin").agg(
        fn.count("departed_at").alias("departed"), fn.sum("dep_delay").cast("bigint").alias("minutes")
    )
    return pl.DataFrame([row.asDict() for row in sums.collect()])


def _frame(table: TypedTable, batches: list[pa.RecordBatch], columns: Sequence[str] | None) -> pl.DataFrame:
    schema = table.schema if columns is None else pa.schema([table.schema.field(name) for name in columns])
    frame = pl.from_arrow(pa.Table.from_batches(batches, schema=schema))
    assert isinstance(frame, pl.DataFrame)
    return frame
