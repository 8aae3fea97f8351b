"""A program for `tussock serve` whose batch function gives callers, and rows of a feed, replies of any size."""

import pyarrow as pa

from tussock.compute import functions as fn
from tussock.statestore import StateStore

__all__ = ["ORDERS", "make"]

ORDERS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("key", pa.string()), ("size", pa.int64())])


def make(store: StateStore) -> fn.Runtime:
    """`copies` and `copy` reply as many characters as they are asked for, and count how often."""
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
        store.create_table("orders", ORDERS, primary_key=["id"])
    runtime = fn.Runtime(store, "books", [book])
    runtime.feed(
        "book", "copies", fn.TableFeed("orders"), arguments=["size"], request_id="id", replies="answers", name="orders"
    )
    return runtime
