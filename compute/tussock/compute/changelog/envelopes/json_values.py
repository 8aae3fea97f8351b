"""Columns as values of JSON, and the schema of Kafka Connect that says what they mean; `values.py` reads them again."""

import base64
import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

__all__ = ["connect_schema", "debezium_values", "plain_values"]

Give = Callable[[pa.Array], list[Any]]

_INTEGERS = {
    pa.int8(): "int8",
    pa.int16(): "int16",
    pa.int32(): "int32",
    pa.int64(): "int64",
    pa.uint8(): "int16",
    pa.uint16(): "int32",
    pa.uint32(): "int64",
}
_STEPS = {"s": "ms", "ms": "ms", "us": "us", "ns": "ns"}
"""Debezium counts in no seconds."""
_TIMESTAMPS = {"ms": "Timestamp", "us": "MicroTimestamp", "ns": "NanoTimestamp"}
_TIMES = {"ms": ("int32", "Time"), "us": ("int64", "MicroTime"), "ns": ("int64", "NanoTime")}


def connect_schema(field: pa.Field, name: str = "field") -> dict[str, Any]:
    """What Kafka Connect says of a column; `name` is the word for its name."""
    kind = field.type
    found: dict[str, Any] = {"optional": field.nullable, name: field.name}
    if pt.is_list(kind) or pt.is_large_list(kind):
        return {"type": "array", "items": connect_schema(kind.value_field), **found}
    if pt.is_struct(kind):
        return {"type": "struct", "fields": [connect_schema(one) for one in kind], **found}
    if pt.is_decimal(kind) or kind == pa.uint64():
        scale = "0" if kind == pa.uint64() else str(kind.scale)
        decimal = "org.apache.kafka.connect.data.Decimal"
        return {"type": "bytes", "name": decimal, "version": 1, "parameters": {"scale": scale}, **found}
    basic, meaning = _basic(kind)
    said = {} if meaning is None else {"name": f"io.debezium.time.{meaning}", "version": 1}
    return {"type": basic, **said, **found}


def _basic(kind: Any) -> tuple[str, str | None]:
    if kind in _INTEGERS:
        return _INTEGERS[kind], None
    if pt.is_boolean(kind):
        return "boolean", None
    if pt.is_floating(kind):
        return ("double" if kind == pa.float64() else "float"), None
    if pt.is_date(kind):
        return "int32", "Date"
    if pt.is_timestamp(kind):
        return ("int64", _TIMESTAMPS[_STEPS[kind.unit]]) if kind.tz is None else ("string", "ZonedTimestamp")
    if pt.is_time(kind):
        return _TIMES[_STEPS[kind.unit]]
    if pt.is_duration(kind):
        return "int64", "NanoDuration" if kind.unit == "ns" else "MicroDuration"
    return (
        "bytes" if pt.is_binary(kind) or pt.is_large_binary(kind) or pt.is_fixed_size_binary(kind) else "string"
    ), None


def debezium_values(array: pa.Array) -> list[Any]:
    """As Debezium has them, by what `connect_schema` says."""
    kind = array.type
    if kind == pa.uint64() or pt.is_decimal(kind):
        return [
            None if one is None else _unscaled(Decimal(one), getattr(kind, "scale", 0)) for one in array.to_pylist()
        ]
    if pt.is_date(kind):
        return _list(array.cast(pa.date32()).cast(pa.int32()))
    if pt.is_timestamp(kind) and kind.tz is None:
        return _list(array.cast(pa.timestamp(_STEPS[kind.unit])).cast(pa.int64()))
    if pt.is_time(kind):
        counted = array.cast(pa.time32("ms")) if kind.unit == "s" else array
        return _list(counted.cast(pa.int32() if pt.is_time32(counted.type) else pa.int64()))
    if pt.is_duration(kind):
        return _list(array.cast(pa.duration("ns" if kind.unit == "ns" else "us")).cast(pa.int64()))
    return _values(array, debezium_values)


def plain_values(array: pa.Array) -> list[Any]:
    """Times as ISO 8601, decimals as text, durations counted in the unit of the column."""
    kind = array.type
    if pt.is_decimal(kind) or pt.is_date(kind) or pt.is_time(kind):
        return _list((array.cast(pa.date32()) if pt.is_date(kind) else array).cast(pa.string()))
    if pt.is_duration(kind):
        return _list(array.cast(pa.int64()))
    if pt.is_timestamp(kind) and kind.tz is None:
        return _iso(array)
    return _values(array, plain_values)


def _values(array: pa.Array, give: Give) -> list[Any]:
    """What is the same in both, and lists and structs of what is not."""
    kind = array.type
    if pt.is_list(kind) or pt.is_large_list(kind):
        inner, found, at = give(array.flatten()), [], 0
        for length in pc.list_value_length(array).to_pylist():
            found.append(None if length is None else inner[at : at + length])
            at += length or 0
        return found
    if pt.is_struct(kind):
        columns = [give(one) for one in array.flatten()]
        names = [one.name for one in kind]
        rows = [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
        return [row if is_there else None for row, is_there in zip(rows, _list(array.is_valid()), strict=True)]
    if pt.is_timestamp(kind):
        return [None if one is None else f"{one}Z" for one in _iso(array.cast(pa.timestamp(kind.unit)))]
    if pt.is_floating(kind):
        return [_number(one) for one in array.to_pylist()]
    if pt.is_binary(kind) or pt.is_large_binary(kind) or pt.is_fixed_size_binary(kind):
        return [None if one is None else base64.b64encode(one).decode() for one in array.to_pylist()]
    return _list(array)


def _iso(array: pa.Array) -> list[Any]:
    return _list(pc.replace_substring(array.cast(pa.string()), " ", "T"))


def _number(value: float | None) -> Any:
    if value is None or math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _unscaled(value: Decimal, scale: int) -> str:
    number = int(value.scaleb(scale)) if scale else int(value)
    return base64.b64encode(number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True)).decode()


def _list(array: pa.Array) -> list[Any]:
    found: list[Any] = array.to_pylist()
    return found
