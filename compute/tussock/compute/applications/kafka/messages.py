"""Messages of a topic as rows: JSON and Arrow by a schema, or by a user's function."""

from collections.abc import Callable, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa

from tussock.compute.applications.arguments import cause_of
from tussock.compute.applications.borders.exact_json import exact_time
from tussock.compute.applications.feeds.feed import BadMessage
from tussock.compute.applications.ipc_streams import ipc_table
from tussock.statestore.errors import InvalidBatch, InvalidOption, SchemaMismatch
from tussock.statestore.tables.packed_columns import check_unpacked
from tussock.statestore.tables.typed_input import conform

__all__ = ["KafkaMessage", "MessageDecoder"]

_CAUSE_MAX = 1000
"""Characters."""


class KafkaMessage(NamedTuple):
    """A message as a user's function gets it."""

    value: bytes | None
    key: bytes | None
    partition: int
    offset: int
    time_ms: int
    headers: Sequence[tuple[str, bytes]]
    topic: str = ""

    @property
    def origin(self) -> str:
        """Its place, which sorts by partition and offset."""
        return f"{self.topic}/{self.partition}/{self.offset:020d}"


class MessageDecoder:
    """Of one feed."""

    def __init__(
        self, topic: str, schema: pa.Schema, kind: str, decode: Callable[[Any], Any] | None, *, origins: bool
    ) -> None:
        """`InvalidOption` if JSON cannot hold a column of the schema."""
        self._topic = topic
        self._rows_of = self._by_function if decode is not None else self._arrow if kind == "arrow" else self._json
        self._decode: Callable[[Any], Any] = decode or (lambda message: message)
        self._origins = origins
        added = ("_partition", "_offset") if origins else ()
        taken = [name for name in added if name in schema.names]
        if taken:
            raise InvalidOption(f"topic {topic!r}: its schema has columns {taken}, which origins=True adds")
        self.given = schema
        types = {"_partition": pa.int32(), "_offset": pa.int64()}
        self.schema = pa.schema([*schema, *(pa.field(name, types[name], nullable=False) for name in added)])
        if self._rows_of == self._json:
            self._struct = msgspec.json.Decoder(_struct_of("Row", schema, topic), dec_hook=_take_time)

    def table(self, messages: Sequence[KafkaMessage]) -> tuple[pa.Table, tuple[BadMessage, ...]]:
        """The rows of all messages, in their order, and those messages that are none."""
        rows: list[Any] = []
        bad: list[BadMessage] = []
        at: list[KafkaMessage] = []
        for message in messages:
            try:
                given = self._rows_of(message)
            except BaseException as error:  # noqa: BLE001 - of a user's function, too
                bad.append(self._bad(message, error))
                continue
            rows.append(given)
            at.append(message)
        try:
            parts = [self._conform([row for given in rows for row in given])] if self._rows_of != self._arrow else rows
            counts = [len(given) if self._rows_of != self._arrow else given.num_rows for given in rows]
        except (SchemaMismatch, InvalidBatch):
            parts, counts, kept = [], [], []
            for message, given in zip(at, rows, strict=True):
                try:
                    parts.append(self._conform(given))
                except (SchemaMismatch, InvalidBatch) as error:
                    bad.append(self._bad(message, error))
                else:
                    counts.append(len(given))
                    kept.append(message)
            at = kept
            bad.sort(key=lambda one: one.origin)
        table = pa.concat_tables(parts) if parts else self.given.empty_table()
        if self._origins:
            pairs = [
                (one.partition, one.offset) for one, rows_of in zip(at, counts, strict=True) for _ in range(rows_of)
            ]
            for place, field in enumerate(list(self.schema)[-2:]):
                table = table.append_column(field, pa.array([pair[place] for pair in pairs], field.type))
        return table, tuple(bad)

    def _conform(self, rows: list[dict[str, Any]]) -> pa.Table:
        batch = conform(rows, self.given, (), f"topic {self._topic}")
        return pa.Table.from_arrays(batch.columns, schema=self.given)

    def _json(self, message: KafkaMessage) -> list[dict[str, Any]]:
        if message.value is None:
            raise SchemaMismatch("the message has no value")
        row = self._struct.decode(message.value)
        return [{field.name: _plain(getattr(row, f"c{at}")) for at, field in enumerate(self.given)}]

    def _arrow(self, message: KafkaMessage) -> pa.Table:
        if message.value is None:
            raise SchemaMismatch("the message has no value")
        table = ipc_table(message.value)
        table.validate(full=True)
        check_unpacked(table, self.given, f"topic {self._topic}")
        batch = conform(table, self.given, (), f"topic {self._topic}")
        return pa.Table.from_arrays(batch.columns, schema=self.given)

    def _by_function(self, message: KafkaMessage) -> list[dict[str, Any]]:
        found = self._decode(message)
        rows = [] if found is None else found if isinstance(found, list) else [found]
        if not all(isinstance(row, dict) for row in rows):
            raise SchemaMismatch(f"decode() returned {found!r:.100}; expected a dict, a list of dicts, or None")
        return rows

    def _bad(self, message: KafkaMessage, error: BaseException) -> BadMessage:
        cause = cause_of(error)[:_CAUSE_MAX]
        return BadMessage(message.origin, message.value or b"", cause)


_TIMES = (datetime, time, timedelta)


class _Time:
    """A time of a message; each column has a class of these, since msgspec would round what it takes for a time."""

    kind: pa.DataType
    python: type

    def __init__(self, value: Any) -> None:
        self.value = value


def _time_of(kind: pa.DataType, python: type) -> type:
    return type("Time", (_Time,), {"kind": kind, "python": python})


def _take_time(time_class: Any, given: Any) -> Any:
    if not isinstance(given, str):
        raise TypeError(f"expected a text of ISO 8601 for {time_class.kind}, got {given!r:.100}")
    return time_class(exact_time(given, time_class.kind, time_class.python))


def _plain(value: Any) -> Any:
    """Structs of the decoder as dicts, and times as their values, at any depth."""
    if isinstance(value, _Time):
        return value.value
    if isinstance(value, msgspec.Struct):
        names = {field.name: field.encode_name for field in msgspec.structs.fields(value)}
        return {shown: _plain(getattr(value, name)) for name, shown in names.items()}
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return value


def _struct_of(name: str, schema: Any, topic: str) -> Any:
    """A class for a row; columns may have names that Python's attributes cannot."""
    fields: list[Any] = []
    renamed = {}
    for at, column in enumerate(schema):
        kind = _kind_of(column, topic)
        renamed[f"c{at}"] = column.name
        fields.append((f"c{at}", kind | None, None) if column.nullable else (f"c{at}", kind))
    return msgspec.defstruct(name, fields, rename=renamed.get, kw_only=True)


def _kind_of(column: pa.Field, topic: str) -> Any:
    kind = column.type
    for is_it, python in (
        (pa.types.is_boolean, bool),
        (pa.types.is_integer, int),
        (pa.types.is_floating, float),
        (pa.types.is_string, str),
        (pa.types.is_large_string, str),
        (pa.types.is_binary, bytes),
        (pa.types.is_large_binary, bytes),
        (pa.types.is_timestamp, datetime),
        (pa.types.is_date, date),
        (pa.types.is_time, time),
        (pa.types.is_duration, timedelta),
        (pa.types.is_decimal, Decimal),
    ):
        if is_it(kind):
            return _time_of(kind, python) if python in _TIMES else python
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        inner = kind.value_field
        return list[_kind_of(inner, topic) | None] if inner.nullable else list[_kind_of(inner, topic)]  # type: ignore[misc]
    if pa.types.is_struct(kind):
        return _struct_of("Inner", list(kind), topic)
    raise InvalidOption(
        f"topic {topic!r}: column {column.name!r} of type {kind} has no form in JSON here; give decode= instead"
    )
