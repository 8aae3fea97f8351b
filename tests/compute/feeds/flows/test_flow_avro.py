"""Avro from a topic: schemas by a registry or given, as they evolve; and what is none."""

import datetime as dt
import io
import json
import re
import struct
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from support.changelog.fed_files import rows_in_order
from support.feeds.broker import KafkaBroker
from support.feeds.schema_registry import RegistryServer, registry_server
from support.waiting import eventually
from tussock.compute import changelog as cl
from tussock.statestore import InvalidOption, StateStore

fastavro = pytest.importorskip("fastavro")

ITEM = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string()), ("count", pa.int32())])
FIELDS = [
    {"name": "id", "type": "long"},
    {"name": "name", "type": ["null", "string"], "default": None},
    {"name": "count", "type": ["null", "int"], "default": None},
]
ROW = {"type": "record", "name": "Value", "namespace": "shop.items", "fields": FIELDS}
ENVELOPE = {
    "type": "record",
    "name": "Envelope",
    "namespace": "shop.items",
    "fields": [
        {"name": "before", "type": ["null", ROW], "default": None},
        {"name": "after", "type": ["null", "Value"], "default": None},
        {"name": "op", "type": "string"},
    ],
}
KEY = {"type": "record", "name": "Key", "namespace": "shop.items", "fields": [{"name": "id", "type": "long"}]}


@pytest.fixture
def registry() -> Iterator[RegistryServer]:
    with registry_server() as server:
        yield server


def encoded(number: int, schema: Any, value: Any) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), value)
    return struct.pack(">bI", 0, number) + stream.getvalue()


def item(number: int, name: str | None = "nail", count: int | None = 1) -> dict[str, Any]:
    return {"id": number, "name": name, "count": count}


def feed_of(kafka: KafkaBroker, topic: str, registry: Any, kind: Any = "avro", **options: Any) -> cl.KafkaChanges:
    given = cl.SchemaRegistry(registry.url) if isinstance(registry, RegistryServer) else registry
    return cl.KafkaChanges(kafka.servers, topic, format=kind, registry=given, **{"on_bad": "skip", **options})


def flow_of(store: StateStore, feed: Any, schema: pa.Schema = ITEM) -> tuple[cl.Stream, cl.Flow]:
    stream = cl.Stream(store, "fed", schema=schema, key=["id"])
    flow = cl.Flow(store, [stream])
    flow.feed(stream, feed)
    return stream, flow


def run(store: StateStore, feed: Any, schema: pa.Schema = ITEM) -> list[dict[str, Any]]:
    with flow_of(store, feed, schema)[1] as flow:
        flow.drain(60)
    return rows_in_order(store, "fed")


def causes(store: StateStore) -> list[str]:
    return [letter["cause"] for letter in rows_in_order(store, "fed.dead_letters")]


def test_debezium_with_a_registry(store: StateStore, kafka: KafkaBroker, registry: RegistryServer) -> None:
    """Keys and values have different schemas; each is asked for once."""
    registry.register(1, KEY)
    registry.register(2, ENVELOPE)
    topic = kafka.topic()

    def message(op: str, number: int, after: Any = None, before: Any = None) -> tuple[bytes, bytes]:
        return encoded(1, KEY, {"id": number}), encoded(2, ENVELOPE, {"op": op, "before": before, "after": after})

    kafka.put_keyed(
        topic,
        [
            message("r", 1, item(1)),
            message("c", 2, item(2)),
            message("u", 1, item(1, None, 7), item(1)),
            message("d", 2),
            (encoded(1, KEY, {"id": 2}), None),
        ],
    )
    assert run(store, feed_of(kafka, topic, registry, "debezium-avro")) == [item(1, None, 7)]
    assert causes(store) == []
    assert sorted(registry.asked) == ["/schemas/ids/1", "/schemas/ids/2"]


def test_plain_rows_may_say_what_is_done(store: StateStore, kafka: KafkaBroker) -> None:
    """With the schemas that the program gives."""
    schema = {**ROW, "fields": [{"name": "_op", "type": "string"}, *FIELDS]}
    topic = kafka.topic()
    values = [encoded(7, ROW, item(1)), encoded(8, schema, {"_op": "INSERT", **item(2)})]
    kafka.put(topic, [*values, encoded(8, schema, {"_op": "DELETE", **item(1)}), encoded(9, ROW, item(3))])
    assert run(store, feed_of(kafka, topic, {7: ROW, 8: schema})) == [item(2)]
    assert causes(store) == ["its schema is number 9, which is none of those that the feed was given"]


def test_a_schema_may_evolve(store: StateStore, kafka: KafkaBroker, registry: RegistryServer) -> None:
    """Each message is read with its writer's: fields that go are null, those that come are left out."""
    without = {**ROW, "fields": FIELDS[:2]}
    wider = {**ROW, "fields": [*FIELDS[:2], {"name": "count", "type": "int"}, {"name": "more", "type": "double"}]}
    for number, schema in enumerate((ROW, without, wider)):
        registry.register(number, schema)
    topic = kafka.topic()
    kafka.put(
        topic, [encoded(0, ROW, item(1)), encoded(1, without, item(2)), encoded(2, wider, {**item(3), "more": 1})]
    )
    assert run(store, feed_of(kafka, topic, registry)) == [item(1), item(2, count=None), item(3)]


def test_a_schema_of_the_reader_has_defaults_and_other_names(
    store: StateStore, kafka: KafkaBroker, registry: RegistryServer
) -> None:
    writer = {**ROW, "fields": [FIELDS[0], {"name": "title", "type": "string"}]}
    registry.register(1, writer)
    reader = {
        **ROW,
        "fields": [
            FIELDS[0],
            {"name": "name", "type": "string", "aliases": ["title"]},
            {"name": "count", "type": "int", "default": 17},
        ],
    }
    topic = kafka.topic()
    kafka.put(topic, [encoded(1, writer, {"id": 1, "title": "saw"})])
    assert run(store, feed_of(kafka, topic, registry, schema=reader)) == [item(1, "saw", 17)]
    registry.register(2, {"type": "record", "name": "Other", "fields": [{"name": "id", "type": "string"}]})
    kafka.put(topic, [encoded(2, registry_schema(registry, 2), {"id": "x"})])
    assert len(run(store, feed_of(kafka, topic, registry, schema=reader))) == 1
    assert causes(store)[0].startswith("it does not fit its schema: ")


def registry_schema(registry: RegistryServer, number: int) -> Any:
    return json.loads(registry.schemas[number]["schema"])


def test_a_schema_may_refer_to_others(store: StateStore, kafka: KafkaBroker, registry: RegistryServer) -> None:
    inner = {"type": "record", "name": "shop.Sum", "fields": [{"name": "units", "type": "shop.Units"}]}
    units = {"type": "enum", "name": "shop.Units", "symbols": ["EUR", "USD"]}
    outer = {**ROW, "fields": [FIELDS[0], {"name": "sum", "type": "shop.Sum"}]}
    to_units = {"name": "shop.Units", "subject": "units/x", "version": 1}
    registry.subjects["units%2Fx", 1] = {"schema": json.dumps(units)}
    registry.subjects["sum", 3] = {"schema": json.dumps(inner), "references": [to_units]}
    registry.register(1, outer, references=[{"name": "shop.Sum", "subject": "sum", "version": 3}, to_units])
    topic = kafka.topic()
    whole = {
        **outer,
        "fields": [FIELDS[0], {"name": "sum", "type": {**inner, "fields": [{"name": "units", "type": units}]}}],
    }
    kafka.put(topic, [encoded(1, whole, {"id": 1, "sum": {"units": "USD"}})])
    schema = pa.schema([ITEM.field("id"), ("sum", pa.struct([("units", pa.string())]))])
    assert run(store, feed_of(kafka, topic, registry), schema) == [{"id": 1, "sum": {"units": "USD"}}]


NOON = dt.datetime(2024, 2, 29, 12, 0, 0, 5000)
MICROS = 1_709_208_000_005_000


def logical(kind: str, said: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": said, **more}


def cents(number: int) -> bytes:
    return number.to_bytes(3, "big", signed=True)


def connect(kind: str, name: str) -> dict[str, Any]:
    return {"type": kind, "connect.version": 1, "connect.name": f"io.debezium.time.{name}"}


@pytest.mark.parametrize(
    ("said", "given", "kind", "expected"),
    [
        (logical("bytes", "decimal", precision=9, scale=2), cents(-12345), pa.decimal128(9, 2), Decimal("-123.45")),
        (logical("bytes", "decimal", precision=9, scale=1), cents(50), pa.decimal128(9, 2), Decimal("5.00")),
        (logical("int", "date"), 19782, pa.date32(), NOON.date()),
        (logical("long", "timestamp-millis"), MICROS // 1000, pa.timestamp("us", "UTC"), NOON.replace(tzinfo=dt.UTC)),
        (logical("long", "timestamp-micros"), MICROS, pa.timestamp("ms"), NOON),
        (logical("long", "local-timestamp-micros"), MICROS, pa.timestamp("us"), NOON),
        (logical("int", "time-millis"), 1, pa.time64("us"), dt.time(0, 0, 0, 1000)),
        (logical("string", "uuid"), "no uuid", pa.string(), "no uuid"),
        (connect("long", "MicroTimestamp"), MICROS, pa.timestamp("us"), NOON),
        (connect("long", "Timestamp"), MICROS // 1000, pa.timestamp("us"), NOON),
        (connect("int", "Date"), 19782, pa.date32(), NOON.date()),
        (connect("string", "ZonedTimestamp"), "2024-02-29T12:00:00.005Z", pa.timestamp("us"), NOON),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "B", pa.string(), "B"),
        ({"type": "fixed", "name": "F", "size": 2}, b"ab", pa.binary(), b"ab"),
        ({"type": "array", "items": logical("int", "date")}, [19782], pa.list_(pa.date32()), [NOON.date()]),
        (["null", connect("long", "MicroTimestamp"), "string"], "2024-02-29 12:00:00.005", pa.timestamp("us"), NOON),
        ("float", 0.5, pa.float64(), 0.5),
        ("long", 5, pa.int8(), 5),
    ],
)
def test_a_value_of_avro_is_what_its_type_means(
    store: StateStore, kafka: KafkaBroker, said: Any, given: Any, kind: Any, expected: Any
) -> None:
    """The writer of the test has no logical types, so that the bytes are what is given."""
    field = {"name": "v", "type": said if isinstance(said, list) else ["null", said]}
    topic = kafka.topic()
    bare = re.sub(r"logicalType|connect\.name", "ignored", json.dumps(field))
    writer = {**ROW, "fields": [FIELDS[0], json.loads(bare)]}
    kafka.put(topic, [encoded(1, writer, {"id": 1, "v": given}), encoded(1, writer, {"id": 2, "v": None})])
    schema = pa.schema([ITEM.field("id"), ("v", kind)])
    found = run(store, feed_of(kafka, topic, {1: {**ROW, "fields": [FIELDS[0], field]}}), schema)
    assert causes(store) == []
    assert [row["v"] for row in found] == [expected, None]


def nested(depth: int) -> Any:
    return "long" if not depth else {"type": "array", "items": nested(depth - 1)}


GOOD = encoded(1, ROW, item(1))
LOOP = {"type": "record", "name": "L", "fields": [{"name": "id", "type": "long"}, {"name": "n", "type": ["null", "L"]}]}


@pytest.mark.parametrize(
    ("data", "cause"),
    [
        (b"", "expected a zero and the number of its schema"),
        (b"\x00\x00\x00", "expected a zero and the number of its schema"),
        (b'{"id": 1}', "expected a zero and the number of its schema"),
        (GOOD[:-1], "it does not fit its schema: EOFError"),
        (GOOD[:5], "it does not fit its schema: EOFError"),
        (GOOD + b"\x00", "there are 1 bytes more"),
        (GOOD[:5] + b"\xff" * 50, "it does not fit its schema"),
        (GOOD[:5] + b"\x02\x02\xff\xff\xff\xff\xff\xff\xff\xff\x7f", "it does not fit its schema: EOFError"),
        (GOOD[:5] + b"\x02\x02\x04\xff\xfe\x00", "it does not fit its schema: UnicodeDecodeError"),
        (GOOD[:5] + b"\x02\x10", "it does not fit its schema: IndexError"),
        (struct.pack(">bI", 0, 99) + GOOD[5:], "its schema is number 99, which schema registry http"),
        (struct.pack(">bI", 0, 2), "a type 'L' that contains itself"),
        (struct.pack(">bI", 0, 3), "nests more than 32 deep"),
        (struct.pack(">bI", 0, 4), "a list of what takes no bytes"),
        (struct.pack(">bI", 0, 5), "which is of type 'PROTOBUF'; expected AVRO"),
        (struct.pack(">bI", 0, 6), "an unknown type 'nothing'"),
        (struct.pack(">bI", 0, 7), "it is no JSON"),
        (struct.pack(">bI", 0, 12), "it is no JSON"),
        (struct.pack(">bI", 0, 8), "is no schema of Avro"),
        (struct.pack(">bI", 0, 9), "its schema refers to ('gone', 1), which schema registry"),
        (encoded(10, "long", 5), "5 is no object of columns"),
        (encoded(11, {**ROW, "fields": [{"name": "id", "type": "string"}]}, {"id": "x"}), "'x' is not an integer"),
    ],
)
def test_hostile_messages_are_dead_letters(
    store: StateStore, kafka: KafkaBroker, registry: RegistryServer, data: bytes, cause: str
) -> None:
    """Whatever they are, and the one behind them comes through."""
    registry.register(1, ROW)
    registry.register(2, LOOP)
    registry.register(3, nested(500))
    registry.register(4, {**ROW, "fields": [FIELDS[0], {"name": "n", "type": {"type": "array", "items": "null"}}]})
    registry.register(5, "syntax", schemaType="PROTOBUF")
    registry.register(6, {**ROW, "fields": [{"name": "id", "type": "nothing"}]})
    registry.schemas[7] = {"schema": "{"}
    registry.schemas[12] = {"schema": '{"type":"array","items":' * 100_000}
    registry.register(8, {"type": "enum", "name": "E", "symbols": ["not a name"]})
    registry.register(9, ROW, references=[{"name": "x", "subject": "gone", "version": 1}])
    registry.register(10, "long")
    registry.register(11, {**ROW, "fields": [{"name": "id", "type": "string"}]})
    topic = kafka.topic()
    kafka.put(topic, [data, GOOD])
    assert run(store, feed_of(kafka, topic, registry)) == [item(1)]
    (found,) = causes(store)
    assert cause in found
    assert rows_in_order(store, "fed.dead_letters")[0]["data"] == data


# --- The registry ----------------------------------------------------------------------------------------------------


def test_a_registry_that_asks_who_it_is(store: StateStore, kafka: KafkaBroker, registry: RegistryServer) -> None:
    """With the right password it answers; the password is not shown."""
    registry.register(1, ROW)
    registry.user = "key", "secret"
    topic = kafka.topic()
    kafka.put(topic, [GOOD])
    for given in (cl.SchemaRegistry(registry.url), cl.SchemaRegistry(registry.url, user="key", password="wrong")):
        with pytest.raises(InvalidOption, match="refuses to tell /schemas/ids/1: HTTP 401"):
            run(store, feed_of(kafka, topic, given))
    good = cl.SchemaRegistry(registry.url, user="key", password="secret")
    assert "secret" not in repr(good)
    assert run(store, feed_of(kafka, topic, good)) == [item(1)]


def test_a_feed_waits_for_a_registry_that_is_in_trouble(
    store: StateStore, kafka: KafkaBroker, registry: RegistryServer
) -> None:
    """And says so; once it answers, all goes on, and nothing was lost."""
    registry.register(1, ROW)
    registry.answer = 503, b"busy"
    topic = kafka.topic()
    kafka.put(topic, [GOOD])
    _, flow = flow_of(store, feed_of(kafka, topic, registry))
    with flow:
        eventually(lambda: "HTTP 503" in flow.stats()["feeds"]["fed"]["trouble"])
        registry.answer = None
        flow.drain(60)
        assert flow.stats()["feeds"]["fed"]["trouble"] == ""
    assert rows_in_order(store, "fed") == [item(1)]
    assert causes(store) == []


def test_a_feed_waits_for_a_registry_that_is_away(store: StateStore, kafka: KafkaBroker) -> None:
    with registry_server() as server:
        url = server.url
    topic = kafka.topic()
    kafka.put(topic, [GOOD])
    _, flow = flow_of(store, feed_of(kafka, topic, cl.SchemaRegistry(url)))
    with flow:
        eventually(lambda: "does not answer" in flow.stats()["feeds"]["fed"]["trouble"])


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ((200, b"<html>"), "which is no schema; check its URL"),
        ((200, b'{"schema": 7}'), "which is no schema; check its URL"),
        ((200, b" " * (5 << 20)), "answers with more than 4,194,304 bytes"),
        ((302, b"http://127.0.0.1:9/"), "HTTP 302"),
        ((400, b""), "HTTP 400"),
    ],
)
def test_what_is_no_registry_stops_the_flow(
    store: StateStore, kafka: KafkaBroker, registry: RegistryServer, answer: tuple[int, bytes], why: str
) -> None:
    """No redirect is followed: the password would go along."""
    registry.answer = answer
    topic = kafka.topic()
    kafka.put(topic, [GOOD])
    with pytest.raises(InvalidOption, match=re.escape(why)):
        run(store, feed_of(kafka, topic, registry))


@pytest.mark.parametrize(
    ("url", "options"),
    [
        ("ftp://host", {}),
        ("http://", {}),
        ("file:///etc/passwd", {}),
        (7, {}),
        ("http://user:secret@host", {}),
        ("http://host?x=1", {}),
        ("http://host", {"user": "a"}),
        ("http://host", {"timeout": 0}),
    ],
)
def test_registries_that_cannot_be_are_refused(url: Any, options: Any) -> None:
    with pytest.raises(InvalidOption) as found:
        cl.SchemaRegistry(url, **options)
    assert "secret" not in str(found.value)


def test_a_reader_schema_that_is_none_is_refused(store: StateStore, kafka: KafkaBroker) -> None:
    topic = kafka.topic()
    _, flow = flow_of(store, feed_of(kafka, topic, {1: ROW}, schema={"type": "record"}))
    with pytest.raises(InvalidOption, match="schema= its schema has a record named None"):
        flow.start()
