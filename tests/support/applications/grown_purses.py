"""Purses of two releases of a program: the second one declares more columns, and a wider one."""

from typing import Any

import pyarrow as pa

from tussock.compute import functions as fn
from tussock.statestore import StateStore

__all__ = ["FIRST", "GROWN", "make", "purses"]

FIRST = pa.schema([("total", pa.int32())])
GROWN = pa.schema([("note", pa.string()), ("total", pa.int64()), ("tags", pa.list_(pa.string()))])
"""New columns before and behind, and a wider one."""


def purses(schema: pa.Schema, name: str = "purse") -> fn.Operator:
    """`add` is the same in both releases; `mark` is of the second one."""
    purse = fn.Operator(name, partitions=4, schema=schema)

    @purse.register
    async def add(ctx: fn.FunctionContext, amount: int) -> int:
        state = ctx.get() or {"total": 0}
        ctx.put({**state, "total": state["total"] + amount})
        return int(state["total"] + amount)

    @purse.register_batch
    def look(batch: fn.FunctionBatch) -> Any:
        return batch.state("total")

    if "note" in schema.names:

        @purse.register
        async def mark(ctx: fn.FunctionContext, note: str) -> Any:
            before = ctx.get()
            ctx.put({**before, "note": note, "tags": [note, None]})
            return before

        @purse.register_batch
        def notes(batch: fn.FunctionBatch) -> Any:
            return batch.state("note")

    return purse


def make(store: StateStore) -> fn.Runtime:
    """The second release, for `tussock work`."""
    return fn.Runtime(store, "p", [purses(GROWN)])
