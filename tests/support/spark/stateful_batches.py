"""Batches of a stateful function without a JVM: the same plan, tasks and commit, with rows placed as Spark does.

What is left out is Spark's exchange and the way of the rows to Python, which `test_spark_stateful.py` has.
"""

from contextlib import ExitStack
from typing import Any

import numpy as np
import pyarrow as pa

from tussock.compute.spark.batches.identity import MicroBatch
from tussock.compute.spark.state.stateful import commit_reports
from tussock.compute.spark.state.task.task import run_task
from tussock.statestore.client import StateStore
from tussock.statestore.keys.spark_hash import spark_hash


def run_batch(
    function: Any, store: StateStore, rows: pa.Table, batch_id: int, tasks: int = 2, batch_rows: int = 100
) -> int:
    """Do what `function(rows, batch_id)` does for a DataFrame; returns the epoch."""
    with ExitStack() as stack:
        plan = function.plan(
            store, rows.schema, batch_id, lambda: stack.enter_context(store.pin_snapshot()).epoch, tasks
        )
        columns = [_as_key(rows, plan.rows.field(name)) for name in plan.states[0].distribution_key]
        partitions = np.mod(spark_hash(columns).view(np.int32), np.int32(tasks))
        parts = [rows.filter(pa.array(partitions == task)) for task in range(tasks)]
        reports = [run_task(plan, task, part.to_batches(batch_rows)) for task, part in enumerate(parts)]
        return commit_reports(store, plan, reports, MicroBatch("tests", batch_id, None))


def _as_key(rows: pa.Table, field: pa.Field) -> pa.Array:
    """A key column as Spark casts it to place the rows, even if it does not fit."""
    return rows.column(field.name).combine_chunks().cast(field.type, safe=False)


def table_rows(table: Any) -> list[dict[str, Any]]:
    """All rows of a table, by key."""
    rows = [row for batch in table.read() for row in batch.to_pylist()]
    return sorted(rows, key=lambda row: tuple(row[name] for name in table.primary_key))
