"""Conversions between a table's Arrow schema and Spark's: types of a read, checks of a write, and casts of batches.

Spark wants exactly one Arrow type for each of its types (`string`, never `large_string`; timestamps in microseconds and
UTC) and checks for equality. A type that Spark lacks is read as the next wider one: unsigned integers as the next
larger signed type, a 64-bit unsigned one as `decimal(20,0)`.
"""

from collections.abc import Collection, Iterable, Sequence

import pyarrow as pa
from pyspark.errors import PySparkTypeError, UnsupportedOperationException
from pyspark.sql import Column
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_schema
from pyspark.sql.types import StructField, StructType

from tussock.statestore.errors import SchemaMismatch
from tussock.statestore.tables.typed_input import conform

__all__ = [
    "arrow_target",
    "check_columns",
    "check_writable",
    "column_named",
    "fit_batch",
    "shown_type",
    "spark_schema",
    "storable_batch",
]

_WIDER = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
    pa.date64(): pa.date32(),
    pa.time32("s"): pa.time64("us"),
    pa.time32("ms"): pa.time64("us"),
    pa.string_view(): pa.string(),
    pa.binary_view(): pa.binary(),
}


def column_named(name: str) -> Column:
    """The column of exactly that name: Spark would interpret dots and backquotes in a bare text."""
    return f.col("`" + name.replace("`", "``") + "`")


def check_columns(names: Iterable[str], schema: pa.Schema, table: str) -> None:
    """Raise `SchemaMismatch` unless all these columns are in the table's schema."""
    missing = [name for name in names if name not in schema.names]
    if missing:
        raise SchemaMismatch(f"table {table!r} has no columns {missing}; it has {schema.names}", table)


def spark_schema(schema: pa.Schema, required: Collection[str], table: str) -> StructType:
    """Spark's schema of a table's rows; `required` columns are never null. `SchemaMismatch` names a hopeless column."""
    fields = []
    for field in schema:
        try:
            kind = from_arrow_type(shown_type(field.type), prefer_timestamp_ntz=True)
        except PySparkTypeError as error:
            raise SchemaMismatch(
                f"table {table!r}: Spark has no type for column {field.name!r} of type {field.type}; "
                "leave it out with option columns"
            ) from error
        fields.append(StructField(field.name, kind, field.nullable and field.name not in required))
    return StructType(fields)


def shown_type(kind: pa.DataType) -> pa.DataType:
    """The type as which Spark reads a column: the same, or the next wider type that Spark has."""
    return _WIDER.get(kind, kind)


def arrow_target(schema: StructType) -> pa.Schema:
    """The Arrow schema of the batches that Spark expects for its `schema`."""
    return to_arrow_schema(schema, timezone="UTC")


def fit_batch(batch: pa.RecordBatch, target: pa.Schema, table: str) -> pa.RecordBatch:
    """The batch's columns in exactly the target's types; `SchemaMismatch` names a column whose values do not fit."""
    arrays = []
    for field in target:
        column = batch.column(field.name)
        if column.type != field.type:
            try:
                column = column.cast(field.type)
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
                raise SchemaMismatch(
                    f"table {table!r}: column {field.name!r}: {column.type} cannot be read as {field.type}: {error}"
                ) from error
        if not field.nullable and column.null_count:
            raise SchemaMismatch(
                f"table {table!r}: column {field.name!r} is never null by the schema that was asked for, and has nulls "
                "here, which Spark would take for values; leave NOT NULL out"
            )
        arrays.append(column)
    return pa.RecordBatch.from_arrays(arrays, schema=target)


def check_writable(
    found: StructType, expected: pa.Schema, required: Sequence[str], ignored: Collection[str], table: str
) -> None:
    """Raise `SchemaMismatch` if rows of Spark's schema `found` cannot go to the table, before any task runs.

    `required` columns must be present; columns in `ignored` are not the table's.
    """
    kept = StructType([field for field in found.fields if field.name not in ignored])
    for field in kept.fields:
        try:
            arrow_target(StructType([field]))
        except (PySparkTypeError, UnsupportedOperationException) as error:
            raise SchemaMismatch(
                f"table {table!r}: Spark sends no Arrow for column {field.name!r} of type "
                f"{field.dataType.simpleString()}; cast the column to a type that the table has"
            ) from error
    rows = storable_batch(pa.RecordBatch.from_pylist([], arrow_target(kept)), expected, table)
    conform(rows, expected, required, table)


def storable_batch(batch: pa.RecordBatch, schema: pa.Schema, table: str) -> pa.RecordBatch:
    """The batch with `decimal(20,0)` as 64-bit unsigned integers if the table has these: the reverse of a read."""
    for at, field in enumerate(batch.schema):
        if (
            field.type == _WIDER[pa.uint64()]
            and field.name in schema.names
            and schema.field(field.name).type == pa.uint64()
        ):
            try:
                batch = batch.set_column(at, field.name, batch.column(at).cast(pa.uint64()))
            except pa.ArrowInvalid as error:
                raise SchemaMismatch(f"table {table!r}: column {field.name!r}: expected uint64: {error}") from error
    return batch
