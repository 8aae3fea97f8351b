"""Single rows as Python dicts, checked value by value, for tables whose values Python holds as they are stored.

A batch of Arrow costs its hundred microseconds whether it has one row or a thousand. A row that is written alone is
held to the same rule here, a value is stored as it was given or refused, in a microsecond: a value of just the class
that its column reads back needs no conversion. Whatever else is given goes through Arrow, which converts or refuses it.
"""

import datetime as dt
import math
from collections.abc import Callable, Sequence
from decimal import Decimal
from enum import Enum
from typing import Any, Final

import pyarrow as pa
import pyarrow.types as pt

__all__ = ["ABSENT", "Absent", "Known", "Row", "RowCodec"]

Row = dict[str, Any]


class Absent(Enum):
    """Nothing is known of a key."""

    ABSENT = 0


ABSENT: Final = Absent.ABSENT

Known = Row | None | Absent
"""A row, a delete (`None`), or nothing."""

Fits = Callable[[Any], bool]


def _integers(kind: Any) -> Fits:
    bits = kind.bit_width
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if pt.is_signed_integer(kind) else (0, (1 << bits) - 1)
    return lambda value: type(value) is int and low <= value <= high


def _is_text(value: Any) -> bool:
    if type(value) is not str:
        return False
    if value.isascii():
        return True
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_key_float(value: Any) -> bool:
    """Of the two zeros only the positive one: a key that is the negative one is stored as the other."""
    return type(value) is float and (value != 0.0 or math.copysign(1.0, value) > 0)


def _moments(kind: Any) -> Fits | None:
    """Of timestamps without a zone, and in UTC, which is an object of one class or another, by what is installed."""
    step = _STEPS.get(kind.unit)
    if step is None or kind.tz not in (None, "UTC"):
        return None
    zone = pa.scalar(0, kind).as_py().tzinfo
    return lambda value: (
        type(value) is dt.datetime and value.tzinfo is zone and value.fold == 0 and value.microsecond % step == 0
    )


def _times(kind: Any) -> Fits | None:
    step = _STEPS.get(kind.unit)
    if step is None:
        return None
    return lambda value: (
        type(value) is dt.time and value.tzinfo is None and value.fold == 0 and value.microsecond % step == 0
    )


def _decimals(kind: Any) -> Fits:
    """Those that have all digits of the scale already, and no negative zero, which is read back as the other."""
    precision, scale = kind.precision, kind.scale

    def fits(value: Any) -> bool:
        if type(value) is not Decimal:
            return False
        is_negative, digits, exponent = value.as_tuple()
        return exponent == -scale and len(digits) <= precision and (not is_negative or bool(value))

    return fits


_STEPS = {"s": 1_000_000, "ms": 1_000, "us": 1}
"""Microseconds, which Python's classes count. Nanoseconds are of other classes, if of any."""


def _fits(kind: Any) -> Fits | None:
    """Whether a value is of just the class that a column of this type reads back; `None` for types without one."""
    if pt.is_integer(kind):
        return _integers(kind)
    if pt.is_string(kind) or pt.is_large_string(kind):
        return _is_text
    classes: tuple[tuple[Callable[[Any], bool], type], ...] = (
        (pt.is_boolean, bool),
        (pt.is_float64, float),
        (pt.is_binary, bytes),
        (pt.is_large_binary, bytes),
        (pt.is_date32, dt.date),
    )
    for is_kind, its_class in classes:
        if is_kind(kind):
            return lambda value: type(value) is its_class
    if pt.is_timestamp(kind):
        return _moments(kind)
    if pt.is_time(kind):
        return _times(kind)
    return _decimals(kind) if pt.is_decimal128(kind) else None


class RowCodec:
    """Rows of one schema as dicts in its order; made by `of`, where all of its types allow it."""

    def __init__(self, schema: pa.Schema, required: Sequence[str], columns: Sequence[tuple[str, Fits, bool]]) -> None:
        self.primary_key = tuple(required)
        self._columns = columns
        self._names = frozenset(schema.names)
        self._schema = schema

    @staticmethod
    def of(schema: pa.Schema, primary_key: Sequence[str]) -> "RowCodec | None":
        """For rows of `schema`; `None` if Python's values of one of its types are not what is read back."""
        columns = []
        for field in schema:
            is_key = field.name in primary_key
            fits = _is_key_float if is_key and pt.is_float64(field.type) else _fits(field.type)
            if fits is None:
                return None
            columns.append((field.name, fits, field.nullable and not is_key))
        return RowCodec(schema, primary_key, columns)

    def row(self, given: Any) -> Row | None:
        """The row as it is read back; `None` if Arrow has to convert or refuse it."""
        if type(given) is not dict or not given.keys() <= self._names:
            return None
        row = {}
        for name, fits, nullable in self._columns:
            value = given.get(name)
            if value is None:
                if not nullable:
                    return None
            elif not fits(value):
                return None
            row[name] = value
        return row
