"""Keyed state in micro-batches: `stateful` and its parts.

The course of a batch, for those who build on it:

1. The driver (`stateful.py`) asks the ledger for (writer, batch), pins the newest epoch, and makes a `TaskPlan`, the
same
   for all tasks: `stateful(table=("left", "right"), ...)` reads and writes several tables in one task, which need the
   same primary key, `key`, and the same distribution key.
2. Spark's exchange brings the rows to the task of their key. The task (`task/task.py`) sorts them by key (`groups.py`),
   looks the keys up in every state table at the pinned epoch, and calls the function with a `KeyedBatch`:
   `batch.rows` and `batch.starts`, `batch.keys`, and `batch.states["left"]`, a `State` of `rows` and `found` aligned
   with the keys. Keys whose timers fired come after those that have rows. If several timers of a key are due, calls
      without rows go before, in rounds: each sees what the round before has returned.
3. The function returns an `Update`: `state={"left": rows, "right": rows}`, `deletes` likewise, `outputs`, `timers`.
   Rows are written whole; a key that is not named keeps its row.
4. The task uploads all of it, each table at the same time as the others, and returns the names of SSTs. The driver
   commits the reports of all tasks as one epoch, on the condition that nobody else wrote to the state.

State of several rows per key (the rows of one side of a join) is one row with a column of lists. If a micro-batch has
rows of several kinds, union them and tag them in an extra column; `order_by` puts them in order.
"""

from tussock.compute.spark.state.checks import Ttl
from tussock.compute.spark.state.deduplication import deduplicate
from tussock.compute.spark.state.merges import merges
from tussock.compute.spark.state.per_key import Turn, per_key
from tussock.compute.spark.state.records import KeyedBatch, State, Update
from tussock.compute.spark.state.sessions import sessions
from tussock.compute.spark.state.stateful import stateful

__all__ = [
    "KeyedBatch",
    "State",
    "Ttl",
    "Turn",
    "Update",
    "deduplicate",
    "merges",
    "per_key",
    "sessions",
    "stateful",
]
