"""Schemas that may follow each other: the list of wider types, checked with values, and refused changes."""

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tussock.statestore.contract.records import TableSpec
from tussock.statestore.errors import InvalidOption, SchemaMismatch
from tussock.statestore.format.schema_changes import check_evolved, is_earlier, is_wider

INTEGERS = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]
FLOATS = [pa.float16(), pa.float32(), pa.float64()]
DECIMALS = [
    pa.decimal32(9, 2),
    pa.decimal64(18, 4),
    pa.decimal128(5, 0),
    pa.decimal128(20, 0),
    pa.decimal128(38, 10),
    pa.decimal256(60, 20),
]
OTHERS = [pa.string(), pa.binary(), pa.bool_(), pa.date32(), pa.timestamp("ms"), pa.timestamp("us"), pa.time32("s")]
OTHERS += [pa.list_(pa.int8()), pa.list_(pa.int16()), pa.struct([("a", pa.int8())]), pa.null()]
ALL = INTEGERS + FLOATS + DECIMALS + OTHERS


def extremes(kind: pa.DataType) -> list[Any]:
    """The extremes of a numeric type, a small value and a null."""
    if pa.types.is_integer(kind):
        bits, signed = int(kind.bit_width), pa.types.is_signed_integer(kind)
        return [-(1 << bits - 1) if signed else 0, (1 << bits - signed) - 1, 1, None]
    if pa.types.is_decimal(kind):
        digits = (9,) * kind.precision
        return [Decimal((sign, digits, -kind.scale)) for sign in (0, 1)] + [None]
    largest = {16: 65504.0, 32: 3.4028234663852886e38, 64: 1.7976931348623157e308}[kind.bit_width]
    return [largest, -largest, float("inf"), 0.5, None]


def exact(values: pa.Array) -> list[Decimal | None]:
    """The values as numbers that can be compared across types."""
    floating = pa.types.is_floating(values.type)
    return [None if one is None else Decimal(float(one) if floating else one) for one in values.to_pylist()]


@pytest.mark.parametrize("old", ALL, ids=str)
def test_a_wider_type_holds_every_value(old: pa.DataType) -> None:
    """The extremes of a number's type keep their values; other kinds have no wider type."""
    wider = [new for new in ALL if is_wider(old, new)]
    assert old not in wider
    for new in wider:
        values = pa.array(extremes(old), old)
        assert exact(values.cast(new)) == exact(values), f"{old} to {new}"
    if old in OTHERS:
        assert wider == []


def test_the_list_of_wider_types_is_the_documented_one() -> None:
    """The list as the documentation has it."""

    def of(old: pa.DataType) -> set[str]:
        return {str(new) for new in ALL if is_wider(old, new)}

    decimals = {"decimal32(9, 2)", "decimal64(18, 4)", "decimal128(5, 0)", "decimal128(20, 0)", "decimal128(38, 10)"}
    decimals.add("decimal256(60, 20)")
    large = decimals - {"decimal32(9, 2)", "decimal128(5, 0)"}
    assert of(pa.int8()) == {"int16", "int32", "int64", "halffloat", "float", "double"} | decimals
    assert of(pa.int32()) == {"int64", "double"} | large
    assert of(pa.int64()) == large - {"decimal64(18, 4)"}
    assert of(pa.uint16()) == {"uint32", "uint64", "int32", "int64", "float", "double"} | decimals
    assert of(pa.uint64()) == large - {"decimal64(18, 4)"}
    assert of(pa.float16()) == {"float", "double"}
    assert of(pa.float32()) == {"double"}
    assert of(pa.decimal32(9, 2)) == large - {"decimal128(20, 0)"}
    assert of(pa.decimal128(38, 10)) == {"decimal256(60, 20)"}
    assert of(pa.float64()) == set()


def spec(**columns: pa.DataType) -> TableSpec:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), *columns.items()])
    return TableSpec(id=1, name="orders", schema=schema.serialize().to_pybytes(), primary_key=("id",))


KEY = pa.field("id", pa.int64(), nullable=False)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ([KEY], r"\['id', 'a'\]; altered to \['id'\]"),
        ([("a", pa.int8()), KEY], "lost or moved"),
        ([KEY, ("b", pa.int8())], "lost or moved"),
        ([KEY, ("a", pa.int8()), ("a", pa.int8())], "have one twice"),
        ([KEY, ("a", pa.uint8())], "'a' has type int8 and cannot become uint8"),
        ([pa.field("id", pa.decimal128(30, 0), nullable=False), ("a", pa.int8())], "only value columns change"),
        ([KEY, pa.field("a", pa.int8(), nullable=False)], "may be null never changes"),
        ([KEY, ("a", pa.int8()), pa.field("b", pa.int8(), nullable=False)], "'b' .* new and never null"),
        ([KEY, ("a", pa.int8()), ("b", pa.large_list(pa.int8()))], "'b' has type large_list"),
    ],
)
def test_a_schema_that_old_rows_do_not_fit_is_refused(fields: list[Any], words: str) -> None:
    """Such a delta does not get into the log, no matter which process writes it."""
    with pytest.raises(SchemaMismatch, match=words):
        check_evolved(spec(a=pa.int8()), pa.schema(fields))


def test_a_schema_that_grew_is_accepted() -> None:
    check_evolved(spec(a=pa.int8()), pa.schema([KEY, ("a", pa.int32()), ("b", pa.string())]))
    with pytest.raises(InvalidOption, match="'kv' is raw"):
        check_evolved(TableSpec(id=1, name="kv"), pa.schema([KEY]))


def test_columns_of_an_earlier_sst_are_distinguished_from_another_tables() -> None:
    now = pa.schema([("a", pa.int32()), ("b", pa.string())])
    for columns in ([], [("a", pa.int32())], [("a", pa.int8())], [("a", pa.uint16()), ("b", pa.string())]):
        assert is_earlier(pa.schema(columns), now)
    for columns in ([("b", pa.string())], [("a", pa.int64())], [*now, ("c", pa.int8())], [("a", pa.string())]):
        assert not is_earlier(pa.schema(columns), now)
