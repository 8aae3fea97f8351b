"""What a window shows: staged tuples become visible by slides. A pure state machine that can be undone.

Tuples are staged when they are inserted. Once a slide's worth of them is staged, all of them become visible at once,
and the oldest go, so that `size` stay. By batches it is the same, with all tuples of a batch as one; an empty batch
counts.
"""

from collections import deque
from collections.abc import Sequence
from itertools import islice
from typing import Any, NamedTuple

import pyarrow as pa

from tussock.compute.procedures.definitions import Window
from tussock.compute.procedures.rows import TupleShape

__all__ = ["VisibleTuples", "WindowSlot", "WindowState"]

_TAIL_MAX = 16
"""Tuples by which the visible ones may have changed so that the table of before is used again."""

Row = dict[str, Any]


class WindowSlot(NamedTuple):
    """What a window counts: one tuple, or all tuples of a batch."""

    number: int
    """From 0, without gaps."""
    rows: tuple[Row, ...]


class WindowState:
    """The slots of one window: visible ones, then staged ones."""

    def __init__(
        self, window: Window, slots: Sequence[WindowSlot] = (), visible: int = 0, *, has_slid: bool = False
    ) -> None:
        self.window = window
        self._slots = deque(slots)
        self._visible = visible
        self._has_slid = has_slid
        self._next = slots[-1].number + 1 if slots else 0
        self.undone = 0
        """Times that slots were undone: their numbers came again, with other tuples."""
        self._saved: tuple[int, int, bool] | None = None
        self._gone: list[WindowSlot] = []
        """Slots that went since the savepoint."""

    @property
    def visible_slots(self) -> int:
        """How many of the slots can be seen."""
        return self._visible

    @property
    def has_slid(self) -> bool:
        """Whether there was a slide yet."""
        return self._has_slid

    @property
    def next_number(self) -> int:
        """Of the slot to come."""
        return self._next

    @property
    def slots(self) -> Sequence[WindowSlot]:
        """Visible ones, then staged ones."""
        return self._slots

    def resume(self, next_number: int) -> None:
        """Go on numbering where a former run was."""
        self._next = next_number

    def insert(self, rows: Sequence[Row]) -> bool:
        """Stage one slot; whether the window slid by it."""
        self._slots.append(WindowSlot(self._next, tuple(rows)))
        self._next += 1
        staged = len(self._slots) - self._visible
        window = self.window
        needed = window.size if window.waits_until_full and not self._has_slid else window.slide
        if staged < needed:
            return False
        self._has_slid = True
        while len(self._slots) > window.size:
            gone = self._slots.popleft()
            if self._saved is not None:
                self._gone.append(gone)
        self._visible = len(self._slots)
        return True

    def rows(self, *, staged: bool = False) -> list[Row]:
        """The visible tuples, oldest first; or the staged ones."""
        slots = islice(self._slots, self._visible, None) if staged else islice(self._slots, self._visible)
        return [row for slot in slots for row in slot.rows]

    def begin(self) -> None:
        """A savepoint."""
        self._saved = self._next, self._visible, self._has_slid
        self._gone = []

    def keep(self) -> None:
        """What came since stays."""
        self._saved = None
        self._gone = []

    def undo(self) -> None:
        """Be as at the savepoint."""
        assert self._saved is not None, "nothing is undone without a savepoint"
        following, self._visible, self._has_slid = self._saved
        kept = [slot for slot in (*self._gone, *self._slots) if slot.number < following]
        self._slots = deque(kept)
        self._next = following
        self.undone += 1
        self.keep()


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
