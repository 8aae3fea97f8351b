"""An outage of the bucket at any read of an operator's transaction, which then is computed once more."""

import pyarrow as pa

from support.buckets.faulty_bucket import FaultyBucket, LostRead
from support.procedures.histories import QuickSystem
from support.store.stores import OBJECTS, open_on
from tussock.compute import changelog as cl
from tussock.statestore import StateStore
from tussock.statestore.buckets import open_bucket

__all__ = ["check_operator_outages"]

SCHEMA = pa.schema([pa.field("k", pa.int64(), nullable=False), pa.field("g", pa.int64(), nullable=False)])


def check_operator_outages() -> int:
    """Fail one read after the other, each in another run; returns how many were there. Raises `AssertionError`."""
    at = 0
    while _is_reached(at):
        at += 1
    return at


def _is_reached(at: int) -> bool:
    """Whether a transaction makes more than `at` reads of rows; the one behind these fails once."""
    bucket = open_bucket("memory://")
    with open_on(bucket, QuickSystem(), limits=OBJECTS) as store, _flow(store) as flow:
        flow.streams["s"].push([cl.insert(k=k, g=k % 2) for k in range(6)]).result(10)
        flow.drain(10)
    faulty = FaultyBucket(bucket)
    with open_on(faulty, QuickSystem(), limits=OBJECTS) as store, _flow(store) as flow:
        lost = LostRead(at)
        faulty.script = lost
        for k in (6, 7):
            flow.streams["s"].push([cl.insert(k=k, g=0), cl.insert(k=k + 10, g=1)]).result(10)
            flow.drain(10)
        faulty.script = None
        counts = {row["g"]: row["n"] for row in flow.streams["counts"].snapshot()[0]}
        assert counts == {0: 5, 1: 5}, f"after an outage at read {at + 1}: {counts}"
        assert not flow.streams["counts"].bad_rows()
    return lost.reads > at


def _flow(store: StateStore) -> cl.Flow:
    source = cl.Stream(store, "s", schema=SCHEMA, key=["k"])
    return cl.Flow(store, [source, cl.aggregate("counts", source, "g", {"n": ("count",)})])
