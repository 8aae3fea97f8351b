"""Declarative merges: running values per key without user code.

Functions are those of `writes/merges.py` and two more: `count`, and `collect`, which keeps the newest values as a list.
Rows of a key come in the order of `order_by`, so `first`, `last` and `collect` follow that order within a batch, and
the order of batches between them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt

from tussock.compute.spark.state.records import KeyedBatch, Update
from tussock.compute.spark.writes.combined_rows import combine_rows
from tussock.compute.spark.writes.merges import FUNCTIONS, check_merge, combine_columns
from tussock.statestore.errors import InvalidOption, SchemaMismatch
from tussock.statestore.rows.conversion import same_kind
from tussock.statestore.tables.typed_input import conform

__all__ = ["Running", "in_type", "merges", "value_of"]

_GROUP = "\0group"


@dataclass(frozen=True)
class Running:
    """How to compute one column of the state."""

    function: str
    source: str | None
    """Column of the rows; `None` to count rows."""
    limit: int = 0
    """Number of values that `collect` keeps."""


def merges(**columns: str | tuple[Any, ...]) -> "_Merges":
    """A function for `stateful` that keeps running values: for each value column of the state table, how to compute it.

    `total="sum"` sums the column `total` of the rows, `total=("sum", "amount")` their `amount`. There are `sum`, `min`,
    `max` (nulls do not count), `first`, `last` (null or not), `count` (rows; with a column, its values that are not
    null), and `("collect", column, limit)`, a list of the newest values that are not null. Columns of the table that
    are not named keep their stored values. Raises `InvalidOption`.
    """
    if not columns:
        raise InvalidOption("merges was given no columns; expected at least one, such as merges(total='sum')")
    return _Merges({name: value_of(name, how) for name, how in columns.items()})


def value_of(name: str, how: Any) -> Running:
    """One argument of `merges`; `InvalidOption` if it is not valid."""
    parts = (how,) if isinstance(how, str) else tuple(how) if isinstance(how, tuple | list) else ()
    function = parts[0] if parts else None
    if function == "collect":
        if len(parts) == 3 and isinstance(parts[1], str) and type(parts[2]) is int and 0 < parts[2] < 1 << 31:
            return Running("collect", parts[1], parts[2])
    elif function == "count" and len(parts) == 1:
        return Running("count", None)
    elif function in (*FUNCTIONS, "count") and len(parts) < 3 and all(isinstance(part, str) for part in parts):
        return Running(function, parts[1] if len(parts) == 2 else name)
    raise InvalidOption(
        f"merge of column {name!r} is {how!r}; expected one of {[*FUNCTIONS, 'count']}, such a word with a column, "
        "or ('collect', column, limit)"
    )


def _check_cast(found: pa.DataType, field: pa.Field, table: str) -> None:
    """Raise `SchemaMismatch` if no value of the type `found` can become one of the column's."""
    in_type(pa.array([], found), field, table)


class _Merges:
    """The function that `merges` returns."""

    def __init__(self, columns: Mapping[str, Running]) -> None:
        self.columns = columns

    def check(self, rows: pa.Schema, states: Mapping[str, pa.Schema], key: tuple[str, ...]) -> None:
        """Raise `InvalidOption` if the columns of rows and state table are not suitable."""
        table, schema = next(iter(states.items()))
        for name, running in self.columns.items():
            if running.source is not None and running.source not in rows.names:
                raise InvalidOption(
                    f"table {table!r}: merge of {name!r} reads column {running.source!r}, which the rows lack; "
                    f"they have {rows.names}"
                )
            if running.function not in ("count", "collect") or name not in schema.names:
                check_merge({name: running.function.replace("count", "sum")}, schema, key, table)
            kind = schema.field(name).type
            if running.function not in ("count", "collect"):
                _check_cast(rows.field(running.source).type, schema.field(name), table)
                continue
            fits, expected = (pt.is_integer, "an integer") if running.function == "count" else (pt.is_list, "a list")
            if not fits(kind):
                raise InvalidOption(f"table {table!r}: column {name!r} is {kind}; a {running.function} is {expected}")
            if running.function == "collect":
                _check_cast(rows.field(running.source).type, pa.field(name, kind.value_type), table)

    def __call__(self, batch: KeyedBatch) -> Update:
        """The new state of the keys that have rows."""
        count = len(batch.starts)
        old = batch.state.slice(0, count)
        new = group_values(batch.rows, batch.groups, batch.starts, self.columns, old.schema, next(iter(batch.states)))
        existed = pa.array(batch.found[:count])
        columns = []
        for field, stored in zip(old.schema, old.columns, strict=True):
            running = self.columns.get(field.name)
            if running is None:
                columns.append(stored)
            elif running.function == "collect":
                columns.append(_append(stored, new[field.name], running.limit, field.type))
            else:
                function = "sum" if running.function == "count" else running.function
                columns.append(combine_columns(function, stored, new[field.name], existed, field))
        return Update(state=pa.RecordBatch.from_arrays(columns, schema=old.schema))


def group_values(
    rows: pa.RecordBatch,
    groups: npt.NDArray[np.int64],
    starts: npt.NDArray[np.int64],
    columns: Mapping[str, Running],
    schema: pa.Schema,
    table: str,
) -> dict[str, pa.Array]:
    """For each of `columns`, the value of each group of neighbouring rows, in its type in `schema`."""
    values: dict[str, pa.Array] = {}
    collected: dict[str, pa.Array] = {}
    for name, running in columns.items():
        field = schema.field(name)
        source = None if running.source is None else rows.column(running.source)
        if running.function == "collect":
            collected[name] = _collect(source, groups, len(starts), field, table)
        elif running.function == "count":
            ones = pa.repeat(True, rows.num_rows) if source is None else source.is_valid()
            values[name] = ones.cast(field.type)
        else:
            assert source is not None
            values[name] = in_type(source, field, table)
    functions = {name: running.function.replace("count", "sum") for name, running in columns.items()}
    combined_rows = combine_rows(pa.table({_GROUP: groups, **values}), [_GROUP], functions)
    return {name: combined_rows.column(name).combine_chunks() for name in values} | collected


def in_type(values: pa.Array, field: pa.Field, table: str) -> pa.Array:
    """The values of rows in the type of the state; `SchemaMismatch` if one does not fit."""
    if values.type == field.type:
        # Not cast: Arrow would look at the fields of null structs, which mean nothing.
        return values
    if same_kind(values.type, field.type):
        return conform(pa.table({field.name: values}), pa.schema([field.with_nullable(True)]), (), table).column(0)
    try:
        return values.cast(field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise SchemaMismatch(
            f"table {table!r}: column {field.name!r}: expected {field.type}, found {values.type} with values that do "
            f"not fit: {error}; nothing of the batch was stored, cast the column in the query"
        ) from error


def _collect(source: Any, groups: npt.NDArray[np.int64], count: int, field: pa.Field, table: str) -> pa.ListArray:
    """The values of each group that are not null, as lists."""
    valid = source.is_valid().to_numpy(zero_copy_only=False)
    offsets = np.zeros(count + 1, np.int32)
    np.cumsum(np.bincount(groups[valid], minlength=count), out=offsets[1:])
    values = in_type(source.drop_null(), pa.field(field.name, field.type.value_type), table)
    return pa.ListArray.from_arrays(pa.array(offsets), values, type=field.type)


def _append(old: pa.ListArray, new: pa.ListArray, limit: int, kind: pa.DataType) -> pa.ListArray:
    """The lists of `old`, each followed by that of `new`, cut to their last `limit` values."""
    before, after = (lists.value_lengths().fill_null(0).to_numpy().astype(np.int64) for lists in (old, new))
    values = pa.concat_arrays([old.flatten(), new.flatten()])
    kept = np.minimum(before + after, limit)
    group = np.repeat(np.arange(len(kept)), kept)
    # Position, within the two lists together, of the values that stay.
    within = np.arange(len(group)) - np.repeat(np.cumsum(kept) - before - after, kept)
    from_old = np.cumsum(before) - before
    from_new = before.sum() + np.cumsum(after) - after - before
    at = within + np.where(within < before[group], from_old[group], from_new[group])
    offsets = np.concatenate([[0], np.cumsum(kept)]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), values.take(pa.array(at)), type=kind)
