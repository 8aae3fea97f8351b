"""Rows that are kept as Python gives them: just what a column would read back, and nothing else."""

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tussock.statestore.rows.row_codec import RowCodec

MOMENT = dt.datetime(2026, 2, 3, 4, 5, 6)
UTC = pa.scalar(0, pa.timestamp("us", "UTC")).as_py().tzinfo

TAKEN: list[tuple[Any, list[Any]]] = [
    (pa.timestamp("s"), [MOMENT, dt.datetime.min]),
    (pa.timestamp("ms"), [MOMENT, MOMENT.replace(microsecond=7000), dt.datetime.max.replace(microsecond=999_000)]),
    (pa.timestamp("us"), [MOMENT, MOMENT.replace(microsecond=7), dt.datetime.max]),
    (pa.timestamp("us", "UTC"), [MOMENT.replace(tzinfo=UTC, microsecond=7)]),
    (pa.timestamp("ms", "UTC"), [MOMENT.replace(tzinfo=UTC)]),
    (pa.time32("s"), [dt.time(1, 2, 3)]),
    (pa.time32("ms"), [dt.time(1, 2, 3, 4000)]),
    (pa.time64("us"), [dt.time(1, 2, 3, 4), dt.time.max]),
    (pa.date32(), [dt.date(1969, 1, 2)]),
    (pa.decimal128(5, 2), [Decimal("1.20"), Decimal("-999.99"), Decimal("0.00"), Decimal("-0.01")]),
    (pa.decimal128(3), [Decimal(999), Decimal(0)]),
]
LEFT: list[tuple[Any, list[Any]]] = [
    (pa.timestamp("s"), [MOMENT.replace(microsecond=1), MOMENT.replace(tzinfo=dt.UTC), MOMENT.replace(fold=1), 5]),
    (pa.timestamp("ms"), [MOMENT.replace(microsecond=7001), dt.date(2026, 1, 1)]),
    (pa.timestamp("us", "UTC"), [MOMENT, MOMENT.replace(tzinfo=dt.timezone(dt.timedelta(hours=1)))]),
    (pa.time32("ms"), [dt.time(1, 2, 3, 4), dt.time(1, tzinfo=dt.UTC), dt.time(1, fold=1), MOMENT]),
    (
        pa.decimal128(5, 2),
        [
            Decimal("1.200"),
            Decimal("1E+1"),
            Decimal("-0.0"),
            Decimal("0"),
            Decimal("9999"),
            Decimal("1000.00"),
            Decimal("-0.00"),
            Decimal("NaN"),
            Decimal("Inf"),
            1,
            1.5,
        ],
    ),
]

FITTED: list[tuple[Any, list[Any]]] = [
    (pa.decimal128(5, 2), [Decimal("1.2"), Decimal(-999), Decimal("0.5")]),
    (pa.timestamp("us", "UTC"), [MOMENT.replace(tzinfo=dt.UTC, microsecond=7)]),
    (pa.timestamp("s", "UTC"), [MOMENT.replace(tzinfo=dt.UTC)]),
]
"""Of which Arrow reads back an equal one."""


def cases(given: list[tuple[Any, list[Any]]]) -> list[Any]:
    return [pytest.param(kind, value, id=f"{kind} {value!r}") for kind, values in given for value in values]


@pytest.mark.parametrize(("kind", "value"), cases(TAKEN))
def test_what_a_column_reads_back_is_taken(kind: Any, value: Any) -> None:
    """It is the same object, and of the class that Arrow gives."""
    codec = RowCodec.of(pa.schema([("v", kind)]), ())
    assert codec is not None
    read = pa.array([value], kind).to_pylist()[0]
    assert (repr(read), type(read)) == (repr(value), type(value))
    for one in (value, read):
        assert codec.row({"v": one}) == {"v": value}


@pytest.mark.parametrize(("kind", "value"), cases(FITTED))
def test_what_arrow_only_fits_is_fitted_as_arrow_does(kind: Any, value: Any) -> None:
    codec = RowCodec.of(pa.schema([("v", kind)]), ())
    assert codec is not None
    row = codec.row({"v": value})
    assert row is not None
    assert repr(row["v"]) == repr(pa.array([value], kind).to_pylist()[0])


@pytest.mark.parametrize(("kind", "value"), cases(LEFT))
def test_what_would_be_another_value_is_left_to_arrow(kind: Any, value: Any) -> None:
    """Which converts or refuses it."""
    codec = RowCodec.of(pa.schema([("v", kind)]), ())
    assert codec is not None
    assert codec.row({"v": value}) is None


@pytest.mark.parametrize(
    "kind", [pa.timestamp("ns"), pa.timestamp("us", "Europe/Berlin"), pa.time64("ns"), pa.float32()]
)
def test_types_without_such_a_class_have_no_codec(kind: Any) -> None:
    assert RowCodec.of(pa.schema([("v", kind)]), ()) is None
