"""`union`: the rows of several streams with the same columns and key; of each key the row of the first one that has it.

What each stream has is kept, so a row shows through when the one above it goes. The result depends on what the streams
have, and not on when it came.
"""

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from tussock.compute.changelog.changes.changes import Changes
from tussock.compute.changelog.changes.record import ChangeRecord, Op
from tussock.compute.changelog.changes.stream_shape import StreamShape
from tussock.compute.changelog.computations import StateTable
from tussock.compute.changelog.operators.operator_base import StreamOperator, check_source, derive, of_rows, transitions
from tussock.compute.changelog.stream import Stream
from tussock.statestore.errors import InvalidOption

__all__ = ["union"]

SOURCES_MAX = 100


def union(name: str, *sources: Stream) -> Stream:
    """A stream of all keys of its sources, each with the row of the source listed first that has it.

    The sources have the same columns, types and key; a column is nullable if it is so in one of them. Raises
    `InvalidOption`.
    """
    what = f"union {name!r}"
    for one in sources:
        check_source(what, one)
    if not 2 <= len(sources) <= SOURCES_MAX or len(set(map(id, sources))) < len(sources):
        raise InvalidOption(
            f"{what} of {[one.name for one in sources]!r:.100}; expected 2 to {SOURCES_MAX} streams, each once"
        )
    first = sources[0]
    for one in sources[1:]:
        if (_columns(one), one.key) != (_columns(first), first.key):
            raise InvalidOption(
                f"{what}: stream {one.name!r} has the columns {_columns(one)} and the key {list(one.key)}; "
                f"{first.name!r} has {_columns(first)} and {list(first.key)}: make them the same by project()"
            )
    fields = [
        field.with_nullable(any(one.schema.field(field.name).nullable for one in sources)) for field in first.schema
    ]
    names = [one.name for one in sources]
    return derive("union", name, sources, pa.schema(fields), first.key, lambda shape: _Union(shape, names))


def _columns(one: Stream) -> list[tuple[str, str]]:
    return [(field.name, str(field.type)) for field in one.schema]


class _Union(StreamOperator):
    def __init__(self, shape: StreamShape, sources: list[str]) -> None:
        super().__init__(shape)
        self._ranks = {source: rank for rank, source in enumerate(sources)}

    def tables(self) -> Mapping[str, StateTable]:
        """What was taken of each source."""
        return {f"of_{source}": StateTable(self.shape.schema, self.shape.key) for source in self._ranks}

    def open(self, tables: Mapping[str, Any]) -> None:
        """As the base class has it."""
        self._tables = [tables[f"of_{source}"] for source in self._ranks]

    def by_record(self, source: str, changes: Changes) -> list[ChangeRecord]:
        """As the base class has it."""
        rank, found = self._ranks[source], []
        table, above, below = self._tables[rank], self._tables[:rank], self._tables[rank + 1 :]
        for record in changes.records:
            key, values = self.shape.key_of(record), record.values_by_column
            is_gone = record.op is Op.DELETE
            if is_gone:
                table.delete([key])
            else:
                table.upsert([dict(values)])
            if any(other.get(key) is not None for other in above):
                continue
            shown = values if not is_gone else next((row for one in below if (row := one.get(key)) is not None), None)
            op = Op.SAFEDELETE if shown is None else Op.UPSERT
            found.append(ChangeRecord(op, values if shown is None else shown, None, changes.time))
        return found

    def by_columns(self, source: str, changes: Changes) -> Changes:
        """As the base class has it."""
        rank = self._ranks[source]
        rows, before, after = transitions(changes)
        comes = rows.take(pa.array(after[after >= 0]))
        goes = rows.take(pa.array(before[(before >= 0) & (after < 0)])).select(list(self.shape.key))
        table = self._tables[rank]
        if goes.num_rows:
            table.delete(goes)
        if comes.num_rows:
            table.upsert(comes)
        for other in self._tables[:rank]:
            comes, goes = _unknown(other, comes, self.shape), _unknown(other, goes, self.shape)
        for other in self._tables[rank + 1 :]:
            if not goes.num_rows:
                break
            found = other.multi_get(goes)
            is_there = found.is_valid()
            shown = pa.record_batch(found.filter(is_there).flatten(), schema=comes.schema)
            comes = pa.concat_batches([comes, shown])
            goes = goes.filter(pa.array(~is_there.to_numpy(zero_copy_only=False)))
        return of_rows(self.shape, comes, goes, changes.time)


def _unknown(table: Any, rows: pa.RecordBatch, shape: StreamShape) -> pa.RecordBatch:
    """Those of the rows whose keys a table has not."""
    if not rows.num_rows:
        return rows
    found = table.multi_get(rows.select(list(shape.key)), columns=list(shape.key))
    return rows.filter(pa.array(~found.is_valid().to_numpy(zero_copy_only=False)))
