"""A topic as output: each tuple once for readers with `read_committed`, whatever dies and whenever."""

import json
from typing import Any

import pyarrow as pa
import pytest

from support.feeds.broker import KafkaBroker
from support.feeds.sums import SUM
from support.waiting import eventually
from tussock.compute import procedures as ps
from tussock.statestore import InvalidOption, StateStore


def echo(store: StateStore, topic: ps.KafkaTopic, name: str = "echo", **options: Any) -> ps.App:
    """Emits what clients give."""
    app = ps.App(store, name, **{"checkpoint": 0.05, **options})
    stream = app.stream("said", SUM)
    app.output(stream, topic)

    @app.procedure("say", border=True, emits=stream)
    def say(tx: Any, batch: pa.Table) -> Any:
        return batch

    return app


def row(number: int) -> dict[str, int]:
    return {"key": number % 3, "id": number, "total": number * number}


def say(app: ps.App, *numbers: int) -> None:
    app.submit("say", [row(number) for number in numbers]).result(60)


def ids(kafka: KafkaBroker, topic: str) -> list[int]:
    return sorted(json.loads(message.value())["id"] for message in kafka.messages(topic))


def out(kafka: KafkaBroker, topic: str, **options: Any) -> ps.KafkaTopic:
    return ps.KafkaTopic(kafka.servers, topic, **options)


def test_tuples_are_messages_in_their_order(store: StateStore, kafka: KafkaBroker) -> None:
    """With a key, those of a key in one partition; a header has the sequence, and the outbox is empty afterwards."""
    topic = kafka.topic(2)
    with echo(store, out(kafka, topic, key="key")) as app:
        say(app, 1, 4)
        say(app, *range(5, 60))
        app.drain(60)
        assert app.stats()["outputs"]["said"]["sent"] == 2
        eventually(lambda: app.stats()["outputs"]["said"]["lag_rows"] == 0)
    messages = kafka.messages(topic)
    for key in range(3):
        mine = [message for message in messages if message.key() == str(key).encode()]
        assert len({message.partition() for message in mine}) == 1
        assert [json.loads(message.value()) for message in mine] == [
            row(number) for number in (1, 4, *range(5, 60)) if number % 3 == key
        ]
    assert messages[0].headers()[0][0] == "tussock-sequence"
    assert not any(batch.num_rows for batch in store.table("echo.said.outbox").read())


def test_a_stop_sends_what_was_emitted(store: StateStore, kafka: KafkaBroker) -> None:
    topic = kafka.topic()
    with echo(store, out(kafka, topic, encode=lambda one: json.dumps({"id": -one["id"]}).encode())) as app:
        say(app, 1, 2)
    assert ids(kafka, topic) == [-2, -1]


def test_a_topic_that_is_missing(store: StateStore, kafka: KafkaBroker) -> None:
    with pytest.raises(InvalidOption, match=r"'nowhere' .* does not exist: create it"):
        echo(store, out(kafka, "nowhere")).start()
    # The start has left nothing behind.
    with echo(store, out(kafka, kafka.topic())) as app:
        say(app, 1)


def test_what_the_state_did_not_hear_of_is_not_sent_again(store: StateStore, kafka: KafkaBroker) -> None:
    """A successor asks Kafka; the former runner, which is shut out, sends nothing more."""
    topic = kafka.topic()
    first = echo(store, out(kafka, topic), checkpoint=0)
    first.start()
    say(first, 1)
    eventually(lambda: ids(kafka, topic) == [1])
    with echo(store, out(kafka, topic)) as second:
        say(second, 2)
        second.drain(60)
        assert ids(kafka, topic) == [1, 2]
    with pytest.raises(ps.ApplicationFenced):
        first.submit("say", [row(3)]).result(60)
    with pytest.raises(ps.ApplicationFenced):
        first.stop()
    assert ids(kafka, topic) == [1, 2]


def test_a_second_application_with_the_same_transactional_id(store: StateStore, kafka: KafkaBroker) -> None:
    """It ends with words; the first one goes on."""
    topic = kafka.topic()
    name = f"shared of {topic}".replace(" ", "-")
    with echo(store, out(kafka, topic, transactional_id=name)) as first:
        say(first, 1)
        first.drain(60)
        second = echo(store, out(kafka, topic, transactional_id=name), name="second")
        second.start()
        with pytest.raises(ps.OutputLost, match="belongs to another application"):
            say_until_it_fails(second)
        with pytest.raises(ps.OutputLost):
            second.stop()
        say(first, 2)
        first.drain(60)
    assert ids(kafka, topic) == [1, 2]


def say_until_it_fails(app: ps.App) -> None:
    for number in range(10_000):
        say(app, number)


def test_a_topic_that_was_made_again(store: StateStore, kafka: KafkaBroker) -> None:
    """Kafka has forgotten what it has, and the application does not guess."""
    topic = kafka.topic()
    with echo(store, out(kafka, topic)) as app:
        say(app, 1)
    kafka.drop(topic)
    kafka.topic(1, topic)
    app = echo(store, out(kafka, topic))
    app.start()
    with pytest.raises(ps.OutputLost, match=r"no longer says what it has|was put back"):
        say_until_it_fails(app)
    with pytest.raises(ps.OutputLost):
        app.stop()


def test_a_topic_that_is_made_again_beside_the_application(store: StateStore, kafka: KafkaBroker) -> None:
    """Story: tuples went on to the new one, and nothing told that those before are gone."""
    topic = kafka.topic()
    app = echo(store, out(kafka, topic))
    app.start()
    say(app, 1)
    app.drain(60)
    kafka.drop(topic)
    kafka.topic(1, topic)
    say(app, 2)
    with pytest.raises(ps.OutputLost, match="deleted and made again while the application ran"):
        app.drain(60)
    with pytest.raises(ps.OutputLost):
        app.stop()


def test_a_topic_that_is_made_again_beside_an_idle_application(store: StateStore, kafka: KafkaBroker) -> None:
    """It looks now and then."""
    topic = kafka.topic()
    app = echo(store, out(kafka, topic))
    app.start()
    say(app, 1)
    app.drain(60)
    kafka.drop(topic)
    kafka.topic(1, topic)
    eventually(lambda: app.failure)
    assert isinstance(app.failure, ps.OutputLost)
    with pytest.raises(ps.OutputLost):
        app.stop()


def test_a_store_that_was_put_back(store: StateStore, kafka: KafkaBroker) -> None:
    """Kafka has more than the state has emitted: new tuples would be taken for sent ones."""
    topic, name = kafka.topic(), "one-for-both"
    with echo(store, out(kafka, topic, transactional_id=name)) as app:
        say(app, 1)
        say(app, 2)
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": kafka.servers, "group.id": name})
    consumer.commit(offsets=[TopicPartition(topic, 0, 100)], asynchronous=False)
    consumer.close()
    app = echo(store, out(kafka, topic, transactional_id=name))
    app.start()
    with pytest.raises(ps.OutputLost, match="put back to an earlier state"):
        say_until_it_fails(app)
    with pytest.raises(ps.OutputLost):
        app.stop()


@pytest.mark.long
def test_a_broker_that_is_away_holds_batches_back(store: StateStore, kafka: KafkaBroker) -> None:
    """From `lag_rows` on; all of them are sent when it is there again."""
    topic = kafka.topic()
    with echo(store, out(kafka, topic, lag_rows=20)) as app:
        say(app, 0)
        app.drain(60)
        kafka.kill()
        try:
            for number in range(1, 22):
                say(app, number)
            assert app.stats()["outputs"]["said"]["lag_rows"] == 21
            eventually(lambda: app.stats()["outputs"]["said"]["trouble"])
        finally:
            kafka.start()
        say(app, 22)
        app.drain(60)
    assert ids(kafka, topic) == list(range(23))


def test_a_batch_larger_than_a_transaction_of_many(store: StateStore, kafka: KafkaBroker) -> None:
    """A batch is in one transaction, however large; others share one."""
    topic = kafka.topic()
    with echo(store, out(kafka, topic)) as app:
        say(app, *range(12_000))
        for number in range(12_000, 12_050):
            app.submit("say", [row(number)])
        app.drain(60)
    assert ids(kafka, topic) == list(range(12_050))


def large(one: Any) -> bytes:
    """The message of a row: those with odd numbers are larger than others."""
    return json.dumps({"id": one["id"], "text": "x" * (3000 if one["id"] % 2 else 10)}).encode()


def unsent(store: StateStore) -> list[tuple[int, int, int]]:
    """Sequence, position and number of the rows that were not sent."""
    rows = [row for part in store.table("echo.unsent").read() for row in part.to_pylist()]
    return [(row["sequence"], row["position"], json.loads(row["value"])["id"]) for row in rows]


@pytest.mark.parametrize("where", ["topic", "library"])
def test_a_row_that_no_message_can_be(store: StateStore, kafka: KafkaBroker, where: str) -> None:
    """Story: it ended the application, at each start. It is kept, and all others are sent, each once."""
    limits = {"max.message.bytes": "2000"} if where == "topic" else {}
    topic = kafka.topic(**limits)
    config = {} if where == "topic" else {"message.max.bytes": 2000}
    with echo(store, out(kafka, topic, encode=large, config=config)) as app:
        for ids_of in ((0, 2), (4, 5, 6), (7,), (8, 9, 11, 10)):
            say(app, *ids_of)
        app.drain(60)
        assert app.stats()["outputs"]["said"]["unsent"] == 4
        say(app, 12)
        app.drain(60)
    assert sorted(ids(kafka, topic)) == [0, 2, 4, 6, 8, 10, 12]
    assert unsent(store) == [(2, 1, 5), (3, 0, 7), (4, 1, 9), (4, 2, 11)]
    with echo(store, out(kafka, topic, encode=large, config=config)) as app:
        say(app, 14)
        app.drain(60)
    assert len(ids(kafka, topic)) == 8


def test_without_the_library(store: StateStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says what to install."""
    monkeypatch.setitem(__import__("sys").modules, "confluent_kafka", None)
    with pytest.raises(InvalidOption, match=r"pip install 'tussock\[kafka\]'"):
        echo(store, ps.KafkaTopic("localhost:1", "t")).start()
