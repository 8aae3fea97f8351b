"""Every type through the writer and the reader that Spark calls in its tasks, without a session around them."""

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import CalendarIntervalType, LongType, StructField, StructType, YearMonthIntervalType

from tussock.compute.spark import TussockDataSource
from tussock.compute.spark.options.options import StoreAddress, parse_write
from tussock.compute.spark.options.schemas import arrow_target, spark_schema
from tussock.compute.spark.reads.connections import working_store
from tussock.compute.spark.reads.partitions import VnodeRange
from tussock.compute.spark.writes.writer import BatchWriter, plan_upload
from tussock.statestore.client import StateStore
from tussock.statestore.errors import SchemaMismatch

VARIANT = pa.struct(
    [
        pa.field("value", pa.binary(), nullable=False),
        pa.field("metadata", pa.binary(), nullable=False, metadata={b"variant": b"true"}),
    ]
)
NESTED = pa.struct([("a", pa.list_(pa.struct([("b", pa.map_(pa.string(), pa.list_(pa.int8())))]))), ("c", pa.date32())])
UTC = dt.UTC
LAST = dt.datetime(9999, 12, 31, 23, 59, 59, 999999)

# The store's type, what Spark calls it, and values as Spark's Arrow has them.
TYPES: dict[str, tuple[pa.DataType, str, list[Any]]] = {
    "flag": (pa.bool_(), "boolean", [True, False]),
    "i8": (pa.int8(), "tinyint", [-128, 127]),
    "i16": (pa.int16(), "smallint", [-32768, 32767]),
    "i32": (pa.int32(), "int", [-(2**31), 2**31 - 1]),
    "i64": (pa.int64(), "bigint", [-(2**63), 2**63 - 1]),
    "u8": (pa.uint8(), "smallint", [0, 255]),
    "u16": (pa.uint16(), "int", [0, 65535]),
    "u32": (pa.uint32(), "bigint", [0, 2**32 - 1]),
    "u64": (pa.uint64(), "decimal(20,0)", [Decimal(0), Decimal(2**64 - 1)]),
    "f32": (pa.float32(), "float", [float("-inf"), 2.0**-149]),
    "f64": (pa.float64(), "double", [float("inf"), 5e-324]),
    "dec": (pa.decimal128(38, 18), "decimal(38,18)", [Decimal("-" + "9" * 20 + "." + "9" * 18), Decimal("1E-18")]),
    "text": (pa.string(), "string", ["", "grüße\0\U0001f600"]),
    "large": (pa.large_string(), "string", ["a", "x" * 60_000]),
    "viewed": (pa.string_view(), "string", ["longer than twelve bytes", ""]),
    "fixed": (pa.binary(3), "binary", [b"\0\0\0", b"\xff\xff\xff"]),
    "bytes": (pa.binary(), "binary", [b"", bytes(range(256))]),
    "day": (pa.date32(), "date", [dt.date.min, dt.date.max]),
    "at": (pa.timestamp("us", "UTC"), "timestamp", [dt.datetime.min.replace(tzinfo=UTC), LAST.replace(tzinfo=UTC)]),
    "ms": (
        pa.timestamp("ms", "Europe/Berlin"),
        "timestamp",
        [dt.datetime(1969, 12, 31, 23, 59, 59, 999000, UTC), dt.datetime(2013, 6, 30, tzinfo=UTC)],
    ),
    "ntz": (pa.timestamp("us"), "timestamp_ntz", [dt.datetime.min, LAST]),
    "time": (pa.time64("us"), "time(6)", [dt.time.min, dt.time.max]),
    "span": (
        pa.duration("us"),
        "interval day to second",
        [dt.timedelta(days=-106_751_990), dt.timedelta(days=106_751_990, microseconds=1)],
    ),
    "none": (pa.null(), "void", [None, None]),
    "list": (pa.list_(pa.int32()), "array<int>", [[1, None], []]),
    "struct": (
        pa.struct([("a", pa.int64()), ("b", pa.string())]),
        "struct<a:bigint,b:string>",
        [{"a": 1, "b": None}, {"a": None, "b": "x"}],
    ),
    "map": (pa.map_(pa.string(), pa.float64()), "map<string,double>", [[("a", 1.0), ("b", None)], []]),
    "nested": (
        NESTED,
        "struct<a:array<struct<b:map<string,array<tinyint>>>>,c:date>",
        [{"a": [{"b": [("k", [1, None])]}, None], "c": None}, {"a": [], "c": dt.date.min}],
    ),
    "variant": (
        VARIANT,
        "variant",
        [{"value": b"\0", "metadata": b"\1\0\0"}, {"value": b"\x0c\x01", "metadata": b"\1\0\0"}],
    ),
}
NO_KEY = {"viewed", "none", "list", "struct", "map", "nested", "variant"}


def write_and_read(url: str, table: str, rows: pa.RecordBatch, schema: StructType) -> list[dict[str, Any]]:
    """Write as a task does and read it back as a task does, in Spark's Arrow types."""
    writer = BatchWriter(plan_upload(parse_write({"store": url, "table": table}), schema), overwrite=False)
    writer.commit([writer.write(iter([rows]))])
    source = TussockDataSource({"store": url, "table": table})
    reader = source.reader(source.schema())
    batches = [batch for part in reader.partitions() for batch in reader.read(part)]
    assert all(batch.schema == arrow_target(source.schema()) for batch in batches)
    return sorted((row for batch in batches for row in batch.to_pylist()), key=lambda row: row["id"])


@pytest.mark.parametrize("name", TYPES)
def test_values_come_back(store: StateStore, url: str, name: str) -> None:
    """Extremes and null of each type, as Spark's type of the same name or as the next wider one."""
    kind, sql, values = TYPES[name]
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), (name, kind)])
    store.create_table("values", schema, ["id"])
    shown = spark_schema(schema, ["id"], "values")
    assert shown[name].dataType.simpleString() == sql
    rows = pa.record_batch(
        [pa.array([0, 1, 2]), pa.array([*values, None], arrow_target(shown).field(name).type)], ["id", name]
    )
    assert write_and_read(url, "values", rows, shown) == rows.to_pylist()


@pytest.mark.parametrize("name", [name for name in TYPES if name not in NO_KEY])
def test_keys_come_back_and_are_found(store: StateStore, url: str, name: str) -> None:
    """Each key type; the option `where` finds it if JSON has such values."""
    kind, _, values = TYPES[name]
    schema = pa.schema([("id", pa.int64()), (name, kind)])
    store.create_table("keys", schema, [name])
    shown = spark_schema(schema, [name], "keys")
    rows = pa.record_batch([pa.array([0, 1]), pa.array(values, arrow_target(shown).field(name).type)], ["id", name])
    assert write_and_read(url, "keys", rows, shown) == rows.to_pylist()


@pytest.mark.parametrize("name", sorted(NO_KEY))
def test_types_that_cannot_be_keys_are_refused(store: StateStore, name: str) -> None:
    """The creation of the table names the column and its type."""
    with pytest.raises(SchemaMismatch, match=f"key column '{name}' has type"):
        store.create_table("keys", pa.schema([(name, TYPES[name][0])]), [name])


@pytest.mark.parametrize("kind", [YearMonthIntervalType(), CalendarIntervalType()], ids=str)
def test_types_without_arrow_are_refused(store: StateStore, url: str, kind: Any) -> None:
    """The refusal names the column, before any task runs."""
    schema = StructType([StructField("id", LongType()), StructField("v", kind)])
    with pytest.raises(SchemaMismatch, match=r"table 't': Spark sends no Arrow for column 'v' of type interval"):
        plan_upload(parse_write({"store": url, "table": "t"}), schema)


def test_a_column_that_spark_has_no_type_for_can_be_left_out(store: StateStore, url: str) -> None:
    """Spark has no type for the column: it is named, and option `columns` reads the others."""
    store.create_table("odd", pa.schema([("id", pa.int64()), ("v", pa.month_day_nano_interval())]), ["id"])
    with pytest.raises(SchemaMismatch, match=r"no type for column 'v' of type month_day_nano_interval; leave it out"):
        TussockDataSource({"store": url, "table": "odd"}).schema()
    assert TussockDataSource({"store": url, "table": "odd", "columns": "id"}).schema().names == ["id"]


def test_a_table_created_anew_is_not_read_by_an_old_plan(store: StateStore, url: str) -> None:
    """A reader that was planned with another table of that name does not read this one."""
    epoch = store.new_epoch()
    store.table("t").upsert([{"id": 1}], epoch)
    store.commit_epoch(epoch)
    source = TussockDataSource({"store": url, "table": "t"})
    reader = source.reader(source.schema())
    store.drop_table("t")
    store.create_table("t", pa.schema([("id", pa.int64())]), ["id"])
    # Until this process has looked again, the rows of the DataFrame's epoch are those of the old table.
    working_store(StoreAddress(url)).version()
    with pytest.raises(SchemaMismatch, match="table 't' was dropped and created anew after the job was planned"):
        list(reader.read(VnodeRange(0, 256)))
