"""What is kept for a value of each group: columns of the group's row, and how rows that come and go change them."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tussock.compute.changelog.computations import StateTable

__all__ = ["ROWS", "DoesNotFit", "GroupState", "GroupValue", "Moved", "RowCount", "ValueCount", "nothing_of"]

ROWS = "rows"
"""The column of a group's state with the number of its rows."""

Numbers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
GroupState = dict[str, Any]
"""A group's row of the state, by column."""


class DoesNotFit(Exception):
    """A value is beyond its type: `args` are the place of the group, and what does not fit."""


def nothing_of(field: pa.Field) -> Any:
    """What a column of the state has for a group without rows."""
    return None if field.nullable else b"" if pa.types.is_binary(field.type) else 0


class Moved:
    """Rows that a transaction takes from groups and gives to them, as columns."""

    def __init__(
        self, rows: pa.RecordBatch, places: Numbers, leaving: int, kept: tuple[Numbers, Numbers], numbers: Numbers
    ) -> None:
        """`places` of the rows, of which the first `leaving` go, the others come; `numbers` are those of their groups.

        `kept`: of source rows that have been there and still are, where their old and new rows stand in `places`.
        """
        self._rows = rows
        self._places = pa.array(places)
        self._columns: dict[str, pa.Array] = {}
        self.numbers = numbers
        self.kept = kept
        self.signs = np.ones(len(places), np.int64)
        self.signs[:leaving] = -1
        """-1 for a row that goes, 1 for one that comes."""

    def column(self, name: str) -> pa.Array:
        """A column of the source."""
        if name not in self._columns:
            self._columns[name] = self._rows.column(name).take(self._places)
        return self._columns[name]

    def difference(self, groups: int, counts: Flags | None = None) -> Numbers:
        """By group, how many more rows there are; of those that count."""
        weights = self.signs if counts is None else self.signs * counts
        return np.bincount(self.numbers, weights=weights, minlength=groups).astype(np.int64)


class GroupValue(ABC):
    """Of one column of an aggregate."""

    def __init__(self, name: str, kind: pa.DataType, *, nullable: bool) -> None:
        self.name = name
        self.field = pa.field(name, kind, nullable=nullable)
        """What is shown."""

    @abstractmethod
    def fields(self) -> Sequence[pa.Field]:
        """Columns of the state."""

    def tables(self) -> Mapping[str, StateTable]:
        """Tables besides the state of the groups."""
        return {}

    def open(self, tables: Mapping[str, Any]) -> None:  # noqa: B027 - most have none
        """A run begins."""

    @abstractmethod
    def take(self, group: Sequence[Any], state: GroupState, row: Mapping[str, Any], sign: int) -> None:
        """A row of the source goes from a group (-1) or comes (1)."""

    def settle(self, group: Sequence[Any], state: GroupState) -> None:  # noqa: B027 - most have nothing to do
        """All rows have."""

    @abstractmethod
    def shown(self, state: GroupState) -> Any:
        """The value; `DoesNotFit`."""

    @abstractmethod
    def take_columns(
        self, groups: pa.RecordBatch, state: Mapping[str, pa.Array], moved: Moved
    ) -> tuple[Mapping[str, pa.Array], pa.Array]:
        """Its columns of the state after these rows have come and gone, and the values; `DoesNotFit`."""


class RowCount(GroupValue):
    """The number of rows."""

    def __init__(self, name: str) -> None:
        super().__init__(name, pa.int64(), nullable=False)

    def fields(self) -> Sequence[pa.Field]:
        """It is kept for each group anyway."""
        return []

    def take(self, group: Sequence[Any], state: GroupState, row: Mapping[str, Any], sign: int) -> None:
        """As the base class has it."""

    def shown(self, state: GroupState) -> Any:
        """As the base class has it."""
        return state[ROWS]

    def take_columns(
        self,
        groups: pa.RecordBatch,  # noqa: ARG002 - as the base class has it
        state: Mapping[str, pa.Array],
        moved: Moved,  # noqa: ARG002
    ) -> tuple[Mapping[str, pa.Array], pa.Array]:
        """As the base class has it."""
        return {}, state[ROWS]


class ValueCount(GroupValue):
    """The number of rows in which a column is not null."""

    def __init__(self, name: str, column: str) -> None:
        super().__init__(name, pa.int64(), nullable=False)
        self._column = column
        self._count = f"count_{name}"

    def fields(self) -> Sequence[pa.Field]:
        """As the base class has it."""
        return [pa.field(self._count, pa.int64(), nullable=False)]

    def take(self, group: Sequence[Any], state: GroupState, row: Mapping[str, Any], sign: int) -> None:  # noqa: ARG002
        """As the base class has it."""
        if row[self._column] is not None:
            state[self._count] += sign

    def shown(self, state: GroupState) -> Any:
        """As the base class has it."""
        return state[self._count]

    def take_columns(
        self, groups: pa.RecordBatch, state: Mapping[str, pa.Array], moved: Moved
    ) -> tuple[Mapping[str, pa.Array], pa.Array]:
        """As the base class has it."""
        counts = moved.column(self._column).is_valid().to_numpy(zero_copy_only=False)
        found = pa.array(state[self._count].to_numpy() + moved.difference(groups.num_rows, counts))
        return {self._count: found}, found
