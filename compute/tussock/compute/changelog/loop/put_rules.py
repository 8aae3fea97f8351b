"""PUT: what a stream has computed becomes what it publishes, by what its store has.

The rules are those of the stream processing loop of SAP's Event Stream Processor:

| computed | key absent | key present |
|---|---|---|
| INSERT | INSERT | the transaction is bad |
| UPDATE | the transaction is bad | UPDATE_BLOCK; nothing, if no column changes |
| UPSERT | INSERT | as UPDATE |
| DELETE | the transaction is bad | DELETE, with all columns that the row had |
| SAFEDELETE | nothing | as DELETE |
| UPDATE_BLOCK | as UPSERT of its new values | the same; with another key, SAFEDELETE of the old one first |

They hold record by record, each on what the ones before it have left.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from tussock.compute.changelog.changes.changes import Changes
from tussock.compute.changelog.changes.record import ChangeRecord, Op
from tussock.compute.changelog.changes.stream_shape import StreamShape

__all__ = ["PutFault", "PutResult", "absent", "duplicate", "put_records"]

Row = Mapping[str, Any]


class PutFault(Exception):
    """A record cannot be put: `args` are its place among what was computed, and why."""


class PutResult(NamedTuple):
    """What a transaction does."""

    changes: Changes
    """INSERT, UPDATE_BLOCK and DELETE."""
    upserts: Any
    """Rows as tables take them, of each key the last."""
    deletes: Any
    """Keys as tables take them."""


def put_records(shape: StreamShape, computed: Changes, find: Callable[[Any], Row | None]) -> PutResult:
    """ChangeRecord by record; `find` gives the row that the store has under a key. Raises `PutFault`."""
    now: dict[Any, Row | None] = {}
    stored: dict[Any, Row | None] = {}
    published: list[ChangeRecord] = []

    def look(key: Any) -> Row | None:
        if key not in now:
            now[key] = stored[key] = find(key)
        return now[key]

    def remove(key: Any, row: Row) -> None:
        published.append(ChangeRecord(Op.DELETE, row, None, computed.time))
        now[key] = None

    for at, one in enumerate(computed.records):
        key = shape.key_of(one)
        if one.op is Op.UPDATE_BLOCK and one.old is not None:
            old_key = shape.key_of(one.old)
            if old_key != key and (old_row := look(old_key)) is not None:
                remove(old_key, old_row)
        row = look(key)
        if one.op is Op.DELETE or one.op is Op.SAFEDELETE:
            if row is not None:
                remove(key, row)
            elif one.op is Op.DELETE:
                raise PutFault(at, absent(shape, one.op, key))
            continue
        if row is None and one.op is Op.UPDATE:
            raise PutFault(at, absent(shape, one.op, key))
        if row is not None and one.op is Op.INSERT:
            raise PutFault(at, duplicate(shape, key))
        values = shape.with_key(one.values_by_column)
        if row is None:
            published.append(ChangeRecord(Op.INSERT, values, None, computed.time))
        elif _is_same_row(shape, row, values):
            continue
        else:
            old = ChangeRecord(Op.DELETE, row, None, computed.time)
            published.append(ChangeRecord(Op.UPDATE_BLOCK, values, old, computed.time))
        now[key] = values
    upserts = [
        dict(row)
        for key, row in now.items()
        if row is not None and ((before := stored[key]) is None or not _is_same_row(shape, before, row))
    ]
    deletes = [key for key, row in now.items() if row is None and stored[key] is not None]
    return PutResult(Changes(shape, published, None, computed.time), upserts, deletes)


def _is_same_row(shape: StreamShape, row: Row, values: Row) -> bool:
    for name in shape.names:
        one, other = row[name], values[name]
        if one != other and not (one != one and other != other):
            return False
    return True


def absent(shape: StreamShape, op: Op, key: Any) -> str:
    """What is wrong with a change of a row that is not there."""
    return f"{op} of key {key!r:.200}, which {shape.what} does not have"


def duplicate(shape: StreamShape, key: Any) -> str:
    """What is wrong with an insertion of a row that is there."""
    return f"INSERT of key {key!r:.200}, which {shape.what} has already"
