"""The rows of a file as changes of a stream, some at a time."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tussock.compute.applications.arguments import cause_of
from tussock.compute.applications.feeds.feed import BadMessage
from tussock.compute.changelog.changes.record import Op
from tussock.compute.changelog.changes.stream_shape import CODES, OLD, OP, StreamShape, words_of
from tussock.compute.changelog.envelopes.decoder import ChangesDecoder
from tussock.statestore.errors import InvalidBatch, SchemaMismatch

__all__ = ["FilePart", "FileParts", "file_parts"]

LINE_BYTES_MAX = 16 << 20
_CAUSE_MAX = 1000
"""Characters."""
_SOFT = np.array(
    [CODES[{Op.INSERT: Op.UPSERT, Op.UPDATE: Op.UPSERT, Op.DELETE: Op.SAFEDELETE}.get(op, op)] for op in Op], np.int8
)
"""By code, the one that does no harm when it comes again."""


class FilePart(NamedTuple):
    """Some rows, or lines."""

    rows: int
    """How many they were in the file, from the place on where they began."""
    changes: pa.Table
    bad: tuple[BadMessage, ...]
    is_last: bool


FileParts = Callable[[str, bytes, int], Iterator[FilePart]]
"""The parts of a file, by its name and bytes, from a row on."""


def file_parts(shape: StreamShape, kind: str, what: str, most: int, decimals: str) -> FileParts:
    """Reads files of a format, at most `most` rows at once. `InvalidOption` for columns that the format has not."""
    if kind == "parquet":
        return _Columns(shape, most, _parquet_batches).parts
    if kind == "arrow":
        return _Columns(shape, most, _arrow_batches).parts
    return _FileLines(ChangesDecoder(shape, kind, what, decimals=decimals), most).parts  # type: ignore[arg-type]


class _FileLine(NamedTuple):
    value: bytes
    origin: str
    key: bytes | None = None


class _FileLines:
    def __init__(self, decoder: ChangesDecoder, most: int) -> None:
        self._decoder = decoder
        self._most = most

    def parts(self, name: str, data: bytes, first: int) -> Iterator[FilePart]:
        lines = data.split(b"\n")
        if lines and not lines[-1]:
            lines.pop()
        for begin in range(first, max(len(lines), first + 1), self._most):
            taken = lines[begin : begin + self._most]
            numbered = [
                _FileLine(line, f"{name}:{begin + at + 1:09d}") for at, line in enumerate(taken) if line.strip()
            ]
            large = tuple(
                BadMessage(one.origin, b"", f"a line of {len(one.value):,} bytes; at most {LINE_BYTES_MAX:,} are read")
                for one in numbered
                if len(one.value) > LINE_BYTES_MAX
            )
            changes, bad = self._decoder.table([one for one in numbered if len(one.value) <= LINE_BYTES_MAX])
            yield FilePart(len(taken), changes, tuple(sorted(bad + large)), begin + len(taken) >= len(lines))


class _Columns:
    def __init__(
        self, shape: StreamShape, most: int, batches: Callable[[bytes, int], Iterator[pa.RecordBatch]]
    ) -> None:
        self._shape = shape
        self._most = most
        self._batches = batches
        self._nothing = self._table(pa.RecordBatch.from_pylist([], schema=shape.schema))

    def parts(self, name: str, data: bytes, first: int) -> Iterator[FilePart]:
        at, is_empty = 0, True
        try:
            for batch, is_last in _with_last(self._cut(data)):
                begin, at = at, at + batch.num_rows
                if at > first or is_last:
                    is_empty = False
                    skipped = max(first - begin, 0)
                    yield self._part(name, batch.slice(skipped), begin + skipped, is_last)
        except (pa.ArrowException, OSError, ValueError, TypeError, NotImplementedError) as error:
            # What the library makes of bytes that are no such file.
            bad = BadMessage(f"{name}:{max(at, first) + 1:09d}", b"", cause_of(error)[:_CAUSE_MAX])
            yield FilePart(0, self._nothing, (bad,), is_last=True)
            return
        if is_empty:
            yield FilePart(0, self._nothing, (), is_last=True)

    def _cut(self, data: bytes) -> Iterator[pa.RecordBatch]:
        """Batches of the same size, however the file has them, each before a block or a delete that stands alone."""
        left: pa.Table | None = None
        for batch in self._batches(data, self._most):
            fresh = pa.Table.from_batches([batch])
            left = fresh if left is None else pa.concat_tables([left, fresh])
            while left.num_rows > self._most:
                count = self._most
                # The second row of a block stays with the first.
                while count < left.num_rows and OLD in left.schema.names and left.column(OLD)[count].as_py():
                    count += 1
                yield _batch_of(left.slice(0, count))
                left = left.slice(count)
        if left is not None and left.num_rows:
            yield _batch_of(left)

    def _part(self, name: str, batch: pa.RecordBatch, begin: int, is_last: bool) -> FilePart:
        try:
            return FilePart(batch.num_rows, self._table(batch), (), is_last)
        except (SchemaMismatch, InvalidBatch) as error:
            place = f"{name}:{begin + 1:09d}"
            cause = f"rows {begin + 1} to {begin + batch.num_rows}: {error}"[:_CAUSE_MAX]
            return FilePart(batch.num_rows, self._nothing, (BadMessage(place, b"", cause),), is_last)

    def _table(self, batch: pa.RecordBatch) -> pa.Table:
        names = [name for name in batch.schema.names if name in (*self._shape.names, OP, OLD)]
        given = batch.select(names)
        if OP not in names:
            given = given.append_column(OP, pa.array([str(Op.UPSERT)] * batch.num_rows, pa.string()))
        rows, codes, olds = self._shape.columns(given)
        if olds is None:
            olds = np.zeros(len(codes), np.bool_)
        table = pa.Table.from_batches([rows])
        # A second row of a block is a DELETE that is part of its record.
        soft = np.where(olds, codes, _SOFT[codes]).astype(np.int8)
        return table.append_column(OP, words_of(soft)).append_column(OLD, pa.array(olds))


def _batch_of(table: pa.Table) -> pa.RecordBatch:
    return table.combine_chunks().to_batches()[0]


def _with_last(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[pa.RecordBatch, bool]]:
    before: Any = None
    for batch in batches:
        if before is not None:
            yield before, False
        before = batch
    if before is not None:
        yield before, True


def _parquet_batches(data: bytes, most: int) -> Iterator[pa.RecordBatch]:
    yield from pq.ParquetFile(pa.BufferReader(data)).iter_batches(batch_size=most)


def _arrow_batches(data: bytes, most: int) -> Iterator[pa.RecordBatch]:  # noqa: ARG001 - as the other
    with pa.ipc.open_file(pa.BufferReader(data)) as reader:
        for at in range(reader.num_record_batches):
            batch = reader.get_batch(at)
            batch.validate(full=True)
            yield batch
