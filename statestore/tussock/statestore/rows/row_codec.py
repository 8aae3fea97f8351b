"""Single rows as Python dicts, checked value by value, for tables whose values Python holds as they are stored.

A batch of Arrow costs its hundred microseconds whether it has one row or a thousand. A row that is written alone is
held to the same rule here, a value is stored as it was given or refused, in a microsecond: a value of just the class
that its column reads back needs no conversion, or one that cannot fail. Whatever else is given goes through Arrow,
which converts or refuses it.

Values that hold others, lists, structs and maps, are for callers that ask for them: two that have such a row could
each change what the other one has. They are taken as copies (`nested_values.py`).
"""

import datetime as dt
import math
from collections.abc import Callable, Sequence
from decimal import Decimal
from enum import Enum
from typing import Any, Final

import pyarrow as pa
import pyarrow.types as pt

__all__ = ["ABSENT", "UNFIT", "Absent", "Known", "Row", "RowCodec", "Take", "take_of"]

Row = dict[str, Any]


class Absent(Enum):
    """Nothing is known of a key."""

    ABSENT = 0


ABSENT: Final = Absent.ABSENT

Known = Row | None | Absent
"""A row, a delete (`None`), or nothing."""


class Unfit(Enum):
    """Arrow has to convert or refuse a value."""

    UNFIT = 0


UNFIT: Final = Unfit.UNFIT

Take = Callable[[Any], Any]
"""What a column reads back of a value that is not null, or `UNFIT`."""


def _integers(kind: Any) -> Take:
    bits = kind.bit_width
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if pt.is_signed_integer(kind) else (0, (1 << bits) - 1)
    return lambda value: value if type(value) is int and low <= value <= high else UNFIT


def _text(value: Any) -> Any:
    if type(value) is not str:
        return UNFIT
    if value.isascii():
        return value
    try:
        value.encode()
    except UnicodeEncodeError:
        return UNFIT
    return value


def _key_float(value: Any) -> Any:
    """Of the two zeros only the positive one: a key that is the negative one is stored as the other."""
    return value if type(value) is float and (value != 0.0 or math.copysign(1.0, value) > 0) else UNFIT


def _moments(kind: Any) -> Take | None:
    """Of timestamps without a zone, and in UTC, which is an object of one class or another, by what is installed."""
    step = _STEPS.get(kind.unit)
    if step is None or kind.tz not in (None, "UTC"):
        return None
    zone = pa.scalar(0, kind).as_py().tzinfo

    def take(value: Any) -> Any:
        if type(value) is not dt.datetime or value.fold != 0 or value.microsecond % step != 0:
            return UNFIT
        if value.tzinfo is zone:
            return value
        # Python's own object of that zone.
        return value.replace(tzinfo=zone) if zone is not None and value.tzinfo is dt.UTC else UNFIT

    return take


def _times(kind: Any) -> Take | None:
    step = _STEPS.get(kind.unit)
    if step is None:
        return None

    def take(value: Any) -> Any:
        is_one = type(value) is dt.time and value.tzinfo is None and value.fold == 0 and value.microsecond % step == 0
        return value if is_one else UNFIT

    return take


def _decimals(kind: Any) -> Take:
    """With all digits of the scale, which it gets if it has fewer. A negative zero is read back as the other."""
    precision, scale = kind.precision, kind.scale

    def take(value: Any) -> Any:
        if type(value) is not Decimal:
            return UNFIT
        is_negative, digits, exponent = value.as_tuple()
        if exponent == -scale:
            return value if len(digits) <= precision and (not is_negative or bool(value)) else UNFIT
        # 'n', 'N' and 'F' are no numbers; a zero has one digit, whatever its scale.
        if type(exponent) is not int or not -scale < exponent <= 0 or not value:
            return UNFIT
        lacking = exponent + scale
        if len(digits) + lacking > precision:
            return UNFIT
        return Decimal((is_negative, digits + (0,) * lacking, -scale))

    return take


_STEPS = {"s": 1_000_000, "ms": 1_000, "us": 1}
"""Microseconds, which Python's classes count. Nanoseconds are of other classes, if of any."""


def take_of(kind: Any) -> Take | None:
    """How a value becomes what a column of this type reads back; `None` for types whose values Python cannot tell.

    What holds other values is not among them.
    """
    if pt.is_integer(kind):
        return _integers(kind)
    if pt.is_string(kind) or pt.is_large_string(kind):
        return _text
    classes: tuple[tuple[Callable[[Any], bool], type], ...] = (
        (pt.is_boolean, bool),
        (pt.is_float64, float),
        (pt.is_binary, bytes),
        (pt.is_large_binary, bytes),
        (pt.is_date32, dt.date),
    )
    for is_kind, its_class in classes:
        if is_kind(kind):
            return lambda value: value if type(value) is its_class else UNFIT
    if pt.is_timestamp(kind):
        return _moments(kind)
    if pt.is_time(kind):
        return _times(kind)
    return _decimals(kind) if pt.is_decimal128(kind) else None


class RowCodec:
    """Rows of one schema as dicts in its order; made by `of`, where all of its types allow it."""

    def __init__(self, schema: pa.Schema, required: Sequence[str], columns: Sequence[tuple[str, Take, bool]]) -> None:
        self.primary_key = tuple(required)
        self._columns = columns
        self._names = frozenset(schema.names)
        self._schema = schema

    @staticmethod
    def of(
        schema: pa.Schema, primary_key: Sequence[str], takes: Callable[[pa.DataType], Take | None] = take_of
    ) -> "RowCodec | None":
        """For rows of `schema`; `None` if Python's values of one of its types are not what is read back.

        `takes` says how values of a type are taken.
        """
        columns = []
        for field in schema:
            is_key = field.name in primary_key
            take = _key_float if is_key and pt.is_float64(field.type) else takes(field.type)
            if take is None:
                return None
            columns.append((field.name, take, field.nullable and not is_key))
        return RowCodec(schema, primary_key, columns)

    def row(self, given: Any) -> Row | None:
        """The row as it is read back; `None` if Arrow has to convert or refuse it."""
        if type(given) is not dict or not given.keys() <= self._names:
            return None
        row = {}
        for name, take, nullable in self._columns:
            value = given.get(name)
            if value is None:
                if not nullable:
                    return None
            else:
                value = take(value)
                if value is UNFIT:
                    return None
            row[name] = value
        return row
