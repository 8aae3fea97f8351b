"""The changes that a write with `mergeSchema` makes to its table: new columns, and wider types of the same kind.

As in Delta: columns that only the rows have are added, nullable; integers, floats and decimals become wider ones. An
integer never becomes a float or a decimal: a user has to ask for that by name (`StateStore.alter_table`).
"""

from collections.abc import Collection, Sequence

import pyarrow as pa
from pyspark.sql.types import StructType

from tussock.compute.spark.options.schemas import arrow_target, shown_type
from tussock.statestore.errors import SchemaMismatch
from tussock.statestore.format.schema_changes import is_wider
from tussock.statestore.rows.conversion import same_kind

__all__ = ["check_known", "schema_changes"]


def schema_changes(found: StructType, table: pa.Schema, ignored: Collection[str]) -> tuple[pa.Schema, pa.Schema]:
    """Columns to add to the table and columns to widen, so that it can hold rows of Spark's schema `found`.

    Columns in `ignored` are not the table's. A column that is already read as the type of the rows stays as it is.
    Raises `SchemaMismatch` for a new column whose name differs from another one's only by case: Spark finds columns in
    any case, so it could select neither.
    """
    rows = arrow_target(StructType([field for field in found.fields if field.name not in ignored]))
    add = pa.schema([field.with_nullable(True) for field in rows if field.name not in table.names])
    _check_cases(add.names, table.names)
    widen = []
    for field in rows:
        if field.name in table.names:
            shown = shown_type(table.field(field.name).type)
            if same_kind(shown, field.type) and is_wider(shown, field.type):
                widen.append(field)
    return add, pa.schema(widen)


def _check_cases(added: Sequence[str], there: Sequence[str]) -> None:
    for at, name in enumerate(added):
        like = [other for other in (*there, *added[:at]) if other.lower() == name.lower()]
        if like:
            raise SchemaMismatch(
                f"mergeSchema: column {name!r} of the rows differs from column {like[0]!r} by case only, and with both "
                "in the table Spark could select neither; give the rows the table's name, or add the column by "
                "store.alter_table if both are wanted; nothing was stored"
            )


def check_known(found: StructType, table: pa.Schema, ignored: Collection[str], name: str) -> None:
    """Raise `SchemaMismatch` if the rows have columns that the table lacks; the message says how to add them."""
    unknown = {field.name: field.dataType.simpleString() for field in found.fields}
    for known in (*table.names, *ignored):
        unknown.pop(known, None)
    if unknown:
        cases = {known.lower(): known for known in table.names}
        like = [f"{known!r} is {cases[known.lower()]!r} there" for known in unknown if known.lower() in cases]
        hint = f" (names are exact: {', '.join(like)})" if like else ""
        raise SchemaMismatch(
            f"table {name!r}: unknown columns {list(unknown)} of type {', '.join(unknown.values())}, expected "
            f"{table.names}{hint}; store.alter_table({name!r}, add=...) adds columns, and so does a write with option "
            "mergeSchema=true; nothing was stored"
        )
