"""Brings what users hand to a typed table into exactly its columns and types, or says which column does not fit.

Between types of one kind (a narrower integer, a large string, a timestamp of another unit) values are converted if
none changes; between kinds never: a string that looks like a number is a mistake of the caller. One exception: a
narrower float takes the nearest value that it has, but never infinity for a finite one.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tussock.statestore.errors import SchemaMismatch

__all__ = ["TypedRows", "conform", "key_rows", "same_kind"]

TypedRows: TypeAlias = pa.Table | pa.RecordBatch | Sequence[Mapping[str, Any]]

_KINDS: tuple[tuple[str, Callable[[pa.DataType], bool]], ...] = (
    ("integer", pa.types.is_integer),
    ("float", pa.types.is_floating),
    ("decimal", pa.types.is_decimal),
    ("date", pa.types.is_date),
    ("time", pa.types.is_time),
    ("timestamp", pa.types.is_timestamp),
    ("duration", pa.types.is_duration),
    ("string", lambda t: pa.types.is_string(t) or pa.types.is_large_string(t) or pa.types.is_string_view(t)),
    (
        "binary",
        lambda t: (
            pa.types.is_binary(t)
            or pa.types.is_large_binary(t)
            or pa.types.is_binary_view(t)
            or pa.types.is_fixed_size_binary(t)
        ),
    ),
    ("list", lambda t: pa.types.is_list(t) or pa.types.is_large_list(t) or pa.types.is_fixed_size_list(t)),
    ("struct", pa.types.is_struct),
    ("map", pa.types.is_map),
)


def _kind(kind: pa.DataType) -> str:
    if pa.types.is_dictionary(kind):
        return _kind(kind.value_type)
    return next((name for name, test in _KINDS if test(kind)), str(kind))


def same_kind(found: pa.DataType, expected: pa.DataType) -> bool:
    """Whether both are integers, or floats, or strings, and so on: of these, values are converted if they fit."""
    return _kind(found) == _kind(expected)


def _convertible(found: pa.DataType, expected: pa.DataType) -> bool:
    if pa.types.is_timestamp(found) and pa.types.is_timestamp(expected) and (found.tz is None) != (expected.tz is None):
        return False
    return pa.types.is_null(found) or same_kind(found, expected)


def conform(rows: TypedRows, schema: pa.Schema, required: Collection[str], table: str) -> pa.RecordBatch:
    """`rows` as one batch of exactly `schema`; a nullable column that is missing becomes null.

    `required` columns must be there without nulls, as must those that the schema says are not nullable. Raises
    `SchemaMismatch` naming table, column, expected and found.
    """
    if not isinstance(rows, pa.Table | pa.RecordBatch):
        rows = _from_dicts(rows, schema, table)
    names = rows.schema.names
    unknown = [name for name in names if name not in schema.names]
    if unknown:
        raise SchemaMismatch(f"table {table!r}: unknown columns {unknown}, expected {schema.names}; nothing was stored")
    if len(set(names)) != len(names):
        raise SchemaMismatch(f"table {table!r}: a column stands twice in {names}; nothing was stored")
    return pa.record_batch([_column(rows, field, required, table) for field in schema], schema=_nullable(schema))


def _nullable(schema: pa.Schema) -> pa.Schema:
    return pa.schema([pa.field(field.name, field.type) for field in schema])


def _column(rows: pa.Table | pa.RecordBatch, field: pa.Field, required: Collection[str], table: str) -> pa.Array:
    strict = not field.nullable or field.name in required
    if field.name not in rows.schema.names:
        if strict:
            raise SchemaMismatch(
                f"table {table!r}: column {field.name!r} ({field.type}) is missing, found {rows.schema.names}; "
                "nothing was stored"
            )
        return pa.nulls(rows.num_rows, field.type)
    column = rows.column(field.name)
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if array.type != field.type:
        array = _cast(array, field, table)
    if strict and array.null_count:
        at = int(np.flatnonzero(array.is_null().to_numpy(zero_copy_only=False))[0])
        raise SchemaMismatch(
            f"table {table!r}: column {field.name!r} is null at position {at}, expected {field.type} without nulls; "
            "nothing was stored"
        )
    return array


def _cast(array: pa.Array, field: pa.Field, table: str) -> pa.Array:
    mismatch = f"table {table!r}: column {field.name!r}: expected {field.type}, found {array.type}"
    if not _convertible(array.type, field.type):
        raise SchemaMismatch(f"{mismatch}; nothing was stored")
    try:
        cast = array.cast(field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise SchemaMismatch(f"{mismatch} with values that do not fit: {error}; nothing was stored") from error
    if pa.types.is_floating(field.type) and pa.types.is_floating(array.type):
        beyond = pc.index(pc.and_(pc.is_inf(cast), pc.is_finite(array)), True).as_py()
        if beyond >= 0:
            raise SchemaMismatch(
                f"{mismatch} with a value that does not fit: {array[beyond].as_py()} at position {beyond}; "
                "nothing was stored"
            )
    return cast


def _from_dicts(rows: Sequence[Mapping[str, Any]], schema: pa.Schema, table: str) -> pa.Table:
    """Rows as dicts, column by column, so that an error can name its column."""
    if isinstance(rows, Mapping | str | bytes) or not isinstance(rows, Sequence):
        raise SchemaMismatch(
            f"table {table!r}: {type(rows).__name__} is not rows; expected Arrow data or a list of dicts"
        )
    for at, row in enumerate(rows):
        if not isinstance(row, Mapping):
            raise SchemaMismatch(
                f"table {table!r}: position {at} is a {type(row).__name__}, expected a dict of columns"
            )
        unknown = [name for name in row if name not in schema.names]
        if unknown:
            raise SchemaMismatch(
                f"table {table!r}: unknown columns {unknown} at position {at}, expected {schema.names}; "
                "nothing was stored"
            )
    columns = {}
    for field in schema:
        if rows and not any(field.name in row for row in rows):
            continue
        values = [row.get(field.name) for row in rows]
        is_foreign = _is_foreign(field.type)
        foreign = next((at for at, value in enumerate(values) if is_foreign(value)), None)
        try:
            if foreign is not None:
                raise TypeError(f"a {type(values[foreign]).__name__}")
            columns[field.name] = _from_values(values, field.type)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            at = _first_misfit(values, field.type) if foreign is None else foreign
            raise SchemaMismatch(
                f"table {table!r}: column {field.name!r}: expected {field.type}, found {values[at]!r:.100} at position "
                f"{at}, which does not fit: {error}; nothing was stored"
            ) from error
    return pa.table(columns)


def _from_values(values: list[Any], kind: pa.DataType) -> pa.Array:
    # A float is narrowed by the cast that watches for infinity.
    return pa.array(values, pa.float64() if pa.types.is_floating(kind) else kind)


def _first_misfit(values: list[Any], kind: pa.DataType) -> int:
    """The first of the values of which one is known not to fit."""
    for at, value in enumerate(values):
        try:
            _from_values([value], kind)
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            return at
    return 0


def _is_foreign(kind: pa.DataType) -> Callable[[Any], bool]:
    """A test for Python values of another kind that Arrow would take for this type, and so change their meaning."""
    name = _kind(kind)
    if name == "integer":
        return lambda value: isinstance(value, float | Decimal)
    if name == "float":
        return lambda value: isinstance(value, bool)
    if name == "string":
        return lambda value: isinstance(value, bytes | bytearray | memoryview)
    if name == "binary":
        return lambda value: isinstance(value, str)
    if name == "date":
        return lambda value: isinstance(value, datetime | int | float)
    if name == "timestamp":
        naive = kind.tz is None
        return lambda value: (
            isinstance(value, int | float) or (isinstance(value, datetime) and (value.tzinfo is None) != naive)
        )
    if name in ("time", "duration"):
        return lambda value: isinstance(value, int | float)
    return lambda _: False


def key_rows(keys: TypedRows | Sequence[Any], primary_key: Sequence[str], table: str) -> TypedRows:
    """Keys in any of the accepted shapes (Arrow data, dicts, tuples, bare values) as rows of the key columns."""
    if isinstance(keys, pa.Table | pa.RecordBatch):
        return keys.select([name for name in primary_key if name in keys.schema.names])
    rows = []
    for at, key in enumerate(keys):
        if isinstance(key, Mapping):
            rows.append({name: key.get(name) for name in primary_key})
            continue
        values = key if isinstance(key, tuple | list) else (key,)
        if len(values) != len(primary_key):
            raise SchemaMismatch(
                f"table {table!r}: the key at position {at} has {len(values)} values, expected {len(primary_key)} for "
                f"{list(primary_key)}; nothing was done"
            )
        rows.append(dict(zip(primary_key, values, strict=True)))
    return rows
