"""Random transactions for a stream whose columns take their values from small pools, so that rows meet often."""

import random
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from tussock.compute import changelog as cl

__all__ = ["PooledTransactions"]


class PooledTransactions:
    """Of one seed. Each transaction is right for the rows that the ones before it have left."""

    def __init__(self, seed: int, schema: pa.Schema, key: Sequence[str], pools: Mapping[str, Sequence[Any]]) -> None:
        self._random = random.Random(seed)
        self._schema = pa.schema([field.with_nullable(True) for field in schema])
        self._key = tuple(key)
        self._pools = pools
        self.rows: dict[tuple[Any, ...], dict[str, Any]] = {}
        """By key, what the stream has."""

    def next(self, records: int) -> list[cl.ChangeRecord]:
        """That many records; a key may come several times."""
        return [self._record() for _ in range(records)]

    def size(self, most: int) -> int:
        """1 and up, small ones more often."""
        return max(1, int(most ** self._random.random()))

    def is_heads(self) -> bool:
        """A toss of a coin."""
        return self._random.random() < 0.5

    def frame(self) -> pa.Table:
        """What the stream has."""
        return pa.Table.from_pylist(list(self.rows.values()), schema=self._schema)

    def as_arrow(self, records: Sequence[cl.ChangeRecord]) -> pa.RecordBatch:
        """The same transaction as columns."""
        schema = self._schema.append(pa.field("_op", pa.string()))
        return pa.RecordBatch.from_pylist([{**one, "_op": str(one.op)} for one in records], schema=schema)

    def _record(self) -> cl.ChangeRecord:
        draw = self._random
        row = {name: draw.choice(pool) for name, pool in self._pools.items()}
        key = tuple(row[name] for name in self._key)
        is_there = key in self.rows
        words = ("update", "upsert", "update", "delete", "safedelete") if is_there else ("insert", "upsert")
        word = draw.choice(words)
        if word in ("delete", "safedelete"):
            del self.rows[key]
            return getattr(cl, word)({name: row[name] for name in self._key})
        if is_there and draw.random() < 0.4:
            # One column alone, as of most changes.
            changed = draw.choice([name for name in row if name not in self._key])
            row = {**self.rows[key], changed: row[changed]}
        self.rows[key] = row
        return getattr(cl, word)(row)
