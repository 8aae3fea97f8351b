"""Reading the pixels of a PNG screenshot, with what NumPy and zlib give."""

import struct
import zlib

import numpy as np
import numpy.typing as npt

__all__ = ["png_pixels"]


def png_pixels(png: bytes) -> npt.NDArray[np.uint8]:
    """The picture as an array of shape (height, width, 3): 8-bit RGB or RGBA, not interlaced, as browsers write it."""
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    at, packed, width, height, channels = 8, b"", 0, 0, 0
    while at < len(png):
        (length,) = struct.unpack_from(">I", png, at)
        kind, body = png[at + 4 : at + 8], png[at + 8 : at + 8 + length]
        if kind == b"IHDR":
            width, height, depth, color, _, _, interlaced = struct.unpack(">IIBBBBB", body)
            assert (depth, color, interlaced) in ((8, 2, 0), (8, 6, 0))
            channels = 3 if color == 2 else 4
        elif kind == b"IDAT":
            packed += body
        at += length + 12
    lines = np.frombuffer(zlib.decompress(packed), np.uint8).reshape(height, 1 + width * channels)
    done = np.zeros((height + 1, width + 1, channels), np.uint8)
    for row, line in enumerate(lines, start=1):
        done[row, 1:] = _unfilter(int(line[0]), line[1:].reshape(width, channels), done[row - 1])
    return done[1:, 1:, :3]


def _unfilter(kind: int, line: npt.NDArray[np.uint8], above: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """A line with its filter (PNG specification, section 9) undone; `above` has one pixel more, to its left."""
    if kind == 0:
        return line
    if kind == 1:
        return np.cumsum(line, axis=0, dtype=np.uint64).astype(np.uint8)
    if kind == 2:
        return line + above[1:]
    out = np.zeros((len(line) + 1, line.shape[1]), np.int32)
    raw, up = line.astype(np.int32), above.astype(np.int32)
    for at in range(len(line)):
        left, over, corner = out[at], up[at + 1], up[at]
        if kind == 3:
            guess = (left + over) // 2
        else:
            first = np.abs(over - corner)
            second = np.abs(left - corner)
            third = np.abs(left + over - 2 * corner)
            guess = np.where((first <= second) & (first <= third), left, np.where(second <= third, over, corner))
        out[at + 1] = (raw[at] + guess) & 255
    return out[1:].astype(np.uint8)
