"""Rows on their way to the tasks: placed by Spark, and converted without loss to the types of the state table's key.

Spark places a row by the hash of its key in the table's types, and sends it as it was; the task decides whether the key
is the same one in the table's types. A cast on the way could turn two keys into one.
"""

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt
from pyspark.errors import PySparkTypeError, UnsupportedOperationException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import StructType

from tussock.compute.spark.options.schemas import arrow_target
from tussock.compute.spark.state.plan import TaskPlan
from tussock.statestore.errors import SchemaMismatch

__all__ = ["convert_arrivals", "place_rows", "sent_schema"]


def sent_schema(schema: StructType, table: str) -> pa.Schema:
    """The Arrow schema in which Spark sends such rows; `SchemaMismatch` names a column that it cannot send."""
    for field in schema.fields:
        try:
            arrow_target(StructType([field]))
        except (PySparkTypeError, UnsupportedOperationException) as error:
            raise SchemaMismatch(
                f"table {table!r}: Spark sends no Arrow for column {field.name!r} of type "
                f"{field.dataType.simpleString()}; drop the column from the rows, or cast it"
            ) from error
    return arrow_target(schema)


def place_rows(rows: DataFrame, plan: TaskPlan) -> DataFrame:
    """The rows in the partitions of their keys; their columns get our names, in the order of `plan.rows`.

    Our names, because Spark interprets dots and cases in others. Each row is assigned its partition by number, since
    the adaptive planner drops, joins and splits partitions that it knows by their hash: if the rows come from a
    `groupBy` or a join on the same key, it reuses the exchange of that for this one, and then changes it.
    """
    named = rows.toDF(*(f"c{at}" for at in range(len(rows.columns))))
    hashed = f.hash(*(_key(named, plan, name) for name in plan.states[0].distribution_key))
    return named.repartitionById(plan.tasks, f.pmod(hashed, f.lit(plan.tasks)))


def _key(named: DataFrame, plan: TaskPlan, name: str) -> Column:
    """A key column in the table's type, whose hash makes the virtual node; null if it does not fit."""
    at = plan.rows.get_field_index(name)
    kind = from_arrow_type(plan.rows.field(at).type, prefer_timestamp_ntz=True)
    field = named.schema.fields[at]
    column = f.col(field.name)
    return column if field.dataType == kind else column.try_cast(kind)


def convert_arrivals(raw: pa.RecordBatch, plan: TaskPlan) -> pa.RecordBatch:
    """A batch in the columns of `plan.rows`; `SchemaMismatch` names a key column whose values its table cannot hold."""
    arrays = [
        column if column.type == field.type else _cast_exactly(column, field, plan)
        for column, field in zip(raw.columns, plan.rows, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=plan.rows)


def _cast_exactly(column: pa.Array, field: pa.Field, plan: TaskPlan) -> pa.Array:
    try:
        cast = column.cast(field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise _inexact_cast(column, field, plan, str(error)) from error
    if pt.is_floating(field.type):
        # Of all casts within a kind, only that to a narrower float accepts values that it changes.
        back = cast.cast(column.type)
        same = pc.or_(pc.equal(back, column), pc.and_(pc.is_nan(back), pc.is_nan(column)))
        at = pc.index(same, False).as_py()
        if at >= 0:
            raise _inexact_cast(column, field, plan, f"{column[at].as_py()} would become {back[at].as_py()}")
    return cast


def _inexact_cast(column: pa.Array, field: pa.Field, plan: TaskPlan, why: str) -> SchemaMismatch:
    what = f"key column {field.name!r}" if field.name in plan.key else f"column {field.name!r}"
    return SchemaMismatch(
        f"table {plan.states[0].name!r}: {what}: expected {field.type}, found {column.type} with values that do not "
        f"fit: {why}; two keys could become one, so nothing of the batch was stored: cast the column in the query, or "
        "create the table with a wider type"
    )
