"""PUT over columns: the rules of `put_rules.py` for a transaction of many records at once.

What a record finds under its key is the row of the record before it with that key, where there is one, and else the
stored row. Whatever a good record does, after it the key is there, unless it was a delete. So all follows from which
record comes before which, and no record has to be looked at alone.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tussock.compute.changelog.changes.changes import Changes
from tussock.compute.changelog.changes.record import Op
from tussock.compute.changelog.changes.stream_shape import CODES, StreamShape, is_same
from tussock.compute.changelog.loop.put_rules import PutFault, PutResult, absent, duplicate

__all__ = ["put_columns"]

Codes = npt.NDArray[np.int8]
Flags = npt.NDArray[np.bool_]
Places = npt.NDArray[np.int64]

_OPS = tuple(Op)
_INSERT, _UPDATE = CODES[Op.INSERT], CODES[Op.UPDATE]
_DELETE, _SAFEDELETE, _BLOCK = CODES[Op.DELETE], CODES[Op.SAFEDELETE], CODES[Op.UPDATE_BLOCK]


def put_columns(
    shape: StreamShape, computed: Changes, find_many: Callable[[pa.RecordBatch], pa.StructArray]
) -> PutResult:
    """What `put_records` returns; `find_many` gives the stored rows of keys, null where there is none.

    Raises `PutFault`.
    """
    rows, codes, records = _single_rows(shape, computed)
    count = len(codes)
    keys = rows.select(list(shape.key))
    stored = find_many(keys)
    is_stored = stored.is_valid().to_numpy(zero_copy_only=False)
    found = pa.record_batch(stored.flatten(), schema=rows.schema)
    numbers = _numbers(keys)
    before = _previous(numbers)
    is_first = before < 0
    removes = (codes == _DELETE) | (codes == _SAFEDELETE)
    present = np.where(is_first, is_stored, ~removes[before])
    _check(shape, keys, codes, records, present)
    olds = found
    if not is_first.all():
        olds = _taken(found, rows, np.where(is_first, np.arange(count), before + count))
    is_changed = ~present | ~_is_same_row(rows, olds)
    kept = np.flatnonzero(np.where(removes, present, is_changed))
    ops = np.where(removes[kept], _DELETE, np.where(present[kept], _BLOCK, _INSERT)).astype(np.int8)
    changes = _published(shape, rows, olds, kept, ops, computed.time)
    # Not the last of all: one that changes nothing may be spelled otherwise, as -0.0 is, and is not published.
    last = kept
    if not is_first.all():
        by_number = np.full(int(numbers.max()) + 1, -1, np.int64)
        by_number[numbers[kept]] = kept
        last = np.sort(by_number[by_number >= 0])
    is_other = is_changed if is_first.all() else ~is_stored | ~_is_same_row(rows, found)
    upserts = rows.take(pa.array(last[~removes[last] & is_other[last]]))
    deletes = keys.take(pa.array(last[removes[last] & is_stored[last]]))
    return PutResult(changes, upserts if upserts.num_rows else None, deletes if deletes.num_rows else None)


def _single_rows(shape: StreamShape, computed: Changes) -> tuple[pa.RecordBatch, Codes, Places]:
    """One row for each thing to do, and of which record it is: an old row counts where its key is another one."""
    rows, codes, olds = computed.columns
    rows = shape.with_keys(rows)
    records = np.cumsum(~olds) - 1
    if not olds.any():
        return rows, codes, records
    at = np.flatnonzero(olds)
    keys = rows.select(list(shape.key))
    moved = np.zeros(len(at), np.bool_)
    for name in shape.key:
        column = keys.column(name)
        moved |= ~is_same(column.take(pa.array(at)), column.take(pa.array(at - 1)))
    order = np.arange(len(codes))
    codes = codes.copy()
    codes[at] = _SAFEDELETE
    # The old row goes before the new one comes.
    order[at[moved] - 1], order[at[moved]] = at[moved], at[moved] - 1
    drop = np.zeros(len(codes), np.bool_)
    drop[at[~moved]] = True
    order = order[~drop]
    return rows.take(pa.array(order)), codes[order], records[order]


def _previous(numbers: Places) -> Places:
    """For each row the place of the one before it with the same number; -1 if there is none."""
    order = np.argsort(numbers, kind="stable")
    ordered = numbers[order]
    again = np.flatnonzero(ordered[1:] == ordered[:-1]) + 1
    before = np.full(len(numbers), -1, np.int64)
    before[order[again]] = order[again - 1]
    return before


def _numbers(keys: pa.RecordBatch) -> Places:
    """A number for each row, the same for the same key."""
    numbers = np.zeros(keys.num_rows, np.int64)
    for column in keys.columns:
        codes = column.dictionary_encode()
        numbers = numbers * max(len(codes.dictionary), 1) + codes.indices.to_numpy()
        if keys.num_columns > 1:
            # Small again, so that many columns cannot overflow.
            numbers = np.unique(numbers, return_inverse=True)[1].astype(np.int64)
    return numbers


def _check(shape: StreamShape, keys: pa.RecordBatch, codes: Codes, records: Places, present: Flags) -> None:
    needs = (codes == _UPDATE) | (codes == _DELETE)
    wrong = np.flatnonzero(np.where(codes == _INSERT, present, needs & ~present))
    if not len(wrong):
        return
    at = int(wrong[0])
    key = shape.key_of(keys.slice(at, 1).to_pylist()[0])
    op = _OPS[codes[at]]
    why = duplicate(shape, key) if op is Op.INSERT else absent(shape, op, key)
    raise PutFault(int(records[at]), why)


def _is_same_row(rows: pa.RecordBatch, others: pa.RecordBatch) -> Flags:
    same = np.ones(rows.num_rows, np.bool_)
    for one, other in zip(rows.columns, others.columns, strict=True):
        same &= is_same(one, other)
    return same


def _published(
    shape: StreamShape, rows: pa.RecordBatch, olds: pa.RecordBatch, kept: Places, ops: Codes, time: int
) -> Changes:
    """A row for each record, two for a block; of deletes and second ones what there was."""
    is_block = ops == _BLOCK
    starts = np.arange(len(kept)) + np.cumsum(is_block) - is_block
    total = len(kept) + int(is_block.sum())
    codes, flags = np.empty(total, np.int8), np.zeros(total, np.bool_)
    takes = np.empty(total, np.int64)
    count = rows.num_rows
    codes[starts] = ops
    takes[starts] = np.where(ops == _DELETE, kept + count, kept)
    behind = starts[is_block] + 1
    codes[behind], flags[behind], takes[behind] = _DELETE, True, kept[is_block] + count
    return Changes(shape, None, (_taken(rows, olds, takes), codes, flags), time)


def _taken(first: pa.RecordBatch, second: pa.RecordBatch, places: Places) -> pa.RecordBatch:
    """Rows of two batches, those of the second one numbered behind the first."""
    index = pa.array(places)
    columns: Sequence[Any] = [
        pa.concat_arrays([one, other]).take(index) for one, other in zip(first.columns, second.columns, strict=True)
    ]
    return pa.record_batch(columns, schema=first.schema)
