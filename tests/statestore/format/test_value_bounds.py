"""Bounds of the values in blocks: no block that has a row which passes is ever said to have none."""

import datetime as dt
import random
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt
import pytest

from support.store.values import KINDS, values_of
from tussock.statestore.format.value_bounds import BoundsWriter, ValueBounds, ValueTest, layout_of

COMPARISONS = {">": pc.greater, ">=": pc.greater_equal, "<": pc.less, "<=": pc.less_equal, "in": pc.is_in}
BOUNDED = [kind for kind in [*KINDS, pa.decimal32(7, 2), pa.decimal256(9, 3)] if layout_of(kind) is not None]


def number(value: Any, kind: Any) -> Any:
    """The value as a test has it."""
    return pa.scalar(value, kind).value if pt.is_temporal(kind) else value


def bounds_of(column: pa.Array, starts: list[int]) -> ValueBounds:
    """What the reader has of a column, by way of the meta."""
    writer = BoundsWriter([column.type], 64 << 10)
    stored = writer.joined(writer.of([column], starts))
    return ValueBounds(stored, [column.type], len(starts))


def test_bounded_are_numbers_of_up_to_eight_bytes() -> None:
    """Times, dates and short decimals are such numbers; the types without bounds are text, bytes and the others."""
    without = {str(kind) for kind in KINDS if layout_of(kind) is None}
    assert without == {
        *("bool", "decimal128(38, 5)", "decimal128(20, -2)", "date64[ms]"),
        *("string", "large_string", "binary", "large_binary"),
    }


@pytest.mark.parametrize("kind", BOUNDED, ids=str)
@pytest.mark.parametrize("seed", range(3))
def test_no_block_with_a_passing_row_is_left_out(kind: Any, seed: int) -> None:
    """Any values, nulls, NaN, slices and tests; and of blocks with one value each it is told exactly."""
    rng = random.Random(seed)
    values = [value for value in values_of(kind) if not pt.is_decimal(kind) or len(value.as_tuple().digits) <= 5]
    left_out = 0
    for _ in range(60):
        rows = rng.randint(1, 40)
        pool = rng.sample(values, rng.randint(1, len(values)))
        padding = rng.randrange(9)
        some = [rng.choice([*pool, *([None] * rng.choice([0, 1, len(pool)]))]) for _ in range(rows + padding)]
        column = pa.array(some, kind).slice(padding)
        starts = sorted({0, *rng.sample(range(rows), rng.randint(0, rows - 1))})
        bounds = bounds_of(column, starts)
        real = [value for value in values if value == value]
        # Arrow finds no decimal32 in a list.
        operator = rng.choice([name for name in COMPARISONS if name != "in" or kind != pa.decimal32(7, 2)])
        if operator == "in":
            chosen = rng.sample(real, rng.randrange(len(real)))
            test = ValueTest(0, operator, tuple(number(value, kind) for value in chosen))
            passes = pc.is_in(column, pa.array(chosen, kind))
        else:
            value = rng.choice(real)
            test = ValueTest(0, operator, number(value, kind))
            passes = COMPARISONS[operator](column, pa.scalar(value, kind))
        passing = bounds.passing([test])
        assert passing is not None
        passed = pc.fill_null(passes, False).to_numpy(zero_copy_only=False)
        expected = np.logical_or.reduceat(passed, starts)
        assert not np.any(expected & ~passing), (column, starts, test)
        if operator != "in" or len(starts) == rows:
            # A comparison holds for a value of the block if it does for one of its ends. Of the two zeros, which are
            # equal, a list may have one.
            zeros = operator == "in" and 0.0 in test.value
            assert zeros or np.array_equal(expected, passing), (column, starts, test)
        left_out += int(np.count_nonzero(~passing))
    assert left_out > 10


def test_a_column_that_became_wider_is_compared_by_what_it_was() -> None:
    """The values of the test are of the present type: floats and decimals for integers, longer decimals."""
    numbers = bounds_of(pa.array([1, 5, 10, 20], pa.int32()), [0, 2])

    def passing(bounds: ValueBounds, operator: str, value: Any) -> list[bool]:
        found = bounds.passing([ValueTest(0, operator, value)])
        assert found is not None
        return found.tolist()

    assert passing(numbers, ">", 5.5) == passing(numbers, ">", Decimal("5.5")) == [False, True]
    assert passing(numbers, "<=", 9.75) == passing(numbers, "<=", Decimal("9.75")) == [True, False]
    assert passing(numbers, "in", (5.5, 7.25)) == [False, False]
    assert passing(numbers, "in", (Decimal("10.5"), Decimal("-1"), Decimal("2.00"))) == [True, False]
    assert passing(numbers, ">", float("-inf")) == passing(numbers, "<", 1 << 70) == [True, True]
    assert passing(numbers, ">", 1 << 70) == passing(numbers, "in", (1 << 70, -(1 << 70))) == [False, False]
    prices = bounds_of(pa.array([Decimal("1.25"), Decimal("2.50")], pa.decimal128(9, 2)), [0, 1])
    assert passing(prices, ">=", Decimal("1.251")) == passing(prices, ">", Decimal("1.25")) == [False, True]
    assert passing(prices, "in", (Decimal("2.5000"), Decimal("1.2501"))) == [False, True]
    assert passing(prices, "<", 2) == [True, False]
    small = bounds_of(pa.array([0.1, 0.2], pa.float32()), [0, 1])
    assert passing(small, "<", 0.1000000020) == [True, False]
    assert passing(small, "<=", 0.1) == [False, False]


def test_columns_that_are_not_known() -> None:
    """A column from after the SST is null in all rows; of one without bounds nothing is known."""
    schema = [pa.string(), pa.int64()]
    writer = BoundsWriter(schema, 64 << 10)
    columns = [pa.array(["a", "b"]), pa.array([1, 2], pa.int64())]
    bounds = ValueBounds(writer.joined(writer.of(columns, [0, 1])), schema, 2)
    assert bounds.passing([]) is None
    assert bounds.passing([ValueTest(0, "in", ("c",))]) is None
    assert bounds.passing([ValueTest(0, "prefix", "c"), ValueTest(1, ">", 1)]).tolist() == [False, True]  # type: ignore[union-attr]
    assert bounds.passing([ValueTest(2, "prefix", "c")]).tolist() == [False, False]  # type: ignore[union-attr]
    assert bounds.column(0) is None
    low, high = bounds.column(1) or pytest.fail("there are bounds of it")
    assert low.tolist() == high.tolist() == [1, 2]


def test_nulls_and_nan_are_no_values() -> None:
    """No comparison holds for them, so a block that has nothing else passes no test."""
    for column in (pa.nulls(3, pa.int64()), pa.array([float("nan"), None, None]), pa.nulls(3, pa.date32())):
        bounds = bounds_of(column, [0])
        for operator, value in ((">=", -(1 << 63)), ("<=", (1 << 63) - 1), ("in", (0, (1 << 63) - 1))):
            assert bounds.passing([ValueTest(0, operator, value)]).tolist() == [False]  # type: ignore[union-attr]


def test_the_bounds_of_a_block_are_a_small_part_of_it() -> None:
    """The first columns have bounds, as long as these are a 64th of the block."""
    writer = BoundsWriter([pa.int64()] * 100, 8 << 10)
    columns = [pa.array([1], pa.int64())] * 100
    assert [one.column for one in writer.joined(writer.of(columns, [0]))] == list(range(8))
    assert not BoundsWriter([pa.int64()], 1023)
    assert BoundsWriter([pa.int64()], 1024)
    assert not BoundsWriter([pa.string(), pa.bool_()], 64 << 10)


@pytest.mark.parametrize(
    ("column", "nbytes"), [(0, 16), (2, 16), (-1, 16), (1, 15), (1, 8)], ids=["text", "none", "negative", "odd", "few"]
)
def test_bounds_that_do_not_fit_are_refused(column: int, nbytes: int) -> None:
    """A defective writer is found when the meta is read, not in the middle of a scan."""
    schema = [pa.string(), pa.int64()]
    writer = BoundsWriter(schema, 64 << 10)
    (stored,) = writer.joined(writer.of([pa.array(["a", "b"]), pa.array([1, 2])], [0, 1]))
    wrong = type(stored)(column=column, low=bytes(nbytes), high=bytes(16))
    with pytest.raises(ValueError, match=r"bounds|buffer size"):
        ValueBounds([wrong], schema, 2)


def test_times_are_counted_in_their_unit() -> None:
    """As Arrow counts them, zones aside."""
    noon = dt.datetime(2020, 6, 1, 12, tzinfo=dt.UTC)
    column = pa.array([noon, noon + dt.timedelta(hours=1)], pa.timestamp("ms", "Europe/Berlin"))
    low, high = bounds_of(column, [0]).column(0) or pytest.fail("there are bounds of it")
    assert (high - low).tolist() == [3_600_000]
