"""The tables of an operator as they were before a transaction: what it has taken since is taken back, newest first.

What an operator keeps follows from the rows that it has taken. So it is given the inverse of each transaction, by which
these rows are again as they were, and its tables with them; at most, rows that are equal for it lie in another order.
"""

import numpy as np
import pyarrow as pa

from tussock.compute.applications.errors import HistoryGone
from tussock.compute.changelog.changes.changes import Changes
from tussock.compute.changelog.changes.record import Op
from tussock.compute.changelog.changes.stream_shape import CODES
from tussock.compute.changelog.engine.running_stream import RunningStream

__all__ = ["RECORDS_MAX", "inverse", "taken_since"]

RECORDS_MAX = 100_000
"""Of a transaction that is tried, of what its stream has published since, and of what it has taken since."""

_INSERT, _DELETE, _BLOCK = CODES[Op.INSERT], CODES[Op.DELETE], CODES[Op.UPDATE_BLOCK]


def inverse(changes: Changes) -> Changes:
    """What undoes changes that a stream has published: INSERT, UPDATE_BLOCK and DELETE, the last one first."""
    rows, codes, olds = changes.columns
    order = np.arange(len(codes) - 1, -1, -1)
    # A block backwards is one again: its old row stands first then.
    codes_back = np.where(olds, _BLOCK, np.where(codes == _DELETE, _INSERT, _DELETE)).astype(np.int8)
    columns = rows.take(pa.array(order)), codes_back[order], (codes == _BLOCK)[order]
    return Changes(changes.shape, None, columns, changes.time)


def taken_since(stream: RunningStream, seq: int) -> list[Changes]:
    """What a stream has taken from a number on, the newest first.

    `HistoryGone` says from which number on all of it is known, and not too much.
    """
    found: list[Changes] = []
    count, published, first = 0, stream.history.seq, None
    for one, number in stream.taken_history.since(seq):
        count += len(one)
        if number != published or count > RECORDS_MAX:
            break
        found.append(one.changes)
        published, first = published - 1, one.seq
        if first == seq:
            return found
    known = "none can be tried" if first is None else f"it can be tried from transaction {first} on"
    raise HistoryGone(
        f"stream {stream.plan.name!r}: to try transaction {seq}, its tables have to be as they were before it; of what "
        f"it has taken since, not all is in its history, or more than {RECORDS_MAX:,} records are: {known}",
        stream.taken_history.seq if first is None else first,
    )
