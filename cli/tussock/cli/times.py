"""Times between Arrow and text, to the last digit: Python's classes have microseconds, and years up to 9999.

What is printed of a time can be typed in again. One that no calendar text says is the number that Arrow stores, with
its unit: `4611686018427387904us`.
"""

import re
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal, localcontext
from typing import Any

import pyarrow as pa

__all__ = ["time_parser", "time_text"]

_DIGITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}
_CALENDAR = re.compile(r"(?!0000)\d{4}-")
"""Begins a date of a year that Python has."""
_ZONED = re.compile(r"(?!0000|0001|9999)\d{4}-")
"""The same where a zone may move the time into another year."""
_FRACTION = re.compile(r"[.,](\d+)")
_NUMBER = re.compile(r"(-?\d+)(d|s|ms|us|ns)")
_DAYS = re.compile(r"(-?\d+) days?, (.*)")
_CLOCK = re.compile(r"(-?)(\d+):(\d\d):(\d\d(?:\.\d+)?)")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def time_text(scalar: Any) -> str:
    """An Arrow scalar of a date, time, timestamp or duration as text that says it exactly."""
    kind = scalar.type
    number = _number(scalar)
    if pa.types.is_duration(kind):
        return _seconds_text(number, _DIGITS[kind.unit])
    try:
        text: str = scalar.cast(pa.string()).as_py()
    except pa.ArrowInvalid:  # a zone that this machine does not know
        text = pa.scalar(number, pa.timestamp(kind.unit)).cast(pa.string()).as_py() + "Z"
    if pa.types.is_time(kind) or (_ZONED if getattr(kind, "tz", None) else _CALENDAR).match(text):
        return text
    return f"{number}{_unit(kind)}"


def _number(scalar: Any) -> int:
    number: int = scalar.cast(pa.int32() if scalar.type.bit_width == 32 else pa.int64()).as_py()
    return number


def _unit(kind: Any) -> str:
    return "d" if pa.types.is_date32(kind) else "ms" if pa.types.is_date64(kind) else kind.unit


def _seconds_text(number: int, digits: int) -> str:
    return f"{Decimal(number).scaleb(-digits):f}"


def time_parser(kind: Any) -> Callable[[str], Any]:
    """What reads text as a key of this type: Python's class, or Arrow's scalar where Python has no such value.

    The parser raises `ValueError` or `ArithmeticError` for text that is no value of the type.
    """
    plain = _plain_parser(kind)

    def parse(text: str) -> Any:
        stored = _NUMBER.fullmatch(text)
        if stored and stored[2] == _unit(kind) and (stored[2] != "s" or not pa.types.is_duration(kind)):
            return pa.scalar(int(stored[1]), kind)
        return plain(text)

    return parse


def _plain_parser(kind: Any) -> Callable[[str], Any]:
    if pa.types.is_date(kind):
        return date.fromisoformat
    if pa.types.is_duration(kind):
        return lambda text: _duration(text, kind)
    if pa.types.is_time(kind):
        return lambda text: _moment(text, kind, lambda whole: _of_day(time.fromisoformat(whole)))
    return lambda text: _moment(text, kind, lambda whole: _of_zone(datetime.fromisoformat(whole), kind))


def _moment(text: str, kind: Any, whole: Callable[[str], datetime]) -> Any:
    """A time of which the digits below a microsecond count."""
    fraction = _FRACTION.search(text)
    digits = fraction[1] if fraction else ""
    if not digits[6:].strip("0"):
        moment = whole(text)
        return moment.time() if pa.types.is_time(kind) else moment
    if kind.unit != "ns" or digits[9:].strip("0"):
        raise ValueError(text)
    assert fraction is not None
    moment = whole(text[: fraction.start()] + text[fraction.end() :])
    since = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - _EPOCH
    seconds = since.days * 86_400 + since.seconds
    return pa.scalar(seconds * 10**9 + int(digits[:9].ljust(9, "0")), kind)


def _of_day(moment: time) -> datetime:
    if moment.tzinfo is not None:
        raise ValueError("a time of day has no zone")
    return datetime.combine(_EPOCH.date(), moment)


def _of_zone(moment: datetime, kind: Any) -> datetime:
    """In a column with a zone, a time without one is UTC; a column without one takes no zone."""
    if kind.tz is None and moment.tzinfo is not None:
        raise ValueError("the column has no zone")
    return moment.replace(tzinfo=UTC) if kind.tz is not None and moment.tzinfo is None else moment


def _duration(text: str, kind: Any) -> Any:
    """Seconds, or days and a clock as Python prints them."""
    days = _DAYS.fullmatch(text)
    clock = _CLOCK.fullmatch(days[2] if days else text)
    with localcontext(prec=60):
        if clock is None:
            seconds = Decimal(text.removesuffix("s"))
        else:
            sign = -1 if clock[1] else 1
            seconds = sign * (int(clock[2]) * 3600 + int(clock[3]) * 60 + Decimal(clock[4]))
            seconds += 86_400 * int(days[1]) if days else 0
        number = seconds.scaleb(_DIGITS[kind.unit])
        if number != int(number):
            raise ValueError(text)
    scalar = pa.scalar(int(number), kind)
    try:
        exact = timedelta(microseconds=int(seconds * 10**6))
    except OverflowError:
        return scalar
    return exact if pa.scalar(exact, kind) == scalar else scalar
