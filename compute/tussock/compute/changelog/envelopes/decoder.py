"""Messages of a feed as changes of a stream: what one cannot be is told, and is no part of the rest."""

from collections.abc import Sequence
from typing import Any, Literal, Protocol

import pyarrow as pa

from tussock.compute.applications.arguments import cause_of
from tussock.compute.applications.feeds.feed import BadMessage
from tussock.compute.changelog.changes.stream_shape import StreamShape
from tussock.compute.changelog.envelopes.avro_schemas import AvroReader, SchemaSource
from tussock.compute.changelog.envelopes.canal import CanalReader
from tussock.compute.changelog.envelopes.debezium import DebeziumReader
from tussock.compute.changelog.envelopes.json_messages import JsonReader
from tussock.compute.changelog.envelopes.meanings import Misread
from tussock.compute.changelog.envelopes.plain import PlainReader
from tussock.compute.changelog.envelopes.rows import Change, RowReader, changes_table
from tussock.compute.changelog.envelopes.values import Form
from tussock.statestore.errors import SchemaMismatch

__all__ = ["FORMATS", "ChangesDecoder", "Format"]

Format = Literal["debezium-json", "debezium-avro", "canal-json", "json", "avro"]
FORMATS: tuple[Format, ...] = ("debezium-json", "debezium-avro", "canal-json", "json", "avro")

_CAUSE_MAX = 1000
"""Characters."""
_MISFITS = (SchemaMismatch, pa.ArrowException, OverflowError, ValueError, TypeError)
"""What a value raises that its column cannot hold."""


class MessageLike(Protocol):
    """A message, as far as it is read."""

    @property
    def key(self) -> bytes | None:
        """Its key."""

    @property
    def value(self) -> bytes | None:
        """Its value."""

    @property
    def origin(self) -> str:
        """Where it is in the source."""


class MessageReader(Protocol):
    """Of one format."""

    def changes(self, key: bytes | None, value: bytes | None) -> list[Change]:
        """What a message does; raises `Misread`."""


class ChangesDecoder:
    """Of one feed."""

    def __init__(
        self,
        shape: StreamShape,
        kind: Format,
        what: str,
        *,
        decimals: str = "base64",
        schemas: SchemaSource | None = None,
        schema: Any = None,
    ) -> None:
        """`decimals`: of Debezium's JSON without a schema; `schemas` and `schema` of Avro. `InvalidOption`."""
        self._shape = shape
        # Nothing of it is known, and it comes to nothing.
        self.schema = changes_table(shape, []).schema
        """Of what `table` gives."""
        self.reader: MessageReader
        if kind == "canal-json":
            self.reader = CanalReader(RowReader(shape, Form("text", "latin-1", is_text=True), what))
        elif kind.endswith("avro"):
            assert schemas is not None, "a feed of Avro has schemas"
            avro, rows = AvroReader(schemas, schema, what), RowReader(shape, Form("text"), what)
            is_plain = kind == "avro"
            self.reader = PlainReader(rows, avro) if is_plain else DebeziumReader(rows, avro)
        elif kind == "json":
            self.reader = PlainReader(RowReader(shape, Form("text"), what), JsonReader())
        else:
            self.reader = DebeziumReader(RowReader(shape, Form(decimals), what), JsonReader())
        self.endings = self.reader if isinstance(self.reader, DebeziumReader) else None
        """Where messages say of which transaction they are."""

    def table(self, messages: Sequence[MessageLike]) -> tuple[pa.Table, tuple[BadMessage, ...]]:
        """The changes of all messages, in their order, and those messages that are none.

        Raises what a schema registry raises.
        """
        found: list[tuple[MessageLike, list[Change]]] = []
        bad: list[BadMessage] = []
        for message in messages:
            try:
                changes = self.reader.changes(message.key, message.value)
            except Misread as error:
                bad.append(_bad(message, str(error)))
            else:
                found.append((message, changes))
        try:
            return changes_table(self._shape, [one for _, changes in found for one in changes]), tuple(bad)
        except _MISFITS:
            pass
        # A value that its column cannot hold; the messages apart show whose it is.
        kept: list[Change] = []
        for message, changes in found:
            try:
                changes_table(self._shape, changes)
            except _MISFITS as error:
                bad.append(_bad(message, cause_of(error)))
            else:
                kept += changes
        bad.sort(key=lambda one: one.origin)
        return changes_table(self._shape, kept), tuple(bad)


def _bad(message: MessageLike, cause: str) -> BadMessage:
    return BadMessage(message.origin, message.value or b"", cause[:_CAUSE_MAX])
