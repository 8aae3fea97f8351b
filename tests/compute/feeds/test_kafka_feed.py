"""A topic as input: batches by offsets, each once; what is bad, or gone, by its name."""

import contextlib
import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from support.feeds.broker import KafkaBroker
from support.feeds.sums import ITEM, rows_of, sums_app, sums_of
from support.waiting import eventually
from tussock.compute import procedures as ps
from tussock.statestore import InvalidOption, StateStore, WaitTimeout


def item(number: int) -> dict[str, int]:
    return {"id": number, "key": number % 3, "value": number}


def as_json(*numbers: int) -> list[bytes]:
    return [json.dumps(item(number)).encode() for number in numbers]


def emitted(store: StateStore) -> dict[int, list[tuple[int, int]]]:
    found: dict[int, list[tuple[int, int]]] = {}
    for row in rows_of(store.table("emitted")):
        found.setdefault(row["key"], []).append((row["id"], row["total"]))
    return found


def feed_of(kafka: KafkaBroker, topic: str, **options: Any) -> ps.KafkaFeed:
    return ps.KafkaFeed(kafka.servers, topic, options.pop("schema", ITEM), **options)


def run(store: StateStore, feed: ps.KafkaFeed, **options: Any) -> dict[str, Any]:
    """Start, drain, stop; the feed's counts."""
    with sums_app(store, feed, "emitted", **options) as app:
        app.drain(60)
        found: dict[str, Any] = app.stats()["feeds"]["add"]
        return found


@pytest.mark.parametrize("recovery", ["weak", "strong"])
def test_messages_come_in_batches_once(store: StateStore, kafka: KafkaBroker, recovery: Any) -> None:
    """Also those that come while the application is away, and in several partitions."""
    topic = kafka.topic(3)
    for number in range(30):
        kafka.put(topic, as_json(number), partition=number % 3)
    assert run(store, feed_of(kafka, topic, batch_rows=7), recovery=recovery)["rows"] == 30
    kafka.put(topic, as_json(30, 33), partition=0)
    assert run(store, feed_of(kafka, topic), recovery=recovery)["rows"] == 2
    assert run(store, feed_of(kafka, topic), recovery=recovery)["rows"] == 0
    assert emitted(store) == sums_of([item(number) for number in [*range(30), 30, 33]])


def test_a_replay_reads_the_same_messages(store: StateStore, kafka: KafkaBroker) -> None:
    """What the log has and no commit: the batches are read again, before new ones."""
    topic = kafka.topic(2)
    kafka.put(topic, as_json(0, 3, 6))
    first = sums_app(store, feed_of(kafka, topic, batch_rows=2), "emitted", checkpoint=3600)
    first.start()
    eventually_read(first, 3)
    # The next runner takes over while the first one has committed nothing of it.
    with sums_app(store, feed_of(kafka, topic, batch_rows=2), "emitted") as second:
        kafka.put(topic, as_json(1, 4), partition=1)
        second.drain(60)
        assert second.stats()["feeds"]["add"]["rows"] == 2
    with pytest.raises(ps.ApplicationFenced):
        first.stop()
    assert emitted(store) == sums_of([item(number) for number in (0, 3, 6, 1, 4)])


def eventually_read(app: ps.App, rows: int) -> None:
    eventually(lambda: app.stats()["feeds"]["add"]["rows"] >= rows)
    # A look waits for the records before it.
    app.trace(last=1)


def test_latest_begins_with_what_comes(store: StateStore, kafka: KafkaBroker) -> None:
    """And goes on from there, though nothing was read at first."""
    topic = kafka.topic()
    kafka.put(topic, as_json(1))
    assert run(store, feed_of(kafka, topic, start="latest"))["rows"] == 0
    kafka.put(topic, as_json(2))
    assert run(store, feed_of(kafka, topic, start="latest"))["rows"] == 1


def test_new_partitions_are_read_from_their_first_message(store: StateStore, kafka: KafkaBroker) -> None:
    topic = kafka.topic(1)
    kafka.put(topic, as_json(1))
    run(store, feed_of(kafka, topic))
    kafka.add_partitions(topic, 2)
    kafka.put(topic, as_json(2), partition=1)
    assert run(store, feed_of(kafka, topic))["rows"] == 1


def ipc(rows: list[dict[str, int]], schema: pa.Schema = ITEM) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        writer.write_table(pa.Table.from_pylist(rows, schema=schema))
    return bytes(sink.getvalue())


def split(message: Any) -> list[dict[str, int]] | None:
    words = message.value.split()
    return [item(int(word)) for word in words] or None


@pytest.mark.parametrize(
    ("options", "values"),
    [
        ({"format": "arrow"}, [ipc([item(1), item(2)]), ipc([]), ipc([item(3)])]),
        ({"decode": split}, [b"1 2", b"", b"3"]),
        ({"origins": False}, as_json(1, 2, 3)),
    ],
    ids=["arrow", "function", "json"],
)
def test_forms_of_messages(store: StateStore, kafka: KafkaBroker, options: dict[str, Any], values: list[bytes]) -> None:
    """A message may be several rows, or none."""
    topic = kafka.topic()
    kafka.put(topic, values)
    run(store, feed_of(kafka, topic, **options))
    assert emitted(store) == sums_of([item(1), item(2), item(3)])


def test_origins_are_columns(store: StateStore, kafka: KafkaBroker) -> None:
    topic = kafka.topic(2)
    kafka.put(topic, as_json(1, 2), partition=1)
    seen: list[Any] = []
    app = ps.App(store, "seen")
    app.feed("look", feed_of(kafka, topic, origins=True))
    app.procedure("look", border=True)(lambda tx, batch: seen.extend(batch.to_pylist()))
    with app:
        app.drain(60)
    assert [(row["id"], row["_partition"], row["_offset"]) for row in seen] == [(1, 1, 0), (2, 1, 1)]


def test_uncommitted_and_aborted_messages_are_no_input(store: StateStore, kafka: KafkaBroker) -> None:
    """Marks of transactions between the messages change nothing, in a replay either."""
    from confluent_kafka import Producer

    topic = kafka.topic()
    producer = Producer({"bootstrap.servers": kafka.servers, "transactional.id": f"writer of {topic}"})
    producer.init_transactions(30)
    for number in range(6):
        producer.begin_transaction()
        producer.produce(topic, as_json(number)[0])
        producer.flush(30)
        producer.abort_transaction(30) if number % 2 else producer.commit_transaction(30)
    assert run(store, feed_of(kafka, topic))["rows"] == 3
    assert run(store, feed_of(kafka, topic))["rows"] == 0
    assert emitted(store) == sums_of([item(0), item(2), item(4)])


BAD = b"not JSON at all"


def test_a_poison_message_stops_the_application_each_time(store: StateStore, kafka: KafkaBroker) -> None:
    """It is named, and what came before it in other batches stays."""
    topic = kafka.topic()
    kafka.put(topic, as_json(1))
    run(store, feed_of(kafka, topic))
    kafka.put(topic, [BAD])
    for _ in range(2):
        with pytest.raises(ps.BadInput, match=rf"{topic}/0/0*1 .*is no row: DecodeError"):
            run(store, feed_of(kafka, topic))
    assert emitted(store) == sums_of([item(1)])


@pytest.mark.parametrize(
    "value",
    [BAD, b"", b"[1]", b'{"key": 1}', b'{"id": "x", "key": 1}', b'{"id": 99999999999999999999, "key": 1, "value": 1}'],
    ids=["text", "empty", "list", "column-missing", "wrong-type", "too-large"],
)
def test_a_skipped_message_is_a_dead_letter(store: StateStore, kafka: KafkaBroker, value: bytes) -> None:
    """With its bytes and its place; the others of its batch are used."""
    topic = kafka.topic()
    kafka.put(topic, [*as_json(1), value, *as_json(2)])
    run(store, feed_of(kafka, topic, on_bad="skip"))
    [letter] = rows_of(store.table("sums.dead_letters"))
    assert (letter["feed"], letter["origin"], letter["data"]) == ("add", f"{topic}/0/{1:020d}", value)
    assert emitted(store) == sums_of([item(1), item(2)])


@pytest.mark.parametrize("recovery", ["weak", "strong"])
def test_a_batch_that_a_procedure_refuses(store: StateStore, kafka: KafkaBroker, recovery: Any) -> None:
    """It stops the application and comes again, or is a dead letter."""
    topic = kafka.topic()
    kafka.put(topic, as_json(1))

    def started(on_bad: str, is_mended: bool) -> dict[str, Any]:
        app = ps.App(store, "strict", recovery=recovery)
        app.feed("check", feed_of(kafka, topic, on_bad=on_bad))

        @app.procedure("check", border=True)
        def check(tx: Any, batch: pa.Table) -> None:
            if not is_mended:
                raise ValueError("not today")

        with app:
            app.drain(60)
            found: dict[str, Any] = app.stats()["feeds"]["check"]
            return found

    for _ in range(2):
        with pytest.raises(ps.BadInput, match="not today"):
            started("stop", is_mended=False)
    assert started("stop", is_mended=True)["rows"] == 1
    kafka.put(topic, as_json(2))
    assert started("skip", is_mended=False)["rows"] == 1
    [letter] = rows_of(store.table("strict.dead_letters"))
    assert letter["cause"] == "ValueError: not today"
    with pa.ipc.open_stream(letter["data"]) as reader:
        assert reader.read_all().to_pylist() == [item(2)]


def test_retention_that_deleted_what_comes_next(store: StateStore, kafka: KafkaBroker) -> None:
    """The error names topic, partition and offsets."""
    topic = kafka.topic()
    kafka.put(topic, as_json(*range(5)))
    run(store, feed_of(kafka, topic))
    kafka.put(topic, as_json(*range(5, 10)))
    kafka.delete_before(topic, 8)
    with pytest.raises(ps.InputLost, match=rf"'{topic}' .* partition 0: offsets 5 to 7 .* oldest that is kept is 8"):
        run(store, feed_of(kafka, topic))


def test_retention_that_deleted_what_the_log_refers_to(store: StateStore, kafka: KafkaBroker) -> None:
    """A replay without it would have another result, so the application does not start."""
    topic = kafka.topic()
    kafka.put(topic, as_json(*range(5)))
    first = sums_app(store, feed_of(kafka, topic), "emitted", checkpoint=3600)
    first.start()
    eventually_read(first, 5)
    kafka.delete_before(topic, 3)
    with pytest.raises(ps.InputLost, match=rf"'{topic}' .* partition 0: offsets 0 to 2"):
        run(store, feed_of(kafka, topic))
    with contextlib.suppress(ps.ApplicationFenced):
        first.stop()


@pytest.mark.parametrize("messages", [0, 1, 5])
def test_a_topic_that_was_made_again(store: StateStore, kafka: KafkaBroker, messages: int) -> None:
    """It is another one, be it shorter or longer than the former."""
    topic = kafka.topic()
    kafka.put(topic, as_json(1, 2, 3))
    run(store, feed_of(kafka, topic))
    kafka.drop(topic)
    with pytest.raises(InvalidOption, match=f"'{topic}' .* does not exist"):
        run(store, feed_of(kafka, topic))
    kafka.topic(1, topic)
    kafka.put(topic, as_json(*range(messages)))
    with pytest.raises(ps.InputLost, match="was deleted and made again"):
        run(store, feed_of(kafka, topic))


@pytest.mark.parametrize("messages", [2, 20])
def test_a_topic_that_is_made_again_beside_the_application(
    store: StateStore, kafka: KafkaBroker, messages: int
) -> None:
    """Story: for up to 5 s its messages were read as those of the former, from where that was."""
    topic = kafka.topic()
    kafka.put(topic, as_json(1, 2, 3))
    app = sums_app(store, feed_of(kafka, topic), "emitted")
    app.start()
    app.drain(60)
    kafka.drop(topic)
    kafka.topic(1, topic)
    kafka.put(topic, as_json(*range(100, 100 + messages)))
    with pytest.raises(ps.InputLost, match="was deleted"):
        app.drain(60)
    with pytest.raises(ps.InputLost):
        app.stop()
    assert sorted(number for pairs in emitted(store).values() for number, _ in pairs) == [1, 2, 3]


def test_a_drain_waits_for_partitions_that_are_new(store: StateStore, kafka: KafkaBroker) -> None:
    """Story: it knew of those that there were up to 5 s before."""
    topic = kafka.topic(1)
    kafka.put(topic, as_json(1))
    with sums_app(store, feed_of(kafka, topic), "emitted") as app:
        app.drain(60)
        for number in range(1, 4):
            kafka.add_partitions(topic, number + 1)
            kafka.put(topic, as_json(number * 10, number * 10 + 1), partition=number)
            app.drain(60)
            assert app.stats()["feeds"]["add"]["rows"] == 1 + 2 * number


def test_another_source_under_the_same_name(store: StateStore, kafka: KafkaBroker) -> None:
    """Positions of one are nothing to the other."""
    one, other = kafka.topic(), kafka.topic()
    run(store, feed_of(kafka, one))
    with pytest.raises(InvalidOption, match="has read from another source"):
        run(store, feed_of(kafka, other))
    store.create_table("items", ITEM, primary_key=["id"])
    with pytest.raises(InvalidOption, match="another kind of source"):
        sums_app(store, ps.TableFeed("items"), "emitted").start()


@pytest.mark.long
def test_a_broker_that_is_away(store: StateStore, kafka: KafkaBroker) -> None:
    """The application waits, says so, answers calls, and goes on; a new one does not start."""
    topic = kafka.topic()
    kafka.put(topic, as_json(1))
    with sums_app(store, feed_of(kafka, topic), "emitted") as app:
        app.drain(60)
        kafka.kill()
        try:
            eventually(lambda: app.stats()["feeds"]["add"]["trouble"])
            assert app.trace(last=1) == [("add", 1)]
            with pytest.raises(WaitTimeout, match="has more"):
                app.drain(0.1)
        finally:
            kafka.start()
        kafka.put(topic, as_json(2))
        app.drain(60)
        assert not app.stats()["feeds"]["add"]["trouble"]
    assert emitted(store) == sums_of([item(1), item(2)])


WRONG: dict[str, Callable[[], Any]] = {
    "servers=5": lambda: ps.KafkaFeed(5, "t", ITEM),  # type: ignore[arg-type]
    "topic=''": lambda: ps.KafkaFeed("h:1", "", ITEM),
    "schema=None": lambda: ps.KafkaFeed("h:1", "t", None),  # type: ignore[arg-type]
    "format='xml'": lambda: ps.KafkaFeed("h:1", "t", ITEM, format="xml"),  # type: ignore[arg-type]
    "decode=3": lambda: ps.KafkaFeed("h:1", "t", ITEM, decode=3),  # type: ignore[arg-type]
    "start='now'": lambda: ps.KafkaFeed("h:1", "t", ITEM, start="now"),  # type: ignore[arg-type]
    "batch_rows=0": lambda: ps.KafkaFeed("h:1", "t", ITEM, batch_rows=0),
    "batch_bytes=True": lambda: ps.KafkaFeed("h:1", "t", ITEM, batch_bytes=True),
    "batch_seconds is -1": lambda: ps.KafkaFeed("h:1", "t", ITEM, batch_seconds=-1),
    "on_bad='go'": lambda: ps.KafkaFeed("h:1", "t", ITEM, on_bad="go"),  # type: ignore[arg-type]
    "isolation.level": lambda: ps.KafkaFeed("h:1", "t", ITEM, config={"isolation.level": "read_uncommitted"}),
    "config is a list": lambda: ps.KafkaFeed("h:1", "t", ITEM, config=[]),  # type: ignore[arg-type]
    "key='x'": lambda: (
        ps.KafkaTopic("h:1", "t").check("s", ITEM) or ps.KafkaTopic("h:1", "t", key="x").check("s", ITEM)
    ),
    "lag_rows=0": lambda: ps.KafkaTopic("h:1", "t", lag_rows=0),
    "transactional_id='a b'": lambda: ps.KafkaTopic("h:1", "t", transactional_id="a b"),
    "encode=1": lambda: ps.KafkaTopic("h:1", "t", encode=1),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("message", list(WRONG))
def test_declarations_that_are_refused(message: str) -> None:
    with pytest.raises(InvalidOption, match=message):
        WRONG[message]()


def test_secrets_are_not_shown() -> None:
    config = {"sasl.password": "hush"}
    shown = f"{ps.KafkaFeed('h:1', 't', ITEM, config=config)} {ps.KafkaTopic('h:1', 't', config=config)}"
    assert "hush" not in shown


@pytest.mark.parametrize("code", [KafkaError.FENCED_LEADER_EPOCH, KafkaError._TIMED_OUT])
def test_errors_that_go_by_themselves_are_waited_for(
    store: StateStore, kafka: KafkaBroker, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """Story: a start ended as the leader of a topic that was just made was another one than the client knew."""
    topic = kafka.topic()
    kafka.put(topic, as_json(1))
    failing = {"describe_topics": 2, "list_offsets": 2}

    def failing_at_first(name: str, question: Callable[..., Any]) -> Callable[..., Any]:
        def ask(*args: Any, **options: Any) -> Any:
            if failing[name]:
                failing[name] -= 1
                raise KafkaException(KafkaError(code))
            return question(*args, **options)

        return ask

    for name in failing:
        monkeypatch.setattr(AdminClient, name, failing_at_first(name, getattr(AdminClient, name)))
    assert run(store, feed_of(kafka, topic, start="earliest"))["rows"] == 1
    assert set(failing.values()) == {0}
