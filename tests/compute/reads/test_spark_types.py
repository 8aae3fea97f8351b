"""Every type that Spark and Arrow share, as values and as keys, written by a batch and a stream, and read back."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyspark
import pytest

import tussock.compute.spark as ts
from tussock.statestore.client import StateStore

pytestmark = pytest.mark.spark

VARIANT = pa.struct(
    [
        pa.field("value", pa.binary(), nullable=False),
        pa.field("metadata", pa.binary(), nullable=False, metadata={b"variant": b"true"}),
    ]
)
NESTED = pa.struct(
    [("a", pa.list_(pa.struct([("b", pa.map_(pa.string(), pa.list_(pa.int8())))]))), ("c", pa.decimal128(38, 0))]
)

# Per column: the store's type, Spark's type in SQL, and two values in SQL, as a rule the ends of the range.
VALUES: dict[str, tuple[pa.DataType, str, str, str]] = {
    "flag": (pa.bool_(), "boolean", "true", "false"),
    "i8": (pa.int8(), "tinyint", "-128", "127"),
    "i16": (pa.int16(), "smallint", "-32768", "32767"),
    "i32": (pa.int32(), "int", "-2147483648", "2147483647"),
    "i64": (pa.int64(), "bigint", "-9223372036854775808", "9223372036854775807"),
    "u8": (pa.uint8(), "smallint", "0", "255"),
    "u16": (pa.uint16(), "int", "0", "65535"),
    "u32": (pa.uint32(), "bigint", "0", "4294967295"),
    "u64": (pa.uint64(), "decimal(20,0)", "0", "18446744073709551615"),
    "f32": (pa.float32(), "float", "'-Infinity'", "3.4028235E38"),
    "f64": (pa.float64(), "double", "'Infinity'", "4.9E-324"),
    "dec": (pa.decimal128(38, 18), "decimal(38,18)", "-99999999999999999999.999999999999999999", "1E-18"),
    "cents": (pa.decimal128(9, 2), "decimal(9,2)", "-9999999.99", "9999999.99"),
    "text": (pa.string(), "string", "''", "'grüße\\0\\U0001F600'"),
    "large": (pa.large_string(), "string", "'a'", "repeat('x', 60000)"),
    "viewed": (pa.string_view(), "string", "'longer than twelve bytes'", "''"),
    "fixed": (pa.binary(3), "binary", "X'000000'", "X'ffffff'"),
    "bytes": (pa.binary(), "binary", "X''", "X'00ff0001'"),
    "day": (pa.date32(), "date", "date'0001-01-01'", "date'9999-12-31'"),
    "at": (pa.timestamp("us", "UTC"), "timestamp", "timestamp'0001-01-02'", "timestamp'9999-12-30 23:59:59.999999'"),
    "ms": (
        pa.timestamp("ms", "Europe/Berlin"),
        "timestamp",
        "timestamp'1969-12-31 23:59:59.999'",
        "timestamp'2013-06-30'",
    ),
    "ntz": (
        pa.timestamp("us"),
        "timestamp_ntz",
        "timestamp_ntz'0001-01-01'",
        "timestamp_ntz'9999-12-31 23:59:59.999999'",
    ),
    "span": (
        pa.duration("us"),
        "interval day to second",
        "interval '-106751991 04:00:54.775807' day to second",
        "interval '0 00:00:00.000001' day to second",
    ),
    "none": (pa.null(), "void", "null", "null"),
    "list": (pa.list_(pa.int32()), "array<int>", "array(1, null)", "array()"),
    "struct": (
        pa.struct([("a", pa.int64()), ("b", pa.string())]),
        "struct<a:bigint,b:string>",
        "named_struct('a', 1L, 'b', null)",
        "named_struct('a', null, 'b', 'x')",
    ),
    "map": (pa.map_(pa.string(), pa.float64()), "map<string,double>", "map('a', 1.0D, 'b', null)", "map()"),
    "nested": (
        NESTED,
        "struct<a:array<struct<b:map<string,array<tinyint>>>>,c:decimal(38,0)>",
        "named_struct('a', array(named_struct('b', map('k', array(1Y, null))), null), 'c', null)",
        "named_struct('a', array(), 'c', 99999999999999999999999999999999999999)",
    ),
    "variant": (VARIANT, "variant", 'parse_json(\'{"a": [1, null, "x"]}\')', "parse_json('null')"),
}

KEYS = [
    *("flag", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "f32", "f64", "dec", "cents"),
    *("text", "large", "fixed", "bytes", "day", "at", "ms", "ntz", "span"),
]
"""Columns whose types can be in a primary key."""


def rows_of(spark: Any, columns: list[str]) -> Any:
    """Three rows of an id, two values and null in each column."""
    rows = [", ".join(f"cast({VALUES[name][2 + at]} as {VALUES[name][1]}) {name}" for name in columns) for at in (0, 1)]
    rows.append(", ".join(f"cast(null as {VALUES[name][1]}) {name}" for name in columns))
    frames = [spark.sql(f"SELECT {at}L id, {row}") for at, row in enumerate(rows)]
    return frames[0].unionAll(frames[1]).unionAll(frames[2])


def schema_of(columns: list[str]) -> pa.Schema:
    return pa.schema([pa.field("id", pa.int64(), nullable=False), *((name, VALUES[name][0]) for name in columns)])


def plain(rows: list[Any]) -> list[Any]:
    """Rows by id, each as text, because a variant does not define equality."""
    return [str(row) for row in sorted(rows, key=lambda row: row.id)]


def test_every_type_comes_back(spark: Any, store: StateStore, url: str, tmp_path: Path) -> None:
    """Extremes and nulls of each type as values, from a batch and from a stream; types that Spark lacks come wider."""
    names = list(VALUES)
    for table in ("batch", "stream"):
        store.create_table(table, schema_of(names), ["id"])
    rows = rows_of(spark, names).persist()
    expected = plain(rows.collect())
    rows.write.format("tussock").mode("append").option("store", url).save("batch")
    ticks = spark.readStream.format("rate-micro-batch").options(rowsPerBatch=3, startTimestamp=0).load()
    sink = ticks.select("value").join(rows, ticks.value == rows.id).select(rows.columns).writeStream.format("tussock")
    sink = sink.options(store=url, checkpointLocation=str(tmp_path / "checkpoint"))
    sink.trigger(availableNow=True).start("stream").awaitTermination()
    rows.unpersist()
    for table in ("batch", "stream"):
        back = spark.read.format("tussock").option("store", url).load(table)
        assert [field.dataType.simpleString() for field in back.schema] == [
            "bigint",
            *(VALUES[name][1] for name in names),
        ]
        assert plain(back.collect()) == expected, table


@pytest.mark.long
def test_every_key_type_is_found_by_key(spark: Any, store: StateStore, url: str) -> None:
    """The rows come back, and the same condition finds them by lookup and by Spark's filter."""
    rows = rows_of(spark, KEYS).where("id < 2").persist()
    expected = rows.collect()
    for name in KEYS:
        table = store.create_table(f"by_{name}", schema_of([name]), [name])
        rows.select("id", name).write.format("tussock").mode("append").option("store", url).save(table.name)
        back = spark.read.format("tussock").option("store", url).load(table.name)
        assert plain(back.collect()) == [str(pyspark.Row(id=row.id, **{name: row[name]})) for row in expected], name
        literal = f"cast({VALUES[name][3]} as {VALUES[name][1]})"
        found = ts.read_table(spark, table.name, store=url, where=f"{name} = {literal}")
        assert [row.id for row in found.collect()] == [1], name
    rows.unpersist()
