"""What the ready-made operators share: checks at the declaration, and changes of streams as columns.

What an operator reads is what a stream has published: INSERT, UPDATE_BLOCK and DELETE with all columns, so each record
says which row goes and which one comes. An operator works on few records one by one, and on many by columns. Which of
the two depends on their number alone, so that a replay does as the first run did.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tussock.compute.changelog.changes.changes import Changes
from tussock.compute.changelog.changes.float_keys import as_key
from tussock.compute.changelog.changes.record import ChangeRecord, Op
from tussock.compute.changelog.changes.stream_shape import CODES, StreamShape
from tussock.compute.changelog.computations import Computation
from tussock.compute.changelog.definitions import definition
from tussock.compute.changelog.stream import Stream, computed_stream
from tussock.statestore.errors import InvalidOption
from tussock.statestore.rows.row_codec import RowCodec

__all__ = [
    "FEW_RECORDS",
    "FEW_SLOW_RECORDS",
    "Numbered",
    "StreamOperator",
    "Transitions",
    "check_source",
    "derive",
    "known_columns",
    "netted",
    "numbered",
    "of_rows",
    "transitions",
]

FEW_RECORDS = 64
"""Up to that number, each record alone is computed in less time than columns are set up."""
FEW_SLOW_RECORDS = 6
"""The same where a row that is kept has types, such as lists, of which a table takes single rows slowly: some
0.4 ms for each, and 3 to 5 ms for all of a transaction by columns."""

_INSERT, _BLOCK, _DELETE = CODES[Op.INSERT], CODES[Op.UPDATE_BLOCK], CODES[Op.DELETE]
_UPSERT, _SAFEDELETE = CODES[Op.UPSERT], CODES[Op.SAFEDELETE]

Places = npt.NDArray[np.int64]


class StreamOperator(Computation):
    """A computation with two ways to the same result."""

    is_whole = is_view = True

    def __init__(self, shape: StreamShape) -> None:
        """`shape` is that of the stream that it computes."""
        self.shape = shape

    def compute(self, source: str, changes: Changes) -> Changes:
        """As the base class has it."""
        if len(changes) > self._few:
            return self.by_columns(source, changes)
        return Changes(self.shape, self.by_record(source, changes), None, changes.time)

    @cached_property
    def _few(self) -> int:
        tables = self.tables().values()
        is_fast = all(RowCodec.of(one.schema, one.key) is not None for one in tables)
        return FEW_RECORDS if is_fast else FEW_SLOW_RECORDS

    @abstractmethod
    def by_record(self, source: str, changes: Changes) -> list[ChangeRecord]:
        """What few records come to; `ComputeFault`."""

    @abstractmethod
    def by_columns(self, source: str, changes: Changes) -> Changes:
        """The same of many."""


# --- At the declaration ------------------------------------------------------------------------------------------


def derive(
    kind: str,
    name: str,
    inputs: Sequence[Stream],
    schema: pa.Schema,
    key: Sequence[str],
    make: Callable[[StreamShape], Computation],
    **parts: Any,
) -> Stream:
    """The stream of an operator; `parts` is all by which it may differ from another of its kind and columns.

    Raises `InvalidOption`.
    """
    for one in inputs:
        if one.store is not inputs[0].store:
            raise InvalidOption(f"{kind} {name!r}: streams {inputs[0].name!r} and {one.name!r} are of two stores")
    what = definition(kind, [one.name for one in inputs], key, schema, **parts)
    return computed_stream(name, inputs, schema, key, make, what)


def check_source(what: str, source: Any) -> None:
    """`InvalidOption` unless it is a stream."""
    if not isinstance(source, Stream):
        raise InvalidOption(f"{what}: source={source!r:.100}; expected a stream")


def known_columns(what: str, word: str, given: Any, schema: pa.Schema) -> tuple[str, ...]:
    """Names of columns as a tuple, each known and named once; `word` is the parameter. `InvalidOption`."""
    columns = (given,) if isinstance(given, str) else given
    if not isinstance(columns, list | tuple) or not all(isinstance(one, str) for one in columns):
        raise InvalidOption(f"{what}: {word}={given!r:.100}; expected names of columns")
    _check_columns(what, word, columns, schema)
    if len(set(columns)) < len(columns):
        raise InvalidOption(f"{what}: {word}={given!r:.100} names a column twice")
    return tuple(columns)


def _check_columns(what: str, word: str, columns: Iterable[Any], schema: pa.Schema) -> None:
    """`InvalidOption` for a column that the schema has not."""
    unknown = [one for one in columns if one not in schema.names]
    if unknown:
        raise InvalidOption(f"{what}: {word} has {unknown!r:.100}; the source has the columns {schema.names}")


# --- By columns --------------------------------------------------------------------------------------------------


class Transitions(NamedTuple):
    """What a transaction does to each key of a stream, however many records it has for it."""

    rows: pa.RecordBatch
    before: Places
    """By key, in order of first appearance, the place of the row that it had before the transaction; -1: none."""
    after: Places
    """The place of the row that it has after it; -1: none."""


class Numbered(NamedTuple):
    """Rows with the same values have the same number."""

    numbers: Places
    """Of each row, from 0, in order of first appearance."""
    firsts: Places
    """By number, the place of the first row that has it."""


def transitions(changes: Changes) -> Transitions:
    """Of what a stream has published."""
    rows, codes, olds = changes.columns
    numbers, firsts = numbered(rows.select(list(changes.shape.key)))
    lasts = np.empty(len(firsts), np.int64)
    lasts[numbers] = np.arange(len(numbers))
    # A block's old row stands right behind its new one, and has the same key: a stream's block does not change it.
    codes_first = codes[firsts]
    before = np.where(codes_first == _INSERT, -1, np.where(codes_first == _BLOCK, firsts + 1, firsts))
    after = np.where(olds[lasts], lasts - 1, np.where(codes[lasts] == _DELETE, -1, lasts))
    return Transitions(rows, before, after)


def numbered(batch: pa.RecordBatch) -> Numbered:
    """Numbers for the rows of columns, which may have nulls: a null is the same as a null, and NaN as NaN."""
    numbers = np.zeros(batch.num_rows, np.int64)
    for at, column in enumerate(batch.columns):
        codes = as_key(column).dictionary_encode(null_encoding="encode")
        numbers = numbers * len(codes.dictionary) + codes.indices.to_numpy()
        if at:
            # Small again, so that many columns cannot overflow.
            numbers = _dense(numbers)
    firsts = np.empty(int(numbers.max()) + 1 if len(numbers) else 0, np.int64)
    firsts[numbers[::-1]] = np.arange(len(numbers) - 1, -1, -1)
    return Numbered(numbers, firsts)


def _dense(numbers: Places) -> Places:
    """Other numbers, from 0, in order of first appearance."""
    found: Places = pa.array(numbers).dictionary_encode().indices.to_numpy().astype(np.int64)
    return found


def of_rows(shape: StreamShape, upserts: pa.RecordBatch, deletes: pa.RecordBatch, time: int) -> Changes:
    """Rows to upsert, and keys to delete if they are there; the deletes come first.

    `upserts` has the stream's columns, `deletes` its key at least, both by name.
    """
    gone, count = deletes.num_rows, upserts.num_rows
    columns = []
    for field in shape.relaxed:
        fresh = upserts.column(field.name)
        if gone:
            old = deletes.column(field.name) if field.name in shape.key else pa.nulls(gone, field.type)
            fresh = pa.concat_arrays([old, fresh])
        columns.append(fresh)
    schema = pa.schema([pa.field(field.name, field.type) for field in shape.relaxed])
    codes = np.repeat(np.array([_SAFEDELETE, _UPSERT], np.int8), [gone, count])
    return Changes(
        shape, None, (pa.record_batch(columns, schema=schema), codes, np.zeros(gone + count, np.bool_)), time
    )


def netted(shape: StreamShape, upserts: pa.RecordBatch, deletes: pa.RecordBatch, time: int) -> Changes:
    """As `of_rows`, without the deletes of keys that are among the upserts; of either, each key stands once."""
    key = list(shape.key)
    if upserts.num_rows and deletes.num_rows:
        both = [pa.concat_arrays([upserts.column(one), deletes.column(one)]) for one in key]
        numbers = numbered(pa.record_batch(both, key)).numbers
        is_gone = ~np.isin(numbers[upserts.num_rows :], numbers[: upserts.num_rows])
        deletes = deletes.filter(pa.array(is_gone))
    return of_rows(shape, upserts, deletes, time)
