"""Seeded events with late ones, nulls and repeats, and the results of Spark's own stateful operators."""

import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

NOON = datetime(2013, 1, 1, 12, tzinfo=UTC)
SCHEMA = pa.schema([("k", pa.string()), ("v", pa.int64()), ("at", pa.timestamp("us", "UTC"))])
DDL = "k string, v bigint, at timestamp"
GAP = timedelta(seconds=20)
DELAY = timedelta(seconds=60)
END = "end"
"""Key of the last two batches, which only move the watermark past all others."""


def event_batches(seed: int, batches: int = 5, rows: int = 60, keys: int = 12) -> list[pa.Table]:
    """Batches a minute apart whose rows are up to four minutes old, which is late for some of them."""
    chance = random.Random(seed)
    made = []
    for batch in range(batches):
        events = []
        for _ in range(rows):
            age = chance.choice([10, 40, 90, 240])
            at = NOON + timedelta(seconds=60 * batch - chance.randrange(age))
            v = None if chance.random() < 0.2 else chance.randrange(-50, 50)
            events.append({"k": f"k{chance.randrange(keys)}", "v": v, "at": at})
        # Neighbours exactly a gap apart, and repeats.
        events += [{**event, "at": event["at"] + GAP} for event in events[:8]] + events[8:20]
        made.append(pa.Table.from_pylist(events, SCHEMA))
    hour = [NOON + timedelta(hours=hour) for hour in (1, 2)]
    return made + [pa.table([[END], [0], pa.array([at], SCHEMA.field("at").type)], schema=SCHEMA) for at in hour]


def spark_results(spark: Any, folder: Path, batches: list[pa.Table], queries: dict[str, tuple[str, Any]]) -> Any:
    """All rows of each query, one batch after the other; queries: output mode and a function."""
    source = folder / "source"
    source.mkdir()
    answers: dict[str, list[Any]] = {name: [] for name in queries}
    running = []
    for name, (mode, build) in queries.items():
        events = spark.readStream.schema(DDL).option("maxFilesPerTrigger", 1).parquet(str(source))
        writer = build(events.withWatermark("at", f"{DELAY.seconds} seconds")).writeStream.outputMode(mode)
        writer = writer.foreachBatch(_collector(answers[name])).option("checkpointLocation", str(folder / name))
        running.append(writer.trigger(processingTime="0 seconds").start())
    try:
        for number, batch in enumerate(batches):
            add_file(source, number, batch)
            for query in running:
                # With the batch without rows after it, in which Spark forgets what the watermark has passed.
                query.processAllAvailable()
    finally:
        for query in running:
            query.stop()
    return answers


def add_file(source: Path, number: int, batch: pa.Table) -> None:
    """Add one batch to a stream of files, whole at once."""
    hidden = source / f"_{number}"
    pq.write_table(batch, hidden)
    hidden.rename(source / f"{number:03}.parquet")


def _collector(rows: list[Any]) -> Callable[[Any, int], None]:
    return lambda batch, number: rows.extend(row.asDict() for row in batch.collect())
