"""`stream_join` beside Spark's own join of two streams, and its refusals."""

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

import tussock.compute.spark as ts
from support.spark.events import DELAY, NOON, SCHEMA, event_batches, spark_results
from support.spark.stateful_batches import run_batch, table_rows
from tussock.statestore import connect
from tussock.statestore.client import StateStore
from tussock.statestore.errors import InvalidBatch, InvalidOption, SchemaMismatch

SEED = 20_131_006
TIME = pa.timestamp("us", "UTC")
LEAST, MOST = timedelta(seconds=5), timedelta(seconds=30)
LEFT = pa.schema([("k", pa.string()), ("l", pa.int64()), ("l_at", TIME)])
RIGHT = pa.schema([("k", pa.string()), ("r", pa.int64()), ("r_at", TIME)])
OPTIONS: dict[str, Any] = {
    "on": "k",
    "event_time": ("l_at", "r_at"),
    "within": (LEAST, MOST),
    "delay": DELAY,
    "matched": "matched",
    "unmatched_left": "lonely_left",
    "unmatched_right": "lonely_right",
}


def numbered_batches() -> list[pa.Table]:
    """Events that each have a different number, so that every pair gives a different row."""
    made, count = [], 0
    for batch in event_batches(SEED):
        numbers = pa.array(range(count, count + batch.num_rows), pa.int64())
        made.append(batch.set_column(1, SCHEMA.field("v"), numbers))
        count += batch.num_rows
    return made


def both_sides(batch: pa.Table) -> pa.Table:
    """The events through `StreamJoin.union`, as the left and as the right side."""
    parts = []
    for schema, side in ((LEFT, "left"), (RIGHT, "right")):
        rows = pa.StructArray.from_arrays(
            [batch.column("v").combine_chunks(), batch.column("at").combine_chunks()], fields=list(schema)[1:]
        )
        parts.append(pa.table({"k": batch.column("k"), "_time": batch.column("at"), side: rows}))
    return pa.concat_tables(parts, promote_options="default").select(["k", "_time", "left", "right"])


@pytest.fixture
def join_store(url: str) -> Iterator[StateStore]:
    """A store with the tables that a join writes to."""
    with connect(url, compaction=False) as store:
        make_answers(store)
        yield store


def make_answers(store: StateStore) -> None:
    """Make the tables that a join writes to."""
    pairs = pa.schema([*LEFT, *list(RIGHT)[1:]])
    store.create_table("matched", schema=pairs, primary_key=["k", "l", "r"])
    store.create_table("lonely_left", schema=LEFT, primary_key=["l"])
    store.create_table("lonely_right", schema=RIGHT, primary_key=["r"])


def by_hand(batches: list[pa.Table]) -> dict[str, list[tuple[Any, ...]]]:
    """The join of all rows that are not late when they come, computed pair by pair."""
    newest, rows = NOON - timedelta(days=1), []
    for batch in batches:
        rows += [row for row in batch.to_pylist() if row["at"] > newest - DELAY]
        newest = max(newest, *batch.column("at").to_pylist())
    pairs = [
        (left, right)
        for left in rows
        for right in rows
        if left["k"] == right["k"] and LEAST <= right["at"] - left["at"] <= MOST
    ]
    over = newest - DELAY
    in_pairs = [{pair[side]["v"] for pair in pairs} for side in (0, 1)]
    lonely = [
        [(row["k"], row["v"], row["at"]) for row in rows if row["v"] not in seen and row["at"] + reach <= over]
        for seen, reach in zip(in_pairs, (MOST, -LEAST), strict=True)
    ]
    return {
        "matched": sorted((a["k"], a["v"], a["at"], b["v"], b["at"]) for a, b in pairs),
        "lonely_left": sorted(lonely[0]),
        "lonely_right": sorted(lonely[1]),
    }


def answers(store: StateStore) -> dict[str, list[tuple[Any, ...]]]:
    names = ("matched", "lonely_left", "lonely_right")
    return {name: sorted(tuple(row.values()) for row in table_rows(store.table(name))) for name in names}


@pytest.mark.parametrize("partitions", [1, 2, 7, 16])
def test_a_join_gives_all_pairs_of_rows_in_time(join_store: StateStore, partitions: int) -> None:
    """Late rows, repeats, matches in one batch and over several; in the end only the stream's end is kept."""
    join = ts.stream_join("orders", store=join_store, **OPTIONS)
    batches = [*numbered_batches(), numbered_batches()[-1].set_column(1, SCHEMA.field("v"), pa.array([9999]))]
    later = pa.array([NOON + timedelta(hours=3)], TIME)
    batches[-1] = batches[-1].set_column(2, SCHEMA.field("at"), later)
    join.make_tables(join_store, both_sides(batches[0]).schema)
    for number, batch in enumerate(batches):
        run_batch(join.write, join_store, both_sides(batch), number, tasks=4 if number == 2 else partitions)
    expected = by_hand(batches[:-1])
    found = answers(join_store)
    assert len(found["matched"]) > 50
    assert len(found["lonely_left"]) > 20
    assert found == expected
    for side in ("left", "right"):
        assert [row["k"] for row in table_rows(join_store.table(f"orders.{side}"))] == ["end"]


def test_keys_whose_time_has_passed_are_forgotten_in_any_order(join_store: StateStore) -> None:
    """With random times on few keys: each batch's pairs, and unmatched rows that all earlier batches have passed."""
    chance = random.Random(SEED)
    join = ts.stream_join("orders", store=join_store, **OPTIONS)
    batches = []
    for number in range(12):
        events = [
            {
                "k": f"k{chance.randrange(3)}",
                "v": 10 * number + at,
                "at": NOON + timedelta(seconds=chance.randrange(600)),
            }
            for at in range(10)
        ]
        batches.append(pa.Table.from_pylist(events, SCHEMA))
    join.make_tables(join_store, both_sides(batches[0]).schema)
    for number, batch in enumerate(batches):
        run_batch(join.write, join_store, both_sides(batch), number)
        found, expected = answers(join_store), by_hand(batches[: number + 1])
        assert found["matched"] == expected["matched"]
        # What the batch's own rows bring the watermark past is forgotten by the next one.
        assert set(found["lonely_left"]) <= set(expected["lonely_left"])
        assert set(found["lonely_left"]) >= set(by_hand(batches[:number])["lonely_left"])


def test_what_does_not_fit_a_side_is_named(join_store: StateStore) -> None:
    """A number beyond the column's type, after a change of the query, and a time that cannot be compared."""
    join = ts.stream_join("orders", store=join_store, **OPTIONS)
    whole = both_sides(numbered_batches()[0])
    narrow = pa.struct([("l", pa.int32()), *list(whole.schema.field("left").type)[1:]])
    join.make_tables(join_store, whole.schema.set(2, pa.field("left", narrow)))
    large = whole.slice(0, 1).to_pylist()
    large[0]["left"]["l"] = 1 << 40
    with pytest.raises(SchemaMismatch, match=r"orders\.left.*row"):
        run_batch(join.write, join_store, pa.Table.from_pylist(large, whole.schema), 0)
    far = whole.slice(0, 1).set_column(1, "_time", pa.array([(1 << 63) - 5], pa.int64()).view(TIME))
    with pytest.raises(InvalidBatch, match="left rows"):
        run_batch(join.write, join_store, far, 0)
    assert table_rows(join_store.table("orders.left")) == []


@pytest.mark.long
@pytest.mark.spark
def test_a_join_equals_that_of_spark(spark: Any, url: str, tmp_path: Any) -> None:
    """One stream as both sides: pairs and unmatched rows are those of Spark's full outer join, however distributed.

    `test_a_join_gives_all_pairs_of_rows_in_time` has more numbers of partitions, without Spark's price for a task.
    """
    from pyspark.sql import functions as f

    def join_of_spark(events: Any) -> Any:
        left = events.select("k", f.col("v").alias("l"), f.col("at").alias("l_at")).alias("a")
        right = events.select("k", f.col("v").alias("r"), f.col("at").alias("r_at")).alias("b")
        near = f.expr(
            f"a.k = b.k AND r_at >= l_at + INTERVAL {LEAST.seconds} SECONDS "
            f"AND r_at <= l_at + INTERVAL {MOST.seconds} SECONDS"
        )
        return left.join(right, near, "full_outer").select(
            f.coalesce("a.k", "b.k").alias("k"), "l", "l_at", "r", "r_at"
        )

    batches = numbered_batches()
    said = spark_results(spark, tmp_path, batches, {"join": ("append", join_of_spark)})["join"]
    stream = spark.readStream.schema("k string, v bigint, at timestamp").option("maxFilesPerTrigger", 1)
    events = stream.parquet(str(tmp_path / "source"))
    rows = [{name: _utc(value) for name, value in row.items()} for row in said if row["k"] != "end"]
    pairs = [row for row in rows if row["l"] is not None and row["r"] is not None]
    expected = {
        "matched": sorted((row["k"], row["l"], row["l_at"], row["r"], row["r_at"]) for row in pairs),
        "lonely_left": sorted((row["k"], row["l"], row["l_at"]) for row in rows if row["r"] is None),
        "lonely_right": sorted((row["k"], row["r"], row["r_at"]) for row in rows if row["l"] is None),
    }
    assert len(expected["matched"]) > 50
    left, right = (events.selectExpr("k", f"v AS {side}", f"at AS {side}_at") for side in "lr")
    for partitions in (2, 7):
        with connect(f"{url}/{partitions}", compaction=False) as store:
            make_answers(store)
            join = ts.stream_join("orders", store=store, partitions=partitions, **OPTIONS)
            writer = join.union(left, right).writeStream.foreachBatch(join).trigger(availableNow=True)
            writer.option("checkpointLocation", str(tmp_path / f"checkpoint-{partitions}")).start().awaitTermination()
            found = {name: [row for row in part if row[0] != "end"] for name, part in answers(store).items()}
        assert found == expected, f"{partitions} partitions"


def _utc(value: Any) -> Any:
    return value.astimezone(UTC) if isinstance(value, datetime) else value


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"on": []}, "on is"),
        ({"event_time": "at"}, "the left and the right time column"),
        ({"within": (30, 5)}, "the least and the largest time"),
        ({"within": 5}, "the least and the largest time"),
        ({"delay": -1}, "delay is"),
        ({"partitions": 0}, "partitions is"),
    ],
)
def test_wrong_arguments_are_refused(url: str, change: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidOption, match=message):
        ts.stream_join("orders", store=url, **{**OPTIONS, **change})


@pytest.mark.spark
def test_sides_that_do_not_fit_are_refused(spark: Any, url: str) -> None:
    """Missing columns, and columns of one name on both sides, which could not be distinguished."""
    join = ts.stream_join("orders", store=url, **OPTIONS)
    left = spark.createDataFrame([], "k string, l bigint, l_at timestamp")
    with pytest.raises(SchemaMismatch, match=r"the right side has no columns \['r_at'\]"):
        join.union(left, spark.createDataFrame([], "k string, r bigint"))
    with pytest.raises(SchemaMismatch, match=r"both sides have columns \['l'\]"):
        join.union(left, spark.createDataFrame([], "k string, l bigint, r_at timestamp"))
    right = "r bigint, r_at timestamp"
    for left_columns, right_columns, message in (
        (
            "k bigint, l bigint, l_at timestamp",
            f"k double, {right}",
            "'k' is bigint on the left side and double",
        ),
        ("k string, l bigint, l_at string", f"k string, {right}", "left side's event_time 'l_at' is string; expected"),
    ):
        with pytest.raises(SchemaMismatch, match=message):
            join.union(spark.createDataFrame([], left_columns), spark.createDataFrame([], right_columns))
