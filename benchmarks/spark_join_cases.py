"""A lookup join beside Spark's shuffled join, as a function of a session and a folder.

The facts have a bigint key that is in the table nine times out of ten, in random order, and a bigint; they are cached
in Spark. The table has a bigint key, a short string and a double: in Tussock, compacted, and in Parquet. Both joins add
the string and the double to each fact and reduce all of it to one row, which has to be the same. Each run does both
sides, one directly after the other; the first run only warms up and is not counted. Spark's broadcast joins are
switched off, as they are for tables that do not fit into memory.
"""

import statistics
import time
from pathlib import Path
from typing import Any

import pyarrow as pa

from tussock.compute.spark import lookup
from tussock.statestore import connect

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("amount", pa.float64())])
SPREAD = 1_000_000_007
"""A prime: keys are multiples of 7919 modulo this one, so that they are all different and in no order."""


def lookup_join(spark: Any, folder: Path, rows: int, keys: int, runs: int) -> dict[str, list[float]]:
    """Seconds of joining `rows` facts with a table of `keys` keys, by a lookup and by a shuffle."""
    url, parquet = (folder / "store").as_uri(), str(folder / "parquet")
    table = spark.range(0, keys, 1, 2).selectExpr(
        f"id * 7919 % {SPREAD} id", "concat('name-', id % 1000) name", "id * 0.5D amount"
    )
    with connect(url) as store:
        store.create_table("t", schema=SCHEMA, primary_key=["id"])
        table.write.format("tussock").mode("append").option("store", url).save("t")
        store.compact("t")
    table.write.parquet(parquet)
    drawn = f"(id * 48271L % {keys} + IF(id % 10 = 0, {keys}, 0)) * 7919 % {SPREAD}"
    facts = spark.range(0, rows, 1, 2).selectExpr(f"{drawn} id", "id n").cache()
    facts.count()
    found = lookup("t", store=url)
    answers: set[Any] = set()

    def total(joined: Any) -> None:
        answers.add(tuple(joined.selectExpr("sum(n)", "count(name)", "max(name)", "sum(amount)").collect()[0]))

    def by_lookup() -> None:
        total(facts.select("n", found("id").alias("t")).select("n", "t.name", "t.amount"))

    def by_shuffle() -> None:
        total(facts.join(spark.read.parquet(parquet), "id", "left"))

    seconds: dict[str, list[float]] = {"lookup": [], "shuffled": []}
    threshold = spark.conf.get("spark.sql.autoBroadcastJoinThreshold")
    spark.conf.set("spark.sql.autoBroadcastJoinThreshold", -1)
    try:
        for run in range(runs + 1):
            for name, join in (("lookup", by_lookup), ("shuffled", by_shuffle)):
                started = time.perf_counter()
                join()
                if run:
                    seconds[name].append(time.perf_counter() - started)
    finally:
        spark.conf.set("spark.sql.autoBroadcastJoinThreshold", threshold)
        facts.unpersist()
    if len(answers) != 1:
        raise RuntimeError(f"the two joins differ: {answers}")
    return seconds


def medians(seconds: dict[str, list[float]]) -> dict[str, float]:
    """The middle run of each side."""
    return {name: statistics.median(times) for name, times in seconds.items()}
