"""A table as the procedures see it while they run for one key: its rows of that key, and no others."""

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from tussock.compute.procedures.partitions.partition import KeyGroup, Partition
from tussock.compute.procedures.rows import TupleShape
from tussock.statestore.errors import InvalidOption

__all__ = ["GroupTable"]


class GroupTable:
    """A table of a transaction or delta, restricted to the keys that begin with the group's values."""

    def __init__(self, table: Any, partition: Partition, group: KeyGroup) -> None:
        self._table = table
        self._partition = partition
        self._values = group.values
        self.name: str = table.name
        self.schema: pa.Schema = table.schema
        self.primary_key: tuple[str, ...] = table.primary_key

    def get(self, key: Any) -> dict[str, Any] | None:
        """As the table's; `InvalidOption` for another key's row."""
        self._check(key if isinstance(key, tuple | list) else (key,))
        row: dict[str, Any] | None = self._table.get(key)
        return row

    def multi_get(self, keys: Any, *arguments: Any, **named: Any) -> Any:
        """As the table's."""
        self._check_keys(keys)
        return self._table.multi_get(keys, *arguments, **named)

    def read(
        self,
        columns: Sequence[str] | None = None,
        filter: Any = None,  # noqa: A002 - the public API's name
        *,
        prefix: Sequence[Any] | None = None,
        between: Any = None,
        limit: int | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """As the table's, but of the group's rows only: `prefix` and `between`, if given, begin with its values."""
        if between is not None:
            for end in between:
                self._check(end)
            within = {"between": between}
        else:
            within = {"prefix": self._values if prefix is None else prefix}
            self._check(within["prefix"])
        rows: Iterator[pa.RecordBatch] = self._table.read(columns, filter, limit=limit, **within)
        return rows

    def upsert(self, rows: Any) -> None:
        """As the table's."""
        self._check_rows(rows)
        self._table.upsert(rows)

    def ingest_batch(self, rows: Any) -> None:
        """As the table's."""
        self._check_rows(rows)
        self._table.ingest_batch(rows)

    def delete(self, keys: Any) -> None:
        """As the table's."""
        self._check_keys(keys)
        self._table.delete(keys)

    def _check(self, key: Sequence[Any]) -> None:
        found = tuple(key)[: len(self._values)]
        if found != self._values:
            self._refuse(found)

    def _check_keys(self, keys: Any) -> None:
        if not isinstance(keys, list):
            self._check_columns(pa.table(keys))
            return
        for key in keys:
            if isinstance(key, dict):
                self._check_dict(key)
            else:
                self._check(key if isinstance(key, tuple | list) else (key,))

    def _check_rows(self, rows: Any) -> None:
        if isinstance(rows, list) and all(isinstance(row, dict) for row in rows):
            for row in rows:
                self._check_dict(row)
            return
        shape = TupleShape(self._partition.schema, f"table {self.name!r}")
        given = rows if isinstance(rows, pa.Table | pa.RecordBatch) else pa.table(rows)
        self._check_columns(shape.table(given.select(list(self._partition.names))))

    def _check_dict(self, row: dict[str, Any]) -> None:
        self._check([row.get(name) for name in self._partition.names])

    def _check_columns(self, keys: pa.Table) -> None:
        at = self._partition.others(keys, self._values)
        if at is not None:
            self._refuse(tuple(keys.column(name)[at].as_py() for name in self._partition.names))

    def _refuse(self, found: tuple[Any, ...]) -> None:
        raise InvalidOption(
            f"table {self.name!r}: a procedure that runs for the key {self._values} asks for {found!r:.200}: in an "
            f"application that is partitioned by {list(self._partition.names)} it reads and writes rows of that key "
            "only, since those of others may be another task's"
        )
