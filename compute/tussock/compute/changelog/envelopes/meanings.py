"""What the numbers and bytes of a message mean: a unit of time, the scale of a decimal; by its schema, if it has one.

Kafka Connect names it ("io.debezium.time.MicroTimestamp"), Avro has logical types ("timestamp-micros").
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

__all__ = ["NO_MEANING", "Meaning", "Misread", "connect_meaning"]

DEPTH_MAX = 32
"""Of types within types."""

_TEMPORAL = {
    "io.debezium.time.Date": ("date", "day"),
    "org.apache.kafka.connect.data.Date": ("date", "day"),
    "date": ("date", "day"),
    "io.debezium.time.Time": ("time", "ms"),
    "org.apache.kafka.connect.data.Time": ("time", "ms"),
    "time-millis": ("time", "ms"),
    "io.debezium.time.MicroTime": ("time", "us"),
    "time-micros": ("time", "us"),
    "io.debezium.time.NanoTime": ("time", "ns"),
    "io.debezium.time.Timestamp": ("timestamp", "ms"),
    "org.apache.kafka.connect.data.Timestamp": ("timestamp", "ms"),
    "timestamp-millis": ("timestamp", "ms"),
    "local-timestamp-millis": ("timestamp", "ms"),
    "io.debezium.time.MicroTimestamp": ("timestamp", "us"),
    "timestamp-micros": ("timestamp", "us"),
    "local-timestamp-micros": ("timestamp", "us"),
    "io.debezium.time.NanoTimestamp": ("timestamp", "ns"),
    "timestamp-nanos": ("timestamp", "ns"),
    "local-timestamp-nanos": ("timestamp", "ns"),
    "io.debezium.time.MicroDuration": ("duration", "us"),
    "io.debezium.time.NanoDuration": ("duration", "ns"),
}
_DECIMAL = ("org.apache.kafka.connect.data.Decimal", "decimal")


class Misread(Exception):
    """A message, or a value in it, is not what it should be; the text says why."""


class Meaning(NamedTuple):
    """Of one value."""

    name: str = ""
    """Empty: nothing is said."""
    scale: int | None = None
    """Of a decimal as bytes, the digits behind the point."""
    items: "Meaning | None" = None
    """Of the values of a list."""
    fields: "Mapping[str, Meaning] | None" = None
    """Of those of a struct."""

    @property
    def time(self) -> tuple[str, str] | None:
        """Kind and unit of a time; `None` for anything else."""
        return _TEMPORAL.get(self.name)

    @property
    def is_decimal(self) -> bool:
        """Whether bytes are a number in two's complement, whose point is at `scale`."""
        return self.name in _DECIMAL

    def of(self, field: str) -> "Meaning":
        """Of a field of a struct."""
        return (self.fields or {}).get(field, NO_MEANING)


NO_MEANING = Meaning()


def connect_meaning(schema: Any, depth: int = 0) -> Meaning:
    """Of a schema of Kafka Connect as JSON; `Misread` if it is none."""
    if depth > DEPTH_MAX:
        raise Misread(f"its schema nests more than {DEPTH_MAX} deep")
    if schema is None:
        return NO_MEANING
    if not isinstance(schema, dict):
        raise Misread(f"its schema has {schema!r:.100} for a type")
    name = schema.get("name") or ""
    kind = schema.get("type")
    if kind == "struct":
        fields = schema.get("fields")
        if not isinstance(fields, list) or not all(isinstance(one, dict) for one in fields):
            raise Misread(f"its schema has a struct without fields: {schema!r:.100}")
        inner = {str(one.get("field")): connect_meaning(one, depth + 1) for one in fields}
        return Meaning(str(name), None, None, inner)
    if kind == "array":
        return Meaning(str(name), None, connect_meaning(schema.get("items"), depth + 1))
    parameters = schema.get("parameters")
    return Meaning(str(name), scale_of(parameters.get("scale") if isinstance(parameters, dict) else None))


def scale_of(given: Any) -> int | None:
    """The scale of a decimal, as a schema has it."""
    if given is None:
        return None
    try:
        scale = int(given)
    except (TypeError, ValueError):
        raise Misread(f"its schema has a decimal of scale {given!r:.100}") from None
    if not -100 <= scale <= 100:
        raise Misread(f"its schema has a decimal of scale {scale}; expected -100 to 100")
    return scale
