"""Keys and values between bytes, Arrow and text: as typed on a command line, as printed, as JSON.

One notation for bytes, in and out: printable UTF-8 stands for itself, anything else is `hex:` and hex digits (so text
that begins with `hex:` is written that way, too). In JSON what stands for itself is a string, and anything else the
object `{"hex": "00ff"}`. What a terminal would obey or hide (control characters, marks that turn the direction of
writing) is shown escaped: rows, names and comments are data of others.
"""

import base64
import json
import math
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from unicodedata import category

import pyarrow as pa
import typer

from tussock.cli.times import time_parser, time_text
from tussock.statestore.contract.records import TableSpec

__all__ = [
    "argument_value",
    "as_json",
    "as_text",
    "batch_rows",
    "parse_bytes",
    "parse_json",
    "parse_key",
    "parse_moment",
    "safe",
]

HEX = "hex:"
TRUE = ("true", "t", "yes", "1")
FALSE = ("false", "f", "no", "0")


def parse_bytes(text: str) -> bytes:
    """The bytes that `text` or `hex:00ff` stands for; `typer.BadParameter` if the digits are none."""
    if not text.startswith(HEX):
        return text.encode("utf-8", "surrogateescape")
    try:
        return bytes.fromhex(text.removeprefix(HEX))
    except ValueError:
        raise typer.BadParameter(f"{text!r}: expected pairs of hex digits after 'hex:'") from None


def as_text(value: Any) -> str:
    """A value as people read it; bytes in the notation that the command line takes."""
    match value:
        case None:
            return "null"
        case bytes():
            text = _printable(value)
            return text if text is not None and not text.startswith(HEX) else HEX + value.hex()
        case bool():
            return "true" if value else "false"
        case datetime():
            return _iso(value)
        case list() | tuple():
            return "[" + ", ".join(map(as_text, value)) + "]"
        case dict():
            return "{" + ", ".join(f"{safe(str(key))}: {as_text(item)}" for key, item in value.items()) + "}"
        case pa.Scalar():
            return as_text(_plain(value))
        case _:
            return safe(str(value))


def safe(text: str, keep: str = "") -> str:
    """The text without characters that a terminal would obey or hide: these, but for those in `keep`, are escaped."""
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() or letter in keep or category(letter) == "Zs" else _escape(letter)
        for letter in text
    )


def _escape(letter: str) -> str:
    return letter.encode("unicode_escape").decode()


def as_json(value: Any) -> Any:
    """A value as `json` writes it.

    Bytes as the module says; dates and times in ISO 8601; decimals and durations as strings, since a number would
    round them; NaN and the infinities, which JSON has not, as "NaN", "Infinity", "-Infinity".
    """
    match value:
        case bytes():
            text = _printable(value)
            return {"hex": value.hex()} if text is None or text.startswith(HEX) else text
        case float() if not math.isfinite(value):
            return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        case datetime():
            return _iso(value)
        case date() | time():
            return value.isoformat()
        case Decimal() | timedelta():
            return str(value)
        case list() | tuple():
            return [as_json(item) for item in value]
        case pa.Scalar():
            return as_json(_plain(value))
        case dict():
            return {str(key): as_json(item) for key, item in value.items()}
        case _:
            return value


def batch_rows(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """The rows of a batch as Python values, those that Python has no class for as text; text that is none as bytes."""
    columns = [_values(column) for column in batch.columns]
    return [dict(zip(batch.schema.names, row, strict=True)) for row in zip(*columns, strict=True)]


def _values(column: Any) -> list[Any]:
    kind = column.type
    if not _in_nanoseconds(kind):
        try:
            values: list[Any] = column.to_pylist()
            return values
        except (pa.ArrowException, ValueError, OverflowError):
            pass
    return [_plain(value) for value in column]


def _in_nanoseconds(kind: Any) -> bool:
    """Whether some of the type is: its class would then depend on whether pandas is installed."""
    if kind.num_fields:
        return any(_in_nanoseconds(kind.field(at).type) for at in range(kind.num_fields))
    return getattr(kind, "unit", None) == "ns"


def _plain(scalar: Any) -> Any:
    """An Arrow scalar in Python's classes, down to its leaves."""
    kind = scalar.type
    if not scalar.is_valid:
        return None
    if pa.types.is_dictionary(kind):
        return _plain(scalar.value)
    if pa.types.is_struct(kind):
        return {name: _plain(item) for name, item in scalar.items()}
    if pa.types.is_map(kind):
        return [(_plain(pair["key"]), _plain(pair["value"])) for pair in scalar.values]
    if pa.types.is_list(kind):
        return [_plain(item) for item in scalar.values]
    if pa.types.is_temporal(kind) and not pa.types.is_interval(kind):
        return time_text(scalar)
    try:
        return scalar.as_py()
    except UnicodeDecodeError:
        return scalar.as_buffer().to_pybytes()


def parse_key(spec: TableSpec, texts: Sequence[str], *, whole: bool = True) -> tuple[Any, ...]:
    """The values of a typed table's key columns, in key order, from the command line.

    `whole`: all of them are needed; else any number of leading ones. `typer.BadParameter` says what is wrong.
    """
    expected = " ".join(spec.primary_key)
    if len(texts) > len(spec.primary_key) or (whole and len(texts) < len(spec.primary_key)):
        raise typer.BadParameter(f"table {spec.name!r} has the key {expected}; {len(texts)} values were given")
    schema = spec.arrow_schema()
    return tuple(
        _parse_value(name, schema.field(name).type, text) for name, text in zip(spec.primary_key, texts, strict=False)
    )


def parse_json(name: str, kind: pa.DataType, value: Any) -> Any:
    """A value of a column out of JSON, as `as_json` writes it; `typer.BadParameter` if it is none of the type."""
    if isinstance(value, dict) and list(value) == ["hex"] and isinstance(value["hex"], str):
        return _parse_value(name, kind, f"{HEX}{value['hex']}")
    if isinstance(value, str) and not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        return _parse_value(name, kind, value)
    return value


def parse_moment(text: str) -> datetime:
    """A point of time in ISO 8601; without a zone it is UTC. `typer.BadParameter` if it is none."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is no time in ISO 8601, such as 2026-01-31T12:00:00 (UTC) or 2026-01-31T12:00:00+01:00"
        ) from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _parse_value(name: str, kind: pa.DataType, text: str) -> Any:
    """One value from text."""
    parse = _parser(kind)
    try:
        return parse(text)
    except (ValueError, ArithmeticError):
        raise typer.BadParameter(f"column {name!r} is of type {kind}; {text!r} is no value of it") from None


def _parser(kind: pa.DataType) -> Callable[[str], Any]:
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return parse_bytes
    if pa.types.is_boolean(kind):
        return _boolean
    if pa.types.is_integer(kind):
        return int
    if pa.types.is_floating(kind):
        return _number
    if pa.types.is_decimal(kind):
        return Decimal
    if pa.types.is_temporal(kind):
        return time_parser(kind)
    return str


def _number(text: str) -> float | int:
    """A float, or an integer as itself: of one that the column cannot hold exactly the store says so."""
    try:
        return int(text)
    except ValueError:
        return float(text)


def _boolean(text: str) -> bool:
    if text.lower() in TRUE:
        return True
    if text.lower() in FALSE:
        return False
    raise ValueError(text)


def _printable(value: bytes) -> str | None:
    """The text that the bytes are in UTF-8, if it can be printed on one line."""
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return None
    return text if text.isprintable() else None


def _iso(value: datetime) -> str:
    """ISO 8601; UTC as `Z`."""
    return value.isoformat().removesuffix("+00:00") + "Z" if value.utcoffset() == timedelta(0) else value.isoformat()


def argument_value(text: str) -> Any:
    """An argument: JSON, bytes as `hex:00ff` or `base64:AP8=`, or else text. Text that begins so is given as JSON."""
    form, is_bytes, data = text.partition(":")
    try:
        if is_bytes and form == "hex":
            return bytes.fromhex(data)
        if is_bytes and form == "base64":
            return base64.b64decode(data, validate=True)
    except ValueError as error:
        raise typer.BadParameter(
            f"{text!r:.100} is no bytes: {error}; text that begins so is given as JSON, in double quotes"
        ) from None
    try:
        return json.loads(text)
    except RecursionError:
        raise typer.BadParameter(f"{text[:40]!r}...: lists and dicts nest too deep to be read") from None
    except ValueError:
        return text
