"""How one key column's values become bytes whose order is the values' order, for whole columns and for single values.

A type of fixed width has a `FixedCodec`: each value becomes a big-endian word that, read as an unsigned number, is
ordered as the values are. Strings and binaries have a `TextCodec`. `key_encoding.KeyEncoder` puts the columns of a
key together. The idea is old (the order-preserving keys of FoundationDB's tuple layer, of CockroachDB and others); the
bytes are on disk and frozen: `docs/formats/keys.md`.
"""

import datetime as dt
import struct
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from tussock.statestore.errors import InvalidBatch, SchemaMismatch
from tussock.statestore.rows.buffers import AnyArray, as_binary, fixed_array, fixed_values, null_mask
from tussock.statestore.rows.conversion import kind_of
from tussock.statestore.rows.key_arrays import binary_buffers
from tussock.statestore.rows.python_values import python_value, taker

__all__ = ["TERMINATOR", "FixedCodec", "TextCodec", "check_size", "codec_for"]

TERMINATOR = b"\x00\x01"
"""Ends a string or binary that another column follows; a zero byte inside is written `00 ff`, which sorts after."""
ESCAPED_ZERO = b"\x00\xff"

ARROW_BYTES_MAX = (1 << 31) - 1
"""Most bytes that the data of one array with 32-bit offsets can have."""

Words = npt.NDArray[Any]
Nulls = npt.NDArray[np.bool_] | None


NAN = float("nan")


class FixedCodec:
    """Values of one fixed-width type as words of `layout.itemsize` bytes.

    `words` turns an array into n words, whatever its null rows hold, and `array` turns them back; `pack` and
    `unpack` do the same for one Python value. `pack` takes values of exactly the class that Python has for the type,
    and raises one error or another for others: `KeyEncoder` then sees whether they stand for a value of it.
    """

    __slots__ = ("array", "kind", "layout", "pack", "unpack", "words")

    def __init__(
        self,
        kind: pa.DataType,
        layout: str,
        words: Callable[[AnyArray], Words],
        array: Callable[[Words, Nulls], AnyArray],
        pack: Callable[[Any], bytes] | None = None,
        unpack: Callable[[bytes], Any] | None = None,
    ) -> None:
        self.kind = kind
        self.layout = np.dtype(layout)
        self.words = words
        self.array = array
        self.pack = pack or self._pack_by_array
        self.unpack = unpack or self._unpack_by_array

    def _pack_by_array(self, value: Any) -> bytes:
        return self.words(pa.array([_of(Decimal, value)], self.kind)).astype(self.layout).tobytes()

    def _unpack_by_array(self, word: bytes) -> Any:
        return self.array(np.frombuffer(word, self.layout), None)[0].as_py()


class TextCodec:
    """Strings and binaries of any length: escaped and terminated, or `raw` in the last column of a key.

    Raw bytes need neither, because the key ends where they do; they are compared last, so the order is the same.
    """

    __slots__ = ("is_string", "kind", "raw")

    def __init__(self, kind: pa.DataType, raw: bool) -> None:
        self.kind = kind
        self.raw = raw
        self.is_string = pt.is_string(kind) or pt.is_large_string(kind)

    def escape(self, array: AnyArray) -> pa.BinaryArray:
        """The n values as `binary` without nulls, escaped unless raw; no terminator."""
        text = as_binary(array)
        if text.null_count:
            text = pc.fill_null(text, b"")
        zeros = 0 if self.raw else _zero_bytes(text)
        if zeros == 0:
            return text
        check_size(text.nbytes + zeros)
        return pc.replace_substring(text, b"\0", ESCAPED_ZERO)

    def array(self, escaped: pa.BinaryArray, nulls: Nulls, *, check: bool = True) -> AnyArray:
        """The values of what `escape` gave, null where `nulls` is true.

        `ValueError` if a string is no UTF-8, unless `check` is false: old rows may hold such.
        """
        text: AnyArray = escaped
        if not self.raw and _zero_bytes(escaped):
            text = pc.replace_substring(escaped, ESCAPED_ZERO, b"\0")
        if nulls is not None and nulls.any():
            text = pc.if_else(pa.array(nulls), pa.scalar(None, text.type), text)
        if not check and self.is_string:
            return text.view(pa.string()).cast(self.kind)
        return text.cast(self.kind)

    def pack(self, value: Any) -> bytes:
        """One value as it stands in the key, its terminator included."""
        data: bytes = _of(str, value).encode() if self.is_string else _of(bytes, value)
        return data if self.raw else data.replace(b"\0", ESCAPED_ZERO) + TERMINATOR

    def unpack(self, escaped: bytes) -> Any:
        """The value of the escaped bytes, without the terminator."""
        data = escaped if self.raw else escaped.replace(ESCAPED_ZERO, b"\0")
        return data.decode() if self.is_string else data


def _of(kind: type, value: Any) -> Any:
    if type(value) is not kind:
        raise TypeError(f"a value of type {type(value).__name__}")
    return value


def codec_for(name: str, kind: pa.DataType, last: bool) -> FixedCodec | TextCodec:
    """The codec of the key column `name`; `SchemaMismatch` if its type cannot be in a key."""
    if pt.is_string(kind) or pt.is_large_string(kind) or pt.is_binary(kind) or pt.is_large_binary(kind):
        return TextCodec(kind, raw=last)
    if pt.is_boolean(kind):
        return _bool_codec(kind)
    if pt.is_integer(kind):
        return _number_codec(kind, pt.is_signed_integer(kind))
    if pt.is_float32(kind) or pt.is_float64(kind):
        return _float_codec(kind)
    if pt.is_date(kind) or pt.is_timestamp(kind) or pt.is_time(kind) or pt.is_duration(kind):
        return _temporal_codec(kind)
    if pt.is_decimal128(kind):
        return _decimal_codec(kind)
    if pt.is_fixed_size_binary(kind) and kind.byte_width > 0:
        return _fixed_binary_codec(kind)
    raise SchemaMismatch(
        f"key column {name!r} has type {kind}; expected a boolean, an integer, float32, float64, a decimal128, "
        "a string, a binary, a date, a time, a timestamp or a duration"
    )


def _zero_bytes(text: pa.BinaryArray) -> int:
    offsets, raw = binary_buffers(text)
    data = np.frombuffer(raw, np.uint8)[offsets[0] : offsets[-1]]
    return len(data) - int(np.count_nonzero(data))


def check_size(size: int) -> None:
    """Raise `InvalidBatch` if an Arrow array with 32-bit offsets cannot hold `size` bytes."""
    if size > ARROW_BYTES_MAX:
        raise InvalidBatch(f"keys of one batch take {size} bytes; at most {ARROW_BYTES_MAX} fit: split the batch")


def _number_codec(kind: pa.DataType, signed: bool) -> FixedCodec:
    """Integers, and what Arrow stores as one: the sign bit is flipped, which puts negative numbers first."""
    bits = kind.bit_width
    native = np.dtype(f"u{bits // 8}")
    flip = native.type(1 << (bits - 1) if signed else 0)

    def words(array: AnyArray) -> Words:
        values = fixed_values(array, native)
        return values ^ flip if signed else values

    def array(words: Words, nulls: Nulls) -> AnyArray:
        return fixed_array(kind, words.astype(native) ^ flip, nulls)

    layout = struct.Struct(f">{ {1: 'B', 2: 'H', 4: 'I', 8: 'Q'}[bits // 8] }")
    pack_word, unpack_word = layout.pack, layout.unpack
    lowest = int(flip)

    def pack(value: Any) -> bytes:
        if type(value) is not int:
            raise TypeError("not an integer")
        return pack_word(value + lowest)

    return FixedCodec(
        kind,
        f">u{bits // 8}",
        words,
        array,
        pack,
        lambda word: unpack_word(word)[0] - lowest,
    )


def _temporal_codec(kind: pa.DataType) -> FixedCodec:
    """Dates, times, timestamps and durations: the signed number that Arrow stores."""
    number = _number_codec(kind, signed=True)
    times = {"date": dt.date, "time": dt.time, "timestamp": dt.datetime, "duration": dt.timedelta}
    python, take = times[kind_of(kind)], taker(kind)

    def pack(value: Any) -> bytes:
        # Arrow would cut a time to the type's unit.
        return number.pack(pa.scalar(take(_of(python, value)), kind).value)

    def unpack(word: bytes) -> Any:
        value = python_value(pa.scalar(number.unpack(word), kind))
        if isinstance(value, pa.Scalar):
            raise OverflowError(f"a {kind} that Python's {python.__name__} cannot hold")
        return value

    return FixedCodec(kind, number.layout.str, number.words, number.array, pack, unpack)


def _bool_codec(kind: pa.DataType) -> FixedCodec:
    def pack(value: Any) -> bytes:
        if value is not True and value is not False:
            raise TypeError("not a boolean")
        return b"\1" if value else b"\0"

    return FixedCodec(
        kind,
        "u1",
        lambda array: fixed_values(array.cast(pa.uint8()), np.uint8),
        lambda words, nulls: pa.array(words != 0, kind, mask=nulls),
        pack,
        lambda word: word != b"\0",
    )


def _float_codec(kind: pa.DataType) -> FixedCodec:
    """IEEE 754 bits: of a negative number all are flipped, else only the sign; one zero, and one NaN above infinity."""
    size = kind.bit_width // 8
    unsigned = np.dtype(f"u{size}")
    top = unsigned.type(1 << (8 * size - 1))
    shift = unsigned.type(8 * size - 1)

    def words(array: AnyArray) -> Words:
        with np.errstate(invalid="ignore"):  # a signalling NaN is no reason to warn
            values = fixed_values(array, f"f{size}") + 0.0  # -0.0 + 0.0 is 0.0
        values[np.isnan(values)] = np.nan
        bits = values.view(unsigned)
        return bits ^ (np.negative(bits >> shift) | top)

    def array(words: Words, nulls: Nulls) -> AnyArray:
        bits = words.astype(unsigned)
        return fixed_array(kind, bits ^ (((bits >> shift) - unsigned.type(1)) | top), nulls)

    as_float, as_word = struct.Struct(">f" if size == 4 else ">d"), struct.Struct(">I" if size == 4 else ">Q")
    sign, ones = int(top), 2 * int(top) - 1

    def pack(value: Any) -> bytes:
        if type(value) is not float:
            raise TypeError("not a float")
        bits = as_word.unpack(as_float.pack(NAN if value != value else value))[0]
        # -0.0 is told by its bits, because a tiny double turns into one only as a float.
        return as_word.pack(bits ^ ones if bits > sign else bits | sign)

    def unpack(word: bytes) -> float:
        bits = as_word.unpack(word)[0]
        value: float = as_float.unpack(as_word.pack(bits ^ sign if bits & sign else bits ^ ones))[0]
        return value

    return FixedCodec(kind, f">u{size}", words, array, pack, unpack)


def _decimal_codec(kind: Any) -> FixedCodec:
    """The unscaled number, signed, in the fewest of 4, 8 or 16 bytes that hold the type's precision."""
    size = 4 if kind.precision <= 9 else 8 if kind.precision <= 18 else 16

    def words(array: AnyArray) -> Words:
        halves = fixed_values(array, "V16").view("<i8").reshape(-1, 2)
        low, high = halves[:, 0], halves[:, 1]
        if size == 16:
            big = np.empty((len(array), 2), ">u8")
            big[:, 0] = high.astype(np.uint64) ^ np.uint64(1 << 63)
            big[:, 1] = low.astype(np.uint64)
            return big.view("V16").reshape(-1)
        narrow = low.astype(f"i{size}")
        # Arrow does not check that numbers keep to their precision, and a cut one would be another key.
        cut = (narrow != low) | (low >> 63 != high)
        if np.any(cut & ~null_mask(array)):
            raise SchemaMismatch(f"a number in a key column has more digits than its type {kind} allows")
        return narrow.view(f"u{size}") ^ np.dtype(f"u{size}").type(1 << (8 * size - 1))

    def array(words: Words, nulls: Nulls) -> AnyArray:
        halves = np.empty((len(words), 2), "<i8")
        if size == 16:
            big = np.ascontiguousarray(words).view(">u8").reshape(-1, 2)
            halves[:, 0] = big[:, 1].astype(np.uint64).view(np.int64)
            halves[:, 1] = (big[:, 0].astype(np.uint64) ^ np.uint64(1 << 63)).view(np.int64)
        else:
            unsigned = np.dtype(f"u{size}")
            flip = unsigned.type(1 << (8 * size - 1))
            halves[:, 0] = (words.astype(unsigned) ^ flip).view(f"i{size}")
            halves[:, 1] = halves[:, 0] >> 63
        return fixed_array(kind, halves.view("V16").reshape(-1), nulls)

    return FixedCodec(kind, "V16" if size == 16 else f">u{size}", words, array)


def _fixed_binary_codec(kind: Any) -> FixedCodec:
    width: int = kind.byte_width

    def pack(value: Any) -> bytes:
        if len(_of(bytes, value)) != width:
            raise ValueError(f"{len(value)} bytes")
        return bytes(value)

    def words(array: AnyArray) -> Words:
        return fixed_values(array, f"V{width}")

    def array(words: Words, nulls: Nulls) -> AnyArray:
        return fixed_array(kind, words, nulls)

    return FixedCodec(kind, f"V{width}", words, array, pack, bytes)
