"""How many rows go at once, where many are due."""

import numpy as np
import pyarrow as pa
import pytest

from support.changelog.hand_clock import HandClock
from support.store.stores import open_on
from tussock.compute import changelog as cl
from tussock.statestore.buckets import open_bucket

SCHEMA = pa.schema([("k", pa.int64())])
MOST = 100_000


@pytest.mark.parametrize("keep", ["1 rows", "5s"])
def test_a_hundred_thousand_rows_go_at_once_at_most(keep: str) -> None:
    """What is due besides goes with the transaction of deletions that follows."""
    clock = HandClock()
    rows = pa.record_batch([pa.array(np.arange(MOST + 1)), pa.repeat("INSERT", MOST + 1)], names=["k", "_op"])
    with open_on(open_bucket("memory://"), clock) as store:
        stream = cl.Stream(store, "s", schema=SCHEMA, key=["k"], keep=keep)
        with cl.Flow(store, [stream]), stream.subscribe(None, timeout=20) as published:
            stream.push(rows).result(20)
            assert len(next(published)) == MOST + 1
            clock.set(10)
            stream.push([cl.insert(k=-1)]).result(20)
            gone = []
            while sum(gone) < MOST + 1:
                gone += [len(one) for one in [next(published)] if one.records[0].op == "DELETE"]
            assert gone == [MOST, 1]
            assert stream.snapshot()[0] == [{"k": -1}]
