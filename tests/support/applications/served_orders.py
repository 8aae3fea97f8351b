"""Flows for `tussock serve`: prices and what follows from them."""

import pyarrow as pa
import pyarrow.compute as pc

from tussock.compute import changelog as cl
from tussock.compute.changelog.flow import host_of
from tussock.statestore import StateStore

__all__ = ["HOSTILE", "busy", "make", "short_lease"]

SCHEMA = pa.schema([("k", pa.string()), ("v", pa.int64())])
HOSTILE = "<img src=x onerror=window.hacked=1>"


def make(store: StateStore) -> cl.Flow:
    """`prices`, `shares` of 100 divided by them, their `totals` of nothing; `moments` has times and decimals."""
    prices = cl.Stream(store, "prices", schema=SCHEMA, key=["k"], queue=4, history=50)
    shares = cl.Stream(store, "shares", schema=SCHEMA, key=["k"], inputs=[prices], queue=4, history=50)
    halves = cl.Stream(store, "halves", schema=SCHEMA, key=["k"], inputs=[shares])
    moments = cl.Stream(
        store,
        "moments",
        schema=pa.schema(
            [("day", pa.date32()), ("n", pa.int64()), ("price", pa.decimal128(12, 2)), ("raw", pa.binary())]
        ),
        key=["day", "n"],
    )

    @shares.compute
    def share(row: cl.ChangeRecord) -> list[cl.ChangeRecord]:
        if row.op == "DELETE":
            return [cl.safedelete(k=row["k"])]
        return [cl.upsert(k=row["k"], v=100 // row["v"])]

    @halves.compute_batch
    def half(batch: pa.RecordBatch) -> pa.RecordBatch:
        kept = batch.filter(pc.invert(batch.column("_old"))).select(["k", "v", "_op"])
        ops = pc.replace_with_mask(
            kept.column("_op"), pc.not_equal(kept.column("_op"), "DELETE"), pa.repeat("UPSERT", kept.num_rows)
        )
        return kept.set_column(1, "v", pc.divide(kept.column("v"), 2)).set_column(2, "_op", ops)

    return cl.Flow(store, [prices, shares, halves, moments], name="orders")


class short_lease:  # noqa: N801 - a callable, named as one
    """The same, whose streams wait for silent subscribers for a second only."""

    def __init__(self, store: StateStore) -> None:
        self._flow = make(store)

    def served(self) -> object:
        from tussock.compute.changelog.remote.served_flow import ServedFlow

        return ServedFlow(self._flow, host_of(self._flow), lease_seconds=1.0)


def busy(store: StateStore) -> cl.Flow:
    """Three streams behind each other, by batches, for load."""
    ticks = cl.Stream(store, "ticks", schema=SCHEMA, key=["k"], queue=16)
    doubled = cl.Stream(store, "doubled", schema=SCHEMA, key=["k"], inputs=[ticks], queue=16)
    copied = cl.Stream(store, "copied", schema=SCHEMA, key=["k"], inputs=[doubled], queue=16)

    @doubled.compute_batch
    def double(batch: pa.RecordBatch) -> pa.RecordBatch:
        kept = batch.filter(pc.invert(batch.column("_old"))).select(["k", "v", "_op"])
        ops = pa.repeat("UPSERT", kept.num_rows)
        return kept.set_column(1, "v", pc.multiply(kept.column("v"), 2)).set_column(2, "_op", ops)

    return cl.Flow(store, [ticks, doubled, copied], name="busy")
