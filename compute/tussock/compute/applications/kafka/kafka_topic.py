"""A topic of Kafka as output: what a program declares, and how a row becomes a message."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pyarrow as pa

from tussock.compute.applications.borders.exact_json import json_part
from tussock.compute.applications.kafka.library import client_options
from tussock.compute.applications.kafka.sender import KafkaSender
from tussock.statestore.base.system import System
from tussock.statestore.errors import InvalidOption
from tussock.statestore.rows.python_values import python_rows

__all__ = ["KafkaTopic"]

RESERVED = ("bootstrap.servers", "transactional.id", "enable.idempotence", "group.id", "isolation.level", "acks")
LAG_ROWS_MAX = 10_000_000
_ID = re.compile(r"[A-Za-z0-9._-]{1,200}")
_encode = msgspec.json.Encoder(enc_hook=json_part).encode


@dataclass(frozen=True)
class KafkaTopic:
    """A topic that gets the tuples of a stream, exactly once to readers with `isolation.level=read_committed`.

    A tuple is a message: JSON of its columns, or the bytes that `encode(row)` returns for the dict of a row. `key`
    names a column whose value, as text, is the message's key. At most `lag_rows` tuples wait to be sent before batches
    wait, too. `transactional_id` is the application's own by default. `config` has further options of librdkafka.
    """

    servers: str
    topic: str
    key: str | None = None
    encode: Callable[[Mapping[str, Any]], bytes] | None = None
    transactional_id: str | None = None
    lag_rows: int = 100_000
    config: dict[str, Any] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        """Check what was given; `InvalidOption`."""
        client_options(self.servers, self.topic, self.config, RESERVED)
        what = f"topic {self.topic!r}"
        if self.encode is not None and not callable(self.encode):
            raise InvalidOption(f"{what}: encode={self.encode!r:.100}; expected a function from a row to bytes")
        if self.transactional_id is not None and not (
            isinstance(self.transactional_id, str) and _ID.fullmatch(self.transactional_id)
        ):
            raise InvalidOption(
                f"{what}: transactional_id={self.transactional_id!r:.300}; expected letters, digits, '.', '_' and '-'"
            )
        if type(self.lag_rows) is not int or not 1 <= self.lag_rows <= LAG_ROWS_MAX:
            raise InvalidOption(f"{what}: lag_rows={self.lag_rows!r:.100}; expected 1 to {LAG_ROWS_MAX:,}")

    def check(self, stream: str, schema: pa.Schema) -> None:
        """`InvalidOption` if the key is no column of the stream."""
        if self.key is not None and self.key not in schema.names:
            raise InvalidOption(f"output of stream {stream!r}: key={self.key!r:.100} is none of {schema.names}")

    def sender(self, system: System, owner: str, name: str, sent: int, begun: int) -> KafkaSender:
        """The thread that sends rows, for one run."""
        return KafkaSender(system, self, owner, name, sent, begun)

    def messages(self, sequence: int, rows: pa.Table) -> Iterator[tuple[bytes | None, bytes | None]]:  # noqa: ARG002 - others'
        """Key and value of the messages of one sequence."""
        return map(self._message, python_rows(rows))

    def _message(self, row: dict[str, Any]) -> tuple[bytes | None, bytes | None]:
        """Key and value of the message of a row."""
        value = _encode(row) if self.encode is None else self.encode(row)
        if not isinstance(value, bytes):
            raise InvalidOption(f"topic {self.topic!r}: encode() returned {type(value).__name__}; expected bytes")
        key = None if self.key is None else row[self.key]
        return (None if key is None else key if isinstance(key, bytes) else _text(key).encode()), value


def _text(key: Any) -> str:
    return str(json_part(key) if isinstance(key, pa.Scalar) else key)
