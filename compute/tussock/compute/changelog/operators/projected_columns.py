"""The columns of a projection: how they were declared, and what they are for rows of the source."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tussock.compute.applications.arguments import cause_of
from tussock.compute.changelog.changes.changes import Changes
from tussock.compute.changelog.changes.float_keys import as_key
from tussock.compute.changelog.changes.python_times import first_beyond, time_misfit
from tussock.compute.changelog.changes.record import ChangeRecord
from tussock.compute.changelog.changes.stream_shape import StreamShape
from tussock.compute.changelog.loop.stream_loop import ComputeFault
from tussock.compute.changelog.operators.row_expressions import can_be_evaluated, evaluate_rows, kinds_of
from tussock.compute.changelog.stream import Stream
from tussock.statestore.errors import InvalidOption
from tussock.statestore.rows.python_values import BAD_VALUE, array_of
from tussock.statestore.shown import show_value

__all__ = ["ProjectedColumn", "ProjectedColumns", "parse_columns"]

Places = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Function = Callable[[ChangeRecord], Any]


class ProjectedColumn(NamedTuple):
    """One column: of `expression`, or of `function`."""

    field: pa.Field
    origin: str | None
    """The column of the source that it is."""
    expression: pc.Expression | None
    function: Function | None

    @property
    def name(self) -> str:
        """Its new name."""
        name: str = self.field.name
        return name


def parse_columns(what: str, source: Stream, columns: Any) -> list[ProjectedColumn]:
    """What a user has declared. Raises `InvalidOption`."""
    if not isinstance(columns, Mapping) or not columns or not all(isinstance(name, str) for name in columns):
        raise InvalidOption(f"{what}: columns={columns!r:.100}; expected a dict of new names")
    return [_parsed(what, source, name, given) for name, given in columns.items()]


def _parsed(what: str, source: Stream, name: str, given: Any) -> ProjectedColumn:
    if isinstance(given, str):
        if given not in source.schema.names:
            raise InvalidOption(
                f"{what}: column {name!r} is {given!r}, which is no column of stream {source.name!r}; it has "
                f"{source.schema.names}"
            )
        return ProjectedColumn(source.schema.field(given).with_name(name), given, pc.field(given), None)
    if isinstance(given, pc.Expression):
        (kind,) = kinds_of(what, source.schema, {f"column {name!r}": given})
        return ProjectedColumn(pa.field(name, kind), None, given, None)
    if isinstance(given, tuple) and len(given) == 2 and callable(given[0]) and isinstance(given[1], pa.DataType):
        return ProjectedColumn(pa.field(name, given[1]), None, None, given[0])
    raise InvalidOption(
        f"{what}: column {name!r} is {given!r:.100}; expected the name of a column, a pyarrow.compute.Expression, or a "
        "function of a record and the Arrow type of what it returns"
    )


class ProjectedColumns:
    """All columns of one projection."""

    def __init__(self, shape: StreamShape, columns: Sequence[ProjectedColumn]) -> None:
        """`shape` is that of the stream that has them."""
        self.shape = shape
        self._columns = columns
        self._keys = [one for one in columns if one.name in shape.key]
        self.has_functions = any(one.function is not None for one in columns)

    def of(self, changes: Changes, places: Places, is_gone: Flags) -> tuple[pa.RecordBatch, Flags]:
        """The new columns of the rows at some places of changes, and which rows have a key.

        Of rows that are gone only the key is there, and those may have none. Raises `ComputeFault` for others.
        """
        comes, goes = np.flatnonzero(~is_gone), np.flatnonzero(is_gone)
        fresh = self._made(changes, places[comes], self._columns)
        self._check(changes, places[comes], fresh)
        can_be = np.ones(len(places), np.bool_)
        if not len(goes):
            return self._batch(fresh), can_be
        can_be[goes] = self._can_be(changes, places[goes])
        goes = np.flatnonzero(is_gone & can_be)
        keys = self._made(changes, places[goes], self._keys)
        for name in self.shape.key:
            can_be[goes[keys[name].is_null().to_numpy(zero_copy_only=False)]] = False
        at = np.zeros(len(places), np.int64)
        at[comes], at[goes] = np.arange(len(comes)), len(comes) + np.arange(len(goes))
        index = pa.array(at, mask=is_gone & ~can_be)
        whole = {
            name: pa.concat_arrays([column, keys.get(name, pa.nulls(len(goes), column.type))]).take(index)
            for name, column in fresh.items()
        }
        return self._batch(whole), can_be

    def _batch(self, columns: Mapping[str, pa.Array]) -> pa.RecordBatch:
        schema = pa.schema([pa.field(field.name, field.type) for field in self.shape.schema])
        return pa.record_batch([columns[name] for name in self.shape.names], schema=schema)

    def _made(self, changes: Changes, places: Places, columns: Sequence[ProjectedColumn]) -> dict[str, pa.Array]:
        rows, _, olds = changes.columns
        expressions = [one.expression for one in columns if one.expression is not None]
        evaluated = iter(evaluate_rows(rows, places, olds, expressions))
        records = self._records(changes, places) if any(one.function is not None for one in columns) else []
        found = {}
        for one in columns:
            column = next(evaluated) if one.function is None else _called(one, one.function, records)
            found[one.name] = as_key(column) if one.name in self.shape.key else column
        return found

    @staticmethod
    def _records(changes: Changes, places: Places) -> list[tuple[int, ChangeRecord]]:
        """The records whose rows these are, with their numbers; of an old row, the old record."""
        olds = changes.columns[2]
        numbers = np.cumsum(~olds) - 1
        records, found = changes.records, []
        for place in places.tolist():
            record = records[numbers[place]]
            found.append((int(numbers[place]), record.old if olds[place] and record.old is not None else record))
        return found

    def _can_be(self, changes: Changes, places: Places) -> Flags:
        """Which rows' keys can be evaluated."""
        rows = changes.columns[0].take(pa.array(places))
        found = can_be_evaluated(rows, [one.expression for one in self._keys if one.expression is not None])
        for one in self._keys:
            if one.function is not None:
                records = self._records(changes, places)
                found &= np.array([_is_made(one, one.function, record) for record in records], np.bool_)
        return found

    def _check(self, changes: Changes, places: Places, columns: Mapping[str, pa.Array]) -> None:
        for field in self.shape.schema:
            column = columns[field.name]
            if not field.nullable and column.null_count:
                at = int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0])
                why = "is null, which it must not be"
            elif (at := first_beyond(column)) >= 0:
                why = time_misfit(column, at)
            else:
                continue
            record = int(np.count_nonzero(~changes.columns[2][: places[at] + 1])) - 1
            raise ComputeFault(record, f"column {field.name!r} {why}")


def _called(one: ProjectedColumn, function: Function, records: Sequence[tuple[int, ChangeRecord]]) -> pa.Array:
    """What a user's function gives for records."""
    values = []
    for number, record in records:
        try:
            values.append(function(record))
        except Exception as error:
            raise ComputeFault(number, f"column {one.name!r}: {cause_of(error)}") from error
    try:
        return array_of(values, one.field.type)
    except BAD_VALUE:
        for (number, _), value in zip(records, values, strict=True):
            try:
                array_of([value], one.field.type)
            except BAD_VALUE as error:
                raise ComputeFault(
                    number, f"column {one.name!r}: {show_value(value)} is no {one.field.type}: {error}"
                ) from error
        raise


def _is_made(one: ProjectedColumn, function: Function, record: tuple[int, ChangeRecord]) -> bool:
    try:
        _called(one, function, [record])
    except ComputeFault:
        return False
    return True
