"""The smallest and the largest value of a column in each block of an SST: what a filter on values leaves unread.

They stand in the meta, for columns whose values lie in memory as numbers of up to 8 bytes. A block may pass a test if
a value between its two bounds does; one that cannot need not be read, unless its rows hide older ones, which is for
the reader to know (`sst/iterators.py`).

Bounds are of all rows of the block, older versions and what stands under deletes included; nulls and NaN, for which no
comparison holds, are left out. A block without a value has bounds between which there is none: the largest number
below the smallest, or NaN. What it costs was measured: `docs/decisions/0036-blocks-have-bounds-of-values.md`.
"""

from collections.abc import Iterable, Sequence
from decimal import Decimal
from fractions import Fraction
from math import ceil, floor, nan
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt

__all__ = ["BoundsWriter", "ColumnBounds", "ValueBounds", "ValueTest", "column_bounds", "layout_of"]

_BLOCK_SHARE = 64
"""The bounds of a block have at most its bytes before compression divided by this: the first columns get them."""

_DIGITS_MAX = 18
"""Each decimal of up to that many digits is a number of 8 bytes."""

_Numbers = npt.NDArray[Any]
_Places = Sequence[int] | npt.NDArray[np.intp]


class ColumnBounds(msgspec.Struct, frozen=True, kw_only=True):
    """The bounds of one column: little-endian arrays with an element for each block, in the layout of its type."""

    column: int  # its place among the value columns
    low: bytes
    high: bytes


class ValueTest(NamedTuple):
    """What a row has to pass: a test of one value column, which does not hold for null."""

    column: int
    """Its place among the value columns."""
    operator: str
    """As in `keys.conditions`: one of its comparisons, `in` or `prefix`."""
    value: Any
    """A number, of times Arrow's count of units; for `in` a tuple of such."""


def layout_of(kind: pa.DataType) -> np.dtype[Any] | None:
    """How values of a stored type lie in memory, and bounds in the meta; `None` for types that have no bounds.

    date64 has none: its values may be no whole days, which no date of Python tells.
    """
    if pt.is_integer(kind) or pt.is_float32(kind) or pt.is_float64(kind):
        return np.dtype(kind.to_pandas_dtype()).newbyteorder("<")
    if pt.is_date32(kind) or pt.is_time32(kind):
        return np.dtype("<i4")
    if pt.is_timestamp(kind) or pt.is_time64(kind) or pt.is_duration(kind):
        return np.dtype("<i8")
    if pt.is_decimal(kind) and kind.precision <= _DIGITS_MAX:
        return np.dtype("<i4" if kind.bit_width == 32 else "<i8")
    return None


# --- Writing ----------------------------------------------------------------------------------------------------------


class BoundsWriter:
    """Makes the bounds of the blocks of one table: batch by batch, with two calls of NumPy for each column."""

    def __init__(self, types: Sequence[pa.DataType], block_bytes: int) -> None:
        left = block_bytes // _BLOCK_SHARE
        self._columns: list[tuple[int, np.dtype[Any]]] = []
        for column, kind in enumerate(types):
            layout = layout_of(kind)
            if layout is not None and 2 * layout.itemsize <= left:
                left -= 2 * layout.itemsize
                self._columns.append((column, layout))
        fields = [(f"{name} {column}", layout) for column, layout in self._columns for name in ("low", "high")]
        self._record = np.dtype(fields)

    def __bool__(self) -> bool:
        return bool(self._columns)

    def of(self, columns: Sequence[pa.Array], starts: Sequence[int]) -> list[bytes]:
        """A record for each block of a batch with these value columns; `starts` are the blocks' first rows."""
        records, places = np.empty(len(starts), self._record), np.array(starts, np.intp)
        for column, layout in self._columns:
            records[f"low {column}"], records[f"high {column}"] = column_bounds(columns[column], layout, places)
        size, joined = self._record.itemsize, records.tobytes()
        return [joined[at * size : (at + 1) * size] for at in range(len(starts))]

    def joined(self, records: Sequence[bytes]) -> tuple[ColumnBounds, ...]:
        """What the meta holds of blocks whose records these are, in order."""
        if not self._columns:
            return ()
        table = np.frombuffer(b"".join(records), self._record)
        return tuple(
            ColumnBounds(column=column, low=table[f"low {column}"].tobytes(), high=table[f"high {column}"].tobytes())
            for column, _ in self._columns
        )


def column_bounds(column: pa.Array, layout: np.dtype[Any], starts: _Places) -> tuple[_Numbers, _Numbers]:
    """The smallest and the largest number in each block of a column of that layout; `starts` are first rows."""
    numbers = _numbers(column, layout)
    is_float = layout.kind == "f"
    # Of a number and NaN these take the number.
    least, most = (np.fmin, np.fmax) if is_float else (np.minimum, np.maximum)
    if not column.null_count:
        return least.reduceat(numbers, starts), most.reduceat(numbers, starts)
    # The same copy for both: fresh memory takes as long as all the rest.
    nulls, filled = _nulls(column), numbers.copy()
    filled[nulls] = nan if is_float else np.iinfo(layout).max
    low = least.reduceat(filled, starts)
    filled[nulls] = nan if is_float else np.iinfo(layout).min
    return low, most.reduceat(filled, starts)


def _nulls(column: pa.Array) -> npt.NDArray[np.intp]:
    """Where the nulls are."""
    bitmap, (start, skipped) = column.buffers()[0], divmod(column.offset, 8)
    bits = np.frombuffer(bitmap, np.uint8, offset=start)
    valid = np.unpackbits(bits, count=skipped + len(column), bitorder="little")[skipped:]
    return np.flatnonzero(valid == 0)


def _numbers(column: pa.Array, layout: np.dtype[Any]) -> _Numbers:
    """The values without a copy; under nulls is anything."""
    data, width = column.buffers()[1], column.type.bit_width // 8
    if data is None:
        return np.zeros(len(column), layout)
    # Of a wider decimal the lowest bytes are the number.
    return np.ndarray((len(column),), layout, data, column.offset * width, (width,))


# --- Reading ----------------------------------------------------------------------------------------------------------


class ValueBounds:
    """The bounds of an SST's blocks."""

    def __init__(self, stored: Iterable[ColumnBounds], types: Sequence[pa.DataType], blocks: int) -> None:
        """`types` are those of the SST's value columns; `ValueError` if the bounds are not of that many blocks."""
        self._types, self._blocks = types, blocks
        self._columns: dict[int, tuple[_Numbers, _Numbers]] = {}
        for one in stored:
            layout = layout_of(types[one.column]) if 0 <= one.column < len(types) else None
            if layout is None:
                raise ValueError(f"there are bounds of column {one.column}, which has none")
            low, high = np.frombuffer(one.low, layout), np.frombuffer(one.high, layout)
            if len(low) != blocks or len(high) != blocks:
                raise ValueError(f"there are bounds of {len(low)} and {len(high)} blocks, and {blocks} blocks")
            self._columns[one.column] = low, high

    def column(self, column: int) -> tuple[_Numbers, _Numbers] | None:
        """The smallest and the largest number of a column in each block; `None` if it has no bounds."""
        return self._columns.get(column)

    def passing(self, tests: Sequence[ValueTest]) -> npt.NDArray[np.bool_] | None:
        """Of each block whether a row of it may pass all tests; `None` if nothing is known of the tested columns.

        A column that the SST does not have is one that the table got later, and null in all its rows.
        """
        passing: npt.NDArray[np.bool_] | None = None
        for test in tests:
            if test.column >= len(self._types):
                return np.zeros(self._blocks, np.bool_)
            bounds = self._columns.get(test.column)
            if bounds is not None and test.operator != "prefix":
                may = _may_pass(*bounds, self._types[test.column], test)
                passing = may if passing is None else passing & may
        return passing


def _may_pass(low: _Numbers, high: _Numbers, kind: pa.DataType, test: ValueTest) -> npt.NDArray[np.bool_]:
    """Of each block whether a number from `low` to `high` may pass."""
    values = test.value if test.operator == "in" else (test.value,)
    if low.dtype.kind == "f" or any(isinstance(value, float) for value in values):
        # As doubles, in which integers that became floats are exact, and other values in the same order, or equal.
        low, high = low.astype(np.float64), high.astype(np.float64)
        ends = [(float(value), float(value)) for value in values]
    else:
        scale = kind.scale if pt.is_decimal(kind) else 0
        ends = [_integers(value, scale) for value in values]
    if test.operator == "in":
        # A number that lies between two integers is none of them.
        exact = sorted(at for at, above in ends if at == above and _fits(at, low.dtype))
        return _holds_one(low, high, np.array(exact, low.dtype))
    below, above = ends[0]
    comparisons = {">": high > below, ">=": high >= above, "<": low < above, "<=": low <= below}
    may: npt.NDArray[np.bool_] = comparisons[test.operator] & (low <= high)
    return may


def _holds_one(low: _Numbers, high: _Numbers, values: _Numbers) -> npt.NDArray[np.bool_]:
    """Of each block whether one of the ascending values lies between its bounds."""
    at = np.searchsorted(values, low)
    there = at < len(values)
    there[there] = values[at[there]] <= high[there]
    return there


def _integers(value: int | Decimal, scale: int) -> tuple[int, int]:
    """The integers at or around a value in units of the scale's last digit, exactly."""
    if isinstance(value, int) and not scale:
        return value, value
    exact = Fraction(value) * Fraction(10) ** scale
    return floor(exact), ceil(exact)


def _fits(value: float, layout: np.dtype[Any]) -> bool:
    """Whether a column of that layout can have the value."""
    return layout.kind == "f" or np.iinfo(layout).min <= value <= np.iinfo(layout).max
