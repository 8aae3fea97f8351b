"""A typed table whose columns change: earlier rows read as if the columns had always been so."""

import contextlib
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from support import inside
from support.buckets.faulty_bucket import Crash, Fate, FaultyBucket, at_calls
from support.store.stores import TickingSystem, changes_of, open_on
from support.store.versions import ModelBucket
from tussock.statestore import InvalidOption, ObjectStoreUnavailable, SchemaMismatch, StateStore, TableNotFound, connect
from tussock.statestore import clone as clone_store
from tussock.statestore import restore as restore_store

OLD = pa.schema([pa.field("id", pa.int64(), nullable=False), ("qty", pa.int8()), ("price", pa.float32())])
NEW = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("qty", pa.decimal128(12, 2)),
        ("price", pa.float64()),
        ("note", pa.string()),
        ("tags", pa.list_(pa.int32())),
    ]
)
ADD = {"note": pa.string(), "tags": pa.list_(pa.int32())}
WIDEN = {"qty": pa.decimal128(12, 2), "price": pa.float64()}


def old_row(number: int) -> dict[str, Any]:
    """A row of the old columns: a value, a null, and extremes."""
    return {"id": number, "qty": None if number % 3 == 0 else number % 256 - 128, "price": number / 4}


def new_row(number: int, note: str | None = None) -> dict[str, Any]:
    """A row that the old columns could not hold."""
    return {"id": number, "qty": Decimal("1234567.25"), "price": 1e300, "note": note, "tags": [number, None]}


def widen(row: dict[str, Any]) -> dict[str, Any]:
    """An old row as the new columns show it."""
    return {"note": None, "tags": None, **row, "qty": None if row["qty"] is None else Decimal(row["qty"])}


def write_and_commit(store: StateStore, table: Any, rows: list[dict[str, Any]], deleted: tuple[int, ...] = ()) -> int:
    epoch = store.new_epoch()
    if rows:
        table.upsert(rows, epoch)
    if deleted:
        table.delete([(key,) for key in deleted], epoch)
    return store.commit_epoch(epoch)


def rows_of(batches: Any) -> list[dict[str, Any]]:
    return sorted((row for batch in batches for row in batch.to_pylist()), key=lambda row: row["id"])


def fill_and_alter(store: StateStore, count: int = 40) -> tuple[Any, int, int]:
    """Fill a table, alter it, and write new rows over some: returns the table, the old and the new epoch."""
    table = store.create_table("orders", schema=OLD, primary_key=["id"], block_bytes=256)
    first = write_and_commit(store, table, [old_row(number) for number in range(count)])
    store.alter_table("orders", add=ADD, widen=WIDEN)
    last = write_and_commit(store, table, [new_row(number, "x") for number in range(0, count, 4)], deleted=(1, 2))
    return table, first, last


def expected_rows(count: int = 40) -> list[dict[str, Any]]:
    rows = [new_row(number, "x") if number % 4 == 0 else widen(old_row(number)) for number in range(count)]
    return [row for row in rows if row["id"] not in (1, 2)]


def check_reads(store: StateStore, table: Any, first: int, last: int) -> None:
    """Compare every kind of read, at both epochs, in the new columns."""
    before = [widen(old_row(number)) for number in range(40)]
    assert table.schema.equals(NEW)
    for epoch, wanted in ((first, before), (last, expected_rows()), (None, expected_rows())):
        assert rows_of(table.read(epoch=epoch)) == wanted
        by_id = {row["id"]: row for row in wanted}
        assert table.multi_get([0, 1, 3, 99], epoch=epoch).to_pylist() == [by_id.get(key) for key in (0, 1, 3, 99)]
        assert [table.get(key, epoch=epoch) for key in (0, 1, 5, 99)] == [by_id.get(key) for key in (0, 1, 5, 99)]
        # A column that old rows do not have, alone, and with a condition on it.
        noted = rows_of(table.read(["note", "id"], epoch=epoch))
        assert noted == [{"id": row["id"], "note": row["note"]} for row in wanted]
        condition = pc.field("note").is_null() & (pc.field("qty") < Decimal(0))
        found = rows_of(table.read(["id"], filter=condition, epoch=epoch))
        assert [row["id"] for row in found] == [
            row["id"] for row in wanted if row["note"] is None and row["qty"] is not None and row["qty"] < 0
        ]
    with store.pin_snapshot(first) as snapshot:
        pinned: Any = snapshot.table("orders")
        assert pinned.schema.equals(NEW)
        assert rows_of(pinned.read()) == before


def test_old_rows_show_null_and_the_wider_value(store: StateStore, other: StateStore) -> None:
    """For the altering client and another one; before and after a compaction, and in one that keeps both."""
    table, first, last = fill_and_alter(store)
    check_reads(store, table, first, last)
    other.wait_epoch(last)
    check_reads(other, other.table("orders"), first, last)
    store.compact("orders")
    check_reads(store, table, first, last)
    other.version()
    check_reads(other, other.table("orders"), first, last)


def test_changes_show_the_present_columns(store: StateStore) -> None:
    table, first, last = fill_and_alter(store)
    changed = changes_of(table)
    assert list(changed[0]) == [*NEW.names, "op", "epoch"]
    olds = [row for row in changed if row["epoch"] == first]
    kept = sorted(({k: v for k, v in row.items() if k not in ("op", "epoch")} for row in olds), key=lambda r: r["id"])
    assert kept == [widen(old_row(number)) for number in range(40)]
    assert sorted(row["id"] for row in changed if (row["epoch"], row["op"]) == (last, "delete")) == [1, 2]


def test_rows_of_one_epoch_may_be_written_before_and_after_an_alteration(bucket_url: str) -> None:
    """Rows in memory and spilled to SSTs, read before the commit and after it."""
    with connect(bucket_url, compaction=False, buffer_bytes=4096) as store:
        table = store.create_table("orders", schema=OLD, primary_key=["id"])
        epoch = store.new_epoch()
        for start in range(0, 400, 100):
            table.upsert([old_row(number) for number in range(start, start + 100)], epoch)
        assert inside.buffer(store).spilled_ids(), "the buffer is so small that rows were spilled"
        assert store.alter_table("orders", add=ADD, widen=WIDEN).schema.equals(NEW)
        table.upsert([new_row(number) for number in range(0, 400, 8)], epoch)
        wanted = [new_row(number) if number % 8 == 0 else widen(old_row(number)) for number in range(400)]
        for _ in range(2):
            assert rows_of(table.read()) == wanted
            assert rows_of(table.read(["id", "tags"])) == [{"id": row["id"], "tags": row["tags"]} for row in wanted]
            assert table.multi_get(list(range(400))).to_pylist() == wanted
            assert [table.get(key) for key in (0, 7, 399)] == [wanted[key] for key in (0, 7, 399)]
            if epoch:
                store.commit_epoch(epoch)
                epoch = 0


def test_rows_of_a_writer_with_the_old_columns_are_stored(store: StateStore, other: StateStore) -> None:
    """Rows of the old columns, encoded and uploaded before it learns of the change, are read as the new ones."""
    store.create_table("orders", schema=OLD, primary_key=["id"])
    behind: Any = other.table("orders")
    uploaded = behind.upload([pa.RecordBatch.from_pylist([old_row(7)], OLD)])
    epoch = other.new_epoch()
    behind.upsert([old_row(8)], epoch)
    table = store.alter_table("orders", add=ADD, widen=WIDEN)
    other.commit_epoch(epoch)
    store.wait_epoch(other.commit_uploaded({"orders": uploaded}))
    assert rows_of(table.read()) == [widen(old_row(7)), widen(old_row(8))]
    # By now it knows, and what it is given is held to the new columns.
    assert behind.schema.equals(NEW)
    store.wait_epoch(write_and_commit(other, behind, [new_row(9), {"id": 10, "note": "without the others"}]))
    assert table.get(10) == {"id": 10, "qty": None, "price": None, "note": "without the others", "tags": None}
    with pytest.raises(SchemaMismatch, match=r"column 'qty': expected decimal128\(12, 2\), found int8"):
        behind.upload([pa.RecordBatch.from_pylist([old_row(11)], OLD)])


def test_a_repeated_alteration_changes_nothing_and_those_of_two_clients_add_up(
    store: StateStore, other: StateStore
) -> None:
    """A repetition takes no log entry; columns of both clients are there in the order of the log."""
    store.create_table("orders", schema=OLD, primary_key=["id"])
    store.alter_table("orders", add={"a": pa.int64()})
    seq = store.version().seq
    store.alter_table("orders", add={"a": pa.int64()}, widen={"qty": pa.int8(), "price": pa.float32()})
    assert store.version().seq == seq
    table = other.alter_table("orders", add={"b": pa.int64(), "a": pa.int64()}, widen={"qty": pa.int16()})
    assert table.schema.names == ["id", "qty", "price", "a", "b"]
    assert table.schema.field("qty").type == pa.int16()
    store.alter_table("orders", widen=pa.schema([("qty", pa.int64())]))
    assert store.table("orders").schema.field("qty").type == pa.int64()


REFUSED = [
    ({"widen": {"qty": pa.int64(), "price": pa.int64()}}, "column 'price' has type float and cannot become int64"),
    ({"widen": {"qty": pa.uint16()}}, "column 'qty' has type int8 and cannot become uint16"),
    ({"widen": {"id": pa.decimal128(30, 0)}}, "column 'id' has type int64 .* a key column never changes"),
    ({"widen": {"colour": pa.string()}}, "no column 'colour' to widen to string; it has"),
    ({"add": {"id": pa.int64()}}, "column 'id' has type int64 .* key column already"),
    ({"add": {"qty": pa.int32()}}, r"column 'qty' has type int8 and cannot become int32: .*widen=\{'qty'"),
    ({"add": {"qty": pa.string()}}, "column 'qty' has type int8 and cannot become string: .*another name"),
    ({"add": {"fresh": pa.large_list(pa.int8())}}, "column 'fresh' has type large_list"),
]


@pytest.mark.parametrize(("change", "words"), REFUSED)
def test_an_alteration_that_old_rows_do_not_fit_is_refused(change: dict[str, Any], words: str, bucket_url: str) -> None:
    """The message has column, old and new type and what to do; other columns of the call stay as they were."""
    with connect(bucket_url, compaction=False) as store:
        store.create_table("orders", schema=OLD, primary_key=["id"])
        seq = store.version().seq
        with pytest.raises(SchemaMismatch, match=words):
            store.alter_table("orders", **change)
        assert store.version().seq == seq
        assert store.table("orders").schema.equals(OLD)


def test_alterations_of_wrong_tables_are_refused(store: StateStore) -> None:
    """A missing table, a raw one, and arguments that are no columns."""
    store.create_table("kv")
    with pytest.raises(TableNotFound, match="'orders' is not in the store; nothing was altered"):
        store.alter_table("orders", add=ADD)
    with pytest.raises(InvalidOption, match="'kv' is raw"):
        store.alter_table("kv", add=ADD)
    wrong: Any = {"note": "string"}
    with pytest.raises(InvalidOption, match="add has 'note': 'string'; expected a column name and an Arrow type"):
        store.alter_table("kv", add=wrong)
    wrong = ["note"]
    with pytest.raises(InvalidOption, match=r"widen is .*expected a dict"):
        store.alter_table("kv", widen=wrong)


def test_backups_and_clones_have_the_columns_of_their_time(tmp_path: Path) -> None:
    """An earlier backup shows the old columns, a later one the new ones over the same SSTs; a clone alters its own."""
    source, before, after, cloned = ((tmp_path / name).as_uri() for name in ("source", "before", "after", "cloned"))
    with connect(source, compaction=False) as store:
        table = store.create_table("orders", schema=OLD, primary_key=["id"])
        write_and_commit(store, table, [old_row(number) for number in range(9)])
        store.backup("before")
        store.alter_table("orders", add=ADD, widen=WIDEN)
        store.backup("after")
    restore_store(source, "before", before)
    restore_store(source, "after", after)
    clone_store(source, cloned)
    with connect(before, compaction=False) as store:
        assert store.table("orders").schema.equals(OLD)
        assert rows_of(store.table("orders").read()) == [old_row(number) for number in range(9)]
    with connect(cloned, compaction=False) as store:
        store.alter_table("orders", add={"mine": pa.bool_()})
        store.compact("orders")
        assert rows_of(store.table("orders").read()) == [{**widen(old_row(one)), "mine": None} for one in range(9)]
    for url in (after, source):
        with connect(url, compaction=False) as store:
            assert store.table("orders").schema.equals(NEW)
            assert rows_of(store.table("orders").read()) == [widen(old_row(number)) for number in range(9)]


@pytest.mark.parametrize("fate", [Fate.LOSE_REQUEST, Fate.LOSE_ANSWER, Fate.CRASH, Fate.CRASH_AFTER])
def test_a_failed_alteration_has_altered_the_table_or_not(fate: Fate) -> None:
    """Any of its requests fails: the table has the old columns or the new ones, and the new ones after a repetition."""
    for number in range(1, 9):
        system = TickingSystem()
        inner = ModelBucket(system)
        with open_on(inner, system) as store:
            write_and_commit(store, store.create_table("orders", schema=OLD, primary_key=["id"]), [old_row(5)])
        bucket = FaultyBucket(inner)
        client = open_on(bucket, system, deadline=0.0)
        bucket.script = at_calls({len(bucket.calls) + number: fate})
        asked = len(bucket.calls)
        with contextlib.suppress(Crash, ObjectStoreUnavailable):
            client.alter_table("orders", add=ADD, widen=WIDEN)
            if len(bucket.calls) < asked + number:
                assert number > 1, "altering a table asks the bucket for something"
                break
        with open_on(inner, system) as store:
            names = store.table("orders").schema.names
            assert names in (OLD.names, NEW.names)
            shown = old_row(5) if names == OLD.names else widen(old_row(5))
            assert rows_of(store.table("orders").read()) == [shown]
            store.alter_table("orders", add=ADD, widen=WIDEN)
            assert rows_of(store.table("orders").read()) == [widen(old_row(5))]
    else:
        raise AssertionError("no attempt got through")


def test_multi_get_returns_only_the_given_columns(store: StateStore) -> None:
    """In the order of the option, key columns too; a missing column is named."""
    table, first, _ = fill_and_alter(store)
    found = table.multi_get([3, 4, 99], columns=["note", "id"])
    assert found.type.names == ["note", "id"]
    assert found.to_pylist() == [{"note": None, "id": 3}, {"note": "x", "id": 4}, None]
    assert table.multi_get([4], epoch=first, columns=["note"]).to_pylist() == [{"note": None}]
    with pytest.raises(SchemaMismatch, match=r"'orders' has no columns \['colour'\]; it has"):
        table.multi_get([4], columns=["colour"])
