"""Brings what users hand to a typed table into exactly its columns and types, or says which column does not fit.

Arrow data and Python values are held to one rule: a value is stored as it was given, or refused. `conversion.py` says
which types are of one kind, `python_values.py` which Python value is of which.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tussock.statestore.base.arguments import iterator_over
from tussock.statestore.errors import InvalidBatch, SchemaMismatch
from tussock.statestore.rows.conversion import Misfit, check_text, convert, kind_misfit
from tussock.statestore.rows.python_values import BAD_VALUE, array_of
from tussock.statestore.shown import show_value

__all__ = ["TypedRows", "conform", "delete_marks", "key_rows", "uploaded_batches"]

_EXPECTED = (
    "a pyarrow Table or RecordBatch (of batches, pa.Table.from_batches(...); of a reader, reader.read_all(); of "
    "Polars, frame.to_arrow(); of pandas, pa.Table.from_pandas(...)), or a list of dicts"
)

TypedRows: TypeAlias = pa.Table | pa.RecordBatch | Sequence[Mapping[str, Any]]


def conform(
    rows: TypedRows, schema: pa.Schema, required: Collection[str], table: str, *, to_store: bool = True
) -> pa.RecordBatch:
    """`rows` as one batch of exactly `schema`; a nullable column that is missing becomes null.

    `required` columns must be there without nulls, as must those that the schema says are not nullable. Text that is
    no UTF-8 is refused only if it is `to_store`: keys of old rows that have it can still be asked for and deleted.
    Raises `SchemaMismatch` naming table, column, expected and found, or `InvalidBatch` for a column above 2 GiB.
    """
    effect = "nothing was stored" if to_store else "nothing was done"
    if not isinstance(rows, pa.Table | pa.RecordBatch):
        rows = _from_dicts(rows, schema, table, effect)
        to_store = False  # Python's strings are text
    names = rows.schema.names
    unknown = [name for name in names if name not in schema.names]
    if unknown:
        raise SchemaMismatch(
            f"table {table!r}: unknown columns {show_value(unknown)}, expected {schema.names}; {effect}"
        )
    if len(set(names)) != len(names):
        raise SchemaMismatch(f"table {table!r}: a column stands twice in {names}; {effect}")
    arrays = [_column(rows, field, required, table, effect, to_store=to_store) for field in schema]
    return pa.record_batch(arrays, schema=_nullable(schema))


def _nullable(schema: pa.Schema) -> pa.Schema:
    return pa.schema([pa.field(field.name, field.type) for field in schema])


def _column(
    rows: pa.Table | pa.RecordBatch,
    field: pa.Field,
    required: Collection[str],
    table: str,
    effect: str,
    *,
    to_store: bool,
) -> pa.Array:
    strict = not field.nullable or field.name in required
    if field.name not in rows.schema.names:
        if strict:
            raise SchemaMismatch(
                f"table {table!r}: column {field.name!r} ({field.type}) is missing, found {rows.schema.names}; {effect}"
            )
        return pa.nulls(rows.num_rows, field.type)
    column = rows.column(field.name)
    array = _join_chunks(column, field, table, effect) if isinstance(column, pa.ChunkedArray) else column
    if to_store:
        try:
            check_text(array)
        except Misfit as error:
            raise SchemaMismatch(f"table {table!r}: column {field.name!r}: {error}; {effect}") from error
    if array.type != field.type or pa.types.is_dictionary(field.type):
        array = _cast(array, field, table, effect)
    if strict and array.null_count:
        at = int(np.flatnonzero(array.is_null().to_numpy(zero_copy_only=False))[0])
        raise SchemaMismatch(
            f"table {table!r}: column {field.name!r} is null at position {at}, expected {field.type} without nulls; "
            f"{effect}"
        )
    return array


def _join_chunks(column: pa.ChunkedArray, field: pa.Field, table: str, effect: str) -> pa.Array:
    try:
        joined = column.combine_chunks()
    except pa.ArrowInvalid:
        joined = column
    if isinstance(joined, pa.ChunkedArray):
        raise InvalidBatch(
            f"table {table!r}: column {field.name!r} has {column.nbytes} bytes in one batch, and at most 2 GiB fit; "
            f"{effect}, split the batch"
        )
    return joined


def _cast(array: pa.Array, field: pa.Field, table: str, effect: str) -> pa.Array:
    mismatch = f"table {table!r}: column {field.name!r}: expected {field.type}, found {array.type}"
    misfit = kind_misfit(array.type, field.type)
    if misfit is not None:
        raise SchemaMismatch(f"{mismatch}{misfit and f': {field.name}{misfit}'}; {effect}")
    try:
        return convert(array, field.type)
    except Misfit as error:
        raise SchemaMismatch(f"{mismatch} with a value that does not fit: {error}; {effect}") from error
    except pa.ArrowException as error:
        raise SchemaMismatch(f"{mismatch} with values that do not fit: {error}; {effect}") from error


def _from_dicts(rows: Sequence[Mapping[str, Any]], schema: pa.Schema, table: str, effect: str) -> pa.Table:
    """Rows as dicts, column by column, so that an error can name its column."""
    found = iterator_over(rows) if isinstance(rows, Sequence) and not isinstance(rows, str | bytes) else None
    if found is None:
        raise SchemaMismatch(f"table {table!r}: {type(rows).__name__} is not rows; expected {_EXPECTED}; {effect}")
    rows = []
    for at, row in enumerate(found):
        if not isinstance(row, Mapping):
            raise SchemaMismatch(
                f"table {table!r}: position {at} is of type {type(row).__name__}, expected a dict of columns; or give "
                f"{_EXPECTED}; {effect}"
            )
        unknown = [name for name in row if name not in schema.names]
        if unknown:
            raise SchemaMismatch(
                f"table {table!r}: unknown columns {show_value(unknown)} at position {at}, expected {schema.names}; "
                f"{effect}"
            )
        rows.append(row)
    columns = {}
    for field in schema:
        if rows and not any(field.name in row for row in rows):
            continue
        values = [row.get(field.name) for row in rows]
        try:
            columns[field.name] = array_of(values, field.type)
        except BAD_VALUE as error:
            at = _first_misfit(values, field.type)
            raise SchemaMismatch(
                f"table {table!r}: column {field.name!r}: expected {field.type}, found {show_value(values[at])} at "
                f"position {at}, which does not fit: {error}; {effect}"
            ) from error
    return pa.table(columns)


def _first_misfit(values: Sequence[Any], kind: pa.DataType) -> int:
    """The first of the values of which one is known not to fit."""
    for at, value in enumerate(values):
        try:
            array_of([value], kind)
        except BAD_VALUE:
            return at
    return 0


def key_rows(keys: TypedRows | Iterable[Any], primary_key: Sequence[str], table: str) -> TypedRows:
    """Keys in any of the accepted shapes (Arrow data, dicts, tuples, bare values) as rows of the key columns."""
    if isinstance(keys, pa.Table | pa.RecordBatch):
        names = [name for name in keys.schema.names if name in primary_key]
        if len(set(names)) != len(names):
            raise SchemaMismatch(f"table {table!r}: a column stands twice in {names}; nothing was done")
        return keys.select(names)
    if isinstance(keys, pa.Array | pa.ChunkedArray):
        if len(primary_key) != 1:
            raise SchemaMismatch(
                f"table {table!r}: found an array of keys, expected a table of {list(primary_key)}; nothing was done"
            )
        return pa.table({primary_key[0]: keys})
    found = None if isinstance(keys, str | bytes | bytearray | memoryview | Mapping) else iterator_over(keys)
    if found is None:
        raise SchemaMismatch(
            f"table {table!r}: found {show_value(keys)}, expected a list of keys, such as [{show_value(keys)}]; "
            "nothing was done"
        )
    rows = []
    for at, key in enumerate(found):
        if isinstance(key, Mapping):
            if missing := [name for name in primary_key if name not in key]:
                raise SchemaMismatch(
                    f"table {table!r}: the key at position {at} has the columns {show_value(list(key))}, and lacks "
                    f"{missing}; nothing was done"
                )
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


def uploaded_batches(rows: Iterable[pa.RecordBatch | pa.Table], table: str) -> Iterator[pa.RecordBatch]:
    """The batches of an `upload`, one by one, also those of tables among them; `SchemaMismatch` for what is neither."""
    if isinstance(rows, pa.RecordBatch | pa.Table):
        rows = (rows,)
    found = None if isinstance(rows, str | bytes) else iterator_over(rows)
    if found is None:
        raise SchemaMismatch(
            f"table {table!r}: upload takes an iterable of record batches, found {type(rows).__name__}"
        )
    return (batch for part in found for batch in _batches(part, table))


def _batches(part: object, table: str) -> Iterable[pa.RecordBatch]:
    if isinstance(part, pa.Table):
        return part.to_batches()
    if not isinstance(part, pa.RecordBatch):
        raise SchemaMismatch(f"table {table!r}: upload takes record batches, found {type(part).__name__}")
    return (part,)


def delete_marks(batch: pa.RecordBatch, column: str, table: str) -> npt.NDArray[np.bool_]:
    """Which rows `column` marks to delete; null marks none. `SchemaMismatch` if it is no boolean column."""
    names = batch.schema.names
    if not isinstance(column, str) or names.count(column) != 1:
        raise SchemaMismatch(f"table {table!r}: delete_column is {show_value(column)}; expected one of {names}")
    marks = batch.column(column)
    if not pa.types.is_boolean(marks.type):
        raise SchemaMismatch(
            f"table {table!r}: delete_column {show_value(column)} has type {marks.type}, expected bool"
        )
    return np.asarray(marks.fill_null(False).to_numpy(zero_copy_only=False))
