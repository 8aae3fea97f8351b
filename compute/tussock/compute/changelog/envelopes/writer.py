"""What a stream publishes as messages: Debezium's envelopes with their schemas, or rows with `_op`."""

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import msgspec
import pyarrow as pa

from tussock.compute.changelog.changes.record import Op
from tussock.compute.changelog.changes.stream_shape import OP
from tussock.compute.changelog.envelopes.json_values import connect_schema, debezium_values, plain_values

__all__ = ["DebeziumWriter", "MessageWriter", "PlainWriter"]

Message = tuple[bytes | None, bytes | None]
_encode = msgspec.json.Encoder().encode


class MessageWriter(Protocol):
    """Of one format."""

    def messages(self, sequence: int, rows: pa.Table, time_column: str) -> Iterator[Message]:
        """Key and value of each message of a transaction: of rows with `_op`, blocks as two, and the time."""


class PlainWriter:
    """`{"_op": "INSERT", …}`, INSERT, UPDATE or DELETE, with all columns; its key is an object of the key's columns."""

    def __init__(self, schema: pa.Schema, key: Sequence[str]) -> None:
        self._names = schema.names
        self._key = key

    def messages(self, sequence: int, rows: pa.Table, time_column: str) -> Iterator[Message]:  # noqa: ARG002 - others'
        """A message for each record."""
        is_old = False
        for op, row in zip(rows.column(OP).to_pylist(), _rows(rows, self._names, plain_values), strict=True):
            if not is_old:
                shown = Op.UPDATE if op == Op.UPDATE_BLOCK else op
                yield _encode({name: row[name] for name in self._key}), _encode({OP: shown, **row})
            is_old = not is_old and op == Op.UPDATE_BLOCK


class DebeziumWriter:
    """Envelopes, and behind each deletion the tombstone by which a compacted topic forgets the key."""

    def __init__(self, flow: str, stream: str, schema: pa.Schema, key: Sequence[str]) -> None:
        self._flow, self._stream = flow, stream
        self._names = schema.names
        self._key = key
        name = f"{flow}.{stream}"
        fields = [connect_schema(field) for field in schema]
        row = {"type": "struct", "fields": fields, "optional": True, "name": f"{name}.Value"}
        key_fields = [connect_schema(schema.field(one)) for one in key]
        self._key_schema = _encode({"type": "struct", "fields": key_fields, "optional": False, "name": f"{name}.Key"})
        texts = ("version", "connector", "name", "snapshot", "db", "table", "sequence")
        source = [{"type": "string", "optional": False, "field": one} for one in texts]
        source.append({"type": "int64", "optional": False, "field": "ts_ms"})
        order = [{"type": "int64", "optional": False, "field": f"{one}_order"} for one in ("total", "data_collection")]
        block = [{"type": "string", "optional": False, "field": "id"}, *order]
        self._schema = _encode(
            {
                "type": "struct",
                "fields": [
                    {**row, "field": "before"},
                    {**row, "field": "after"},
                    {"type": "struct", "fields": source, "optional": False, "field": "source"},
                    {"type": "string", "optional": False, "field": "op"},
                    {"type": "int64", "optional": True, "field": "ts_ms"},
                    {"type": "struct", "fields": block, "optional": True, "field": "transaction"},
                ],
                "optional": False,
                "name": f"{name}.Envelope",
                "version": 2,
            }
        )

    def messages(self, sequence: int, rows: pa.Table, time_column: str) -> Iterator[Message]:
        """A message for each record, two for a deletion."""
        ops, times = rows.column(OP).to_pylist(), rows.column(time_column).to_pylist()
        values = _rows(rows, self._names, debezium_values)
        at = number = 0
        while at < len(ops):
            number += 1
            op, row, time = ops[at], values[at], times[at]
            before: Any = None
            after: Any = row
            word = "c"
            if op == Op.DELETE:
                before, after, word = row, None, "d"
            elif op == Op.UPDATE_BLOCK:
                before, word = values[at + 1], "u"
                at += 1
            at += 1
            key = _wrapped(self._key_schema, {name: row[name] for name in self._key})
            envelope = {
                "before": before,
                "after": after,
                "source": self._source(sequence, number, time),
                "op": word,
                "ts_ms": time,
                "transaction": {"id": str(sequence), "total_order": number, "data_collection_order": number},
            }
            yield key, _wrapped(self._schema, envelope)
            if op == Op.DELETE:
                yield key, None

    def _source(self, sequence: int, number: int, time: int) -> dict[str, Any]:
        return {
            "version": "1",
            "connector": "tussock",
            "name": self._flow,
            "ts_ms": time,
            "snapshot": "false",
            "db": self._flow,
            "table": self._stream,
            "sequence": f"[{sequence},{number}]",
        }


def _wrapped(schema: bytes, payload: Any) -> bytes:
    return b"".join((b'{"schema":', schema, b',"payload":', _encode(payload), b"}"))


def _rows(rows: pa.Table, names: Sequence[str], values: Any) -> list[dict[str, Any]]:
    columns = [values(_whole(rows.column(name))) for name in names]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def _whole(column: pa.ChunkedArray) -> pa.Array:
    found = column.combine_chunks()
    return pa.concat_arrays(found.chunks) if isinstance(found, pa.ChunkedArray) else found
