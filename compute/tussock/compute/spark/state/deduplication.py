"""Deduplication as a state function: the first row of each key goes on, later ones are dropped."""

from collections.abc import Callable
from datetime import timedelta

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tussock.compute.spark.state.checks import micros_of
from tussock.compute.spark.state.event_time import MICROS, micros, watermark_micros
from tussock.compute.spark.state.plan import AT
from tussock.compute.spark.state.records import KeyedBatch, Update
from tussock.statestore.errors import InvalidOption

__all__ = ["deduplicate"]


def deduplicate(
    *, output: str = "unique", event_time: str | None = None, keep: timedelta | float | None = None
) -> Callable[[KeyedBatch], Update]:
    """A function for `stateful` that writes the first row of each key to `output`.

    The state table has the key and a column `expires`, a timestamp in UTC. Without `keep` a key is remembered for
    ever. With it, a timedelta or seconds, until the watermark has passed its first row's `event_time` and `keep`: with
    the delay of the watermark this is Spark's `dropDuplicatesWithinWatermark`, and with 0 and the event time in the
    key its `dropDuplicates`. Raises `InvalidOption` if only one of the two is given.
    """
    if (event_time is None) != (keep is None):
        raise InvalidOption("event_time and keep go together: a column, and how long after it a key is remembered")
    length = None if keep is None else micros_of(keep)

    def call(batch: KeyedBatch) -> Update:
        over = _over(batch)
        known = batch.found & ~over
        fresh = np.flatnonzero(~known[: len(batch.starts)])
        first = batch.rows.take(pa.array(batch.starts[fresh]))
        keys = batch.keys.take(pa.array(fresh))
        if length is None or event_time is None:
            expires = pa.nulls(len(fresh), MICROS)
        else:
            expires = pc.add(micros(first.column(event_time)), length).view(MICROS)
        state = keys.append_column("expires", expires)
        timers = keys.append_column(AT, expires).filter(expires.is_valid())
        # What was remembered goes if it is over; of keys that came again at once, the new row stays.
        deletes = batch.keys.filter(pa.array(batch.found & over))
        return Update(state=state, deletes=deletes, outputs={output: first}, timers=timers if len(timers) else None)

    return call


def _over(batch: KeyedBatch) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Which keys are remembered no longer."""
    passed = pc.less_equal(micros(batch.state.column("expires")), watermark_micros(batch.watermark))
    over: np.ndarray[tuple[int], np.dtype[np.bool_]] = passed.fill_null(False).to_numpy(zero_copy_only=False)
    return over
