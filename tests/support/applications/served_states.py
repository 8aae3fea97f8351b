"""A program for `tussock serve` whose states have the types that JSON and MessagePack lack."""

import datetime as dt
import decimal

import pyarrow as pa

from tussock.compute import functions as fn
from tussock.statestore import StateStore

__all__ = ["SCHEMA", "make"]

NEW_YEAR = dt.datetime(2020, 1, 1)
STATE = {
    "moment": NEW_YEAR,
    "moment_ns": NEW_YEAR,
    "zoned": NEW_YEAR.replace(tzinfo=dt.UTC),
    "day": NEW_YEAR.date(),
    "time": dt.time(1, 2, 3),
    "span": dt.timedelta(seconds=1),
    "span_ns": dt.timedelta(seconds=1),
    "price": decimal.Decimal("1.50"),
    "bytes": b"\xff",
    "pairs": {"a": 1},
}
SCHEMA = pa.schema(
    {
        "moment": pa.timestamp("us"),
        "moment_ns": pa.timestamp("ns"),
        "zoned": pa.timestamp("us", "UTC"),
        "day": pa.date32(),
        "time": pa.time64("us"),
        "span": pa.duration("us"),
        "span_ns": pa.duration("ns"),
        "price": pa.decimal128(10, 2),
        "bytes": pa.binary(),
        "pairs": pa.map_(pa.string(), pa.int64()),
    }
)


def make(store: StateStore) -> fn.Runtime:
    """Function `put` of operator `thing` stores a value of each type, and that of `note` a dict of plain values."""
    thing = fn.Operator("thing", schema=SCHEMA)
    note = fn.Operator("note")

    @thing.register
    async def put(ctx: fn.FunctionContext) -> None:
        ctx.put(STATE)

    @note.register
    async def write(ctx: fn.FunctionContext, text: str) -> None:
        ctx.put({"text": text})

    return fn.Runtime(store, "states", [thing, note])
