"""Objects of messages as rows of a stream: its columns by name, each taken as its schema means it."""

import base64
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, NamedTuple

import pyarrow as pa

from tussock.compute.changelog.changes.python_times import check_times
from tussock.compute.changelog.changes.record import Op
from tussock.compute.changelog.changes.stream_shape import OLD, OP, StreamShape
from tussock.compute.changelog.envelopes.meanings import Meaning, Misread
from tussock.compute.changelog.envelopes.values import Form, Take, check_column, taker_of

__all__ = ["Change", "RowReader", "changes_table"]

UNAVAILABLE = "__debezium_unavailable_value"
"""What Debezium has in place of a value that PostgreSQL did not tell, as an update has left it as it was."""
_UNAVAILABLE_FORMS = (
    UNAVAILABLE,
    UNAVAILABLE.encode(),
    base64.b64encode(UNAVAILABLE.encode()).decode(),
    [UNAVAILABLE],
)
MEANINGS_MAX = 64
"""Schemas for which takers are kept: messages of a topic have few."""


class Change(NamedTuple):
    """What a message does to one row, softly: a message that comes again changes nothing."""

    op: Op
    """UPSERT, UPDATE_BLOCK or SAFEDELETE."""
    row: Mapping[str, Any]
    """All columns; of a SAFEDELETE those that are not of the key may be null."""
    old: Mapping[str, Any] | None = None
    """Of an UPDATE_BLOCK."""


class RowReader:
    """Of one stream and one format."""

    def __init__(self, shape: StreamShape, form: Form, what: str) -> None:
        """`InvalidOption` that begins with `what` for a column that messages cannot have."""
        for field in shape.schema:
            check_column(field, what)
        self.shape = shape
        self._form = form
        self._takers: OrderedDict[int, tuple[Meaning, dict[str, Take]]] = OrderedDict()

    def row(self, given: Any, meaning: Meaning, before: Any = None) -> dict[str, Any]:
        """All columns; what is not available is that of `before`. Raises `Misread`."""
        takers, found = self._takers_of(meaning), {}
        values = _object(given)
        for field in self.shape.schema:
            name = field.name
            value = values.get(name)
            if value in _UNAVAILABLE_FORMS:
                value = before.get(name, UNAVAILABLE) if isinstance(before, dict) else UNAVAILABLE
                if value in _UNAVAILABLE_FORMS:
                    raise Misread(
                        f"column {name!r} is not in the message, as the update has left it as it was: let the table "
                        "have REPLICA IDENTITY FULL"
                    )
            found[name] = _taken(takers[name], value, name)
            if found[name] is None and not field.nullable:
                raise Misread(f"column {name!r} is {'null' if name in values else 'missing'}")
        return found

    def old_row(self, given: Any, meaning: Meaning) -> dict[str, Any]:
        """A row as it was: only the key has to be there."""
        takers, values = self._takers_of(meaning), _object(given)
        found = {
            name: None if value in _UNAVAILABLE_FORMS else _taken(takers[name], value, name)
            for name, value in ((name, values.get(name)) for name in self.shape.names)
        }
        return self._with_key(found)

    def key_row(self, given: Any, meaning: Meaning) -> dict[str, Any]:
        """The key alone, all else null."""
        takers, values = self._takers_of(meaning), _object(given)
        found = dict.fromkeys(self.shape.names)
        for name in self.shape.key:
            found[name] = _taken(takers[name], values.get(name), name)
        return self._with_key(found)

    def has_key(self, given: Any) -> bool:
        """Whether an object has a value for each column of the key."""
        return isinstance(given, dict) and all(given.get(name) is not None for name in self.shape.key)

    def _with_key(self, row: dict[str, Any]) -> dict[str, Any]:
        for name in self.shape.key:
            if row[name] is None:
                raise Misread(f"column {name!r} of the key is null or missing")
        return row

    def _takers_of(self, meaning: Meaning) -> dict[str, Take]:
        found = self._takers.get(id(meaning))
        if found is not None:
            return found[1]
        takers = {field.name: taker_of(field.type, meaning.of(field.name), self._form) for field in self.shape.schema}
        # The meaning is held, so that its id stays its own.
        self._takers[id(meaning)] = meaning, takers
        if len(self._takers) > MEANINGS_MAX:
            self._takers.popitem(last=False)
        return takers


def _object(given: Any) -> dict[str, Any]:
    if not isinstance(given, dict):
        raise Misread(f"{given!r:.100} is no object of columns")
    return given


def _taken(take: Take, value: Any, name: str) -> Any:
    try:
        return take(value)
    except Misread as error:
        raise Misread(f"column {name!r}: {error}") from None


def _column(field: pa.Field, values: list[Any]) -> pa.Array:
    try:
        return pa.array(values, field.type)
    except (pa.ArrowException, OverflowError, ValueError, TypeError) as error:
        raise type(error)(f"column {field.name!r}: {error}") from error


def changes_table(shape: StreamShape, changes: list[Change]) -> pa.Table:
    """The changes as columns with `_op` and `_old`.

    Raises `pyarrow.ArrowException`, `OverflowError` and `SchemaMismatch` for values that do not fit; each names the
    column.
    """
    rows: list[Mapping[str, Any]] = []
    ops: list[str] = []
    olds: list[bool] = []
    for one in changes:
        rows.append(one.row)
        ops.append(one.op)
        olds.append(False)
        if one.old is not None:
            rows.append(one.old)
            ops.append(Op.DELETE)
            olds.append(True)
    columns = [_column(field, [row[field.name] for row in rows]) for field in shape.relaxed]
    check_times(pa.record_batch(columns, names=shape.names), shape.times)
    names = [*shape.names, OP, OLD]
    return pa.table([*columns, pa.array([str(op) for op in ops], pa.string()), pa.array(olds, pa.bool_())], names=names)
