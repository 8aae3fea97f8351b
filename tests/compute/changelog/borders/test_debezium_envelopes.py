"""Debezium's messages: each change by key, so that one that comes again is harmless; types by their schema."""

import base64
import datetime as dt
import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from support.changelog.fed_files import Fed, feed_lines
from tussock.compute import changelog as cl
from tussock.statestore import InvalidOption, StateStore

ITEM = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string()), ("count", pa.int32())])


def event(op: str, after: Any = None, before: Any = None, **more: Any) -> dict[str, Any]:
    source = {"connector": "postgresql", "name": "shop", "table": "items", "snapshot": "false", "ts_ms": 1}
    return {"before": before, "after": after, "source": source, "op": op, "ts_ms": 2, "transaction": None, **more}


def item(number: int, name: str | None, count: int | None = 1) -> dict[str, Any]:
    return {"id": number, "name": name, "count": count}


def with_schema(payload: dict[str, Any], fields: list[dict[str, Any]]) -> dict[str, Any]:
    row = {"type": "struct", "fields": fields, "optional": True, "name": "shop.items.Value"}
    envelope = [{**row, "field": "before"}, {**row, "field": "after"}, {"type": "string", "field": "op"}]
    return {"schema": {"type": "struct", "fields": envelope, "name": "shop.items.Envelope"}, "payload": payload}


def fed(store: StateStore, tmp_path: Path, *messages: Any, schema: pa.Schema = ITEM, **options: Any) -> Fed:
    return feed_lines(store, tmp_path / "in", messages, schema, format="debezium-json", **options)


HISTORY = [
    event("r", item(1, "nail")),
    event("c", item(2, "saw")),
    event("u", item(1, "screw", 5), item(1, "nail")),
    event("u", item(2, "axe")),
    event("d", None, item(2, "axe")),
    event("c", item(3, None, None)),
]


def test_each_operation_does_what_it_says(store: StateStore, tmp_path: Path) -> None:
    found = fed(store, tmp_path, *HISTORY, batch_rows=1)
    assert found.rows == [item(1, "screw", 5), item(3, None, None)]
    assert found.letters == []
    assert [[str(one.op) for one in each] for each in found.published] == [
        ["INSERT"],
        ["INSERT"],
        ["UPDATE_BLOCK"],
        ["UPDATE_BLOCK"],
        ["DELETE"],
        ["INSERT"],
    ]


def test_messages_that_come_again_and_another_snapshot_change_nothing(store: StateStore, tmp_path: Path) -> None:
    """Debezium tells everything at least once."""
    again = [event("r", item(1, "screw", 5)), event("r", item(3, None, None))]
    found = fed(store, tmp_path, *HISTORY, *HISTORY[3:], *again)
    assert found.rows == [item(1, "screw", 5), item(3, None, None)]
    assert found.letters == []


def test_an_update_that_changes_the_key_moves_the_row(store: StateStore, tmp_path: Path) -> None:
    found = fed(store, tmp_path, event("c", item(1, "nail")), event("u", item(9, "nail"), item(1, "nail")))
    assert found.rows == [item(9, "nail")]


def test_of_a_deleted_row_the_key_is_enough(store: StateStore, tmp_path: Path) -> None:
    """Without REPLICA IDENTITY FULL the other columns are null, or made up."""
    odd = {"id": 1, "name": None, "count": "made up"}
    found = fed(store, tmp_path, event("c", item(1, "nail")), event("d", None, odd))
    assert found.rows == found.letters == []


def test_a_value_that_was_not_told_is_that_of_before(store: StateStore, tmp_path: Path) -> None:
    """A large value of PostgreSQL that an update has left alone; without `before` it cannot be known."""
    absent = "__debezium_unavailable_value"
    found = fed(
        store,
        tmp_path,
        event("c", item(1, "long")),
        event("u", item(1, absent, 2), item(1, "long")),
        event("c", item(2, "kept")),
        event("u", item(2, absent, 2)),
    )
    assert found.rows == [item(1, "long", 2), item(2, "kept")]
    (letter,) = found.letters
    assert letter["cause"].endswith("as the update has left it as it was: let the table have REPLICA IDENTITY FULL")


@pytest.mark.parametrize(
    ("message", "cause"),
    [
        (b"{", "it is no JSON"),
        (b"\x00\x00\x00\x00\x01abc", "begins with a zero"),
        (b"[" * 100_000, "it is no JSON"),
        (b"17", "it has no `op`"),
        ({"id": 1}, "it has no `op`"),
        (event("x", item(1, "a")), "its op is 'x'"),
        (event("t"), "the table was truncated"),
        (event("c"), "None is no object of columns"),
        (event("c", [1]), "[1] is no object of columns"),
        (event("c", {"name": "a"}), "column 'id' is missing"),
        (event("c", {"id": None}), "column 'id' is null"),
        (event("c", item("1", "a")), "column 'id': '1' is not an integer"),  # type: ignore[arg-type]
        (event("c", item(1, 7)), "column 'name': 7 is not text"),  # type: ignore[arg-type]
        (event("c", item(1, {"deep": [1]})), "is not text"),  # type: ignore[arg-type]
        (event("c", item(1, "a", 1 << 40)), "ArrowInvalid"),
        (b'{"op":"c","after":{"id":1e999999999}}', "is not an integer"),
        (b'{"op":"c","after":{"id":' + b"9" * 5000 + b"}}", "it is no JSON"),
        (b'{"op":"c","after":{"id":1,"name":"\\ud800"}}', "it is no JSON"),
        (event("d"), "neither `before` nor the message's key"),
        (event("d", None, {"name": "a"}), "neither `before` nor the message's key"),
        ({"schema": {"type": "struct", "fields": 7}, "payload": event("c", item(1, "a"))}, "a struct without fields"),
        ({"schema": 3, "payload": event("c", item(1, "a"))}, "its schema has 3 for a type"),
    ],
)
def test_what_is_no_change_is_a_dead_letter_and_the_rest_goes_on(
    store: StateStore, tmp_path: Path, message: Any, cause: str
) -> None:
    """Whatever it is; with its place, and the bytes."""
    found = fed(store, tmp_path, event("c", item(8, "a")), message, event("c", item(9, "b")))
    assert found.rows == [item(8, "a"), item(9, "b")]
    (letter,) = found.letters
    assert cause in letter["cause"]
    assert letter["feed"] == "fed"
    assert letter["origin"] == "000.jsonl:000000002"
    assert not isinstance(message, bytes) or letter["data"] == message


def test_a_bad_message_stops_the_flow_if_that_is_said(store: StateStore, tmp_path: Path) -> None:
    """Nothing of its batch is used, and the next start meets it again."""
    for _ in range(2):
        with pytest.raises(cl.BadInput, match=r"000\.jsonl:000000002 .* is no change: its op is 'x'"):
            fed(store, tmp_path, event("c", item(1, "a")), event("x"), on_bad="stop")
        assert not [row for batch in store.table("fed").read() for row in batch.to_pylist()]


def unscaled(number: int) -> str:
    return base64.b64encode(number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True)).decode()


DECIMAL = {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "2"}}
NOON = dt.datetime(2024, 2, 29, 12, 0, 0, 5000)
NOON_MICROS = 1_709_208_000_005_000


def time(name: str) -> dict[str, Any]:
    return {"type": "int64", "name": f"io.debezium.time.{name}"}


TYPES = [
    (DECIMAL, unscaled(-12345), pa.decimal128(9, 2), Decimal("-123.45")),
    (DECIMAL, unscaled(500), pa.decimal128(9, 1), Decimal("5.0")),
    ({"type": "double"}, 1.25, pa.decimal128(9, 2), Decimal("1.25")),
    (
        {"type": "struct", "name": "io.debezium.data.VariableScaleDecimal", "fields": []},
        {"scale": 3, "value": unscaled(1500)},
        pa.decimal128(9, 3),
        Decimal("1.500"),
    ),
    ({**DECIMAL, "parameters": {"scale": "0"}}, unscaled(2**63), pa.uint64(), 2**63),
    (time("Date"), 19782, pa.date32(), dt.date(2024, 2, 29)),
    (time("Timestamp"), NOON_MICROS // 1000, pa.timestamp("us"), NOON),
    (time("MicroTimestamp"), NOON_MICROS, pa.timestamp("us"), NOON),
    (time("MicroTimestamp"), NOON_MICROS, pa.timestamp("ms"), NOON),
    (time("NanoTimestamp"), NOON_MICROS * 1000, pa.timestamp("us"), NOON),
    (time("MicroTimestamp"), -1, pa.timestamp("us"), dt.datetime(1969, 12, 31, 23, 59, 59, 999999)),
    (
        {"type": "string", "name": "io.debezium.time.ZonedTimestamp"},
        "2024-02-29T14:00:00.005+02:00",
        pa.timestamp("us", "UTC"),
        NOON.replace(tzinfo=dt.UTC),
    ),
    (time("Time"), 3_723_004, pa.time32("ms"), dt.time(1, 2, 3, 4000)),
    (time("MicroTime"), 3_723_004_005, pa.time64("us"), dt.time(1, 2, 3, 4005)),
    (time("NanoTime"), 3_723_004_005_000, pa.time64("us"), dt.time(1, 2, 3, 4005)),
    ({"type": "string", "name": "io.debezium.time.ZonedTime"}, "01:02:03Z", pa.time32("s"), dt.time(1, 2, 3)),
    (time("MicroDuration"), 90_000_000, pa.duration("s"), dt.timedelta(seconds=90)),
    ({"type": "bytes"}, base64.b64encode(b"\x00\xff").decode(), pa.binary(), b"\x00\xff"),
    ({"type": "int16"}, 1, pa.bool_(), True),
    ({"type": "boolean"}, False, pa.bool_(), False),
    ({"type": "float"}, 0.5, pa.float32(), 0.5),
    ({"type": "double"}, 3, pa.float64(), 3.0),
    ({"type": "double"}, "Infinity", pa.float64(), math.inf),
    ({"type": "string", "name": "io.debezium.data.Json"}, '{"a": 1}', pa.string(), '{"a": 1}'),
    ({"type": "array", "items": time("Date")}, [19782, None], pa.list_(pa.date32()), [dt.date(2024, 2, 29), None]),
]


@pytest.mark.parametrize(("said", "given", "kind", "expected"), TYPES)
def test_a_value_is_what_its_schema_means(
    store: StateStore, tmp_path: Path, said: Any, given: Any, kind: Any, expected: Any
) -> None:
    """Whatever the unit or the scale of the column."""
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", kind)])
    fields = [{"type": "int64", "field": "id"}, {**said, "field": "v", "optional": True}]
    messages = [with_schema(event("c", {"id": at, "v": one}), fields) for at, one in enumerate((given, None))]
    found = fed(store, tmp_path, *messages, schema=schema)
    assert found.letters == []
    assert found.rows == [{"id": 0, "v": expected}, {"id": 1, "v": None}]


@pytest.mark.parametrize(
    ("said", "given", "kind", "cause"),
    [
        (time("MicroTimestamp"), 1, pa.timestamp("ms"), "1 is finer than the column, which counts in ms"),
        (time("Date"), 1, pa.timestamp("ms"), "1 is io.debezium.time.Date; expected a timestamp"),
        (time("MicroTime"), 1, pa.date32(), "1 is io.debezium.time.MicroTime; expected a date"),
        (time("MicroTime"), 86_400_000_000, pa.time64("us"), "is not a time of a day"),
        (DECIMAL, unscaled(12345), pa.decimal128(9, 1), "ArrowInvalid"),
        (DECIMAL, unscaled(10**50), pa.decimal128(9, 2), "ArrowInvalid"),
        (DECIMAL, "!", pa.decimal128(9, 2), "is not bytes as base64"),
        ({**DECIMAL, "parameters": {"scale": "x"}}, unscaled(1), pa.decimal128(9, 2), "a decimal of scale 'x'"),
        ({**DECIMAL, "parameters": {"scale": "9999"}}, unscaled(1), pa.decimal128(9, 2), "expected -100 to 100"),
        ({"type": "string"}, "2024-02-30", pa.date32(), "is not a date"),
        ({"type": "string"}, "2024-02-29T25:00:00Z", pa.timestamp("us"), "is not a time"),
        ({"type": "int64"}, 2, pa.bool_(), "2 is not a boolean"),
        ({"type": "int64"}, (1 << 53) + 1, pa.float64(), "is not a number"),
        ({"type": "string"}, "1.5", pa.float64(), "is not a number"),
    ],
)
def test_a_value_that_would_be_another_one_is_refused(
    store: StateStore, tmp_path: Path, said: Any, given: Any, kind: Any, cause: str
) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", kind)])
    fields = [{"type": "int64", "field": "id"}, {**said, "field": "v"}]
    found = fed(store, tmp_path, with_schema(event("c", {"id": 1, "v": given}), fields), schema=schema)
    assert found.rows == []
    assert cause in found.letters[0]["cause"]


def test_without_a_schema_numbers_count_in_the_unit_of_the_column(store: StateStore, tmp_path: Path) -> None:
    """And decimals are base64, or text where that is said."""
    columns = [("at", pa.timestamp("us")), ("day", pa.date32()), ("sum", pa.decimal128(9, 2))]
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), *columns])
    row = {"id": 1, "at": NOON_MICROS, "day": 19782}
    expected = {"id": 1, "at": NOON, "day": dt.date(2024, 2, 29), "sum": Decimal("12.34")}
    found = fed(store, tmp_path, event("c", {**row, "sum": unscaled(1234)}), schema=schema)
    assert found.rows == [expected]
    found = fed(store, tmp_path, event("c", {**row, "id": 2, "sum": "12.34"}), schema=schema, decimals="text")
    assert found.rows[1] == {**expected, "id": 2}


def test_a_column_that_messages_cannot_have_is_refused(store: StateStore, tmp_path: Path) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.map_(pa.string(), pa.int64()))])
    with pytest.raises(InvalidOption, match=r"column 'v' of type map<string, int64> has no form in messages"):
        fed(store, tmp_path, schema=schema)
