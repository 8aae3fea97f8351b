"""A table with a random history, and the change feed that follows from it."""

import random
from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from tussock.statestore.client import StateStore

__all__ = ["Change", "History", "changes_in"]

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string()), ("x", pa.float64())])
KEYS = 60

Change = tuple[int, int, str, Any]
"""Epoch, key, operation and the value of `v`."""


class History:
    """The commits to the typed table `t`, which is created if it is missing, and their changes."""

    def __init__(self, store: StateStore, seed: int) -> None:
        self.store = store
        there = "t" in store.tables()
        self.table = store.table("t") if there else store.create_table("t", schema=SCHEMA, primary_key=["id"])
        self.chance = random.Random(seed)
        self.rows: dict[int, str] = {}
        self.changes: list[Change] = []
        self.epochs: list[int] = []

    def commit(self) -> int:
        """Commit a random batch of upserts and deletes, also of absent keys; returns its epoch."""
        epoch = self.store.new_epoch()
        keys = self.chance.sample(range(KEYS), self.chance.randint(1, KEYS // 2))
        deleted = {key for key in keys if self.chance.random() < 0.4}
        written = {key: f"{key}@{len(self.epochs)}" for key in keys if key not in deleted}
        if written:
            self.table.upsert([{"id": key, "v": v, "x": key / 2} for key, v in written.items()], epoch)
        if deleted:
            self.table.delete(sorted(deleted), epoch)
        epoch = self.store.commit_epoch(epoch)
        self.epochs.append(epoch)
        for key in keys:
            old, new = self.rows.get(key), written.get(key)
            if old is not None and new is not None:
                self.changes += [(epoch, key, "update_preimage", old), (epoch, key, "update_postimage", new)]
            elif new is not None:
                self.changes.append((epoch, key, "insert", new))
            elif old is not None:
                self.changes.append((epoch, key, "delete", old))
        self.rows = {key: v for key, v in {**self.rows, **written}.items() if key not in deleted}
        return epoch

    def between(self, after: int, until: int) -> list[Change]:
        """The changes of (after, until], sorted."""
        return sorted(change for change in self.changes if after < change[0] <= until)


def changes_in(batches: Iterable[pa.RecordBatch], op: str = "op", epoch: str = "epoch") -> list[Change]:
    """The feed's changes, sorted, after a check that each image's columns belong together."""
    rows = [row for batch in batches for row in batch.to_pylist()]
    assert all(row["x"] == row["id"] / 2 for row in rows)
    return sorted((row[epoch], row["id"], row[op], row["v"]) for row in rows)
