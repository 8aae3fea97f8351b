"""Messages that are a row, with its operation in `_op` if they have one: as flows write them, or anybody else."""

from typing import Any

from tussock.compute.changelog.changes.record import Op, op_of
from tussock.compute.changelog.changes.stream_shape import OLD, OP
from tussock.compute.changelog.envelopes.debezium import DataReader
from tussock.compute.changelog.envelopes.meanings import Meaning, Misread
from tussock.compute.changelog.envelopes.rows import Change, RowReader

__all__ = ["PlainReader"]

_WRITES = (Op.INSERT, Op.UPDATE, Op.UPSERT)
_DELETES = (Op.DELETE, Op.SAFEDELETE)


class PlainReader:
    """Of one feed, whichever form its data have."""

    def __init__(self, rows: RowReader, data: DataReader) -> None:
        self._rows = rows
        self._data = data

    def changes(self, key: bytes | None, value: bytes | None) -> list[Change]:
        """What a message does: without a value it deletes the row of its key. Raises `Misread`."""
        if value is None:
            return [Change(Op.SAFEDELETE, self._of_key(key))]
        found, meaning = self._data.read_value(value)
        if not isinstance(found, dict):
            raise Misread(f"{found!r:.100} is no object of columns")
        op = op_of(found.get(OP, Op.UPSERT))
        if op in _WRITES:
            return [Change(Op.UPSERT, self._rows.row(found, meaning))]
        if op in _DELETES:
            return [Change(Op.SAFEDELETE, self._rows.old_row(found, meaning))]
        if op == Op.UPDATE_BLOCK:
            old = self._rows.old_row(found.get(OLD), _old_meaning(meaning))
            return [Change(Op.UPDATE_BLOCK, self._rows.row(found, meaning), old)]
        raise Misread(f"its {OP} is {found[OP]!r:.100}; expected one of {[str(one) for one in Op]}")

    def _of_key(self, key: bytes | None) -> dict[str, Any]:
        if key is None:
            raise Misread("it has neither a value nor a key, which would say which row to delete")
        try:
            found, meaning = self._data.read_key(key)
        except Misread:
            found, meaning = _text(key), Meaning()
        names = self._rows.shape.key
        if not isinstance(found, dict) and len(names) == 1:
            found = {names[0]: found}
        return self._rows.key_row(found, meaning)


def _old_meaning(meaning: Meaning) -> Meaning:
    """In Avro the old row is another record."""
    found = meaning.of(OLD)
    return found if found.fields else meaning


def _text(key: bytes) -> str:
    try:
        return key.decode()
    except UnicodeDecodeError:
        raise Misread(f"its key {key!r:.100} is neither an object of the key's columns nor text") from None
