"""Rows become columns of a typed table: conversions, refusals, and their messages."""

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tussock.statestore.errors import SchemaMismatch
from tussock.statestore.tables.typed_input import conform, key_rows

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("name", pa.string()),
        pa.field("price", pa.decimal128(9, 2)),
        pa.field("seen", pa.timestamp("us", "UTC")),
    ]
)
ROW = {"id": 1, "name": "a", "price": Decimal("1.50"), "seen": datetime(2013, 6, 30, tzinfo=UTC)}


def column(array: pa.Array, kind: pa.DataType, *, required: bool = False) -> pa.Array:
    """Convert one Arrow column to a type."""
    schema = pa.schema([pa.field("c", kind)])
    return conform(pa.table({"c": array}), schema, ["c"] if required else [], "t").column("c")


def values(found: list[Any], kind: pa.DataType) -> pa.Array:
    """Convert one column of dicts to a type."""
    return conform([{"c": value} for value in found], pa.schema([pa.field("c", kind)]), [], "t").column("c")


@pytest.mark.parametrize(
    "rows",
    [
        [ROW],
        pa.Table.from_pylist([ROW]),
        pa.Table.from_pylist([ROW], schema=SCHEMA),
        pa.RecordBatch.from_pylist([ROW], schema=SCHEMA).select(["seen", "price", "name", "id"]),
        pa.concat_tables([pa.Table.from_pylist([], schema=SCHEMA), pa.Table.from_pylist([ROW], schema=SCHEMA)]),
        pa.Table.from_pylist([{}, ROW], schema=pa.schema([f.with_nullable(True) for f in SCHEMA])).slice(1),
    ],
)
def test_every_shape_of_rows_gives_the_same_columns(rows: Any) -> None:
    """Dicts, tables in chunks, batches in another column order and slices give the same columns."""
    batch = conform(rows, SCHEMA, ["id"], "t")
    assert batch.schema.names == SCHEMA.names
    assert batch.schema.types == SCHEMA.types
    assert batch.to_pylist() == [ROW]


def test_a_missing_nullable_column_is_null() -> None:
    """In Arrow data and in dicts, also if only some rows have it."""
    bare = {"id": 1, "name": None, "price": None, "seen": None}
    assert conform(pa.table({"id": [1]}), SCHEMA, ["id"], "t").to_pylist() == [bare]
    assert conform([{"id": 1}], SCHEMA, ["id"], "t").to_pylist() == [bare]
    assert conform([{"id": 1}, ROW], SCHEMA, ["id"], "t").to_pylist() == [bare, ROW]


def test_an_empty_list_has_the_tables_columns() -> None:
    """An empty list has the table's columns too."""
    assert conform([], SCHEMA, ["id"], "t").num_rows == 0
    assert conform([], SCHEMA, ["id"], "t").schema.types == SCHEMA.types


@pytest.mark.parametrize(
    ("found", "kind"),
    [
        (pa.array([1, -1, None], pa.int8()), pa.int64()),
        (pa.array([1, 127, None], pa.uint64()), pa.int8()),
        (pa.array([1.5, float("nan"), float("inf"), None]), pa.float32()),
        (pa.array([1.5, None], pa.float32()), pa.float64()),
        (pa.array(["a", None], pa.large_string()), pa.string()),
        (pa.array(["a", None], pa.string_view()), pa.string()),
        (pa.array(["a", None, "a"]).dictionary_encode(), pa.string()),
        (pa.array([b"ab", None], pa.binary(2)), pa.binary()),
        (pa.array([b"ab", None]), pa.binary(2)),
        (pa.array([Decimal("1.20"), None]), pa.decimal128(20, 4)),
        (pa.array([datetime(2013, 1, 1), None], pa.timestamp("s")), pa.timestamp("ns")),
        (pa.array([datetime(2013, 1, 1), None], pa.timestamp("ns")), pa.timestamp("s")),
        (pa.array([date(2013, 1, 1), None], pa.date64()), pa.date32()),
        (pa.array([[1, 2], None], pa.list_(pa.int64())), pa.list_(pa.int8())),
        (pa.array([[1, 2], None], pa.large_list(pa.int64())), pa.list_(pa.int64())),
        (pa.nulls(2), pa.decimal128(5, 2)),
        (pa.nulls(2), pa.list_(pa.int8())),
    ],
)
def test_values_of_one_kind_are_converted(found: pa.Array, kind: pa.DataType) -> None:
    """Width, unit and layout may differ as long as the expected type holds every value."""
    converted = column(found, kind)
    assert converted.type == kind
    # As text, because NaN equals nothing.
    assert str(converted.to_pylist()) == str(found.cast(kind, safe=False).to_pylist())


@pytest.mark.parametrize(
    ("found", "kind"),
    [
        (pa.array(["1"]), pa.int64()),
        (pa.array([1]), pa.string()),
        (pa.array([1.0]), pa.int64()),
        (pa.array([1]), pa.float64()),
        (pa.array([1.0]), pa.decimal128(5, 2)),
        (pa.array([True]), pa.int8()),
        (pa.array([b"a"]), pa.string()),
        (pa.array(["a"]), pa.binary()),
        (pa.array([1]), pa.timestamp("us")),
        (pa.array([date(2013, 1, 1)]), pa.timestamp("us")),
        (pa.array([datetime(2013, 1, 1)]), pa.date32()),
        (pa.array([datetime(2013, 1, 1)], pa.timestamp("us", "UTC")), pa.timestamp("us")),
        (pa.array([datetime(2013, 1, 1)], pa.timestamp("us")), pa.timestamp("us", "UTC")),
        (pa.array([1]), pa.list_(pa.int64())),
        (pa.array([{"a": 1}]), pa.map_(pa.string(), pa.int64())),
    ],
)
def test_values_of_another_kind_are_refused(found: pa.Array, kind: pa.DataType) -> None:
    """The message names table, column, expected and found type."""
    with pytest.raises(SchemaMismatch) as caught:
        column(found, kind)
    assert str(caught.value) == f"table 't': column 'c': expected {kind}, found {found.type}; nothing was stored"


@pytest.mark.parametrize(
    ("found", "kind", "why"),
    [
        (pa.array([1, 300]), pa.int8(), "300"),
        (pa.array([-1]), pa.uint64(), "-1"),
        (pa.array([1.0, 1e300]), pa.float32(), r"1e\+300 at position 1"),
        (pa.array([1e10], pa.float32()), pa.float16(), "10000000000.0 at position 0"),
        (pa.array([datetime(2013, 1, 1, 0, 0, 0, 5)]), pa.timestamp("s"), "lose data"),
        (pa.array([1 << 62], pa.timestamp("s")), pa.timestamp("ns"), "out of bounds"),
        (pa.array([86_400_001], pa.date64()), pa.date32(), "lose data"),
        (pa.array([Decimal("1.234")]), pa.decimal128(9, 2), "data loss"),
        (pa.array([b"abc"]), pa.binary(2), "width"),
        (pa.array([[1, 300]]), pa.list_(pa.int8()), "300"),
    ],
)
def test_a_value_that_would_change_is_refused(found: pa.Array, kind: pa.DataType, why: str) -> None:
    """A conversion never wraps, cuts or overflows."""
    with pytest.raises(SchemaMismatch, match=f"table 't': column 'c': expected .*, found .*do(es)? not fit: .*{why}"):
        column(found, kind)


@pytest.mark.parametrize(
    ("good", "bad", "kind"),
    [
        (1, "1", pa.int64()),
        (1, 1.5, pa.int64()),
        (1, True, pa.int64()),
        (1, 1 << 63, pa.int64()),
        (1.0, "x", pa.float64()),
        (1.0, 1e300, pa.float32()),
        ("a", 1, pa.string()),
        ("a", b"a", pa.string()),
        (b"a", "a", pa.binary()),
        (b"ab", b"a", pa.binary(2)),
        (Decimal("1.25"), 1.5, pa.decimal128(5, 2)),
        (Decimal("1.25"), Decimal("1.255"), pa.decimal128(5, 2)),
        (Decimal("1.25"), Decimal(10**6), pa.decimal128(5, 2)),
        (date(2013, 1, 1), datetime(2013, 1, 1, 12), pa.date32()),
        (date(2013, 1, 1), 5, pa.date32()),
        (datetime(2013, 1, 1), 5, pa.timestamp("us")),
        (timedelta(1), 1.5, pa.duration("us")),
        (1.0, True, pa.float64()),
        (datetime(2013, 1, 1), datetime(2013, 1, 1, tzinfo=UTC), pa.timestamp("us")),
        (datetime(2013, 1, 1, tzinfo=UTC), datetime(2013, 1, 1), pa.timestamp("us", "UTC")),
        (True, 1, pa.bool_()),
        ([1], ["x"], pa.list_(pa.int64())),
    ],
)
def test_a_value_of_a_dict_that_does_not_fit_is_named(good: Any, bad: Any, kind: pa.DataType) -> None:
    """Column, expected type and the first offending position; earlier values are accepted."""
    assert values([good, None], kind).to_pylist()[1] is None
    with pytest.raises(SchemaMismatch, match="table 't': column 'c'") as caught:
        values([good, None, bad, bad], kind)
    assert f"expected {kind}" in str(caught.value)
    assert "at position 2" in str(caught.value)
    assert "nothing was stored" in str(caught.value)


@pytest.mark.parametrize("required", [False, True])
def test_a_forbidden_null_is_named(required: bool) -> None:
    """The schema or the primary key forbids it; in Arrow data, in dicts and behind a dictionary."""
    schema = pa.schema([pa.field("c", pa.string(), nullable=required)])
    names = ["c"] if required else []
    why = "table 't': column 'c' is null at position 1, expected string without nulls"
    for array in (pa.array(["a", None, None]), pa.array(["a", None, "a"]).dictionary_encode()):
        with pytest.raises(SchemaMismatch, match=why):
            conform(pa.table({"c": array}), schema, names, "t")
    with pytest.raises(SchemaMismatch, match=why):
        conform([{"c": "a"}, {"c": None}], schema, names, "t")
    with pytest.raises(SchemaMismatch, match=why):
        conform([{"c": "a"}, {}], schema, names, "t")


@pytest.mark.parametrize("rows", [pa.table({"name": ["a"]}), [{"name": "a"}], [{}]])
def test_a_required_column_that_is_missing_is_named(rows: Any) -> None:
    """The message says what was found instead."""
    with pytest.raises(SchemaMismatch, match=r"table 't': column 'id' \(int64\) is missing, found \["):
        conform(rows, SCHEMA, ["id"], "t")


def test_unknown_and_repeated_columns_are_named() -> None:
    """Otherwise a misspelt column would be lost without an error."""
    with pytest.raises(SchemaMismatch, match=r"table 't': unknown columns \['nmae'\], expected \['id', 'name'"):
        conform(pa.table({"id": [1], "nmae": ["x"]}), SCHEMA, ["id"], "t")
    with pytest.raises(SchemaMismatch, match=r"unknown columns \['nmae'\] at position 1, expected"):
        conform([{"id": 1}, {"id": 2, "nmae": "x"}], SCHEMA, ["id"], "t")
    with pytest.raises(SchemaMismatch, match="a column stands twice"):
        conform(pa.table([pa.array([1]), pa.array([2])], ["id", "id"]), SCHEMA, ["id"], "t")


@pytest.mark.parametrize("rows", [None, 5, "text", b"text", {"id": 1}, iter([ROW])])
def test_a_value_that_is_no_rows_is_refused(rows: Any) -> None:
    """The message names what it was and what is expected."""
    with pytest.raises(SchemaMismatch, match=f"{type(rows).__name__} is not rows; expected a pyarrow Table"):
        conform(rows, SCHEMA, ["id"], "t")


def test_a_row_that_is_no_dict_is_named() -> None:
    """The message has its position."""
    with pytest.raises(SchemaMismatch, match="position 1 is of type tuple, expected a dict of columns"):
        conform([ROW, (1, "a")], SCHEMA, ["id"], "t")  # type: ignore[list-item]


@pytest.mark.parametrize(
    "keys",
    [
        [(1, "a"), (2, "b")],
        [[1, "a"], [2, "b"]],
        [{"id": 1, "name": "a"}, {"name": "b", "id": 2, "price": None}],
    ],
)
def test_keys_come_in_several_shapes(keys: Any) -> None:
    """Tuples, lists, and dicts, of which other columns are ignored."""
    assert key_rows(keys, ["id", "name"], "t") == [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}]


def test_keys_may_be_arrow_data_or_bare_values() -> None:
    """Of Arrow data the key columns are taken; a bare value is a key of one column."""
    table = pa.table({"price": [1], "id": [7]})
    assert key_rows(table, ["id"], "t").to_pylist() == [{"id": 7}]
    assert key_rows([7, (8,)], ["id"], "t") == [{"id": 7}, {"id": 8}]


def test_a_key_of_the_wrong_length_is_named() -> None:
    """The message has position, number of values and the key columns."""
    with pytest.raises(SchemaMismatch, match=r"the key at position 1 has 1 values, expected 2 for \['id', 'name'\]"):
        key_rows([(1, "a"), (2,)], ["id", "name"], "t")
