"""What a state function takes and returns: Arrow and NumPy, one call for many keys."""

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
    """g rows with all columns of the table; the value columns are null if nothing is stored."""
    found: npt.NDArray[np.bool_]
    """Which keys have a stored row."""


@dataclass(frozen=True)
class KeyedBatch:
    """Some keys of a micro-batch, with all their rows and their stored state; no key has rows in two batches.

    A key with several due timers is in one batch for each timer: the last has its rows, and those before have none.

    The first `len(starts)` keys have rows: those of key i are `rows[starts[i]:starts[i + 1]]`. Keys after them have
    none and are here because one of their timers fired.
    """

    rows: pa.RecordBatch
    """n rows, those of each key together and in the order of `order_by`."""
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
    """For each key, the time (microseconds) of its timer that fired, or `NaT`; `None` without timers.

    If several timers of a key are due, the function is called for each, in order of time, with the rows in the last
    call.
    """

    @property
    def state(self) -> pa.RecordBatch:
        """The stored rows of the first state table, usually the only one."""
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
    """What a state function wants to write, all of it in the epoch of the batch.

    Rows are Arrow data, a list of dicts, or anything that Arrow can import, such as a Polars frame. Columns of the
    table that the rows lack become null.
    """

    state: Any = None
    """New rows of the first state table, or rows by table name; other keys keep their stored rows.

    Only keys in `KeyedBatch.keys` are allowed, here and in `deletes` and `timers`: `InvalidBatch` for others. If a key
    is named twice, the last row stays, in outputs too.
    """
    deletes: Any = None
    """Keys to forget, or keys by table name; if a key is also in `state`, the new row stays."""
    outputs: Mapping[str, Any] = field(default_factory=dict)
    """Rows by the names of `outputs`."""
    timers: Any = None
    """Rows of the key columns and `timer_at`, a timestamp: when to call a key even without rows."""
