"""Debezium's envelope: `before`, `after`, and `op`, which is c(reate), r(ead, of a snapshot), u(pdate) or d(elete).

Debezium tells each change at least once. So what it has told is done softly, by key: read again, it changes nothing.
"""

from typing import Any, Protocol

from tussock.compute.applications.kafka.whole_transactions import SourceEnding
from tussock.compute.changelog.changes.record import Op
from tussock.compute.changelog.envelopes.meanings import Meaning, Misread
from tussock.compute.changelog.envelopes.rows import Change, RowReader

__all__ = ["DataReader", "DebeziumReader"]


class DataReader(Protocol):
    """Of JSON or Avro. Both methods raise `Misread`."""

    def read_value(self, data: bytes) -> tuple[Any, Meaning]:
        """The payload of a value, and what it means."""

    def read_key(self, data: bytes) -> tuple[Any, Meaning]:
        """The payload of a key."""


class DebeziumReader:
    """Of one feed, whichever form its data have."""

    def __init__(self, rows: RowReader, data: DataReader) -> None:
        self._rows = rows
        self._data = data

    def changes(self, key: bytes | None, value: bytes | None) -> list[Change]:
        """What a message does; nothing for the tombstone behind a deletion. Raises `Misread`."""
        if value is None:
            return []
        envelope, meaning = self._data.read_value(value)
        if not isinstance(envelope, dict) or "op" not in envelope:
            raise Misread("it has no `op`: it is no change event of Debezium")
        op, before, after = envelope["op"], envelope.get("before"), envelope.get("after")
        if op == "d":
            return [Change(Op.SAFEDELETE, self._gone(key, before, meaning.of("before")))]
        if op in ("c", "r", "u"):
            row = self._rows.row(after, meaning.of("after"), before)
            if op == "u" and self._rows.has_key(before):
                return [Change(Op.UPDATE_BLOCK, row, self._rows.old_row(before, meaning.of("before")))]
            return [Change(Op.UPSERT, row)]
        if op == "m":
            return []
        if op == "t":
            raise Misread("the table was truncated there, and which rows it had is not said")
        raise Misread(f"its op is {op!r:.100}; expected 'c', 'r', 'u' or 'd'")

    def of_event(self, value: bytes | None) -> str | None:
        """The id of the source's transaction that a message is of; `None` if it does not say, or cannot be read."""
        block = self._said(value).get("transaction")
        found = block.get("id") if isinstance(block, dict) else None
        return found if isinstance(found, str) else None

    def of_end(self, value: bytes | None) -> SourceEnding | None:
        """What a message of the topic of transaction metadata says of the end of one."""
        said = self._said(value)
        transaction, tables = said.get("id"), said.get("data_collections") or []
        if said.get("status") != "END" or not isinstance(transaction, str) or not isinstance(tables, list):
            return None
        counts: dict[str, int] = {}
        for one in tables:
            if isinstance(one, dict) and isinstance(one.get("event_count"), int):
                counts[str(one.get("data_collection"))] = one["event_count"]
        return SourceEnding(transaction, counts)

    def _said(self, value: bytes | None) -> dict[str, Any]:
        if value is None:
            return {}
        try:
            # As it was written: a schema of the reader may have nothing of this.
            found, _ = self._data.read_key(value)
        except Misread:
            return {}
        return found if isinstance(found, dict) else {}

    def _gone(self, key: bytes | None, before: Any, meaning: Meaning) -> dict[str, Any]:
        if before is None or not self._rows.has_key(before):
            if key is None:
                raise Misread("it deletes a row, and neither `before` nor the message's key say which")
            found, meaning = self._data.read_key(key)
            return self._rows.key_row(found, meaning)
        try:
            return self._rows.old_row(before, meaning)
        except Misread:
            # Without REPLICA IDENTITY FULL the other columns are made up.
            return self._rows.key_row(before, meaning)
