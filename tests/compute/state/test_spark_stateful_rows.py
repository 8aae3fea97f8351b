"""Rows of `stateful` on their way through Spark: each reaches the task of its key, for any plan, type or name."""

from typing import Any

import pyarrow as pa
import pytest

import tussock.compute.spark as ts
from support.spark.stateful_batches import table_rows
from tussock.statestore.client import StateStore
from tussock.statestore.errors import SchemaMismatch

pytestmark = pytest.mark.spark

COUNT = ts.merges(n="count")


def counting(store: StateStore, table: str, kind: pa.DataType, **options: Any) -> Any:
    """A count of rows by `k`, in a new table."""
    store.create_table(table, schema=pa.schema([("k", kind), ("n", pa.int64())]), primary_key=["k"])
    return ts.stateful(table, key="k", fn=COUNT, store=store, writer=table, **options)


def counts(store: StateStore, table: str) -> dict[Any, int]:
    return {row["k"]: row["n"] for row in table_rows(store.table(table))}


@pytest.fixture
def conf(spark: Any) -> Any:
    """The session's settings, restored after the test."""
    changed: dict[str, Any] = {}

    def change(name: str, value: Any) -> None:
        changed.setdefault(name, spark.conf.get(name, None))
        spark.conf.set(name, value)

    yield change
    for name, value in changed.items():
        if value is None:
            spark.conf.unset(name)
        else:
            spark.conf.set(name, value)


@pytest.mark.parametrize("partitions", [None, 4, 3])
def test_rows_of_an_aggregation_on_the_same_key(spark: Any, store: StateStore, conf: Any, partitions: Any) -> None:
    """Spark may not take its own exchange for that of the state, because it merges small partitions of it."""
    from pyspark.sql import functions as f

    conf("spark.sql.shuffle.partitions", partitions or 2)
    write = counting(store, "g", pa.int64(), partitions=partitions)
    for batch in range(2):
        rows = spark.range(1000).selectExpr("id % 50 k", "id v").groupBy("k").agg(f.sum("v").alias("v"))
        write(rows, batch)
    assert counts(store, "g") == dict.fromkeys(range(50), 2)


def test_rows_of_a_join_with_skew(spark: Any, store: StateStore, conf: Any) -> None:
    """Spark splits large partitions in its own exchange, not in that of the state."""
    conf("spark.sql.autoBroadcastJoinThreshold", -1)
    conf("spark.sql.adaptive.skewJoin.skewedPartitionThresholdInBytes", "1k")
    conf("spark.sql.adaptive.skewJoin.skewedPartitionFactor", "1")
    conf("spark.sql.adaptive.advisoryPartitionSizeInBytes", "2k")
    conf("spark.sql.shuffle.partitions", 4)
    left = spark.range(20_000).selectExpr("case when id % 10 < 8 then 1 else id % 50 end k", "id v")
    right = spark.range(50).selectExpr("id k", "id w")
    counting(store, "j", pa.int64(), partitions=4)(left.join(right, "k"), 0)
    expected: dict[int, int] = {}
    for number in range(20_000):
        key = 1 if number % 10 < 8 else number % 50
        expected[key] = expected.get(key, 0) + 1
    assert counts(store, "j") == expected


def test_rows_of_one_key_and_rows_that_were_placed_before(spark: Any, store: StateStore) -> None:
    """A constant key, rows of a cache, a sorted limit, and no rows at all."""
    write = counting(store, "c", pa.int64(), partitions=4)
    hundred = spark.range(100).selectExpr("7L k", "id v")
    write(hundred, 0)
    write(hundred.repartition(4, "k").cache(), 1)
    write(hundred.orderBy("v").limit(3), 2)
    write(hundred.where("false"), 3)
    assert counts(store, "c") == {7: 203}


@pytest.mark.parametrize("ansi", ["true", "false"])
@pytest.mark.parametrize(
    ("kind", "query"),
    [
        (pa.decimal128(10, 1), "select cast(x as decimal(10,2)) k from values (1.04), (1.01) t(x)"),
        (pa.int32(), "select 4294967297L k union all select 1L"),
        (pa.float32(), "select 0.1D k"),
    ],
    ids=str,
)
def test_keys_that_do_not_fit_are_refused(
    spark: Any, store: StateStore, conf: Any, kind: pa.DataType, query: str, ansi: str
) -> None:
    """Tussock refuses them by name, before Spark, which without ANSI would make another key of them."""
    conf("spark.sql.ansi.enabled", ansi)
    write = counting(store, "n", kind)
    with pytest.raises(
        Exception, match=r"SchemaMismatch: table 'n': key column 'k': expected .* two keys could become"
    ):
        write(spark.sql(query), 0)
    assert counts(store, "n") == {}
    write(spark.sql("select 1L k" if kind == pa.int32() else query.replace("1.0", "2.").replace("0.1D", "0.5D")), 0)
    assert sum(counts(store, "n").values()) in (1, 2)


def test_names_with_dots_quotes_and_other_case(spark: Any, store: StateStore) -> None:
    """Spark gives these characters no meaning here."""
    schema = pa.schema([("a.b", pa.int64()), ("c`d", pa.string()), ("n", pa.int64())])
    table = store.create_table("names", schema=schema, primary_key=["a.b", "c`d"])
    fn = ts.merges(n=("sum", "v.w"))
    write = ts.stateful("names", key=["a.b", "c`d"], fn=fn, store=store, writer="w", order_by="o.o")
    query = "select cast(id % 3 as int) `a.b`, 'x' `c``d`, id `v.w`, 1 `A.B`, id `o.o` from range(10)"
    write(spark.sql(query), 0)
    assert [row["n"] for row in table_rows(table)] == [18, 12, 15]


def test_variants_that_are_null(spark: Any, store: StateStore) -> None:
    """The fields of a variant may not be null; those of a null variant are."""
    kind = pa.struct(
        [pa.field("value", pa.binary(), nullable=False), pa.field("metadata", pa.binary(), nullable=False)]
    )
    table = store.create_table("v", schema=pa.schema([("k", pa.int64()), ("v", kind)]), primary_key=["k"])
    write = ts.stateful("v", key="k", fn=ts.merges(v="last"), store=store, writer="w")
    write(spark.sql("select id k, case when id > 1 then parse_json('1') end v from range(4)"), 0)
    assert [row["v"] is None for row in table_rows(table)] == [True, True, False, False]


def test_columns_that_spark_cannot_send(spark: Any, store: StateStore) -> None:
    """The error names the column, though the function may not need it."""
    write = counting(store, "i", pa.int64())
    with pytest.raises(SchemaMismatch, match="Spark sends no Arrow for column 'x' of type interval"):
        write(spark.sql("select 1L k, make_interval(1, 2, 3, 4, 5, 6, 7) x"), 0)
