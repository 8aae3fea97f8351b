"""A program whose states and replies have times that no class of Python holds; `tussock serve` can run it."""

from typing import Any

import pyarrow as pa

from tussock.compute import functions as fn
from tussock.statestore import StateStore

__all__ = ["FINE", "KINDS", "clock", "exact", "make"]

FINE = 1_000_000_001
"""A second and a nanosecond."""
_TIME = pa.time64("ns")
_LATE = 10**12
"""In seconds, a year beyond 9999."""
KINDS: dict[str, Any] = {
    "time": _TIME,
    "moment": pa.timestamp("ns", "UTC"),
    "span": pa.duration("ns"),
    "late": pa.timestamp("s"),
    "times": pa.list_(_TIME),
    "pair": pa.struct([("time", _TIME), ("late", pa.timestamp("s"))]),
    "named": pa.map_(pa.string(), _TIME),
}
"""Columns of a state."""


def exact(kind: str, rows: int = 1) -> pa.Array:
    """The same value of a column for each row."""
    time = pa.array([FINE], pa.int64()).cast(_TIME)[0]
    late = pa.scalar(_LATE, pa.timestamp("s"))
    values: dict[str, Any] = {
        "time": time,
        "moment": pa.scalar(FINE, KINDS["moment"]),
        "span": pa.scalar(FINE, KINDS["span"]),
        "late": late,
        "times": [time, None],
        "pair": {"time": time, "late": late},
        "named": [("a", time)],
    }
    return pa.array([values[kind]] * rows, KINDS[kind])


def clock() -> fn.Operator:
    """Functions that store these values, by columns and one by one, and give them."""
    clock = fn.Operator("clock", schema=pa.schema(KINDS.items()), partitions=4)

    @clock.register_batch
    def wind(batch: fn.FunctionBatch) -> None:
        batch.put({kind: exact(kind, batch.num_rows) for kind in KINDS})

    @clock.register_batch
    def tell(batch: fn.FunctionBatch) -> Any:
        return batch.state(batch["column"][0].as_py())

    @clock.register_batch
    def echo(batch: fn.FunctionBatch) -> Any:
        return batch["time"]

    @clock.register
    def again(ctx: fn.FunctionContext) -> None:
        state = ctx.get()
        assert state is not None
        ctx.put(state)

    @clock.register
    def look(ctx: fn.FunctionContext) -> None:
        ctx.get()

    return clock


def make(store: StateStore) -> fn.Runtime:
    """The program."""
    return fn.Runtime(store, "clocks", [clock()])
