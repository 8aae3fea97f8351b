"""`ts.transaction`: several steps of a Spark job over several tables are one epoch, or nothing."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tussock.compute.spark as ts
from support.store.versions import live_objects
from tussock.statestore import connect
from tussock.statestore.client import StateStore
from tussock.statestore.errors import Conflict, Fenced, InvalidOption, StoreClosed, TableNotFound

pytestmark = pytest.mark.spark


@pytest.fixture
def shop(store: StateStore) -> StateStore:
    """Tables `orders`, `stock` and the raw table `notes` beside `t`, with some rows."""
    store.create_table("orders", pa.schema([("id", pa.int64()), ("sku", pa.string())]), primary_key=["id"])
    stock = store.create_table("stock", pa.schema([("sku", pa.string()), ("n", pa.int64())]), primary_key=["sku"])
    store.create_table("notes")
    stock.upsert([{"sku": f"s{at}", "n": 10} for at in range(20)], epoch := store.new_epoch())
    store.commit_epoch(epoch)
    return store


def rows_of(store: StateStore, name: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for batch in store.table(name).read() for row in batch.to_pylist())


def put(url: str, name: str, rows: list[dict[str, Any]]) -> None:
    """Another client commits to a table."""
    with connect(url, compaction=False) as other:
        other.table(name).upsert(rows, epoch := other.new_epoch())
        other.commit_epoch(epoch)


def shown(frame: Any) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in frame.collect())


def test_steps_over_three_tables_are_one_epoch(spark: Any, shop: StateStore) -> None:
    """Each read sees what was uploaded before it and nothing later; nobody else sees any of it before the end."""
    before = shop.committed_epoch
    with ts.transaction(spark, store=shop) as tx:
        assert tx.snapshot_epoch == before
        tx.upsert("orders", spark.range(30).selectExpr("id", "concat('s', id % 20) sku"))
        first = tx.table("orders")
        tx.delete("orders", spark.range(10, 30).toDF("id"))
        left = tx.table("orders")
        taken = left.groupBy("sku").count()
        stock = tx.table("stock").join(taken, "sku").selectExpr("sku", "n - count n")
        tx.upsert("stock", stock)
        tx.upsert("notes", spark.sql("select cast('k' as binary) key, cast('v' as binary) value"))
        assert first.count() == 30
        assert left.count() == 10
        assert tx.table("stock", where="n < 10").count() == 10
        assert tx.table("stock", where="sku = 's3'").first()["n"] == 9
        assert tx.table("notes").count() == 1
        unused = tx.table("orders")
        assert shop.committed_epoch == before
        assert rows_of(shop, "orders") == []
    assert tx.epoch == shop.committed_epoch > before
    assert {shop.version().find_table(name).last_epoch for name in ("orders", "stock", "notes")} == {tx.epoch}
    assert rows_of(shop, "orders") == [(at, f"s{at}") for at in range(10)]
    assert sum(n for _, n in rows_of(shop, "stock")) == 190
    assert shop.table("notes").get(b"k") == b"v"
    with pytest.raises(Exception, match="of a transaction that is over"):
        unused.count()
    with pytest.raises(StoreClosed, match="over"):
        tx.upsert("orders", spark.range(1).selectExpr("id", "'x' sku"))


def test_a_repeated_transaction_writes_nothing(spark: Any, shop: StateStore) -> None:
    """By (writer, batch_id): the second time nothing is computed, and `is_done` says so; the epoch is the same."""
    rows = spark.range(3).selectExpr("id", "'a' sku")
    with ts.transaction(spark, store=shop.url, writer="nightly", batch_id=1) as tx:
        assert not tx.is_done
        tx.upsert("orders", rows)
    broken = spark.range(1).selectExpr("id", "string(assert_true(false, 'computed again')) sku")
    with ts.transaction(spark, store=shop, writer="nightly", batch_id=1) as again:
        assert again.is_done
        again.upsert("orders", broken)
        again.delete("orders", rows)
        assert again.table("orders").count() == 3
    assert again.epoch == tx.epoch == shop.committed_epoch
    with ts.transaction(spark, store=shop, writer="nightly", batch_id=2) as tx:
        tx.delete("orders", rows)
    assert rows_of(shop, "orders") == []


@pytest.mark.parametrize("is_read", [False, True])
def test_what_conflicts(spark: Any, shop: StateStore, url: str, is_read: bool) -> None:
    """A table that was read conflicts with each later commit to it, one that was only written with its keys'."""

    def run(key: str) -> None:
        with ts.transaction(spark, store=shop) as tx:
            tx.upsert("stock", spark.sql("select 's1' sku, 5L n"))
            tx.upsert("orders", spark.sql("select 1L id, 's1' sku"))
            if is_read:
                tx.table("stock").count()
            put(url, "stock", [{"sku": key, "n": 1}])

    with pytest.raises(Conflict, match=r"table 'stock'.*sku='s1'"):
        run("s1")
    assert rows_of(shop, "orders") == []
    assert dict(rows_of(shop, "stock"))["s1"] == 1
    if is_read:
        with pytest.raises(Conflict, match=r"table 'stock'.*sku='s7'"):
            run("s7")
    else:
        run("s7")
        assert dict(rows_of(shop, "stock"))["s1"] == 5
        assert dict(rows_of(shop, "stock"))["s7"] == 1


def test_two_transactions_at_once(spark: Any, shop: StateStore) -> None:
    """Both read the same snapshot; of two that read and write one table the second to end conflicts."""

    def both() -> None:
        with ts.transaction(spark, store=shop) as first:
            more_of_all(first)
            with ts.transaction(spark, store=shop) as second:
                more_of_all(second)
            assert second.epoch == shop.committed_epoch

    with pytest.raises(Conflict, match="table 'stock'"):
        both()
    assert {n for _, n in rows_of(shop, "stock")} == {11}


def more_of_all(tx: Any) -> None:
    tx.upsert("stock", tx.table("stock").selectExpr("sku", "n + 1 n"))


def test_an_exception_gives_all_up_and_vacuum_finds_it(spark: Any, url: str) -> None:
    """What was uploaded is in no version, and vacuum deletes exactly that."""
    with connect(url, gc_grace=0, compaction=False) as store:
        store.create_table("t", pa.schema([("id", pa.int64())]), primary_key=["id"])
        held = []

        def fail() -> None:
            with ts.transaction(spark, store=store, writer="w", batch_id=0) as tx:
                tx.upsert("t", spark.range(1000))
                held.extend(store.vacuum(dry_run=True).deleted)
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            fail()
        assert not [path for path, _ in held if path.startswith("sst/")], "an upload of this client is no garbage yet"
        assert rows_of(store, "t") == []
        there = {f"sst/{path.name}" for path in (Path(url.removeprefix("file://")) / "sst").glob("[!.]*")}
        assert there
        assert {path for path, _ in store.vacuum().deleted if path.startswith("sst/")} == there
        assert not live_objects(store.version())
        assert store.pins() == []
        with ts.transaction(spark, store=store, writer="w", batch_id=0) as tx:
            assert not tx.is_done
            tx.upsert("t", spark.range(10))
        assert len(rows_of(store, "t")) == 10


def test_the_snapshot_outlasts_the_retention(spark: Any, url: str) -> None:
    """A transaction pins what it reads: rows that were replaced meanwhile and compacted away are still there.

    Story: it began where this client had last looked, before the first rows, and an empty store could not be pinned.
    """
    # No vacuum but the one below: without a grace period it would take what the tasks have just uploaded.
    with connect(url, retention=0, gc_grace=0, compaction=False) as store:
        store.create_table("t", pa.schema([("id", pa.int64()), ("v", pa.int64())]), primary_key=["id"])
        store.create_table("u", pa.schema([("id", pa.int64()), ("v", pa.int64())]), primary_key=["id"])
        put(url, "t", [{"id": 1, "v": 1}])

        def read_late() -> None:
            with ts.transaction(spark, store=store) as tx:
                put(url, "t", [{"id": 1, "v": 2}])
                store.compact("t")
                store.vacuum()
                assert shown(tx.table("t")) == [(1, 1)]
                tx.upsert("u", tx.table("t"))

        with pytest.raises(Conflict, match="table 't'"):
            read_late()
        assert rows_of(store, "u") == []


def test_bad_input_is_refused(spark: Any, shop: StateStore) -> None:
    """Each refusal names what is wrong, and a step that was refused is no part of the transaction."""
    for options in ({"writer": "w"}, {"batch_id": 1}, {"writer": "", "batch_id": 1}, {"partitions": 0}):
        with pytest.raises(InvalidOption):
            ts.transaction(spark, store=shop, **options)
    tx = ts.transaction(spark, store=shop, writer="w", batch_id=0)
    with pytest.raises(InvalidOption, match="has not begun"):
        tx.table("stock")
    with pytest.raises(InvalidOption, match="has not committed"):
        assert tx.epoch
    with tx:
        with pytest.raises(TableNotFound, match="'nowhere'"):
            tx.table("nowhere")
        with pytest.raises(TableNotFound, match="'nowhere'"):
            tx.upsert("nowhere", spark.range(1))
        with pytest.raises(Exception, match="column 'id'"):
            tx.upsert("orders", spark.sql("select 'x' id, 'a' sku"))
        with pytest.raises(InvalidOption, match="order_by is 'seq'"):
            tx.upsert("orders", spark.sql("select 1L id, 'a' sku"), order_by="seq")
        with pytest.raises(Exception, match="assert"):
            tx.upsert("orders", spark.range(1).selectExpr("id", "string(assert_true(false, 'assert')) sku"))
        tx.upsert("orders", spark.sql("select 2L id, 'b' sku"))
    assert rows_of(shop, "orders") == [(2, "b")]
    with pytest.raises(StoreClosed), tx:
        pass
    shop.commit_epoch(shop.new_epoch(), writer="other", batch_id=7, source="a job")
    with pytest.raises(Fenced), ts.transaction(spark, store=shop, writer="other", batch_id=7):
        pass


def test_the_first_commit_of_a_store(spark: Any, store: StateStore) -> None:
    """A store without any commit is read as empty, with what the transaction uploads."""
    with ts.transaction(spark, store=store) as tx:
        assert tx.table("t").count() == 0
        tx.upsert("t", spark.range(5).selectExpr("id", "'a' v"))
        tx.upsert("t", tx.table("t").selectExpr("id", "'b' v", "1.5D x").where("id > 2"))
        assert tx.table("t").where("v = 'b'").count() == 2
    assert [row[1] for row in rows_of(store, "t")] == ["a", "a", "a", "b", "b"]
