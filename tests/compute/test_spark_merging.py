"""Keyed read-modify-write without Spark: rows combined with each other and with what is stored."""

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tussock.compute.spark.merging import check_merge, combine_rows, merged_batches
from tussock.compute.spark.spent import Meter
from tussock.statestore import connect
from tussock.statestore.errors import InvalidBatch, InvalidOption

SCHEMA = pa.schema(
    [
        ("k", pa.string()),
        ("n", pa.int64()),
        ("low", pa.string()),
        ("high", pa.float64()),
        ("born", pa.timestamp("us", "UTC")),
        ("seen", pa.list_(pa.int32())),
        ("cost", pa.decimal128(10, 2)),
        ("note", pa.string()),
    ]
)
MERGE = {"n": "sum", "low": "min", "high": "max", "born": "first", "seen": "last", "cost": "sum"}
NOON = datetime(2013, 1, 1, 12, tzinfo=UTC)


def table_of(rows: list[dict[str, Any]], names: list[str] | None = None) -> pa.Table:
    schema = SCHEMA if names is None else pa.schema([SCHEMA.field(name) for name in names])
    return pa.Table.from_pylist(rows, schema=schema)


def test_rows_of_a_key_are_combined_in_their_order() -> None:
    """Each function on its own type, nulls not counted by sum, min and max."""
    rows = table_of(
        [
            {"k": "a", "n": 1, "low": "m", "high": 1.0, "born": NOON, "seen": [1], "cost": Decimal("0.10")},
            {"k": "b", "n": None, "note": "b1"},
            {"k": "a", "n": None, "low": "c", "high": None, "born": None, "seen": None, "cost": Decimal("0.20")},
        ]
    )
    assert combine_rows(rows, ["k"], MERGE).to_pylist() == [
        {
            "k": "a",
            "n": 1,
            "low": "c",
            "high": 1.0,
            "born": NOON,
            "seen": None,
            "cost": Decimal("0.30"),
            "note": None,
        },
        {"k": "b", "n": None, "low": None, "high": None, "born": None, "seen": None, "cost": None, "note": "b1"},
    ]


def test_stored_rows_join_in(tmp_path: Path) -> None:
    """A second batch is combined with what the first left; a column that it lacks is kept; new keys are new."""
    with connect(tmp_path.as_uri()) as store:
        table = store.create_table("t", schema=SCHEMA, primary_key=["k"])
        first = table_of(
            [
                {"k": "a", "n": 1, "low": "m", "high": 5.0, "born": NOON, "cost": Decimal("1"), "note": "x"},
                {"k": "b", "n": None, "high": None},
            ]
        )
        table.upsert(first, epoch := store.new_epoch())
        read_epoch = store.commit_epoch(epoch)
        second = table_of(
            [
                {"k": "b", "n": 7, "high": 2.0, "born": NOON, "seen": [3]},
                {"k": "a", "n": 2, "low": "z", "high": 4.0, "born": None, "seen": [1]},
                {"k": "c", "n": 9},
            ],
            ["k", "n", "low", "high", "born", "seen"],
        )
        merged = pa.Table.from_batches(
            merged_batches(second.to_batches(), table, MERGE, read_epoch, Meter())
        ).to_pylist()
    empty = dict.fromkeys(SCHEMA.names)
    assert merged == [
        # `first` is the value of the first row, which was null.
        {**empty, "k": "b", "n": 7, "high": 2.0, "seen": [3]},
        {
            "k": "a",
            "n": 3,
            "low": "m",
            "high": 5.0,
            "born": NOON,
            "seen": [1],
            "cost": Decimal("1.00"),
            "note": "x",
        },
        {**empty, "k": "c", "n": 9},
    ]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 4), st.none() | st.integers(-(2**30), 2**30), st.none() | st.floats(-9, 9)),
        max_size=30,
    )
)
def test_combining_is_what_plain_python_does(rows: list[tuple[int, int | None, float | None]]) -> None:
    """Against a loop over rows, for any order and any nulls."""
    schema = pa.schema(
        [("k", pa.int64()), ("n", pa.int32()), ("m", pa.float64()), ("f", pa.int32()), ("l", pa.int32())]
    )
    table = pa.Table.from_pylist([{"k": k, "n": n, "m": m, "f": n, "l": n} for k, n, m in rows], schema=schema)
    expected: dict[int, dict[str, Any]] = {}
    for k, n, m in rows:
        if k not in expected:
            expected[k] = {"k": k, "n": n, "m": m, "f": n, "l": n}
            continue
        row = expected[k]
        row["n"] = row["n"] if n is None else n + (row["n"] or 0)
        row["m"] = row["m"] if m is None else m if row["m"] is None else max(m, row["m"])
        row["l"] = n
    functions = {"n": "sum", "m": "max", "f": "first", "l": "last"}
    if any(row["n"] is not None and not -(2**31) <= row["n"] < 2**31 for row in expected.values()):
        with pytest.raises(InvalidBatch, match="column 'n': a sum does not fit int32"):
            combine_rows(table, ["k"], functions)
    else:
        assert combine_rows(table, ["k"], functions).to_pylist() == list(expected.values())


@pytest.mark.parametrize("kind", [pa.int64(), pa.uint64()])
def test_sums_that_do_not_fit_are_refused(tmp_path: Path, kind: pa.DataType) -> None:
    """Neither within a batch nor with the stored row does a sum wrap around."""
    most = 2**63 - 1 if kind == pa.int64() else 2**64 - 1
    schema = pa.schema([("k", pa.int64()), ("n", kind)])
    row = pa.Table.from_pylist([{"k": 1, "n": most}], schema=schema)
    assert combine_rows(pa.concat_tables([row, row.set_column(1, "n", [pa.array([0], kind)])]), ["k"], {"n": "sum"})
    with pytest.raises(InvalidBatch, match="column 'n': a sum does not fit"):
        combine_rows(pa.concat_tables([row, row]), ["k"], {"n": "sum"})
    with connect(tmp_path.as_uri()) as store:
        table = store.create_table("t", schema=schema, primary_key=["k"])
        table.upsert(row, epoch := store.new_epoch())
        store.commit_epoch(epoch)
        with pytest.raises(InvalidBatch, match="column 'n': a sum does not fit"):
            list(merged_batches(row.to_batches(), table, {"n": "sum"}, epoch, Meter()))


@pytest.mark.parametrize(
    ("merge", "message"),
    [
        ({"k": "last"}, "merge names 'k'; expected value columns"),
        ({"nope": "sum"}, "merge names 'nope'"),
        ({"n": "avg"}, "merge of column 'n' is 'avg'; expected one of"),
        ({"low": "sum"}, "column 'low' of type string cannot be merged by 'sum'"),
        ({"seen": "max"}, "cannot be merged by 'max'"),
    ],
)
def test_merges_that_cannot_work_are_refused(merge: dict[str, str], message: str) -> None:
    """Before anything is computed, naming table, column and what is possible."""
    with pytest.raises(InvalidOption, match=message):
        check_merge(merge, SCHEMA, ["k"], "t")
