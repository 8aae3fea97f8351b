"""The visible tuples of a window as an Arrow table, again and again."""

import pyarrow as pa

from tussock.compute.procedures.rows import TupleShape
from tussock.compute.procedures.windows import WindowState

__all__ = ["VisibleTuples"]

_TAIL_MAX = 16


class VisibleTuples:
    """Of one window. A slide by few tuples costs about these, not the whole window: the rest is a slice of before."""

    def __init__(self, shape: TupleShape, state: WindowState) -> None:
        self._shape = shape
        self._state = state
        self._table = shape.empty
        self._first = 0
        """Number of the slot that is the first row."""
        self._undone = -1

    def table(self) -> pa.Table:
        """What is visible now, oldest first."""
        state = self._state
        if state.window.by_batches or not state.visible_slots:
            return self._shape.of_rows(state.rows())
        slots, visible = state.slots, state.visible_slots
        first = slots[0].number
        tail = first + visible - (self._first + self._table.num_rows)
        old = visible - tail
        if self._undone != state.undone or not 0 <= tail <= _TAIL_MAX or old < 1 or self._first > first:
            self._table = self._shape.of_rows(state.rows())
            self._first, self._undone = first, state.undone
            return self._table
        kept = self._table.slice(first - self._first, old)
        if not tail:
            return kept
        fresh = self._shape.of_rows([slots[at].rows[0] for at in range(visible - tail, visible)])
        return pa.concat_tables([kept, fresh])
