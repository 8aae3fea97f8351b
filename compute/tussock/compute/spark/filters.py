"""Filters that Spark pushes down: which can be applied here exactly, and which make a read a lookup of keys.

Pure. Spark removes from its plan what a reader does not give back, so a filter is taken only where Arrow and Spark
agree on every value: integers, strings, binaries, booleans and dates. Floats (Spark's NaN equals itself), decimals
and timestamps go back to Spark.
"""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

__all__ = ["LOOKUP_KEYS_MAX", "Condition", "condition_of", "expression_of", "key_prefix", "lookup_keys"]

LOOKUP_KEYS_MAX = 10_000
"""More keys than this are not looked up one by one but scanned for."""

_COMPARISONS = {
    EqualTo: "equal",
    EqualNullSafe: "equal",
    GreaterThan: "greater",
    GreaterThanOrEqual: "greater_equal",
    LessThan: "less",
    LessThanOrEqual: "less_equal",
}
_TEXT = {StringStartsWith: "starts_with", StringEndsWith: "ends_with", StringContains: "match_substring"}


class Condition(NamedTuple):
    """A filter on one column that is applied here; plain values, so that it travels to the tasks."""

    column: str
    operation: str
    """`equal`, `in`, `is_null`, `greater`, ...: see `expression_of`."""
    values: tuple[Any, ...] = ()
    negated: bool = False


def condition_of(pushed: Filter, schema: pa.Schema) -> Condition | None:
    """The condition that does exactly what the filter does, or `None` if Spark has to do it."""
    if isinstance(pushed, Not):
        inner = condition_of(pushed.child, schema)
        # `not (a <=> b)` is true for null, where every other negation is null.
        if inner is None or isinstance(pushed.child, EqualNullSafe):
            return None
        return inner._replace(negated=not inner.negated)
    attribute: Sequence[str] = getattr(pushed, "attribute", ())
    if len(attribute) != 1 or attribute[0] not in schema.names:
        return None
    name = attribute[0]
    if isinstance(pushed, IsNull | IsNotNull):
        return Condition(name, "is_null", negated=isinstance(pushed, IsNotNull))
    kind = schema.field(name).type
    if isinstance(pushed, In):
        values = tuple(pushed.value)
        return Condition(name, "in", values) if values and all(_exact(value, kind) for value in values) else None
    operation = _COMPARISONS.get(type(pushed))
    if operation is None and (pt.is_string(kind) or pt.is_large_string(kind)):
        operation = _TEXT.get(type(pushed))
    value = getattr(pushed, "value", None)
    return Condition(name, operation, (value,)) if operation and _exact(value, kind) else None


def _exact(value: Any, kind: pa.DataType) -> bool:
    """Whether the value, not null, is one of the column's type, and of a type on which Arrow and Spark agree."""
    agreed = (
        pt.is_integer(kind)
        or pt.is_boolean(kind)
        or pt.is_date32(kind)
        or pt.is_string(kind)
        or pt.is_large_string(kind)
        or pt.is_binary(kind)
        or pt.is_large_binary(kind)
    )
    if value is None or not agreed or isinstance(value, bool) != pt.is_boolean(kind):
        return False
    try:
        pa.scalar(value, kind)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return False
    return True


def expression_of(conditions: Iterable[Condition], schema: pa.Schema) -> pc.Expression | None:
    """All conditions joined by `and`, for `TypedTable.read`; `None` if there is none."""
    joined: pc.Expression | None = None
    for condition in conditions:
        expression = _expression(condition, schema.field(condition.column).type)
        expression = ~expression if condition.negated else expression
        joined = expression if joined is None else joined & expression
    return joined


def _expression(condition: Condition, kind: pa.DataType) -> pc.Expression:
    field = pc.field(condition.column)
    if condition.operation == "is_null":
        return field.is_null()
    if condition.operation == "in":
        return field.isin(pa.array(condition.values, kind))
    value = condition.values[0]
    if condition.operation in _TEXT.values():
        return getattr(pc, condition.operation)(field, value)
    return getattr(pc, condition.operation)(field, pa.scalar(value, kind))


def lookup_keys(conditions: Iterable[Condition], primary_key: Sequence[str]) -> list[tuple[Any, ...]] | None:
    """The keys, at most `LOOKUP_KEYS_MAX`, that alone can pass: every key column is equal to, or in, given values."""
    choices = _choices(conditions)
    if any(name not in choices for name in primary_key):
        return None
    count = 1
    for name in primary_key:
        count *= len(choices[name])
    if count > LOOKUP_KEYS_MAX:
        return None
    return list(itertools.product(*(choices[name] for name in primary_key)))


def key_prefix(
    conditions: Iterable[Condition], primary_key: Sequence[str], distribution_key: Sequence[str]
) -> tuple[Any, ...] | None:
    """Values of the leading key columns that are fixed, if these cover the distribution key: one range has all rows."""
    choices = {name: values for name, values in _choices(conditions).items() if len(values) == 1}
    fixed = list(itertools.takewhile(lambda name: name in choices, primary_key))
    if not fixed or any(name not in fixed for name in distribution_key):
        return None
    return tuple(choices[name][0] for name in fixed)


def _choices(conditions: Iterable[Condition]) -> Mapping[str, tuple[Any, ...]]:
    """Per column the values that it can have, in a fixed order and each once."""
    choices: dict[str, tuple[Any, ...]] = {}
    for condition in conditions:
        if condition.operation in ("equal", "in") and not condition.negated:
            values = tuple(dict.fromkeys(condition.values))
            known = choices.get(condition.column)
            choices[condition.column] = values if known is None else tuple(v for v in known if v in values)
    return choices
