"""Bytes and typed values between command line, screen and JSON."""

import json
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st

from tussock.cli.output import bytes_text, epoch_text, epoch_time, plural
from tussock.cli.values import as_json, as_text, batch_rows, parse_bytes, parse_key
from tussock.statestore.contract.records import TableSpec
from tussock.statestore.epochs import next_epoch


@given(st.binary(max_size=12) | st.text(max_size=6).map(str.encode))
def test_shown_bytes_can_be_typed_in_again(value: bytes) -> None:
    """The text that a command shows for a key is accepted as that key."""
    assert parse_bytes(as_text(value)) == value


@given(st.binary(max_size=12))
def test_bytes_in_json_are_unambiguous(value: bytes) -> None:
    """A string is the text of the bytes, an object holds their hex digits."""
    found = json.loads(json.dumps(as_json(value)))
    assert (found.encode() if isinstance(found, str) else bytes.fromhex(found["hex"])) == value


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (pa.int64(), "-5", -5),
        (pa.float64(), "1.5", 1.5),
        (pa.bool_(), "true", True),
        (pa.bool_(), "0", False),
        (pa.string(), "hex:00", "hex:00"),
        (pa.binary(), "hex:00", b"\0"),
        (pa.decimal128(10, 2), "1.25", Decimal("1.25")),
        (pa.date32(), "2026-01-31", date(2026, 1, 31)),
        (pa.time64("us"), "12:30", time(12, 30)),
        (pa.duration("s"), "90", timedelta(seconds=90)),
        (pa.timestamp("us"), "2026-01-31T12:00", datetime(2026, 1, 31, 12)),
        (pa.timestamp("us", "UTC"), "2026-01-31T12:00", datetime(2026, 1, 31, 12, tzinfo=UTC)),
        (pa.timestamp("us", "UTC"), "2026-01-31T12:00+02:00", datetime(2026, 1, 31, 10, tzinfo=UTC)),
    ],
)
def test_a_key_value_is_parsed_as_its_column(kind: pa.DataType, text: str, value: Any) -> None:
    """Each type of key column takes its text."""
    assert parse_key(spec_of(kind), [text]) == (value,)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (pa.int64(), "1.5"),
        (pa.bool_(), "maybe"),
        (pa.date32(), "31.1."),
        (pa.decimal128(5, 2), "x"),
        (pa.time64("us"), "?"),
    ],
)
def test_a_wrong_key_value_names_the_column(kind: pa.DataType, text: str) -> None:
    """The refusal says column, type and text."""
    with pytest.raises(typer.BadParameter, match=f"'k' is of type .*{text}"):
        parse_key(spec_of(kind), [text])


def spec_of(kind: pa.DataType) -> TableSpec:
    """A table whose key is one column `k`."""
    schema = pa.schema([("k", kind)])
    return TableSpec(
        id=1, name="t", schema=schema.serialize().to_pybytes(), primary_key=("k",), distribution_key=("k",)
    )


def test_json_has_every_value() -> None:
    """Values that JSON does not know become strings, without losing a digit."""
    row = {
        "nan": float("nan"),
        "low": float("-inf"),
        "money": Decimal("1.10"),
        "list": [b"a", b"\xff"],
        "at": datetime(2026, 1, 1, tzinfo=UTC),
        "none": None,
    }
    assert as_json(row) == {
        "nan": "NaN",
        "low": "-Infinity",
        "money": "1.10",
        "list": ["a", {"hex": "ff"}],
        "at": "2026-01-01T00:00:00Z",
        "none": None,
    }


def test_nanoseconds_are_kept() -> None:
    """A time with nanoseconds, which Python's own types cannot hold, is shown whole."""
    batch = pa.record_batch([pa.array([1], pa.timestamp("ns"))], names=["at"])
    assert batch_rows(batch) == [{"at": "1970-01-01 00:00:00.000000001"}]


def test_numbers_are_shown_readably() -> None:
    """Sizes, counts and epochs as they are printed."""
    assert [bytes_text(size) for size in (0, 1023, 1536, 5 << 30)] == ["0 B", "1023 B", "1.5 KiB", "5.0 GiB"]
    assert [plural(1, "entry"), plural(2, "entry"), plural(1000, "row")] == ["1 entry", "2 entries", "1,000 rows"]
    epoch = next_epoch(1_767_225_600_000, 0)
    assert epoch_text(epoch) == f"{epoch} (2026-01-01T00:00:00.000Z)"
    assert (epoch_time(7), epoch_text(7)) == (None, "7")
