"""Programs for `tussock serve` whose replies are unusual: with times that no class of Python holds, and large ones."""

from typing import Any

import pyarrow as pa

from tussock.compute import functions as fn
from tussock.statestore import StateStore

__all__ = ["FINE", "KINDS", "books", "clock", "clocks", "exact"]

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


def clocks(store: StateStore) -> fn.Runtime:
    """The program of `clock`."""
    return fn.Runtime(store, "clocks", [clock()])


_ORDERS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("key", pa.string()), ("size", pa.int64())])


def books(store: StateStore) -> fn.Runtime:
    """`copies`, a batch function, and `copy` reply as many characters as they are asked for, and count how often."""
    book = fn.Operator("book", schema=pa.schema([("copies", pa.int64())]), partitions=4)

    @book.register_batch
    def copies(batch: fn.FunctionBatch) -> pa.Array:
        before = batch.state("copies").fill_null(0).to_pylist()
        batch.put({"copies": [one + 1 for one in before]})
        return pa.array(["x" * size for size in batch["size"].to_pylist()], pa.large_string())

    @book.register
    def copy(ctx: fn.FunctionContext, size: int) -> str:
        ctx.put({"copies": (ctx.get() or {"copies": 0})["copies"] + 1})
        return "x" * size

    if "orders" not in store.tables():
        store.create_table("orders", _ORDERS, primary_key=["id"])
    runtime = fn.Runtime(store, "books", [book])
    runtime.feed(
        "book", "copies", fn.TableFeed("orders"), arguments=["size"], request_id="id", replies="answers", name="orders"
    )
    return runtime
