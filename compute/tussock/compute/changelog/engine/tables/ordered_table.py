"""A table whose columns are shown in the order of its stream: new ones are at the end of a table that was altered."""

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

__all__ = ["OrderedTable", "ordered"]


class OrderedTable:
    """As much of a `TypedTable` as flows use of those of streams."""

    def __init__(self, table: Any, names: Sequence[str]) -> None:
        """`names`: of the columns, in the order that is shown; others are not shown."""
        self._table = table
        self._names = list(names)
        self.upsert, self.delete = table.upsert, table.delete

    @property
    def primary_key(self) -> tuple[str, ...]:
        """Names of the key's columns."""
        return tuple(self._table.primary_key)

    @property
    def schema(self) -> pa.Schema:
        """As the table has it."""
        return self._table.schema

    def get(self, key: Any) -> dict[str, Any] | None:
        """The row of a key."""
        found = self._table.get(key)
        return None if found is None else {name: found[name] for name in self._names}

    def multi_get(self, keys: Any, *, columns: Sequence[str] | None = None) -> pa.StructArray:
        """The rows of keys, null where there is none."""
        return self._table.multi_get(keys, columns=self._names if columns is None else columns)

    def read(self, columns: Sequence[str] | None = None, **more: Any) -> Iterator[pa.RecordBatch]:
        """All rows."""
        found: Iterator[pa.RecordBatch] = self._table.read(self._names if columns is None else columns, **more)
        return found


def ordered(table: Any, names: Sequence[str]) -> Any:
    """The table itself, if it has just these columns, in this order."""
    return table if table.schema.names == list(names) else OrderedTable(table, names)
