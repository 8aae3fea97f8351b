"""Sums without rounding: of floats, integers and decimals, so that what is taken away again leaves nothing behind.

A float of 64 bits is an integer of 53 bits times a power of two, and a sum of floats is an integer times the smallest
of those powers. Such a sum is kept as the words of that integer, 32 bits each, and the number of its lowest word: word
36 is worth 1, so that the smallest float is in word 2, and the largest one in word 67. Integers and unscaled decimals
have word 0 for their lowest bits. The idea is that of long accumulators (Kulisch, "Computer Arithmetic and Validity").

The bytes are little-endian: the number of the lowest word that is not zero, in four bytes, and from it on the words, as
many as the number in two's complement needs. Zero is no bytes.
"""

import math
import struct
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt

from tussock.statestore.rows.buffers import binary_array, fixed_values
from tussock.statestore.rows.key_arrays import binary_buffers

__all__ = ["Addends", "ExactSums", "addends_of", "float_of", "integer_of", "packed_integer", "unpacked_integer"]

BITS, BYTES = 32, 4
FLOAT_WORD = 36
"""The word that is worth 1 in sums of floats."""
FLOAT_BITS = FLOAT_WORD * BITS
_MASK = (1 << BITS) - 1
_CHUNK = 1 << 16
"""Sums that are worked on at once: with the widest floats they take 36 MB."""
_LOW = struct.Struct("<I")

Words = npt.NDArray[np.int64]
Places = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


# --- One by one --------------------------------------------------------------------------------------------------


def integer_of(value: float) -> int:
    """A finite float in units of its sums."""
    fraction, exponent = math.frexp(value)
    return int(math.ldexp(fraction, 53)) << (exponent - 53 + FLOAT_BITS)


def float_of(total: int) -> float:
    """The float that is nearest to a sum of floats; infinity beyond the largest."""
    try:
        return total / (1 << FLOAT_BITS)
    except OverflowError:
        return math.inf if total > 0 else -math.inf


def packed_integer(total: int) -> bytes:
    """The bytes of a sum."""
    if not total:
        return b""
    low = ((total & -total).bit_length() - 1) // BITS
    total >>= low * BITS
    words = (total if total > 0 else ~total).bit_length() // BITS + 1
    return _LOW.pack(low) + total.to_bytes(words * BYTES, "little", signed=True)


def unpacked_integer(data: bytes) -> int:
    """The sum that these bytes are of."""
    if not data:
        return 0
    return int.from_bytes(data[BYTES:], "little", signed=True) << (_LOW.unpack_from(data)[0] * BITS)


# --- By columns --------------------------------------------------------------------------------------------------


class Addends(NamedTuple):
    """Numbers as words."""

    lows: Places
    """Of each number its lowest word."""
    words: Words
    """From there on, one row a number; each word has a sign, and may have a bit more than 32."""


def addends_of(column: pa.Array) -> Addends:
    """The words of integers, decimals and floats; of nulls, infinities and NaN those of zero."""
    if pt.is_floating(column.type):
        return _of_floats(column)
    if pt.is_decimal(column.type):
        halves = fixed_values(column, "V16").view("<i8").reshape(-1, 2)
        words = np.stack([_low(halves[:, 0]), _high(halves[:, 0]), _low(halves[:, 1]), halves[:, 1] >> BITS], axis=1)
    elif column.type == pa.uint64():
        values = fixed_values(column, np.int64)
        words = np.stack([_low(values), _high(values)], axis=1)
    else:
        values = fixed_values(column.cast(pa.int64()), np.int64)
        words = np.stack([_low(values), values >> BITS], axis=1)
    words[column.is_null().to_numpy(zero_copy_only=False)] = 0
    return Addends(np.zeros(len(column), np.int64), words)


def _of_floats(column: pa.Array) -> Addends:
    values = column.cast(pa.float64()).fill_null(0.0).to_numpy(zero_copy_only=False)
    values = np.where(np.isfinite(values), values, 0.0)
    fractions, exponents = np.frexp(values)
    integers = np.ldexp(fractions, 53).astype(np.int64)
    signs, sizes = np.sign(integers), np.abs(integers).astype(np.uint64)
    places = exponents.astype(np.int64) - 53 + FLOAT_BITS
    shifts = (places % BITS).astype(np.uint64)
    # 32 and 21 bits, each moved by at most 31.
    lower, upper = (sizes & np.uint64(_MASK)) << shifts, (sizes >> np.uint64(BITS)) << shifts
    first, second = (lower & np.uint64(_MASK)).astype(np.int64), (lower >> np.uint64(BITS)).astype(np.int64)
    second += (upper & np.uint64(_MASK)).astype(np.int64)
    third = (upper >> np.uint64(BITS)).astype(np.int64)
    words = np.stack([first, second, third], axis=1) * signs[:, np.newaxis]
    return Addends(places // BITS, words)


def _low(values: Words) -> Words:
    return values & _MASK


def _high(values: Words) -> Words:
    return (values >> BITS) & _MASK


class ExactSums:
    """Many sums at once: each word between 0 and 2^32, but the last, which has the sign."""

    def __init__(self, low: int, words: Words) -> None:
        """`low` is the number of the first word of all."""
        self._low = low
        self._words = words
        _carry(words)

    @staticmethod
    def added(sums: pa.BinaryArray, numbers: Places, signs: Words, addends: Addends) -> "list[ExactSums]":
        """The sums of these bytes, and for each addend, with a sign, what it adds to the sum of a number; in parts."""
        parts = []
        for start in range(0, len(sums), _CHUNK):
            part = sums.slice(start, _CHUNK)
            if len(sums) <= _CHUNK:
                parts.append(_added(part, numbers, signs, addends))
                continue
            at = np.flatnonzero((numbers >= start) & (numbers < start + _CHUNK))
            picked = Addends(addends.lows[at], addends.words[at])
            parts.append(_added(part, numbers[at] - start, signs[at], picked))
        return parts

    def packed(self) -> pa.BinaryArray:
        """The bytes of each."""
        words, count = self._words, self._words.shape[1]
        there = words != 0
        is_zero = ~there.any(axis=1)
        firsts = np.argmax(there, axis=1)
        stops = np.where(is_zero, firsts, self._stops(firsts))
        lengths = np.where(is_zero, 0, 1 + stops - firsts)
        starts = np.concatenate([[0], np.cumsum(lengths)])
        data = np.empty(int(starts[-1]), "<u4")
        at = starts[:-1][~is_zero]
        data[at] = firsts[~is_zero] + self._low
        columns = np.arange(count)
        picked = (columns >= firsts[:, np.newaxis]) & (columns < stops[:, np.newaxis])
        targets = (starts[:-1] + 1 - firsts)[:, np.newaxis] + columns
        data[targets[picked]] = words[picked] & _MASK
        return binary_array((starts * BYTES).astype(np.int32), data.view(np.uint8))

    def _stops(self, firsts: Places) -> Places:
        """Behind the last word that a number needs in two's complement."""
        words = self._words & _MASK
        is_negative = self._words[:, -1] < 0
        other = words != np.where(is_negative, _MASK, 0)[:, np.newaxis]
        last = np.where(other.any(axis=1), words.shape[1] - 1 - np.argmax(other[:, ::-1], axis=1), firsts)
        top = words[np.arange(len(words)), last] >> (BITS - 1)
        return np.maximum(last + 1 + (top != is_negative), firsts + 1)

    def floats(self) -> npt.NDArray[np.float64]:
        """Of sums of floats the nearest float of each, as `float_of` has it."""
        return self._nearest(FLOAT_WORD)

    def numbers(self) -> npt.NDArray[np.float64]:
        """Of sums of integers the nearest float of each."""
        return self._nearest(0)

    def _nearest(self, unit: int) -> npt.NDArray[np.float64]:
        is_negative = self._words[:, -1] < 0
        sizes = np.where(is_negative[:, np.newaxis], -self._words, self._words)
        _carry(sizes)
        # Two words below the first, so that the three from the highest on are always there.
        sizes = np.concatenate([np.zeros((len(sizes), 2), np.int64), sizes], axis=1)
        there = sizes != 0
        count = sizes.shape[1]
        tops = np.maximum(count - 1 - np.argmax(there[:, ::-1], axis=1), 2)
        rows = np.arange(len(sizes))
        high, middle, low = (sizes[rows, tops - at].astype(np.uint64) for at in range(3))
        is_below = there & (np.arange(count) < (tops - 2)[:, np.newaxis])
        shifts = (BITS - np.frexp(high.astype(np.float64))[1]).astype(np.uint64)
        word = np.uint64(BITS)
        found = ((high << word | middle) << shifts) | (low >> (word - shifts))
        # What is cut off counts by one bit below those that a float has, as rounding asks only whether it is zero.
        rest = ((low << shifts) & np.uint64(_MASK)) != 0
        found |= (rest | is_below.any(axis=1)).astype(np.uint64)
        exponents = (tops - 3 + self._low - unit) * BITS - shifts.astype(np.int64)
        with np.errstate(over="ignore"):
            values = np.ldexp(found.astype(np.float64), exponents)
        return np.where(is_negative, -values, values)

    def halves(self) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.int64], Flags]:
        """Of sums of integers the lower and the upper 64 bits, and which sums need no more."""
        words = np.zeros((len(self._words), 5), np.int64)
        width = min(5, self._low + self._words.shape[1])
        words[:, self._low : width] = self._words[:, : width - self._low]
        is_negative = self._words[:, -1] < 0
        filler = np.where(is_negative, _MASK, 0)
        words[:, width:] = filler[:, np.newaxis]
        fits = np.all((self._words[:, max(5 - self._low, 0) :] & _MASK) == filler[:, np.newaxis], axis=1)
        words &= _MASK
        fits &= (words[:, 4] == filler) & ((words[:, 3] >> (BITS - 1)) == is_negative)
        lower = words[:, 0].astype(np.uint64) | (words[:, 1].astype(np.uint64) << np.uint64(BITS))
        upper = words[:, 2].astype(np.uint64) | (words[:, 3].astype(np.uint64) << np.uint64(BITS))
        return lower, upper.view(np.int64), fits


def _added(sums: pa.BinaryArray, numbers: Places, signs: Words, addends: Addends) -> ExactSums:
    data, starts, counts, lows = _parsed(sums)
    width = addends.words.shape[1]
    ends = [int((lows + counts).max())] if len(lows) else []
    firsts = [int(lows.min())] if len(lows) else []
    if len(numbers):
        firsts.append(int(addends.lows.min()))
        ends.append(int(addends.lows.max()) + width)
    low = min(firsts, default=0)
    # Two more, for what is carried from below, and for the sign.
    words = np.zeros((len(sums), max(ends, default=0) - low + 2), np.int64)
    for at in range(int(counts.max()) if len(counts) else 0):
        has = np.flatnonzero(counts > at)
        found = data[starts[has] + 1 + at]
        is_last = counts[has] == at + 1
        rows = _rows_with_bytes(sums)[has]
        words[rows, lows[has] + at - low] = np.where(is_last, found.astype(np.int32), found.astype(np.int64))
    for at in range(width):
        np.add.at(words, (numbers, addends.lows + at - low), addends.words[:, at] * signs)
    return ExactSums(low, words)


def _parsed(sums: pa.BinaryArray) -> tuple[npt.NDArray[np.uint32], Places, Places, Places]:
    """Of those that are not zero: the data, where each begins, how many words it has, and its lowest word."""
    offsets, raw = binary_buffers(sums)
    data = np.frombuffer(raw, "<u4", (int(offsets[-1]) - int(offsets[0])) // BYTES, int(offsets[0]))
    places = (offsets.astype(np.int64) - int(offsets[0])) // BYTES
    lengths = np.diff(places)
    has = lengths > 0
    starts = places[:-1][has]
    return data, starts, lengths[has] - 1, data[starts].astype(np.int64)


def _rows_with_bytes(sums: pa.BinaryArray) -> Places:
    return np.flatnonzero(np.diff(binary_buffers(sums)[0]) > 0)


def _carry(words: Words) -> None:
    """Let each word but the last have 32 bits without a sign."""
    for at in range(words.shape[1] - 1):
        words[:, at + 1] += words[:, at] >> BITS
        words[:, at] &= _MASK
