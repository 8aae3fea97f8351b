"""Keyed read-modify-write, vectorised: combines rows of a micro-batch with each other and with the stored rows.

Each value column has a function. Rows of one key are combined first, in their order; then the result is combined with
the stored row, if there is one. The functions are those for which the order of combining does not matter:

- `sum`, `min`, `max`: nulls do not count; null if there was never a value;
- `last`: the value of the newest row, null or not, as in a plain upsert;
- `first`: the value of the first row that the key ever had.

A column of the table that the batch lacks keeps its stored value.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from tussock.compute.spark.batches.task_times import Meter
from tussock.statestore.errors import InvalidBatch, InvalidOption
from tussock.statestore.tables.typed_input import conform
from tussock.statestore.tables.typed_table import TypedTable

__all__ = [
    "FUNCTIONS",
    "LOOKUP_ROWS",
    "calculable",
    "check_merge",
    "combine_columns",
    "merge_with_stored",
    "merged_batches",
    "overflow",
]

FUNCTIONS = ("first", "last", "max", "min", "sum")

LOOKUP_ROWS = 1 << 18
"""Keys to look up and write at once: limits the stored rows that a task holds in memory."""


def check_merge(functions: Mapping[str, str], schema: pa.Schema, primary_key: Iterable[str], table: str) -> None:
    """Raise `InvalidOption` unless `functions` names value columns of the table, each with a function for its type."""
    keys = set(primary_key)
    for name, function in functions.items():
        if name not in schema.names or name in keys:
            raise InvalidOption(
                f"table {table!r}: merge names {name!r}; expected value columns, "
                f"of {[column for column in schema.names if column not in keys]}"
            )
        if function not in FUNCTIONS:
            raise InvalidOption(
                f"table {table!r}: merge of column {name!r} is {function!r}; expected one of {list(FUNCTIONS)}"
            )
        kind = schema.field(name).type
        numeric = pt.is_integer(kind) or pt.is_floating(kind) or pt.is_decimal(kind)
        # Arrow and Polars do not calculate with the last three.
        unordered = pt.is_nested(kind) or pt.is_null(kind) or pt.is_float16(kind) or pt.is_decimal256(kind)
        if (function == "sum" and (unordered or not numeric)) or (function in ("min", "max") and unordered):
            raise InvalidOption(f"table {table!r}: column {name!r} of type {kind} cannot be merged by {function!r}")


def merged_batches(
    batches: Iterable[pa.RecordBatch],
    table: TypedTable,
    functions: Mapping[str, str],
    find: Callable[[pa.Table], pa.StructArray] | None,
    meter: Meter,
) -> Iterator[pa.RecordBatch]:
    """The rows to write for a task's `batches`: each key once, combined with the row that `find` returns for it.

    `find` is asked for many keys at once; `None`: nothing is stored. Holds the task's rows combined by key in memory: a
    task sees all rows of its keys before it writes any.
    """
    parts = [batch for batch in batches if batch.num_rows]
    if not parts:
        return
    # Loads Polars, which is a fifth of the start of a worker, and most workers merge nothing.
    from tussock.compute.spark.writes.combined_rows import combine_rows

    held = pa.Table.from_batches([_conform(part, table) for part in parts])
    rows = combine_rows(held, table.primary_key, functions)
    for start in range(0, rows.num_rows, LOOKUP_ROWS):
        chunk = rows.slice(start, LOOKUP_ROWS).combine_chunks()
        if find is not None:
            with meter.reading():
                found = find(chunk.select(list(table.primary_key)))
            chunk = merge_with_stored(chunk, found, table, functions)
        yield from chunk.to_batches()


def _conform(rows: pa.RecordBatch, table: TypedTable) -> pa.RecordBatch:
    """The rows in the table's types, before they are combined: equal keys in the table must be equal here.

    A value that the table cannot hold is refused as in any other write, even if combining would hide it.
    """
    fields = [table.schema.field(name).with_nullable(True) for name in rows.schema.names]
    return conform(rows, pa.schema(fields), table.primary_key, table.name)


def calculable(values: Any) -> Any:
    """The array in a type that Arrow calculates with: it can neither take from views nor compare them."""
    if pt.is_string_view(values.type):
        return values.cast(pa.large_string())
    return values.cast(pa.large_binary()) if pt.is_binary_view(values.type) else values


def overflow(field: pa.Field, function: str) -> InvalidBatch:
    """The error of a result that its column cannot hold."""
    return InvalidBatch(
        f"column {field.name!r}: a {function} does not fit {field.type}; nothing was stored, use a wider type"
    )


def merge_with_stored(
    rows: pa.Table, found: pa.StructArray, table: TypedTable, functions: Mapping[str, str]
) -> pa.Table:
    """The rows to write: `rows` (each key once, in the table's types) combined with the stored rows beside them.

    `found` is aligned with `rows`, null if nothing is stored.
    """
    existed = found.is_valid()
    stored = dict(zip(table.schema.names, found.flatten(), strict=True))
    columns = []
    for field in table.schema:
        old = stored[field.name]
        if field.name not in rows.column_names:
            columns.append(old)
            continue
        new = rows.column(field.name).combine_chunks()
        function = "last" if field.name in table.primary_key else functions.get(field.name, "last")
        columns.append(combine_columns(function, old, new, existed, field))
    return pa.table(columns, names=table.schema.names)


def combine_columns(function: str, old: pa.Array, new: pa.Array, existed: pa.BooleanArray, field: pa.Field) -> pa.Array:
    """One column of stored and new values combined by its function; `existed`: whether there is a stored row."""
    if function == "last":
        return new
    if pt.is_string_view(field.type) or pt.is_binary_view(field.type):
        old, new = calculable(old), calculable(new)
        return combine_columns(function, old, new, existed, field.with_type(new.type)).cast(field.type)
    if function == "first":
        return pc.if_else(existed, old, new)
    if function in ("min", "max") and (pt.is_temporal(field.type) or pt.is_boolean(field.type)):
        # Arrow's elementwise functions support neither times nor booleans.
        wins = pc.less(new, old) if function == "min" else pc.greater(new, old)
        return pc.if_else(pc.coalesce(wins, old.is_null()), new, old)
    if function == "min":
        return pc.min_element_wise(old, new, skip_nulls=True)
    if function == "max":
        return pc.max_element_wise(old, new, skip_nulls=True)
    zero = pa.scalar(0, pa.int8()).cast(field.type)
    try:
        total = pc.add_checked(pc.fill_null(old, zero), pc.fill_null(new, zero)).cast(field.type)
    except pa.ArrowInvalid as error:
        raise overflow(field, function) from error
    return pc.if_else(pc.or_(old.is_valid(), new.is_valid()), total, pa.scalar(None, field.type))
