"""Values that JSON lacks as its text or arrays, with all digits: also those that no class of Python holds."""

from typing import Any

import pyarrow as pa

from tussock.statestore.rows.python_values import plain_parts

__all__ = ["json_part"]

_DIGITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}


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


def _text(scalar: Any) -> str:
    kind = scalar.type
    if pa.types.is_duration(kind):
        count, digits = scalar.cast(pa.int64()).as_py(), _DIGITS[kind.unit]
        seconds, parts = divmod(abs(count), 10**digits)
        return f"{'-' if count < 0 else ''}PT{seconds}{f'.{parts:0{digits}}' if parts else ''}S"
    text = str(scalar.cast(pa.string()).as_py())
    return text.replace(" ", "T", 1) if pa.types.is_timestamp(kind) and text[:1] != "<" else text
