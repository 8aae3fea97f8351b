"""Lists, structs and maps that are kept as Python gives them: just what a column would read back, as copies."""

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tussock.statestore import SchemaMismatch
from tussock.statestore.rows.nested_values import copy_of, nested_take_of
from tussock.statestore.rows.row_codec import RowCodec
from tussock.statestore.tables.typed_input import conform

PAIR = pa.struct([("a", pa.int64()), ("b", pa.string())])
KINDS: list[Any] = [
    pa.list_(pa.int64()),
    pa.list_(pa.int8()),
    pa.list_(pa.field("item", pa.int64(), nullable=False)),
    pa.large_list(pa.string()),
    pa.list_(pa.int64(), 2),
    pa.list_(pa.decimal128(5, 2)),
    pa.list_(pa.timestamp("us", "UTC")),
    pa.list_(pa.list_(pa.int64())),
    PAIR,
    pa.struct([("a", pa.int64())]),
    pa.struct([pa.field("a", pa.int64(), nullable=False), ("b", pa.string())]),
    pa.struct([("a", pa.list_(pa.int64())), ("b", pa.string())]),
    pa.list_(PAIR),
    pa.map_(pa.string(), pa.int64()),
    pa.map_(pa.string(), pa.list_(pa.int64())),
    pa.map_(pa.int64(), PAIR),
]


class Several(list[Any]):
    """A subclass."""


VALUES: list[Any] = [
    None,
    [],
    {},
    [1, 2],
    [1],
    [None, 1],
    [True],
    [1.0],
    [300],
    ["x", "gr\u00fcn"],
    ["\ud800"],
    (1, 2),
    Several([1, 2]),
    [[1], None, []],
    [[1, None], [2**63]],
    [Decimal("1.5"), Decimal("1.50"), None],
    [Decimal("1.505")],
    [dt.datetime(2026, 1, 2, tzinfo=dt.UTC)],
    [dt.datetime(2026, 1, 2)],
    {"a": 1, "b": "x"},
    {"b": "x", "a": 1},
    {"a": 1},
    {"a": None, "b": None},
    {"a": 1, "b": "x", "c": 2},
    {"a": [1, None], "b": None},
    {"a": [1, "x"], "b": None},
    [{"a": 1, "b": "x"}, None],
    [{"a": 1}],
    [("x", 1), ("y", None)],
    [("x", 1), ("x", 2)],
    [("x", [1, 2]), ("y", None)],
    [(1, {"a": 1, "b": "x"}), (2, None)],
    [(None, 1)],
    [["x", 1]],
    [("x", 1, 2)],
    {"x": 1},
    "text",
    5,
]


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_what_is_taken_is_what_arrow_reads_back(kind: Any) -> None:
    """Every value for every type; what Arrow refuses is left to it, and most of what it takes is taken."""
    schema = pa.schema([("v", kind)])
    codec = RowCodec.of(schema, (), nested_take_of)
    assert codec is not None
    taken = 0
    for value in VALUES:
        row = codec.row({"v": value})
        try:
            read = conform([{"v": value}], schema, (), "t").to_pylist()[0]
        except SchemaMismatch:
            assert row is None, (kind, value)
            continue
        if row is not None:
            taken += value is not None
            assert repr(row) == repr(read), (kind, value)
    assert taken, kind


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_copies_share_nothing_that_can_change(kind: Any) -> None:
    """Neither what is taken with what was given, nor what is copied with what it was copied from."""
    take, copy = nested_take_of(kind), copy_of(kind)
    assert take is not None
    assert copy is not None
    codec = RowCodec.of(pa.schema([("v", kind)]), (), nested_take_of)
    assert codec is not None
    for value in VALUES:
        row = codec.row({"v": value})
        if row is None or row["v"] is None:
            continue
        other = copy(row["v"])
        assert repr(other) == repr(row["v"])
        assert not changeable(value) & changeable(row["v"])
        assert not changeable(other) & changeable(row["v"])


def changeable(value: Any) -> set[int]:
    """Lists and dicts in a value, by their place in memory."""
    if isinstance(value, dict):
        return {id(value)}.union(*map(changeable, value.values()))
    if isinstance(value, list | tuple):
        return ({id(value)} if isinstance(value, list) else set()).union(*map(changeable, value))
    return set()


def test_rows_of_nested_types_are_taken_only_where_that_is_asked_for() -> None:
    """A table gives the rows that it keeps to its readers, who could change them."""
    assert RowCodec.of(pa.schema([("v", pa.list_(pa.int64()))]), ()) is None


@pytest.mark.parametrize(
    "kind",
    [
        pa.list_(pa.float32()),
        pa.struct([("a", pa.timestamp("ns"))]),
        pa.map_(pa.list_(pa.int64()), pa.int64()),
        pa.map_(pa.string(), pa.float32()),
        pa.list_view(pa.int64()),
    ],
    ids=str,
)
def test_types_that_hold_others_without_such_a_class_have_no_codec(kind: Any) -> None:
    """And are copied all the same."""
    assert nested_take_of(kind) is None
    copy = copy_of(kind)
    assert copy is not None
    assert copy([1]) == [1] if not pa.types.is_struct(kind) else copy({"a": 1}) == {"a": 1}
