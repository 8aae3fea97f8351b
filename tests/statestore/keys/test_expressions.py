"""What an Arrow expression asks of columns: all that passes it passes the tests, and what is not known makes none."""

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt
import pytest

from support.store.values import GROUPS, KINDS, values_of
from tussock.statestore.keys.conditions import Conditions, Test
from tussock.statestore.keys.expressions import column_tests

SCHEMA = pa.schema(
    [
        ("k", pa.int32()),
        ("a", pa.string()),
        ("b", pa.binary()),
        ("d", pa.date32()),
        ("u", pa.uint64()),
        ("f", pa.float32()),
        ("p", pa.decimal128(9, 2)),
        ("t", pa.timestamp("ns")),
        ("z", pa.timestamp("us", "Europe/Berlin")),
        ("s", pa.struct([("k", pa.int64())])),
    ]
)
FIELD = {name: pc.field(name) for name in SCHEMA.names}
DAY = dt.date(2020, 1, 2)
NOON = dt.datetime(2020, 1, 2, 12)


def asked(condition: pc.Expression) -> tuple[Test, ...]:
    return column_tests(condition, SCHEMA, SCHEMA.names)


@pytest.mark.parametrize(
    ("condition", "test"),
    [
        (FIELD["k"] == 5, Test("k", "in", (5,))),
        (pc.scalar(5) >= FIELD["k"], Test("k", "<=", 5)),
        (pc.less(pc.scalar(pa.scalar(5, pa.uint8())), FIELD["k"]), Test("k", ">", 5)),
        (FIELD["k"].isin([1, 2, None, 1]), Test("k", "in", (1, 2))),
        (FIELD["k"].isin(pa.array([], pa.int32())), Test("k", "in", ())),
        (FIELD["a"] == "x\"'\n", Test("a", "in", ("x\"'\n",))),
        (pc.starts_with(FIELD["a"], "é"), Test("a", "prefix", "é")),
        (pc.starts_with(FIELD["b"], "é"), Test("b", "prefix", "é".encode())),
        (FIELD["d"] >= DAY, Test("d", ">=", DAY)),
        (FIELD["u"] == 5, Test("u", "in", (5,))),
        (FIELD["f"] < 0.5, Test("f", "<", 0.5)),
        (FIELD["f"] < 3, Test("f", "<", 3.0)),
        (FIELD["p"] == Decimal("1.5"), Test("p", "in", (Decimal("1.50"),))),
        (FIELD["p"] > 7, Test("p", ">", Decimal("7.00"))),
        (FIELD["t"] > NOON, Test("t", ">", NOON)),
        (FIELD["z"] <= NOON.replace(tzinfo=dt.UTC), Test("z", "<=", NOON.replace(tzinfo=dt.UTC))),
    ],
)
def test_a_comparison_with_a_value_is_a_test(condition: pc.Expression, test: Test) -> None:
    """On either side of the column, in a type that the column's can take exactly."""
    assert asked(condition) == (test,)
    assert column_tests(condition, SCHEMA, []) == ()


@pytest.mark.parametrize(
    "condition",
    [
        FIELD["k"],
        FIELD["k"] != 5,
        ~(FIELD["k"] == 5),
        (FIELD["k"] == 5) | (FIELD["k"] == 6),
        FIELD["k"] == FIELD["u"],
        FIELD["k"] + 1 == 5,
        FIELD["k"].cast(pa.int64()) == 5,
        FIELD["k"] == 5.0,
        FIELD["k"] == pa.scalar(None, pa.int32()),
        FIELD["k"].isin([1, 1 << 40]),
        FIELD["k"].is_valid(),
        FIELD["f"] < 0.1,
        FIELD["f"] == float("nan"),
        FIELD["f"].isin(pa.array([1.0, float("nan")], pa.float32())),
        FIELD["p"] == Decimal("1.555"),
        FIELD["u"] == -1,
        pc.starts_with(FIELD["a"], "x", ignore_case=True),
        pc.ends_with(FIELD["a"], "x"),
        pc.field("s", "k") == 5,
        pc.scalar(True),
    ],
    ids=str,
)
def test_whatever_else_makes_no_test(condition: pc.Expression) -> None:
    """And leaves what is beside it a test."""
    assert asked(condition) == ()
    assert asked(condition & (FIELD["k"] == 5)) == (Test("k", "in", (5,)),)


def test_columns_by_their_place_are_not_known() -> None:
    """Arrow has no form for them outside of a process."""
    assert asked(pc.field(0) == 5) == ()
    assert asked((pc.field(0) == 5) & (FIELD["k"] == 5)) == ()
    assert asked(pc.field("zz") == 5) == ()


def test_tests_that_all_have_to_hold_are_all_found() -> None:
    """In any nesting of AND, of any depth, and beside what is no test."""
    condition = FIELD["k"] > 0
    for bound in range(3000):
        condition = condition & (FIELD["k"] < 5000 - bound) if bound % 2 else (FIELD["u"] != bound) & condition
    found = asked(condition)
    assert len(found) == 1501
    assert Conditions(found).intervals(["k"]) == [((0,), (2001,))]


def test_a_long_list_is_its_bounds() -> None:
    """Of floats nothing: NaN is beyond bounds, and a list finds it."""
    listed = [None, *range(5000, 2000, -1)]
    assert asked(FIELD["k"].isin(pa.array(listed, pa.int32()))) == (Test("k", ">=", 2001), Test("k", "<=", 5000))
    assert asked(FIELD["k"].isin(pa.array(listed, pa.int64()))) == ()
    assert asked(FIELD["f"].isin(pa.array(listed, pa.float32()))) == ()
    assert asked(FIELD["k"].isin(pa.array([None] * 5000, pa.int32()))) == (Test("k", "in", ()),)


COMPARISONS: list[Callable[..., pc.Expression]] = [pc.equal, pc.less, pc.less_equal, pc.greater, pc.greater_equal]


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_what_passes_a_comparison_passes_its_test(kind: Any) -> None:
    """For each type of a column and each related one of a literal: Arrow casts both, and finds what the test finds."""
    rows = pa.record_batch([pa.array(values_of(kind), kind)], names=["k"])
    related = next(group for group in GROUPS if kind in group)
    conditions = [
        compare(pc.field("k"), pc.scalar(literal))
        for other in related
        for literal in pa.array(values_of(other), other)
        for compare in COMPARISONS
    ]
    conditions += [
        pc.field("k").isin(pa.array(values_of(other)[at : at + 3], other)) for other in related for at in (0, 1)
    ]
    known = 0
    for condition in conditions:
        tests = column_tests(condition, rows.schema, ["k"])
        try:
            passed = _values(rows.filter(condition).column(0))
        except pa.ArrowException:
            continue  # Arrow refuses to compare them
        if tests:
            holding = [value for value in _values(rows.column(0)) if tests[0].holds(value)]
            # In a list Arrow holds the two zeros apart.
            assert passed == holding or (0.0 in holding and set(passed) == set(holding)), condition
            known += 1
    assert known > len(COMPARISONS)


def _values(array: pa.Array) -> list[Any]:
    """Python values, as tests have them: times with a zone in UTC."""
    zoned = pt.is_timestamp(array.type) and array.type.tz is not None
    return (array.cast(pa.timestamp(array.type.unit, "UTC")) if zoned else array).to_pylist()
