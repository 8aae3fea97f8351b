"""Sends the rows of an outbox to a topic, so that a reader with `read_committed` gets each once.

The outbox is a table: its rows are in the epoch of the state that emitted them, numbered by a sequence. A transaction
of Kafka holds the rows of some sequences and, as the offset of a consumer group, the newest of these. So Kafka itself
says, after any crash, what it has. A `transactional.id` belongs to one producer at a time: when the next one begins,
the transaction that the former one had open is given up, and the former one can end none any more.

Any failure is met in the same way: a new producer, and the question what Kafka has.
"""

from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Protocol

import pyarrow as pa

from tussock.compute.applications.borders.sender import Outbox
from tussock.compute.applications.errors import OutputLost
from tussock.compute.applications.kafka.library import QuietLog, kafka_library
from tussock.compute.applications.kafka.refusals import TopicRefusals
from tussock.compute.applications.kafka.topic_client import TopicClient
from tussock.compute.applications.replies import failure_of
from tussock.statestore.base.logs import get_logger
from tussock.statestore.base.system import System
from tussock.statestore.errors import InvalidOption, TussockError

__all__ = ["KafkaSender"]

log = get_logger("tussock.compute.applications.kafka")

IDLE_SECONDS = 0.02
RETRY_SECONDS = 0.5
CALL_SECONDS = 30.0
INIT_SECONDS = 10.0
OFFSET_SECONDS = 5.0
CHECK_SECONDS = 5.0
CLAIM_SECONDS = 3600.0
"""After that time an idle sender commits its offset anew: Kafka forgets those of groups that are idle for days."""
_FREE = -1001
"""The offset of a group that has none."""


class Topic(Protocol):
    """Where rows go, and what messages they are."""

    @property
    def servers(self) -> str:
        """Addresses of brokers."""

    @property
    def topic(self) -> str:
        """Its name."""

    @property
    def transactional_id(self) -> str | None:
        """In place of the application's own."""

    @property
    def config(self) -> dict[str, Any]:
        """Further options of the library."""

    def messages(self, sequence: int, rows: pa.Table) -> Iterator[tuple[bytes | None, bytes | None]]:
        """Key and value of the messages of one sequence."""


class KafkaSender:
    """The thread of one output."""

    def __init__(self, system: System, topic: Topic, owner: str, transactional_id: str, sent: int, begun: int) -> None:
        """`owner` is what tells this application from all others; `sent` is what its state knows to be in the topic.

        `begun`: the newest sequence when the run began, before which nothing of it can be in the topic.
        """
        self._kafka = kafka_library()
        self._system = system
        self._topic = topic
        self._owner = owner
        self._id = topic.transactional_id or transactional_id
        self._what = f"topic {topic.topic!r} at {topic.servers}"
        self.sent = sent
        self.trouble = ""
        """Why nothing is sent at present; empty if nothing is known to be wrong."""
        self._known = sent
        self._begun: int | None = begun
        """Until the first connection."""
        self._producer: Any = None
        self._offsets: Any = None
        self._claimed_at = self._checked_at = 0.0
        self._topic_id = ""
        """Of this run's first connection on: another topic of the name has another."""
        self._client = TopicClient(system, topic.servers, topic.topic, topic.config)
        kinds = self._kafka.KafkaError
        self._too_large = (kinds.MSG_SIZE_TOO_LARGE, kinds.RECORD_LIST_TOO_LARGE)
        self._refusals = TopicRefusals(self._too_large)
        self._is_stopping = False
        self._task: Any = None

    def check(self) -> None:
        """`InvalidOption` if the topic does not exist; nothing if the broker does not answer, which may pass."""
        consumer = self._consumer()
        try:
            found = consumer.list_topics(self._topic.topic, timeout=CHECK_SECONDS).topics[self._topic.topic].error
        except self._kafka.KafkaException as error:
            self._wait(error)
            return
        finally:
            consumer.close()
        if found is not None and found.code() == self._kafka.KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise InvalidOption(f"{self._what} does not exist: create it, with the partitions that it shall have")

    def start(self, outbox: Outbox) -> None:
        """Begin to send, in a thread."""
        self._outbox = outbox
        self._task = self._system.spawn(f"tussock output {self._topic.topic}", self._work)

    def hurry(self) -> None:
        """It always does."""

    def stop(self) -> None:
        """Send no more."""
        self._is_stopping = True
        if self._task is not None:
            self._task.join()

    def _work(self) -> None:
        try:
            while not self._is_stopping:
                try:
                    self._step()
                except self._kafka.KafkaException as error:
                    self._give_up_producer(error)
        except BaseException as error:  # noqa: BLE001 - the application ends with it
            self._outbox.halt(failure_of(error))
        finally:
            self._close()

    def _step(self) -> None:
        if self._producer is None:
            self._connect()
        if self.sent < self._outbox.newest():
            parts = list(self._outbox.read(self.sent))
            if parts:
                self._send(parts[:1] if self._refusals.are_looked_for else parts)
                return
        elif self._system.monotonic() - self._checked_at > CHECK_SECONDS:
            self._check_topic(CHECK_SECONDS)
        elif self._system.monotonic() - self._claimed_at > CLAIM_SECONDS:
            self._send([])
        self._system.sleep(IDLE_SECONDS)

    def _connect(self) -> None:
        """A producer that is the only one of its id, and what the topic has."""
        options = {
            "partitioner": "murmur2_random",  # as Java's producers do
            "linger.ms": 5,
            **self._topic.config,
            "bootstrap.servers": self._topic.servers,
            "transactional.id": self._id,
            "enable.idempotence": True,
            "error_cb": self._note_error,
            "on_delivery": self._note_failed,
            "delivery.report.only.error": True,
        }
        self._is_too_large = False
        if self._refusals.are_looked_for:
            options["batch.num.messages"] = 1
        # No longer than that: a stop waits for it, and it is tried again.
        self._check_topic(CHECK_SECONDS)
        self._producer = self._kafka.Producer(options, logger=QuietLog())
        self._producer.init_transactions(INIT_SECONDS)
        self._offsets = self._consumer()
        place = self._offsets.committed([self._kafka.TopicPartition(self._topic.topic, 0)], timeout=CALL_SECONDS)[0]
        if place.error is not None:
            raise self._kafka.KafkaException(place.error)
        if place.offset == _FREE:
            if self._known and self._outbox.newest() > self._known:
                raise self._lost(
                    f"Kafka no longer says what it has of the rows after sequence {self._known}: the topic was made "
                    "again, or the group's offset has expired",
                )
            self._send([])
        else:
            self._check_place(place.offset, place.metadata)
            self.sent = place.offset
            self._claimed_at = self._system.monotonic()
            if self.sent > self._known:
                # The state did not hear of it before the crash.
                self._outbox.sent(self.sent)
        self._begun = None
        self.trouble = ""

    def _check_place(self, offset: int, owner: str | None) -> None:
        if owner and owner != self._owner:
            raise OutputLost(
                f"{self._what}: transactional id {self._id!r} belongs to another application ({owner}; this one is "
                f"{self._owner}); give each output another id",
                self._topic.topic,
            )
        newest = self._outbox.newest() if self._begun is None else self._begun
        if offset > newest:
            raise self._lost(
                f"Kafka has rows up to sequence {offset}, and the application has emitted up to {newest}: its store "
                "was put back to an earlier state"
            )
        if offset < self._known:
            raise self._lost(
                f"Kafka has rows up to sequence {offset}, and those up to {self._known} were sent: the topic, or the "
                "offset of the group, was put back"
            )

    def _lost(self, why: str) -> OutputLost:
        return OutputLost(
            f"{self._what}: {why}; so nothing more is sent. Say by Kafka's own tool what it has "
            f"(kafka-consumer-groups --reset-offsets --group {self._id} --topic {self._topic.topic}:0 "
            "--to-offset SEQUENCE --execute), or declare another topic with another transactional_id",
            self._topic.topic,
        )

    def _send(self, parts: list[tuple[int, pa.Table]]) -> None:
        """One transaction."""
        producer, topic = self._producer, self._topic
        last = parts[-1][0] if parts else self.sent
        producer.begin_transaction()
        for sequence, rows in parts:
            headers = [("tussock-sequence", str(sequence).encode())]
            for at, (key, value) in enumerate(topic.messages(sequence, rows)):
                if not self._refusals.has(sequence, at):
                    self._produce(key, value, headers, sequence, at)
        if self._refusals.are_looked_for:
            self._settle(CALL_SECONDS)
            if self._refusals.has_news:
                raise self._kafka.KafkaException(self._kafka.KafkaError(self._too_large[0]))
            if self._refusals.found:
                self._outbox.unsent(self._refusals.found)
        offset = self._kafka.TopicPartition(topic.topic, 0, last, self._owner)
        self._send_offset(offset)
        producer.commit_transaction(CALL_SECONDS)
        # Only now is it certain that all went to the topic that has what was sent before.
        self._check_topic(CALL_SECONDS)
        self.sent = last
        self.trouble = ""
        self._claimed_at = self._system.monotonic()
        if parts:
            self._known = last
            self._outbox.sent(last)
            if self._refusals.are_looked_for:
                # From here on by many again.
                self._refusals = TopicRefusals(self._too_large)
                self._close()

    def _check_topic(self, seconds: float) -> None:
        """`OutputLost` if it is another topic than this run began with; Kafka's error if it does not say so in time."""
        found, _ = self._client.describe(seconds)
        self._checked_at = self._system.monotonic()
        if self._topic_id and found != self._topic_id:
            raise self._lost(
                f"the topic was deleted and made again while the application ran (id {self._topic_id}, now {found}), "
                "and what was sent before is gone with it"
            )
        self._topic_id = found

    def _send_offset(self, offset: Any) -> None:
        """The offset joins the transaction, in time or not at all.

        After an outage librdkafka's call may wait for ever, whatever its timeout (its issue 5456). So it has a thread
        beside, which is left behind with its producer; the next producer shuts that one out.
        """
        producer, group = self._producer, self._offsets.consumer_group_metadata()
        ended: Future[None] = Future()

        def call() -> None:
            try:
                producer.send_offsets_to_transaction([offset], group, OFFSET_SECONDS)
            except Exception as error:  # noqa: BLE001 - raised by the sender's thread
                ended.set_exception(error)
            else:
                ended.set_result(None)

        self._system.spawn(f"tussock offset {self._topic.topic}", call)
        try:
            ended.result(OFFSET_SECONDS + 1)
        except TimeoutError:
            kinds = self._kafka.KafkaError
            raise self._kafka.KafkaException(kinds(kinds._TIMED_OUT)) from None  # noqa: SLF001 - its name there

    def _produce(
        self, key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes]], sequence: int, position: int
    ) -> None:
        until = self._system.monotonic() + CALL_SECONDS
        note = self._refusals.note(sequence, position, key, value)
        while True:
            try:
                self._producer.produce(self._topic.topic, value, key, headers=headers, on_delivery=note)
            except self._kafka.KafkaException as error:
                # The library itself refuses what is larger than its option says.
                if note is None or error.args[0].code() not in self._too_large:
                    raise
                note(error.args[0], None)
                return
            except BufferError:
                # Its queue is full: the broker is slower than the application, or away.
                if self._is_stopping or self._system.monotonic() > until:
                    kinds = self._kafka.KafkaError
                    raise self._kafka.KafkaException(kinds(kinds.REQUEST_TIMED_OUT)) from None
                self._producer.poll(0.1)
            else:
                self._producer.poll(0)
                return

    def _settle(self, seconds: float) -> None:
        """Hear of the fate of messages, until all have one, or one is found that is too large: then the rest waits."""
        until = self._system.monotonic() + seconds
        self._producer.poll(0)
        while len(self._producer) and not self._refusals.has_news and self._system.monotonic() < until:
            self._producer.poll(0.05)

    def _note_failed(self, error: Any, _: Any) -> None:
        if error is not None and error.code() in self._too_large:
            self._is_too_large = True

    def _give_up_producer(self, error: Any) -> None:
        """What the transaction has become is asked anew."""
        if self._producer is not None:
            # A transaction that is in error need not say why.
            with suppress(self._kafka.KafkaException):
                self._settle(OFFSET_SECONDS if self._refusals.are_looked_for else 0.0)
        if error.args[0].code() in self._too_large or self._is_too_large or self._refusals.has_news:
            # Which row it is shows when each has a batch to itself; the rows that were found stay out of the next try.
            if not self._refusals.go_on():
                raise InvalidOption(
                    f"{self._what}: a row is larger than a message may be, and it does not say which ({error}): raise "
                    "message.max.bytes in config=, and max.message.bytes of the topic"
                ) from error
            self._close()
            return
        self._wait(error)
        self._close()
        if not self._is_stopping:
            self._system.sleep(RETRY_SECONDS)

    def _wait(self, error: Any) -> None:
        if not self.trouble:
            log.warning("an output waits for its topic", topic=self._topic.topic, error=str(error.args[0]))
        self.trouble = str(error.args[0])

    def _note_error(self, error: Any) -> None:
        """While a call waits: it may take long until that gives up."""
        if error.code() == self._kafka.KafkaError._ALL_BROKERS_DOWN:  # noqa: SLF001 - its name there
            self.trouble = str(error)

    def _consumer(self) -> Any:
        options = {
            **{
                name: value for name, value in self._topic.config.items() if name.startswith(("sasl.", "ssl.", "secur"))
            },
            "bootstrap.servers": self._topic.servers,
            "group.id": self._id,
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
        return self._kafka.Consumer(options, logger=QuietLog())

    def _close(self) -> None:
        producer, self._producer = self._producer, None
        offsets, self._offsets = self._offsets, None
        with suppress(self._kafka.KafkaException, TussockError):
            if producer is not None:
                producer.purge()
        with suppress(self._kafka.KafkaException, RuntimeError):
            if offsets is not None:
                offsets.close()
