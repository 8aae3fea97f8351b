"""Conditions on columns: the rows that pass, and the keys and intervals of keys that a read of them needs."""

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import datasource as ds

from tussock.compute.spark import TussockDataSource
from tussock.compute.spark.options.conditions import LOOKUP_KEYS_MAX, conditions_of, expression_of
from tussock.compute.spark.options.options import StoreAddress
from tussock.compute.spark.options.pushdown import filter_tests, portable_tests
from tussock.compute.spark.options.where import where_json, where_tests
from tussock.compute.spark.reads.connections import working_store
from tussock.compute.spark.reads.partitions import KeyLookup, KeyRange, VnodeRange
from tussock.compute.spark.reads.reader import FilteringReader, TableReader
from tussock.statestore import connect
from tussock.statestore.errors import InvalidOption, SchemaMismatch
from tussock.statestore.keys.conditions import Conditions

SCHEMA = pa.schema(
    [
        ("a", pa.string()),
        ("d", pa.date32()),
        ("n", pa.int32()),
        ("f", pa.float64()),
        ("u", pa.uint8()),
        ("at", pa.timestamp("us", "UTC")),
        ("local", pa.timestamp("ms")),
        ("price", pa.decimal128(9, 2)),
        ("raw", pa.binary()),
    ]
)
DAY = dt.date(2013, 1, 2)
NOON = dt.datetime(2013, 6, 30, 12, tzinfo=dt.UTC)
PREFIXES = ["", "a", "a\U0010ffff", "\ud7ff", "\U0010ffff", "ab"]


def conditions(where: str) -> Conditions:
    return conditions_of(where_tests(where), SCHEMA, "t")


@pytest.mark.parametrize(
    ("where", "interval"),
    [
        ('{"n": 1}', None),
        ('{"a": "x"}', (("x",), ("x",))),
        ('{"a": ["x", "b"]}', (("b",), ("x",))),
        ('{"a": "x", "d": {">": "2013-01-02", "<=": "2013-02-01"}}', (("x", DAY), ("x", dt.date(2013, 2, 1)))),
        ('{"a": {"prefix": "x"}}', (("x",), ("y",))),
        ('{"a": {"prefix": "x\U0010ffff"}}', (("x\U0010ffff",), ("y",))),
        ('{"a": {"prefix": "\U0010ffff"}}', (("\U0010ffff",), ())),
        ('{"a": {"prefix": "\\ud7ff"}}', (("\ud7ff",), ("\ue000",))),
        ('{"a": {">=": "b", "prefix": "c"}}', (("c",), ("d",))),
        ('{"a": "x", "n": {"<": 3}}', (("x",), ("x",))),
        ('{"a": {"<": "c"}}', ((), ("c",))),
        ('{"d": "2013-01-02"}', None),
    ],
)
def test_interval_of_keys(where: str, interval: Any) -> None:
    """Equal leading columns, then a range of the next one."""
    assert conditions(where).intervals(["a", "d"]) == (None if interval is None else [interval])


def test_keys_that_can_pass() -> None:
    """Every combination of the values of whole keys; several tests of a column leave what passes all."""
    assert conditions('{"a": ["x", "y"], "d": "2013-01-02"}').keys(["a", "d"], LOOKUP_KEYS_MAX) == [
        ("x", DAY),
        ("y", DAY),
    ]
    assert conditions('{"a": "x"}').keys(["a", "d"], LOOKUP_KEYS_MAX) is None
    assert conditions('{"a": []}').keys(["a"], LOOKUP_KEYS_MAX) == []
    both = Conditions((*conditions('{"a": ["x", "y"]}').tests, *conditions('{"a": ["y", "z"]}').tests))
    assert both.keys(["a"], LOOKUP_KEYS_MAX) == [("y",)]


@pytest.mark.parametrize("prefix", PREFIXES)
def test_prefix_is_what_begins_with_it(prefix: str) -> None:
    """It also ends right at the last code point and at the surrogates, which no string has."""
    values = ["", "a", "a\U0010ffff", "a\U0010ffffb", "ab", "b", "\ud7ff", "\ud7ffx", "\ue000", "\U0010ffff"]
    rows = pa.record_batch({"a": values})
    test = expression_of(conditions_of([("a", "prefix", prefix)], rows.schema, "t"), rows.schema)
    assert rows.filter(test).column("a").to_pylist() == [value for value in values if value.startswith(prefix)]


@pytest.mark.parametrize(
    ("where", "error", "words"),
    [
        ('{"zz": 1}', SchemaMismatch, "no column 'zz', which option where names"),
        ('{"n": "x"}', InvalidOption, "column 'n': expected int32, found"),
        ('{"n": {"<": 3000000000}}', InvalidOption, "column 'n': expected int32, found 3000000000"),
        ('{"d": {">=": "tomorrow"}}', InvalidOption, "column 'd': expected date32"),
        ('{"n": {"prefix": 1}}', InvalidOption, "only a string or a binary has a prefix"),
        ('{"n": [1, "x"]}', InvalidOption, "column 'n': expected int32"),
    ],
)
def test_values_that_a_column_cannot_have(where: str, error: type[Exception], words: str) -> None:
    """The message names the column, its type and the value."""
    with pytest.raises(error, match=words):
        conditions(where)


FILTERS: list[tuple[ds.Filter, bool]] = [
    (ds.EqualTo(("a",), "x"), True),
    (ds.EqualNullSafe(("a",), "x"), True),
    (ds.EqualNullSafe(("a",), None), False),
    (ds.In(("n",), (1, 2, None)), True),
    (ds.GreaterThan(("n",), 1), True),
    (ds.LessThanOrEqual(("d",), DAY), True),
    (ds.StringStartsWith(("a",), "x"), True),
    (ds.EqualTo(("price",), Decimal("1.50")), True),
    (ds.EqualTo(("raw",), b"\xff"), True),
    (ds.GreaterThanOrEqual(("at",), NOON), True),
    (ds.LessThan(("local",), NOON.replace(tzinfo=None)), True),
    (ds.GreaterThan(("local",), NOON.replace(tzinfo=None, microsecond=7000)), True),
    (ds.LessThan(("local",), NOON.replace(tzinfo=None, microsecond=1)), False),
    (ds.EqualTo(("u",), -1), False),
    (ds.GreaterThan(("f",), 1.0), False),
    (ds.Not(ds.EqualTo(("a",), "x")), False),
    (ds.StringEndsWith(("a",), "x"), False),
    (ds.StringContains(("a",), "x"), False),
    (ds.IsNull(("a",)), False),
    (ds.EqualTo(("s", "inner"), 1), False),
]


@pytest.mark.parametrize(("each", "taken"), FILTERS, ids=str)
def test_filters_are_taken_or_given_back(each: ds.Filter, taken: bool) -> None:
    """A filter is taken only if a test expresses it exactly."""
    tests, left = filter_tests([each], SCHEMA, ())
    assert (len(tests), left) == ((1, []) if taken else (0, [each]))


def test_a_test_holds_for_no_null() -> None:
    """`IsNotNull` needs no test where the column is tested or is never null; otherwise it goes back."""
    filters = [ds.IsNotNull(("n",)), ds.IsNotNull(("a",)), ds.IsNotNull(("f",)), ds.EqualTo(("n",), 1)]
    assert filter_tests(filters, SCHEMA, ["a"])[1] == [ds.IsNotNull(("f",))]


def test_filters_that_json_can_hold() -> None:
    """The option `where` of `read_table` gives the same tests back; a binary that is no text is left out."""
    filters = [each for each, _ in FILTERS if getattr(each, "attribute", None) != ("a",)]
    tests = filter_tests(filters, SCHEMA, ())[0]
    portable = portable_tests(filters, SCHEMA)
    again = conditions_of(where_tests(where_json(portable)), SCHEMA, "t")
    assert set(again.tests) == {test for test in tests if test.column != "raw"}


@pytest.fixture
def big(tmp_path: Path) -> dict[str, str]:
    """Options of a table of 60,000 rows {day, n, text} by (day, n), of two virtual nodes and some hundred blocks."""
    url = (tmp_path / "store").as_uri()
    schema = pa.schema([("day", pa.date32()), ("n", pa.int64()), ("text", pa.string())])
    with connect(url) as store:
        table = store.create_table("t", schema, ["day", "n"], vnodes=2, compression="none", block_bytes=8192)
        raw = store.create_table("raw", block_bytes=8192, compression="none")
        epoch = store.new_epoch()
        days = [dt.date(2013, 1, 1) + dt.timedelta(days=at // 1000) for at in range(60_000)]
        texts = [f"text number {at} {'x' * 20}" for at in range(60_000)]
        table.upsert(pa.table({"day": pa.array(days), "n": range(60_000), "text": texts}), epoch)
        raw.ingest_batch([(f"k{at:05}".encode(), texts[at].encode()) for at in range(60_000)], epoch)
        store.commit_epoch(epoch)
    return {"store": url, "table": "t"}


def rows_and_bytes(options: dict[str, str], filters: list[ds.Filter] | None = None) -> tuple[list[Any], int, set[str]]:
    """The rows that a read gives, the bytes that it fetched, and the kinds of its partitions."""
    address = StoreAddress(options["store"], (("cache_bytes", 0),))
    source = TussockDataSource({**options, "cacheBytes": "0"})
    reader = source.reader(source.schema())
    assert isinstance(reader, TableReader)
    if filters is not None:
        assert isinstance(reader, FilteringReader)
        assert not list(reader.pushFilters(filters))
    partitions = reader.partitions()
    fetched = lambda: sum(size for _, size in working_store(address).requests().get("read", {}).values())  # noqa: E731
    before = fetched()
    rows = [row for part in partitions for batch in reader.read(part) for row in batch.to_pylist()]
    return rows, fetched() - before, {type(part).__name__ for part in partitions}


def test_a_condition_on_the_key_reads_less_than_the_table(big: dict[str, str]) -> None:
    """Lookups, prefixes and ranges fetch a part of the bytes, by the option and by pushed filters alike."""
    every, all_bytes, _ = rows_and_bytes(big)
    assert len(every) == 60_000
    first = dt.date(2013, 1, 5)
    cases = [
        ('{"day": "2013-01-05", "n": [4007, 1]}', [ds.EqualTo(("day",), first), ds.In(("n",), (4007, 1))], 1),
        ('{"day": "2013-01-05"}', [ds.EqualTo(("day",), first)], 1000),
        (
            '{"day": "2013-01-05", "n": {">=": 4100, "<": 4200}}',
            [ds.EqualTo(("day",), first), ds.GreaterThanOrEqual(("n",), 4100), ds.LessThan(("n",), 4200)],
            100,
        ),
        (
            '{"day": {">": "2013-01-05", "<=": "2013-01-07"}}',
            [ds.GreaterThan(("day",), first), ds.LessThanOrEqual(("day",), dt.date(2013, 1, 7))],
            2000,
        ),
        ('{"day": {"<": "2013-01-02"}}', [ds.LessThan(("day",), dt.date(2013, 1, 2))], 1000),
    ]
    for where, filters, count in cases:
        by_option = rows_and_bytes({**big, "where": where})
        by_filters = rows_and_bytes({**big, "pushdown": "true"}, filters)
        assert len(by_option[0]) == count
        assert by_option == by_filters
        assert by_option[1] < all_bytes / 5, where


def test_raw_tables_are_read_by_key(big: dict[str, str]) -> None:
    """Keys, prefixes and ranges of a raw table's key."""
    raw = {**big, "table": "raw"}
    _, all_bytes, kinds = rows_and_bytes(raw)
    assert kinds == {KeyRange.__name__}
    for where, count, kind in [
        ('{"key": ["k00007", "k59999", "none"]}', 2, KeyLookup),
        ('{"key": {"prefix": "k123"}}', 100, KeyRange),
        ('{"key": {">": "k10000", "<=": "k10010"}}', 10, KeyRange),
        ('{"key": "k00007", "value": "something else"}', 0, KeyLookup),
    ]:
        rows, fetched, kinds = rows_and_bytes({**raw, "where": where})
        assert (len(rows), kinds) == (count, {kind.__name__})
        assert fetched < all_bytes / 5, where


def test_a_small_table_of_many_nodes_is_read_as_a_whole(tmp_path: Path) -> None:
    """An interval over all virtual nodes would be a request in each; below some bytes a node that is no gain."""
    url = (tmp_path / "store").as_uri()
    with connect(url) as store:
        table = store.create_table("t", pa.schema([("n", pa.int64())]), ["n"])
        epoch = store.new_epoch()
        table.upsert(pa.table({"n": range(5000)}), epoch)
        store.commit_epoch(epoch)
    source = TussockDataSource({"store": url, "table": "t", "where": '{"n": {">=": 10, "<": 20}}'})
    reader = source.reader(source.schema())
    assert reader.partitions() == [VnodeRange(0, 256)]
    assert sum(batch.num_rows for batch in reader.read(VnodeRange(0, 256))) == 10


def test_splits_have_the_bytes_of_the_option(big: dict[str, str]) -> None:
    """`maxSplitBytes` decides how many tasks a read has."""
    source = TussockDataSource({**big, "maxSplitBytes": str(1 << 20)})
    assert source.reader(source.schema()).partitions() == [VnodeRange(0, 1), VnodeRange(1, 2)]
