"""Tussock in Spark: the format `tussock`, and helpers that write one epoch per micro-batch.

`register(spark)` makes the format known to a session; `upsert`, `write_epoch` and `stateful` serve `foreachBatch`.

A name is imported when it is first asked for (PEP 562): each of Spark's Python workers imports the format, and would
load the layers of applications with it, and pandas for them.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tussock.compute.spark.interpreter import settle_worker_python

if TYPE_CHECKING:
    from tussock.compute.spark.applications.driver import run, run_batches
    from tussock.compute.spark.batches.listener import TussockListener
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

_MODULES = {
    "KeyedBatch": "state",
    "SparkTransaction": "transactions.transaction",
    "State": "state",
    "StreamJoin": "joins.stream_join",
    "Ttl": "state",
    "Turn": "state",
    "TussockDataSource": "source",
    "TussockListener": "batches.listener",
    "Update": "state",
    "deduplicate": "state",
    "lookup": "joins.lookup",
    "merges": "state",
    "per_key": "state",
    "read_table": "tables",
    "register": "source",
    "run": "applications.driver",
    "run_batches": "applications.driver",
    "sessions": "state",
    "stateful": "state",
    "stream_join": "joins.stream_join",
    "transaction": "transactions.transaction",
    "upsert": "writes.epoch_writer",
    "write_epoch": "writes.epoch_writer",
}


def __dir__() -> list[str]:
    """The public names, also those whose modules are not loaded yet."""
    return [*__all__]


def __getattr__(name: str) -> Any:
    """A public name whose module is not loaded yet; raises `AttributeError` for a name that is none."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = value  # the next look-up finds it without this function
    return value


settle_worker_python()
