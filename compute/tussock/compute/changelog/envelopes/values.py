"""Values of messages as values of columns: exactly what was meant, or a `Misread`.

Times become integers in the unit of their column, from which Arrow makes them; what is finer than the unit is refused.
Text of a time without a zone is UTC.
"""

import base64
import binascii
import re
from collections.abc import Callable
from datetime import date
from decimal import Decimal, InvalidOperation
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.types as pt

from tussock.compute.changelog.envelopes.meanings import NO_MEANING, Meaning, Misread
from tussock.statestore.errors import InvalidOption

__all__ = ["Form", "Take", "check_column", "taker_of"]

Take = Callable[[Any], Any]

DIGITS_MAX = 100
"""Of a number as text, and how far its point may be moved."""
_NANOSECONDS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
_DAY_SECONDS = 86_400
_EPOCH = date(1970, 1, 1).toordinal()
_TIME = r"(\d\d):(\d\d)(?::(\d\d)(?:[.,](\d{1,9}))?)?"
_ZONE = r"(Z|[+-]\d\d(?::?\d\d)?)?"
_TIMESTAMP = re.compile(rf"(\d{{4}})-(\d\d)-(\d\d)(?:[T ]{_TIME})? ?{_ZONE}", re.ASCII)
_CLOCK = re.compile(_TIME + _ZONE, re.ASCII)
_INTEGER = re.compile(r"[+-]?\d{1,40}", re.ASCII)
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
"""Python takes more for one: digits of other scripts, `_` between digits, blanks around them."""
_WORDS = {"0": False, "1": True, "false": False, "true": True}
_NO_NUMBERS = ("NaN", "Infinity", "-Infinity")


class Form(NamedTuple):
    """How a format writes what its schema does not tell."""

    decimals: str = "text"
    """Or "base64": two's complement, with the point where the column has it."""
    binary: str = "base64"
    """Or "latin-1": a character a byte."""
    is_text: bool = False
    """Numbers and booleans may be text."""


def check_column(field: pa.Field, what: str) -> None:
    """`InvalidOption` for a column of which messages have no form."""
    kind = field.type
    if pt.is_list(kind) or pt.is_large_list(kind):
        check_column(kind.value_field, what)
    elif pt.is_struct(kind):
        for inner in kind:
            check_column(inner, what)
    elif _simple(kind, NO_MEANING, Form()) is None:
        raise InvalidOption(f"{what}: column {field.name!r} of type {kind} has no form in messages")


def taker_of(kind: Any, meaning: Meaning, form: Form) -> Take:
    """What makes a value of a message one of a column of type `kind`; null stays null."""
    if pt.is_list(kind) or pt.is_large_list(kind):
        take = _list_taker(taker_of(kind.value_type, meaning.items or NO_MEANING, form))
    elif pt.is_struct(kind):
        take = _struct_taker({one.name: taker_of(one.type, meaning.of(one.name), form) for one in kind})
    else:
        simple = _simple(kind, meaning, form)
        assert simple is not None, "the column was checked"
        take = simple
    return lambda value: None if value is None else take(value)


def _list_taker(take: Take) -> Take:
    def take_list(value: Any) -> Any:
        if not isinstance(value, list):
            raise _misfit(value, "a list")
        return [take(one) for one in value]

    return take_list


def _struct_taker(takes: dict[str, Take]) -> Take:
    def take_struct(value: Any) -> Any:
        if not isinstance(value, dict):
            raise _misfit(value, "an object")
        return {name: take(value.get(name)) for name, take in takes.items()}

    return take_struct


def _simple(kind: Any, meaning: Meaning, form: Form) -> Take | None:
    if pt.is_boolean(kind):
        return lambda value: _boolean(value, form)
    if pt.is_integer(kind):
        return lambda value: _integer(value, meaning, form)
    if pt.is_floating(kind):
        return lambda value: _floating(value, meaning, form)
    if pt.is_string(kind) or pt.is_large_string(kind):
        return _string
    if pt.is_binary(kind) or pt.is_large_binary(kind) or pt.is_fixed_size_binary(kind):
        return lambda value: _binary(value, form)
    if pt.is_decimal(kind):
        return lambda value: _decimal(value, meaning, form, kind.scale)
    if pt.is_date32(kind):
        return lambda value: _days(value, meaning)
    if pt.is_date64(kind):
        return lambda value: _days(value, meaning) * _DAY_SECONDS * 1000
    if pt.is_timestamp(kind):
        return lambda value: _in_unit(_timestamp(value, meaning, kind.unit), kind.unit, value)
    if pt.is_time(kind):
        return lambda value: _in_unit(_clock(value, meaning, kind.unit), kind.unit, value)
    if pt.is_duration(kind):
        return lambda value: _in_unit(_counted(value, meaning, "duration", kind.unit), kind.unit, value)
    return None


def _boolean(value: Any, form: Form) -> bool:
    if isinstance(value, bool):
        return value
    # MySQL's booleans are numbers.
    if type(value) is int and value in (0, 1):
        return bool(value)
    if form.is_text and isinstance(value, str) and value.lower() in _WORDS:
        return _WORDS[value.lower()]
    raise _misfit(value, "a boolean")


def _integer(value: Any, meaning: Meaning, form: Form) -> int:
    if type(value) is int:
        return value
    if meaning.is_decimal:
        number = _decimal(value, meaning, form, 0)
        if number == number.to_integral_value():
            return int(number)
    elif form.is_text and isinstance(value, str) and _INTEGER.fullmatch(value):
        return int(value)
    raise _misfit(value, "an integer")


def _floating(value: Any, meaning: Meaning, form: Form) -> float:
    if isinstance(value, float | Decimal):
        return float(value)
    if type(value) is int:
        if abs(value) < 1 << 1023 and int(found := float(value)) == value:
            return found
    elif meaning.is_decimal:
        return float(_decimal(value, meaning, form, 0))
    elif isinstance(value, str):
        is_number = form.is_text and len(value) <= DIGITS_MAX and _NUMBER.fullmatch(value)
        if value in _NO_NUMBERS or is_number:
            return float(value)
    raise _misfit(value, "a number")


def _string(value: Any) -> str:
    if not isinstance(value, str):
        raise _misfit(value, "text")
    return value


def _binary(value: Any, form: Form) -> bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        try:
            return base64.b64decode(value, validate=True) if form.binary == "base64" else value.encode("latin-1")
        except (binascii.Error, ValueError):
            pass
    raise _misfit(value, f"bytes as {form.binary}")


def _decimal(value: Any, meaning: Meaning, form: Form, scale: int) -> Decimal:
    number: Any = value
    if isinstance(value, dict) and value.keys() >= {"scale", "value"}:
        # Each says its scale.
        scale, number = value["scale"], value["value"]
        if type(scale) is not int or abs(scale) > DIGITS_MAX:
            raise _misfit(value, "a decimal")
        number = _unscaled(number, scale)
    elif isinstance(value, bytes) or (isinstance(value, str) and (meaning.is_decimal or form.decimals == "base64")):
        number = _unscaled(value, scale if meaning.scale is None else meaning.scale)
    elif isinstance(value, float):
        number = repr(value)
    elif isinstance(value, bool) or not isinstance(value, int | str | Decimal):
        raise _misfit(value, "a decimal")
    if isinstance(number, str) and (len(number) > DIGITS_MAX or not _NUMBER.fullmatch(number)):
        raise _misfit(value, "a decimal")
    try:
        found = Decimal(number)
    except InvalidOperation:
        raise _misfit(value, "a decimal") from None
    if not found.is_finite() or abs(found.adjusted()) > DIGITS_MAX:
        raise _misfit(value, "a decimal")
    return found


def _unscaled(value: Any, scale: int) -> Decimal:
    number = int.from_bytes(_binary(value, Form()), "big", signed=True)
    if number.bit_length() > 4 * DIGITS_MAX:
        raise _misfit(value, "a decimal")
    digits = tuple(map(int, str(abs(number))))
    return Decimal((int(number < 0), digits, -scale))


# --- Times -----------------------------------------------------------------------------------------------------------


def _days(value: Any, meaning: Meaning) -> int:
    if type(value) is int:
        if meaning.name and meaning.time != ("date", "day"):
            raise Misread(f"{value} is {meaning.name}; expected a date")
        return value
    if isinstance(value, str):
        try:
            return date.fromisoformat(value.removesuffix("Z")).toordinal() - _EPOCH
        except ValueError:
            pass
    raise _misfit(value, "a date")


def _counted(value: Any, meaning: Meaning, kind: str, unit: str) -> int:
    """Nanoseconds of a number, by what it means, or else in the unit of the column."""
    if type(value) is not int:
        raise _misfit(value, f"a {kind}")
    found = meaning.time
    if meaning.name and (found is None or found[0] != kind):
        raise Misread(f"{value} is {meaning.name}; expected a {kind}")
    return value * _NANOSECONDS[found[1] if found is not None else unit]


def _timestamp(value: Any, meaning: Meaning, unit: str) -> int:
    """Nanoseconds since 1970."""
    if not isinstance(value, str):
        return _counted(value, meaning, "timestamp", unit)
    found = _TIMESTAMP.fullmatch(value)
    if found is None:
        raise _misfit(value, "a timestamp")
    year, month, day, *clock, zone = found.groups()
    try:
        days = date(int(year), int(month), int(day)).toordinal() - _EPOCH
    except ValueError:
        raise _misfit(value, "a timestamp") from None
    return days * _DAY_SECONDS * 10**9 + _of_day(clock, value) - _offset(zone) * 10**9


def _clock(value: Any, meaning: Meaning, unit: str) -> int:
    """Nanoseconds since midnight."""
    if isinstance(value, str):
        found = _CLOCK.fullmatch(value)
        if found is None:
            raise _misfit(value, "a time of a day")
        *clock, zone = found.groups()
        nanoseconds = (_of_day(clock, value) - _offset(zone) * 10**9) % (_DAY_SECONDS * 10**9)
    else:
        nanoseconds = _counted(value, meaning, "time", unit)
    if not 0 <= nanoseconds < _DAY_SECONDS * 10**9:
        raise _misfit(value, "a time of a day")
    return nanoseconds


def _of_day(clock: list[str | None], value: str) -> int:
    hour, minute, second, fraction = (one or "0" for one in clock)
    if int(hour) > 23 or int(minute) > 59 or int(second) > 59:
        raise _misfit(value, "a time")
    return (int(hour) * 3600 + int(minute) * 60 + int(second)) * 10**9 + int(fraction.ljust(9, "0"))


def _offset(zone: str | None) -> int:
    """Seconds east of UTC."""
    if not zone or zone == "Z":
        return 0
    digits = zone[1:].replace(":", "").ljust(4, "0")
    seconds = int(digits[:2]) * 3600 + int(digits[2:]) * 60
    return -seconds if zone[0] == "-" else seconds


def _in_unit(nanoseconds: int, unit: str, value: Any) -> int:
    found, rest = divmod(nanoseconds, _NANOSECONDS[unit])
    if rest:
        raise Misread(f"{value!r:.100} is finer than the column, which counts in {unit}")
    return found


def _misfit(value: Any, expected: str) -> Misread:
    return Misread(f"{value!r:.100} is not {expected}")
