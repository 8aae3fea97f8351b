"""Time to live: state that nobody touched for so long is forgotten.

What has expired is never shown to a function, whether it is still stored or not. Each batch also deletes what has
expired in some of the vnodes; after `SWEEP_BATCHES` batches all of them were looked at.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tussock.compute.spark.state.event_time import micros, units_of
from tussock.compute.spark.state.plan import TaskPlan
from tussock.compute.spark.state.records import State
from tussock.compute.spark.state.task.shown import shown
from tussock.statestore.tables.typed_table import TypedTable

__all__ = ["SWEEP_BATCHES", "expired_keys", "oldest_kept", "stamped", "without_expired"]

SWEEP_BATCHES = 64


def oldest_kept(plan: TaskPlan) -> int | None:
    """State of this time or an earlier one, in microseconds, has expired; `None` if there is none."""
    if plan.expiry is None:
        return None
    clock = plan.watermark if plan.expiry.event else plan.now
    return None if clock is None else clock - plan.expiry.micros


def without_expired(state: State, column: str, oldest: int, key: Sequence[str]) -> State:
    """The stored rows as if what has expired were not there."""
    times = micros(state.rows.column(column)).fill_null(np.iinfo(np.int64).max).to_numpy()
    found = state.found & (times > oldest)
    if np.array_equal(found, state.found):
        return state
    return shown(state.rows, found, key)


def expired_keys(column: str, oldest: int, plan: TaskPlan, vnodes: range, table: TypedTable) -> list[pa.RecordBatch]:
    """Keys of the state that has expired in those of the task's `vnodes` whose turn it is."""
    kind = table.schema.field(column).type
    expired = pc.field(column) <= units_of(oldest, kind)
    turn = [node for node in vnodes if node % SWEEP_BATCHES == plan.batch_id % SWEEP_BATCHES]
    reads = (table.read(list(plan.key), expired, plan.read_epoch, vnodes=(node, node + 1)) for node in turn)
    return [batch for read in reads for batch in read]


def stamped(rows: pa.RecordBatch, column: str, now: int) -> pa.RecordBatch:
    """New state with `column` set to the time of the batch."""
    kind = rows.schema.field(column).type
    return rows.set_column(rows.schema.get_field_index(column), column, pa.repeat(units_of(now, kind), rows.num_rows))
