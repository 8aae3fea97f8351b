"""Keys of one width as words of a machine: NumPy compares and sorts numbers several times as fast as bytes."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

__all__ = ["FEW_KEYS", "mark_repeats", "varying_positions", "words_at"]

FEW_KEYS = 256
"""Below this many keys the work on bytes takes less time than the steps that would avoid it."""


def varying_positions(fixed: npt.NDArray[np.bytes_]) -> list[int]:
    """The byte positions at which not all keys have the same byte, ascending."""
    width = fixed.dtype.itemsize
    lane = min(width, 8)
    kind = {8: np.uint64, 4: np.uint32}.get(lane, np.uint8)
    step = np.dtype(kind).itemsize
    differs = bytearray(width)
    # The last lane may overlap the one before it.
    for start in (*range(0, width - step, step), width - step):
        words = np.ndarray((len(fixed),), kind, fixed, start, (width,))
        bits = np.bitwise_or.reduce(words ^ words[0])
        for offset, octet in enumerate(bits.tobytes()):
            differs[start + offset] |= octet
    return [position for position, octet in enumerate(differs) if octet]


def words_at(fixed: npt.NDArray[np.bytes_], positions: Sequence[int]) -> npt.NDArray[np.uint64]:
    """Per key the bytes at `positions`, at most eight, as one number, the first the most significant."""
    width = fixed.dtype.itemsize
    if list(positions) == list(range(8)):
        first: npt.NDArray[np.uint64] = np.ndarray((len(fixed),), ">u8", fixed, 0, (width,)).astype(np.uint64)
        return first
    words = np.zeros(len(fixed), np.uint64)
    for position in positions:
        words <<= np.uint64(8)
        words |= np.ndarray((len(fixed),), np.uint8, fixed, position, (width,))
    return words


def mark_repeats(fixed: npt.NDArray[np.bytes_], marks: npt.NDArray[np.bool_]) -> None:
    """Mark which keys, from the second on, are equal to the one before."""
    width = fixed.dtype.itemsize
    if width < 8 or len(fixed) < FEW_KEYS:
        np.equal(fixed[1:], fixed[:-1], out=marks)
        return
    # NumPy compares numbers about ten times as fast as bytes. The last word first: most keys differ there, and then no
    # other one is looked at. The first word may overlap the one after it.
    words = np.ndarray((len(fixed),), np.uint64, fixed, width - 8, (width,))
    np.equal(words[1:], words[:-1], out=marks)
    for start in (*range(width - 16, 0, -8), 0) if width > 8 else ():
        if not marks.any():
            return
        words = np.ndarray((len(fixed),), np.uint64, fixed, start, (width,))
        marks &= words[1:] == words[:-1]
