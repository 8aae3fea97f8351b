"""Divides a batch into groups of tuples with the same partition key, each of which runs through the graph alone."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tussock.statestore.keys.encoding import KeyEncoder
from tussock.statestore.rows.key_arrays import key_order

__all__ = ["KeyGroup", "Partition"]


class KeyGroup(NamedTuple):
    """The tuples of one key."""

    values: tuple[Any, ...]
    """Of the partition columns."""
    key: bytes
    """The same, as the store orders keys."""
    rows: pa.Table
    """In the order of the batch."""


class Partition:
    """The columns by which an application is partitioned."""

    def __init__(self, schema: pa.Schema) -> None:
        """`schema` has the partition columns alone, in their order."""
        self.schema = schema
        self.names: tuple[str, ...] = tuple(schema.names)
        self._encoder = KeyEncoder(schema, self.names)

    def groups(self, rows: pa.Table) -> list[KeyGroup]:
        """The groups of a batch, by ascending key; `SchemaMismatch` for a null in a partition column."""
        if not rows.num_rows:
            return []
        columns = [rows.column(name).combine_chunks() for name in self.names]
        keys = self._encoder.encode(pa.record_batch(columns, names=list(self.names)))
        order = key_order(keys)
        ordered = keys.take(pa.array(order))
        codes = ordered.dictionary_encode().indices.to_numpy()
        starts = np.flatnonzero(np.diff(codes, prepend=-1))
        ends = [*starts[1:].tolist(), len(order)]
        batch = rows.take(pa.array(order)).combine_chunks()
        firsts = batch.select(list(self.names)).take(pa.array(starts)).to_pylist()
        return [
            KeyGroup(tuple(first.values()), ordered[start].as_py(), batch.slice(start, end - start))
            for first, start, end in zip(firsts, starts.tolist(), ends, strict=True)
        ]

    def others(self, rows: pa.Table, values: Sequence[Any]) -> int | None:
        """The position of the first row of another key; `None` if all are of this one."""
        for name, value, kind in zip(self.names, values, self.schema.types, strict=True):
            expected = pa.scalar(value, kind)
            same = pc.fill_null(pc.equal(rows.column(name), expected), False)
            at: int = pc.index(same, False).as_py()
            if at >= 0:
                return at
        return None
