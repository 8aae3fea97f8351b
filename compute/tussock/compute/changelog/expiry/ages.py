"""How old the rows of a stream are: a table in the order of age, and one that finds a row's place in it by key.

The age of a row counts from the transaction that inserted it, or changed it last. Where the clock has gone back, it
counts from the newest time that a row was given: rows are as old as their order says. Both tables are written in the
transaction itself, so they are of the same epoch as the rows.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from tussock.compute.changelog.changes.changes import Changes
from tussock.compute.changelog.changes.record import ChangeRecord, Op
from tussock.compute.changelog.changes.stream_shape import CODES, StreamShape
from tussock.compute.changelog.expiry.keep import Keep

__all__ = ["Ages"]

FEW = 64
EXPIRED_MAX = 100_000
"""Rows of one transaction; those beyond go in the next one."""
_STAMP, _NUMBER = "_stamp", "_number"
_DELETE = CODES[Op.DELETE]


class Ages:
    """Of one stream and run."""

    def __init__(self, shape: StreamShape, keep: Keep) -> None:
        self._shape = shape
        self.keep = keep
        keys = [shape.schema.field(name) for name in shape.key]
        own = [pa.field(name, pa.int64(), nullable=False) for name in (_STAMP, _NUMBER)]
        self._by_age = pa.schema([*own, *keys])
        self._by_key = pa.schema([*keys, *own])
        self.count = self.number = self.newest = 0
        """Rows that there are, and the newest number and time that were given; kept in the progress."""

    def tables(self) -> dict[str, tuple[pa.Schema, Sequence[str]]]:
        """By name, schema and key."""
        return {"by_age": (self._by_age, (_STAMP, _NUMBER)), "by_key": (self._by_key, self._shape.key)}

    def open(self, tables: Mapping[str, Any], count: int, number: int, newest: int) -> None:
        """A run begins."""
        self._ages, self._keys = tables["by_age"], tables["by_key"]
        self.count, self.number, self.newest = count, number, newest

    def mark(self) -> tuple[int, int, int]:
        """For `undo`, which goes with that of the tables."""
        return self.count, self.number, self.newest

    def undo(self, mark: tuple[int, int, int]) -> None:
        """Be as at the mark."""
        self.count, self.number, self.newest = mark

    def note(self, published: Changes) -> None:
        """A transaction has inserted, changed and deleted rows."""
        self.newest = max(self.newest, published.time)
        if published.is_columns or len(published) > FEW:
            self._note_columns(published)
        else:
            for one in published.records:
                self._note(one)

    def has_due(self, now_ms: int) -> bool:
        """Whether there is a row that has to go."""
        if self.keep.rows:
            return self.keep.surplus(self.count) > 0
        return any(batch.num_rows for batch in self._old(now_ms, 1))

    def due(self, now_ms: int) -> Changes:
        """What lets the rows go that have to, oldest first."""
        if self.keep.rows:
            surplus = min(self.keep.surplus(self.count), EXPIRED_MAX)
            batches = list(self._ages.read(limit=surplus)) if surplus else []
        else:
            batches = list(self._old(now_ms, EXPIRED_MAX))
        keys = [row for batch in batches for row in batch.select(list(self._shape.key)).to_pylist()]
        nulls = dict.fromkeys(self._shape.names)
        return Changes(
            self._shape, [ChangeRecord(Op.SAFEDELETE, {**nulls, **key}, None, now_ms) for key in keys], None, now_ms
        )

    def _old(self, now_ms: int, limit: int) -> Any:
        return self._ages.read(between=((), (self.keep.cutoff(now_ms),)), limit=limit)

    def _note(self, one: ChangeRecord) -> None:
        key = self._shape.key_of(one)
        before = self._keys.get(key)
        if before is not None:
            self._ages.delete([(before[_STAMP], before[_NUMBER])])
        if one.op is Op.DELETE:
            self._keys.delete([key])
            self.count -= 1
            return
        self.count += before is None
        self.number += 1
        row = {name: one[name] for name in self._shape.key}
        own = {_STAMP: self.newest, _NUMBER: self.number}
        self._keys.upsert([{**row, **own}])
        self._ages.upsert([{**own, **row}])

    def _note_columns(self, published: Changes) -> None:
        rows, codes, olds = published.columns
        at = np.flatnonzero(~olds)
        keys, removes = rows.select(list(self._shape.key)).take(pa.array(at)), codes[at] == _DELETE
        last = _last_of_each(keys)
        keys, removes = keys.take(pa.array(last)), removes[last]
        before = self._keys.multi_get(keys)
        was = before.is_valid().to_numpy(zero_copy_only=False)
        if was.any():
            found = pa.record_batch(before.flatten(), names=[field.name for field in before.type])
            self._ages.delete(found.select([_STAMP, _NUMBER]).filter(pa.array(was)))
        gone, stays = keys.filter(pa.array(removes & was)), keys.filter(pa.array(~removes))
        if gone.num_rows:
            self._keys.delete(gone)
        numbers = pa.array(np.arange(stays.num_rows) + self.number + 1)
        stamps = pa.repeat(pa.scalar(self.newest, pa.int64()), stays.num_rows)
        self.number += stays.num_rows
        self.count += int((~was & ~removes).sum()) - int((was & removes).sum())
        if stays.num_rows:
            self._keys.upsert(pa.record_batch([*stays.columns, stamps, numbers], schema=self._by_key))
            self._ages.upsert(pa.record_batch([stamps, numbers, *stays.columns], schema=self._by_age))


def _last_of_each(keys: pa.RecordBatch) -> Any:
    """The places of the last row of each key, ascending."""
    places = pa.array(np.arange(keys.num_rows))
    table = pa.Table.from_batches([keys]).append_column("_place", places)
    last = table.group_by(keys.schema.names, use_threads=False).aggregate([("_place", "max")])
    return np.sort(last.column("_place_max").to_numpy())
