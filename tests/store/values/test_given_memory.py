"""What was written stays what it was, whatever the caller does with the memory that it gave."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from support.store.stores import pairs
from tussock.statestore import StateStore

SCHEMA = pa.schema([("k", pa.string()), ("n", pa.int64()), ("l", pa.list_(pa.int64()))])


class Given:
    """Two rows whose bytes the caller owns."""

    def __init__(self) -> None:
        self.letters = bytearray(b"aabb")
        self.numbers = np.array([1, 2], np.int64)
        self.items = np.array([10, 20, 30], np.int64)
        ends = np.array([0, 2, 4], np.int32)
        self.keys = pa.Array.from_buffers(pa.string(), 2, [None, pa.py_buffer(ends), pa.py_buffer(self.letters)])
        lists = pa.ListArray.from_arrays(pa.array([0, 1, 3], pa.int32()), pa.array(self.items))
        self.rows = pa.record_batch([self.keys, pa.array(self.numbers), lists], schema=SCHEMA)
        self.raw = pa.record_batch([self.keys.view(pa.binary()), self.keys.view(pa.binary())], ["key", "value"])

    def spoil(self) -> None:
        """Use the memory for something else."""
        self.letters[:] = b"yyzz"
        self.numbers[:] = 7
        self.items[:] = 7


WRITES: dict[str, Callable[[Any, Any], object]] = {
    "ingest_batch": lambda table, rows: table.ingest_batch(rows, 1),
    "upsert": lambda table, rows: table.upsert(rows, 1),
    "several upserts": lambda table, rows: [table.upsert(rows, 1) for _ in range(3)],
}


@pytest.mark.parametrize("write", WRITES)
def test_a_caller_may_write_to_what_it_gave(store: StateStore, write: str) -> None:
    """Once the bytes of the last use of a buffer were what the store answered."""
    raw, typed = store.create_table("raw"), store.create_table("typed", SCHEMA, ["k"], vnodes=1)
    given = Given()
    WRITES[write](raw, given.raw)
    WRITES[write](typed, given.rows)
    given.spoil()
    for step in (lambda: None, lambda: store.commit_epoch(1)):
        step()
        assert pairs(raw.scan()) == [(b"aa", b"aa"), (b"bb", b"bb")]
        rows = [row for batch in typed.read() for row in batch.to_pylist()]
        assert rows == [{"k": "aa", "n": 1, "l": [10]}, {"k": "bb", "n": 2, "l": [20, 30]}]


def test_so_it_may_within_a_transaction_and_for_keys_to_delete(store: StateStore) -> None:
    """Both wait for the end of the block."""
    typed = store.create_table("typed", SCHEMA, ["k"])
    with store.transaction() as tx:
        given = Given()
        tx.table("typed").upsert(given.rows)
        given.spoil()
    with store.transaction() as tx:
        given = Given()
        tx.table("typed").delete(given.rows.select(["k"]).slice(1))
        given.spoil()
    assert [row["k"] for batch in typed.read() for row in batch.to_pylist()] == ["aa"]
