"""Sums and averages, without rounding until they are shown.

The sum of floats is the float next to the exact sum, whatever the order of the rows; infinities and NaNs are counted
apart. The average is that float divided by the count. Nulls do not count; without another value both are null.
"""

import math
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from tussock.compute.changelog.operators.groups.exact_sums import (
    ExactSums,
    addends_of,
    float_of,
    integer_of,
    packed_integer,
    unpacked_integer,
)
from tussock.compute.changelog.operators.groups.group_values import DoesNotFit, GroupState, GroupValue, Moved
from tussock.statestore.rows.buffers import fixed_array

__all__ = ["Average", "Sum", "sum_type"]

DIGITS = 38
"""Of the decimals that sums are."""
_TOO_LARGE = 10**DIGITS


def sum_type(kind: pa.DataType) -> pa.DataType | None:
    """The type of sums of values of a type; `None` if they have none."""
    if pt.is_floating(kind):
        return pa.float64()
    if pt.is_signed_integer(kind):
        return pa.int64()
    if pt.is_unsigned_integer(kind):
        return pa.uint64()
    return pa.decimal128(DIGITS, kind.scale) if pt.is_decimal128(kind) else None


class _Summed(GroupValue):
    """What sums and averages have in common: the exact sum, and how many values it is of."""

    def __init__(self, name: str, column: str, kind: pa.DataType, shown: pa.DataType) -> None:
        super().__init__(name, shown, nullable=True)
        self._column = column
        self._is_float = pt.is_floating(kind)
        self._scale = kind.scale if pt.is_decimal(kind) else 0
        self._is_decimal = pt.is_decimal(kind)
        self._count, self._sum = f"count_{name}", f"sum_{name}"
        self._special = tuple(f"{word}_{name}" for word in ("nan", "plus", "minus")) if self._is_float else ()

    def fields(self) -> Sequence[pa.Field]:
        """As the base class has it."""
        counts = [pa.field(name, pa.int64(), nullable=False) for name in (self._count, *self._special)]
        return [*counts, pa.field(self._sum, pa.binary(), nullable=False)]

    def take(self, group: Sequence[Any], state: GroupState, row: Mapping[str, Any], sign: int) -> None:  # noqa: ARG002
        """As the base class has it."""
        value = row[self._column]
        if value is None:
            return
        state[self._count] += sign
        if self._is_float and not math.isfinite(value):
            nan, plus, minus = self._special
            state[nan if value != value else plus if value > 0 else minus] += sign
            return
        number = integer_of(value) if self._is_float else _unscaled(value, self._scale) if self._is_decimal else value
        state[self._sum] = packed_integer(unpacked_integer(state[self._sum]) + sign * number)

    def special(self, state: GroupState) -> float | None:
        """The sum of floats that are not all finite."""
        if not self._is_float:
            return None
        nan, plus, minus = (state[name] > 0 for name in self._special)
        if nan or (plus and minus):
            return math.nan
        return math.inf if plus else -math.inf if minus else None

    def take_columns(
        self, groups: pa.RecordBatch, state: Mapping[str, pa.Array], moved: Moved
    ) -> tuple[Mapping[str, pa.Array], pa.Array]:
        """As the base class has it."""
        column, count = moved.column(self._column), groups.num_rows
        is_valid = column.is_valid().to_numpy(zero_copy_only=False)
        found = {self._count: pa.array(state[self._count].to_numpy() + moved.difference(count, is_valid))}
        if self._is_float:
            values = column.fill_null(0.0).to_numpy(zero_copy_only=False)
            which = (np.isnan(values), values == np.inf, values == -np.inf)
            for name, flags in zip(self._special, which, strict=True):
                found[name] = pa.array(state[name].to_numpy() + moved.difference(count, flags))
        parts = ExactSums.added(state[self._sum], moved.numbers, moved.signs, addends_of(column))
        found[self._sum] = pa.concat_arrays([part.packed() for part in parts])
        is_null = found[self._count].to_numpy() == 0
        return found, self.shown_columns(parts, found, is_null)

    def shown_columns(
        self, parts: Sequence[ExactSums], state: Mapping[str, pa.Array], is_null: np.ndarray[Any, np.dtype[np.bool_]]
    ) -> pa.Array:
        """What is shown of sums; `DoesNotFit`."""
        raise NotImplementedError

    def floats(
        self, parts: Sequence[ExactSums], state: Mapping[str, pa.Array]
    ) -> np.ndarray[Any, np.dtype[np.float64]]:
        """The floats that are nearest to the sums."""
        if not self._is_float:
            return np.concatenate([part.numbers() for part in parts])
        nan, plus, minus = (state[name].to_numpy() > 0 for name in self._special)
        found = np.concatenate([part.floats() for part in parts])
        found = np.where(plus, np.inf, np.where(minus, -np.inf, found))
        return np.where(nan | (plus & minus), np.nan, found)


class Sum(_Summed):
    """The sum: float64, int64, uint64, or a decimal of 38 digits with the column's scale."""

    def __init__(self, name: str, column: str, kind: pa.DataType) -> None:
        shown = sum_type(kind)
        assert shown is not None, "what has sums was asked before"
        super().__init__(name, column, kind, shown)
        self._is_signed = pt.is_signed_integer(shown)

    def shown(self, state: GroupState) -> Any:
        """As the base class has it."""
        if not state[self._count]:
            return None
        total = unpacked_integer(state[self._sum])
        if self._is_float:
            special = self.special(state)
            return float_of(total) if special is None else special
        if self._is_decimal:
            if abs(total) >= _TOO_LARGE:
                raise self._does_not_fit(0)
            return Decimal((int(total < 0), tuple(map(int, str(abs(total)))), -self._scale))
        least, most = (-(1 << 63), (1 << 63) - 1) if self._is_signed else (0, (1 << 64) - 1)
        if not least <= total <= most:
            raise self._does_not_fit(0)
        return total

    def shown_columns(
        self, parts: Sequence[ExactSums], state: Mapping[str, pa.Array], is_null: np.ndarray[Any, np.dtype[np.bool_]]
    ) -> pa.Array:
        """As the base class has it."""
        if self._is_float:
            return pa.array(self.floats(parts, state), mask=is_null)
        halves = [part.halves() for part in parts]
        lower, upper, fits = (np.concatenate(columns) for columns in zip(*halves, strict=True))
        if self._is_decimal:
            fits &= _is_within(lower, upper)
            words = np.stack([lower.view(np.int64), upper], axis=1)
        elif self._is_signed:
            fits &= upper == (lower.view(np.int64) >> 63)
        else:
            fits &= upper == 0
        wrong = np.flatnonzero(~fits & ~is_null)
        if len(wrong):
            raise self._does_not_fit(int(wrong[0]))
        if self._is_decimal:
            return fixed_array(self.field.type, words.view("V16").reshape(-1), is_null)
        return pa.array(lower.view(np.int64) if self._is_signed else lower, mask=is_null)

    def _does_not_fit(self, at: int) -> DoesNotFit:
        return DoesNotFit(at, f"the sum {self.name!r} is beyond {self.field.type}")


class Average(_Summed):
    """The average, as float64."""

    def __init__(self, name: str, column: str, kind: pa.DataType) -> None:
        super().__init__(name, column, kind, pa.float64())
        self._unit = float(10**self._scale)

    def shown(self, state: GroupState) -> Any:
        """As the base class has it."""
        count = state[self._count]
        if not count:
            return None
        total = self.special(state)
        if total is None:
            exact = unpacked_integer(state[self._sum])
            total = float_of(exact) if self._is_float else float(exact)
        return total / self._unit / count

    def shown_columns(
        self, parts: Sequence[ExactSums], state: Mapping[str, pa.Array], is_null: np.ndarray[Any, np.dtype[np.bool_]]
    ) -> pa.Array:
        """As the base class has it."""
        counts = np.where(is_null, 1, state[self._count].to_numpy())
        return pa.array(self.floats(parts, state) / self._unit / counts, mask=is_null)


def _unscaled(value: Decimal, scale: int) -> int:
    """The number of its smallest units; without Decimal's arithmetic, which rounds to the context's digits."""
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int), "columns have finite decimals"
    size = int("".join(map(str, digits)) or "0")
    size = size * 10 ** (exponent + scale) if exponent + scale >= 0 else size // 10 ** -(exponent + scale)
    return -size if sign else size


def _is_within(
    lower: np.ndarray[Any, np.dtype[np.uint64]], upper: np.ndarray[Any, np.dtype[np.int64]]
) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Which numbers of 128 bits have at most 38 digits."""
    most_upper, most_lower = divmod(_TOO_LARGE - 1, 1 << 64)
    least_upper, least_lower = divmod(1 - _TOO_LARGE, 1 << 64)
    too_large = (upper > most_upper) | ((upper == most_upper) & (lower > np.uint64(most_lower)))
    too_small = (upper < least_upper) | ((upper == least_upper) & (lower < np.uint64(least_lower)))
    within: np.ndarray[Any, np.dtype[np.bool_]] = ~(too_large | too_small)
    return within
