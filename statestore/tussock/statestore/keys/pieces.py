"""Putting the columns of many keys side by side: pieces of a key for all rows at once, joined to whole keys.

`KeyEncoder.encode` uses it. Pieces of fixed width fill a matrix column by column; texts of varying width are joined by
Arrow, with one matrix for each run of fixed pieces between them.
"""

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tussock.statestore.keys.codecs import check_size
from tussock.statestore.rows.buffers import binary_array
from tussock.statestore.rows.key_arrays import binary_buffers

__all__ = ["FixedPiece", "Piece", "join_pieces", "text_piece"]

FixedPiece: TypeAlias = bytes | tuple[np.dtype[Any], npt.NDArray[Any]]
"""The same bytes in every key, or n words and the layout in which they are stored."""

Piece: TypeAlias = FixedPiece | pa.BinaryArray


def text_piece(text: pa.BinaryArray) -> Piece:
    """The piece for n texts: words where all have one width (joined several times faster), else the texts."""
    offsets, raw = binary_buffers(text)
    if len(text) == 0:
        return text
    width = int(offsets[1]) - int(offsets[0])
    if width == 0 or not np.all(np.diff(offsets) == width):
        return text
    layout = np.dtype(f"V{width}")
    return layout, np.frombuffer(raw, layout, len(text), int(offsets[0]))


def join_pieces(pieces: Sequence[Piece], rows: int) -> pa.BinaryArray:
    """`rows` keys, each the bytes of all pieces in order; `InvalidBatch` if they take 2 GiB or more together."""
    texts: list[Any] = []
    run: list[FixedPiece] = []
    for piece in pieces:
        if isinstance(piece, bytes | tuple):
            run.append(piece)
            continue
        if run:
            texts.append(_join_fixed(run, rows))
            run = []
        texts.append(piece)
    if run:
        texts.append(_join_fixed(run, rows))
    check_size(sum(text.nbytes for text in texts))
    joined: pa.BinaryArray = texts[0] if len(texts) == 1 else pc.binary_join_element_wise(*texts, b"")
    return joined


def _join_fixed(pieces: list[FixedPiece], rows: int) -> pa.BinaryArray:
    layouts = [np.dtype(f"V{len(piece)}") if isinstance(piece, bytes) else piece[0] for piece in pieces]
    stride = sum(layout.itemsize for layout in layouts)
    check_size(rows * stride)
    data = np.empty(rows * stride, np.uint8)
    at = 0
    for piece, layout in zip(pieces, layouts, strict=True):
        if rows:
            target: npt.NDArray[Any] = np.ndarray((rows,), layout, data, at, (stride,))
            target[:] = np.frombuffer(piece, layout)[0] if isinstance(piece, bytes) else piece[1]
        at += layout.itemsize
    return binary_array(np.arange(0, rows * stride + 1, stride, dtype=np.int64).astype(np.int32), data)
