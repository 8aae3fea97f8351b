"""What a stream computes: nothing, a function of a record, a function of a batch, or a ready-made operator."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from tussock.compute.applications.arguments import cause_of
from tussock.compute.changelog.changes.changes import Changes
from tussock.compute.changelog.changes.record import ChangeRecord, Op
from tussock.compute.changelog.changes.stream_shape import CODES, StreamShape
from tussock.compute.changelog.loop.stream_loop import ComputeFault
from tussock.statestore.errors import SchemaMismatch

__all__ = ["ByBatch", "ByRecord", "Computation", "Identity", "StateTable"]

CHUNK = 256
_SOFT = {op: Op.SAFEDELETE if op in (Op.DELETE, Op.SAFEDELETE) else Op.UPSERT for op in Op}
_SOFT_CODES = np.array([CODES[Op.UPDATE_BLOCK if op is Op.UPDATE_BLOCK else _SOFT[op]] for op in Op], np.int8)


class StateTable(NamedTuple):
    """A table that a computation keeps."""

    schema: pa.Schema
    key: Sequence[str]
    spread: Sequence[str] | None = None
    """Columns of the key, its first ones, by which rows lie together, as a prefix reads them; `None`: all of it."""


class Computation(ABC):
    """Made once, opened for each run."""

    chunk: int | None = None
    """How many records it takes at once, at most; `None`: all of a transaction."""
    is_whole = False
    """Whether a transaction is put as it is computed as a whole, even if its records were gone through one by one.

    That is so of what writes tables: what it has written for single records is taken back then.
    """
    is_users = False
    """Whether it is a function that may not return."""
    is_view = False
    """Whether its rows are those that all rows of its inputs come to, so that it can leave no transaction out."""
    at: int | None = None
    """The record that it is at, of those that it was given; `None` where that is not known."""

    def tables(self) -> Mapping[str, StateTable]:
        """What it keeps beside the stream's rows, by a name for each."""
        return {}

    def open(self, tables: Mapping[str, Any]) -> None:  # noqa: B027 - most keep nothing
        """A run begins on these tables: all that is remembered is in them, as a transaction may be taken back."""

    @abstractmethod
    def compute(self, source: str, changes: Changes) -> Changes:
        """What records of an input stream come to; `ComputeFault` if one of them cannot be computed.

        `source` is the stream that has published them, or the computed one itself, if they were pushed.

        A transaction comes as a whole or in parts, one after the other; both have to give the same.
        """


class Identity(Computation):
    """What comes in goes out. `is_source`: as a client has given it; of other streams, whatever the store has."""

    def __init__(self, shape: StreamShape, *, is_source: bool) -> None:
        self._shape = shape
        self._is_source = is_source

    def compute(self, source: str, changes: Changes) -> Changes:  # noqa: ARG002 - as the base class has it
        """The same records."""
        if self._is_source:
            return changes
        if changes.is_columns:
            rows, codes, olds = changes.columns
            return Changes(self._shape, None, (rows, np.where(olds, codes, _SOFT_CODES[codes]), olds), changes.time)
        soft = [ChangeRecord(_SOFT[one.op], one.values_by_column, None, one.time) for one in changes.records]
        return Changes(self._shape, soft, None, changes.time)


class ByRecord(Computation):
    """A user's function of a record, which returns records."""

    chunk = CHUNK
    is_users = True

    def __init__(self, shape: StreamShape, function: Callable[[ChangeRecord], Any]) -> None:
        self._shape = shape
        self._function = function

    def compute(self, source: str, changes: Changes) -> Changes:  # noqa: ARG002 - as above
        """Of each record what the function returns: records, one record, or `None`."""
        found: list[ChangeRecord] = []
        shape, function, time = self._shape, self._function, changes.time
        for at, record in enumerate(changes.records):
            self.at = at
            try:
                given = function(record)
                if given is None:
                    continue
                found += [shape.record(one, time) for one in _listed(given)]
            except Exception as error:
                raise ComputeFault(at, cause_of(error)) from error
        return Changes(shape, found, None, time)


def _listed(given: Any) -> Any:
    if isinstance(given, ChangeRecord):
        return (given,)
    if isinstance(given, list | tuple):
        return given
    if hasattr(given, "__next__"):
        return list(given)
    raise SchemaMismatch(f"compute returned {given!r:.100}; expected records, a list of them, or None")


class ByBatch(Computation):
    """A user's function of a batch, which returns one."""

    is_users = True

    def __init__(self, shape: StreamShape, function: Callable[[pa.RecordBatch], Any]) -> None:
        self._shape = shape
        self._function = function

    def compute(self, source: str, changes: Changes) -> Changes:  # noqa: ARG002 - as above
        """What the function returns: Arrow data with `_op`, or `None`."""
        try:
            given = self._function(changes.batch())
            if given is None:
                return Changes(self._shape, [], None, changes.time)
            return Changes.of_batch(self._shape, given, changes.time)
        except Exception as error:
            raise ComputeFault(self._which(changes), cause_of(error)) from error

    def _which(self, changes: Changes) -> int | None:
        """The record that it cannot compute, as far as that can be told: the first that fails alone."""
        if len(changes) == 1:
            return 0
        low, high = 0, len(changes)
        while high - low > 1:
            middle = (low + high) // 2
            if self._fails(changes.part(low, middle)):
                high = middle
            elif self._fails(changes.part(middle, high)):
                low = middle
            else:
                return None
        return low

    def _fails(self, part: Changes) -> bool:
        try:
            given = self._function(part.batch())
            if given is not None:
                Changes.of_batch(self._shape, given, part.time)
        except Exception:  # noqa: BLE001 - a user's function
            return True
        return False
