"""What a state function is given and what it answers: Arrow and NumPy, one call for many keys."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

__all__ = ["KeyedBatch", "State", "Update"]

Times = npt.NDArray[np.datetime64]


class State(NamedTuple):
    """The stored rows of one state table, aligned with `KeyedBatch.keys`."""

    rows: pa.RecordBatch
    """g rows with all columns of the table; the value columns are null where nothing is stored."""
    found: npt.NDArray[np.bool_]
    """Which keys have a stored row."""


@dataclass(frozen=True)
class KeyedBatch:
    """Some keys of a micro-batch, with all their rows and their stored state; no key's rows are in two of them.

    A key of which several timers are due is in one for each timer: the last has its rows, and those before have none.

    The first `len(starts)` keys have rows: those of key i are `rows[starts[i]:starts[i + 1]]`. Keys after them have
    none and are here because a timer of theirs fired.
    """

    rows: pa.RecordBatch
    """n rows, all of a key next to each other, each key's in the order of `order_by`."""
    starts: npt.NDArray[np.int64]
    """Position of the first row of each key that has rows, ascending."""
    keys: pa.RecordBatch
    """g distinct keys: the key columns."""
    states: Mapping[str, State]
    """The stored rows by state table."""
    batch_id: int
    watermark: np.datetime64 | None = None
    """In microseconds: the largest event time of earlier batches minus the delay; `None` before there is one."""
    fired: Times | None = None
    """Per key the time (microseconds) of its timer that fired, `NaT` where none did; `None` without timers.

    Where several of a key are due, the function is called for each, in order of time, with the rows in the last call.
    """

    @property
    def state(self) -> pa.RecordBatch:
        """The stored rows of the first, as a rule only, state table."""
        return next(iter(self.states.values())).rows

    @property
    def found(self) -> npt.NDArray[np.bool_]:
        """Which keys have a stored row in the first state table."""
        return next(iter(self.states.values())).found

    @property
    def groups(self) -> npt.NDArray[np.int64]:
        """The position in `keys` of each row's key: n numbers, ascending."""
        return np.repeat(np.arange(len(self.starts)), np.diff(self.starts, append=self.rows.num_rows))


@dataclass(frozen=True)
class Update:
    """What a state function wants written, all of it in the epoch of the batch.

    Rows are Arrow data, a list of dicts, or anything that Arrow can take over, such as a frame of Polars. Columns that
    the table has and the rows lack become null.
    """

    state: Any = None
    """New rows of the first state table, or rows by table name; other keys keep what is stored.

    Of keys in `KeyedBatch.keys` only, as are `deletes` and `timers`: `InvalidBatch` for others. Of a key that is named
    twice the last row stays, in outputs too.
    """
    deletes: Any = None
    """Keys to forget, or keys by table name; of a key that is in `state` too, the new row stays."""
    outputs: Mapping[str, Any] = field(default_factory=dict)
    """Rows by the names of `outputs`."""
    timers: Any = None
    """Rows of the key columns and `timer_at`, a timestamp: when a key is to be called even without rows."""
