"""Tussock in Spark: the format `tussock`, and helpers that write one epoch per micro-batch.

`register(spark)` makes the format known to a session; `upsert`, `write_epoch` and `stateful` serve `foreachBatch`.
"""

from tussock.compute.spark.applications.driver import run, run_batches
from tussock.compute.spark.batches.listener import TussockListener
from tussock.compute.spark.interpreter import settle_worker_python
from tussock.compute.spark.joins.lookup import lookup
from tussock.compute.spark.joins.stream_join import StreamJoin, stream_join
from tussock.compute.spark.source import TussockDataSource, register
from tussock.compute.spark.state import (
    KeyedBatch,
    State,
    Ttl,
    Turn,
    Update,
    deduplicate,
    merges,
    per_key,
    sessions,
    stateful,
)
from tussock.compute.spark.tables import read_table
from tussock.compute.spark.transactions.transaction import SparkTransaction, transaction
from tussock.compute.spark.writes.epoch_writer import upsert, write_epoch

__all__ = [
    "KeyedBatch",
    "SparkTransaction",
    "State",
    "StreamJoin",
    "Ttl",
    "Turn",
    "TussockDataSource",
    "TussockListener",
    "Update",
    "deduplicate",
    "lookup",
    "merges",
    "per_key",
    "read_table",
    "register",
    "run",
    "run_batches",
    "sessions",
    "stateful",
    "stream_join",
    "transaction",
    "upsert",
    "write_epoch",
]

settle_worker_python()
