"""Values that JSON lacks as its text or arrays, with all digits: also those that no class of Python holds."""

import re
from typing import Any

import msgspec
import pyarrow as pa

from tussock.statestore.rows.python_values import BAD_VALUE, array_of, plain_parts

__all__ = ["exact_time", "json_part"]

_DIGITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}
_BELOW_MICROSECONDS = re.compile(r"[.,]\d{6}(\d+)")


def json_part(value: Any) -> Any:
    """For msgspec's `enc_hook`: times as ISO 8601, and as text what else it does not know.

    Without pandas a time in nanoseconds is a scalar of Arrow, and one of a day always is.
    """
    if isinstance(value, pa.Scalar):
        parts = plain_parts(value)
        return _text(value) if parts is value else parts
    # Of pandas, whose classes msgspec does not know.
    told = getattr(value, "isoformat", None)
    return str(value) if told is None else told()


def exact_time(text: str, kind: Any, python: type) -> Any:
    """A time, a time of a day, or a duration of ISO 8601 as a value of class `python`, or as Arrow's scalar of `kind`.

    The latter if it has digits below a microsecond, which Python's classes round. Raises `ValueError` if the type does
    not hold them all, or the text is no such time.
    """
    found = _BELOW_MICROSECONDS.search(text)
    digits = "" if found is None else found[1].rstrip("0")
    try:
        if found is None or not digits:
            return msgspec.convert(text, python)
        whole: Any = msgspec.convert(text[: found.start(1)] + text[found.end(1) :], python)
        if kind.unit != "ns" or len(digits) > 3:
            raise ValueError("it has more digits")
        below = int(digits.ljust(3, "0")) * (-1 if text.startswith("-") else 1)
        count = array_of([whole], kind).cast(pa.int64())[0].as_py() + below
        return pa.scalar(count, pa.int64()).cast(kind)
    except (*BAD_VALUE, msgspec.ValidationError) as error:
        raise ValueError(f"{text!r:.100} is no {kind}: {error}") from error


def _text(scalar: Any) -> str:
    kind = scalar.type
    if pa.types.is_duration(kind):
        count, digits = scalar.cast(pa.int64()).as_py(), _DIGITS[kind.unit]
        seconds, parts = divmod(abs(count), 10**digits)
        return f"{'-' if count < 0 else ''}PT{seconds}{f'.{parts:0{digits}}' if parts else ''}S"
    text = str(scalar.cast(pa.string()).as_py())
    return text.replace(" ", "T", 1) if pa.types.is_timestamp(kind) and text[:1] != "<" else text
