"""The Nexmark queries 0 to 9 through Tussock's state, against Spark SQL over all events at once."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tussock.statestore import connect

EXAMPLES = Path(__file__).parents[3] / "examples"

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.long]

EVENTS = 4_000
BATCHES = 4
PER_SECOND = 100
"""40 seconds of events: four tumbling windows, and sliding ones."""

TRUTH: Mapping[str, str] = {
    "q0": "SELECT auction, bidder, price, time, extra FROM bids",
    "q1": "SELECT auction, bidder, price * 0.908D, time, extra FROM bids",
    "q2": "SELECT auction, price FROM bids WHERE auction % 123 = 0",
    "q3": """SELECT name, city, state, a.id FROM auctions a JOIN people p ON a.seller = p.id
        WHERE category = 10 AND state IN ('OR', 'ID', 'CA')""",
    "q4": "SELECT category, AVG(price) FROM winners GROUP BY category",
    "q5": """SELECT window, auction, n FROM (SELECT *, MAX(n) OVER (PARTITION BY window) AS most FROM (SELECT
        w.start AS window, auction, COUNT(*) AS n FROM (SELECT window(time, '10 seconds', '2 seconds') AS w, auction
        FROM bids) GROUP BY w, auction)) WHERE n = most""",
    "q6": """SELECT seller, AVG(price) FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY seller ORDER BY expires DESC,
        auction DESC) AS nth FROM winners) WHERE nth <= 10 GROUP BY seller""",
    "q7": """SELECT auction, bidder, price, time FROM (SELECT *, MAX(price) OVER (PARTITION BY window(time,
        '10 seconds')) AS most FROM bids) WHERE price = most""",
    "q8": """SELECT DISTINCT p.id, name, p.w.start FROM (SELECT id, name, window(time, '10 seconds') AS w FROM people) p
        JOIN (SELECT seller, window(time, '10 seconds') AS w FROM auctions) a ON p.id = a.seller AND p.w = a.w""",
    "q9": "SELECT auction, seller, category, bidder, price, time FROM winners",
}

WINNERS = """CREATE OR REPLACE TEMPORARY VIEW winners AS
    SELECT auction, seller, category, expires, bidder, price, time FROM (SELECT a.id AS auction, seller, category,
    expires, bidder, price, b.time, ROW_NUMBER() OVER (PARTITION BY a.id ORDER BY price DESC, b.time) AS nth
    FROM auctions a JOIN bids b ON a.id = b.auction AND b.time BETWEEN a.time AND a.expires) WHERE nth = 1"""


def in_batches(rows: pa.Table) -> list[pa.Table]:
    """One event of ten comes a batch or two late, so that sides of a join arrive in any order."""
    random = np.random.default_rng(7)
    late = random.integers(1, 3, EVENTS) * (random.random(EVENTS) < 0.1)
    batch = np.minimum(np.arange(EVENTS) * BATCHES // EVENTS + late, BATCHES - 1)
    return [rows.filter(pa.array(batch == number)) for number in range(BATCHES)]


@pytest.mark.timeout(900)
def test_queries_give_the_results_of_batch_sql(spark: Any, url: str, tmp_path: Path) -> None:
    """Late events, and a restart with another number of partitions in between: the results equal those of the batch."""
    # Modules of a job are shipped to Spark's workers like this.
    shipped = shutil.make_archive(str(tmp_path / "nexmark"), "zip", EXAMPLES, "nexmark")
    spark.sparkContext.addPyFile(shipped)
    from nexmark.events import as_stream, generate
    from nexmark.queries import ANSWERS, Queries, answers, create_tables, follow_winners

    events = generate(0, EVENTS, seed=7, per_second=PER_SECOND)
    for name, table in (("people", events.people), ("auctions", events.auctions), ("bids", events.bids)):
        pq.write_table(table, tmp_path / f"{name}.parquet")
        spark.read.parquet(str(tmp_path / f"{name}.parquet")).createOrReplaceTempView(name)
    spark.sql(WINNERS)
    truth = {query: sorted(map(tuple, spark.sql(sql).collect())) for query, sql in TRUTH.items()}
    assert all(truth.values()), "a query without an answer shows nothing"

    folder = tmp_path / "events"
    folder.mkdir()
    batches = list(enumerate(in_batches(as_stream(events))))
    with connect(url) as store:
        create_tables(store)
        for partitions, arriving in ((2, batches[: BATCHES // 2]), (5, batches[BATCHES // 2 :])):
            for number, rows in arriving:
                pq.write_table(rows, folder / f"{number}.parquet")
            schema = spark.read.parquet(str(folder / "0.parquet")).schema
            stream = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder))
            query = stream.writeStream.trigger(availableNow=True).foreachBatch(Queries(store, partitions))
            query.option("checkpointLocation", str(tmp_path / "checkpoint")).start().awaitTermination()
            follow_winners(spark, store, str(tmp_path / "follower"))
        for query_name in ANSWERS:
            assert sorted(map(tuple, answers(spark, store, query_name))) == truth[query_name], query_name
