"""Types that a key column can have, with some values of each: its ends, close ones, and those that differ little."""

import datetime as dt
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

MOMENTS = [
    dt.datetime(1969, 12, 31, 23, 59, 59),
    dt.datetime(1970, 1, 1),
    dt.datetime(2020, 10, 25, 0, 30),
    dt.datetime(2020, 10, 25, 1, 30),
    dt.datetime(2020, 10, 25, 2),
    dt.datetime(2100, 1, 1),
]
FLOATS = [float("-inf"), -1.5, -0.0, 0.0, 0.1, 1.0, 2.0, 16777216.0, 1e30, float("inf"), float("nan")]
TEXTS = ["", "a", "a\0", "ab", "b", "ba\U0010ffff", "\ud7ff", "\ue000", "\U0010ffff"]


def numbers(kind: Any) -> list[int]:
    low, high = (-(1 << (kind.bit_width - 1)), (1 << (kind.bit_width - 1)) - 1)
    if not pt.is_signed_integer(kind):
        low, high = 0, (1 << kind.bit_width) - 1
    return [value for value in (low, low + 1, -1, 0, 1, 2, 100, 1 << 53, high // 2 + 1, high - 1, high) if value >= low]


def values_of(kind: Any) -> list[Any]:
    """Some values of the type: its ends, and close ones."""
    if pt.is_boolean(kind):
        return [False, True]
    if pt.is_integer(kind):
        return [value for value in numbers(kind) if value <= numbers(kind)[-1]]
    if pt.is_floating(kind):
        return FLOATS if kind.bit_width == 64 else [float(np.float32(value)) for value in FLOATS]
    if pt.is_decimal(kind):
        return [Decimal(text).scaleb(-kind.scale) for text in ("-99999", "-1", "0", "1", "150", "99999")]
    if pt.is_string(kind) or pt.is_large_string(kind):
        return TEXTS
    if pt.is_binary(kind) or pt.is_large_binary(kind):
        return [b"", b"\0", b"\0\xff", b"a", b"ab", b"\xff", b"\xff\xff"]
    if pt.is_date(kind):
        return [moment.date() for moment in MOMENTS]
    if pt.is_time(kind):
        return [dt.time(0), dt.time(0, 0, 1), dt.time(12), dt.time(23, 59, 59)]
    if pt.is_duration(kind):
        return [dt.timedelta(seconds=value) for value in (-1, 0, 1, 86_400)]
    assert pt.is_timestamp(kind)
    return [moment.replace(tzinfo=dt.UTC) if kind.tz else moment for moment in MOMENTS]


KINDS: list[Any] = [
    *(pa.int8(), pa.int32(), pa.int64(), pa.uint8(), pa.uint32(), pa.uint64(), pa.bool_()),
    *(pa.float32(), pa.float64(), pa.decimal128(5, 2), pa.decimal128(38, 5), pa.decimal128(20, -2)),
    *(pa.string(), pa.large_string(), pa.binary(), pa.large_binary()),
    *(pa.date32(), pa.date64(), pa.time32("s"), pa.time64("us"), pa.time64("ns"), pa.duration("s"), pa.duration("ns")),
    *(pa.timestamp("s"), pa.timestamp("us"), pa.timestamp("ns"), pa.timestamp("ms", "UTC")),
    pa.timestamp("us", "Europe/Berlin"),
]
GROUPS = [
    [kind for kind in KINDS if pt.is_integer(kind) or pt.is_floating(kind) or pt.is_decimal(kind)],
    [kind for kind in KINDS if pt.is_string(kind) or pt.is_large_string(kind)],
    [kind for kind in KINDS if pt.is_binary(kind) or pt.is_large_binary(kind)],
    [kind for kind in KINDS if pt.is_timestamp(kind) or pt.is_date(kind)],
    [kind for kind in KINDS if pt.is_time(kind)],
    [kind for kind in KINDS if pt.is_duration(kind)],
    [pa.bool_()],
]
