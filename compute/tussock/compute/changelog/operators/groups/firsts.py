"""The first row of each group in some order: smallest and largest values, first and last ones.

An index table has the rows of each group in this order: the group's columns, the sort key, the key of the source's row,
and the value that is shown. The group's state has the first one, so the table is read only where that one goes, or
another one is equal to it.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tussock.compute.changelog.changes.float_keys import as_key, key_value
from tussock.compute.changelog.changes.stream_shape import is_same
from tussock.compute.changelog.computations import StateTable
from tussock.compute.changelog.operators.groups.group_values import GroupState, GroupValue, Moved
from tussock.compute.changelog.operators.operator_base import numbered
from tussock.compute.changelog.operators.sort_keys import SortKeys

__all__ = ["FirstValue", "Index", "extreme", "first_by"]

_ORDER, _VALUE, _KEY = "order", "value", "key_"

FEW_READS = 64
"""Groups that are read one by one."""
ROWS_FOR_A_READ = 2_000
"""Rows of the index that are scanned while one group is read: that took 0.2 to 0.9 ms, a row 0.2 microseconds."""

Flags = npt.NDArray[np.bool_]
Places = npt.NDArray[np.int64]


class Index(NamedTuple):
    """Where the rows of groups are found in order."""

    table: str
    """Its name."""
    by: Sequence[pa.Field]
    """Of the groups."""
    key: Sequence[pa.Field]
    """Of the source."""


def extreme(name: str, column: pa.Field, index: Index, what: str, *, is_max: bool) -> "FirstValue":
    """The smallest or largest value of a column. A NaN is it only where there is nothing else."""
    kind = column.type
    order = [(column.name, kind, is_max)]
    is_float = pa.types.is_floating(kind)
    if is_float and is_max:
        # Descending, NaN would be the first.
        order.insert(0, ("is NaN", pa.bool_(), False))
    return FirstValue(
        name, column, column.name, SortKeys(what, order), index, nan_first=is_float and is_max, ties=False
    )


def first_by(name: str, column: pa.Field, order: pa.Field, index: Index, what: str, *, is_last: bool) -> "FirstValue":
    """The value of a column in the first or last row by another one; of equal ones in that with the smallest key."""
    keys = SortKeys(what, [(order.name, order.type, is_last)])
    return FirstValue(name, column, order.name, keys, index, nan_first=False, ties=True)


class FirstValue(GroupValue):
    """The value of the first row; rows without an order do not count."""

    def __init__(
        self, name: str, column: pa.Field, order: str, keys: SortKeys, index: Index, *, nan_first: bool, ties: bool
    ) -> None:
        """`nan_first`: the sort key begins with whether it is NaN. `ties`: rows of one order may have other values."""
        super().__init__(name, column.type, nullable=True)
        self._column, self._order_column = column.name, order
        self._keys = keys
        self._nan_first, self._ties = nan_first, ties
        self._entries, self._order, self._value = (f"{word}_{name}" for word in ("entries", "order", "first"))
        self._stale = f"stale_{name}"
        self._table = index.table
        self._by = [field.name for field in index.by]
        self._source_key = [field.name for field in index.key]
        own = [field.with_name(_KEY + field.name).with_nullable(False) for field in index.key]
        self._key = [*self._by, _ORDER, *(field.name for field in own)]
        order_field = pa.field(_ORDER, pa.binary(), nullable=False)
        self._schema = pa.schema([*index.by, order_field, *own, pa.field(_VALUE, column.type)])

    def fields(self) -> Sequence[pa.Field]:
        """As the base class has it."""
        return [
            pa.field(self._entries, pa.int64(), nullable=False),
            pa.field(self._order, pa.binary()),
            pa.field(self._value, self.field.type),
        ]

    def tables(self) -> Mapping[str, StateTable]:
        """The index."""
        return {self._table: StateTable(self._schema, self._key, self._by)}

    def open(self, tables: Mapping[str, Any]) -> None:
        """As the base class has it."""
        self._index = tables[self._table]

    # --- Row by row --------------------------------------------------------------------------------------------------

    def take(self, group: Sequence[Any], state: GroupState, row: Mapping[str, Any], sign: int) -> None:
        """As the base class has it."""
        value = row[self._order_column]
        if value is None:
            return
        order = self._keys.of_row([value != value, value] if self._nan_first else [value])
        key = (*group, order, *(row[name] for name in self._source_key))
        state[self._entries] += sign
        first = state[self._order]
        if sign < 0:
            self._index.delete([key])
            if order == first:
                state[self._stale] = True
            return
        shown = row[self._column] if self._ties else key_value(row[self._column])
        self._index.upsert([{**dict(zip(self._key, key, strict=True)), _VALUE: shown}])
        if first is None or order < first:
            state[self._order], state[self._value], state[self._stale] = order, shown, False
        elif order == first:
            state[self._stale] = True

    def settle(self, group: Sequence[Any], state: GroupState) -> None:
        """As the base class has it."""
        if state.pop(self._stale, False):
            state[self._order], state[self._value] = None, None
            for batch in self._index.read([_ORDER, _VALUE], prefix=tuple(group), limit=1):
                (row,) = batch.to_pylist()
                state[self._order], state[self._value] = row[_ORDER], row[_VALUE]

    def shown(self, state: GroupState) -> Any:
        """As the base class has it."""
        return state[self._value]

    # --- By columns --------------------------------------------------------------------------------------------------

    def take_columns(
        self, groups: pa.RecordBatch, state: Mapping[str, pa.Array], moved: Moved
    ) -> tuple[Mapping[str, pa.Array], pa.Array]:
        """As the base class has it."""
        orders, values = self._orders(moved), moved.column(self._column)
        values = values if self._ties else as_key(values)
        is_valid = orders.is_valid().to_numpy(zero_copy_only=False)
        entries = state[self._entries].to_numpy() + moved.difference(groups.num_rows, is_valid)
        is_moved = is_valid & ~self._unchanged(orders, values, moved)
        leaves, comes = np.flatnonzero(is_moved & (moved.signs < 0)), np.flatnonzero(is_moved & (moved.signs > 0))
        self._write(groups, orders, values, moved, leaves, comes)
        fresh = _Fresh(orders.take(pa.array(comes)), moved.numbers[comes], groups.num_rows)
        first, number = state[self._order], moved.numbers[leaves]
        is_lost = np.zeros(groups.num_rows, np.bool_)
        is_lost[number[_are(pc.equal(orders.take(pa.array(leaves)), first.take(pa.array(number))))]] = True
        is_equal = _are(pc.equal(fresh.firsts, first))
        # Where all rows of a group have just come, nothing else can be before them.
        takes = fresh.counts > 0
        takes &= (
            ~first.is_valid().to_numpy(zero_copy_only=False)
            | _are(pc.less(fresh.firsts, first))
            | (fresh.counts == entries)
        )
        stale = ~takes & is_lost
        if self._ties:
            stale |= (~takes & is_equal) | (takes & (fresh.ties > 1))
        else:
            stale &= ~is_equal
        read = np.flatnonzero(stale & (entries > 0))
        found = self._read(groups.take(pa.array(read)))
        # The first ones of now, those that have come, those that were read, each numbered behind the ones before.
        at = np.where(takes, groups.num_rows + fresh.places, np.arange(groups.num_rows))
        at[read] = groups.num_rows + len(comes) + np.arange(len(read))
        index = pa.array(at, mask=entries == 0)
        pieces = zip((first, state[self._value]), (orders, values), found, strict=True)
        firsts, shown = (
            pa.concat_arrays([now, new.take(pa.array(comes)), old]).take(index) for now, new, old in pieces
        )
        return {self._entries: pa.array(entries), self._order: firsts, self._value: shown}, shown

    def _orders(self, moved: Moved) -> pa.Array:
        """The sort key of each row, null where it has no order."""
        column = moved.column(self._order_column)
        columns = [pc.is_nan(column).fill_null(False), column] if self._nan_first else [column]
        keys = self._keys.of_columns(columns)
        return pc.if_else(column.is_valid(), keys, pa.scalar(None, pa.binary())) if column.null_count else keys

    def _unchanged(self, orders: pa.Array, values: pa.Array, moved: Moved) -> Flags:
        """Rows that go and come just as they were."""
        old, new = moved.kept
        first, second = pa.array(old), pa.array(new)
        same = moved.numbers[old] == moved.numbers[new]
        same &= is_same(orders.take(first), orders.take(second))
        same &= is_same(values.take(first), values.take(second))
        found = np.zeros(len(moved.numbers), np.bool_)
        found[old[same]] = found[new[same]] = True
        return found

    def _write(
        self, groups: pa.RecordBatch, orders: pa.Array, values: pa.Array, moved: Moved, leaves: Places, comes: Places
    ) -> None:
        keys = [moved.column(name) for name in self._source_key]
        for places, extra in ((leaves, []), (comes, [values])):
            if not len(places):
                continue
            own = groups.take(pa.array(moved.numbers[places])).columns
            rows = [*own, *(column.take(pa.array(places)) for column in (orders, *keys, *extra))]
            if extra:
                self._index.upsert(pa.record_batch(rows, names=self._schema.names))
            else:
                self._index.delete(pa.record_batch(rows, names=self._key))

    def _read(self, groups: pa.RecordBatch) -> tuple[pa.Array, pa.Array]:
        """Sort key and value of the first row of each group, null where it has none."""
        places, batches = [], []
        left = np.ones(groups.num_rows, np.bool_)
        if groups.num_rows > FEW_READS:
            for at, batch in self._scanned(groups):
                is_first = left[at]
                places.append(at[is_first])
                batches.append(batch.filter(pa.array(is_first)))
                left[at] = False
        rest = np.flatnonzero(left)
        columns = [column.to_pylist() for column in groups.take(pa.array(rest)).columns]
        for place, group in zip(rest.tolist(), zip(*columns, strict=True), strict=True):
            for batch in self._index.read([_ORDER, _VALUE], prefix=group, limit=1):
                places.append(np.array([place], np.int64))
                batches.append(batch)
        if not batches:
            return pa.nulls(groups.num_rows, pa.binary()), pa.nulls(groups.num_rows, self.field.type)
        index = np.full(groups.num_rows, -1, np.int64)
        found = np.concatenate(places)
        index[found] = np.arange(len(found))
        whole = pa.Table.from_batches(batches).take(pa.array(index, mask=index < 0)).combine_chunks()
        return _one(whole.column(_ORDER)), _one(whole.column(_VALUE))

    def _scanned(self, groups: pa.RecordBatch) -> Iterator[tuple[Places, pa.RecordBatch]]:
        """First rows of groups, and which groups these are, from the index read in order.

        It is given up where the groups would be read one by one in less time.
        """
        count = groups.num_rows
        scanned_most = count * ROWS_FOR_A_READ
        for batch in self._index.read([*self._by, _ORDER, _VALUE]):
            columns = [
                pa.concat_arrays([one, other]) for one, other in zip(groups.columns, batch.columns, strict=False)
            ]
            numbers, _ = numbered(pa.record_batch(columns, names=self._by))
            # The groups are different, so their numbers are their places.
            at = numbers[count:]
            hits = np.flatnonzero(at < count)
            found, firsts = np.unique(at[hits], return_index=True)
            yield found, batch.select([_ORDER, _VALUE]).take(pa.array(hits[firsts]))
            scanned_most -= batch.num_rows
            if scanned_most < 0:
                return


class _Fresh:
    """Of rows that have come, the first ones of each group."""

    def __init__(self, orders: pa.Array, numbers: Places, groups: int) -> None:
        table = pa.table({"number": numbers, "order": orders})
        found = table.group_by("number", use_threads=False).aggregate([("order", "min")]).combine_chunks()
        at = np.full(groups, -1, np.int64)
        at[found["number"].to_numpy()] = np.arange(found.num_rows)
        self.firsts = _one(found["order_min"]).take(pa.array(at, mask=at < 0))
        """By group, the smallest sort key; null: none has come."""
        self.counts = np.bincount(numbers, minlength=groups)
        is_first = np.flatnonzero(_are(pc.equal(orders, self.firsts.take(pa.array(numbers)))))
        self.ties = np.bincount(numbers[is_first], minlength=groups)
        self.places = np.zeros(groups, np.int64)
        """By group, the place of a row that has it."""
        self.places[numbers[is_first]] = is_first


def _are(flags: pa.Array) -> Flags:
    found: Flags = flags.fill_null(False).to_numpy(zero_copy_only=False)
    return found


def _one(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks else pa.array([], column.type)
