"""From how many records on an operator computes by columns: from few, where single rows of its tables are slow."""

from typing import Any

import pyarrow as pa
import pytest

from tussock.compute.changelog.changes.changes import Changes
from tussock.compute.changelog.changes.record import ChangeRecord, Op
from tussock.compute.changelog.changes.stream_shape import StreamShape
from tussock.compute.changelog.computations import StateTable
from tussock.compute.changelog.operators.operator_base import FEW_RECORDS, FEW_SLOW_RECORDS, StreamOperator

SHAPE = StreamShape("s", pa.schema([pa.field("k", pa.int64(), nullable=False)]), ["k"])


class WayOfWork(StreamOperator):
    def __init__(self, kept: pa.DataType) -> None:
        super().__init__(SHAPE)
        self._schema = SHAPE.schema.append(pa.field("kept", kept))

    def tables(self) -> dict[str, StateTable]:
        return {"rows": StateTable(self._schema, ["k"])}

    def by_record(self, source: str, changes: Changes) -> list[ChangeRecord]:
        return []

    def by_columns(self, source: str, changes: Changes) -> Any:
        return changes


@pytest.mark.parametrize(
    ("kept", "few"),
    [(pa.int64(), FEW_RECORDS), (pa.timestamp("ms"), FEW_RECORDS), (pa.list_(pa.int64()), FEW_SLOW_RECORDS)],
)
def test_slow_rows_are_computed_by_columns_sooner(kept: pa.DataType, few: int) -> None:
    """The number of records alone decides then, so that a replay does as the first run did."""
    operator = WayOfWork(kept)
    for count in (1, few, few + 1):
        changes = Changes(SHAPE, [ChangeRecord(Op.INSERT, {"k": at}) for at in range(count)], None, 0)
        assert (len(operator.compute("s", changes)) > 0) == (count > few)
