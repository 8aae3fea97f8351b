"""Keyed read-modify-write without Spark: rows combined with each other and with what is stored."""

from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tussock.compute.spark.batches.task_times import Meter
from tussock.compute.spark.options.options import StoreAddress, WriteOptions, WritePlan
from tussock.compute.spark.writes.combined_rows import combine_rows
from tussock.compute.spark.writes.merges import check_merge, merged_batches
from tussock.compute.spark.writes.writer import Upload
from tussock.statestore import connect
from tussock.statestore.errors import InvalidBatch, InvalidOption, SchemaMismatch

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
    """Each function works on its type; sum, min and max skip nulls."""
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


def found_at(table: Any, epoch: int) -> Any:
    """What finds the stored rows of keys at an epoch; 0: nothing was ever stored."""
    return (lambda keys: table.multi_get(keys, epoch=epoch)) if epoch else None


def test_rows_are_combined_with_stored_rows(tmp_path: Path) -> None:
    """A second batch is combined with the rows of the first; missing columns keep their values; new keys are added."""
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
            merged_batches(second.to_batches(), table, MERGE, found_at(table, read_epoch), Meter())
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
def test_combining_equals_plain_python(rows: list[tuple[int, int | None, float | None]]) -> None:
    """Compared with a loop over rows, for any order and any nulls."""
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
    """A sum that overflows within a batch or with the stored row is refused."""
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
            list(merged_batches(row.to_batches(), table, {"n": "sum"}, found_at(table, epoch), Meter()))


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
    """Before anything is computed, with table, column and what is possible."""
    with pytest.raises(InvalidOption, match=message):
        check_merge(merge, SCHEMA, ["k"], "t")


def merge_key(kind: pa.DataType, given: pa.DataType, batches: list[list[Any]], function: str) -> Any:
    """The row of a key whose column has `kind` after these batches of rows of another type, all of that key."""
    with connect("memory://", compaction=False) as store:
        table = store.create_table("t", pa.schema([("k", pa.int64()), ("v", kind)]), ["k"])
        for values in batches:
            rows = pa.record_batch({"k": pa.repeat(1, len(values)), "v": pa.array(values, given)})
            find = found_at(table, store.committed_epoch)
            written = list(merged_batches([rows], table, {"v": function}, find, Meter()))
            table.upsert(pa.Table.from_batches(written), epoch := store.new_epoch())
            store.commit_epoch(epoch)
        return table.get(1)["v"]


@pytest.mark.parametrize(
    ("kind", "given", "first", "second", "function"),
    [
        (pa.timestamp("s"), pa.timestamp("us"), datetime(2020, 1, 1), datetime(2020, 1, 1, microsecond=5), "max"),
        (pa.uint64(), pa.int64(), 5, -3, "sum"),
        (pa.int8(), pa.int64(), 1, 300, "last"),
        (pa.struct([("a", pa.int8())]), pa.struct([("a", pa.int64())]), {"a": 1}, {"a": 300}, "last"),
        (pa.float32(), pa.float64(), 1.0, 1e300, "max"),
        (pa.decimal128(5, 1), pa.decimal128(10, 2), Decimal("1.00"), Decimal("1.11"), "sum"),
    ],
    ids=str,
)
def test_a_row_that_the_table_cannot_hold_is_refused_by_a_merge_too(
    kind: pa.DataType, given: pa.DataType, first: Any, second: Any, function: str
) -> None:
    """In the first batch and beside a stored row, with the error of any other write."""
    for batches in ([[first], [second]], [[first, second]]):
        with pytest.raises(SchemaMismatch, match=r"column 'v': expected .*nothing was stored"):
            merge_key(kind, given, batches, function)


@pytest.mark.parametrize(
    ("kind", "given", "values"),
    [
        (pa.dictionary(pa.int32(), pa.string()), pa.string(), ["b", "a", "d", "c"]),
        (pa.string_view(), pa.string(), ["b", "a", "d", "c"]),
        (pa.binary_view(), pa.binary(), [b"b", b"a", b"d", b"c"]),
        (pa.binary(1), pa.binary(), [b"b", b"a", b"d", b"c"]),
        (pa.large_string(), pa.string(), ["b", "a", "d", "c"]),
        (pa.time32("s"), pa.time64("us"), [time(2), time(1), time(4), time(3)]),
        (pa.timestamp("s"), pa.timestamp("us"), [datetime(2020, 1, day) for day in (2, 1, 4, 3)]),
        (pa.date64(), pa.date32(), [date(2020, 1, day) for day in (2, 1, 4, 3)]),
        (pa.duration("s"), pa.duration("us"), [timedelta(day) for day in (2, 1, 4, 3)]),
        (pa.uint8(), pa.int64(), [2, 1, 4, 3]),
        (pa.bool_(), pa.bool_(), [True, False, True, False]),
    ],
    ids=str,
)
def test_values_of_every_type_are_merged(kind: pa.DataType, given: pa.DataType, values: list[Any]) -> None:
    """Two rows in each of two batches."""
    batches = [values[:2], values[2:]]
    expected = {"first": values[0], "last": values[-1], "min": min(values), "max": max(values)}
    assert {function: merge_key(kind, given, batches, function) for function in expected} == expected


def test_a_sum_has_the_width_of_the_table() -> None:
    """It does not have the width of the rows."""
    most = 2**31 - 1
    assert merge_key(pa.int64(), pa.int32(), [[most, most], [most]], "sum") == 3 * most


@pytest.mark.parametrize(("function", "value"), [("min", 1.0), ("max", 2.0)])
def test_min_and_max_skip_nan_beside_a_number(function: str, value: float) -> None:
    """Unlike in the order of keys and of Spark, and wherever it comes. A sum with a NaN is NaN."""
    kind, nan = pa.float64(), float("nan")
    for batches in ([[nan, 1.0, 2.0]], [[nan], [1.0, 2.0]], [[1.0, 2.0], [nan]]):
        assert merge_key(kind, kind, batches, function) == value
        assert merge_key(kind, kind, batches, "sum") != merge_key(kind, kind, batches, "sum")
    assert merge_key(kind, kind, [[nan], [nan]], function) != value


def test_a_merge_past_the_retention_reads_through_the_pin_of_its_job(tmp_path: Path) -> None:
    """It once tried to write through the snapshot as well, which is refused."""
    url = tmp_path.as_uri()
    with connect(url, retention=0, compaction=False) as store:
        table = store.create_table("t", pa.schema([("k", pa.int64()), ("n", pa.int64())]), ["k"])

        def commit(number: int) -> int:
            table.upsert([{"k": 1, "n": number}], epoch := store.new_epoch())
            return store.commit_epoch(epoch)

        commit(1)
        with store.pin_snapshot() as pinned:
            commit(100)
            address = StoreAddress(url, (("retention", 0),))
            plan = WritePlan(stage="", merge={"n": "sum"}, read_epoch=pinned.epoch)
            options = WriteOptions(address, "t", False, None, None, None, plan)
            uploaded = Upload(options, table.spec).run(iter([pa.record_batch({"k": [1], "n": [5]})]))
        store.commit_uploaded({"t": uploaded.levels})
        assert table.get(1) == {"k": 1, "n": 6}
