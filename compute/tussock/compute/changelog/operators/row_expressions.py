"""Arrow expressions over the rows of a stream: checked where they are declared, evaluated for many rows at once."""

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.acero as acero
import pyarrow.compute as pc

from tussock.compute.changelog.loop.stream_loop import ComputeFault
from tussock.statestore.errors import InvalidOption

__all__ = ["can_be_evaluated", "evaluate_rows", "kinds_of"]

_CANNOT = (pa.ArrowException, ValueError, TypeError, OverflowError)
"""What Arrow raises where it cannot evaluate an expression."""

Places = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


def kinds_of(what: str, schema: pa.Schema, expressions: Mapping[str, pc.Expression]) -> list[pa.DataType]:
    """The types of expressions, found out with no rows. `InvalidOption` for one that the schema has no columns for."""
    found = []
    for name, expression in expressions.items():
        try:
            (values,) = evaluate(pa.RecordBatch.from_pylist([], schema=schema), [expression])
        except _CANNOT as error:
            raise InvalidOption(
                f"{what}: {name}, {expression}, cannot be evaluated: {error}; the source has the columns {schema.names}"
            ) from error
        found.append(values.type)
    return found


def evaluate(rows: pa.RecordBatch, expressions: Sequence[pc.Expression]) -> list[pa.Array]:
    """One array for each expression. Raises what Arrow raises."""
    if not expressions:
        return []
    names = [str(at) for at in range(len(expressions))]
    source = acero.Declaration("table_source", acero.TableSourceNodeOptions(pa.Table.from_batches([rows])))
    project = acero.Declaration("project", acero.ProjectNodeOptions(list(expressions), names))
    found = acero.Declaration.from_sequence([source, project]).to_table(use_threads=False)
    return [_one_array(found.column(name)) for name in names]


def evaluate_rows(
    rows: pa.RecordBatch, places: Places, olds: Flags, expressions: Sequence[pc.Expression]
) -> list[pa.Array]:
    """The same, of the rows at some places; `ComputeFault` with the record that cannot be evaluated.

    The places ascend. `olds` says which rows are second ones of their record.
    """
    picked = rows if len(places) == rows.num_rows else rows.take(pa.array(places))
    try:
        return evaluate(picked, expressions)
    except _CANNOT as error:
        first = _first_that_fails(picked, expressions)
        record = int(np.count_nonzero(~olds[: places[first] + 1])) - 1
        raise ComputeFault(record, str(error)) from error


def can_be_evaluated(rows: pa.RecordBatch, expressions: Sequence[pc.Expression]) -> Flags:
    """Of which rows the expressions can be evaluated."""
    try:
        evaluate(rows, expressions)
    except _CANNOT:
        return np.array([not _fails(rows.slice(at, 1), expressions) for at in range(rows.num_rows)], np.bool_)
    return np.ones(rows.num_rows, np.bool_)


def _first_that_fails(rows: pa.RecordBatch, expressions: Sequence[pc.Expression]) -> int:
    """Expressions are evaluated row by row, so rows fail together if one of them fails."""
    low, high = 0, rows.num_rows
    while high - low > 1:
        middle = (low + high) // 2
        if _fails(rows.slice(low, middle - low), expressions):
            high = middle
        else:
            low = middle
    return low


def _fails(rows: pa.RecordBatch, expressions: Sequence[pc.Expression]) -> bool:
    try:
        evaluate(rows, expressions)
    except _CANNOT:
        return True
    return False


def _one_array(column: pa.ChunkedArray) -> pa.Array:
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
