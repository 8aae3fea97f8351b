"""What a stream of an operator holds back: transactions of one input that it could not compute.

An operator's rows are what it gives for rows of its inputs. So it can leave no transaction out: one that is bad, and
all that follow it, are computed together, as one transaction, when the next one comes. Until that is good its stream
stands where it was.
"""

from typing import Any, NamedTuple

from tussock.compute.changelog.changes.changes import Changes
from tussock.compute.changelog.changes.record import ChangeRecord, Op

__all__ = ["HELD_BYTES_MAX", "HeldBack", "together"]

HELD_BYTES_MAX = 64 << 20
"""Of several transactions together; one alone may be larger."""


class HeldBack(NamedTuple):
    """Of one input of a stream."""

    number: int
    """Of the bad transaction that tells of it."""
    seq: int
    """The number of the first transaction that is held back, in its stream."""
    changes: Changes
    """Of all together."""


def together(first: Changes, second: Changes) -> Changes:
    """What two transactions that a stream has published do, one after the other, at the time of the second one.

    Of each key there is one record at most, in the order in which they appeared; none where nothing has changed.
    """
    rows: dict[Any, list[ChangeRecord | None]] = {}
    key_of = first.shape.key_of
    for record in (*first.records, *second.records):
        before = record.old if record.op is Op.UPDATE_BLOCK else record if record.op is Op.DELETE else None
        known = rows.setdefault(key_of(record), [before, None])
        known[1] = None if record.op is Op.DELETE else record
    time = second.time
    found = []
    for before, after in rows.values():
        old = None if before is None else ChangeRecord(Op.DELETE, before.values_by_column, None, time)
        if after is None:
            found += [] if old is None else [old]
        elif old is None:
            found.append(ChangeRecord(Op.INSERT, after.values_by_column, None, time))
        elif old.values_by_column != after.values_by_column:
            found.append(ChangeRecord(Op.UPDATE_BLOCK, after.values_by_column, old, time))
    return Changes(first.shape, found, None, time)
