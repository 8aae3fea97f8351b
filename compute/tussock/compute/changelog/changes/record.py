"""A change of one row: what a stream's compute function gets and returns, and what subscribers see."""

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any

from tussock.statestore.errors import SchemaMismatch

__all__ = ["ChangeRecord", "Op", "delete", "insert", "op_of", "safedelete", "update", "upsert"]


class Op(StrEnum):
    """What a record does to the row of its key."""

    INSERT = "INSERT"
    """The key must not be there."""
    UPDATE = "UPDATE"
    """The key must be there. Published: it was, and has changed."""
    UPSERT = "UPSERT"
    """Insert or update, as the store has it. Never published."""
    DELETE = "DELETE"
    """The key must be there. Published with all columns that the row had."""
    SAFEDELETE = "SAFEDELETE"
    """Delete it if it is there. Never published."""
    UPDATE_BLOCK = "UPDATE_BLOCK"
    """New values together with the old ones: an update as streams give it to each other."""


_OPS = {str(op): op for op in Op}


def op_of(word: Any) -> Op | None:
    """The operation that a word names, in any case; `None` for what names none."""
    return _OPS.get(word.upper()) if isinstance(word, str) and word.isascii() else None


class ChangeRecord(Mapping[str, Any]):
    """One change: a read-only mapping of column names to values, with what is done in `op`."""

    __slots__ = ("_values", "old", "op", "time")

    def __init__(self, op: Op, values: Mapping[str, Any], old: "ChangeRecord | None" = None, time: int = 0) -> None:
        """`values` by column; of a delete the key is enough. `old`: what an update block replaces."""
        self.op = op
        self._values = values
        self.old = old
        """Of an `UPDATE_BLOCK` the row as it was, a `DELETE`; else `None`."""
        self.time = time
        """When its transaction was pushed, in milliseconds since 1970; 0 for a record that was just made."""

    def __getitem__(self, column: str) -> Any:
        return self._values[column]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ChangeRecord):
            return NotImplemented
        return self.op == other.op and self.old == other.old and dict(self._values) == dict(other._values)

    __hash__ = None  # type: ignore[assignment]  # values may be lists

    def __repr__(self) -> str:
        columns = ", ".join(f"{name}={value!r}" for name, value in self._values.items())
        return f"{self.op}({columns})" if self.old is None else f"{self.op}({columns}; was {dict(self.old)!r})"

    @property
    def values_by_column(self) -> Mapping[str, Any]:
        """The columns alone; not to be changed."""
        return self._values


def insert(row: Mapping[str, Any] | None = None, /, **columns: Any) -> ChangeRecord:
    """Insert a row that must not be there: a mapping, columns by name, or both."""
    return _made(Op.INSERT, row, columns)


def update(row: Mapping[str, Any] | None = None, /, **columns: Any) -> ChangeRecord:
    """Replace a row that must be there. All columns count: one that is left out becomes null."""
    return _made(Op.UPDATE, row, columns)


def upsert(row: Mapping[str, Any] | None = None, /, **columns: Any) -> ChangeRecord:
    """Insert a row, or replace it. All columns count: one that is left out becomes null."""
    return _made(Op.UPSERT, row, columns)


def delete(row: Mapping[str, Any] | None = None, /, **columns: Any) -> ChangeRecord:
    """Delete a row that must be there; the key is enough."""
    return _made(Op.DELETE, row, columns)


def safedelete(row: Mapping[str, Any] | None = None, /, **columns: Any) -> ChangeRecord:
    """Delete a row if it is there; the key is enough."""
    return _made(Op.SAFEDELETE, row, columns)


def _made(op: Op, row: Mapping[str, Any] | None, columns: dict[str, Any]) -> ChangeRecord:
    if row is None:
        return ChangeRecord(op, columns)
    if not isinstance(row, Mapping):
        raise SchemaMismatch(f"{op.lower()}({row!r:.100}): expected a mapping of columns, or columns by name")
    return ChangeRecord(op, {**row, **columns})
