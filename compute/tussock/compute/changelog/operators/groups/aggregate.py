"""`aggregate`: values of groups of rows, kept right while rows come, change and go."""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from tussock.compute.changelog.operators.groups.firsts import Index, extreme, first_by
from tussock.compute.changelog.operators.groups.group_table import ALL, Grouping, group_columns, group_field
from tussock.compute.changelog.operators.groups.group_values import GroupValue, RowCount, ValueCount
from tussock.compute.changelog.operators.groups.sums import Average, Sum, sum_type
from tussock.compute.changelog.operators.operator_base import check_source, derive
from tussock.compute.changelog.stream import Stream
from tussock.statestore.errors import InvalidOption

__all__ = ["aggregate"]

VALUES_MAX = 100
_WORDS = (
    "('count',), ('count', column), ('sum', column), ('avg', column), ('min', column), ('max', column), "
    "('first', column, order column) or ('last', column, order column)"
)


def aggregate(name: str, source: Stream, by: str | Sequence[str], values: Mapping[str, tuple[str, ...]]) -> Stream:
    """A stream with a row for each group of rows of `source` that have the same values in the columns `by`.

    These are its key, so they must not be nullable. With `by=[]` all rows are one group, whose key is `_all`: true.
    A group without rows has no row. `values`: by new name `("count",)`, `("count", column)`, `("sum", column)`,
    `("avg", column)`, `("min", column)`, `("max", column)`, `("first", column, order)` or `("last", column, order)`,
    where `order` is a column, too. Nulls do not count, nor do rows without an order. Sums are exact, those of floats
    until they are shown; one that is beyond its type makes the transaction bad. Raises `InvalidOption`.
    """
    what = f"aggregate {name!r}"
    check_source(what, source)
    groups = group_columns(what, "by", by, source)
    keys = [source.schema.field(one) for one in groups] or [pa.field(ALL, pa.bool_(), nullable=False)]
    if not isinstance(values, Mapping) or not 1 <= len(values) <= VALUES_MAX:
        raise InvalidOption(f"{what}: values={values!r:.100}; expected a dict of 1 to {VALUES_MAX} new names")
    own = [group_field(field) for field in keys], [source.schema.field(one) for one in source.key]
    made = [
        _value(what, source, Index(f"index_{at}", *own), one, given) for at, (one, given) in enumerate(values.items())
    ]
    taken = [field.name for field in keys if field.name in values]
    if taken:
        raise InvalidOption(f"{what}: {taken[0]!r} is the name of a value and of a column of the key; rename the value")
    schema = pa.schema([*keys, *(one.field for one in made)])
    key = [field.name for field in keys]
    return derive(
        "aggregate", name, [source], schema, key, lambda shape: Grouping(shape, groups, made), by=groups, values=values
    )


def _value(what: str, source: Stream, index: Index, name: Any, given: Any) -> GroupValue:
    if not isinstance(name, str) or not isinstance(given, tuple | list) or not given:
        raise InvalidOption(f"{what}: value {name!r:.100} is {given!r:.100}; expected {_WORDS}")
    word, *columns = given
    expected = {"count": (0, 1), "sum": (1,), "avg": (1,), "min": (1,), "max": (1,), "first": (2,), "last": (2,)}
    if len(columns) not in expected.get(word, ()):
        raise InvalidOption(f"{what}: value {name!r} is {given!r:.100}; expected {_WORDS}")
    unknown = [one for one in columns if one not in source.schema.names]
    if unknown:
        raise InvalidOption(
            f"{what}: value {name!r} is of {unknown[0]!r:.100}, which is no column of stream {source.name!r}; it has "
            f"{source.schema.names}"
        )
    fields = [source.schema.field(one) for one in columns]
    if word == "count":
        return ValueCount(name, columns[0]) if columns else RowCount(name)
    if word in ("sum", "avg"):
        kind = fields[0].type
        if sum_type(kind) is None:
            raise InvalidOption(
                f"{what}: value {name!r} is the {word} of {columns[0]!r}, of type {kind}; expected integers, floats or "
                "decimal128"
            )
        return Sum(name, columns[0], kind) if word == "sum" else Average(name, columns[0], kind)
    if word in ("min", "max"):
        return extreme(name, fields[0], index, f"{what}: value {name!r}", is_max=word == "max")
    return first_by(name, fields[0], fields[1], index, f"{what}: value {name!r}", is_last=word == "last")
