"""A topic of Kafka as input: what a program declares."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import pyarrow as pa

from tussock.compute.applications.arguments import check_seconds
from tussock.compute.applications.feeds.feed import OnBad, check_on_bad
from tussock.compute.applications.kafka.kafka_source import KafkaSource
from tussock.compute.applications.kafka.library import client_options
from tussock.compute.applications.kafka.messages import MessageDecoder
from tussock.statestore import InvalidOption, StateStore
from tussock.statestore.base.system import System

__all__ = ["KafkaFeed"]

RESERVED = (
    "bootstrap.servers",
    "isolation.level",
    "auto.offset.reset",
    "enable.auto.commit",
    "enable.partition.eof",
)
BATCH_ROWS_MAX = 1_000_000
BATCH_BYTES_MAX = 1 << 30


@dataclass(frozen=True)
class KafkaFeed:
    """The messages of a topic, in batches of rows of `schema`; only what is committed there (`read_committed`).

    A message is a JSON object (`format="json"`), an Arrow IPC stream (`"arrow"`), or what `decode(message)` makes of
    it: a dict, a list of dicts, or None for no row; `message` has `value`, `key`, `partition`, `offset`, `time_ms` and
    `headers`, and the function has to answer the same each time. A batch has at most `batch_rows` messages of about
    `batch_bytes`, and waits `batch_seconds` for more than the first. `start`: "earliest" or "latest" for an application
    that has read nothing yet. With `origins` each row has `_partition` and `_offset`, too. `config` has further options
    of librdkafka, such as those of TLS.
    """

    servers: str
    topic: str
    schema: pa.Schema
    format: Literal["json", "arrow"] = "json"
    decode: Callable[[Any], Any] | None = None
    start: Literal["earliest", "latest"] = "earliest"
    batch_rows: int = 10_000
    batch_bytes: int = 16 << 20
    batch_seconds: float = 0.02
    origins: bool = False
    on_bad: OnBad = "stop"
    config: dict[str, Any] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        """Check what was given; `InvalidOption`."""
        client_options(self.servers, self.topic, self.config, RESERVED)
        what = f"the feed of topic {self.topic!r}"
        if not isinstance(self.schema, pa.Schema) or not len(self.schema):
            raise InvalidOption(f"{what}: schema={self.schema!r:.100}; expected a pyarrow.Schema with columns")
        if self.format not in ("json", "arrow"):
            raise InvalidOption(f"{what}: format={self.format!r:.100}; expected 'json' or 'arrow'")
        if self.decode is not None and not callable(self.decode):
            raise InvalidOption(f"{what}: decode={self.decode!r:.100}; expected a function from a message to rows")
        if self.start not in ("earliest", "latest"):
            raise InvalidOption(f"{what}: start={self.start!r:.100}; expected 'earliest' or 'latest'")
        for name, value, most in (
            ("batch_rows", self.batch_rows, BATCH_ROWS_MAX),
            ("batch_bytes", self.batch_bytes, BATCH_BYTES_MAX),
        ):
            if type(value) is not int or not 1 <= value <= most:
                raise InvalidOption(f"{what}: {name}={value!r:.100}; expected 1 to {most:,}")
        check_seconds(self.batch_seconds, f"{what}: batch_seconds", none=False)
        check_on_bad(self.on_bad, what)

    @property
    def transactions(self) -> None:
        """Its messages are not of transactions."""

    def open(self, store: StateStore, system: System, what: str) -> KafkaSource:  # noqa: ARG002 - other feeds' need
        """The source; `InvalidOption` for a topic that does not exist, `WaitTimeout` if the broker does not answer."""
        decoder = MessageDecoder(self.topic, self.schema, self.format, self.decode, origins=self.origins)
        return KafkaSource(self, decoder, system, what)
