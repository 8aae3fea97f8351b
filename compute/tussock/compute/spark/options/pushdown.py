"""Filters that Spark pushes down, as tests of columns. Pure, and deterministic in filters and their order.

A filter becomes a test only if the test passes exactly the rows that the filter passes; Spark applies the others.
Filters on floats are among those: for Spark NaN equals itself and exceeds all numbers, for Arrow it does not.
"""

from collections.abc import Callable, Collection, Iterable
from typing import Any

import pyarrow as pa
import pyarrow.types as pt
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    StringStartsWith,
)

from tussock.compute.spark.options.conditions import typed_test
from tussock.compute.spark.options.where import json_value
from tussock.statestore.keys.conditions import Test

__all__ = ["filter_tests", "portable_tests"]

_OPERATORS: dict[type[Filter], str] = {
    EqualTo: "in",
    EqualNullSafe: "in",
    In: "in",
    GreaterThan: ">",
    GreaterThanOrEqual: ">=",
    LessThan: "<",
    LessThanOrEqual: "<=",
    StringStartsWith: "prefix",
}

_EXACT: tuple[Callable[[pa.DataType], bool], ...] = (
    pt.is_boolean,
    pt.is_integer,
    pt.is_decimal,
    pt.is_date,
    pt.is_timestamp,
    pt.is_string,
    pt.is_large_string,
    pt.is_binary,
    pt.is_large_binary,
)
"""Types whose values Spark and Arrow compare in the same way."""


def filter_tests(
    filters: Iterable[Filter], schema: pa.Schema, required: Collection[str]
) -> tuple[list[Test], list[Filter]]:
    """The filters as tests, and the filters that no test can replace; `required` columns are never null."""
    tests, left, wanted = [], [], []
    for each in filters:
        test = _test(each, schema)
        if test is not None:
            tests.append(test)
        elif isinstance(each, IsNotNull):
            wanted.append(each)
        else:
            left.append(each)
    never_null = {*required, *(test.column for test in tests)}
    return tests, left + [each for each in wanted if each.attribute[0] not in never_null or len(each.attribute) > 1]


def portable_tests(filters: Iterable[Filter], schema: pa.Schema) -> list[tuple[str, str, Any]]:
    """Column, operator and value, as the option `where` takes them, of each filter that can be a test."""
    tests = []
    for each in filters:
        if _test(each, schema) is None:
            continue
        name, operator, value = _parts(each)
        try:
            portable = [json_value(item) for item in value] if operator == "in" else json_value(value)
        except ValueError:
            continue
        tests.append((name, operator, portable))
    return tests


def _test(each: Filter, schema: pa.Schema) -> Test | None:
    if type(each) not in _OPERATORS or len(each.attribute) != 1 or each.attribute[0] not in schema.names:
        return None
    name, operator, value = _parts(each)
    kind = schema.field(name).type
    if value is None or not any(exact(kind) for exact in _EXACT):
        return None
    try:
        return typed_test(name, operator, value, kind)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        # A value that the column's narrower type cannot have, such as -1 for an unsigned one.
        return None


def _parts(each: Any) -> tuple[str, str, Any]:
    """Column, operator and value; for tests of single values a list, without null, which equals nothing."""
    operator = _OPERATORS[type(each)]
    value = each.value
    if operator == "in":
        listed = list(value) if isinstance(each, In) else [value]
        value = [item for item in listed if item is not None]
        # `x <=> null` holds for null.
        return each.attribute[0], operator, None if isinstance(each, EqualNullSafe) and not value else value
    return each.attribute[0], operator, value
