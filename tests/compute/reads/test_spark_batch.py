"""Batch reads and writes through a real Spark session."""

import datetime as dt
import os
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from support.store.stores import changes_of
from support.store.versions import live_objects
from tussock.compute.spark.options.options import parse_write
from tussock.compute.spark.writes.writer import BatchWriter, plan_upload
from tussock.statestore import connect
from tussock.statestore.client import StateStore

pytestmark = pytest.mark.spark


def options(url: str, **more: Any) -> dict[str, str]:
    return {"store": url, **{name: str(value) for name, value in more.items()}}


def write(rows: Any, url: str, table: str = "t", mode: str = "append", **more: Any) -> None:
    rows.write.format("tussock").mode(mode).options(**options(url, **more)).save(table)


def read(spark: Any, url: str, table: str = "t", **more: Any) -> Any:
    return spark.read.format("tussock").options(**options(url, **more)).load(table)


def ids(frame: Any) -> list[int]:
    return sorted(row.id for row in frame.select("id").collect())


def test_key_types_place_rows_where_spark_would(spark: Any, store: StateStore, url: str) -> None:
    """A table with a key of several types is read back whole and by key."""
    schema = pa.schema([("s", pa.string()), ("d", pa.date32()), ("n", pa.int32()), ("v", pa.int64())])
    store.create_table("keys", schema=schema, primary_key=["s", "d", "n"])
    rows = spark.range(300).selectExpr(
        "concat('ключ', id % 7) s", "date_add(date'2013-01-01', int(id % 5)) d", "int(id) n", "id v"
    )
    write(rows, url, "keys")
    back = read(spark, url, "keys")
    assert back.exceptAll(rows).isEmpty()
    assert rows.exceptAll(back).isEmpty()
    assert back.where("s = 'ключ3' and d = date'2013-01-04' and n = 3").collect()[0].v == 3


def test_last_row_of_a_key_wins_and_null_columns_are_null(spark: Any, store: StateStore, url: str) -> None:
    """In one partition the later row of a key replaces the earlier one; a nullable column that is missing is null."""
    write(spark.createDataFrame([(1, "a"), (2, "b"), (1, "c")], "id bigint, v string").coalesce(1), url)
    assert sorted(map(tuple, read(spark, url).collect())) == [(1, "c", None), (2, "b", None)]


def test_deletes_by_operation_column_and_by_mode(spark: Any, store: StateStore, url: str) -> None:
    """`opColumn` says row by row what happens, `mode=delete` says it for all; a delete needs the key only."""
    write(spark.range(10), url)
    changes = spark.createDataFrame(
        [(1, "DELETE", None), (2, "Upsert", "two"), (11, "insert", "new")], "id long, op string, v string"
    )
    write(changes, url, opColumn="op")
    gone = spark.createDataFrame([(5, "x")], "id long, other string")
    gone.write.format("tussock").mode("append").options(store=url, mode="delete").save("t")
    assert ids(read(spark, url)) == [0, 2, 3, 4, 6, 7, 8, 9, 11]
    assert store.table("t").get(2)["v"] == "two"


def test_one_write_is_one_epoch(spark: Any, store: StateStore, url: str) -> None:
    """The store has one new epoch with all rows, for any number of tasks."""
    write(spark.range(1000).repartition(5), url)
    changes = changes_of(store.table("t"))
    assert len(changes) == 1000
    assert len({row["epoch"] for row in changes}) == 1


def test_a_read_may_name_an_earlier_moment(spark: Any, store: StateStore, url: str) -> None:
    """By epoch, by milliseconds and by ISO time; a DataFrame keeps the epoch at which it was made."""
    write(spark.range(3), url)
    first, pinned = store.committed_epoch, read(spark, url)
    time.sleep(0.005)  # so that the two commits are of different milliseconds
    write(spark.range(3, 5), url)
    ms = first >> 16
    iso = dt.datetime.fromtimestamp(ms / 1000, dt.UTC).isoformat(timespec="milliseconds")
    assert ids(read(spark, url, epoch=first)) == [0, 1, 2]
    assert ids(read(spark, url, timestamp=ms)) == [0, 1, 2]
    assert ids(read(spark, url, timestamp=iso)) == [0, 1, 2]
    assert ids(pinned) == [0, 1, 2]
    assert ids(read(spark, url)) == [0, 1, 2, 3, 4]


def test_a_store_without_commits_is_read_as_empty(spark: Any, store: StateStore, url: str) -> None:
    """A table without commits has no rows, and its schema is there."""
    assert read(spark, url).columns == ["id", "v", "x"]
    assert read(spark, url).count() == 0


def test_columns_are_pruned_by_option_and_by_schema(spark: Any, store: StateStore, url: str) -> None:
    """Only the columns asked for are read, in the order asked for."""
    write(spark.range(3).selectExpr("id", "'a' v", "1.5D x"), url)
    assert read(spark, url, columns="x,id").columns == ["x", "id"]
    assert {tuple(row) for row in read(spark, url, columns="x").collect()} == {(1.5,)}
    assert {
        tuple(row) for row in spark.read.schema("v string").format("tussock").option("store", url).load("t").collect()
    } == {("a",)}


def test_the_number_of_partitions_does_not_change_the_rows(spark: Any, store: StateStore, url: str) -> None:
    """One task or many, aligned or not, read the same rows."""
    rows = spark.range(5000).selectExpr("id * 7919 % 5000 id", "string(id) v")
    tables = []
    for count in (1, 3, 8):
        write(rows.repartition(count), url)
        tables.append(sorted(map(tuple, read(spark, url).collect())))
        write(spark.range(0), url, mode="overwrite")
    assert tables[0] == tables[1] == tables[2]
    assert len(tables[0]) == 5000


def test_overwrite_replaces_the_table_in_one_epoch(spark: Any, store: StateStore, url: str) -> None:
    """Keys that the new rows lack are gone, and the old rows are still there at the old epoch."""
    write(spark.range(100).selectExpr("id", "'old' v"), url)
    before = store.committed_epoch
    write(read(spark, url).where("id < 3 and v = 'old'").selectExpr("id + 1 id", "'new' v"), url, mode="overwrite")
    assert sorted((row.id, row.v) for row in read(spark, url).collect()) == [(1, "new"), (2, "new"), (3, "new")]
    assert len(ids(read(spark, url, epoch=before))) == 100
    assert len({row["epoch"] for row in changes_of(store.table("t"), before)}) == 1


def test_raw_tables_are_read_and_written(spark: Any, store: StateStore, url: str) -> None:
    """{key, value}: upsert, delete by operation, overwrite."""
    raw = store.create_table("raw")
    rows = spark.range(500).selectExpr("cast(cast(id as string) as binary) key", "cast('v' as binary) value")
    write(rows, url, "raw")
    assert read(spark, url, "raw").count() == 500
    write(rows.limit(10).selectExpr("key", "value", "'delete' op"), url, "raw", opColumn="op")
    assert read(spark, url, "raw").count() == 490
    write(rows.where("string(key) = '7'"), url, "raw", mode="overwrite")
    assert store.committed_epoch
    assert [row.key for row in read(spark, url, "raw").collect()] == [b"7"]
    assert raw.name == "raw"


def test_a_repeated_write_with_its_version_is_a_no_op(spark: Any, store: StateStore, url: str) -> None:
    """(writerId, writerVersion) is committed once, whatever the rows of the repetition."""
    write(spark.range(3), url, writerId="job", writerVersion=1)
    epoch = store.committed_epoch
    write(spark.range(10), url, writerId="job", writerVersion=1)
    assert (store.committed_epoch, ids(read(spark, url))) == (epoch, [0, 1, 2])
    write(spark.range(10), url, writerId="job", writerVersion=2)
    assert len(ids(read(spark, url))) == 10


def test_sql_reads_and_writes_the_format(spark: Any, store: StateStore, url: str) -> None:
    """A temporary view over a table, read and inserted into with SQL."""
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW tv USING tussock OPTIONS (store '{url}', table 't')")
    write(spark.range(5), url)
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW tv USING tussock OPTIONS (store '{url}', table 't')")
    assert spark.sql("SELECT count(*) n FROM tv WHERE id > 1").collect()[0].n == 3


def test_failed_attempt_of_a_task_leaves_only_garbage(spark: Any, url: str, tmp_path: Path) -> None:
    """A task that fails after it has uploaded is tried again; its rows are there once, its first SSTs are garbage."""
    from pyspark.sql.functions import udf

    marker = str(tmp_path / "failed-once")

    def fail_once(at: int) -> str:
        if at == 29_999 and not os.path.exists(marker):
            open(marker, "w").close()
            raise RuntimeError("the machine of this task has gone")
        return "v" * 1000

    with connect(url, gc_grace=0) as store:
        table = store.create_table("t", schema=pa.schema([("id", pa.int64()), ("v", pa.string())]), primary_key=["id"])
        rows = spark.range(0, 30_000, 1, 1).withColumn("v", udf(fail_once, "string")("id"))
        write(rows, url, bufferBytes=1 << 20)
        assert os.path.exists(marker)
        assert len(changes_of(table)) == 30_000
        named = live_objects(store.version())
        there = {f"sst/{path.name}" for path in (tmp_path / "store" / "sst").iterdir()}
        assert named < there
        assert {path for path, _ in store.vacuum(dry_run=True).deleted if path.startswith("sst/")} == there - named


def test_slower_attempt_of_a_speculated_task_is_garbage(spark: Any, store: StateStore, url: str) -> None:
    """Two attempts upload the same rows; Spark passes on the report of one, and no SST is named twice."""
    from pyspark.sql.types import LongType, StructField, StructType

    schema = StructType([StructField("id", LongType())])
    writer = BatchWriter(plan_upload(parse_write({"store": url, "table": "t"}), schema), overwrite=False)
    rows = [pa.record_batch({"id": pa.array([1, 2, 3])})]
    winner, loser = writer.write(iter(rows)), writer.write(iter(rows))
    writer.commit([winner])
    named = {sst.id for sst in store.version().find_table("t").levels.ssts()}
    assert named == {sst.id for level in winner.levels for sst in level.ssts}
    assert named.isdisjoint(sst.id for level in loser.levels for sst in level.ssts)
    assert len(changes_of(store.table("t"))) == 3


@pytest.mark.parametrize(
    ("act", "words"),
    [
        (lambda s, u: write(s.range(1), u, "nope"), ["TableNotFound", "no table 'nope'", "'t'"]),
        (lambda s, u: read(s, u, "nope"), ["TableNotFound", "no table 'nope'"]),
        (lambda s, u: write(s.range(1), u, tabel="t"), ["InvalidOption", "unknown options ['tabel']"]),
        (lambda s, u: write(s.range(1).selectExpr("id", "1 y"), u), ["SchemaMismatch", "unknown columns ['y']"]),
        (
            lambda s, u: write(s.range(1).selectExpr("id", "1 v"), u),
            ["SchemaMismatch", "'v'", "expected string, found int32"],
        ),
        (lambda s, u: write(s.range(1).selectExpr("'a' v"), u), ["SchemaMismatch", "column 'id' (int64) is missing"]),
        (
            lambda s, u: write(s.range(1).selectExpr("nullif(id, 0) id"), u),
            ["SchemaMismatch", "'id' is null at position 0"],
        ),
        (
            lambda s, u: write(s.range(1).selectExpr("id", "'upsart' op"), u, opColumn="op"),
            ["InvalidBatch", "'upsart'"],
        ),
        (lambda s, u: write(s.range(1), u, opColumn="op"), ["SchemaMismatch", "no column 'op', which opColumn names"]),
        (lambda s, u: write(s.range(1), u, writerId="w"), ["InvalidOption", "writerId and writerVersion go together"]),
        (lambda s, u: read(s, u, epoch=1 << 62), ["InvalidOption", "is not committed"]),
        (lambda s, u: read(s, u, timestamp="2200-01-01"), ["InvalidOption", "lies in the future"]),
        (lambda s, u: read(s, u, columns="id,zz"), ["SchemaMismatch", "no columns ['zz']"]),
        (
            lambda s, u: read(s, u, where='{"zz": 1}').collect(),
            ["SchemaMismatch", "no column 'zz', which option where"],
        ),
        (lambda s, u: read(s, u, where='{"id": "x"}').collect(), ["InvalidOption", "'id': expected int64"]),
        (lambda s, u: read(s, "memory://x"), ["InvalidOption", "in the memory of one process"]),
    ],
)
def test_errors_reach_the_user_by_name(spark: Any, store: StateStore, url: str, act: Any, words: list[str]) -> None:
    """Spark's exception holds the named error and its message, and nothing was stored."""
    with pytest.raises(Exception) as caught:
        act(spark, url)
    assert all(word in str(caught.value) for word in words), str(caught.value)
    assert not changes_of(store.table("t"))


def test_a_read_at_an_expired_epoch_is_refused_unless_it_is_pinned(spark: Any, url: str) -> None:
    """Past the retention a read names the oldest readable epoch; a user's pin keeps its epoch for all tasks."""
    with connect(url, retention=0) as store:
        store.create_table("t", schema=pa.schema([("id", pa.int64())]), primary_key=["id"])
        write(spark.range(3), url)
        old, pinned = store.committed_epoch, store.pin_snapshot()
        write(spark.range(9), url)
        frame = read(spark, url, epoch=old, retention=0)
        assert ids(frame) == [0, 1, 2]
        pinned.close()
        for again in (frame, None):
            with pytest.raises(Exception, match=rf"SnapshotExpired.*epoch {old} is no longer kept") as caught:
                (again or read(spark, url, epoch=old, retention=0)).collect()
            assert str(store.committed_epoch) in str(caught.value)
