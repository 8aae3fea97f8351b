"""`lookup`: the rows that a left join would find, null if there is none, all of one epoch."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tussock.compute.spark import lookup
from tussock.compute.spark.joins.lookup import LookupTask, group_batches
from tussock.compute.spark.options.options import StoreAddress
from tussock.statestore import InvalidOption, SchemaMismatch, SnapshotExpired, TableNotFound, connect
from tussock.statestore.client import StateStore

TARGET = pa.schema([("v", pa.string()), ("x", pa.float64())])


def fill(store: StateStore, first: int, last: int, word: str) -> int:
    """Write rows of `t` under the keys [first, last); returns the epoch."""
    epoch = store.new_epoch()
    store.table("t").upsert([{"id": key, "v": f"{word}-{key}", "x": key / 2} for key in range(first, last)], epoch)
    return store.commit_epoch(epoch)


def look_up(url: str, store: StateStore, epoch: int | None, *batches: list[int | None]) -> list[Any]:
    """The results of a task for batches of keys."""
    task = LookupTask(StoreAddress(url), store.table("t").spec, ("v", "x"), epoch, TARGET)
    return [array.to_pylist() for array in task.finder()(iter([pa.array(keys, pa.int32()) for keys in batches]))]


def row(word: str, key: int) -> dict[str, Any]:
    return {"v": f"{word}-{key}", "x": key / 2}


def test_a_task_returns_one_struct_for_each_key(store: StateStore, url: str) -> None:
    """Null, absent and double keys, and empty batches: in the order and at the epoch of the question."""
    first = fill(store, 0, 10, "old")
    last = fill(store, 5, 15, "new")
    asked: list[list[int | None]] = [[3, None, 99, 3], [], [None], [12]]
    assert look_up(url, store, first, *asked) == [[row("old", 3), None, None, row("old", 3)], [], [None], [None]]
    assert look_up(url, store, last, *asked)[3] == look_up(url, store, None, [12])[0] == [row("new", 12)]
    assert look_up(url, store, 0, [3]) == [[None]], "nothing was committed yet"


def test_a_task_reads_an_epoch_that_only_a_users_pin_keeps(store: StateStore, url: str) -> None:
    """An epoch past the retention with a pin is read; one without is refused by name."""
    first = fill(store, 0, 10, "old")
    with connect(url, retention=0, compaction=False) as short:
        with short.pin_snapshot(first):
            fill(short, 0, 10, "new")
            assert look_up(url, store, first, [3], [4]) == [[row("old", 3)], [row("old", 4)]]
        fill(short, 0, 10, "newest")
        short.compact("t")
        with pytest.raises(SnapshotExpired, match=str(first)):
            look_up(url, store, first, [3])


def test_a_table_that_was_altered_or_dropped_since(store: StateStore, url: str) -> None:
    """If it was altered, the columns are those of the plan; another table of its name is refused."""
    epoch = fill(store, 0, 3, "old")
    task = LookupTask(StoreAddress(url), store.table("t").spec, ("v", "x"), epoch, TARGET)
    store.alter_table("t", add={"more": pa.string()})
    assert next(task.run(iter([(pa.array([1]),)]))).to_pylist() == [row("old", 1)]
    store.drop_table("t")
    store.create_table("t", schema=pa.schema([("id", pa.int64()), ("v", pa.string())]), primary_key=["id"])
    with pytest.raises(SchemaMismatch, match="dropped and created anew"):
        next(task.run(iter([(pa.array([1]),)])))


def test_batches_are_looked_up_together_up_to_a_bound() -> None:
    """Small ones share a lookup; none is split, none is lost."""
    sizes = [10_000] * 14 + [0, 70_000, 1]
    groups = [[len(batch[0]) for batch in group] for group in group_batches((pa.nulls(size),) for size in sizes)]
    assert [size for group in groups for size in group] == sizes
    assert [sum(group) for group in groups] == [70_000, 70_000, 70_000, 1]


def test_wrong_arguments_of_a_lookup_are_refused_before_any_job(store: StateStore, url: str) -> None:
    """Missing tables, columns and epochs, and a wrong number of keys."""
    epoch = fill(store, 0, 3, "old")
    store.create_table("kv")
    for table, options, error, words in (
        ("none", {}, TableNotFound, "no table 'none'"),
        ("kv", {}, InvalidOption, "'kv' is raw"),
        ("t", {"columns": ["v", "w"]}, SchemaMismatch, r"columns \['v', 'w'\]: expected different names out of"),
        ("t", {"columns": []}, SchemaMismatch, r"columns \[\]"),
        ("t", {"epoch": epoch, "latest": True}, InvalidOption, "give one of them"),
        ("t", {"epoch": epoch + 1}, InvalidOption, f"epoch {epoch + 1} is not committed"),
    ):
        with pytest.raises(error, match=words):
            lookup(table, store=url, **options)  # type: ignore[arg-type]
    with pytest.raises(InvalidOption, match="in the memory of one process"):
        lookup("t", store="memory://x")
    with pytest.raises(InvalidOption, match=r"a column for each of its key columns \['id'\]; 2 were given"):
        lookup("t", store=store)("id", "v")


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.timeout(900)
def test_a_lookup_equals_sparks_left_join(spark: Any, store: StateStore, url: str) -> None:
    """Keys of one column and of two, with nulls, absent ones and repetitions, over several partitions."""
    random = np.random.default_rng(7)
    fixed = fill(store, 0, 500, "old")
    store.create_table(
        "pairs",
        schema=pa.schema([("a", pa.int64()), ("b", pa.string()), ("n", pa.int32()), ("tags", pa.list_(pa.string()))]),
        primary_key=["a", "b"],
    )
    epoch = store.new_epoch()
    pairs = [{"a": key // 3, "b": "xyz"[key % 3], "n": key, "tags": [str(key), None]} for key in range(90)]
    store.table("pairs").upsert(pairs, epoch)
    store.commit_epoch(epoch)
    keys = [None if key % 11 == 0 else int(key) for key in random.integers(0, 700, 3000)]
    rows = [(number, key, None if key is None else key % 40, "xyzw"[number % 4]) for number, key in enumerate(keys)]
    frame = spark.createDataFrame(rows, "number int, id int, a bigint, b string").repartition(7)
    one, two = lookup("t", store=url), lookup("pairs", store=store, columns=["tags", "n", "a"])
    fill(store, 0, 700, "new")

    def table(name: str, **options: Any) -> Any:
        return spark.read.format("tussock").options(store=url, **options).load(name)

    mine = frame.select("number", one("id").alias("t"), two(frame.a, "b").alias("p"))
    mine = mine.select("number", "t.v", "t.x", "p.tags", "p.n", "p.a", mine.t.isNull(), mine.p.isNull())
    t, p = table("t", epoch=fixed).alias("t"), table("pairs").alias("p")
    joined = frame.alias("f").join(t, frame.id == t.id, "left")
    joined = joined.join(p, [frame.a == p.a, frame.b == p.b], "left")
    theirs = joined.select("number", "t.v", "t.x", "p.tags", "p.n", "p.a", t.id.isNull(), p.a.isNull())
    assert sorted(mine.collect(), key=lambda row: row[0]) == sorted(theirs.collect(), key=lambda row: row[0])
    newest = frame.select(lookup("t", store=url, latest=True)("id").alias("t")).where("t.v LIKE 'new-%'")
    assert newest.count() == sum(key is not None for key in keys)
