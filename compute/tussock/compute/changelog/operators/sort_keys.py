"""Sort keys: values of columns as bytes whose order is the order of the values, ascending or descending, nulls last.

An index table that begins with such bytes is in this order, so its first rows are read by a prefix and a limit. Each
column is a byte, 00 for a value and 01 for a null, and the value as keys of tables have it (`keys/codecs.py`), all its
bits flipped where it descends. No value's bytes begin another's, so columns stand side by side.

Of floats -0.0 is 0.0, and there is one NaN, greater than infinity: last of the values ascending, first descending.
Texts are in the order of their UTF-8 bytes, which is that of their code points.
"""

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tussock.statestore.errors import InvalidOption, SchemaMismatch
from tussock.statestore.keys.codecs import TERMINATOR, FixedCodec, TextCodec, codec_for
from tussock.statestore.keys.pieces import Piece, join_pieces, text_piece
from tussock.statestore.rows.buffers import binary_array, null_mask
from tussock.statestore.rows.key_arrays import binary_buffers
from tussock.statestore.rows.python_values import BAD_VALUE, array_of

__all__ = ["SortKeys"]

_MARKER = np.dtype("u1")
_VALUE, _NULL = b"\0", b"\1"
_FLIP = bytes(range(255, -1, -1))
"""For `bytes.translate`."""


class SortKeys:
    """Of some columns in turn; immutable."""

    def __init__(self, what: str, columns: Sequence[tuple[str, pa.DataType, bool]]) -> None:
        """Name, type and whether it descends, of each; `what` begins the `InvalidOption` for a type without order."""
        self._columns: list[_Column] = []
        for name, kind, is_descending in columns:
            try:
                self._columns.append(_Column(codec_for(name, kind, last=False), is_descending))
            except SchemaMismatch as error:
                raise InvalidOption(
                    f"{what}: column {name!r} of type {kind} has no order; expected a boolean, a number, a decimal128, "
                    "a text, a binary, a date, a time, a timestamp or a duration"
                ) from error

    def of_columns(self, columns: Sequence[pa.Array]) -> pa.BinaryArray:
        """The key of each of n rows, from their columns in turn."""
        pieces: list[Piece] = []
        for one, column in zip(self._columns, columns, strict=True):
            pieces += one.pieces(column)
        return join_pieces(pieces, len(columns[0]))

    def of_row(self, values: Sequence[Any]) -> bytes:
        """The key of one row, from its Python values; equal to what `of_columns` gives for it."""
        return b"".join([one.pack(value) for one, value in zip(self._columns, values, strict=True)])


class _Column:
    def __init__(self, codec: FixedCodec | TextCodec, is_descending: bool) -> None:
        self._codec = codec
        self._is_descending = is_descending
        # As long as a value, so that keys of fixed widths stay so.
        self._null = _NULL + (bytes(codec.layout.itemsize) if isinstance(codec, FixedCodec) else b"")

    def pieces(self, column: pa.Array) -> list[Piece]:
        nulls = null_mask(column)
        marker: Piece = (_MARKER, nulls.view(np.uint8))
        if isinstance(self._codec, FixedCodec):
            layout = self._codec.layout
            raw = np.ascontiguousarray(self._codec.words(column).astype(layout)).view(np.uint8)
            flipped = (~raw if self._is_descending else raw).reshape(len(column), layout.itemsize)
            if column.null_count:
                flipped = np.where(nulls[:, np.newaxis], np.uint8(0), flipped)
            as_bytes = np.dtype(f"V{layout.itemsize}")
            return [marker, (as_bytes, np.ascontiguousarray(flipped).view(as_bytes).reshape(-1))]
        texts = self._codec.escape(column)
        end: Piece = TERMINATOR
        if self._is_descending:
            texts, end = _flipped(texts), TERMINATOR.translate(_FLIP)
        if column.null_count:
            # A null ends with its marker.
            end = pa.array([TERMINATOR, b""], pa.binary()).take(pa.array(nulls.view(np.uint8)))
            if self._is_descending:
                end = _flipped(end)
        return [marker, text_piece(texts), end]

    def pack(self, value: Any) -> bytes:
        if value is None:
            return self._null
        try:
            packed = self._codec.pack(value)
        except (*BAD_VALUE, struct.error):
            # Of another class than Python has for the type, such as a scalar of Arrow.
            array = array_of([value], self._codec.kind)
            return bytes(join_pieces(self.pieces(array), 1)[0].as_py())
        return _VALUE + (packed.translate(_FLIP) if self._is_descending else packed)


def _flipped(texts: pa.BinaryArray) -> pa.BinaryArray:
    offsets, raw = binary_buffers(texts)
    data: npt.NDArray[np.uint8] = ~np.frombuffer(raw, np.uint8)[offsets[0] : offsets[-1]]
    return binary_array((offsets - offsets[0]).astype(np.int32), data)
