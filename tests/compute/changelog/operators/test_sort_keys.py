"""Sort keys are ordered as their values are, and one row's key is that of its columns."""

import datetime as dt
import itertools
import math
from decimal import Decimal

import pyarrow as pa
import pytest

from tussock.compute.changelog.operators.sort_keys import SortKeys
from tussock.statestore import InvalidOption

UTC = dt.UTC
ASCENDING = {
    pa.bool_(): [False, True],
    pa.int8(): [-128, -1, 0, 1, 127],
    pa.int64(): [-(2**63), -5, -1, 0, 1, 255, 256, 2**63 - 1],
    pa.uint64(): [0, 1, 2**63, 2**64 - 1],
    pa.float32(): [-math.inf, -1.5, 0.0, 2.0**-149, 1.5, math.inf, math.nan],
    pa.float64(): [-math.inf, -1e308, -5e-324, 0.0, 5e-324, 1.0, 1e308, math.inf, math.nan],
    pa.string(): ["", "\0", "\0\0", "\0\1", "\1", "a", "a\0", "a\0b", "aa", "b", "é", "\uffff", "\U0001f600"],
    pa.large_string(): ["", "a", "ab"],
    pa.binary(): [b"", b"\0", b"\0\xff", b"\1", b"\xfe", b"\xff", b"\xff\xff"],
    pa.binary(2): [b"\0\0", b"\0\xff", b"\xff\0"],
    pa.date32(): [dt.date(1, 1, 1), dt.date(1969, 12, 31), dt.date(1970, 1, 1), dt.date(9999, 12, 31)],
    pa.time64("us"): [dt.time(0), dt.time(0, 0, 0, 1), dt.time(23, 59, 59, 999999)],
    pa.timestamp("us"): [dt.datetime(1, 1, 1), dt.datetime(1969, 12, 31, 23, 59, 59, 999999), dt.datetime(2026, 1, 1)],
    pa.timestamp("ms", "UTC"): [dt.datetime(1970, 1, 1, tzinfo=UTC), dt.datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)],
    pa.duration("s"): [dt.timedelta(seconds=-1), dt.timedelta(0), dt.timedelta(days=4)],
    pa.decimal128(5, 2): [Decimal("-999.99"), Decimal("-0.01"), Decimal("0.00"), Decimal("0.01"), Decimal("999.99")],
    pa.decimal128(18, 0): [Decimal(-(10**18) + 1), Decimal(0), Decimal(10**18 - 1)],
    pa.decimal128(38, 10): [Decimal(-(10**28) + 1), Decimal("-0.0000000001"), Decimal(0), Decimal(10**28 - 1)],
}


def keys_of(kind: pa.DataType, values: list, *, descending: bool) -> tuple[list[bytes], list[bytes]]:
    sort = SortKeys("test", [("v", kind, descending)])
    return sort.of_columns([pa.array(values, kind)]).to_pylist(), [sort.of_row([value]) for value in values]


class TestSortKeyBytes:
    @pytest.mark.parametrize("kind", ASCENDING, ids=str)
    @pytest.mark.parametrize("descending", [False, True])
    def test_order_of_bytes_is_order_of_values_with_nulls_last(self, kind: pa.DataType, descending: bool) -> None:
        """Ascending or descending, a null comes after all values, and both ways give the same bytes."""
        values = ASCENDING[kind][::-1] if descending else ASCENDING[kind]
        together, alone = keys_of(kind, [*values, None], descending=descending)
        assert together == alone
        assert together == sorted(together)
        assert len(set(together)) == len(together)
        sliced = pa.array([None, values[0], *values], kind).slice(2)
        assert SortKeys("test", [("v", kind, descending)]).of_columns([sliced]).to_pylist() == together[:-1]

    @pytest.mark.parametrize("kind", ASCENDING, ids=str)
    def test_no_key_begins_another(self, kind: pa.DataType) -> None:
        """So columns can stand behind each other."""
        for descending in (False, True):
            together, _ = keys_of(kind, [*ASCENDING[kind], None], descending=descending)
            assert not any(other.startswith(one) for one, other in itertools.permutations(together, 2))

    def test_zeros_and_nans_are_one(self) -> None:
        """-0.0 has the key of 0.0, and each NaN that of the other NaNs."""
        for descending in (False, True):
            together, alone = keys_of(pa.float64(), [0.0, -0.0, math.nan, -math.nan], descending=descending)
            assert together == alone
            assert len(set(together)) == 2

    def test_several_columns_are_compared_in_turn(self) -> None:
        """The second column decides where the first is the same, each in its own direction."""
        sort = SortKeys("test", [("a", pa.string(), False), ("b", pa.int64(), True), ("c", pa.string(), True)])
        rows = list(itertools.product(["", "a", "a\0", None], [2, 1, None], ["z", "b\0", "b", "", None]))
        columns = [
            pa.array(column, kind)
            for column, kind in zip(zip(*rows, strict=True), (pa.string(), pa.int64(), pa.string()), strict=True)
        ]
        together = sort.of_columns(columns).to_pylist()
        assert together == sorted(together)
        assert together == [sort.of_row(row) for row in rows]

    def test_scalars_that_python_cannot_hold_have_keys(self) -> None:
        """A nanosecond is not lost."""
        kind = pa.timestamp("ns")
        sort = SortKeys("test", [("v", kind, False)])
        column = pa.array([1, 2, 1001], kind)
        together = sort.of_columns([column]).to_pylist()
        assert together == sorted(set(together))
        assert together == [sort.of_row([one]) for one in column]

    def test_nothing_has_no_keys(self) -> None:
        """No rows."""
        sort = SortKeys("test", [("a", pa.string(), True), ("b", pa.int64(), False)])
        assert sort.of_columns([pa.array([], pa.string()), pa.array([], pa.int64())]).to_pylist() == []

    @pytest.mark.parametrize(
        "kind", [pa.list_(pa.int64()), pa.decimal256(50, 0), pa.struct([("a", pa.int8())])], ids=str
    )
    def test_types_without_order_are_refused(self, kind: pa.DataType) -> None:
        """With the column's name and type."""
        with pytest.raises(InvalidOption, match=r"test: column 'v' of type .* has no order"):
            SortKeys("test", [("v", kind, False)])
