"""Orders and gathers whole batches: unsorted input into a run, changes into commit order, lookups into answers."""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tussock.statestore.errors import InvalidOption
from tussock.statestore.rows.key_arrays import key_order, repeats
from tussock.statestore.rows.rows import Rows
from tussock.statestore.rows.wider_types import as_type
from tussock.statestore.sst.cached_blocks import CachedBlock
from tussock.statestore.sst.lookups.lookup_many import Hits

__all__ = ["in_batches", "sorted_newest", "sorted_runs", "take_hits"]

_BATCH_ROWS = 1 << 16
"""Rows that a merge or an encoder takes at once."""

_SORTED_BYTES_MAX = 1 << 30
"""Rows that are sorted together: below the 2 GiB of one array, whatever `buffer_bytes` allows."""


def in_batches(rows: Rows) -> Iterator[Rows]:
    """The rows in pieces that a merge or an encoder takes at once."""
    return (rows.slice(start, start + _BATCH_ROWS) for start in range(0, len(rows), _BATCH_ROWS))


def sorted_runs(parts: Iterable[Rows], run_bytes: int) -> Iterator[Iterator[Rows]]:
    """Rows in any order as sorted runs of unique keys, the oldest first, each in batches.

    A run is cut when it has more than `run_bytes`, or as many as can be sorted together.
    """
    held: list[Rows] = []
    size = 0
    for part in parts:
        if held and size + part.nbytes > _SORTED_BYTES_MAX:
            yield in_batches(sorted_newest(Rows.concat(held)))
            held, size = [], 0
        if len(part):
            held.append(part)
            size += part.nbytes
        if size > run_bytes:
            yield in_batches(sorted_newest(Rows.concat(held)))
            held, size = [], 0
    if held:
        yield in_batches(sorted_newest(Rows.concat(held)))


def sorted_newest(rows: Rows) -> Rows:
    """Rows in any order as a sorted run of unique keys; of several rows with one key the last one stays."""
    ordered = rows.take(key_order(rows.keys))
    superseded = np.append(repeats(ordered.keys)[1:], False)
    return ordered.filter(~superseded[: len(ordered)])


def take_hits(
    hits: Hits, count: int, columns: Sequence[int], types: Sequence[pa.DataType], table: str
) -> tuple[npt.NDArray[np.bool_], list[pa.Array]]:
    """Gather what `lookup_many.find_many` found for `count` keys of the table of that name.

    Answers which keys have a row, and for each of the value `columns` (of these `types`) an array of `count`, null
    where the key has none or its newest version is a delete. `InvalidOption` if a column passes 2 GiB.
    """
    try:
        found, arrays = _gather(hits, count, columns, types)
        fits = all(isinstance(array, pa.Array) for array in arrays)
    except pa.ArrowInvalid as error:
        if "overflow" not in str(error):
            raise
        fits = False
    if not fits:
        raise InvalidOption(
            f"table {table!r}: the values of {count} keys are more than the 2 GiB that a column of one answer can "
            "hold; ask for fewer keys at once"
        )
    return found, arrays


def _gather(
    hits: Hits, count: int, columns: Sequence[int], types: Sequence[pa.DataType]
) -> tuple[npt.NDArray[np.bool_], list[pa.Array]]:
    points = [one for one in hits.points if one[0].rows.deletes is None or not one[0].rows.deletes[one[1]]]
    if not hits.pieces:
        there = bytearray(count)
        for _, _, slot in points:
            there[slot] = 1
        answers = [_values_at(points, count, column, kind) for column, kind in zip(columns, types, strict=True)]
        return np.frombuffer(there, np.bool_), answers
    slots = [np.array([slot for _, _, slot in points], np.intp)]
    numbered = [(block, at, number) for number, (block, at, _) in enumerate(points)]
    taken: list[list[pa.Array]] = [
        [_values_at(numbered, len(points), column, kind)] for column, kind in zip(columns, types, strict=True)
    ]
    for rows, at, into in hits.pieces:
        if rows.deletes is not None:
            alive = ~rows.deletes[at]
            at, into = at[alive], into[alive]
        slots.append(into)
        indices = pa.array(at)
        for values, column, kind in zip(taken, columns, types, strict=True):
            if column < len(rows.columns):
                values.append(as_type(rows.columns[column].take(indices), kind))
            else:
                # Stored before the table got this column.
                values.append(pa.nulls(len(at), kind))
    # What was gathered is in the order in which it was found.
    found_slots = np.concatenate(slots)
    place = np.full(count, -1, np.int64)
    place[found_slots] = np.arange(len(found_slots))
    found = place >= 0
    where = pa.array(place, mask=~found)
    return found, [pa.concat_arrays(values).take(where) for values in taken]


def _values_at(points: Sequence[tuple[CachedBlock, int, int]], count: int, column: int, kind: pa.DataType) -> pa.Array:
    """An array of `count` with one column of each point's row where it says, null elsewhere.

    A slice of one row and its part in joining them take a twentieth of what an array of indices to take does.
    """
    if column == 0 and kind == pa.binary():
        values: list[bytes | None] = [None] * count
        for block, at, into in points:
            values[into] = block.value(at)
        return pa.array(values, kind)
    nothing = pa.nulls(1, kind)
    slices = [nothing] * count
    for block, at, into in points:
        if column < len(block.rows.columns):
            slices[into] = as_type(block.rows.columns[column].slice(at, 1), kind)
    return pa.concat_arrays(slices) if slices else pa.nulls(0, kind)
