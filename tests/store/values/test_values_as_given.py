"""A value is stored as given, or refused: at any depth, as Arrow data and as Python values, keys too."""

import pickle
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from support.store.stores import changes_of
from tussock.statestore import InvalidOption, SchemaMismatch, StateStore, TussockError, TypedTable, connect
from tussock.statestore.tables import table_options as options_module
from tussock.statestore.tables import typed_input as conform_module

DAY = datetime(2020, 1, 1)


def keyed_table(kind: pa.DataType) -> TypedTable:
    """A table in memory with a key of that type and a number beside it."""
    table: TypedTable = connect("memory://").create_table("t", pa.schema([("k", kind), ("v", pa.int64())]), ["k"])
    return table


def valued_table(kind: pa.DataType) -> TypedTable:
    """A table in memory with a column of that type beside its key."""
    table: TypedTable = connect("memory://").create_table("t", pa.schema([("k", pa.int64()), ("v", kind)]), ["k"])
    return table


def rows(table: TypedTable) -> list[dict[str, Any]]:
    return [row for batch in table.read() for row in batch.to_pylist()]


def text(*values: bytes | None) -> pa.StringArray:
    """Strings of any bytes: Arrow makes an array of the buffers without checking them."""
    return pa.array(values, pa.binary()).view(pa.string())


COARSE_KEYS = [
    (pa.timestamp("s"), DAY, DAY.replace(microsecond=1)),
    (pa.timestamp("ms"), DAY, DAY.replace(microsecond=999)),
    (pa.timestamp("s", "UTC"), DAY.replace(tzinfo=UTC), DAY.replace(tzinfo=UTC, microsecond=1)),
    (pa.timestamp("us"), DAY, np.datetime64("2020-01-01T00:00:00.000000001")),
    (pa.time32("s"), time(1), time(1, 0, 0, 999_999)),
    (pa.time32("ms"), time(1), time(1, 0, 0, 1)),
    (pa.duration("s"), timedelta(1), timedelta(1, microseconds=1)),
    (pa.date32(), date(2020, 1, 1), datetime(2020, 1, 1, 23)),
    (pa.date32(), date(2020, 1, 1), np.datetime64("2020-01-01T23")),
    (pa.timestamp("us", "UTC"), DAY.replace(tzinfo=UTC), DAY),
    (pa.timestamp("us"), datetime(1970, 1, 1), 0),
    (pa.int64(), 1, True),
    (pa.int64(), 1, 1.0),
    (pa.float64(), float(2**53), 2**53 + 1),
    (pa.float32(), float(2**24), 2**24 + 1),
    (pa.float32(), float(2**24), np.int64(2**24 + 1)),
    (pa.float32(), float("inf"), 2**128),
    (pa.float64(), float("inf"), 2**1024),
    (pa.bool_(), True, 1),
]


@pytest.mark.parametrize(("kind", "key", "other"), COARSE_KEYS, ids=str)
def test_a_key_that_the_column_cannot_hold_is_refused_and_hits_no_other_row(
    kind: pa.DataType, key: Any, other: Any
) -> None:
    """By each call that takes a key; a time cut to the column's unit would be the key of another row."""
    table = keyed_table(kind)
    table.upsert([{"k": key, "v": 1}], 1)
    calls = [
        lambda: table.upsert([{"k": other, "v": 2}], 1),
        lambda: table.ingest_batch([{"k": other, "v": 2}], 1),
        lambda: table.delete([other], 1),
        lambda: table.get(other),
        lambda: table.multi_get([other]),
        lambda: table.read(prefix=(other,)),
        lambda: table.read(between=((other,), ())),
        lambda: table.read(between=((), (other,))),
    ]
    for call in calls:
        with pytest.raises(SchemaMismatch, match=r"'k': expected .*found"):
            call()
    assert table.get(key) == {"k": key, "v": 1}
    assert len(rows(table)) == 1


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.time32("s"), time(1, 2, 3, 999_999)),
        (pa.duration("s"), timedelta(seconds=1, microseconds=999_999)),
        (pa.timestamp("s"), DAY.replace(microsecond=1)),
        (pa.time64("us"), time(1, tzinfo=UTC)),
        (pa.list_(pa.int64()), [1.0]),
        (pa.list_(pa.int64()), np.array([1.5])),
        (pa.list_(pa.int64()), [True]),
        (pa.list_(pa.binary()), ["a"]),
        (pa.list_(pa.string()), [b"a"]),
        (pa.list_(pa.date32()), [datetime(2020, 1, 1, 23)]),
        (pa.list_(pa.float32()), [1e300]),
        (pa.float32(), 2**24 + 1),
        (pa.float32(), np.int64(-(2**24) - 1)),
        (pa.float32(), 10**400),
        (pa.float16(), 2049),
        (pa.float16(), 65_519),
        (pa.list_(pa.float32()), np.array([2**24 + 1])),
        (pa.struct([("a", pa.float16())]), {"a": 2049}),
        (pa.map_(pa.string(), pa.float32()), {"a": 2**24 + 1}),
        (pa.dictionary(pa.int32(), pa.float32()), 2**24 + 1),
        (pa.list_(pa.int64()), {1, 2}),
        (pa.struct([("a", pa.int64())]), {"a": 1, "zzz": 2}),
        (pa.struct([pa.field("a", pa.int64(), nullable=False)]), {"a": None}),
        (pa.struct([("a", pa.timestamp("us", "UTC"))]), {"a": DAY}),
        (pa.struct([("a", pa.int64())]), [("a", 1)]),
        (pa.map_(pa.string(), pa.int64()), {"a": 1.0}),
        (pa.map_(pa.string(), pa.int64()), [("a", 1, 2)]),
        (pa.map_(pa.string(), pa.int64()), {"a": "1"}),
        (pa.list_(pa.struct([("a", pa.list_(pa.int8()))])), [{"a": [300]}]),
    ],
    ids=str,
)
def test_a_python_value_that_would_change_is_refused_at_any_depth(kind: pa.DataType, value: Any) -> None:
    """Cut times, dropped fields, numbers of another kind, within lists, structs and maps too."""
    table = valued_table(kind)
    with pytest.raises(SchemaMismatch, match=r"column 'v': expected .* at position 1, which does not fit.*nothing was"):
        table.upsert([{"k": 1, "v": None}, {"k": 2, "v": value}], 1)
    assert rows(table) == []


@pytest.mark.parametrize(
    ("found", "kind"),
    [
        (pa.array([["12"]]), pa.list_(pa.int64())),
        (pa.array([[12]]), pa.list_(pa.string())),
        (pa.array([[0.5]]), pa.list_(pa.bool_())),
        (pa.array([[1e300]]), pa.list_(pa.float32())),
        (pa.array([{"a": 1, "b": 2}]), pa.struct([("a", pa.int64())])),
        (pa.array([{"b": 2}]), pa.struct([("a", pa.int64())])),
        (pa.array([{"a": "1"}]), pa.struct([("a", pa.int64())])),
        (pa.array([{"a": DAY}]), pa.struct([("a", pa.timestamp("us", "UTC"))])),
        (pa.array([[("a", "1")]], pa.map_(pa.string(), pa.string())), pa.map_(pa.string(), pa.int64())),
        (pa.array([[{"a": 1, "b": 2}]]), pa.list_(pa.struct([("a", pa.int64())]))),
        (pa.array([{"a": None}]), pa.struct([pa.field("a", pa.int64(), nullable=False)])),
    ],
    ids=str,
)
def test_arrow_data_that_would_change_is_refused_at_any_depth(found: pa.Array, kind: pa.DataType) -> None:
    """A producer that adds, renames or retypes a nested field gets an error."""
    table = valued_table(kind)
    with pytest.raises(SchemaMismatch, match=r"column 'v': expected .*nothing was stored"):
        table.upsert(pa.table({"k": [1], "v": found}), 1)
    assert rows(table) == []


@pytest.mark.parametrize(
    ("found", "kind", "stored"),
    [
        (pa.array([[1, None], None, []], pa.list_(pa.int64())), pa.list_(pa.int8()), [[1, None], None, []]),
        (pa.array([{"b": 2, "a": 1}, None]), pa.struct([("a", pa.int8()), ("b", pa.int8())]), [{"a": 1, "b": 2}, None]),
        (pa.array([{"a": 1}]), pa.struct([("a", pa.int64()), ("b", pa.string())]), [{"a": 1, "b": None}]),
        (
            pa.array([[("a", 1)], None, []], pa.map_(pa.large_string(), pa.int64())),
            pa.map_(pa.string(), pa.int8()),
            [[("a", 1)], None, []],
        ),
        (pa.array([[DAY]], pa.list_(pa.timestamp("us"))), pa.list_(pa.timestamp("s")), [[DAY]]),
    ],
    ids=str,
)
def test_nested_arrow_data_of_the_same_kinds_is_converted(found: pa.Array, kind: pa.DataType, stored: Any) -> None:
    """Narrower numbers, other units, fields in another order, a missing field; also of a slice."""
    table = valued_table(kind)
    padded = pa.concat_arrays([found.slice(0, 1), found]).slice(1)
    table.upsert(pa.table({"k": range(len(found)), "v": padded}), 1)
    assert table.multi_get(range(len(found))).field("v").to_pylist() == stored


@pytest.mark.parametrize(
    ("kind", "key", "stored"),
    [
        (pa.int64(), np.int64(5), 5),
        (pa.int8(), np.int32(-5), -5),
        (pa.uint64(), np.uint8(200), 200),
        (pa.uint64(), np.uint64(2**64 - 1), 2**64 - 1),
        (pa.bool_(), np.True_, True),
        (pa.float64(), np.float32(0.5), 0.5),
        (pa.float64(), 3, 3.0),
        (pa.float64(), 2**60, 2.0**60),
        (pa.float32(), 2**24 + 2, 2.0**24 + 2),
        (pa.float32(), np.int64(-(2**30)), -(2.0**30)),
        (pa.float32(), 0.1, float(np.float32(0.1))),
        (pa.string(), np.str_("ab"), "ab"),
        (pa.binary(), bytearray(b"ab"), b"ab"),
        (pa.date32(), np.datetime64("2020-01-01"), date(2020, 1, 1)),
        (pa.timestamp("us"), np.datetime64("2020-01-01T00:00:00"), DAY),
        (pa.duration("us"), np.timedelta64(5, "ms"), timedelta(milliseconds=5)),
        (pa.int64(), pa.scalar(5, pa.int8()), 5),
        (pa.decimal128(9, 2), 3, Decimal("3.00")),
    ],
    ids=str,
)
def test_scalars_of_numpy_and_arrow_are_keys(kind: pa.DataType, key: Any, stored: Any) -> None:
    """`multi_get`, `get`, `prefix`, `between` and `delete` all take them."""
    table = keyed_table(kind)
    table.upsert([{"k": key, "v": 1}], 1)
    row = {"k": stored, "v": 1}
    assert table.get(key) == table.get(stored) == row
    assert table.multi_get([key]).to_pylist() == [row]
    assert [batch.to_pylist() for batch in table.read(prefix=(key,))] == [[row]]
    assert [batch.to_pylist() for batch in table.read(between=((key,), (key,)))] == [[row]]
    table.delete([key], 1)
    assert rows(table) == []


@pytest.mark.parametrize("key", [pa.scalar(b"a"), pa.scalar("a"), np.float64(5.0), np.datetime64("2020"), object()])
def test_a_foreign_scalar_is_no_key(key: Any) -> None:
    """The error names the column and what was found."""
    table = keyed_table(pa.int64())
    for call in (lambda: table.get(key), lambda: table.delete([key], 1)):
        with pytest.raises(SchemaMismatch, match="'k': expected int64, found"):
            call()


@pytest.mark.parametrize("strings", [text(b"a", b"\xff"), text(b"a", b"\xff").cast(pa.large_string(), safe=False)])
def test_text_that_is_no_utf8_is_refused(strings: pa.Array) -> None:
    """In a key, beside it, in a list and behind a dictionary; nothing is stored."""
    for column in (strings, pa.DictionaryArray.from_arrays(pa.array([0, 1]), strings)):
        for table in (keyed_table(pa.string()), valued_table(pa.string())):
            data = {name: pa.array([1, 2]) for name in ("k", "v")}
            data["k" if table.schema.field("k").type == pa.string() else "v"] = column
            for write in (table.upsert, table.ingest_batch):
                with pytest.raises(SchemaMismatch, match=r"text is stored as UTF-8.*nothing was stored"):
                    write(pa.table(data), 1)
            assert rows(table) == []
    nested = pa.ListArray.from_arrays(pa.array([0, 2], pa.int32()), text(b"a", b"\xff"))
    with pytest.raises(SchemaMismatch, match="text is stored as UTF-8"):
        valued_table(pa.list_(pa.string())).upsert(pa.table({"k": [1], "v": nested}), 1)


def test_old_rows_whose_text_is_no_utf8_can_be_read_and_deleted(
    store: StateStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Arrow's arrays hold such bytes; `delete` takes the key that a read returned."""
    schema = pa.schema([("k", pa.string()), ("n", pa.int64()), ("v", pa.string())])
    table = store.create_table("t", schema, ["k", "n"])
    with monkeypatch.context() as patched:  # as older programs wrote them
        patched.setattr(conform_module, "check_text", lambda _: None)
        table.upsert(pa.table({"k": text(b"ok", b"\xff"), "n": [1, 2], "v": text(b"\xfe", b"fine")}), 1)
    store.commit_epoch(1)
    store.compact("t")
    read = pa.Table.from_batches(table.read())
    assert sorted(read.column("k").cast(pa.binary()).to_pylist()) == [b"ok", b"\xff"]
    bad = read.filter(pa.compute.equal(read.column("n"), 2))
    assert table.multi_get(bad).field("v").to_pylist() == ["fine"]
    assert len(list(table.change_feed(0)))
    assert sum(batch.num_rows for batch in table.changes(0)) == 2
    got = table.get(("ok", 1))
    assert got is not None
    assert got["v"].as_buffer().to_pybytes() == b"\xfe"
    table.delete(bad, 2)
    store.commit_epoch(2)
    assert [batch.column("n").to_pylist() for batch in table.read()] == [[1]]


def test_a_dictionary_column_holds_any_number_of_values(store: StateStore) -> None:
    """Rows are merged into batches of any size, so the values are kept instead of a small index type."""
    for index in (pa.int8(), pa.uint8(), pa.int16(), pa.int64()):
        kind = pa.dictionary(index, pa.string())
        table = store.create_table(f"t{index}", pa.schema([("k", pa.int64()), ("v", kind)]), ["k"])
        assert table.schema.field("v").type == pa.dictionary(pa.int32(), pa.string())
        for part in range(3):
            keys = range(100 * part, 100 * part + 100)
            table.upsert(
                pa.table({"k": keys, "v": pa.array([f"v{key}" for key in keys]).dictionary_encode()}), part + 1
            )
            table.upsert([{"k": 1000 + part, "v": "same"}], part + 1)
    for epoch in (1, 2, 3):
        store.commit_epoch(epoch)
    for name in store.tables():
        store.compact(name)
        table = store.table(name)
        found = {row["k"]: row["v"] for batch in table.read() for row in batch.to_pylist()}
        assert found == {key: f"v{key}" for key in range(300)} | {1000 + part: "same" for part in range(3)}
        assert table.multi_get(list(range(300))).field("v").to_pylist() == [f"v{key}" for key in range(300)]
        assert len(changes_of(table)) == 303
        assert sum(batch.num_rows for batch in table.change_feed(0)) == 303


def test_a_table_that_was_created_with_a_small_dictionary_is_readable(
    store: StateStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Older programs kept the index type; its rows are read like those of a new table."""
    kind = pa.dictionary(pa.int8(), pa.string(), ordered=True)
    with monkeypatch.context() as patched:
        patched.setattr(options_module, "shown_schema", lambda schema: schema)
        store.create_table("t", pa.schema([("k", pa.int64()), ("v", kind)]), ["k"])
    spec = store.table("t").spec
    assert pa.ipc.read_schema(pa.py_buffer(spec.schema)).field("v").type == kind
    table = store.table("t")
    table.upsert(pa.table({"k": range(300), "v": [f"v{key}" for key in range(300)]}), 1)
    store.commit_epoch(1)
    store.compact("t")
    assert {row["k"]: row["v"] for row in rows(table)} == {key: f"v{key}" for key in range(300)}
    assert store.alter_table("t", add={"w": pa.dictionary(pa.int8(), pa.string())}).get(299)["w"] is None


@pytest.mark.parametrize("values", [pa.array([1, 2, None]), pa.array([1.5, -0.0, None]), pa.array([b"a", b"", None])])
def test_a_dictionary_of_any_plain_type_is_stored(values: pa.Array) -> None:
    """Not only strings; nulls stay, wherever the dictionary has them."""
    table = valued_table(pa.dictionary(pa.int8(), values.type))
    table.upsert(pa.table({"k": [1, 2, 3], "v": values.dictionary_encode(null_encoding="encode")}), 1)
    assert str([row["v"] for row in sorted(rows(table), key=lambda row: row["k"])]) == str(values.to_pylist())


@pytest.mark.parametrize(
    ("kind", "number"),
    [
        (pa.time64("ns"), 1),
        (pa.timestamp("us"), 1 << 62),
        (pa.timestamp("s", "UTC"), -(1 << 50)),
        (pa.date32(), (1 << 31) - 1),
        (pa.duration("s"), 1 << 62),
        (pa.timestamp("us", "Mars/Base"), 5),
    ],
    ids=str,
)
def test_a_value_without_a_python_class_comes_as_an_arrow_scalar(kind: pa.DataType, number: int) -> None:
    """Exactly, as a key and beside it, in a list too; and it is accepted as a key again."""
    column = pa.array([number], pa.int32() if kind.bit_width == 32 else pa.int64()).view(kind)
    table = keyed_table(kind)
    table.upsert(pa.table({"k": column, "v": [1]}), 1)
    row = table.get(column[0])
    assert row is not None
    assert row["k"] == column[0]
    assert table.get(row["k"]) == row
    table.delete([row["k"]], 1)
    assert table.get(row["k"]) is None
    other = valued_table(pa.struct([("plain", kind), ("list", pa.list_(kind))]))
    nested = pa.StructArray.from_arrays(
        [column, pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), column)],
        fields=list(other.schema.field("v").type),
    )
    other.upsert(pa.table({"k": [1], "v": nested}), 1)
    got = other.get(1)
    assert got is not None
    assert got["v"] == nested[0]


def test_later_writes_to_the_callers_memory_are_not_stored() -> None:
    """For raw and typed tables, and every call that writes rows."""
    offsets = np.arange(0, 33, 8, dtype=np.int32)
    for raw in (True, False):
        for call in ("ingest_batch", "upsert"):
            keys, values = bytearray(b"00000001000000020000000300000004"), bytearray(b"AAAAAAAA" * 4)
            key, value = (
                pa.Array.from_buffers(pa.binary(), 4, [None, pa.py_buffer(offsets), pa.py_buffer(data)])
                for data in (keys, values)
            )
            store = connect("memory://")
            schema = None if raw else pa.schema([("key", pa.binary()), ("value", pa.binary())])
            table = store.create_table("t", schema, None if raw else ["key"])
            getattr(table, call)(pa.record_batch({"key": key, "value": value}), 1)
            keys[:], values[:] = b"9" * 32, b"Z" * 32
            found = table.get(b"00000002")
            assert found == (b"AAAAAAAA" if raw else {"key": b"00000002", "value": b"AAAAAAAA"})


@pytest.mark.parametrize(
    "kind",
    [
        pa.list_(pa.string_view()),
        pa.list_(pa.large_list(pa.int8())),
        pa.struct([("a", pa.dictionary(pa.int8(), pa.string()))]),
        pa.struct([pa.field("a", pa.int8()), pa.field("a", pa.int8())]),
        pa.list_(pa.list_(pa.binary_view())),
        pa.map_(pa.string(), pa.list_(pa.int8(), 2)),
        pa.dictionary(pa.int8(), pa.list_(pa.int8())),
        pa.dictionary(pa.int8(), pa.decimal32(5, 2)),
    ],
    ids=str,
)
def test_a_type_that_could_never_be_written_is_refused_at_the_creation(kind: pa.DataType) -> None:
    """Also if a column of it is to be added."""
    store = connect("memory://")
    with pytest.raises(SchemaMismatch, match="column 'v' has type"):
        store.create_table("t", pa.schema([("k", pa.int64()), ("v", kind)]), ["k"])
    store.create_table("t", pa.schema([("k", pa.int64())]), ["k"])
    with pytest.raises(SchemaMismatch, match="column 'v' has type"):
        store.alter_table("t", add={"v": kind})
    assert store.table("t").schema.names == ["k"]


def test_pickling_a_store_raises_a_clear_error() -> None:
    """Its tables and snapshots, too; the error says what to do instead."""
    store = connect("memory://")
    table = store.create_table("t")
    table.ingest_batch([(b"a", b"1")], 1)
    store.commit_epoch(1)
    with store.pin_snapshot() as snapshot:
        for thing in (store, table, snapshot, snapshot.table("t")):
            with pytest.raises(InvalidOption, match=r"memory://.*pass the URL on and connect there") as caught:
                pickle.dumps(thing)
            assert isinstance(caught.value, TussockError)
