"""Topics as input and output of streams: envelopes in JSON, exactly once, and back again."""

import datetime as dt
import json
import math
import random
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from support.changelog.fed_files import rows_in_order
from support.feeds.broker import KafkaBroker
from support.waiting import eventually
from tussock.compute import changelog as cl
from tussock.statestore import InvalidOption, StateStore

ITEM = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.int64())])


def flow_of(store: StateStore, feed: Any, *, schema: pa.Schema = ITEM, name: str = "fed", **options: Any) -> Any:
    stream = cl.Stream(store, name, schema=schema, key=[schema.names[0]])
    flow = cl.Flow(store, [stream], **options)
    flow.feed(stream, feed)
    return stream, flow


def run(store: StateStore, feed: Any, **options: Any) -> list[dict[str, Any]]:
    """Start, drain, stop; the rows."""
    stream, flow = flow_of(store, feed, **options)
    with flow:
        flow.drain(60)
    return rows_in_order(store, stream.name)


def as_json(value: Any) -> bytes:
    return json.dumps(value).encode()


def event(op: str, number: int, value: int | None = None) -> bytes:
    row = {"id": number, "v": value}
    before = row if op in ("u", "d") else None
    return as_json({"op": op, "before": before, "after": None if op == "d" else row})


def test_a_poll_is_a_transaction_and_tombstones_are_none(store: StateStore, kafka: KafkaBroker) -> None:
    """Of all partitions together; the next start goes on behind it."""
    topic = kafka.topic(2)
    kafka.put_keyed(topic, [(b"1", event("c", 1, 1)), (b"1", event("d", 1)), (b"1", None)], partition=0)
    kafka.put_keyed(topic, [(b"2", event("c", 2, 2)), (b"2", event("u", 2, 3))], partition=1)
    stream, flow = flow_of(store, cl.KafkaChanges(kafka.servers, topic, batch_seconds=0.5))
    with flow:
        flow.drain(60)
        taken = [one for each in stream.in_history() for one in each]
        assert [str(one.op) for one in taken] == ["UPSERT", "SAFEDELETE", "UPSERT", "UPDATE_BLOCK"]
    kafka.put(topic, [event("c", 4, 4)])
    assert run(store, cl.KafkaChanges(kafka.servers, topic)) == [{"id": 2, "v": 3}, {"id": 4, "v": 4}]


def test_a_deletion_may_be_known_by_the_key_of_its_message(store: StateStore, kafka: KafkaBroker) -> None:
    """With and without Kafka Connect's schema; of plain messages also as text."""
    topic = kafka.topic()
    gone = as_json({"op": "d", "before": None, "after": None})
    key_schema = {"type": "struct", "fields": [{"type": "int64", "field": "id"}]}
    kafka.put(topic, [event("c", number, number) for number in range(4)])
    kafka.put_keyed(topic, [(as_json({"id": 1}), gone), (as_json({"schema": key_schema, "payload": {"id": 2}}), gone)])
    kafka.put_keyed(topic, [(b"x", gone)])
    rows = run(store, cl.KafkaChanges(kafka.servers, topic, on_bad="skip"))
    assert [row["id"] for row in rows] == [0, 3]
    assert rows_in_order(store, "fed.dead_letters")[0]["cause"].startswith("it is no JSON")
    plain = kafka.topic()
    schema = pa.schema([pa.field("name", pa.string(), nullable=False), ("v", pa.int64())])
    kafka.put(plain, [as_json({"name": name, "v": 1}) for name in ("a", "b", "c", "d")])
    kafka.put_keyed(plain, [(as_json({"name": "a"}), None), (b'"b"', None), (b"c", None), (None, None)])
    feed = cl.KafkaChanges(kafka.servers, plain, format="json", on_bad="skip")
    assert run(store, feed, schema=schema, name="plain") == [{"name": "d", "v": 1}]
    assert "neither a value nor a key" in rows_in_order(store, "plain.dead_letters")[0]["cause"]


def test_a_replay_reads_the_same_messages(store: StateStore, kafka: KafkaBroker) -> None:
    """Bad ones among them; what the log has and no commit is done again before new ones."""
    topic = kafka.topic(2)
    feed = cl.KafkaChanges(kafka.servers, topic, batch_rows=2, on_bad="skip")
    first_stream, first = flow_of(store, feed, checkpoint=3600)
    first.start()
    for number in range(6):
        kafka.put(topic, [event("c", number, number), b"none"], partition=number % 2)
    eventually(lambda: sum(map(len, first_stream.out_history())) == 6)
    published = [list(one) for one in first_stream.out_history()]
    second_stream, second = flow_of(store, feed)
    with second:
        second.drain(60)
        assert [list(one) for one in second_stream.out_history()] == published
        assert second.stats()["feeds"]["fed"]["batches"] == 0
    with pytest.raises(cl.ApplicationFenced):
        first.stop()
    letters = rows_in_order(store, "fed.dead_letters")
    assert [letter["number"] for letter in letters] == list(range(1, 7))
    assert {letter["data"] for letter in letters} == {b"none"}
    assert len({letter["origin"] for letter in letters}) == 6


def test_a_bad_message_stops_the_flow_and_comes_again(store: StateStore, kafka: KafkaBroker) -> None:
    topic = kafka.topic()
    kafka.put(topic, [event("x", 1)])
    for _ in range(2):
        _, flow = flow_of(store, cl.KafkaChanges(kafka.servers, topic))
        with pytest.raises(cl.BadInput, match=rf"{topic}/0/0+ .* is no row: its op is 'x'"), flow:
            flow.drain(60)
    assert run(store, cl.KafkaChanges(kafka.servers, topic, on_bad="skip")) == []


def test_a_topic_that_is_not_there_is_told_at_the_start(store: StateStore, kafka: KafkaBroker) -> None:
    """For input and output; the flow can be started again."""
    _, flow = flow_of(store, cl.KafkaChanges(kafka.servers, "absent"))
    with pytest.raises(InvalidOption, match="does not exist"):
        flow.start()
    stream = cl.Stream(store, "s", schema=ITEM, key=["id"])
    other = cl.Flow(store, [stream])
    other.output(stream, cl.ChangesTopic(kafka.servers, "absent-output"))
    for _ in range(2):
        with pytest.raises(InvalidOption, match="does not exist"):
            other.start()
    assert not other.is_running


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"format": "xml"}, r"format='xml'; expected one of \['debezium-json'"),
        ({"format": "avro"}, "expected a SchemaRegistry, or a dict"),
        ({"registry": {1: "long"}}, "neither registry= nor schema= for JSON"),
        ({"format": "avro", "registry": {"1": "long"}}, "expected numbers of schemas"),
        ({"schema": "long"}, "neither registry= nor schema= for JSON"),
        ({"decimals": "float"}, "decimals='float'"),
        ({"start": 1}, "start=1"),
        ({"batch_rows": 0}, "batch_rows=0"),
        ({"batch_seconds": -1}, "batch_seconds is -1"),
        ({"on_bad": "drop"}, "on_bad='drop'"),
        ({"format": "json", "transactions": "t"}, "transactions='t' with format='json'"),
        ({"config": {"isolation.level": "x"}}, "on which exactly-once depends"),
    ],
)
def test_options_that_cannot_be_are_refused(options: Any, why: str) -> None:
    with pytest.raises(InvalidOption, match=why):
        cl.KafkaChanges("localhost:9", "t", **options)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"format": "avro"}, "format='avro'; expected 'debezium-json' or 'json'"),
        ({"lag_rows": 0}, "lag_rows=0"),
        ({"transactional_id": " "}, "transactional_id=' '"),
    ],
)
def test_options_of_topics_that_cannot_be_are_refused(options: Any, why: str) -> None:
    with pytest.raises(InvalidOption, match=why):
        cl.ChangesTopic("localhost:9", "t", **options)


# --- There and back --------------------------------------------------------------------------------------------------

WIDE = pa.schema(
    [
        pa.field("k", pa.string(), nullable=False),
        ("flag", pa.bool_()),
        ("small", pa.int8()),
        ("large", pa.uint64()),
        ("real", pa.float64()),
        ("sum", pa.decimal128(20, 4)),
        ("data", pa.binary()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us")),
        ("sharp", pa.timestamp("ns", "UTC")),
        ("seconds", pa.timestamp("s")),
        ("clock", pa.time64("us")),
        ("took", pa.duration("ms")),
        ("tags", pa.list_(pa.date32())),
        ("inner", pa.struct([("a", pa.timestamp("ms")), ("b", pa.list_(pa.binary()))])),
    ]
)


def some_row(chance: random.Random, key: str) -> dict[str, Any]:
    def maybe(value: Any) -> Any:
        return None if chance.random() < 0.2 else value

    def at() -> dt.datetime:
        return dt.datetime(1950, 1, 1) + dt.timedelta(microseconds=chance.randrange(1 << 52))

    return {
        "k": key,
        "flag": maybe(chance.random() < 0.5),
        "small": maybe(chance.randint(-128, 127)),
        "large": maybe(chance.choice((0, 2**64 - 1, chance.randrange(1 << 64)))),
        "real": maybe(chance.choice((0.1, -1e300, 5e-324, 3.0, math.inf, chance.random()))),
        "sum": maybe(Decimal(chance.randint(-(10**15), 10**15)).scaleb(-4)),
        "data": maybe(chance.randbytes(chance.randint(0, 5))),
        "day": maybe(at().date()),
        "at": maybe(at()),
        "sharp": maybe(at().replace(tzinfo=dt.UTC)),
        "seconds": maybe(at().replace(microsecond=0)),
        "clock": maybe(at().time()),
        "took": maybe(dt.timedelta(milliseconds=chance.randint(-(10**9), 10**9))),
        "tags": maybe([maybe(at().date()) for _ in range(chance.randint(0, 3))]),
        "inner": maybe({"a": maybe(at().replace(microsecond=0)), "b": maybe([b"x", None])}),
    }


def some_records(chance: random.Random) -> list[cl.ChangeRecord]:
    keys = [f"k {number} ä" for number in range(12)]
    return [
        cl.safedelete(k=chance.choice(keys))
        if chance.random() < 0.3
        else cl.upsert(some_row(chance, chance.choice(keys)))
        for _ in range(chance.randint(1, 20))
    ]


@pytest.mark.parametrize("kind", ["debezium-json", "json"])
def test_random_changes_of_all_types_come_back_as_they_were(store: StateStore, kafka: KafkaBroker, kind: Any) -> None:
    """From a flow by a topic to a flow, while both are stopped and started: equal tables."""
    chance = random.Random(kind)
    topic = kafka.topic(3)
    stream = cl.Stream(store, "s", schema=WIDE, key=["k"])
    flow = cl.Flow(store, [stream])
    flow.output(stream, cl.ChangesTopic(kafka.servers, topic, format=kind))
    for life in range(3):
        with flow:
            for _ in range(20):
                stream.push(some_records(chance)).result(30)
            if life:
                flow.drain(60)
        assert run(store, cl.KafkaChanges(kafka.servers, topic, format=kind, batch_rows=7), schema=WIDE)
    assert run(store, cl.KafkaChanges(kafka.servers, topic, format=kind), schema=WIDE) == rows_in_order(store, "s")
    assert rows_in_order(store, "fed.dead_letters") == []


def test_messages_of_a_stream(store: StateStore, kafka: KafkaBroker) -> None:
    """As other consumers of Debezium read them: keys, operations, old rows, transactions and tombstones."""
    topic = kafka.topic()
    stream = cl.Stream(store, "s", schema=ITEM, key=["id"])
    flow = cl.Flow(store, [stream], name="shop")
    flow.output(stream, cl.ChangesTopic(kafka.servers, topic))
    with flow:
        stream.push([cl.insert(id=1, v=1), cl.insert(id=2, v=2)]).result(30)
        stream.push([cl.update(id=1, v=5), cl.delete(id=2)]).result(30)
        flow.drain(60)
    found = []
    for message in kafka.messages(topic):
        key = json.loads(message.key())
        assert key["schema"]["fields"] == [{"type": "int64", "optional": False, "field": "id"}]
        if message.value() is None:
            found.append((key["payload"]["id"], None))
            continue
        value = json.loads(message.value())
        payload = value["payload"]
        assert [one["field"] for one in value["schema"]["fields"]] == list(payload)
        assert payload["source"]["connector"] == "tussock"
        assert (payload["source"]["db"], payload["source"]["table"]) == ("shop", "s")
        assert payload["ts_ms"] > 1_600_000_000_000
        block = payload["transaction"]
        found.append(
            (
                key["payload"]["id"],
                payload["op"],
                payload["before"],
                payload["after"],
                block["id"],
                block["total_order"],
            )
        )
    assert found == [
        (1, "c", None, {"id": 1, "v": 1}, "1", 1),
        (2, "c", None, {"id": 2, "v": 2}, "1", 2),
        (1, "u", {"id": 1, "v": 1}, {"id": 1, "v": 5}, "2", 1),
        (2, "d", {"id": 2, "v": 2}, None, "2", 2),
        (2, None),
    ]


def test_two_outputs_of_a_stream(store: StateStore, kafka: KafkaBroker) -> None:
    """Each has its name, and its own place in the topic's transactions."""
    topics = kafka.topic(), kafka.topic()
    stream = cl.Stream(store, "s", schema=ITEM, key=["id"])
    flow = cl.Flow(store, [stream])
    for number, topic in enumerate(topics):
        flow.output(stream, cl.ChangesTopic(kafka.servers, topic, format="json"), name=f"out {number}")
    with flow:
        for number in range(10):
            stream.push([cl.upsert(id=number, v=number)]).result(30)
        flow.drain(60)
        assert set(flow.stats()["outputs"]) == {"out 0", "out 1"}
    for topic in topics:
        found = [json.loads(message.value()) for message in kafka.messages(topic)]
        assert found == [{"_op": "INSERT", "id": number, "v": number} for number in range(10)]
