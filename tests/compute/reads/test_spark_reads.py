"""Batch reads through a real Spark session: how the format is found, moments, filters, pins, and errors."""

import datetime as dt
import gc
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tussock.compute.spark as ts
from support.waiting import eventually
from tussock.compute.spark import TussockDataSource
from tussock.compute.spark.source import FILTER_SWITCH
from tussock.statestore import connect
from tussock.statestore.client import StateStore
from tussock.statestore.errors import InvalidOption, SnapshotExpired, TableNotFound

pytestmark = pytest.mark.spark

DAYS = pa.schema([("day", pa.date32()), ("name", pa.string()), ("n", pa.int32()), ("x", pa.float64())])


def read(spark: Any, url: str, table: str = "t", **options: Any) -> Any:
    return spark.read.format("tussock").options(store=url, **options).load(table)


def numbers(frame: Any, column: str = "n") -> list[int]:
    return sorted(row[column] for row in frame.select(column).collect())


@pytest.fixture
def days(store: StateStore) -> StateStore:
    """A table `days` of 60 rows by (day, name): five names a day, x is NaN, null, or n."""
    table = store.create_table("days", DAYS, ["day", "name"], distribution_key=["day"])
    epoch = store.new_epoch()
    rows = [
        {
            "day": dt.date(2013, 1, 1) + dt.timedelta(days=n // 5),
            "name": f"{'ab'[n % 2]}{n % 5}",
            "n": n,
            "x": (float("nan"), None, float(n))[n % 3],
        }
        for n in range(60)
    ]
    table.upsert(rows, epoch)
    store.commit_epoch(epoch)
    return store


def test_format_is_found_without_registration(spark: Any, days: StateStore, url: str) -> None:
    """In a session without registration: `load`, and a view of SQL with options; a later registration does no harm."""
    fresh = spark.newSession()
    assert fresh.conf.get(FILTER_SWITCH) == "false"
    assert read(fresh, url, "days").count() == 60
    fresh.sql(f"CREATE TEMPORARY VIEW v USING tussock OPTIONS (store '{url}', table 'days', columns 'day,n')")
    assert fresh.sql("SELECT sum(n) FROM v WHERE day = date'2013-01-02'").collect()[0][0] == 5 + 6 + 7 + 8 + 9
    ts.register(fresh)
    assert read(fresh, url, "days").count() == 60


def test_sparks_import_of_the_format_loads_next_to_nothing() -> None:
    """Spark imports `pyspark_tussock` at the first use of any format, so that loads neither the store nor Arrow."""
    program = "import sys, pyspark_tussock; print([n for n in ('tussock.statestore', 'polars') if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_as_of_options_read_an_earlier_state(spark: Any, store: StateStore, url: str) -> None:
    """`asOfEpoch` and `asOfTimestamp` read an earlier state; together they are refused."""
    table, epochs = store.table("t"), []
    for at in range(2):
        epoch = store.new_epoch()
        table.upsert([{"id": at}], epoch)
        epochs.append(store.commit_epoch(epoch))
        eventually(lambda: store.new_epoch() >> 16 > epochs[-1] >> 16)
    assert numbers(read(spark, url, asOfEpoch=epochs[0]), "id") == [0]
    assert numbers(read(spark, url, asOfTimestamp=epochs[0] >> 16), "id") == [0]
    assert numbers(read(spark, url, as_of_epoch=epochs[1]), "id") == [0, 1]
    with pytest.raises(Exception, match="options asOfEpoch and asOfTimestamp: give one of them"):
        read(spark, url, asOfEpoch=epochs[0], asOfTimestamp=1)


def test_where_gives_what_spark_gives(spark: Any, days: StateStore, url: str) -> None:
    """Values, ranges and prefixes of key columns and others, compared with the same condition in SQL."""
    every = read(spark, url, "days").persist()
    cases = [
        ({"day": "2013-01-02", "name": ["a0", "b1", "zz"]}, "day = date'2013-01-02' and name in ('a0', 'b1', 'zz')"),
        ({"day": "2013-01-02", "name": {"prefix": "a"}}, "day = date'2013-01-02' and name like 'a%'"),
        (
            {"day": {">=": "2013-01-02", "<": "2013-01-05"}, "n": {">": 7}},
            "day >= date'2013-01-02' and day < date'2013-01-05' and n > 7",
        ),
        ({"name": {"prefix": "b", "<=": "b3"}}, "name like 'b%' and name <= 'b3'"),
        ({"n": [1, 8, 99], "x": {"<": 50}}, "n in (1, 8, 99) and x < 50"),
        ({"day": []}, "false"),
    ]
    for where, sql in cases:
        expected = numbers(every.where(sql))
        assert numbers(read(spark, url, "days", where=json.dumps(where))) == expected, sql
        assert numbers(read(spark, url, "days", where=json.dumps(where), columns="n")) == expected, sql
    every.unpersist()


CONDITIONS = [
    "day = date'2013-01-02' and name = 'a0'",
    "day in (date'2013-01-02', date'2013-01-04') and n % 2 = 0",
    "day > date'2013-01-02' and day <= date'2013-01-03'",
    "day = date'2013-01-03' and name like 'b%'",
    "day = date'2013-01-03' or n = 3",
    "x > 10",
    "x = double('NaN')",
    "x is null and n < 20",
    "not (n < 50)",
    "name in ('a0', null)",
    "n <=> 7",
    "true",
]


def test_pushed_filters_give_what_spark_gives(spark: Any, days: StateStore, url: str) -> None:
    """Each condition in a fresh load with `pushdown`, and by `read_table`, compared with Spark's own filter."""
    # Not cached: a filter for NaN on a cached DataFrame finds none in Spark 4.3.
    stored = read(spark, url, "days")
    every = spark.createDataFrame(stored.collect(), stored.schema)
    for condition in CONDITIONS:
        expected = numbers(every.where(condition))
        assert numbers(read(spark, url, "days", pushdown=True).where(condition)) == expected, condition
        assert numbers(ts.read_table(spark, "days", store=url, where=condition)) == expected, condition


def test_pushed_filters_leave_the_plan(spark: Any, days: StateStore, url: str) -> None:
    """Spark does not apply again what the source applies exactly; it applies the rest."""
    frame = read(spark, url, "days", pushdown=True).where("day = date'2013-01-02' and n % 2 = 0 and x > 1")
    plan = frame._jdf.queryExecution().executedPlan().toString()
    filters = re.search(r"Filter .*", plan)
    assert filters is not None
    assert "day" not in filters[0].split("BatchScan")[0]
    assert "x#" in filters[0]


def test_a_dataframe_may_be_filtered_repeatedly(spark: Any, days: StateStore, url: str) -> None:
    """A query's filters stay with it: of a plain DataFrame, and of one from `read_table`, in joins and unions."""
    assert spark.conf.get(FILTER_SWITCH) == "true"
    for rows, count in (
        (read(spark, url, "days"), 60),
        (ts.read_table(spark, "days", store=url, where="day >= date'2013-01-01' and n >= 0"), 60),
        (ts.read_table(spark, "days", store=url, where="day < date'2013-01-03'"), 10),
    ):
        one, other = rows.where("n = 3"), rows.where("n = 7")
        assert [one.count(), other.count(), rows.count(), rows.where("n = 3 or n = 8").count()] == [1, 1, count, 2]
        assert numbers(one.union(other)) == [3, 7]
        assert numbers(rows.alias("l").join(one.alias("r"), "name").selectExpr("l.n")) == [
            n for n in range(count) if (n % 2, n % 5) == (1, 3)
        ]


def test_native_pushdown_keeps_what_it_pushed(spark: Any, days: StateStore, url: str) -> None:
    """The reason why `pushdown` is off by default and good for one query a load: Spark 4.3 repeats the old filters.

    If this test fails, Spark has mended that: `pushdown` can become the default.
    """
    rows = read(spark, url, "days", pushdown=True)
    assert rows.where("n = 3").count() == 1
    assert rows.count() == 1


def test_pushdown_needs_the_switch_of_spark(spark: Any, days: StateStore, url: str) -> None:
    """Spark's message names the setting; `read_table` sets it for itself and leaves it as it was."""
    spark.conf.set(FILTER_SWITCH, "false")
    try:
        with pytest.raises(Exception, match=re.escape(FILTER_SWITCH)):
            read(spark, url, "days", pushdown=True).collect()
        assert numbers(ts.read_table(spark, "days", store=url, where="n = 3")) == [3]
        assert spark.conf.get(FILTER_SWITCH) == "false"
    finally:
        spark.conf.set(FILTER_SWITCH, "true")


def test_read_table_reads_only_what_the_condition_needs(spark: Any, days: StateStore, url: str) -> None:
    """The condition is among the options of the relation that is read; its other parts stay with Spark."""
    frame = ts.read_table(spark, "days", store=url, where="day = date'2013-01-02' and n % 2 = 0", columns=["day", "n"])
    assert frame.columns == ["day", "n"]
    options = frame._jdf.queryExecution().analyzed().toString()
    assert "2013-01-02" in options
    assert numbers(frame) == [6, 8]
    assert numbers(ts.read_table(spark, "days", store=days, where="n = 2")) == [2]
    assert ts.read_table(spark, "t", store=days, where="id = 2").count() == 0


def test_read_table_pins_its_epoch(spark: Any, url: str) -> None:
    """Past the retention its rows stay as long as the DataFrame lives; then the pin is released."""
    with connect(url, retention=0) as store:
        table = store.create_table("t", pa.schema([("id", pa.int64())]), ["id"])
        for at in range(3):
            epoch = store.new_epoch()
            table.upsert([{"id": at}], epoch)
            store.commit_epoch(epoch)
            if at == 0:
                frame = ts.read_table(spark, "t", store=store, retention=0)
                first = store.committed_epoch
        store.compact("t")
        assert [pin.epoch for pin in store.pins()] == [first]
        assert numbers(frame, "id") == [0]
        del frame
        gc.collect()
        eventually(lambda: not store.pins())
        with pytest.raises(SnapshotExpired, match=f"epoch {first} is no longer kept"):
            ts.read_table(spark, "t", store=store, asOfEpoch=first, retention=0)


def test_wrong_arguments_of_read_table_are_refused(spark: Any, days: StateStore, url: str) -> None:
    """Errors are Tussock's, raised at the call, and leave no pin."""
    with pytest.raises(TableNotFound, match="no table 'nope'"):
        ts.read_table(spark, "nope", store=url)
    with pytest.raises(InvalidOption, match=r"unknown options \['colums'\]"):
        ts.read_table(spark, "days", store=url, colums="n")
    with pytest.raises(InvalidOption, match="is not committed"):
        ts.read_table(spark, "days", store=url, asOfEpoch=1 << 60)
    with pytest.raises(Exception, match="UNRESOLVED_COLUMN"):
        ts.read_table(spark, "days", store=days, where="zz = 1")
    assert days.pins() == []


def test_a_task_without_the_package_gets_its_name(days: StateStore, url: str) -> None:
    """A Python without Tussock opens what Spark sends to a task: one line names what is missing."""
    from pyspark import cloudpickle

    source = TussockDataSource({"store": url, "table": "days"})
    packages = Path(pa.__file__).parent.parent
    # Without the site module the .pth file is not read that puts this checkout's rooms on the path.
    program = "import sys, pickle; pickle.loads(sys.stdin.buffer.read())"
    done = subprocess.run(
        [sys.executable, "-S", "-c", program],
        input=cloudpickle.dumps(source.reader(source.schema())),
        env={"PYTHONPATH": str(packages)},
        cwd="/",
        capture_output=True,
        check=False,
    )
    assert done.stderr.decode().splitlines()[-1] == "ModuleNotFoundError: No module named 'tussock'"
