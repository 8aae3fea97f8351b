"""Spark SQL's `hash()` over Arrow columns, and over single values: what vnodes are made of.

Computing exactly Spark's hash lets Spark's own exchange (`repartition(n, keys)`, `groupBy(keys)`) place the rows where
the store wants them, so that writing them needs no second shuffle. The function is Murmur3_x86_32 with seed 42,
chained over the columns: the hash of one is the seed of the next, and a null leaves it as it is. Source: Spark's
`Murmur3_x86_32.java` and `HashExpression` in `hash.scala`; its variant for bytes differs from the published Murmur3
in that each of the last 1 to 3 bytes is mixed as its own sign-extended word.

Every type that a key column may have can be hashed. Those that Spark lacks are hashed as the type that Spark reads
them as, which `docs/formats/vnodes.md` lists. Vnodes are on disk: none of this may change.
"""

import struct
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt

from tussock.statestore.errors import SchemaMismatch
from tussock.statestore.rows.buffers import AnyArray, as_binary, fixed_values, null_mask
from tussock.statestore.rows.key_arrays import binary_buffers

__all__ = ["SPARK_SEED", "hash_value", "spark_hash", "value_hasher"]

SPARK_SEED = 42

C1, C2 = 0xCC9E2D51, 0x1B873593
LOW_32 = 0xFFFF_FFFF

# Rows hashed at a time: a column's temporaries stay in the second-level cache.
CHUNK_ROWS = 1 << 15

# Below this many rows that still have words, a NumPy step costs more than a Python loop over the rows that are left.
FEW_ROWS = 16

NAN = float("nan")

U32 = npt.NDArray[np.uint32]
ValueHasher = Callable[[Any, int], int]

# Multiplier and divisor that bring a unit to microseconds, which is what Spark's timestamps and intervals count.
TO_MICROS = {"s": (1_000_000, 1), "ms": (1_000, 1), "us": (1, 1), "ns": (1, 1_000)}
# Spark's TIME type counts nanoseconds.
TO_NANOS = {"s": (1_000_000_000, 1), "ms": (1_000_000, 1), "us": (1_000, 1), "ns": (1, 1)}


def spark_hash(columns: Sequence[AnyArray], seed: int = SPARK_SEED) -> U32:
    """The hash of each row over `columns` (at least one, all of n rows): n uint32, the bits of Spark's signed int.

    Raises `SchemaMismatch` for a type that has no hash.
    """
    if not columns:
        raise SchemaMismatch("hash of no columns; expected one at least")
    for column in columns:
        _check_type(column.type)
    out = np.full(len(columns[0]), seed, np.uint32)
    for start in range(0, len(out), CHUNK_ROWS):
        h = out[start : start + CHUNK_ROWS]
        for column in columns:
            part = column.slice(start, CHUNK_ROWS)
            hashed = _hash_column(part, h)
            np.copyto(h, hashed, where=~null_mask(part) if part.null_count else True)
    return out


def value_hasher(kind: pa.DataType) -> ValueHasher:
    """A function (value, seed) -> hash for one value of a column of type `kind`: what `spark_hash` gives for its row.

    Values are the Python values of the type (`None` for null); `SchemaMismatch` if the type has no hash.
    """
    _check_type(kind)
    if pt.is_string(kind) or pt.is_large_string(kind):
        return lambda value, seed: seed if value is None else _bytes_value(value.encode(), seed)
    if _is_bytes(kind):
        return lambda value, seed: seed if value is None else _bytes_value(value, seed)
    if pt.is_boolean(kind) or (pt.is_integer(kind) and _is_int(kind)):
        return lambda value, seed: seed if value is None else _int_value(value, seed)
    if pt.is_integer(kind):
        return lambda value, seed: seed if value is None else _long_value(value, seed)
    if pt.is_floating(kind):
        return _float_value_hasher("<f" if kind.bit_width == 32 else "<d")
    if pt.is_temporal(kind):
        return _temporal_value_hasher(kind)
    return lambda value, seed: int(spark_hash([pa.array([value], kind)], seed)[0])


def hash_value(values: Sequence[Any], kinds: Sequence[pa.DataType]) -> int:
    """The hash of one row given as Python values: what `spark_hash` gives for it."""
    h = SPARK_SEED
    for value, kind in zip(values, kinds, strict=True):
        h = value_hasher(kind)(value, h)
    return h


def _is_bytes(kind: pa.DataType) -> bool:
    return pt.is_binary(kind) or pt.is_large_binary(kind) or pt.is_fixed_size_binary(kind)


def _is_int(kind: pa.DataType) -> bool:
    """Whether Spark hashes the type as an int of 32 bits rather than a long of 64; uint32 needs the long."""
    small = pt.is_integer(kind) and kind.bit_width <= 32 and not pt.is_uint32(kind)
    return small or pt.is_boolean(kind) or pt.is_date(kind)


def _check_type(kind: pa.DataType) -> None:
    known = (
        pt.is_boolean(kind)
        or pt.is_integer(kind)
        or pt.is_float32(kind)
        or pt.is_float64(kind)
        or pt.is_decimal128(kind)
        or pt.is_string(kind)
        or pt.is_large_string(kind)
        or _is_bytes(kind)
        or pt.is_date(kind)
        or pt.is_timestamp(kind)
        or pt.is_time(kind)
        or pt.is_duration(kind)
    )
    if not known:
        raise SchemaMismatch(
            f"a column of type {kind} cannot be hashed to a virtual node; expected a boolean, a number, a decimal128, "
            "a string, a binary, a date, a time, a timestamp or a duration"
        )


# --- Whole columns ------------------------------------------------------------------------------------------------


def _hash_column(array: AnyArray, h: U32) -> U32:
    """Hash the rows of `array` with the seeds `h`; what it gives for null rows means nothing."""
    kind = array.type
    if pt.is_string(kind) or pt.is_large_string(kind) or pt.is_binary(kind) or pt.is_large_binary(kind):
        offsets, raw = binary_buffers(as_binary(array))
        starts = offsets[:-1].astype(np.int64)
        return _hash_bytes(np.frombuffer(raw, np.uint8), starts, np.diff(offsets).astype(np.int64), h)
    if pt.is_fixed_size_binary(kind):
        data = np.ascontiguousarray(fixed_values(array, f"V{kind.byte_width}")).view(np.uint8)
        starts = np.arange(len(array), dtype=np.int64) * kind.byte_width
        return _hash_bytes(data, starts, np.full(len(array), kind.byte_width, np.int64), h)
    if pt.is_decimal(kind):
        return _hash_decimals(array, h)
    if pt.is_floating(kind):
        return _hash_floats(array, h)
    values = _whole_numbers(array)
    return _hash_longs(values, h) if values.dtype == np.int64 else _hash_ints(values, h)


def _whole_numbers(array: AnyArray) -> npt.NDArray[Any]:
    """The values as Spark's int (int32) or long (int64); numbers too large for a long wrap around."""
    kind = array.type
    if pt.is_boolean(kind):
        return fixed_values(array.cast(pa.uint8()), np.uint8).astype(np.int32)
    if pt.is_integer(kind):
        dtype = np.dtype(kind.to_pandas_dtype())
        return fixed_values(array, dtype).astype(np.int32 if _is_int(kind) else np.int64)
    values = fixed_values(array, np.int32 if kind.bit_width == 32 else np.int64)
    if pt.is_date32(kind):
        return values
    if pt.is_date64(kind):
        return (values // 86_400_000).astype(np.int32)
    multiplier, divisor = _scale(kind)
    # Floor division: a moment before 1970 belongs to the microsecond that it lies in.
    return values.astype(np.int64) * multiplier // divisor


def _scale(kind: Any) -> tuple[int, int]:
    return (TO_NANOS if pt.is_time(kind) else TO_MICROS)[kind.unit]


def _hash_floats(array: AnyArray, h: U32) -> U32:
    """Floats and doubles by their bits, -0.0 as 0.0 and every NaN as the one that Java makes of it."""
    single = array.type.bit_width == 32
    with np.errstate(invalid="ignore"):  # a signalling NaN is no reason to warn
        values = fixed_values(array, np.float32 if single else np.float64) + 0.0  # -0.0 + 0.0 is 0.0
    values[np.isnan(values)] = np.nan
    return _hash_ints(values.view(np.int32), h) if single else _hash_longs(values.view(np.int64), h)


def _hash_decimals(array: AnyArray, h: U32) -> U32:
    """Decimals of up to 18 digits as longs, larger ones as the shortest big-endian two's complement bytes."""
    pairs = fixed_values(array, np.dtype([("low", "<i8"), ("high", "<i8")]))
    if array.type.precision <= 18:
        return _hash_longs(np.ascontiguousarray(pairs["low"]), h)
    big = np.empty((len(array), 2), ">i8")
    big[:, 0], big[:, 1] = pairs["high"], pairs["low"]
    data = big.view(np.uint8)
    # A leading byte is surplus while it and the top bit of the byte after it only repeat the sign.
    sign = (pairs["high"] >> 63).astype(np.uint8)[:, None]
    surplus = (data[:, :-1] == sign) & ((data[:, 1:] ^ sign) < 128)
    skip = np.logical_and.accumulate(surplus, axis=1).sum(axis=1, dtype=np.int64)
    starts = np.arange(len(array), dtype=np.int64) * 16 + skip
    return _hash_bytes(data.reshape(-1), starts, 16 - skip, h)


def _hash_ints(values: npt.NDArray[np.int32], h: U32) -> U32:
    return _finish(_mix(h.copy(), values.astype(np.uint32)), np.uint32(4))


def _hash_longs(values: npt.NDArray[np.int64], h: U32) -> U32:
    halves = values.astype("<i8", copy=False).view("<u4").reshape(-1, 2)
    return _finish(_mix(_mix(h.copy(), halves[:, 0].copy()), halves[:, 1].copy()), np.uint32(8))


def _hash_bytes(
    data: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64], h: U32
) -> U32:
    """Hash the bytes `data[starts[i] : starts[i] + sizes[i]]` of each row, word by word over the rows that have one."""
    seeds, h = h, h.copy()
    data = np.concatenate([data, np.zeros(4, np.uint8)])
    every_byte = np.ndarray((len(data) - 3,), "<u4", data, 0, (1,))
    words = sizes >> 2
    left = np.flatnonzero(words)
    for step in range(int(words.max(initial=0))):
        if len(left) <= FEW_ROWS:
            break
        rows = _all_or(left, len(h))
        h[rows] = _mix(h[rows], every_byte[starts[rows] + 4 * step].astype(np.uint32, copy=False))
        left = left[words[left] > step + 1]
    for tail in range(3):
        rows = _all_or(np.flatnonzero((sizes & 3) > tail), len(h))
        last = data[starts[rows] + (words[rows] << 2) + tail].view(np.int8).astype(np.int32).view(np.uint32)
        h[rows] = _mix(h[rows], last)
    h = _finish(h, sizes.astype(np.uint32))
    # What the loop left out: a string of 1 MiB would otherwise cost 262,144 NumPy steps.
    for row in left.tolist():
        h[row] = _bytes_value(data[starts[row] : starts[row] + sizes[row]].tobytes(), int(seeds[row]))
    return h


def _all_or(rows: npt.NDArray[np.intp], count: int) -> npt.NDArray[np.intp] | slice:
    """An index for `rows`; where that is every row, a slice, which NumPy follows several times faster."""
    return slice(None) if len(rows) == count else rows


def _mix(h: U32, k: U32) -> U32:
    """Mix one word of each row into its state; both arrays are used up."""
    k *= np.uint32(C1)
    k = k << np.uint32(15) | k >> np.uint32(17)
    k *= np.uint32(C2)
    h ^= k
    h = h << np.uint32(13) | h >> np.uint32(19)
    h *= np.uint32(5)
    h += np.uint32(0xE6546B64)
    return h


def _finish(h: U32, size: Any) -> U32:
    """Spread what was mixed over all 32 bits, in place."""
    h ^= size
    h ^= h >> np.uint32(16)
    h *= np.uint32(0x85EBCA6B)
    h ^= h >> np.uint32(13)
    h *= np.uint32(0xC2B2AE35)
    h ^= h >> np.uint32(16)
    return h


# --- Single values ------------------------------------------------------------------------------------------------


def _int_value(value: int, h: int) -> int:
    return _finish_value(_mix_value(h, value & LOW_32), 4)


def _long_value(value: int, h: int) -> int:
    return _finish_value(_mix_value(_mix_value(h, value & LOW_32), value >> 32 & LOW_32), 8)


def _bytes_value(value: bytes, h: int) -> int:
    size = len(value)
    for k in struct.unpack_from(f"<{size >> 2}I", value):
        h = _mix_value(h, k)
    for byte in value[size & ~3 :]:
        h = _mix_value(h, byte if byte < 128 else byte | 0xFFFF_FF00)
    return _finish_value(h, size)


def _float_value_hasher(layout: str) -> ValueHasher:
    step, bits, minus_zero = (_int_value, "<I", 1 << 31) if layout == "<f" else (_long_value, "<Q", 1 << 63)

    def hasher(value: float | None, seed: int) -> int:
        if value is None:
            return seed
        word = struct.unpack(bits, struct.pack(layout, NAN if value != value else value))[0]
        # -0.0 is told by its bits, because a tiny double turns into one only as a float.
        return step(0 if word == minus_zero else word, seed)

    return hasher


def _temporal_value_hasher(kind: pa.DataType) -> ValueHasher:
    if pt.is_date(kind):
        multiplier, divisor = (1, 1) if pt.is_date32(kind) else (1, 86_400_000)
        step = _int_value
    else:
        multiplier, divisor = _scale(kind)
        step = _long_value

    def hasher(value: Any, seed: int) -> int:
        if value is None:
            return seed
        scalar: Any = pa.scalar(value, kind)
        return step(scalar.value * multiplier // divisor, seed)

    return hasher


def _mix_value(h: int, k: int) -> int:
    """One step of the hash; `h` and `k` are below 2**32, and so is the result."""
    k = k * C1 & LOW_32
    h ^= (k << 15 | k >> 17) * C2 & LOW_32
    return (h << 13 | h >> 19) * 5 + 0xE6546B64 & LOW_32


def _finish_value(h: int, size: int) -> int:
    h ^= size
    h = (h ^ h >> 16) * 0x85EBCA6B & LOW_32
    h = (h ^ h >> 13) * 0xC2B2AE35 & LOW_32
    return h ^ h >> 16
