"""Keyed read-modify-write, vectorised: rows of a micro-batch combined with each other and with the stored rows.

Each value column has a function. Rows of one key are combined first, in their order; then the result with the stored
row, if there is one. Functions are those for which that order of combining does not matter:

- `sum`, `min`, `max`: nulls count for nothing; null if there was never a value;
- `last`: the value of the newest row, null or not; what a plain upsert does;
- `first`: the value of the first row that the key ever had.

A column of the table that the batch lacks keeps its stored value.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from tussock.compute.spark.batches.spent import Meter
from tussock.statestore.errors import InvalidBatch, InvalidOption
from tussock.statestore.tables.typed_input import conform
from tussock.statestore.tables.typed_table import TypedTable

__all__ = ["FUNCTIONS", "check_merge", "combine_rows", "combined", "merge_with_stored", "merged_batches"]

FUNCTIONS = ("first", "last", "max", "min", "sum")

_LOOKUP_ROWS = 1 << 18
"""Keys that are looked up and written at once: bounds what a merge holds of the stored rows."""

_AT = "\0at"
_FIRST, _LAST = "\0first", "\0last"


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
        # Arrow and Polars do not reckon with the last three.
        unordered = pt.is_nested(kind) or pt.is_null(kind) or pt.is_float16(kind) or pt.is_decimal256(kind)
        if (function == "sum" and (unordered or not numeric)) or (function in ("min", "max") and unordered):
            raise InvalidOption(f"table {table!r}: column {name!r} of type {kind} cannot be merged by {function!r}")


def merged_batches(
    batches: Iterable[pa.RecordBatch], table: TypedTable, functions: Mapping[str, str], read_epoch: int, meter: Meter
) -> Iterator[pa.RecordBatch]:
    """The rows to write for a task's `batches`: each key once, combined with its row at `read_epoch` (0: none).

    Holds the task's rows combined by key in memory: a task sees all rows of its keys, so they have to be together.
    """
    parts = [batch for batch in batches if batch.num_rows]
    if not parts:
        return
    held = pa.Table.from_batches([_conformed(part, table) for part in parts])
    rows = combine_rows(held, table.primary_key, functions)
    for start in range(0, rows.num_rows, _LOOKUP_ROWS):
        chunk = rows.slice(start, _LOOKUP_ROWS).combine_chunks()
        if read_epoch:
            with meter.reading():
                found = table.multi_get(chunk.select(list(table.primary_key)), epoch=read_epoch)
            chunk = merge_with_stored(chunk, found, table, functions)
        yield from chunk.to_batches()


def _conformed(rows: pa.RecordBatch, table: TypedTable) -> pa.RecordBatch:
    """The rows in the table's types, before they are combined: what is one key there has to be one here.

    And a value that the table cannot hold is refused as in any other write, whatever the others would make of it.
    """
    fields = [table.schema.field(name).with_nullable(True) for name in rows.schema.names]
    return conform(rows, pa.schema(fields), table.primary_key, table.name)


def combine_rows(rows: pa.Table, primary_key: Iterable[str], functions: Mapping[str, str]) -> pa.Table:
    """Rows combined so that each key stands once, with the same columns and types; keys in order of first sight.

    Integers are summed with 128 bits; `InvalidBatch` if a sum does not fit its column.
    """
    keys = list(primary_key)
    computed = {name: functions[name] for name in rows.column_names if functions.get(name) in ("sum", "min", "max")}
    frame = pl.DataFrame(pl.from_arrow(rows.select([*keys, *computed]))).with_row_index(_AT)
    picked = [pl.col(_AT).first().alias(_FIRST), pl.col(_AT).last().alias(_LAST)]
    grouped = frame.group_by(keys, maintain_order=True).agg(
        *picked, *(_aggregate(name, function, frame.schema[name]) for name, function in computed.items())
    )
    if len(grouped) == rows.num_rows:
        return rows
    first, last = (pa.array(grouped[name].to_numpy()) for name in (_FIRST, _LAST))
    columns = []
    for field in rows.schema:
        if field.name in computed:
            columns.append(_back(grouped[field.name], field, computed[field.name]))
        else:
            at = first if functions.get(field.name) == "first" else last
            picked = _reckonable(rows.column(field.name)).take(at)
            # Not cast without need: of structs Arrow would look at the fields of those that are null.
            columns.append(picked if picked.type == field.type else picked.cast(field.type))
    return pa.table(columns, schema=rows.schema)


def _reckonable(values: Any) -> Any:
    """The array as Arrow reckons with it: it neither picks nor compares views."""
    if pt.is_string_view(values.type):
        return values.cast(pa.large_string())
    return values.cast(pa.large_binary()) if pt.is_binary_view(values.type) else values


def _aggregate(name: str, function: str, kind: pl.DataType) -> pl.Expr:
    column = pl.col(name)
    if function == "min":
        return column.min()
    if function == "max":
        return column.max()
    total = column.cast(pl.Int128).sum() if kind.is_integer() else column.sum()
    # Without a value Polars says 0, and the rule is null.
    return pl.when(column.count() > 0).then(total)


def _back(series: pl.Series, field: pa.Field, function: str) -> pa.Array:
    try:
        if series.dtype == pl.Int128:
            # Arrow has no integers of 128 bits.
            series = series.cast(pl.UInt64 if pt.is_uint64(field.type) else pl.Int64, strict=True)
        return series.to_arrow().cast(field.type)
    except (pl.exceptions.PolarsError, pa.ArrowInvalid) as error:
        raise _overflow(field, function) from error


def _overflow(field: pa.Field, function: str) -> InvalidBatch:
    return InvalidBatch(
        f"column {field.name!r}: a {function} does not fit {field.type}; nothing was stored, use a wider type"
    )


def merge_with_stored(
    rows: pa.Table, found: pa.StructArray, table: TypedTable, functions: Mapping[str, str]
) -> pa.Table:
    """The rows to write: `rows` (each key once, in the table's types) combined with the stored rows beside them.

    `found` is aligned with `rows`, null where nothing is stored.
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
        columns.append(combined(function, old, new, existed, field))
    return pa.table(columns, names=table.schema.names)


def combined(function: str, old: pa.Array, new: pa.Array, existed: pa.BooleanArray, field: pa.Field) -> pa.Array:
    """One column of stored and new values by its function; `existed`: where there is a stored row."""
    if function == "last":
        return new
    if pt.is_string_view(field.type) or pt.is_binary_view(field.type):
        old, new = _reckonable(old), _reckonable(new)
        return combined(function, old, new, existed, field.with_type(new.type)).cast(field.type)
    if function == "first":
        return pc.if_else(existed, old, new)
    if function in ("min", "max") and (pt.is_temporal(field.type) or pt.is_boolean(field.type)):
        # Arrow's elementwise functions know no times and no booleans.
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
        raise _overflow(field, function) from error
    return pc.if_else(pc.or_(old.is_valid(), new.is_valid()), total, pa.scalar(None, field.type))
