"""`filter`: the rows of a stream for which a condition holds. It keeps nothing."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tussock.compute.applications.arguments import cause_of
from tussock.compute.changelog.changes.changes import Changes
from tussock.compute.changelog.changes.record import ChangeRecord, Op
from tussock.compute.changelog.changes.stream_shape import CODES, StreamShape
from tussock.compute.changelog.computations import CHUNK, Computation
from tussock.compute.changelog.loop.stream_loop import ComputeFault
from tussock.compute.changelog.operators.operator_base import check_source, derive
from tussock.compute.changelog.operators.row_expressions import evaluate_rows, kinds_of
from tussock.compute.changelog.stream import Stream
from tussock.statestore.errors import InvalidOption

__all__ = ["filter"]

_INSERT, _DELETE = CODES[Op.INSERT], CODES[Op.DELETE]
_UPSERT, _SAFEDELETE = CODES[Op.UPSERT], CODES[Op.SAFEDELETE]


def filter(name: str, source: Stream, condition: Any) -> Stream:  # noqa: A001 - the public API's name
    """A stream of the rows of `source` for which a condition holds, with the same columns and key.

    `condition`: a `pyarrow.compute.Expression` over columns, which is evaluated for all records of a transaction at
    once, or a function of a record. A row that comes to fulfil it is inserted, one that no longer does is deleted.
    Null is no. A record of which it cannot be told makes its transaction bad. Raises `InvalidOption`.
    """
    what = f"filter {name!r}"
    check_source(what, source)
    if isinstance(condition, pc.Expression):
        (kind,) = kinds_of(what, source.schema, {"condition": condition})
        if not pa.types.is_boolean(kind):
            raise InvalidOption(f"{what}: the condition {condition} has type {kind}; expected bool")
    elif not callable(condition):
        raise InvalidOption(
            f"{what}: condition={condition!r:.100}; expected a pyarrow.compute.Expression, or a function of a record"
        )
    kept = _ByExpression if isinstance(condition, pc.Expression) else _ByFunction
    return derive(
        "filter",
        name,
        [source],
        source.schema,
        source.key,
        lambda shape: kept(shape, condition),
        condition=condition,
    )


class _ByExpression(Computation):
    is_view = True

    def __init__(self, shape: StreamShape, condition: pc.Expression) -> None:
        self._shape = shape
        self._condition = condition

    def compute(self, source: str, changes: Changes) -> Changes:  # noqa: ARG002 - as the base class has it
        """By columns."""
        rows, codes, olds = changes.columns
        is_new = np.flatnonzero(codes != _DELETE)
        (found,) = evaluate_rows(rows, is_new, olds, [self._condition])
        holds = np.zeros(len(codes), np.bool_)
        holds[is_new] = found.fill_null(False).to_numpy(zero_copy_only=False)
        # Of a row that was not there until now nobody has to hear that it still is not.
        kept = np.flatnonzero(holds | ((codes != _INSERT) & ~olds))
        fresh = np.where(holds[kept], _UPSERT, _SAFEDELETE).astype(np.int8)
        return Changes(
            self._shape, None, (rows.take(pa.array(kept)), fresh, np.zeros(len(kept), np.bool_)), changes.time
        )


class _ByFunction(Computation):
    chunk = CHUNK
    is_users = is_view = True

    def __init__(self, shape: StreamShape, condition: Callable[[ChangeRecord], Any]) -> None:
        self._shape = shape
        self._condition = condition

    def compute(self, source: str, changes: Changes) -> Changes:  # noqa: ARG002 - as the base class has it
        """ChangeRecord by record."""
        found = []
        for at, record in enumerate(changes.records):
            self.at = at
            try:
                holds = record.op is not Op.DELETE and bool(self._condition(record))
            except Exception as error:
                raise ComputeFault(at, cause_of(error)) from error
            if holds or record.op is not Op.INSERT:
                op = Op.UPSERT if holds else Op.SAFEDELETE
                found.append(ChangeRecord(op, record.values_by_column, None, record.time))
        return Changes(self._shape, found, None, changes.time)
