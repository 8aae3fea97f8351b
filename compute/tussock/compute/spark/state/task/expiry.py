"""Time to live: state that was not written for that long is forgotten.

A function never sees expired state, whether it is still stored or not. Each batch also deletes expired state in some of
the vnodes; after `SWEEP_BATCHES` batches all of them have had their turn.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tussock.compute.spark.state.event_time import micros, units_of
from tussock.compute.spark.state.plan import TaskPlan
from tussock.compute.spark.state.records import State
from tussock.compute.spark.state.task.states import state_of
from tussock.statestore.tables.typed_table import TypedTable

__all__ = ["SWEEP_BATCHES", "expired_keys", "oldest_kept", "stamp_rows", "without_expired"]

SWEEP_BATCHES = 64


def oldest_kept(plan: TaskPlan) -> int | None:
    """State at or before this time, in microseconds, has expired; `None` if none can expire."""
    if plan.expiry is None:
        return None
    clock = plan.watermark if plan.expiry.event else plan.now
    return None if clock is None else clock - plan.expiry.micros


def without_expired(state: State, column: str, oldest: int, key: Sequence[str]) -> State:
    """The stored rows as if expired ones were missing."""
    times = micros(state.rows.column(column)).fill_null(np.iinfo(np.int64).max).to_numpy()
    found = state.found & (times > oldest)
    if np.array_equal(found, state.found):
        return state
    return state_of(state.rows, found, key)


def expired_keys(column: str, oldest: int, plan: TaskPlan, vnodes: range, table: TypedTable) -> list[pa.RecordBatch]:
    """Keys of expired state in those of the task's `vnodes` whose turn it is."""
    kind = table.schema.field(column).type
    expired = pc.field(column) <= units_of(oldest, kind)
    turn = [node for node in vnodes if node % SWEEP_BATCHES == plan.batch_id % SWEEP_BATCHES]
    reads = (table.read(list(plan.key), expired, plan.read_epoch, vnodes=(node, node + 1)) for node in turn)
    return [batch for read in reads for batch in read]


def stamp_rows(rows: pa.RecordBatch, column: str, now: int) -> pa.RecordBatch:
    """New state with `column` set to the time of the batch."""
    kind = rows.schema.field(column).type
    return rows.set_column(rows.schema.get_field_index(column), column, pa.repeat(units_of(now, kind), rows.num_rows))
