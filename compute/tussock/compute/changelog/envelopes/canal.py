"""Canal's flat messages: rows of a statement of MySQL, all values as text, and of an update what its columns were."""

from typing import Any

from tussock.compute.changelog.changes.record import Op
from tussock.compute.changelog.envelopes.json_messages import decoded
from tussock.compute.changelog.envelopes.meanings import NO_MEANING, Misread
from tussock.compute.changelog.envelopes.rows import Change, RowReader

__all__ = ["CanalReader"]

_EMPTYING = ("TRUNCATE", "ERASE")


class CanalReader:
    """Of one feed."""

    def __init__(self, rows: RowReader) -> None:
        self._rows = rows

    def changes(self, key: bytes | None, value: bytes | None) -> list[Change]:  # noqa: ARG002 - as the others have it
        """What a message does to each of its rows; nothing for other statements. Raises `Misread`."""
        if value is None:
            return []
        message = decoded(value)
        kind = message.get("type") if isinstance(message, dict) else None
        if not isinstance(kind, str):
            raise Misread("it has no `type`: it is no message of Canal")
        if kind in _EMPTYING:
            raise Misread(f"the table was emptied there ({kind}), and which rows it had is not said")
        if message.get("isDdl") is True or kind not in ("INSERT", "UPDATE", "DELETE"):
            return []
        rows = message.get("data")
        if not isinstance(rows, list):
            raise Misread(f"its `data` is {rows!r:.100}; expected a list of rows")
        if kind == "DELETE":
            return [Change(Op.SAFEDELETE, self._rows.old_row(row, NO_MEANING)) for row in rows]
        if kind == "INSERT":
            return [Change(Op.UPSERT, self._rows.row(row, NO_MEANING)) for row in rows]
        olds = message.get("old")
        if not isinstance(olds, list) or len(olds) != len(rows):
            raise Misread(f"its `old` is {olds!r:.100}; expected what the columns of {len(rows)} rows were")
        return [self._updated(row, old) for row, old in zip(rows, olds, strict=True)]

    def _updated(self, row: Any, old: Any) -> Change:
        now = self._rows.row(row, NO_MEANING)
        if old is not None and not isinstance(old, dict):
            raise Misread(f"its `old` has {old!r:.100}; expected an object of columns")
        # Columns that have not changed are not in it.
        return Change(Op.UPDATE_BLOCK, now, self._rows.old_row({**row, **(old or {})}, NO_MEANING))
