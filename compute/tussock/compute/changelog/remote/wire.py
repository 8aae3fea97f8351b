"""Records, transactions and schemas as they travel: as bytes for clients, and as text for pages and commands."""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pyarrow as pa

from tussock.compute.applications.arguments import clean_text
from tussock.compute.applications.ipc_streams import ipc_bytes
from tussock.compute.changelog.changes.changes import Changes
from tussock.compute.changelog.changes.record import ChangeRecord, Op
from tussock.compute.changelog.changes.stream_shape import StreamShape
from tussock.compute.changelog.changes.transaction import StreamTransaction, changes_bytes, changes_from
from tussock.compute.service.rpc import application_pb2 as pb
from tussock.compute.service.rpc.arrow_messages import read_table
from tussock.compute.service.rpc.kinds import PLAIN_BYTES_MAX
from tussock.compute.service.rpc.values import plain_list
from tussock.statestore.errors import CorruptLog, SchemaMismatch, TussockError

__all__ = [
    "as_bytes",
    "as_text",
    "from_bytes",
    "pack_records",
    "pack_schema",
    "read_records",
    "read_shape",
    "record_text",
    "value_text",
]

KEY_METADATA = b"tussock.key"
TEXT_MAX = 500
"""Characters of one value as text."""
EXACT_MAX = 1 << 53
"""Whole numbers up to here are the same in JSON everywhere."""
FEW = 64
_WORDS = frozenset(str(op) for op in Op)
_PLAIN = frozenset((bool, int, float, str, bytes, type(None)))


def pack_schema(shape: StreamShape) -> bytes:
    """What a client has to know of a stream, for `Hello.schemas`."""
    schema = shape.schema.with_metadata({KEY_METADATA: json.dumps(list(shape.key)).encode()})
    return ipc_bytes(schema.empty_table())


def read_shape(stream: str, data: bytes) -> StreamShape:
    """The same for the client; `TussockError` for what is none."""
    try:
        with pa.ipc.open_stream(data) as reader:
            schema = reader.schema
        key = json.loads((schema.metadata or {})[KEY_METADATA])
        return StreamShape(stream, schema.remove_metadata(), [str(name) for name in key])
    except (pa.ArrowException, OSError, ValueError, KeyError, TypeError) as error:
        raise TussockError(
            f"stream {stream!r:.120}: what the service says of its columns cannot be read: {error}"
        ) from None


def pack_records(push: pb.Push, changes: Changes) -> None:
    """Put the records of a transaction into a request."""
    if not changes.is_columns and len(changes) <= FEW:
        pairs = [(str(one.op), dict(one)) for one in changes.records if one.old is None and _is_plain(one)]
        if len(pairs) == len(changes):
            plain = msgspec.msgpack.encode(pairs)
            if len(plain) <= PLAIN_BYTES_MAX:
                push.plain = plain
                return
    push.arrow = ipc_bytes(changes.batch())


def read_records(push: pb.Push) -> Any:
    """The records of a request as `Stream.push` takes them; `SchemaMismatch` if the bytes are none."""
    what = f"stream {push.stream!r:.120}"
    if push.WhichOneof("records") == "arrow":
        return read_table(push.arrow, what)
    return [_record_of(pair, what) for pair in plain_list(push.plain, what)]


def as_bytes(one: StreamTransaction) -> dict[str, Any]:
    """A transaction for a client, who knows the columns of its stream."""
    return {"stream": one.changes.shape.stream, "seq": one.seq, "data": changes_bytes(one.changes)}


def from_bytes(found: Mapping[str, Any], shapes: Mapping[str, StreamShape]) -> StreamTransaction:
    """The same at the client; `TussockError` for what is none."""
    try:
        shape = shapes[found["stream"]]
        return StreamTransaction(found["seq"], changes_from(found["data"], shape, f"stream {shape.stream!r}"))
    except (CorruptLog, KeyError, TypeError) as error:
        raise TussockError(f"the service sent a transaction that cannot be read: {error!r}") from None


def as_text(one: StreamTransaction, most: int, start: int = 0) -> dict[str, Any]:
    """A transaction for people: `most` of its records, from number `start` on, and how many it has."""
    start = max(min(start, len(one) - most), 0)
    part = one.changes.window(start, min(start + most, len(one)))
    records = [record_text(record) for record in part.records]
    return {"seq": one.seq, "time": one.time, "count": len(one), "start": start, "records": records}


def record_text(one: ChangeRecord, was: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """A record for people; `was`: the row under its key, if it has not got that by itself."""
    old = was if one.old is None else one.old
    return {"op": str(one.op), "row": _row_text(one), "old": None if old is None else _row_text(old)}


def value_text(value: Any) -> Any:
    """A value as JSON has it, and people read it."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if -EXACT_MAX <= value <= EXACT_MAX else str(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    text = f"hex:{value[:TEXT_MAX].hex()}" if isinstance(value, bytes) else clean_text(str(value)[: TEXT_MAX + 1])
    return text if len(text) <= TEXT_MAX else f"{text[:TEXT_MAX]}..."


def _row_text(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value_text(value) for name, value in row.items()}


def _is_plain(one: ChangeRecord) -> bool:
    values: Sequence[Any] = list(one.values())
    return all(type(value) in _PLAIN for value in values) and all(
        -(1 << 63) <= value < 1 << 63 for value in values if type(value) is int
    )


def _record_of(pair: object, what: str) -> ChangeRecord:
    """A pair of an operation and a map, from somebody who may not mean well."""
    match pair:
        case [str(word), dict(values)] if word in _WORDS and all(isinstance(name, str) for name in values):
            return ChangeRecord(Op(word), values)
    raise SchemaMismatch(f"{what}: {pair!r:.100} is no pair of an operation and a map of columns")
