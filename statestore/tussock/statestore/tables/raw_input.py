"""Checks and shapes what users hand to `ingest_batch` of a raw table.

A batch is refused whole: every check is made before a row is stored, and the error names the first offending
position and its key.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tussock.statestore.base.arguments import iterator_over
from tussock.statestore.errors import InvalidBatch, SchemaMismatch
from tussock.statestore.keys.key_bytes import check_key_bytes
from tussock.statestore.rows.key_arrays import key_order, repeats, shown_key
from tussock.statestore.rows.row_codec import Row
from tussock.statestore.rows.rows import Rows
from tussock.statestore.shown import show_value
from tussock.statestore.sst.lookups.wanted_keys import FEW_KEYS, Keys
from tussock.statestore.write.loose_rows import LOOSE_BYTES_MAX

__all__ = [
    "RawBatch",
    "check_ascending",
    "encode_few",
    "few_rows",
    "first_disorder",
    "key_array",
    "raw_keys",
    "raw_rows",
]

RawBatch: TypeAlias = Iterable[tuple[bytes, bytes | None]] | pa.RecordBatch | pa.Table

_OPERATIONS = ("put", "delete")

_NAMES = ["key", "value"]
_TYPES = [pa.binary(), pa.binary()]

_FEW_PAIRS = 16
"""Rows, at most, that are kept as they come; of more a run is made at once, in less time."""


def _contiguous(column: pa.Array | pa.ChunkedArray, table: str) -> pa.Array:
    if not isinstance(column, pa.ChunkedArray):
        return column
    if column.num_chunks == 1:
        # `combine_chunks` would copy it.
        return column.chunk(0)
    try:
        joined = column.combine_chunks()
    except pa.ArrowInvalid as error:
        raise _too_large(column.nbytes, table) from error
    if isinstance(joined, pa.ChunkedArray):
        raise _too_large(column.nbytes, table)
    return joined


def _binary(values: Sequence[bytes], table: str) -> pa.BinaryArray:
    try:
        array = pa.array(values, pa.binary())
    except pa.ArrowCapacityError as error:  # of one value
        raise _too_large(sum(map(len, values)), table) from error
    # What does not fit into one array is answered as several.
    if isinstance(array, pa.ChunkedArray):
        raise _too_large(array.nbytes, table)
    return array


def _too_large(nbytes: int, table: str) -> InvalidBatch:
    return InvalidBatch(
        f"table {table!r}: a column has {nbytes} bytes in one batch, and at most 2 GiB fit; nothing was stored, "
        "split the batch"
    )


def key_array(keys: Sequence[bytes] | pa.Array | pa.ChunkedArray, table: str) -> pa.BinaryArray:
    """Keys of a raw table as one binary array; `SchemaMismatch` if one is not bytes or null."""
    if isinstance(keys, pa.Array | pa.ChunkedArray):
        array = _contiguous(keys, table)
        if not (pa.types.is_binary(array.type) or pa.types.is_large_binary(array.type)):
            raise SchemaMismatch(f"table {table!r}: keys have type {array.type}, expected binary; nothing was done")
        if array.null_count:
            at = pc.index(array.is_null(), True).as_py()
            raise SchemaMismatch(f"table {table!r}: the key at position {at} is null; nothing was done")
        return _narrow(array, table)
    found = None if isinstance(keys, str | bytes | bytearray | memoryview | Mapping) else iterator_over(keys)
    if found is None:
        raise SchemaMismatch(f"table {table!r}: found {show_value(keys)}, expected a list of keys, each bytes")
    known = []
    for at, key in enumerate(found):
        if not isinstance(key, bytes):
            raise SchemaMismatch(
                f"table {table!r}: the key at position {at} is of type {type(key).__name__} ({show_value(key)}), "
                "expected bytes"
            )
        known.append(key)
    return _binary(known, table)


def few_rows(batch: RawBatch, *, ordered: bool = True) -> list[tuple[bytes, Row | None]] | None:
    """A short list of pairs, or a short batch of Arrow, to write alone; `None` for any other form, and if it is wrong.

    It is wrong, with `ordered`, if the keys do not ascend.
    """
    pairs = batch if type(batch) is list else _few_pairs(batch)
    if pairs is None or len(pairs) > _FEW_PAIRS:
        return None
    rows: list[tuple[bytes, Row | None]] = []
    before: bytes | None = None
    for pair in pairs:
        if type(pair) is not tuple or len(pair) != 2:
            return None
        key, value = pair
        if type(key) is not bytes or (value is not None and type(value) is not bytes):
            return None
        if ordered and before is not None and key <= before:
            return None
        rows.append((key, None if value is None else {"value": value}))
        before = key
    return rows


def _few_pairs(batch: RawBatch) -> list[tuple[bytes, bytes | None]] | None:
    """A short batch `{key: binary, value: binary}` as pairs; `None` for any other."""
    if not isinstance(batch, pa.RecordBatch | pa.Table) or batch.num_rows > _FEW_PAIRS:
        return None
    schema = batch.schema
    if schema.names != _NAMES or schema.types != _TYPES:
        return None
    # The first is told at once, but is of all that a slice was cut from.
    if batch.get_total_buffer_size() > LOOSE_BYTES_MAX and batch.nbytes > LOOSE_BYTES_MAX:
        return None
    keys, values = batch.columns
    return list(zip(keys.to_pylist(), values.to_pylist(), strict=True))


def encode_few(keys: Sequence[bytes], rows: Sequence[Row | None]) -> Rows:
    """Rows that were written alone, or deletes, by ascending keys."""
    deletes = np.array([row is None for row in rows], np.bool_) if None in rows else None
    values = pa.array([b"" if row is None else row["value"] for row in rows], pa.binary())
    return Rows(pa.array(keys, pa.binary()), 0, deletes, (values,))


def raw_keys(keys: Sequence[bytes] | pa.Array | pa.ChunkedArray, table: str) -> Keys:
    """Keys of a raw table to look up, a short list as such; `SchemaMismatch` if one is not bytes or null."""
    if isinstance(keys, list) and len(keys) < FEW_KEYS and all(type(key) is bytes for key in keys):
        return list(keys)
    return key_array(keys, table)


def _narrow(array: pa.Array, table: str) -> pa.BinaryArray:
    try:
        return array.cast(pa.binary())
    except pa.ArrowInvalid as error:
        raise _too_large(array.nbytes, table) from error


def _from_pairs(batch: Iterable[tuple[bytes, bytes | None]], table: str) -> Rows:
    keys, values, deletes = [], [], []
    for at, operation in enumerate(batch):
        if not isinstance(operation, tuple | list) or len(operation) != 2:
            raise InvalidBatch(
                f"table {table!r}: position {at} holds {show_value(operation)}, which is neither a put (key, value) "
                "nor a delete (key, None); nothing was stored",
                at,
            )
        key, value = operation
        if not isinstance(key, bytes):
            raise InvalidBatch(
                f"table {table!r}: the key at position {at} is of type {type(key).__name__} ({show_value(key)}), "
                "expected bytes; nothing was stored",
                at,
            )
        if value is not None and not isinstance(value, bytes):
            raise InvalidBatch(
                f"table {table!r}: position {at}, key {shown_key(key)}: {show_value(value)} is neither a put (bytes) "
                "nor a delete (None); nothing was stored",
                at,
                key,
            )
        keys.append(key)
        values.append(b"" if value is None else value)
        deletes.append(value is None)
    marks = np.array(deletes, np.bool_)
    return Rows(_binary(keys, table), 0, marks if marks.any() else None, (_binary(values, table),))


def _operations(batch: pa.RecordBatch | pa.Table, table: str) -> pa.StringArray:
    operations = _contiguous(batch.column("op"), table)
    kind = operations.type.value_type if pa.types.is_dictionary(operations.type) else operations.type
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_null(kind)):
        raise SchemaMismatch(
            f"table {table!r}: column 'op' has type {operations.type}, expected string ('put' or 'delete'); "
            "nothing was stored"
        )
    return operations.cast(pa.string())


def _from_arrow(batch: pa.RecordBatch | pa.Table, table: str) -> Rows:
    names = batch.schema.names
    if set(names) not in ({"key", "value"}, {"key", "value", "op"}) or len(set(names)) != len(names):
        raise SchemaMismatch(
            f"table {table!r}: found columns {names}, expected key and value (and op, if wanted); nothing was stored"
        )
    keys = key_array(batch.column("key"), table)
    values = _contiguous(batch.column("value"), table)
    if not (pa.types.is_binary(values.type) or pa.types.is_large_binary(values.type) or pa.types.is_null(values.type)):
        raise SchemaMismatch(
            f"table {table!r}: column 'value' has type {values.type}, expected binary; nothing was stored"
        )
    values = _narrow(values, table)
    marks = values.is_null().to_numpy(zero_copy_only=False)
    if "op" in names:
        operations = _operations(batch, table)
        known = pc.is_in(operations, value_set=pa.array(_OPERATIONS))
        if not pc.all(known, min_count=0).as_py():
            at = pc.index(known, False).as_py()
            raise InvalidBatch(
                f"table {table!r}: position {at}, key {shown_key(keys[at].as_py())}: operation "
                f"{show_value(operations[at].as_py())} is neither 'put' nor 'delete'; nothing was stored",
                at,
                keys[at].as_py(),
            )
        deletes = pc.equal(operations, "delete").to_numpy(zero_copy_only=False)
        bare = np.flatnonzero(marks & ~deletes)
        if len(bare):
            at = int(bare[0])
            raise InvalidBatch(
                f"table {table!r}: position {at}, key {shown_key(keys[at].as_py())}: a put of null; nothing was stored",
                at,
            )
        marks = deletes
    # Nulls would be stored as a bitmap beside the delete marks, which say the same.
    filled = values.fill_null(b"") if values.null_count else values
    return Rows(keys, 0, marks if marks.any() else None, (filled,))


def _copy(array: pa.BinaryArray) -> pa.BinaryArray:
    """A copy in our own memory: the caller may write to the array's memory later, or give a slice of much more.

    0.3 ns a byte, where the bytes are sorted, packed and uploaded next.
    """
    # Of one array alone Arrow makes no copy.
    copied: pa.BinaryArray = pa.concat_arrays([array, array.slice(0, 0)], memory_pool=pa.system_memory_pool())
    return copied


def first_disorder(keys: pa.BinaryArray) -> int | None:
    """The first position whose key is not greater than the one before it; `None` if the keys ascend strictly."""
    if len(keys) < 2:
        return None
    order = key_order(keys)
    if np.array_equal(order, np.arange(len(keys))) and not repeats(keys).any():
        return None
    values = keys.to_pylist()
    return next(at for at in range(1, len(values)) if values[at] <= values[at - 1])


def check_ascending(rows: Rows, table: str) -> None:
    """Raise `InvalidBatch` unless the keys ascend strictly, naming the first position where they do not."""
    at = first_disorder(rows.keys)
    if at is None:
        return
    key, before = rows.key(at), rows.key(at - 1)
    what = "repeats the key before it" if key == before else f"comes after {shown_key(before)}"
    raise InvalidBatch(
        f"table {table!r}: position {at}: key {shown_key(key)} {what}; the keys of a batch have to ascend; "
        "nothing was stored",
        at,
        key,
    )


def raw_rows(batch: RawBatch, table: str, *, ordered: bool = True) -> Rows:
    """The batch as rows, with `ordered` checked to be a sorted run; `InvalidBatch` or `SchemaMismatch` otherwise."""
    if isinstance(batch, pa.RecordBatch | pa.Table):
        rows = _from_arrow(batch, table)
    elif (pairs := iterator_over(batch)) is not None:
        rows = _from_pairs(pairs, table)
    else:
        raise InvalidBatch(
            f"table {table!r}: a value of type {type(batch).__name__} is not a batch; expected (key, value) pairs or "
            "Arrow data"
        )
    check_key_bytes(rows.keys, table)
    if not ordered:
        return rows  # sorting copies them
    if isinstance(batch, pa.RecordBatch | pa.Table):
        rows = Rows(_copy(rows.keys), rows.epochs, rows.deletes, tuple(map(_copy, rows.columns)))
    # Of the copy: what is checked is what is stored.
    check_ascending(rows, table)
    return rows
