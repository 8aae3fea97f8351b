"""Change data capture with real Spark: redelivered and late changes never win over newer ones."""

import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tussock.compute.spark as ts
from tussock.statestore import connect
from tussock.statestore.client import StateStore
from tussock.statestore.errors import Conflict, InvalidOption, ObjectStoreUnavailable, TableNotFound

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string()), ("lsn", pa.int64())])
EVENT = "id bigint, v string, lsn bigint, op string"

Event = tuple[int, str | None, int, str]


@pytest.fixture
def customers(store: StateStore) -> Any:
    """A table of {id (key), v, lsn}."""
    return store.create_table("customers", schema=SCHEMA, primary_key=["id"])


def rows_of(table: Any) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for batch in table.read() for row in batch.to_pylist())


def final_rows(events: list[Event]) -> list[tuple[Any, ...]]:
    """What a table has after each of these once, in the order of the log."""
    rows: dict[int, tuple[Any, ...]] = {}
    for key, v, lsn, op in sorted(events, key=lambda event: event[2]):
        if op == "d":
            rows.pop(key, None)
        else:
            rows[key] = key, v, lsn
    return sorted(rows.values())


def random_log(keys: int, length: int) -> list[Event]:
    """The changes of a database's table in the order of its log, as Debezium tells them."""
    draw = random.Random(5)
    there: set[int] = set()
    log: list[Event] = []
    for lsn in range(length):
        key = draw.randrange(keys)
        op = draw.choice("uud") if key in there else "r" if lsn < length // 4 else "c"
        log.append((key, None if op == "d" else f"{key}@{lsn}", lsn, op))
        (there.discard if op == "d" else there.add)(key)
    return log


def test_redelivered_changes_never_win(
    spark: Any, store: StateStore, customers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batches with older changes among new ones, a batch that failed and one that repeats: the table is the log's.

    By `order_by` alone, 139 of 2,000 keys were wrong, as it compares the rows of one batch only.
    """
    draw = random.Random(6)
    log = random_log(2000, 4500)
    write = ts.upsert(
        "customers", store=store, writer="w", op_column="op", newer_than="lsn", keep_deletes=1800, partitions=2
    )
    came: list[Event] = []
    for number in range(3):
        batch = log[number * 1500 : number * 1500 + 1500] + draw.sample(came, min(len(came), 800))
        draw.shuffle(batch)
        came += batch
        rows = spark.createDataFrame(batch, EVENT).repartition(3)
        if number == 1:
            with monkeypatch.context() as patch:
                patch.setattr(store, "commit_uploaded", unavailable)
                with pytest.raises(ObjectStoreUnavailable):
                    write(rows, number)
            assert rows_of(customers) == final_rows(log[:1500])
        write(rows, number)
        if number == 2:
            committed = store.committed_epoch
            write(rows, number)
            assert store.committed_epoch == committed
        assert rows_of(customers) == final_rows(log[: number * 1500 + 1500])
    assert store.pins() == []
    # The deletes are kept for half an hour; then an older change is all that is known of its key.
    there = {row[0] for row in rows_of(customers)}
    lsn, key = max((event[2], event[0]) for event in log if event[0] not in there)
    late = [(key, "late", lsn - 1, "u")]
    store.table("t").upsert([{"id": 1, "v": None, "x": None}], epoch := store.new_epoch() + (2_400_000 << 16))
    store.commit_epoch(epoch)
    write(spark.createDataFrame(late, EVENT), 3)
    assert (key, "late", lsn - 1) in rows_of(customers)


def unavailable(*_: Any, **__: Any) -> int:
    raise ObjectStoreUnavailable("as it happens")


def test_a_second_writer_is_a_conflict(spark: Any, store: StateStore, customers: Any, url: str) -> None:
    """Another one commits to the table while the tasks run: nothing of the batch is visible, and it may be repeated."""

    def interrupt(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with connect(url) as other:
            table = other.table("customers")
            table.upsert([{"id": 1, "v": "theirs", "lsn": 5}], epoch := other.new_epoch())
            other.commit_epoch(epoch)
        yield from batches

    def write(rows: Any) -> None:
        ts.write_epoch(0, {"customers": rows}, store=store, writer="w", op_column="op", newer_than="lsn")

    rows = spark.createDataFrame([(1, "mine", 3, "u"), (2, "mine", 3, "u")], EVENT).coalesce(1)
    with pytest.raises(Conflict, match="table 'customers' was read at epoch"):
        write(rows.mapInArrow(interrupt, rows.schema))
    assert rows_of(store.table("customers")) == [(1, "theirs", 5)]
    write(rows)
    assert rows_of(customers) == [(1, "theirs", 5), (2, "mine", 3)]


def test_plain_writes_need_the_rows_of_a_key_in_one_task(
    spark: Any, store: StateStore, customers: Any, url: str
) -> None:
    """Rows that are spread over tasks are refused whole; repartitioned by key they are compared exactly."""
    log = random_log(50, 400)

    def save(events: list[Event], *by: Any) -> None:
        writer = spark.createDataFrame(events, EVENT).repartition(*by).write.format("tussock").mode("append")
        options = {"opColumn": "op", "newerThan": "lsn", "keepDeletes": "86400"}
        writer.options(store=url, **options).save("customers")

    with pytest.raises(Exception, match=r"InvalidBatch: .*all rows of a key in one task.*repartition\(n, 'id'\)"):
        save(log, 2)
    assert rows_of(customers) == []
    save(log[200:], 4, "id")
    save(log, 2, "id")
    assert rows_of(customers) == final_rows(log)
    assert store.table("customers.tombstones").spec.ttl_ms == 86_400_000


def test_a_sink_compares_too(spark: Any, store: StateStore, customers: Any, url: str, tmp_path: Path) -> None:
    """Versions fall from batch to batch, so the first row of each key stays."""
    source = spark.readStream.format("rate-micro-batch").options(rowsPerBatch=14, numPartitions=2, startTimestamp=0)
    rows = source.load().selectExpr("value % 7 AS id", "CAST(value AS string) AS v", "-value AS lsn")
    writer = rows.repartition(2, "id").writeStream.format("tussock").option("newerThan", "lsn")
    writer = writer.option("store", url).option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writer.trigger(processingTime="0 seconds").start("customers")
    for _ in range(600):
        if query.exception() or (query.lastProgress is not None and query.lastProgress.batchId):
            break
        threading.Event().wait(0.1)
    query.stop()
    assert query.exception() is None
    assert rows_of(customers) == [(key, str(key), -key) for key in range(7)]


def test_change_feeds_are_written_as_they_are(spark: Any, store: StateStore, url: str) -> None:
    """With preimages, under Delta's name too; the older half, which is delivered again, changes nothing."""
    source = store.table("t")
    store.create_table("copy", schema=pa.schema([*source.schema, ("epoch", pa.int64())]), primary_key=["id"])
    epochs = []
    for put, gone in (([1, 2, 3], []), ([2, 4], [1]), ([1, 2], [3, 4])):
        source.upsert([{"id": key, "v": f"v{len(epochs)}", "x": None} for key in put], epoch := store.new_epoch())
        if gone:
            source.delete(gone, epoch)
        epochs.append(store.commit_epoch(epoch))
    feed = spark.read.format("tussock").options(store=url, readChangeFeed=True).load("t")
    changes = feed.withColumnRenamed("_epoch", "epoch").drop("_commit_timestamp")
    again = changes.where(f"epoch <= {epochs[1]}").withColumnRenamed("_op", "_change_type")
    for number, (rows, op_column) in enumerate([(changes, "_op"), (again, "_change_type")]):
        ts.write_epoch(
            number,
            {"copy": rows},
            store=store,
            writer="w",
            op_column=op_column,
            newer_than="epoch",
            keep_deletes=3600,
            partitions=1,
        )
        copied = [(key, v, epoch) for key, v, _, epoch in rows_of(store.table("copy"))]
        assert copied == [(1, "v2", epochs[2]), (2, "v2", epochs[2])]


def test_an_overwrite_in_delta_ends_with_its_inserts(spark: Any, store: StateStore, customers: Any) -> None:
    """It deletes and inserts each key in one version, and the words sort as they have to."""
    changes = [(1, "new", 2, "insert"), (1, "old", 2, "delete"), (2, "old", 2, "delete")]
    rows = spark.createDataFrame(changes, EVENT.replace(" op ", " _change_type "))
    arguments = {"op_column": "_change_type", "order_by": "_change_type", "newer_than": "lsn", "partitions": 1}
    ts.write_epoch(0, {"customers": rows}, store=store, writer="w", **arguments)
    assert rows_of(customers) == [(1, "new", 2)]


def test_tables_of_an_epoch_are_compared_where_their_rows_have_the_column(
    spark: Any, store: StateStore, customers: Any
) -> None:
    """Others are written as ever, in the same epoch; a merge of rows with versions is refused."""
    rows = spark.createDataFrame([(1, "a", 3, "u")], EVENT)
    other = spark.createDataFrame([(1, "b")], "id bigint, v string")

    def write(number: int, tables: dict[str, Any], **more: Any) -> int:
        return ts.write_epoch(number, tables, store=store, writer="w", op_column="op", newer_than="lsn", **more)

    write(0, {"customers": rows, "t": other}, keep_deletes=60, partitions=1)
    old = spark.createDataFrame([(1, "old", 2, "u")], EVENT)
    write(1, {"customers": old, "t": other.selectExpr("id", "'c' v")}, keep_deletes=60, partitions=1)
    assert rows_of(customers) == [(1, "a", 3)]
    assert rows_of(store.table("t")) == [(1, "c", None)]
    with pytest.raises(InvalidOption, match="newer_than is 'lsn', a column of its rows, and they are to be merged"):
        write(2, {"customers": (rows.drop("op"), {"v": "max"}), "t": other.selectExpr("id", "v", "'u' op")})
    beside = spark.createDataFrame([(1, 5)], "id bigint, lsn bigint")
    both = {"customers": rows, "customers.tombstones": beside}
    with pytest.raises(InvalidOption, match=r"'customers.tombstones' keeps the deletes of table 'customers'"):
        ts.write_epoch(0, both, store=store, writer="x", op_column="op", newer_than="lsn", keep_deletes=60)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"newer_than": "LSN"}, "newer_than is 'LSN', and no rows have a column of that name"),
        ({"newer_than": "id"}, "newer_than is 'id', a column of table 'customers' in its key"),
        ({"newer_than": "op"}, "newer_than and op_column are both 'op'"),
        ({"newer_than": "seq"}, r"newer_than is 'seq', .* which it does not have; expected .* one of \['v', 'lsn'\]"),
        ({"keep_deletes": 5}, "keep_deletes is 5, and newer_than is not given"),
        ({"newer_than": "lsn", "keep_deletes": 5, "op_column": None}, "and op_column is not given"),
        ({"newer_than": "lsn", "keep_deletes": 0}, "keep_deletes is 0; expected seconds, at least 0.001"),
        ({"newer_than": "lsn", "keep_deletes": -1}, "keep_deletes is -1; expected seconds, from 0"),
        ({"newer_than": "lsn", "keep_deletes": "day"}, "keep_deletes is 'day'; expected seconds"),
        ({"newer_than": "lsn", "keep_deletes": float("nan")}, "keep_deletes is nan; expected seconds"),
    ],
    ids=str,
)
def test_bad_arguments_are_refused_before_anything_runs(
    spark: Any, store: StateStore, customers: Any, arguments: dict[str, Any], message: str
) -> None:
    """The named error comes straight to the caller, and no table was made."""
    rows = spark.range(1).selectExpr("id", "'x' v", "1L lsn", "2L seq", "'u' op")
    with pytest.raises(InvalidOption, match=message):
        ts.upsert("customers", store=store, writer="w", **{"op_column": "op", **arguments})(rows, 0)
    assert rows_of(customers) == []
    with pytest.raises(TableNotFound):
        store.table("customers.tombstones")
