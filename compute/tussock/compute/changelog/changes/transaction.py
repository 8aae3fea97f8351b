"""`StreamTransaction`: what enters and leaves a stream as a whole; and its bytes, for the log and the histories.

Few records of plain values are MessagePack: `D`, then an array of the time, and of each record the code of its
operation, its values in the order of the schema, and of a block its old values. Others are `A`, the time in eight bytes
(little-endian), and a stream of Arrow's IPC with the columns of the stream, `_op` as a code, and `_old`.
"""

import struct
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tussock.compute.applications.ipc_streams import ipc_bytes, ipc_table
from tussock.compute.changelog.changes.changes import Changes
from tussock.compute.changelog.changes.record import ChangeRecord, Op
from tussock.compute.changelog.changes.stream_shape import CODES, OLD, OP, StreamShape
from tussock.statestore.base.damage import UNREADABLE
from tussock.statestore.errors import CorruptLog

__all__ = ["StreamTransaction", "changes_bytes", "changes_from", "kept_changes", "published"]

_AS_RECORDS, _AS_ARROW = b"D", b"A"
_TIME = struct.Struct("<q")
_FEW = 64
_PLAIN = frozenset((bool, int, float, str, bytes, type(None)))
_OPS = tuple(Op)
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder().decode


class StreamTransaction:
    """Of a stream, with the number that it has there. Iterates over its records."""

    __slots__ = ("changes", "seq")

    def __init__(self, seq: int, changes: Changes) -> None:
        self.seq = seq
        """Ascending from 1 without gaps: of what enters a stream, and apart from that of what leaves it."""
        self.changes = changes

    @property
    def records(self) -> list[ChangeRecord]:
        """The records, a block as one."""
        return list(self.changes.records)

    @property
    def time(self) -> int:
        """When it was pushed, in milliseconds since 1970."""
        return self.changes.time

    def batch(self) -> pa.RecordBatch:
        """The records as columns, with `_op`; a block as two rows, of which the second has `_old`."""
        return self.changes.batch()

    def __iter__(self) -> Iterator[ChangeRecord]:
        return iter(self.changes.records)

    def __len__(self) -> int:
        return len(self.changes)

    def __bool__(self) -> bool:
        """True, of an empty transaction, too."""
        return True

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, StreamTransaction):
            return NotImplemented
        return self.seq == other.seq and list(self.changes.records) == list(other.changes.records)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"StreamTransaction({self.seq}, {list(self.changes.records)!r})"


def published(one: StreamTransaction, *, blocks: bool) -> StreamTransaction:
    """As subscribers see it: of an update block the new values as an UPDATE, or with `blocks` both records."""
    if one.changes.is_columns and not blocks:
        rows, codes, olds = one.changes.columns
        news = ~olds
        codes = np.where(codes == CODES[Op.UPDATE_BLOCK], CODES[Op.UPDATE], codes)[news].astype(np.int8)
        kept = rows if news.all() else rows.filter(pa.array(news))
        return StreamTransaction(one.seq, Changes(one.changes.shape, None, (kept, codes, olds[news]), one.changes.time))
    found: list[ChangeRecord] = []
    for record in one.changes.records:
        if record.op is not Op.UPDATE_BLOCK or record.old is None:
            found.append(record)
        elif blocks:
            found += [ChangeRecord(Op.UPDATE_BLOCK, record.values_by_column, record.old, record.time), record.old]
        else:
            found.append(ChangeRecord(Op.UPDATE, record.values_by_column, None, record.time))
    return StreamTransaction(one.seq, Changes(one.changes.shape, found, None, one.changes.time))


def changes_bytes(changes: Changes) -> bytes:
    """The bytes of a transaction."""
    if not changes.is_columns and len(changes) <= _FEW:
        records = [_packed(one, changes.shape.names) for one in changes.records]
        if None not in records:
            return _AS_RECORDS + _encode([changes.time, records])
    rows, codes, olds = changes.columns
    schema = rows.schema.append(pa.field(OP, pa.int8())).append(pa.field(OLD, pa.bool_()))
    batch = pa.record_batch([*rows.columns, pa.array(codes), pa.array(olds)], schema=schema)
    return _AS_ARROW + _TIME.pack(changes.time) + ipc_bytes(batch)


def changes_from(data: bytes, shape: StreamShape, what: str) -> Changes:
    """The changes of these bytes; `CorruptLog` that begins with `what` if they are none, or of another schema.

    Columns that the stream has got since, at its end, are null.
    """
    try:
        if data[:1] == _AS_RECORDS:
            time, records = _decode(data[1:])
            return Changes(shape, [_unpacked(one, shape, time) for one in records], None, time)
        if data[:1] == _AS_ARROW:
            (time,) = _TIME.unpack_from(data, 1)
            # Copied, so that its buffers begin where Arrow's expressions want them to, at multiples of their width.
            table = ipc_table(data[1 + _TIME.size :])
            names = table.schema.names
            if (
                names[-2:] != [OP, OLD]
                or names[:-2] != shape.names[: len(names) - 2]
                or not _may_lack(shape, names[:-2])
            ):
                raise CorruptLog(f"{what}: has the columns {names}; {shape.what} has {shape.names}")
            batch = table.combine_chunks().to_batches()
            rows = batch[0] if batch else pa.RecordBatch.from_pylist([], schema=table.schema)
            codes = rows.column(OP).to_numpy()
            olds = rows.column(OLD).to_numpy(zero_copy_only=False)
            rows = rows.drop_columns([OP, OLD])
            for name in shape.names[len(names) - 2 :]:
                rows = rows.append_column(name, pa.nulls(rows.num_rows, shape.schema.field(name).type))
            return Changes(shape, None, (rows, codes, olds), time)
    except (*UNREADABLE, pa.ArrowException, ValueError, TypeError, IndexError, struct.error) as error:
        raise CorruptLog(f"{what}: no transaction: {error}") from error
    raise CorruptLog(f"{what}: no transaction: it begins with {data[:1]!r}")


def kept_changes(
    data: bytes, names: Sequence[str], what: str
) -> tuple[int, npt.NDArray[np.int8], npt.NDArray[np.bool_], dict[str, Any]]:
    """Time, codes, which rows are old ones, and columns by name, of changes of a stream that had these columns.

    Columns are Arrow's, or lists of Python's values; one that was not there yet is lacking. Raises `CorruptLog`.
    """
    try:
        if data[:1] == _AS_ARROW:
            (time,) = _TIME.unpack_from(data, 1)
            table = ipc_table(data[1 + _TIME.size :])
            columns = {name: _joined(table.column(name)) for name in table.schema.names}
            codes, olds = columns.pop(OP), columns.pop(OLD)
            return time, codes.to_numpy(), olds.to_numpy(zero_copy_only=False), columns
        if data[:1] == _AS_RECORDS:
            time, records = _decode(data[1:])
            rows = [row for record in records for row in _rows_of(*record)]
            width = min((len(values) for _, _, values in rows), default=0)
            columns = {name: [values[at] for _, _, values in rows] for at, name in enumerate(names[:width])}
            codes = np.array([code for code, _, _ in rows], np.int8)
            return time, codes, np.array([is_old for _, is_old, _ in rows], np.bool_), columns
    except (*UNREADABLE, pa.ArrowException, ValueError, TypeError, LookupError, struct.error) as error:
        raise CorruptLog(f"{what}: no transaction: {error}") from error
    raise CorruptLog(f"{what}: no transaction: it begins with {data[:1]!r}")


def _rows_of(code: int, values: list[Any], *old: list[Any]) -> list[tuple[int, bool, list[Any]]]:
    return [(code, False, values), *((CODES[Op.DELETE], True, one) for one in old)]


def _joined(column: pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def _packed(one: ChangeRecord, names: list[str]) -> list[Any] | None:
    values = [one.get(name) for name in names]
    if not all(type(value) in _PLAIN for value in values) or not _fits(values):
        return None
    packed = [CODES[one.op], values]
    if one.old is not None:
        old = [one.old.get(name) for name in names]
        if not all(type(value) in _PLAIN for value in old) or not _fits(old):
            return None
        packed.append(old)
    return packed


def _fits(values: list[Any]) -> bool:
    return all(-(1 << 63) <= value < 1 << 63 for value in values if type(value) is int)


def _unpacked(packed: list[Any], shape: StreamShape, time: int) -> ChangeRecord:
    code, values, *old = packed
    before = ChangeRecord(Op.DELETE, _row(old[0], shape), None, time) if old else None
    return ChangeRecord(_OPS[code], _row(values, shape), before, time)


def _row(values: list[Any], shape: StreamShape) -> dict[str, Any]:
    names = shape.names
    if len(values) < len(names) and _may_lack(shape, names[: len(values)]):
        values = [*values, *[None] * (len(names) - len(values))]
    return dict(zip(names, values, strict=True))


def _may_lack(shape: StreamShape, names: list[str]) -> bool:
    """Whether rows with only these first columns are rows of the stream."""
    return all(shape.schema.field(one).nullable for one in shape.names[len(names) :])
