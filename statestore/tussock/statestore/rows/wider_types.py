"""Rows that were stored before their table was altered, as rows of its present columns.

The rules are in `format/schema_changes.py`. A schema grows at its end only: what is stored are the first of the present
columns, of the present types or narrower ones. Only what differs is touched; rows of the present columns pass as they
are.
"""

from collections.abc import Sequence

import pyarrow as pa

from tussock.statestore.rows.conversion import as_dictionary
from tussock.statestore.rows.rows import Rows

__all__ = ["as_type", "with_types"]


def as_type(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """The column in that type, itself if it has it; `pa.ArrowInvalid` where a value does not fit (a narrower type)."""
    if column.type == kind:
        return column
    return as_dictionary(column, kind) if pa.types.is_dictionary(kind) else column.cast(kind)


def with_types(rows: Rows, types: Sequence[pa.DataType]) -> Rows:
    """The rows with value columns of exactly these types; columns that they lack at the end are null."""
    columns = rows.columns
    if [column.type for column in columns] == list(types):
        return rows
    kept = [as_type(column, kind) for column, kind in zip(columns, types, strict=False)]
    added = [pa.nulls(len(rows), kind) for kind in types[len(kept) :]]
    return Rows(rows.keys, rows.epochs, rows.deletes, (*kept, *added))
