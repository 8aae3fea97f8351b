"""A topic of Kafka as input of a stream: what a program declares."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from tussock.compute.applications.arguments import check_seconds
from tussock.compute.applications.feeds.feed import OnBad, check_on_bad
from tussock.compute.applications.kafka.kafka_feed import BATCH_BYTES_MAX, BATCH_ROWS_MAX, RESERVED
from tussock.compute.applications.kafka.kafka_source import KafkaSource
from tussock.compute.applications.kafka.library import client_options
from tussock.compute.changelog.changes.stream_shape import StreamShape
from tussock.compute.changelog.envelopes.avro_schemas import GivenSchemas, SchemaSource
from tussock.compute.changelog.envelopes.decoder import FORMATS, ChangesDecoder, Format
from tussock.compute.changelog.envelopes.registry import OpenRegistry, SchemaRegistry
from tussock.statestore import InvalidOption, StateStore
from tussock.statestore.base.system import System

__all__ = ["KafkaChanges"]


@dataclass(frozen=True)
class KafkaChanges:
    """The messages of a topic as changes, only what is committed there (`read_committed`); a batch is a transaction.

    `format`: "debezium-json" and "debezium-avro", with Kafka Connect's schemas or without; "canal-json"; "json" and
    "avro", where a message is a row, may say what is done to it in `_op`, and without a value deletes the row of its
    key. Each change is done softly, as upsert, update block or safedelete, so that messages may come again.

    Avro has a head with the number of its schema; `registry` tells the schemas, or is a dict of them by number.
    `schema`, of Avro, is what values are read as. `decimals`: what Debezium's JSON without a schema has for decimals,
    "base64" as by default there, or "text". A batch has at most `batch_rows` messages of about `batch_bytes`, and waits
    `batch_seconds` for more than the first. With `transactions`, the name of Debezium's topic of transaction metadata,
    no transaction of the source is split: the feed waits for its end, and gives all its events at once. `start`:
    "earliest" or "latest" for a flow that has read nothing yet. `config` has further options of librdkafka, such as
    those of TLS.
    """

    servers: str
    topic: str
    format: Format = "debezium-json"
    registry: SchemaRegistry | Mapping[int, Any] | None = None
    schema: Any = None
    decimals: Literal["base64", "text"] = "base64"
    transactions: str | None = None
    start: Literal["earliest", "latest"] = "earliest"
    batch_rows: int = 10_000
    batch_bytes: int = 16 << 20
    batch_seconds: float = 0.02
    on_bad: OnBad = "stop"
    config: dict[str, Any] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        """Check what was given; `InvalidOption`."""
        client_options(self.servers, self.topic, self.config, RESERVED)
        what = f"the feed of topic {self.topic!r}"
        for name, value, expected in (
            ("format", self.format, FORMATS),
            ("decimals", self.decimals, ("base64", "text")),
            ("start", self.start, ("earliest", "latest")),
        ):
            if not isinstance(value, str) or value not in expected:
                raise InvalidOption(f"{what}: {name}={value!r:.100}; expected one of {list(expected)}")
        if self.transactions is not None and (
            not self.format.startswith("debezium")
            or not isinstance(self.transactions, str)
            or not 1 <= len(self.transactions) <= 249
        ):
            raise InvalidOption(
                f"{what}: transactions={self.transactions!r:.300} with format={self.format!r}; expected the name of "
                "the topic of Debezium's transaction metadata"
            )
        is_avro = self.format.endswith("avro")
        if is_avro != isinstance(self.registry, SchemaRegistry | Mapping) or (self.schema is not None and not is_avro):
            raise InvalidOption(
                f"{what}: format={self.format!r} with registry={self.registry!r:.100}; expected a SchemaRegistry, or a "
                "dict of schemas by number, for Avro, and neither registry= nor schema= for JSON"
            )
        if isinstance(self.registry, Mapping) and not all(type(number) is int for number in self.registry):
            raise InvalidOption(f"{what}: registry has {list(self.registry)!r:.100}; expected numbers of schemas")
        for name, count, most in (
            ("batch_rows", self.batch_rows, BATCH_ROWS_MAX),
            ("batch_bytes", self.batch_bytes, BATCH_BYTES_MAX),
        ):
            if type(count) is not int or not 1 <= count <= most:
                raise InvalidOption(f"{what}: {name}={count!r:.100}; expected 1 to {most:,}")
        check_seconds(self.batch_seconds, f"{what}: batch_seconds", none=False)
        check_on_bad(self.on_bad, what)

    def open_changes(self, store: StateStore, system: System, what: str, shape: StreamShape) -> KafkaSource:  # noqa: ARG002 - other feeds' need
        """The source; `InvalidOption` for a topic that does not exist, `WaitTimeout` if the broker does not answer."""
        schemas: SchemaSource | None = None
        if isinstance(self.registry, SchemaRegistry):
            schemas = OpenRegistry(self.registry, system)
        elif self.registry is not None:
            schemas = GivenSchemas(self.registry)
        decoder = ChangesDecoder(shape, self.format, what, decimals=self.decimals, schemas=schemas, schema=self.schema)
        return KafkaSource(self, decoder, system, what, decoder.endings)
