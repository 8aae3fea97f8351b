"""The rows that a read of Spark wants, as tests of columns (`tussock.statestore.keys.conditions`).

Pure. The tests come from the option `where`, which belongs to the DataFrame, or from the filters that Spark pushes down
(`pushdown.py`).
"""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tussock.statestore.errors import InvalidOption, SchemaMismatch
from tussock.statestore.keys.conditions import COMPARISONS, Conditions, Test, after_prefix

__all__ = ["LOOKUP_KEYS_MAX", "OPERATORS", "conditions_of", "expression_of", "typed_test"]

LOOKUP_KEYS_MAX = 10_000
"""Above this number of keys, a scan replaces lookups of single keys."""

OPERATORS = ("in", *COMPARISONS, "prefix")
"""The tests of a column: one of some values, a bound, or a prefix."""

_COMPARE = {">": pc.greater, ">=": pc.greater_equal, "<": pc.less, "<=": pc.less_equal}


def expression_of(conditions: Conditions, schema: pa.Schema) -> pc.Expression | None:
    """The condition that a row has to meet, over columns of `schema`; `None` if there is none."""
    joined: pc.Expression | None = None
    for test in conditions.tests:
        passed = _passes(test, schema.field(test.column).type)
        joined = passed if joined is None else joined & passed
    return joined


def conditions_of(where: Sequence[tuple[str, str, Any]], schema: pa.Schema, table: str) -> Conditions:
    """The option's tests in the types of the columns; JSON has strings for dates, times, decimals and binaries.

    Raises `SchemaMismatch` for a missing column, `InvalidOption` for a value that its column cannot have.
    """
    tests = []
    for name, operator, value in where:
        if name not in schema.names:
            raise SchemaMismatch(f"table {table!r} has no column {name!r}, which option where names; {schema.names}")
        try:
            tests.append(typed_test(name, operator, value, schema.field(name).type))
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            kind = schema.field(name).type
            raise InvalidOption(f"option where, column {name!r}: expected {kind}, found {value!r}: {error}") from error
    return Conditions(tuple(tests))


def typed_test(column: str, operator: str, value: Any, kind: pa.DataType) -> Test:
    """The test with its value in the column's type; raises an error of Arrow or Python if it has no such value."""
    values = pa.array(value if operator == "in" else [value])
    if pa.types.is_timestamp(kind) and pa.types.is_string(values.type) and kind.unit in ("s", "ms"):
        # Arrow parses no more digits than the unit has, even if they are zeros.
        values = values.cast(pa.timestamp("us", kind.tz))
    values = values if values.type == kind else values.cast(kind)
    typed = (
        values.cast(pa.timestamp(kind.unit, "UTC")) if pa.types.is_timestamp(kind) and kind.tz else values
    ).to_pylist()
    if operator == "prefix" and not isinstance(typed[0], str | bytes):
        raise TypeError("only a string or a binary has a prefix")
    return Test(column, operator, tuple(dict.fromkeys(typed)) if operator == "in" else typed[0])


def _passes(test: Test, kind: pa.DataType) -> pc.Expression:
    field = pc.field(test.column)
    if test.operator == "in":
        return field.isin(pa.array(test.value, kind))
    if test.operator == "prefix":
        begun = pc.greater_equal(field, pa.scalar(test.value, kind))
        end = after_prefix(test.value)
        return begun if end is None else begun & pc.less(field, pa.scalar(end, kind))
    return _COMPARE[test.operator](field, pa.scalar(test.value, kind))
