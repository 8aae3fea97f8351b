"""The flights of 2013 as a job that streams until it is stopped: the program of `examples/kubernetes/quickstart.yaml`.

It is an ordinary PySpark program. A Compute gives it Spark's settings and, in the environment, the store and a writer
id; elsewhere `PYSPARK_SUBMIT_ARGS`, `TUSSOCK_STORE` and `TUSSOCK_WRITER_ID` do.

Batch N has the events of day N of the year (0 is 1 January), so the state of every epoch is known: that of the end of
a day. Spark counts the batches and keeps the count in its checkpoint; the events are made by the driver, the same ones
for a batch that is repeated. A job that lost its checkpoint counts from 0 again, as another query, which the store
refuses under the writer id of the first (`Fenced`).
"""

import argparse
import os
import sys
import threading
from datetime import date, timedelta

import polars as pl
from flights.events import build_events
from flights.streaming import create_tables, write_batch
from flights.timetable import load_timetable
from pyspark.sql import DataFrame, SparkSession

from tussock.compute import spark as tussock_spark
from tussock.statestore import StateStore, connect

NEW_YEAR = date(2013, 1, 1)


class Flights:
    """The events by day, and the tables that they go to."""

    def __init__(self, spark: SparkSession, store: StateStore, writer: str, days: int | None) -> None:
        self._spark, self._store, self._writer = spark, store, writer
        events = build_events(load_timetable(days))
        self._days = {day: part for (day,), part in events.partition_by("event_day", as_dict=True).items()}
        self._last = max(self._days)
        self.ended = threading.Event()

    def write(self, _: DataFrame, batch_id: int) -> None:
        """Write the day of a batch in one epoch; after the year there is nothing to write."""
        day = NEW_YEAR + timedelta(days=batch_id)
        events = self._days.get(day)
        if events is not None:
            rows = self._spark.createDataFrame(events.to_arrow(compat_level=pl.CompatLevel.oldest()))
            epoch = write_batch(rows, batch_id, self._store, self._writer)
            print(f"{day}: {len(events)} events, epoch {epoch}", flush=True)
        if day >= self._last:
            self.ended.set()


def run(options: argparse.Namespace, store_url: str, writer: str) -> None:
    """Stream until the process is stopped or, with `--end`, until the last day is in the store."""
    spark = SparkSession.builder.getOrCreate()
    tussock_spark.register(spark)
    with connect(store_url) as store:
        create_tables(store)
        flights = Flights(spark, store, writer, options.days)
        ticks = spark.readStream.format("rate-micro-batch").options(rowsPerBatch=1, startTimestamp=0).load()
        stream = ticks.writeStream.queryName("flights").foreachBatch(flights.write)
        query = stream.trigger(processingTime=f"{options.pace} seconds").start()
        while not query.awaitTermination(1):
            if options.end and flights.ended.is_set():
                query.stop()


def main(arguments: list[str]) -> None:
    """Parse the options and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--days", type=int, default=None, help="use the flights of this many days; all if left out")
    parser.add_argument("--pace", type=float, default=1.0, help="seconds from one day to the next, at least")
    parser.add_argument("--end", action="store_true", help="end after the last day; else wait to be stopped")
    run(parser.parse_args(arguments), os.environ["TUSSOCK_STORE"], os.environ["TUSSOCK_WRITER_ID"])


if __name__ == "__main__":
    main(sys.argv[1:])
