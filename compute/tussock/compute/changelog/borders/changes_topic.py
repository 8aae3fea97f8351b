"""A topic of Kafka as output of a stream: what a program declares."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import pyarrow as pa

from tussock.compute.applications.kafka.kafka_topic import KafkaTopic
from tussock.compute.applications.kafka.sender import KafkaSender
from tussock.compute.changelog.borders.published_outputs import TIME
from tussock.compute.changelog.envelopes.values import check_column
from tussock.compute.changelog.envelopes.writer import DebeziumWriter, MessageWriter, PlainWriter
from tussock.statestore.base.system import System
from tussock.statestore.errors import InvalidOption

__all__ = ["ChangesTopic"]


@dataclass(frozen=True)
class ChangesTopic:
    """A topic that gets what a stream publishes, exactly once to readers with `isolation.level=read_committed`.

    `format`: "debezium-json", envelopes with Kafka Connect's schemas, and tombstones; "json", rows with `_op`. The key
    of a message is the key of the stream, so that the changes of a row are in one partition, in order. At most
    `lag_rows` rows wait to be sent before feeds and pushes wait, too. `transactional_id` is the flow's own by default.
    `config` has further options of librdkafka.
    """

    servers: str
    topic: str
    format: Literal["debezium-json", "json"] = "debezium-json"
    transactional_id: str | None = None
    lag_rows: int = 100_000
    config: dict[str, Any] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        """Check what was given; `InvalidOption`."""
        KafkaTopic(
            self.servers,
            self.topic,
            transactional_id=self.transactional_id,
            lag_rows=self.lag_rows,
            config=self.config,
        )
        if self.format not in ("debezium-json", "json"):
            raise InvalidOption(
                f"topic {self.topic!r}: format={self.format!r:.100}; expected 'debezium-json' or 'json'"
            )

    def of(self, flow: str, stream: str, schema: pa.Schema, key: Sequence[str]) -> "TopicOfStream":
        """The topic as the output of a stream; `InvalidOption` for columns that messages cannot have."""
        for one in schema:
            check_column(one, f"the output of stream {stream!r} to topic {self.topic!r}")
        writer: MessageWriter = (
            PlainWriter(schema, key) if self.format == "json" else DebeziumWriter(flow, stream, schema, key)
        )
        return TopicOfStream(self, writer)


class TopicOfStream:
    """An `OutputTarget`."""

    def __init__(self, declared: ChangesTopic, writer: MessageWriter) -> None:
        self.servers = declared.servers
        self.topic = declared.topic
        self.transactional_id = declared.transactional_id
        self.lag_rows = declared.lag_rows
        self.config = declared.config
        self._writer = writer

    def check(self, stream: str, schema: Any) -> None:
        """Nothing: the columns were checked."""

    def sender(self, system: System, owner: str, name: str, sent: int, begun: int) -> KafkaSender:
        """The thread that sends, for one run."""
        return KafkaSender(system, self, owner, name, sent, begun)

    def messages(self, sequence: int, rows: pa.Table) -> Iterator[tuple[bytes | None, bytes | None]]:
        """Key and value of the messages of a transaction."""
        return self._writer.messages(sequence, rows, TIME)
