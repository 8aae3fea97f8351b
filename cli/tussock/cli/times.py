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
_FIRST_SECOND = -62_135_596_800
_LAST_SECOND = 253_402_300_799
"""Of the years 1 to 9999, which Python has; of others Arrow's own text is at times another time."""
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
    if not pa.types.is_time(kind) and not _in_calendar(number, kind):
        return f"{number}{_unit(kind)}"
    zoned = pa.types.is_timestamp(kind) and kind.tz is not None
    # In UTC: Arrow's text cuts the seconds of an old offset, and this machine may not know the zone.
    text: str = (pa.scalar(number, pa.timestamp(kind.unit)) if zoned else scalar).cast(pa.string()).as_py()
    return text + "Z" * zoned


def _in_calendar(number: int, kind: Any) -> bool:
    seconds = number * 86_400 if pa.types.is_date32(kind) else number // 10 ** _DIGITS[_unit(kind)]
    return _FIRST_SECOND <= seconds <= _LAST_SECOND


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
        return exact if pa.scalar(exact, kind) == scalar else scalar
    except (OverflowError, pa.ArrowInvalid):
        return scalar
