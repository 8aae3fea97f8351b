"""Rows in groups: what is kept of each group, and what a transaction does to all groups that it touches."""

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
from tussock.compute.changelog.operators.groups.group_values import (
    ROWS,
    DoesNotFit,
    GroupState,
    GroupValue,
    Moved,
    nothing_of,
)
from tussock.compute.changelog.operators.operator_base import (
    StreamOperator,
    known_columns,
    numbered,
    of_rows,
    transitions,
)
from tussock.compute.changelog.stream import Stream
from tussock.statestore.errors import InvalidOption, SchemaMismatch
from tussock.statestore.keys.codecs import codec_for

__all__ = ["ALL", "Grouping", "group_columns", "group_field"]

ALL = "_all"
"""The key column of what has one group for all rows."""
_BY = "by_"
_TABLE = "groups"

Places = npt.NDArray[np.int64]


def group_columns(what: str, word: str, given: Any, source: Stream) -> tuple[str, ...]:
    """Names of columns that can be a key of groups; `word` is the parameter. `InvalidOption`."""
    columns = known_columns(what, word, given, source.schema)
    for name in columns:
        field = source.schema.field(name)
        if field.nullable:
            raise InvalidOption(
                f"{what}: {word} has {name!r}, which may be null, and keys have no nulls: put something in their place "
                f"by project(), such as coalesce(field({name!r}), scalar(...)), with required=[{name!r}]"
            )
        try:
            codec_for(name, field.type, last=True)
        except SchemaMismatch as error:
            raise InvalidOption(f"{what}: {word} has {name!r}, which can be in no key: {error}") from error
    return columns


def group_field(field: pa.Field) -> pa.Field:
    """A group's column as the tables of the state have it."""
    return field.with_name(_BY + field.name).with_nullable(False)


class Grouping(StreamOperator):
    """Keeps the groups of a source, and shows their values."""

    def __init__(self, shape: StreamShape, by: Sequence[str], values: Sequence[GroupValue]) -> None:
        """`shape` has the groups' columns, or `ALL`, for its key, and then the values."""
        super().__init__(shape)
        self._by = by
        self._values = values
        keys = [group_field(shape.schema.field(name)) for name in shape.key]
        self._group = [field.name for field in keys]
        self._kept = [pa.field(ROWS, pa.int64(), nullable=False), *(field for one in values for field in one.fields())]
        self._schema = pa.schema([*keys, *self._kept])

    def tables(self) -> Mapping[str, StateTable]:
        """The state of the groups, and what values keep besides."""
        found = {_TABLE: StateTable(self._schema, self._group)}
        for one in self._values:
            found.update(one.tables())
        return found

    def open(self, tables: Mapping[str, Any]) -> None:
        """As the base class has it."""
        self._groups = tables[_TABLE]
        for one in self._values:
            one.open(tables)

    # --- Row by row --------------------------------------------------------------------------------------------------

    def by_record(self, source: str, changes: Changes) -> list[ChangeRecord]:  # noqa: ARG002 - there is one source
        """As the base class has it."""
        states: dict[tuple[Any, ...], GroupState] = {}
        last: dict[tuple[Any, ...], int] = {}
        for at, record in enumerate(changes.records):
            for row, sign in _moves(record):
                group = tuple(key_value(row[name]) for name in self._by) if self._by else (True,)
                if group not in states:
                    states[group] = self._groups.get(group) or self._nothing(group)
                state, last[group] = states[group], at
                state[ROWS] += sign
                for one in self._values:
                    one.take(group, state, row, sign)
        found = []
        for group, state in states.items():
            for one in self._values:
                one.settle(group, state)
            try:
                found.append(self._shown(group, state, changes.time))
            except DoesNotFit as error:
                raise ComputeFault(last[group], f"{error.args[1]}, of the group {group!r:.200}") from error
        full, gone = [], []
        for group, state in states.items():
            is_empty = all(state[field.name] == nothing_of(field) for field in self._kept)
            gone.append(group) if is_empty else full.append(state)
        if gone:
            self._groups.delete(gone)
        if full:
            self._groups.upsert(full)
        return found

    def _nothing(self, group: Sequence[Any]) -> GroupState:
        state = dict(zip(self._group, group, strict=True))
        state.update((field.name, nothing_of(field)) for field in self._kept)
        return state

    def _shown(self, group: Sequence[Any], state: GroupState, time: int) -> ChangeRecord:
        row = dict(zip(self.shape.key, group, strict=True))
        if state[ROWS] <= 0:
            return ChangeRecord(Op.SAFEDELETE, row, None, time)
        row.update((one.name, one.shown(state)) for one in self._values)
        return ChangeRecord(Op.UPSERT, row, None, time)

    # --- By columns --------------------------------------------------------------------------------------------------

    def by_columns(self, source: str, changes: Changes) -> Changes:  # noqa: ARG002 - there is one source
        """As the base class has it."""
        rows, before, after = transitions(changes)
        leaves, comes = np.flatnonzero(before >= 0), np.flatnonzero(after >= 0)
        places = np.concatenate([before[leaves], after[comes]])
        if not len(places):
            return Changes(self.shape, [], None, changes.time)
        groups, numbers = self._grouped(rows, places)
        moved = Moved(rows, places, len(leaves), _kept(before, after, leaves, comes), numbers)
        state, was_there = self._state(groups)
        counts = state[ROWS].to_numpy() + moved.difference(groups.num_rows)
        state[ROWS] = pa.array(counts)
        columns = dict(zip(self.shape.key, groups.columns, strict=True))
        for one in self._values:
            try:
                kept, columns[one.name] = one.take_columns(groups, state, moved)
            except DoesNotFit as error:
                at, cause = error.args
                group = tuple(groups.slice(at, 1).to_pylist()[0].values())
                place = int(places[numbers == at].max())
                record = int(np.count_nonzero(~changes.columns[2][: place + 1])) - 1
                raise ComputeFault(record, f"{cause}, of the group {group!r:.200}") from error
            state.update(kept)
        self._write(groups, state, was_there)
        shown = pa.record_batch(list(columns.values()), names=list(columns))
        lives = counts > 0
        gone = shown.select(list(self.shape.key)).filter(pa.array(~lives & was_there))
        return of_rows(self.shape, shown.filter(pa.array(lives)), gone, changes.time)

    def _grouped(self, rows: pa.RecordBatch, places: Places) -> tuple[pa.RecordBatch, Places]:
        """All groups that have these rows, and the number of each row's."""
        if not self._by:
            columns = [pa.array([True] * min(len(places), 1), pa.bool_())]
            return pa.record_batch(columns, names=self._group), np.zeros(len(places), np.int64)
        columns = [as_key(rows.column(name).take(pa.array(places))) for name in self._by]
        groups = pa.record_batch(columns, names=self._group)
        numbers, firsts = numbered(groups)
        return groups.take(pa.array(firsts)), numbers

    def _state(self, groups: pa.RecordBatch) -> tuple[dict[str, pa.Array], npt.NDArray[np.bool_]]:
        """What is kept of groups, column by column, and of which there was anything."""
        found = self._groups.multi_get(groups, columns=[field.name for field in self._kept])
        state = {}
        for field, column in zip(self._kept, found.flatten(), strict=True):
            state[field.name] = column if field.nullable else column.fill_null(nothing_of(field))
        return state, found.is_valid().to_numpy(zero_copy_only=False)

    def _write(self, groups: pa.RecordBatch, state: Mapping[str, pa.Array], was_there: npt.NDArray[np.bool_]) -> None:
        empty = np.ones(groups.num_rows, np.bool_)
        for field in self._kept:
            column, nothing = state[field.name], nothing_of(field)
            same = column.is_null() if nothing is None else pc.equal(column, pa.scalar(nothing, field.type))
            empty &= same.to_numpy(zero_copy_only=False)
        gone = groups.filter(pa.array(empty & was_there))
        if gone.num_rows:
            self._groups.delete(gone)
        columns = [*groups.columns, *(state[field.name] for field in self._kept)]
        whole = pa.record_batch(columns, names=self._schema.names)
        full = whole.filter(pa.array(~empty)) if empty.any() else whole
        if full.num_rows:
            self._groups.upsert(full)


def _moves(record: ChangeRecord) -> list[tuple[Mapping[str, Any], int]]:
    if record.op is Op.DELETE:
        return [(record, -1)]
    return [(record, 1)] if record.old is None else [(record.old, -1), (record, 1)]


def _kept(before: Places, after: Places, leaves: Places, comes: Places) -> tuple[Places, Places]:
    """Of keys with a row before and one after, where these stand among the rows: those that leave are first."""
    both = (before >= 0) & (after >= 0)
    return np.flatnonzero(both[leaves]), len(leaves) + np.flatnonzero(both[comes])
