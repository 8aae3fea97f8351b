"""Which steps of a pattern each row fulfils, as bits of a number."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tussock.compute.applications.arguments import cause_of
from tussock.compute.changelog.changes.record import ChangeRecord, Op
from tussock.compute.changelog.loop.stream_loop import ComputeFault
from tussock.compute.changelog.operators.patterns.pattern_plan import PatternPlan
from tussock.compute.changelog.operators.row_expressions import evaluate_rows

__all__ = ["masks_of_rows"]

Masks = npt.NDArray[np.int64]


def masks_of_rows(plan: PatternPlan, rows: pa.RecordBatch, olds: npt.NDArray[np.bool_]) -> Masks:
    """Of all rows of a transaction, those that go, too; `ComputeFault` for one of which it cannot be told."""
    conditions = list(plan.steps.values())
    masks = np.zeros(rows.num_rows, np.int64)
    expressions = [(at, one) for at, one in enumerate(conditions) if isinstance(one, pc.Expression)]
    found = evaluate_rows(rows, np.arange(rows.num_rows), olds, [one for _, one in expressions])
    for (at, _), holds in zip(expressions, found, strict=True):
        masks |= holds.fill_null(False).to_numpy(zero_copy_only=False).astype(np.int64) << at
    functions = [(at, one) for at, one in enumerate(conditions) if not isinstance(one, pc.Expression)]
    if functions:
        number = -1
        for place, (values, is_old) in enumerate(zip(rows.to_pylist(), olds.tolist(), strict=True)):
            number += not is_old
            # A row is the same whatever has become of it.
            row = ChangeRecord(Op.INSERT, values)
            try:
                for at, function in functions:
                    masks[place] |= bool(function(row)) << at
            except Exception as error:
                raise ComputeFault(number, cause_of(error)) from error
    return masks
