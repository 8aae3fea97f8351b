"""Helpers of `foreachBatch` together: several in one function, under one name, in a thread, over odd names and keys."""

import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tussock.compute.spark as ts
from tussock.compute.spark.batches.identity import default_writer
from tussock.statestore.client import StateStore
from tussock.statestore.errors import Fenced, InvalidOption, ObjectStoreUnavailable

pytestmark = pytest.mark.spark

COUNTS = pa.schema([("k", pa.int64()), ("n", pa.int64())])
QUERY = "5f0a2c1e-7a6b-4c55-9d2a-0d3a2b1c4e5f"
SUM = {"n": "sum"}


@pytest.fixture
def three_tables(store: StateStore) -> StateStore:
    """The store with tables `c`, `d` and `e` of {k (key), n}."""
    for name in "cde":
        store.create_table(name, schema=COUNTS, primary_key=["k"])
    return store


def totals(store: StateStore, table: str) -> dict[Any, int]:
    """The number of each key of such a table."""
    store.version()
    return {row["k"]: row["n"] for batch in store.table(table).read() for row in batch.to_pylist()}


@contextmanager
def run_of(spark: Any, query: str = QUERY) -> Iterator[None]:
    """One run of a streaming query, as a function of `foreachBatch` finds it."""
    context = spark.sparkContext
    for name, value in (("sql.streaming.queryId", query), ("spark.jobGroup.id", str(uuid.uuid4()))):
        context.setLocalProperty(name, value)
    try:
        yield
    finally:
        for name in ("sql.streaming.queryId", "spark.jobGroup.id"):
            context.setLocalProperty(name, None)


def rows_of(spark: Any, first: int = 0, count: int = 6) -> Any:
    return spark.range(first, first + count, 1, 1).selectExpr("id % 3 k", "1L n")


def test_helpers_of_one_function_all_store_their_rows(
    spark: Any, three_tables: StateStore, url: str, tmp_path: Path
) -> None:
    """Each table has each row of a stream once, also where the last batch runs again after a restart."""
    count = ts.stateful("c", key="k", fn=ts.merges(n="sum"), store=url)
    again = ts.stateful("d", key="k", fn=ts.merges(n="sum"), store=url)
    merge = ts.upsert("e", store=url, merge=SUM)
    done: list[int] = []

    def write(rows: Any, number: int) -> None:
        rows = rows.selectExpr("value % 3 k", "1L n")
        for helper in (count, again, merge):
            helper(rows, number)
        done.append(number)

    source = spark.readStream.format("rate-micro-batch").options(rowsPerBatch=6, numPartitions=1, startTimestamp=0)
    checkpoint = tmp_path / "checkpoint"
    query = source.load().writeStream.foreachBatch(write).option("checkpointLocation", str(checkpoint))

    def run(until: int) -> None:
        running = query.trigger(processingTime="0 seconds").start()
        for _ in range(600):
            if len(set(done)) >= until or running.exception():
                break
            threading.Event().wait(0.1)
        running.stop()
        assert running.exception() is None

    run(2)
    last = max(done)
    for path in (checkpoint / "commits").glob(f"*{last}*"):
        path.unlink()
    run(last + 2)
    # Stopped within a batch some helpers may have stored it, and others not yet.
    for table, least in (("c", max(done)), ("d", max(done)), ("e", max(done))):
        found = totals(three_tables, table)
        batches = found[0] // 2
        assert batches >= least
        assert found == dict.fromkeys(range(3), 2 * batches)


def test_a_name_given_to_two_helpers_is_refused(spark: Any, three_tables: StateStore, url: str) -> None:
    """The second helper's rows would be taken for a repeat of the first one's, and be lost without a sign."""
    pairs: list[tuple[Callable[..., Any], Callable[..., Any]]] = [
        (ts.upsert("c", store=url, writer="one"), ts.upsert("d", store=url, writer="one")),
        (
            ts.stateful("c", key="k", fn=ts.merges(n="sum"), store=url, writer="two"),
            ts.stateful("d", key="k", fn=ts.merges(n="sum"), store=url, writer="two"),
        ),
        # Without a name they would have the same one, as they have the same table.
        (ts.upsert("c", store=url), ts.upsert("c", store=url)),
    ]
    for first, second in pairs:
        for _ in range(2):
            with run_of(spark):
                first(rows_of(spark), 0)
                with pytest.raises(Fenced, match=r"another call within the same batch.*its own writer="):
                    second(rows_of(spark, 100), 0)
    assert totals(three_tables, "d") == {}


OTHER_QUERY = "00000000-7a6b-4c55-9d2a-0d3a2b1c4e5f"


def test_a_users_name_belongs_to_one_query(spark: Any, three_tables: StateStore, url: str) -> None:
    """With a new checkpoint a query is another one, whose batches begin at 0; once they were skipped without a sign."""
    helpers: dict[str, Callable[..., Any]] = {
        "merge": ts.upsert("c", store=url, writer="merge", merge=SUM),
        "state": ts.stateful("d", key="k", fn=ts.merges(n="sum"), store=url, writer="state"),
    }
    for writer, write in helpers.items():
        for number in range(2):
            with run_of(spark):
                write(rows_of(spark), number)
        for number in range(4):
            told = rf"{writer}.*{QUERY}.*from query {OTHER_QUERY}"
            with run_of(spark, OTHER_QUERY), pytest.raises(Fenced, match=told):
                write(rows_of(spark, 100), number)
        with run_of(spark):
            write(rows_of(spark), 1)
    assert totals(three_tables, "c") == totals(three_tables, "d") == dict.fromkeys(range(3), 4)


def test_batches_numbered_by_a_program_belong_to_its_tables(spark: Any, three_tables: StateStore, url: str) -> None:
    """Without a query the tables identify them, for helpers and for writes with `writerVersion` alike."""
    ts.write_epoch(0, {"c": rows_of(spark)}, store=three_tables, writer="w")
    with pytest.raises(Fenced, match=r"belongs to a write of \[\"c\"\].*comes from a write of \[\"c\", \"d\"\]"):
        ts.write_epoch(0, {"d": rows_of(spark), "c": rows_of(spark)}, store=three_tables, writer="w")

    def save(table: str) -> None:
        writer = rows_of(spark).write.format("tussock").mode("append").options(store=url, writerId="v", writerVersion=3)
        writer.save(table)

    for _ in range(2):
        save("d")
    with pytest.raises(Exception, match=r"Fenced: writer 'v' belongs to a write of \[\"d\"\]"):
        save("e")
    assert totals(three_tables, "e") == {}


def test_names_of_many_tables_are_bounded() -> None:
    """The ledger takes 1024 characters; other tables still give another name."""
    tables = [f"table-{number:04}" for number in range(200)]
    names = {default_writer(QUERY, tables), default_writer(QUERY, tables[:-1]), default_writer(QUERY, tables[1:])}
    assert len(names) == 3
    assert {len(name) for name in names} == {1024}


def test_a_commit_that_failed_may_be_tried_again(
    spark: Any, three_tables: StateStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same function commits it in the same run of the query."""
    write = ts.upsert("c", store=three_tables, merge=SUM)
    with run_of(spark):
        with monkeypatch.context() as patch:
            patch.setattr(three_tables, "commit_uploaded", unavailable)
            with pytest.raises(ObjectStoreUnavailable):
                write(rows_of(spark), 0)
        write(rows_of(spark), 0)
    assert totals(three_tables, "c") == dict.fromkeys(range(3), 2)


def unavailable(*_: Any, **__: Any) -> int:
    raise ObjectStoreUnavailable("as it happens")


def test_a_batch_that_an_earlier_version_committed_is_known(spark: Any, three_tables: StateStore) -> None:
    """Earlier versions named a commit by its query alone."""
    three_tables.commit_uploaded({}, writer=QUERY, batch_id=7)
    write = ts.upsert("c", store=three_tables, merge=SUM)
    with run_of(spark):
        write(rows_of(spark), 7)
        assert totals(three_tables, "c") == {}
        write(rows_of(spark), 8)
    assert totals(three_tables, "c") == dict.fromkeys(range(3), 2)


def test_a_batch_is_not_repeated_for_other_tables(spark: Any, three_tables: StateStore) -> None:
    """A repeat would count its rows twice in the table of both; in the next batch the tables may change."""

    def write(number: int, *tables: str) -> None:
        with run_of(spark):
            ts.write_epoch(number, {name: (rows_of(spark), SUM) for name in tables}, store=three_tables)

    write(0, "c", "d")
    with pytest.raises(Fenced, match=r"was committed for the tables \['c', 'd'\].*now repeated for \['c', 'e'\]"):
        write(0, "c", "e")
    write(0, "d", "c")
    write(1, "c", "e")
    assert [totals(three_tables, name) for name in "cde"] == [dict.fromkeys(range(3), n) for n in (4, 2, 2)]
    with run_of(spark):
        for tables in (("c", "d"), ("d", "e")):
            ts.write_epoch(2, {name: (rows_of(spark), SUM) for name in tables}, store=three_tables)
    assert [totals(three_tables, name) for name in "cde"] == [dict.fromkeys(range(3), n) for n in (6, 6, 4)]


def test_helpers_work_in_a_new_thread(spark: Any, three_tables: StateStore) -> None:
    """A new thread of the JVM has no active session, in which Spark looks for the format."""
    failed: list[BaseException] = []

    def work() -> None:
        try:
            ts.upsert("c", store=three_tables, writer="thread")(rows_of(spark), 0)
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert failed == []
    assert totals(three_tables, "c") == dict.fromkeys(range(3), 1)


@pytest.mark.parametrize("argument", ["order_by", "op_column"])
def test_a_column_that_no_rows_have_is_refused(spark: Any, three_tables: StateStore, argument: str) -> None:
    """A misspelt column, or one in another case, would leave the rows unordered and nothing deleted."""
    for name in ("N", "tss"):
        with pytest.raises(
            InvalidOption, match=rf"{argument} is '{name}', and no rows .*case.*table 'c': \['k', 'n'\]"
        ):
            ts.write_epoch(
                0, {"c": rows_of(spark), "d": rows_of(spark)}, store=three_tables, writer="w", **{argument: name}
            )
    with pytest.raises(InvalidOption, match=r"table 'c': merge names \['n'\], and the rows have no such columns"):
        ts.write_epoch(0, {"c": (rows_of(spark).select("k"), SUM)}, store=three_tables, writer="w")
    assert three_tables.committed_batch("w", 0) is None
    ordered = rows_of(spark).selectExpr("k", "n", "'upsert' AS op", "1 AS seq")
    ts.write_epoch(
        0, {"c": ordered, "d": rows_of(spark)}, store=three_tables, writer="w", op_column="op", order_by="seq"
    )
    assert totals(three_tables, "c") == totals(three_tables, "d") == dict.fromkeys(range(3), 1)


def test_keys_that_are_one_in_the_table_are_merged_as_one(spark: Any, store: StateStore) -> None:
    """Many doubles are one float: they meet in one task and are summed; the last by order is the last of all."""
    schema = pa.schema([("k", pa.float32()), ("n", pa.int64())])
    for name in ("sums", "newest"):
        store.create_table(name, schema=schema, primary_key=["k"])
    rows = spark.range(0, 64, 1, 4).selectExpr("1.0D + id / 1000000000000.0D AS k", "1L AS n")
    for number in range(2):
        ts.write_epoch(number, {"sums": (rows, SUM)}, store=store, writer="sums", partitions=4)
    assert totals(store, "sums") == {1.0: 128}
    ranked = spark.range(0, 64, 1, 4).selectExpr("1.0D + id / 1000000000000.0D AS k", "id AS n")
    ts.write_epoch(0, {"newest": ranked}, store=store, writer="newest", order_by="n", partitions=4)
    assert totals(store, "newest") == {1.0: 63}


def test_a_merge_refuses_a_value_that_the_table_cannot_hold(spark: Any, store: StateStore) -> None:
    """The error names the column, also beside a stored row; then nothing of the batch is stored."""
    store.create_table("unsigned", schema=pa.schema([("k", pa.int64()), ("n", pa.uint64())]), primary_key=["k"])
    ts.upsert("unsigned", store=store, writer="w", merge=SUM)(rows_of(spark, count=3), 0)
    with pytest.raises(Exception, match=r"SchemaMismatch.*column 'n': expected uint64, found int64"):
        ts.upsert("unsigned", store=store, writer="w", merge=SUM)(rows_of(spark, count=3).selectExpr("k", "-n AS n"), 1)
    assert totals(store, "unsigned") == {0: 1, 1: 1, 2: 1}


NAMES = ["a.b", "back`tick", "with space", "Ключ", "`", "a.`b`.c"]


def test_names_may_hold_any_characters(spark: Any, store: StateStore, url: str) -> None:
    """Dots and backquotes mean nothing in names of keys, of values, and of columns that only order rows."""
    key, *values = NAMES
    schema = pa.schema([(name, pa.int64()) for name in NAMES])
    quoted = ["`" + name.replace("`", "``") + "`" for name in NAMES]
    rows = spark.range(0, 6, 1, 2).selectExpr(*(f"id % 3 AS {name}" for name in quoted), "id AS `v.seq`")
    bare = rows.drop("v.seq")
    for table in ("plain", "merged", "kept", "keyed"):
        keys = NAMES if table == "keyed" else [key]
        columns = [*schema, pa.field("n", pa.int64())] if table == "keyed" else schema
        store.create_table(table, schema=pa.schema(columns), primary_key=keys)
    merge = dict.fromkeys(values, "sum")
    ts.write_epoch(
        0,
        {"plain": rows, "merged": (bare, merge), "keyed": rows.selectExpr("*", "`v.seq` AS n").drop("v.seq")},
        store=store,
        writer="w",
        order_by="v.seq",
        partitions=2,
    )
    ts.stateful("kept", key=key, fn=ts.merges(**merge), store=store, order_by="v.seq", writer="s")(rows, 0)

    def load(table: str) -> list[tuple[Any, ...]]:
        return sorted(map(tuple, spark.read.format("tussock").options(store=url, table=table).load().collect()))

    assert load("plain") == [tuple([k] * len(NAMES)) for k in range(3)]
    assert load("merged") == load("kept") == [(k, *[2 * k] * len(values)) for k in range(3)]
    assert [row[:-1] for row in load("keyed")] == load("plain")


def test_a_user_schema_that_denies_nulls_is_not_trusted(spark: Any, store: StateStore, url: str) -> None:
    """Otherwise Spark would take the nulls for values."""
    store.table("t").upsert([{"id": 1, "v": None, "x": 1.0}], epoch := store.new_epoch())
    store.commit_epoch(epoch)
    reader = spark.read.format("tussock").options(store=url, table="t")
    assert reader.schema("v string").load().collect() == [(None,)]
    with pytest.raises(Exception, match="SchemaMismatch: table 't': column 'v' is never null by the schema"):
        reader.schema("v string not null").load().collect()
