"""What a store should return: the history of each table, its commits, and one interface for both kinds of tables."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from support.models.history import TableHistory, apply_batch
from support.store.stores import changes_of

Key = Any
Value = Any
Batch = dict[Key, Value]
"""The value of each key, or `None` for a delete."""

RAW_KEYS = [b"", b"\0", b"\0\0", b"a", b"a\0", b"ab", b"ab\xff", b"b", b"b" * 40, b"\xfe", b"\xff", b"\xff\xff\xff"]
TYPED_KEYS = [(number, text) for number in (-5, 0, 3) for text in ("", "a", "a\0b", "ä")]
VALUES = [b"", b"v", b"x" * 90, bytes(range(256))]
TYPED_SCHEMA = pa.schema(
    [
        pa.field("number", pa.int32(), nullable=False),
        pa.field("amount", pa.int64()),
        pa.field("text", pa.string(), nullable=False),
        pa.field("note", pa.string()),
    ]
)


@dataclass
class TableModel:
    """The history of one table."""

    name: str
    typed: bool
    history: TableHistory[Key, Value] = field(default_factory=TableHistory)
    created: int = 0
    """The newest committed epoch when it was created."""

    @property
    def keys(self) -> list[Key]:
        return TYPED_KEYS if self.typed else RAW_KEYS

    def at(self, epoch: int, own: Iterable[Batch] = ()) -> Batch:
        """The visible rows at `epoch`, with the own batches, oldest first, on top."""
        seen = self.history.at(epoch)
        for batch in own:
            seen = apply_batch(seen, batch)
        return seen


@dataclass
class Model:
    """All tables by id, and all commits."""

    tables: dict[int, TableModel] = field(default_factory=dict)
    """With dropped ones: a client that has not learned of the drop still sees them."""
    names: dict[str, int] = field(default_factory=dict)
    commits: list[tuple[int, int]] = field(default_factory=list)
    """(milliseconds, epoch), both ascending."""
    ledger: dict[tuple[str, int], int] = field(default_factory=dict)
    tables_of_batch: dict[tuple[str, int], set[int]] = field(default_factory=dict)

    @property
    def newest(self) -> int:
        return self.commits[-1][1] if self.commits else 0

    def last_epoch(self, table_id: int) -> int:
        return self.tables[table_id].history.last_epoch

    def newest_write(self, table_id: int) -> int:
        """The newest epoch that wrote to the table, or the newest when it was created."""
        return max(self.last_epoch(table_id), self.tables[table_id].created)

    def commit(self, now_ms: int, epoch: int, rows: dict[int, Batch]) -> None:
        assert epoch > self.newest, "a commit has to be newer than all before it"
        self.commits.append((now_ms, epoch))
        for table_id, batch in rows.items():
            self.tables[table_id].history.commit(epoch, batch)

    def edge(self, now_ms: int, retention_seconds: float) -> int:
        """The newest epoch old enough that no earlier one has to be kept."""
        return max((epoch for at, epoch in self.commits if at <= now_ms - retention_seconds * 1000), default=0)


class RawFace:
    """A raw table as the machine uses it."""

    @staticmethod
    def write(table: Any, batch: Batch, epoch: int) -> None:
        table.ingest_batch(sorted(batch.items()), epoch)

    @staticmethod
    def get(table: Any, key: Key, epoch: int | None) -> Value:
        return table.get(key, epoch=epoch)

    @staticmethod
    def multi_get(table: Any, keys: list[Key], epoch: int | None) -> list[Value]:
        return table.multi_get(keys, epoch=epoch).to_pylist()

    @staticmethod
    def everything(table: Any, epoch: int | None) -> Batch:
        found: Batch = {}
        for batch in table.scan(epoch=epoch):
            found.update(zip(batch.column("key").to_pylist(), batch.column("value").to_pylist(), strict=True))
        return found

    @staticmethod
    def changes(table: Any, after: int, until: int | None) -> list[tuple[int, Key, Value]]:
        rows = changes_of(table, after, until)
        assert all((row["op"] == "delete") == (row["value"] is None) for row in rows)
        return [(row["epoch"], row["key"], row["value"]) for row in rows]


class TypedFace:
    """A typed table as the machine uses it; the model's value `v` is the row's `note`, its length the `amount`."""

    @staticmethod
    def _row(key: Key, value: Value) -> dict[str, Any]:
        note = value.hex()
        return {"number": key[0], "text": key[1], "amount": len(value) or None, "note": note or None}

    @staticmethod
    def _value(row: dict[str, Any]) -> Value:
        value = bytes.fromhex(row["note"] or "")
        assert row["amount"] == (len(value) or None), "columns of two rows were mixed"
        return value

    @staticmethod
    def write(table: Any, batch: Batch, epoch: int) -> None:
        puts = [TypedFace._row(key, value) for key, value in batch.items() if value is not None]
        deletes = [key for key, value in batch.items() if value is None]
        # An empty batch is legal, too.
        if puts or not deletes:
            table.upsert(pa.RecordBatch.from_pylist(puts, schema=TYPED_SCHEMA), epoch)
        if deletes:
            table.delete(deletes, epoch)

    @staticmethod
    def get(table: Any, key: Key, epoch: int | None) -> Value:
        row = table.get(key, epoch=epoch)
        return None if row is None else TypedFace._value(row)

    @staticmethod
    def multi_get(table: Any, keys: list[Key], epoch: int | None) -> list[Value]:
        rows = table.multi_get(keys, epoch=epoch).to_pylist()
        return [None if row is None else TypedFace._value(row) for row in rows]

    @staticmethod
    def everything(table: Any, epoch: int | None) -> Batch:
        rows = [row for batch in table.read(epoch=epoch) for row in batch.to_pylist()]
        found = {(row["number"], row["text"]): TypedFace._value(row) for row in rows}
        assert len(found) == len(rows), "a key was read twice"
        return found

    @staticmethod
    def changes(table: Any, after: int, until: int | None) -> list[tuple[int, Key, Value]]:
        rows = changes_of(table, after, until)
        found = [
            (row["epoch"], (row["number"], row["text"]), None if row["op"] == "delete" else TypedFace._value(row))
            for row in rows
        ]
        epochs = [epoch for epoch, _, _ in found]
        assert epochs == sorted(epochs)
        # Within an epoch the order is that of the encoded keys, virtual node first.
        return sorted(found, key=lambda change: change[:2])


def face(model: TableModel) -> Any:
    """The interface to the table."""
    return TypedFace if model.typed else RawFace
