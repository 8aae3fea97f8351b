"""The rows of a side of a join that has at most one for each value of the join columns, found by these alone.

It does what `RowBags` does, in one table instead of three.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tussock.compute.changelog.computations import StateTable
from tussock.compute.changelog.operators.row_bags import Members

__all__ = ["KeyedRows"]

Places = npt.NDArray[np.int64]
Row = dict[str, Any]


class KeyedRows:
    """Of one stream whose key is among the join columns."""

    def __init__(self, name: str, bag: Sequence[pa.DataType], row: pa.Schema) -> None:
        """As `RowBags`."""
        self._name = f"{name}_rows"
        self._bag = [pa.field(f"bag_{at}", kind, nullable=False) for at, kind in enumerate(bag)]
        self._bag_names = [one.name for one in self._bag]
        self.row = pa.schema([pa.field(one.name, one.type) for one in row])
        self._row_names = [f"row_{one.name}" for one in row]

    def tables(self) -> dict[str, StateTable]:
        """As a computation names them."""
        values = [pa.field(f"row_{one.name}", one.type) for one in self.row]
        return {self._name: StateTable(pa.schema([*self._bag, *values]), self._bag_names)}

    def open(self, tables: Mapping[str, Any]) -> None:
        """On the tables of a run."""
        self._rows = tables[self._name]

    def count(self, bag: Sequence[Any]) -> int:
        """0 or 1."""
        return int(self._rows.get(tuple(bag)) is not None)

    def rows(self, bag: Sequence[Any]) -> list[Row]:
        """The row, or none."""
        found = self._rows.get(tuple(bag))
        return [] if found is None else [{name[4:]: found[name] for name in self._row_names}]

    def move(self, before: Sequence[Any] | None, after: Sequence[Any] | None, row: Mapping[str, Any]) -> None:
        """A row that was there has other columns, which may be other join columns."""
        if before is not None and before != after:
            self._rows.delete([tuple(before)])
        if after is not None:
            values = {name: row[name[4:]] for name in self._row_names}
            self._rows.upsert([{**dict(zip(self._bag_names, after, strict=True)), **values}])

    def counts(self, bags: Sequence[pa.Array]) -> Places:
        """0 or 1 of each."""
        return self._read(bags)[0]

    def read(self, bags: Sequence[pa.Array]) -> tuple[Places, pa.RecordBatch]:
        """The rows of those that have one."""
        counts, rows = self._read(bags)
        return counts, rows if counts.all() else rows.filter(pa.array(counts == 1))

    def _read(self, bags: Sequence[pa.Array]) -> tuple[Places, pa.RecordBatch]:
        if not len(bags[0]):
            return np.zeros(0, np.int64), pa.RecordBatch.from_pylist([], schema=self.row)
        found = self._rows.multi_get(pa.record_batch(list(bags), self._bag_names), columns=self._row_names)
        counts = found.is_valid().to_numpy(zero_copy_only=False).astype(np.int64)
        return counts, pa.record_batch(found.flatten(), schema=self.row)

    def change(self, bags: Sequence[pa.Array], gone: Members, come: Members, stay: Members) -> tuple[Places, Places]:
        """As `RowBags`."""
        before = self.counts(bags)
        after = before.copy()
        after[gone.bags], after[come.bags] = 0, 1
        if len(gone.bags):
            self._rows.delete(pa.record_batch(self._taken(bags, gone), self._bag_names))
        for members in (come, stay):
            if len(members.bags):
                values = [members.rows.column(one.name) for one in self.row]
                names = [*self._bag_names, *self._row_names]
                self._rows.upsert(pa.record_batch([*self._taken(bags, members), *values], names))
        return before, after

    def _taken(self, bags: Sequence[pa.Array], members: Members) -> list[pa.Array]:
        places = pa.array(members.bags)
        return [one.take(places) for one in bags]
