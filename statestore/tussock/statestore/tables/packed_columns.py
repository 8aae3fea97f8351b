"""How large columns become that stand for more than they take: dictionaries, and views of shared bytes.

A message of a few megabytes can say the same long text a million times. Layers that take rows of others ask before they
bring them into a schema that has such columns written out.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from tussock.statestore.errors import InvalidBatch

__all__ = ["check_unpacked", "unpacked_bytes"]

UNPACKED_BYTES_MAX = 256 << 20
UNPACKED_TIMES_MAX = 8
"""What is large already may become that many times larger."""


def check_unpacked(rows: pa.Table | pa.RecordBatch, schema: pa.Schema, what: str) -> None:
    """`InvalidBatch` if the columns that have another type in `schema` become far larger there."""
    named = {field.name: field.type for field in schema}
    columns = zip(rows.schema.names, rows.columns, strict=True)
    nbytes = sum(unpacked_bytes(column) for name, column in columns if column.type != named.get(name))
    if nbytes > max(UNPACKED_BYTES_MAX, UNPACKED_TIMES_MAX * rows.nbytes):
        raise InvalidBatch(
            f"{what}: its dictionaries and views stand for {nbytes:,} bytes, and take {rows.nbytes:,}; at most "
            f"{UNPACKED_BYTES_MAX:,} are written out at once, so give fewer rows"
        )


def unpacked_bytes(column: Any) -> int:
    """Bytes that the dictionaries and views of an array take once they are written out, about; 0 if it has none."""
    if isinstance(column, pa.ChunkedArray):
        return sum(unpacked_bytes(chunk) for chunk in column.chunks)
    kind = column.type
    if pt.is_dictionary(kind):
        used = pc.drop_null(column.indices).to_numpy(zero_copy_only=False)
        counts = np.bincount(used, minlength=len(column.dictionary)) if len(used) else np.zeros(0, np.int64)
        return int(counts @ _value_bytes(column.dictionary)) if len(used) else 0
    if pt.is_string_view(kind) or pt.is_binary_view(kind):
        return int(_value_bytes(column).sum())
    if pt.is_list(kind) or pt.is_large_list(kind) or pt.is_fixed_size_list(kind):
        return unpacked_bytes(column.flatten())
    if pt.is_map(kind):
        return unpacked_bytes(column.keys) + unpacked_bytes(column.items)
    if pt.is_struct(kind):
        return sum(unpacked_bytes(field) for field in column.flatten())
    return 0


def _value_bytes(values: Any) -> npt.NDArray[np.int64]:
    """Bytes of each value; of nested ones no less than they take."""
    kind = values.type
    if pt.is_string_view(kind) or pt.is_binary_view(kind):
        views = np.frombuffer(values.buffers()[1] or b"", np.int32).reshape(-1, 4)
        lengths = views[values.offset : values.offset + len(values), 0].astype(np.int64)
        # What stands at a null may be anything.
        lengths[values.is_null().to_numpy(zero_copy_only=False)] = 0
        return lengths
    if pt.is_string(kind) or pt.is_large_string(kind) or pt.is_binary(kind) or pt.is_large_binary(kind):
        found = pc.fill_null(pc.binary_length(values), 0).to_numpy(zero_copy_only=False)
        return np.asarray(found, np.int64)
    try:
        width = (kind.bit_width + 7) // 8
    except ValueError:
        width = max(unpacked_bytes(values), values.nbytes)
    return np.full(len(values), width, np.int64)
