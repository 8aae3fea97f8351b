"""What the reader of a topic is told, and what makes rows of its messages."""

from collections.abc import Sequence
from typing import Any, Protocol

import pyarrow as pa

from tussock.compute.applications.feeds.feed import BadMessage, OnBad
from tussock.compute.applications.kafka.messages import KafkaMessage

__all__ = ["Decoder", "Reading"]


class Reading(Protocol):
    """What a feed says of the reading of a topic."""

    @property
    def servers(self) -> str:
        """Addresses of brokers."""

    @property
    def topic(self) -> str:
        """Its name."""

    @property
    def start(self) -> str:
        """Where an application begins that has read nothing yet: "earliest" or "latest"."""

    @property
    def batch_rows(self) -> int:
        """Messages of a batch, at most."""

    @property
    def batch_bytes(self) -> int:
        """The same in bytes, about."""

    @property
    def batch_seconds(self) -> float:
        """How long a batch waits for more than its first message."""

    @property
    def transactions(self) -> str | None:
        """The topic that says where transactions end that are to be kept whole."""

    @property
    def on_bad(self) -> OnBad:
        """What becomes of messages that are no rows."""

    @property
    def config(self) -> dict[str, Any]:
        """Further options of the library."""


class Decoder(Protocol):
    """What makes rows of messages."""

    schema: pa.Schema

    def table(self, messages: Sequence[KafkaMessage]) -> tuple[pa.Table, tuple[BadMessage, ...]]:
        """The rows of all messages, in their order, and those messages that are none."""
