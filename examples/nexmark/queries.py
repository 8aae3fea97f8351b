"""The queries 0 to 9 of Nexmark on Tussock: what a micro-batch of events does to tables, in any order of arrival.

`create_tables` makes them; `Queries` is a function for `foreachBatch` that runs all of them, each exactly once by
its own writer id. What the queries answer is read with `answers`, from tables as of one epoch.

| query | kept in |
|---|---|
| 0, 1, 2: pass on, convert a currency, select | one epoch of three tables |
| 3: local items | people by id, with the auctions that came before their seller |
| 4: average price by category | follows the changes of query 9's table |
| 5: hot items | bids by window and auction, merged by `sum`; the hottest are picked when it is read |
| 6: average price of a seller's last ten | query 9's table, when it is read |
| 7: highest bid | by window, the price and who bid it |
| 8: new users | by person and window: a name, and auctions |
| 9: winning bids | auctions by id, with the best bid so far and bids that came before their auction |
"""

from collections.abc import Mapping
from typing import Any

import polars as pl
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

import tussock.compute.spark as ts
from tussock.statestore import StateStore

__all__ = ["ANSWERS", "Queries", "answers", "create_tables", "follow_winners"]

_TIME = pa.timestamp("us", "UTC")
_BID = [("auction", pa.int64()), ("bidder", pa.int64()), ("price", pa.int64()), ("time", _TIME), ("extra", pa.string())]
_OFFER = pa.struct([("price", pa.int64()), ("bidder", pa.int64()), ("time", _TIME), ("event", pa.int64())])
_BIDDER = pa.struct([("auction", pa.int64()), ("bidder", pa.int64()), ("time", _TIME), ("event", pa.int64())])

_TABLES: Mapping[str, tuple[list[tuple[str, pa.DataType]], list[str]]] = {
    "q0": ([("event", pa.int64()), *_BID], ["event"]),
    "q1": ([("event", pa.int64()), *(x if x[0] != "price" else ("price", pa.float64()) for x in _BID)], ["event"]),
    "q2": ([("event", pa.int64()), ("auction", pa.int64()), ("price", pa.int64())], ["event"]),
    "people": (
        [
            ("id", pa.int64()),
            *((name, pa.string()) for name in ("name", "city", "state")),
            ("waiting", pa.list_(pa.int64())),
        ],
        ["id"],
    ),
    "q3": ([("auction", pa.int64()), *((name, pa.string()) for name in ("name", "city", "state"))], ["auction"]),
    "q4": ([("category", pa.int64()), ("auctions", pa.int64()), ("price", pa.int64())], ["category"]),
    "q5": ([("window", _TIME), ("auction", pa.int64()), ("bids", pa.int64())], ["window", "auction"]),
    "q7": ([("window", _TIME), ("price", pa.int64()), ("bids", pa.list_(_BIDDER))], ["window"]),
    "q8": ([("id", pa.int64()), ("window", _TIME), ("name", pa.string()), ("auctions", pa.int64())], ["id", "window"]),
    "auctions": (
        [
            ("auction", pa.int64()),
            ("opened", _TIME),
            ("expires", _TIME),
            ("seller", pa.int64()),
            ("category", pa.int64()),
            ("best", _OFFER),
            ("early", pa.list_(_OFFER)),
        ],
        ["auction"],
    ),
    "q9": (
        [
            ("auction", pa.int64()),
            ("seller", pa.int64()),
            ("category", pa.int64()),
            ("expires", _TIME),
            *((name, pa.int64()) for name in ("bidder", "price", "event")),
            ("time", _TIME),
        ],
        ["auction"],
    ),
}

_LOCAL = ("OR", "ID", "CA")


def create_tables(store: StateStore) -> None:
    """Make the tables of all queries, results and what is kept to compute them."""
    for name, (columns, primary_key) in _TABLES.items():
        store.create_table(name, schema=pa.schema(columns), primary_key=primary_key)


class Queries:
    """For `foreachBatch`: all queries but the fourth, which `follow_winners` runs beside them."""

    def __init__(self, store: StateStore, partitions: int) -> None:
        """`partitions`: the tasks of each query; the results do not depend on it."""
        common = {"store": store, "partitions": partitions}
        self._common = common
        self._local_items = ts.stateful(
            "people", key="id", fn=local_items, outputs={"items": "q3"}, writer="nexmark-3", **common
        )
        self._highest = ts.stateful("q7", key="window", fn=highest_bids, writer="nexmark-7", **common)
        self._winning = ts.stateful(
            "auctions", key="auction", fn=winning_bids, outputs={"winners": "q9"}, writer="nexmark-9", **common
        )
        self._hot = ts.upsert("q5", merge={"bids": "sum"}, writer="nexmark-5", **common)
        self._new = ts.upsert("q8", merge={"name": "max", "auctions": "sum"}, writer="nexmark-8", **common)

    def __call__(self, events: DataFrame, batch_id: int) -> None:
        """Work off one micro-batch of `as_stream` events."""
        events.persist()
        try:
            people = events.where("person IS NOT NULL").select("person.*")
            auctions = events.where("auction IS NOT NULL").select("auction.*")
            bids = events.where("bid IS NOT NULL").select("bid.*")
            self._pass_on(bids, batch_id)
            self._local_items(_people_and_items(people, auctions), batch_id)
            self._hot(_bids_by_window(bids), batch_id)
            self._highest(bids.withColumn("window", F.window("time", "10 seconds").start), batch_id)
            self._new(_people_and_sellers(people, auctions), batch_id)
            self._winning(_auctions_and_bids(auctions, bids), batch_id)
        finally:
            events.unpersist()

    def _pass_on(self, bids: DataFrame, batch_id: int) -> None:
        tables = {
            "q0": bids,
            "q1": bids.withColumn("price", F.col("price") * 0.908),
            "q2": bids.where("auction % 123 = 0").select("event", "auction", "price"),
        }
        ts.write_epoch(batch_id, tables, writer="nexmark-bids", **self._common)


def follow_winners(spark: SparkSession, store: StateStore, checkpoint: str) -> None:
    """Query 4: bring the averages up to the newest winning bids, by the changes since the last time."""

    def add(changes: DataFrame, batch_id: int) -> None:
        sign = F.when(F.col("_op").isin("delete", "update_preimage"), -1).otherwise(1)
        sums = changes.groupBy("category").agg(
            F.sum(sign.cast("long")).alias("auctions"), F.sum(sign * F.col("price")).alias("price")
        )
        ts.write_epoch(
            batch_id, {"q4": (sums, {"auctions": "sum", "price": "sum"})}, store=store, writer="nexmark-4", partitions=1
        )

    feed = spark.readStream.format("tussock").options(store=store.url, readChangeFeed="true", startingEpoch="earliest")
    query = (
        feed.load("q9")
        .writeStream.trigger(availableNow=True)
        .option("checkpointLocation", checkpoint)
        .foreachBatch(add)
    )
    query.start().awaitTermination()


# --- What comes in by key -------------------------------------------------------------------------------------------


def _people_and_items(people: DataFrame, auctions: DataFrame) -> DataFrame:
    items = auctions.where("category = 10").selectExpr("seller AS id", "id AS auction")
    return people.select("id", "name", "city", "state").unionByName(items, allowMissingColumns=True)


def _people_and_sellers(people: DataFrame, auctions: DataFrame) -> DataFrame:
    window = F.window("time", "10 seconds").start.alias("window")
    new = people.select("id", window, "name", F.lit(0).cast("long").alias("auctions"))
    sellers = auctions.select(F.col("seller").alias("id"), window, F.lit(1).cast("long").alias("auctions"))
    return new.unionByName(sellers, allowMissingColumns=True)


def _bids_by_window(bids: DataFrame) -> DataFrame:
    windows = bids.select(F.window("time", "10 seconds", "2 seconds").start.alias("window"), "auction")
    return windows.groupBy("window", "auction").agg(F.count("auction").alias("bids"))


def _auctions_and_bids(auctions: DataFrame, bids: DataFrame) -> DataFrame:
    opened = auctions.selectExpr("id AS auction", "time AS opened", "expires", "seller", "category")
    offers = bids.select("auction", F.struct("price", "bidder", "time", "event").alias("offer"))
    return opened.unionByName(offers, allowMissingColumns=True)


# --- What is done with it -------------------------------------------------------------------------------------------


def local_items(batch: ts.KeyedBatch) -> ts.Update:
    """Query 3: auctions of the category whose seller lives near; either may come first."""
    rows, known = _frame(batch.rows), _frame(batch.state)
    details = ["id", "name", "city", "state"]
    people = pl.concat([rows.filter(pl.col("auction").is_null()), known.drop_nulls("name")], how="diagonal")
    people = people.select(details).unique("id")
    waited = known.select("id", auction="waiting").explode("auction")
    items = pl.concat([rows.select("id", "auction"), waited]).drop_nulls().join(people, on="id", how="left")
    waiting = items.filter(pl.col("name").is_null()).group_by("id").agg(waiting="auction")
    state = _frame(batch.keys).join(people, on="id", how="left").join(waiting, on="id", how="left")
    return ts.Update(state=state, outputs={"items": items.filter(pl.col("state").is_in(_LOCAL)).drop("id")})


def highest_bids(batch: ts.KeyedBatch) -> ts.Update:
    """Query 7: of each window the highest price, and all who bid it."""
    rows = _frame(batch.rows).select("window", "price", bid=pl.struct("auction", "bidder", "time", "event"))
    stored = _frame(batch.state).drop_nulls("price").select("window", "price", bid="bids").explode("bid")
    best = pl.concat([rows, stored]).filter(pl.col("price") == pl.col("price").max().over("window"))
    return ts.Update(state=best.group_by("window").agg(pl.col("price").first(), bids=pl.col("bid")))


def winning_bids(batch: ts.KeyedBatch) -> ts.Update:
    """Query 9: of each auction the highest bid while it was open, the earliest of equal ones."""
    rows, stored = _frame(batch.rows), _frame(batch.state)
    facts = ["auction", "opened", "expires", "seller", "category"]
    auctions = pl.concat([rows.select(facts), stored.select(facts)]).drop_nulls("opened")
    kept = pl.concat([stored.select("auction", offer="best"), stored.select("auction", offer="early").explode("offer")])
    offers = pl.concat([rows.select("auction", "offer"), kept]).filter(pl.col("offer").is_not_null())
    offers = offers.join(auctions, on="auction", how="left")
    early = offers.filter(pl.col("opened").is_null()).group_by("auction").agg(early="offer")
    time, price, event = (pl.col("offer").struct.field(name) for name in ("time", "price", "event"))
    best = (
        offers.filter(time.is_between("opened", "expires"))
        .sort(price, time, event, descending=[True, False, False])
        .group_by("auction", maintain_order=True)
        .agg(best=pl.col("offer").first())
    )
    state = _frame(batch.keys).join(auctions, on="auction", how="left")
    state = state.join(best, on="auction", how="left").join(early, on="auction", how="left")
    winners = state.filter(pl.col("best").is_not_null()).unnest("best")
    columns = [name for name, _ in _TABLES["q9"][0]]
    return ts.Update(state=state, outputs={"winners": winners.select(columns)})


def _frame(rows: pa.RecordBatch) -> pl.DataFrame:
    frame = pl.from_arrow(rows)
    assert isinstance(frame, pl.DataFrame)
    return frame


# --- What the queries answer ----------------------------------------------------------------------------------------

ANSWERS: Mapping[str, str] = {
    "q0": "SELECT auction, bidder, price, time, extra FROM q0",
    "q1": "SELECT auction, bidder, price, time, extra FROM q1",
    "q2": "SELECT auction, price FROM q2",
    "q3": "SELECT name, city, state, auction FROM q3",
    "q4": "SELECT category, price / auctions AS average FROM q4",
    "q5": """SELECT window, auction, bids FROM (SELECT *, MAX(bids) OVER (PARTITION BY window) AS most FROM q5)
        WHERE bids = most""",
    "q6": """SELECT seller, AVG(price) AS average FROM
        (SELECT *, ROW_NUMBER() OVER (PARTITION BY seller ORDER BY expires DESC, auction DESC) AS nth FROM q9)
        WHERE nth <= 10 GROUP BY seller""",
    "q7": "SELECT bid.auction, bid.bidder, price, bid.time FROM q7 LATERAL VIEW explode(bids) AS bid",
    "q8": "SELECT id, name, window FROM q8 WHERE name IS NOT NULL AND auctions > 0",
    "q9": "SELECT auction, seller, category, bidder, price, time FROM q9",
}


def answers(spark: SparkSession, store: StateStore, query: str) -> list[Any]:
    """The rows that a query answers now, read from its table at the newest epoch."""
    table = "q9" if query == "q6" else query
    spark.read.format("tussock").option("store", store.url).load(table).createOrReplaceTempView(table)
    return spark.sql(ANSWERS[query]).collect()
