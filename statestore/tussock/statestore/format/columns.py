"""How one Arrow column lies in a block: as the raw buffers that Arrow itself would hold.

Fixed-width types, booleans, strings and binary are written as `validity, [offsets,] data`, rebased to start at
row 0, so that decoding is a slice of the block and no copy. A nested column (list, struct, map) is written as one
Arrow IPC stream: about 0.3 ms a block to read back, which only tables with such columns pay.
"""

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from tussock.statestore.errors import SchemaMismatch
from tussock.statestore.rows.key_arrays import binary_buffers

__all__ = ["buffer_count", "check_storable", "column_buffers", "column_from_buffers", "storage_type"]

Buffer: TypeAlias = bytes | memoryview | pa.Buffer


def _is_bytes(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_binary(kind)


def _is_plain(kind: pa.DataType) -> bool:
    return (
        pa.types.is_primitive(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_decimal(kind)
        or pa.types.is_fixed_size_binary(kind)
    )


def storage_type(kind: pa.DataType, column: str) -> pa.DataType:
    """The type in which a column of `kind` is stored; `SchemaMismatch` naming `column` if it cannot be.

    Large and view variants become their 32-bit siblings and dictionaries their values: a block is far below 2 GiB,
    and readers then meet one layout per type.
    """
    if pa.types.is_dictionary(kind):
        return storage_type(kind.value_type, column)
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return pa.binary()
    if _is_bytes(kind) or _is_plain(kind) or pa.types.is_null(kind):
        return kind
    if pa.types.is_list(kind) or pa.types.is_struct(kind) or pa.types.is_map(kind):
        return kind
    raise _not_storable(kind, column)


def check_storable(kind: pa.DataType, column: str) -> None:
    """`SchemaMismatch` naming `column` unless a new column may have the type, down into nested ones.

    Stricter than `storage_type`, which old tables are read with: Arrow cannot take rows of views in a list, join
    dictionaries in a struct or find one of two fields of a name, so such a column could be made and never written.
    """
    storage_type(kind, column)
    if pa.types.is_dictionary(kind):
        value = kind.value_type
        if not (_is_bytes(storage_type(value, column)) or _is_plain(value) or pa.types.is_null(value)):
            raise _not_storable(kind, column)
        try:
            pa.nulls(0, value).dictionary_encode()
        except pa.ArrowNotImplementedError as error:
            raise _not_storable(kind, column) from error
        return
    if pa.types.is_struct(kind) and len({field.name for field in kind}) < kind.num_fields:
        raise SchemaMismatch(
            f"column {column!r} has type {kind}, of which a field stands twice; give each its own name"
        )
    for at in range(kind.num_fields):
        inner = kind.field(at).type
        if inner.num_fields or pa.types.is_struct(inner):
            check_storable(inner, column)
        elif not (_is_bytes(inner) or _is_plain(inner) or pa.types.is_null(inner) or _is_large(inner)):
            raise _not_storable(kind, column)


def _is_large(kind: pa.DataType) -> bool:
    return pa.types.is_large_string(kind) or pa.types.is_large_binary(kind)


def _not_storable(kind: pa.DataType, column: str) -> SchemaMismatch:
    return SchemaMismatch(
        f"column {column!r} has type {kind}, which a table cannot hold; "
        "use a primitive, string, binary, decimal, temporal, list, struct or map type"
    )


def buffer_count(kind: pa.DataType) -> int:
    """How many buffers a column of this stored type has in a block."""
    if _is_bytes(kind):
        return 3
    return 2 if _is_plain(kind) else 1


def _bitmap(buffer: pa.Buffer, offset: int, count: int) -> bytes:
    """Bits offset .. offset+count-1 of an Arrow bitmap, moved to start at bit 0."""
    if offset % 8 == 0:
        return bytes(memoryview(buffer)[offset // 8 : (offset + count + 7) // 8])
    bits = np.unpackbits(np.frombuffer(buffer, np.uint8), bitorder="little")[offset : offset + count]
    return np.packbits(bits, bitorder="little").tobytes()


def column_buffers(array: pa.Array) -> list[Buffer]:
    """The buffers of `array` (a slice, maybe) rebased to row 0; an absent validity is empty."""
    kind, count, offset = array.type, len(array), array.offset
    if not (_is_bytes(kind) or _is_plain(kind)):
        sink = pa.BufferOutputStream()
        batch = pa.record_batch([array], names=["column"])
        with pa.ipc.new_stream(sink, batch.schema) as stream:
            stream.write_batch(batch)
        return [sink.getvalue()]
    buffers = array.buffers()
    validity = b"" if array.null_count == 0 or buffers[0] is None else _bitmap(buffers[0], offset, count)
    if _is_bytes(kind):
        offsets, data = binary_buffers(array)
        start = int(offsets[0])
        rebased = offsets if start == 0 else offsets - np.int32(start)
        return [validity, rebased.tobytes(), data[start : int(offsets[-1])]]
    if buffers[1] is None:
        return [validity, b""]
    if pa.types.is_boolean(kind):
        return [validity, _bitmap(buffers[1], offset, count)]
    width = kind.bit_width // 8
    return [validity, memoryview(buffers[1])[offset * width : (offset + count) * width]]


def _validate_nested(column: pa.Array) -> None:
    try:
        column.validate(full=True)
    except pa.ArrowInvalid as error:
        if "UTF8" not in str(error):
            raise


def column_from_buffers(kind: pa.DataType, rows: int, buffers: Sequence[pa.Buffer]) -> pa.Array:
    """The array that `column_buffers` was given; it refers to `buffers` without a copy.

    Raises `ValueError` where a buffer is too short for that many rows, or an offset in it leads elsewhere: Arrow would
    read past its end.
    """
    with_offsets = _is_bytes(kind)
    if not (with_offsets or _is_plain(kind)):
        with pa.ipc.open_stream(buffers[0]) as stream:
            batch = next(iter(stream), None)
        if batch is None or batch.num_columns != 1:
            raise ValueError(f"no column of {kind}")
        column = batch.column(0)
        _validate_nested(column)
        return column
    validity = buffers[0] if buffers[0].size else None
    needed = 4 * (rows + 1) if with_offsets else (kind.bit_width * rows + 7) // 8
    if buffers[1].size < needed or (validity is not None and validity.size * 8 < rows):
        raise ValueError(f"buffers of {[buffer.size for buffer in buffers]} bytes are too short for {rows} {kind}")
    parts = [validity, *buffers[1:]]
    if with_offsets:
        # As bytes: earlier releases stored text that is not UTF-8, and it can be read.
        pa.Array.from_buffers(pa.binary(), rows, parts).validate(full=True)
    return pa.Array.from_buffers(kind, rows, parts)
