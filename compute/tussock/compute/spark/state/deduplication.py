"""Deduplication as a state function: passes the first row of each key on, and drops later ones."""

from collections.abc import Callable, Mapping
from datetime import timedelta

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tussock.compute.spark.state.checks import micros_of
from tussock.compute.spark.state.event_time import MICROS, later, micros, watermark_micros
from tussock.compute.spark.state.plan import AT
from tussock.compute.spark.state.records import KeyedBatch, Update
from tussock.statestore.errors import InvalidOption

__all__ = ["deduplicate"]

EXPIRES = "expires"


def deduplicate(
    *, output: str = "unique", event_time: str | None = None, keep: timedelta | float | None = None
) -> Callable[[KeyedBatch], Update]:
    """A function for `stateful` that writes the first row of each key to `output`.

    The state table has the key and a column `expires`, a timestamp in UTC. Without `keep` a key is remembered for
    ever. With it, a timedelta or seconds, a key is remembered until the watermark has passed its first row's
    `event_time` plus `keep`: with the delay of the watermark this is Spark's `dropDuplicatesWithinWatermark`, and with
    0 and the event time in the key its `dropDuplicates`. Raises `InvalidOption` if only one of the two is given.
    """
    if (event_time is None) != (keep is None):
        raise InvalidOption("event_time and keep go together: a column, and the time after it to remember a key")
    return _Deduplicate(output, event_time, None if keep is None else micros_of(keep))


class _Deduplicate:
    """The function that `deduplicate` returns."""

    each_timer = False
    """The watermark decides what is over."""

    def __init__(self, output: str, event_time: str | None, length: int | None) -> None:
        self.output = output
        self.event_time = event_time
        self.length = length

    def check(self, rows: pa.Schema, states: Mapping[str, pa.Schema], key: tuple[str, ...]) -> None:
        """Raise `InvalidOption` if the columns of rows and state table are not suitable."""
        table, schema = next(iter(states.items()))
        if schema.names.count(EXPIRES) != 1 or EXPIRES in key or schema.field(EXPIRES).type != MICROS:
            columns = [f"{field.name}: {field.type}" for field in schema]
            raise InvalidOption(
                f"table {table!r}: expected beside the key a column {EXPIRES!r} of {MICROS}, in which deduplicate "
                f"keeps its times; found {columns} with the key {list(key)}"
            )
        if self.event_time is not None and self.event_time not in rows.names:
            raise InvalidOption(
                f"deduplicate reads the column {self.event_time!r}, which the rows lack; they have {rows.names}"
            )

    def __call__(self, batch: KeyedBatch) -> Update:
        """Pass the first row of each key that is not remembered."""
        over = _over(batch)
        known = batch.found & ~over
        fresh = np.flatnonzero(~known[: len(batch.starts)])
        first = batch.rows.take(pa.array(batch.starts[fresh]))
        keys = batch.keys.take(pa.array(fresh))
        if self.length is None or self.event_time is None:
            expires = pa.nulls(len(fresh), MICROS)
        else:
            expires = later(micros(first.column(self.event_time)), self.length, self.event_time).view(MICROS)
        state = keys.append_column(EXPIRES, expires)
        timers = keys.append_column(AT, expires).filter(expires.is_valid())
        # What is over goes; of keys that came again at once, the new row stays.
        deletes = batch.keys.filter(pa.array(batch.found & over))
        return Update(
            state=state, deletes=deletes, outputs={self.output: first}, timers=timers if len(timers) else None
        )


def _over(batch: KeyedBatch) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Which keys are no longer remembered."""
    passed = pc.less_equal(micros(batch.state.column(EXPIRES)), watermark_micros(batch.watermark))
    over: np.ndarray[tuple[int], np.dtype[np.bool_]] = passed.fill_null(False).to_numpy(zero_copy_only=False)
    return over
