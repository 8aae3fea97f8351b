"""NumPy views on the buffers of Arrow arrays, and arrays built from such buffers, without going through Python objects.

The key encoding and the hashes work on whole columns with NumPy; this is where they get at the bytes. Every function
minds an array's offset, so slices work everywhere.
"""

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

__all__ = ["AnyArray", "as_binary", "binary_array", "fixed_array", "fixed_values", "null_mask"]

AnyArray: TypeAlias = "pa.Array[Any]"
"""An Arrow array of any type."""


def fixed_values(array: AnyArray, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """The n values of a fixed-width array (not a boolean one) read as `dtype`, whose width is the column's.

    A view, so it must not be written to. What stands at a null row means nothing.
    """
    dtype = np.dtype(dtype)
    data = array.buffers()[1]
    if len(array) == 0 or data is None or dtype.itemsize == 0:
        return np.zeros(len(array), dtype)
    return np.frombuffer(memoryview(data), dtype, len(array), array.offset * dtype.itemsize)


def as_binary(array: AnyArray) -> pa.BinaryArray:
    """A string or binary array of either offset width as `binary`: strings as UTF-8, and no copy for 32-bit offsets."""
    binary: pa.BinaryArray = array.cast(pa.binary())
    return binary


def null_mask(array: AnyArray) -> npt.NDArray[np.bool_]:
    """Which of the n rows are null."""
    if array.null_count == 0:
        return np.zeros(len(array), np.bool_)
    mask: npt.NDArray[np.bool_] = array.is_null().to_numpy(zero_copy_only=False)
    return mask


def fixed_array(kind: pa.DataType, values: npt.NDArray[Any], nulls: npt.NDArray[np.bool_] | None) -> AnyArray:
    """An array of the fixed-width type `kind` (not a boolean one) over `values`, null where `nulls` is true."""
    return pa.Array.from_buffers(kind, len(values), [_validity(nulls), _buffer(values)])


def binary_array(offsets: npt.NDArray[np.int32], data: npt.NDArray[np.uint8]) -> pa.BinaryArray:
    """A `binary` array of n rows from n+1 offsets into `data`; no copy of a contiguous `data`."""
    array: Any = pa.Array.from_buffers(pa.binary(), len(offsets) - 1, [None, _buffer(offsets), _buffer(data)])
    binary: pa.BinaryArray = array
    return binary


def _buffer(values: npt.NDArray[Any]) -> pa.Buffer:
    return pa.py_buffer(np.ascontiguousarray(values).view(np.uint8).reshape(-1).data)


def _validity(nulls: npt.NDArray[np.bool_] | None) -> pa.Buffer | None:
    if nulls is None or not nulls.any():
        return None
    return _buffer(np.packbits(~nulls, bitorder="little"))
