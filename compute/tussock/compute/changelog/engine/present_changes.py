"""A bad transaction that is given again late: what it and all that came since do to the rows of its input.

As it was, it would bring back the past: its rows may have changed since, or be gone. So of each key the stream gets the
step from the row before that transaction to the row that there is now. Where nothing has touched a row since, that is
the record as it was.
"""

from collections.abc import Callable, Sequence
from typing import Any

from tussock.compute.changelog.changes.changes import Changes
from tussock.compute.changelog.changes.record import ChangeRecord, Op

__all__ = ["present_changes"]

Row = dict[str, Any]


def present_changes(changes: Changes, find_many: Callable[[Sequence[Any]], Sequence[Row | None]]) -> Changes:
    """What a stream behind gets of `changes` that its input has published; `find_many` gives the input's rows by key.

    One record a key, in the order in which they came. A row that came with the transaction and has changed since was
    given to the stream when it did: it comes once more, as an update of what the transaction had made of it.
    """
    shape = changes.shape
    first: dict[Any, ChangeRecord] = {}
    last: dict[Any, ChangeRecord] = {}
    for record in changes.records:
        key = shape.key_of(record)
        first.setdefault(key, record)
        last[key] = record
    found = []
    for key, now in zip(first, find_many(list(first)), strict=True):
        before = _before(first[key])
        after = None if last[key].op is Op.DELETE else dict(last[key].values_by_column)
        if now is None:
            if before is not None:
                found.append(ChangeRecord(Op.DELETE, before, None, changes.time))
            continue
        if before is None and (after is None or repr(now) == repr(after)):
            found.append(ChangeRecord(Op.INSERT, now, None, changes.time))
            continue
        old = ChangeRecord(Op.DELETE, before if before is not None else after or {}, None, changes.time)
        found.append(ChangeRecord(Op.UPDATE_BLOCK, now, old, changes.time))
    return Changes(shape, found, None, changes.time)


def _before(record: ChangeRecord) -> Row | None:
    if record.op is Op.DELETE:
        return dict(record.values_by_column)
    return dict(record.old.values_by_column) if record.op is Op.UPDATE_BLOCK and record.old is not None else None
