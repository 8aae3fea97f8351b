"""`join`: pairs of rows of two streams that are equal in some columns, kept right as either side changes.

A stream's own table may be ahead of what the join has taken of it. So the join keeps the rows of each side as it has
taken them, found by the join columns: `KeyedRows` where there is one at most for a value, `RowBags` else. A change of a
row of one side is then joined with what there is of the other.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tussock.compute.changelog.changes.changes import Changes
from tussock.compute.changelog.changes.float_keys import as_key, key_value
from tussock.compute.changelog.changes.record import ChangeRecord, Op
from tussock.compute.changelog.changes.stream_shape import StreamShape
from tussock.compute.changelog.computations import StateTable
from tussock.compute.changelog.loop.stream_loop import ComputeFault
from tussock.compute.changelog.operators.joins.join_plan import PAIR, How, JoinPlan, Side, plan_join
from tussock.compute.changelog.operators.joins.keyed_rows import KeyedRows
from tussock.compute.changelog.operators.operator_base import (
    StreamOperator,
    check_source,
    derive,
    netted,
    numbered,
    transitions,
)
from tussock.compute.changelog.operators.row_bags import Members, RowBags
from tussock.compute.changelog.operators.sort_keys import SortKeys
from tussock.compute.changelog.stream import Stream

__all__ = ["join"]

ROWS_MAX = 10_000_000
"""Of one transaction; more would not fit into memory as records with their old values."""

Flags = npt.NDArray[np.bool_]
Places = npt.NDArray[np.int64]
Row = Mapping[str, Any]


def join(
    name: str,
    left: Stream,
    right: Stream,
    on: Any,
    how: How = "inner",
    columns: Sequence[str] | None = None,
    *,
    right_prefix: str | None = None,
) -> Stream:
    """A stream of the pairs of rows of two streams that are equal in the columns `on`.

    `on`: names, or pairs (left column, right column), of equal types; null equals nothing, NaN equals NaN. `how`:
    "inner"; "left": also left rows without a match, with nulls; "full": and right ones. `columns`: names of those to
    have beside the key; all by default. A column of `on` that has one name on both sides is there once; other right
    columns whose name the left side has, too, get `right_prefix`.

    The key is, whichever applies first: the left one, where a left row has one match at most ("inner", "left"); the
    right one, in the opposite case ("inner"); both together ("inner"); what both sides have as key, if that is what is
    joined on ("full"); a column `_pair` made of both keys. Raises `InvalidOption`.
    """
    what = f"join {name!r}"
    check_source(what, left)
    check_source(what, right)
    plan = plan_join(what, left, right, on, how, columns, right_prefix)
    return derive(
        "join",
        name,
        [left, right],
        plan.schema,
        plan.key,
        lambda shape: _StreamPairs(shape, plan, left, right),
        on=[[plan.left.on[at], plan.right.on[at]] for at in range(len(plan.left.on))],
        how=how,
        values={one.field.name: [one.left, one.right] for one in plan.columns},
    )


class _Half:
    """One side with the rows that were taken of it."""

    def __init__(self, side: Side, schema: pa.Schema, name: str) -> None:
        kinds = [schema.field(one).type for one in side.on]
        self.side = side
        self.rows = KeyedRows(name, kinds, side.row) if side.is_unique else RowBags(name, kinds, side.row, side.key)

    def on(self, row: Row) -> tuple[Any, ...] | None:
        """The values that are compared; `None` if one of them is null."""
        found = tuple([key_value(row[name]) for name in self.side.on])
        return None if None in found else found


class _StreamPairs(StreamOperator):
    def __init__(self, shape: StreamShape, plan: JoinPlan, left: Stream, right: Stream) -> None:
        super().__init__(shape)
        self._columns = plan.columns
        self._left = _Half(plan.left, left.schema, "left")
        self._right = _Half(plan.right, right.schema, "right")
        sorts = [(one, left.schema.field(one).type, False) for one in left.key]
        sorts += [(one, right.schema.field(one).type, False) for one in right.key]
        self._pairs = SortKeys(shape.what, sorts) if PAIR in plan.key else None

    def tables(self) -> Mapping[str, StateTable]:
        """The rows of both sides."""
        return {**self._left.rows.tables(), **self._right.rows.tables()}

    def open(self, tables: Mapping[str, Any]) -> None:
        """As the base class has it."""
        self._left.rows.open(tables)
        self._right.rows.open(tables)

    def _halves(self, source: str) -> tuple[_Half, _Half]:
        """The one that changes, and the other one."""
        if source == self._left.side.name:
            return self._left, self._right
        return self._right, self._left

    # --- By record ---------------------------------------------------------------------------------------------------

    def by_record(self, source: str, changes: Changes) -> list[ChangeRecord]:
        """What few records come to."""
        mine, other = self._halves(source)
        found: list[ChangeRecord] = []
        for record in changes.records:
            fresh = None if record.op is Op.DELETE else record.values_by_column
            old = record.old if record.op is Op.UPDATE_BLOCK else record if record.op is Op.DELETE else None
            gone, come = self._changed(mine, other, old, fresh)
            upserts = {self.shape.key_of(row): row for row in come}
            deletes = {self.shape.key_of(row): row for row in gone}
            ended = [row for key, row in deletes.items() if key not in upserts]
            found += [ChangeRecord(Op.SAFEDELETE, row, None, changes.time) for row in ended]
            found += [ChangeRecord(Op.UPSERT, row, None, changes.time) for row in upserts.values()]
        return found

    def _changed(self, mine: _Half, other: _Half, old: Row | None, fresh: Row | None) -> tuple[list[Any], list[Any]]:
        """The rows of the join that go, and those that come; one may be among both."""
        before = None if old is None else mine.on(old)
        after = None if fresh is None else mine.on(fresh)
        is_same = old is not None and fresh is not None and before == after
        gone, come = [], []
        left = [] if before is None else other.rows.rows(before)
        met = left if is_same else [] if after is None else other.rows.rows(after)
        if old is not None and not is_same:
            gone += self._met(mine, old, left)
        if fresh is not None:
            come += self._met(mine, fresh, met)
        kept = fresh if fresh is not None else old
        assert kept is not None, "a record has a row"
        counts = other.side.is_kept and not is_same
        if counts and after is not None and not mine.rows.count(after):
            gone += [self._row(mine, None, one) for one in met]
        mine.rows.move(before, after, kept)
        if counts and before is not None and not mine.rows.count(before):
            come += [self._row(mine, None, one) for one in left]
        return gone, come

    def _met(self, mine: _Half, row: Row, others: Sequence[Row]) -> list[dict[str, Any]]:
        if others:
            return [self._row(mine, row, one) for one in others]
        return [self._row(mine, row, None)] if mine.side.is_kept else []

    def _row(self, mine: _Half, row: Row | None, other: Row | None) -> dict[str, Any]:
        left, right = (row, other) if mine is self._left else (other, row)
        found = {}
        for one in self._columns:
            value = None if left is None or one.left is None else left[one.left]
            if value is None and right is not None and one.right is not None:
                value = right[one.right]
            found[one.field.name] = value
        if self._pairs is not None:
            keys = [None if left is None else left[one] for one in self._left.side.key]
            keys += [None if right is None else right[one] for one in self._right.side.key]
            found[PAIR] = self._pairs.of_row(keys)
        return found

    # --- By columns --------------------------------------------------------------------------------------------------

    def by_columns(self, source: str, changes: Changes) -> Changes:
        """The same of many: each value of the join columns is looked up once, on either side."""
        mine, other = self._halves(source)
        rows, before, after = transitions(changes)
        on = pa.record_batch([as_key(rows.column(one)) for one in mine.side.on], list(mine.side.on))
        numbers, firsts = numbered(on)
        is_null = np.zeros(rows.num_rows, np.bool_)
        for column in on.columns:
            is_null |= column.is_null().to_numpy(zero_copy_only=False)
        is_same = (before >= 0) & (after >= 0) & (numbers[before] == numbers[after])
        gone, come = before[(before >= 0) & ~is_same], after[(after >= 0) & ~is_same]
        stay = after[is_same]
        touched = np.zeros(len(firsts), np.bool_)
        for places in (gone, come, stay):
            touched[numbers[places[~is_null[places]]]] = True
        bag_of = np.cumsum(touched) - 1
        places = pa.array(firsts[touched])
        bags = [column.take(places) for column in on.columns]
        bag = np.where(is_null, -1, bag_of[numbers])
        counts, met = other.rows.read(bags)
        names = mine.rows.row.names

        def members(places: Places) -> Members:
            picked = places[bag[places] >= 0]
            return Members(bag[picked], rows.select(names).take(pa.array(picked)))

        had, has = mine.rows.change(bags, members(gone), members(come), members(stay))
        starts = np.cumsum(counts) - counts
        upserts = [_matches(np.concatenate([come, stay]), bag, counts, starts, mine.side)]
        deletes = [_matches(gone, bag, counts, starts, mine.side)]
        if other.side.is_kept:
            alone = np.repeat((had > 0) & (has == 0), counts), np.repeat((had == 0) & (has > 0), counts)
            for found, is_it in zip((upserts, deletes), alone, strict=True):
                theirs = np.flatnonzero(is_it)
                found.append((np.full(len(theirs), -1), theirs))
        return self._out(mine, rows, met, upserts, deletes, changes.time)

    def _out(
        self,
        mine: _Half,
        rows: pa.RecordBatch,
        met: pa.RecordBatch,
        upserts: Sequence[tuple[Places, Places]],
        deletes: Sequence[tuple[Places, Places]],
        time: int,
    ) -> Changes:
        come, gone = ([np.concatenate(part) for part in zip(*found, strict=True)] for found in (upserts, deletes))
        if len(come[0]) + len(gone[0]) > ROWS_MAX:
            raise ComputeFault(
                None,
                f"{self.shape.what}: a transaction of {rows.num_rows:,} rows changes {len(come[0]) + len(gone[0]):,} "
                f"rows of the join; at most {ROWS_MAX:,} can be: push fewer at once, or join on more columns",
            )
        key = list(self.shape.key)
        fresh = self._batch(mine, rows, met, come[0], come[1], None)
        old = self._batch(mine, rows, met, gone[0], gone[1], key)
        return netted(self.shape, fresh, old, time)

    def _batch(
        self,
        mine: _Half,
        rows: pa.RecordBatch,
        met: pa.RecordBatch,
        places: Places,
        others: Places,
        names: Sequence[str] | None,
    ) -> pa.RecordBatch:
        """Rows of the join, or some columns of them; -1 is no row of a side."""
        halves = ((rows, _with_nulls(places)), (met, _with_nulls(others)))
        (left, left_at), (right, right_at) = halves if mine is self._left else halves[::-1]
        arrays: dict[str, pa.Array] = {}
        for one in self._columns:
            name = one.field.name
            if (names is not None and name not in names) or name == PAIR:
                continue
            if one.left is None:
                arrays[name] = right.column(one.right).take(right_at)
                continue
            arrays[name] = left.column(one.left).take(left_at)
            if one.right is not None and left_at.null_count:
                arrays[name] = pc.coalesce(arrays[name], right.column(one.right).take(right_at))
        if self._pairs is not None:
            keys = [left.column(one).take(left_at) for one in self._left.side.key]
            keys += [right.column(one).take(right_at) for one in self._right.side.key]
            arrays[PAIR] = self._pairs.of_columns(keys)
        return pa.record_batch(list(arrays.values()), list(arrays))


def _matches(rows: Places, bag: Places, counts: Places, starts: Places, side: Side) -> tuple[Places, Places]:
    """Places of rows, and of the rows of the other side that each of them meets; -1 where it meets none and is kept."""
    if not len(counts):
        alone = rows if side.is_kept else rows[:0]
        return alone, np.full(len(alone), -1)
    its_bag = bag[rows]
    number = np.where(its_bag >= 0, counts[its_bag], 0)
    alone = rows[number == 0] if side.is_kept else rows[:0]
    total = np.cumsum(number)
    theirs = np.arange(total[-1] if len(total) else 0) + np.repeat(starts[its_bag] - total + number, number)
    return np.concatenate([np.repeat(rows, number), alone]), np.concatenate([theirs, np.full(len(alone), -1)])


def _with_nulls(places: Places) -> pa.Array:
    return pa.array(places, mask=places < 0)
