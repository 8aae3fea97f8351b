"""Orders and gathers whole batches: unsorted input into a run, changes into commit order, lookups into answers."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tussock.statestore.rows import Rows, key_order, repeats
from tussock.statestore.sst.widening import as_type

__all__ = ["commit_order", "sorted_newest", "take_pieces"]


def sorted_newest(rows: Rows) -> Rows:
    """Rows in any order as a sorted run of unique keys; of several rows with one key the last one stays."""
    ordered = rows.take(key_order(rows.keys))
    superseded = np.append(repeats(ordered.keys)[1:], False)
    return ordered.filter(~superseded[: len(ordered)])


def commit_order(rows: Rows) -> Rows:
    """Versions sorted by epoch, then key, given by key."""
    return rows.take(np.argsort(rows.epoch_array(), kind="stable"))


def take_pieces(
    pieces: Sequence[tuple[Rows, npt.NDArray[np.intp], npt.NDArray[np.intp]]],
    count: int,
    columns: Sequence[int],
    types: Sequence[pa.DataType],
) -> tuple[npt.NDArray[np.bool_], list[pa.Array]]:
    """Gather what `lookup.find_many` found for `count` keys.

    Answers which keys have a row, and for each of the value `columns` (of these `types`) an array of `count`, null
    where the key has none or its newest version is a delete.
    """
    place = np.full(count, -1, np.int64)
    position = 0
    taken: list[list[pa.Array]] = [[] for _ in columns]
    for rows, at, into in pieces:
        if rows.deletes is not None:
            alive = ~rows.deletes[at]
            at, into = at[alive], into[alive]
        indices = pa.array(at)
        for values, column, kind in zip(taken, columns, types, strict=True):
            if column < len(rows.columns):
                values.append(as_type(rows.columns[column].take(indices), kind))
            else:
                # Stored before the table got this column.
                values.append(pa.nulls(len(at), kind))
        place[into] = np.arange(position, position + len(at))
        position += len(at)
    found = place >= 0
    where = pa.array(place, mask=~found)
    answers = [
        pa.concat_arrays(values).take(where) if values else pa.nulls(count, kind)
        for values, kind in zip(taken, types, strict=True)
    ]
    return found, answers
