"""Plain Python logic per key, for logic without a vectorised form: one call per key, with dicts.

It costs some microseconds per row; the reads, the writes and the grouping around it stay vectorised.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Any

import pyarrow as pa

from tussock.compute.spark.state.event_time import MICROS
from tussock.compute.spark.state.plan import AT
from tussock.compute.spark.state.records import KeyedBatch, Update

__all__ = ["Turn", "per_key"]

Row = dict[str, Any]


class Turn:
    """One key's turn: what the function knows beside the rows, and what it may do beside returning a state."""

    def __init__(self, watermark: datetime | None) -> None:
        self.watermark = watermark
        self.fired: datetime | None = None
        """The time of this key's timer that fired; `None` if none did. Each due timer gets its own turn."""
        self.outputs: dict[str, list[Row]] = {}
        self.timers: list[Row] = []
        self._key: Row = {}

    def emit(self, output: str, row: Row) -> None:
        """Write a row to an output."""
        self.outputs.setdefault(output, []).append(row)

    def timer(self, at: datetime) -> None:
        """Ask for a call in the first batch whose watermark has passed `at`, an aware datetime, even without rows."""
        self.timers.append({AT: at, **self._key})

    def begin(self, key: Row, fired: datetime | None) -> None:
        """Pass the turn to the next key."""
        self._key = key
        self.fired = fired


def per_key(fn: Callable[[Any, list[Row], Row | None, Turn], Row | None]) -> Callable[[KeyedBatch], Update]:
    """A function for `stateful` from `fn(key, rows, state, turn) -> state`, which is called for each key.

    `key`: a tuple of key values, or the bare value if the key is one column; `rows`: its rows as dicts, in order;
    `state`: its stored row, `None` if there is none. `fn` returns the row to store, in which the key columns may be
    left out, or `None` to forget the key. With several state tables only the first is used. If several timers of a key
    are due, `fn` is called for each, in order of time, with the rows in the last call.
    """

    def call(batch: KeyedBatch) -> Update:
        names = batch.keys.schema.names
        keys = batch.keys.to_pylist()
        rows = batch.rows.to_pylist()
        bounds = [*batch.starts.tolist(), len(rows)]
        bounds += [len(rows)] * (len(keys) + 1 - len(bounds))
        states = [row if found else None for row, found in zip(batch.state.to_pylist(), batch.found, strict=True)]
        fired = [None] * len(keys) if batch.fired is None else _moments(batch.fired)
        turn = Turn(None if batch.watermark is None else _moments(batch.watermark.reshape(1))[0])
        kept: list[Row] = []
        deletes: list[Row] = []
        for at, key in enumerate(keys):
            turn.begin(key, fired[at])
            bare = key[names[0]] if len(names) == 1 else tuple(key.values())
            state = fn(bare, rows[bounds[at] : bounds[at + 1]], states[at], turn)
            if state is not None:
                kept.append({**state, **key})
            elif batch.found[at]:
                deletes.append(key)
        return Update(state=kept, deletes=deletes, outputs=turn.outputs, timers=turn.timers or None)

    return call


def _moments(times: Any) -> list[datetime | None]:
    """NumPy's times as aware datetimes."""
    moments: list[datetime | None] = pa.array(times).cast(MICROS).to_pylist()
    return moments
