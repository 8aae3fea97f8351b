"""Tables whose schema changes under Spark: what reads show, what `mergeSchema` adds, and how a write is refused."""

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql.types import (
    ArrayType,
    ByteType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructType,
)

from tussock.compute.spark import TussockDataSource
from tussock.compute.spark.options.evolution import check_known, schema_changes
from tussock.compute.spark.options.options import StoreAddress
from tussock.compute.spark.options.schemas import arrow_target
from tussock.compute.spark.reads.connections import working_store
from tussock.compute.spark.reads.reader import TableReader
from tussock.statestore import InvalidOption, SchemaMismatch
from tussock.statestore.client import StateStore

TABLE = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("small", pa.uint8()),
        ("count", pa.int32()),
        ("amount", pa.float32()),
        ("price", pa.decimal128(8, 2)),
    ]
)


def rows_of(**columns: DataType) -> StructType:
    """Spark's schema of rows with a key and these columns."""
    schema = StructType().add("id", LongType(), nullable=False)
    for name, kind in columns.items():
        schema = schema.add(name, kind)
    return schema


def types(schema: pa.Schema) -> dict[str, str]:
    return {field.name: str(field.type) for field in schema}


@pytest.mark.parametrize(
    ("columns", "add", "widen"),
    [
        ({"count": IntegerType()}, {}, {}),
        ({"count": LongType(), "amount": DoubleType()}, {}, {"count": "int64", "amount": "double"}),
        (
            {"note": StringType(), "tags": ArrayType(IntegerType())},
            {"note": "string", "tags": "list<element: int32>"},
            {},
        ),
        ({"price": DecimalType(12, 3)}, {}, {"price": "decimal128(12, 3)"}),
        # Read as a smallint, so a smallint is what it gets back; a narrower type fits as it is.
        ({"small": ShortType(), "count": ByteType(), "amount": FloatType()}, {}, {}),
        ({"small": IntegerType()}, {}, {"small": "int32"}),
        # Of another kind: for `check_writable` to refuse.
        ({"count": DoubleType(), "amount": DecimalType(10, 2), "price": StringType()}, {}, {}),
        ({"op": StringType()}, {}, {}),
    ],
)
def test_changes_that_a_write_asks_for(
    columns: dict[str, DataType], add: dict[str, str], widen: dict[str, str]
) -> None:
    """New columns, and wider types of the same kind; nothing where rows fit already."""
    added, widened = schema_changes(rows_of(**columns), TABLE, ("op",))
    assert (types(added), types(widened)) == (add, widen)
    assert all(field.nullable for field in added)


@pytest.mark.parametrize("names", [["COUNT"], ["note", "Note"]])
def test_names_that_differ_by_case_only_are_not_added(names: list[str]) -> None:
    """Spark finds columns in any case, so it could then select neither."""
    rows = rows_of(**{name: StringType() for name in names})
    with pytest.raises(SchemaMismatch, match=f"column '{names[-1]}' of the rows differs from column .* by case only"):
        schema_changes(rows, TABLE, ())
    schema_changes(rows, TABLE, names[-1:])
    with pytest.raises(SchemaMismatch, match=r"names are exact: 'COUNT' is 'count' there"):
        check_known(rows_of(COUNT=StringType()), TABLE, (), "t")


def test_the_message_names_the_option_that_adds_a_column() -> None:
    rows = rows_of(note=StringType(), n=ByteType())
    words = re.escape("table 't': unknown columns ['note', 'n'] of type string, tinyint, expected ['id', 'small'")
    with pytest.raises(SchemaMismatch, match=words + r".*alter_table\('t', add=.*mergeSchema=true; nothing was stored"):
        check_known(rows, TABLE, (), "t")
    check_known(rows, TABLE, ("note", "n"), "t")


def write(url: str, columns: StructType, *rows: dict[str, Any], **options: str) -> None:
    """A batch write as Spark's processes do it: planned, uploaded by one task, committed."""
    writer = TussockDataSource({"store": url, "path": "t", **options}).writer(columns, overwrite=False)
    writer.commit([writer.write(iter([pa.RecordBatch.from_pylist(list(rows), arrow_target(columns))]))])


def read(reader: TableReader) -> list[dict[str, Any]]:
    """All rows of a planned read, as its tasks give them."""
    return [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]


def test_a_write_with_merge_schema_alters_the_table_first(store: StateStore, url: str) -> None:
    """It is refused without the option; with it the columns are there, and a read that was planned before goes on."""
    store.alter_table("t", add={"n": pa.int32()})
    write(url, rows_of(v=StringType(), n=IntegerType()), {"id": 1, "v": "a", "n": 7})
    before = TussockDataSource({"store": url, "path": "t"})
    planned = before.reader(before.schema())
    wide = rows_of(n=LongType(), note=StringType())
    with pytest.raises(SchemaMismatch, match=r"unknown columns \['note'\] of type string.*mergeSchema=true"):
        write(url, wide, {"id": 2, "n": 1 << 40, "note": "new"})
    write(url, wide, {"id": 2, "n": 1 << 40, "note": "new"}, mergeSchema="true")
    store.version()  # Looks at what the other connection has done.
    assert types(store.table("t").schema) == {
        "id": "int64",
        "v": "string",
        "x": "double",
        "n": "int64",
        "note": "string",
    }
    assert read(planned) == [{"id": 1, "v": "a", "x": None, "n": 7}]
    after = TussockDataSource({"store": url, "path": "t"})
    assert after.schema()["n"].dataType == LongType()
    assert sorted(read(after.reader(after.schema())), key=lambda row: row["id"]) == [
        {"id": 1, "v": "a", "x": None, "n": 7, "note": None},
        {"id": 2, "v": None, "x": None, "n": 1 << 40, "note": "new"},
    ]
    with pytest.raises(SchemaMismatch, match="column 'x': expected double, found string"):
        write(url, rows_of(x=StringType()), {"id": 3, "x": "no"}, mergeSchema="true")
    with pytest.raises(InvalidOption, match="option mergeSchema is 'maybe'; expected true or false"):
        write(url, wide, mergeSchema="maybe")


def test_a_write_that_was_planned_before_the_table_was_altered(store: StateStore, url: str) -> None:
    """Its rows are right if they fit the new columns, and refused by name if the columns are of another kind now."""
    columns = rows_of(v=StringType(), n=IntegerType())
    store.alter_table("t", add={"n": pa.int32()})
    source = TussockDataSource({"store": url, "path": "t"})
    planned, late = source.writer(columns, overwrite=False), source.writer(columns, overwrite=False)
    batch = pa.RecordBatch.from_pylist([{"id": 1, "v": "a", "n": 7}], arrow_target(columns))
    uploaded = planned.write(iter([batch]))
    store.alter_table("t", add={"note": pa.string()}, widen={"n": pa.int64()})
    planned.commit([uploaded])
    late.commit([late.write(iter([batch]))])
    store.version()
    assert store.table("t").get(1) == {"id": 1, "v": "a", "x": None, "n": 7, "note": None}
    store.alter_table("t", widen={"n": pa.decimal128(22, 2)})
    store.wait_epoch(store.committed_epoch)
    again = source.writer(rows_of(v=StringType()), overwrite=False)
    again.commit([again.write(iter([batch.select(["id", "v"])]))])
    working_store(StoreAddress(url)).version()
    with pytest.raises(SchemaMismatch, match=r"column 'n': expected decimal128\(22, 2\), found int32"):
        source.writer(columns, overwrite=False)


@pytest.mark.spark
@pytest.mark.timeout(900)
def test_a_table_evolves_under_spark(spark: Any, store: StateStore, url: str) -> None:
    """A write is refused before any task; with the option it alters the table; an older DataFrame stays as it was."""
    from pyspark.errors import AnalysisException

    def load() -> Any:
        return spark.read.format("tussock").option("store", url).load("t")

    store.alter_table("t", add={"n": pa.int32()})
    write(url, rows_of(n=IntegerType()), {"id": 1, "n": 7})
    before = load()
    rows = spark.range(2, 3).selectExpr("id", "id << 40 AS n", "'new' AS note").coalesce(1)
    writer = rows.write.format("tussock").mode("append").option("store", url)
    with pytest.raises(AnalysisException, match=r"unknown columns \['note'\] of type string.*mergeSchema=true"):
        writer.save("t")
    writer.option("mergeSchema", True).save("t")
    assert before.collect() == [(1, None, None, 7)]
    assert sorted(load().collect()) == [(1, None, None, 7, None), (2, None, None, 2 << 40, "new")]


@pytest.mark.spark
@pytest.mark.timeout(900)
def test_a_table_that_changes_under_a_sink(spark: Any, store: StateStore, url: str, tmp_path: Path) -> None:
    """New columns become null and the stream goes on; another table of that name stops it with that reason."""
    files = tmp_path / "files"
    files.mkdir()

    def add(number: int) -> None:
        rows = pa.table({"id": [number], "v": ["a"]})
        pq.write_table(rows, tmp_path / "new.parquet")
        (tmp_path / "new.parquet").rename(files / f"{number}.parquet")

    rows = spark.readStream.schema("id bigint, v string").parquet(str(files))
    sink = rows.writeStream.format("tussock").option("store", url).option("table", "t")
    query = sink.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        add(0)
        query.processAllAvailable()
        store.alter_table("t", add={"note": pa.string()})
        add(1)
        query.processAllAvailable()
        store.version()
        assert store.table("t").get(1) == {"id": 1, "v": "a", "x": None, "note": None}
        store.drop_table("t")
        store.create_table("t", schema=pa.schema([("id", pa.int64()), ("v", pa.int64())]), primary_key=["id"])
        add(2)
        with pytest.raises(StreamingQueryException) as caught:
            query.processAllAvailable()
    finally:
        query.stop()
    # Spark plans the write of each batch anew. Python marks a part of the line that raised, or not.
    told = next(line for line in str(caught.value).splitlines() if line.startswith("tussock."))
    wrong = "table 't': column 'v': expected int64, found string; nothing was stored"
    assert told == f"tussock.statestore.errors.SchemaMismatch: {wrong}"
    assert store.table("t").get(2) is None
