"""Wrong values of every option of the format: whole messages, and where Spark shows them.

The table has a case for every option that `options.ACCEPTED` has, so a new option needs one too.
"""

import datetime as dt
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql.types import LongType, StringType, StructType

from tussock.compute.spark import TussockDataSource
from tussock.compute.spark.options.options import ACCEPTED, parse_read
from tussock.compute.spark.reads.connections import working_store
from tussock.statestore import connect
from tussock.statestore.errors import InvalidOption, SchemaMismatch, SnapshotExpired, TableNotFound, TussockError

READ, WRITE, CHANGES, STREAM = ACCEPTED
ALL = tuple(ACCEPTED)
ROWS = StructType().add("id", LongType(), nullable=False).add("v", StringType())
EPOCHS = "an integer from 1 to 9223372036854775807"
BYTES = "an integer from 0 to 4611686018427387904"
SECONDS = "seconds, 0 or more"
EPOCH = "an epoch, an integer from 1 to 2**63-1"
STARTS = f"earliest, latest or {EPOCH}"
FLAG = "true or false"
TIME = "milliseconds since 1970 or ISO 8601, such as 2013-06-30T12:00:00+00:00"
NAMES = "names without repetition, separated by commas, or a JSON list of them"
SAME = "a name that stays the same whenever the job is started again, or no such option"


class Case(NamedTuple):
    """Options and the message for them; `{url}`, `{newest}` and `{next}` stand for the store and its epochs."""

    actions: tuple[str, ...]
    options: dict[str, str]
    message: str
    error: type[TussockError] = InvalidOption

    @property
    def name(self) -> str:
        """The id in the list of tests."""
        return "-".join(f"{name}={value[:20]}" for name, value in self.options.items()) or "none"


def expects(actions: tuple[str, ...], name: str, value: str, expected: str) -> Case:
    """A case whose options are refused by themselves."""
    return Case(actions, {name: value}, f"option {name} is {value!r}; expected {expected}")


def uncommitted_epoch(actions: tuple[str, ...], option: str, told: str) -> Case:
    """An epoch that the store does not have yet."""
    return Case(
        actions,
        {option: "{next}"},
        f"{told} {{next}} is not committed in the store at {{url}}, whose newest committed epoch is {{newest}}; give "
        "that or an older one",
    )


def before(actions: tuple[str, ...], option: str, value: str, told: str) -> Case:
    """A moment before the store existed."""
    return Case(
        actions,
        {option: value},
        f"{told} lies before the earliest commit of table 't', which is epoch {{newest}} of {{time}}; mind the year "
        "and the time zone, which is UTC where none is given",
    )


BOTH_CHANGES = (CHANGES, STREAM)
CASES = [
    Case(ALL, {"store": ""}, "option store is missing; expected the URL of a store, such as s3://bucket/prefix"),
    Case(
        ALL,
        {"store": "memory://x"},
        "store 'memory://x' is in the memory of one process, and Spark's workers are others; use file:///..., "
        "s3://..., gs://... or az://...",
    ),
    Case(
        ALL,
        {"store": "ftp://host/x"},
        "cannot open the bucket 'ftp://host/x': its scheme is unknown. Accepted forms: memory://, memory://NAME, "
        "file:///absolute/path, s3://bucket/prefix, gs://bucket/prefix, az://container/prefix",
    ),
    Case(
        ALL,
        {"store": "{url}-typo"},
        "there is no store at {url}-typo: nothing was ever written there; check the URL, or make the store with "
        "tussock.statestore.connect and its tables with create_table",
    ),
    Case(
        ALL,
        {"deadline": "30", "dead_line": "31"},
        "option deadline is given twice, as '30' and as '31' (dead_line); give it once",
    ),
    Case(ALL, {"table": ""}, "no table is named; give it as option table, or as the argument of load, save or start"),
    Case(ALL, {"table": "u"}, "no table 'u' in the store at {url}; its tables: 't'", TableNotFound),
    Case(ALL, {"path": "u"}, "the table is named twice, as 't' in option table and as 'u'; give it once"),
    expects(ALL, "retention", "-1", SECONDS),
    expects(ALL, "gcGrace", "long", SECONDS),
    expects(ALL, "deadline", "inf", SECONDS),
    expects(ALL, "cacheBytes", "1e6", BYTES),
    expects(ALL, "bufferBytes", "-5", BYTES),
    expects((READ,), "asOfEpoch", "0", EPOCHS),
    expects((READ,), "epoch", "newest", EPOCHS),
    uncommitted_epoch((READ,), "asOfEpoch", "epoch"),
    uncommitted_epoch((READ,), "epoch", "epoch"),
    Case(
        (READ,),
        {"asOfEpoch": "1", "timestamp": "1"},
        "options asOfEpoch and timestamp: give one of them, each says at which moment to read",
    ),
    expects((READ,), "asOfTimestamp", "yesterday", TIME),
    expects((READ,), "timestamp", "2013-06-31", TIME),
    Case(
        (READ,),
        {"timestamp": "7258118400000"},
        "timestamp 7258118400000 lies in the future: what it shows would still change; give a time that has passed, or "
        "none for the newest epoch",
    ),
    before((READ,), "timestamp", "0", "timestamp 0 (1970-01-01T00:00:00.000+00:00)"),
    before(
        (READ,), "asOfTimestamp", "2013-06-30T14:00+02:00", "timestamp 1372593600000 (2013-06-30T12:00:00.000+00:00)"
    ),
    before((READ,), "epoch", "7", "epoch 7"),
    expects((READ, *BOTH_CHANGES), "columns", "v,v", NAMES),
    expects((READ, *BOTH_CHANGES), "columns", "[v", "a JSON list of names"),
    Case((READ,), {"columns": "v,w"}, "table 't' has no columns ['w']; it has ['id', 'v']", SchemaMismatch),
    Case(
        (READ,),
        {"where": "id = 1"},
        "option where is 'id = 1'; expected a JSON object with a value, a list of values or an object of tests per "
        'column, such as {"carrier": ["AA", "UA"], "flight": 1, "day": {">=": "2013-01-01", "<": "2013-02-01"}, '
        '"dest": {"prefix": "S"}}; tests are in, >, >=, <, <=, prefix',
    ),
    expects((READ,), "pushdown", "yes", FLAG),
    expects((READ,), "maxSplitBytes", "0", "an integer from 1 to 4611686018427387904"),
    Case(
        (WRITE,),
        {"mode": "append"},
        "option mode is 'append'; expected 'upsert' (rows replace those of their keys) or 'delete' (rows delete those "
        "of their keys); where each row says which, name its column in opColumn",
    ),
    Case(
        (WRITE,),
        {"mode": "delete", "opColumn": "v"},
        "options mode='delete' and opColumn: give one of them; both say which rows delete",
    ),
    Case(
        (WRITE,),
        {"opColumn": "op"},
        "table 't': the rows have no column 'op', which opColumn names; they have ['id', 'v']",
        SchemaMismatch,
    ),
    Case(
        (WRITE,),
        {"newerThan": "lsn"},
        "table 't': the rows have no column 'lsn', which newerThan names; they have ['id', 'v']",
        SchemaMismatch,
    ),
    Case(
        (WRITE,),
        {"newerThan": "id"},
        "newer_than is 'id', a column of table 't' in its key, of type int64; expected a value column of integers, "
        "decimals, dates, times, timestamps, strings or bytes: one of ['v']",
    ),
    Case(
        (WRITE,),
        {"newerThan": "v", "opColumn": "v"},
        "option newerThan is 'v', and opColumn is the same column; expected a column of versions, and deletes marked "
        "by another one, which opColumn names",
    ),
    Case(
        (WRITE,),
        {"newerThan": "v", "mode": "delete"},
        "option newerThan is 'v', and mode is 'delete'; expected a column of versions, and deletes marked by another "
        "one, which opColumn names",
    ),
    Case(
        (WRITE,),
        {"newerThan": "v", "keepDeletes": "60"},
        "option keepDeletes is '60'; it keeps the versions of rows that opColumn marks as deletes, which newerThan "
        "compares: give all three, or leave keepDeletes out",
    ),
    expects((WRITE,), "keepDeletes", "a day", SECONDS),
    expects((WRITE,), "keepDeletes", "0", "seconds, at least 0.001, or no such option"),
    expects((WRITE,), "writerId", " ", SAME),
    expects((WRITE,), "writerVersion", "-1", "an integer from 0 to 9223372036854775807"),
    Case(
        (WRITE,),
        {"writerVersion": "3"},
        "options writerId and writerVersion go together in a batch write: give both or neither",
    ),
    expects((WRITE,), "mergeSchema", "1", FLAG),
    expects((READ, *BOTH_CHANGES), "readChangeFeed", "yes", FLAG),
    Case(
        (STREAM,),
        {"readChangeFeed": "false"},
        "a stream of format 'tussock' reads changes: set option readChangeFeed to true; a table is read by spark.read",
    ),
    expects(BOTH_CHANGES, "startingEpoch", "first", STARTS),
    expects(BOTH_CHANGES, "startingVersion", "0", STARTS),
    uncommitted_epoch((CHANGES,), "startingEpoch", "startingEpoch"),
    Case(
        BOTH_CHANGES,
        {"startingEpoch": "1", "startingVersion": "1"},
        "options startingEpoch and startingVersion mean the same; give one of them",
    ),
    expects((CHANGES,), "endingEpoch", "latest", EPOCH),
    expects((CHANGES,), "endingVersion", "-3", EPOCH),
    uncommitted_epoch((CHANGES,), "endingVersion", "endingEpoch"),
    Case(
        (CHANGES,),
        {"startingEpoch": "{newest}", "endingEpoch": "3"},
        "endingEpoch 3 lies before startingEpoch {newest}; both are part of what is read, so give an end that is not "
        "smaller",
    ),
    expects(BOTH_CHANGES, "beforeImages", "no", FLAG),
    expects((STREAM,), "maxEpochsPerTrigger", "0", "an integer from 1 to 2147483648"),
    expects((STREAM,), "consumerId", "", SAME),
    expects((STREAM,), "failOnDataLoss", "maybe", FLAG),
]
EACH = [pytest.param(action, case, id=f"{action}-{case.name}") for case in CASES for action in case.actions]


class There(NamedTuple):
    """A store with one table of {id, v} and one epoch."""

    url: str
    newest: int

    def fill(self, text: str) -> str:
        """The text with the values that only a running test knows."""
        time = dt.datetime.fromtimestamp((self.newest >> 16) / 1000, dt.UTC).isoformat(timespec="milliseconds")
        known = {"{url}": self.url, "{newest}": str(self.newest), "{next}": str(self.newest + 1), "{time}": time}
        for mark, value in known.items():
            text = text.replace(mark, value)
        return text

    def options(self, action: str, case: Case) -> dict[str, str]:
        """All options of the case."""
        given = {"store": self.url, "table": "t"} | ({"readChangeFeed": "true"} if action in BOTH_CHANGES else {})
        return given | {name: self.fill(value) for name, value in case.options.items()}


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Iterator[There]:
    url = (tmp_path_factory.mktemp("bad") / "store").as_uri()
    with connect(url) as store:
        table = store.create_table("t", schema=pa.schema([("id", pa.int64()), ("v", pa.string())]), primary_key=["id"])
        table.upsert(pa.table({"id": [1], "v": ["a"]}), epoch := store.new_epoch())
        yield There(url, store.commit_epoch(epoch))


def test_every_option_has_a_case() -> None:
    """A new option needs a case here."""
    tried = {(action, name) for case in CASES for action in case.actions for name in case.options}
    assert tried >= {(action, name) for action, names in ACCEPTED.items() for name in names}


ACTIONS: dict[str, Callable[[TussockDataSource], object]] = {
    READ: lambda source: source.reader(source.schema()),
    WRITE: lambda source: source.writer(ROWS, overwrite=False),
    CHANGES: lambda source: source.reader(source.schema()),
    STREAM: lambda source: source.streamReader(source.schema()),
}


@pytest.mark.parametrize(("action", "case"), EACH)
def test_the_message_says_what_is_wrong_and_what_to_do(there: There, action: str, case: Case) -> None:
    """The whole message, from the calls that Spark makes: the option, what was found, and what is expected."""
    with pytest.raises(case.error) as caught:
        ACTIONS[action](TussockDataSource(there.options(action, case)))
    assert type(caught.value) is case.error
    assert str(caught.value) == there.fill(case.message)


@pytest.mark.parametrize("action", ALL)
def test_the_message_for_an_unknown_option_lists_all_options(there: There, action: str) -> None:
    """A misspelt name is not ignored."""
    given = there.options(action, Case((action,), {"tabel": "t"}, ""))
    with pytest.raises(InvalidOption) as caught:
        ACTIONS[action](TussockDataSource(given))
    # While Spark asks for the columns, it has not said yet whether it is a stream or a batch.
    names = ACCEPTED[action]
    if action in BOTH_CHANGES:
        action, names = CHANGES, tuple(dict.fromkeys((*ACCEPTED[CHANGES], *ACCEPTED[STREAM])))
    known = ", ".join(names)
    assert str(caught.value) == f"unknown options ['tabel'] of a {action} of format 'tussock'; it takes {known}"


@pytest.mark.parametrize("action", ALL)
def test_a_mistyped_store_is_not_created(there: There, action: str) -> None:
    """Neither a read nor a write leaves a folder behind, and a store that is made there later is found."""
    typo = f"{there.url}-{action.replace(' ', '-')}"
    given = there.options(action, Case((action,), {"store": typo}, ""))
    for made in (False, True):
        if made:
            connect(typo).close()
        with pytest.raises(InvalidOption, match="there is no store at"):
            ACTIONS[action](TussockDataSource(given))
        assert Path(typo.removeprefix("file://")).exists() == made
    with connect(typo) as store:
        store.create_table("t", schema=pa.schema([("id", pa.int64()), ("v", pa.string())]), primary_key=["id"])
    ACTIONS[action](TussockDataSource(given))


def test_a_moment_before_the_oldest_row_of_a_compacted_table_may_be_read(there: There) -> None:
    """The table may have been emptied, so only a moment before the store's first commit is refused."""
    url = f"{there.url}-compacted"
    with connect(url, retention=0) as store:
        schema = pa.schema([("id", pa.int64()), ("v", pa.string())])
        old, table = (store.create_table(name, schema=schema, primary_key=["id"]) for name in ("old", "t"))

        def commit(of: Any) -> int:
            of.upsert([{"id": 1, "v": "a"}], epoch := store.new_epoch())
            return store.commit_epoch(epoch)

        first = [commit(old) for _ in range(2)][-1]
        given = {"store": url, "table": "t", "asOfEpoch": str(first)}
        with store.pin_snapshot():
            begun = [commit(table) for _ in range(3)]
            with pytest.raises(InvalidOption, match=f"earliest commit of table 't', which is epoch {begun[0]} of"):
                TussockDataSource(given).schema()
        newest = commit(old)
        given["asOfEpoch"] = str(newest)
        store.compact("old")
        assert store.version().compacted_epoch > 0
        store.drop_table("t")
        table = store.create_table("t", schema=schema, primary_key=["id"])
        with store.pin_snapshot():
            commit(table)
            working_store(parse_read(given).address).version()
            assert TussockDataSource(given).schema().fieldNames() == ["id", "v"]
            with pytest.raises((InvalidOption, SnapshotExpired)):
                TussockDataSource(given | {"asOfEpoch": str(first - 1)}).schema()


@pytest.mark.parametrize("kind", ["writer", "streamWriter"])
def test_a_write_that_replaces_the_table_compares_nothing(there: There, kind: str) -> None:
    """Neither by overwrite nor in complete mode."""
    source = TussockDataSource({"store": there.url, "table": "t", "newerThan": "v"})
    with pytest.raises(InvalidOption, match="newerThan is 'v', and the write replaces the whole table"):
        getattr(source, kind)(ROWS, overwrite=True)


def test_a_stream_numbers_its_writes_itself(there: There) -> None:
    """The number that a batch write has is refused rather than ignored."""
    source = TussockDataSource({"store": there.url, "table": "t", "writerId": "w", "writerVersion": "3"})
    with pytest.raises(InvalidOption) as caught:
        source.streamWriter(ROWS, overwrite=False)
    assert str(caught.value) == (
        "option writerVersion is 3, and the write is a stream, which numbers its batches itself; leave it out"
    )


def in_spark(spark: Any, action: str, options: dict[str, str], folder: Path) -> None:
    """The same through Spark, as users call it."""
    source: Any = spark.readStream if action == STREAM else spark.read
    if action == WRITE:
        rows = spark.range(1).selectExpr("id", "string(id) AS v")
        rows.write.format("tussock").mode("append").options(**options).save()
        return
    rows = source.format("tussock").options(**options).load()
    if action == STREAM:
        writer = rows.writeStream.format("noop").option("checkpointLocation", str(folder))
        writer.trigger(availableNow=True).start().awaitTermination()
    rows.collect()


@pytest.mark.spark
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("action", "name"),
    [(READ, "pushdown"), (READ, "table"), (WRITE, "opColumn"), (CHANGES, "endingEpoch"), (STREAM, "consumerId")],
)
def test_sparks_error_shows_the_message_near_the_top(
    spark: Any, there: There, action: str, name: str, tmp_path: Path
) -> None:
    """One line of Spark, one frame, then the whole message with the name of the error."""
    case = [case for case in CASES if action in case.actions and list(case.options) == [name]][-1]
    with pytest.raises(PySparkException) as caught:
        in_spark(spark, action, there.options(action, case), tmp_path)
    lines = str(caught.value).splitlines()
    assert "[PYTHON_DATA_SOURCE_ERROR] Failed to" in lines[0]
    assert lines[3] == f"tussock.statestore.errors.{case.error.__name__}: {there.fill(case.message)}"
