"""Rows that other processes have uploaded, between those that a transaction writes: in the order of the calls."""

import random
from typing import Any

import pyarrow as pa
import pytest

from tussock.statestore import StateStore, connect

SCHEMA = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.string())])


def rows_of(table: Any) -> dict[int, str]:
    return {row["k"]: row["v"].rstrip("x") for batch in table.read() for row in batch.to_pylist()}


def batch_of(chance: random.Random, number: int) -> pa.RecordBatch:
    keys = sorted(chance.sample(range(200), chance.choice([1, 3, 60])))
    return pa.RecordBatch.from_pylist([{"k": key, "v": f"{number}".ljust(400, "x")} for key in keys], schema=SCHEMA)


def take_steps(store: StateStore, tx: Any, chance: random.Random, expected: dict[int, str]) -> None:
    table = tx.table("t")
    for number in range(12):
        batch = batch_of(chance, number)
        how = chance.choice(["upload", "arrow", "rows"])
        if how == "upload":
            tx.add_uploaded("t", store.table("t").upload([batch]))
        else:
            table.upsert(batch.to_pylist() if how == "rows" else batch)
        expected.update(dict.fromkeys(batch["k"].to_pylist(), f"{number}"))
        if chance.random() < 0.3:
            assert rows_of(table) == expected


@pytest.mark.parametrize("seed", range(12))
def test_the_last_call_wins_in_the_commit_as_within(seed: int) -> None:
    """Also where rows are spilled, and where the commit brings small SSTs along, beside those in the bucket."""
    chance = random.Random(seed)
    with connect("memory://", compaction=False, buffer_bytes=chance.choice([10_000, 64 << 20])) as store:
        store.create_table("t", SCHEMA, primary_key=["k"], vnodes=chance.choice([1, 16]))
        expected: dict[int, str] = {}
        with store.transaction() as tx:
            take_steps(store, tx, chance, expected)
        assert rows_of(store.table("t")) == expected
        with store.transaction() as tx:
            take_steps(store, tx, chance, expected)
            uploaded = tx.upload()
        store.commit_uploaded(uploaded)
        assert rows_of(store.table("t")) == expected
