"""The source of changes, called as Spark calls it: the epochs of a batch, and the pins and losses in between."""

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from support import inside
from support.models.change_history import Change, History, changes_in
from support.service.platforms import QUIET, Platform
from support.spark.change_query import Query
from tussock.compute.spark.options.options import parse_changes
from tussock.compute.spark.reads.connections import close_stores, working_store
from tussock.compute.spark.source import TussockDataSource
from tussock.statestore import InvalidOption, SchemaMismatch, SnapshotExpired, StateStore, connect

NO_RETENTION = {"retention": "0", "gcGrace": "0"}


@pytest.fixture(autouse=True)
def close_opened() -> Iterator[None]:
    """Close what this process opened as a source of Spark."""
    yield
    close_stores()


@pytest.fixture(params=["file", "s3", "platform"])
def shared_url(request: pytest.FixtureRequest, url: str) -> Iterator[str]:
    """An empty store in a folder, on MinIO, and behind a meta service."""
    if request.param == "file":
        yield url
    elif request.param == "s3":
        yield request.getfixturevalue("minio").fresh_url()
    else:
        with Platform(url, compactors=1, picker=QUIET) as platform:
            yield platform.url


def test_changes_that_only_history_has_are_read(store: StateStore, url: str) -> None:
    """All rows were deleted and the table compacted: nothing is in its live tree."""
    table = store.table("t")
    table.upsert([{"id": key, "v": "a", "x": key / 2} for key in (1, 2)], epoch := store.new_epoch())
    store.commit_epoch(epoch)
    query = Query(url)
    query.drain()
    table.delete([1, 2], epoch := store.new_epoch())
    deleted = store.commit_epoch(epoch)
    store.compact("t")
    levels: Any = store.version().find_table("t").levels  # type: ignore[union-attr]
    assert (levels.live_ssts(), len(levels.history_ssts())) == ([], 1)
    assert join_batches(query.drain()) == [(deleted, 1, "delete", "a"), (deleted, 2, "delete", "a")]


def join_batches(batches: list[list[Change]]) -> list[Change]:
    return sorted(change for batch in batches for change in batch)


def test_a_stream_that_lags_behind_the_retention_gets_every_change_once(shared_url: str) -> None:
    """Random upserts and deletes, compacted and vacuumed without any retention: the cursor pins unread history."""
    with connect(shared_url, retention=0, gc_grace=0, compaction=False) as store:
        history = History(store, 7)
        history.commit()
        query = Query(shared_url, startingEpoch="earliest", maxEpochsPerTrigger="2", **NO_RETENTION)
        query.reader.initialOffset()
        found: list[list[Change]] = []
        for step in range(5):
            for _ in range(3):
                history.commit()
            store.compact("t")
            store.vacuum()
            if step % 2 == 0 and query.plan() is not None:
                found.append(changes_in(query.run(), "_op", "_epoch"))
                assert changes_in(query.run(), "_op", "_epoch") == found[-1], "a batch that runs again is the same"
        found += query.drain()
        assert join_batches(found) == history.between(0, history.epochs[-1])
        assert all(len({change[0] for change in batch}) <= 2 for batch in found)
        held = min(pin.epoch for pin in store.pins())
        query.reader.commit(query.log[-1])
        assert held < min(pin.epoch for pin in store.pins()) == history.epochs[-1], "what is read is let go of"


def test_a_restart_continues_from_the_checkpoint(store: StateStore, url: str) -> None:
    """Killed between the note of a batch and its end: the same batch runs again, and no change is left out."""
    history = History(store, 8)
    query = Query(url, maxEpochsPerTrigger="1")
    found = []
    for _ in range(4):
        history.commit()
        history.commit()
        query.plan()
        first = changes_in(query.run(), "_op", "_epoch")
        query = Query(url, query.die(), maxEpochsPerTrigger="1")
        found.append(changes_in(query.run(), "_op", "_epoch"))
        assert found[-1] == first
    assert join_batches(found + query.drain()) == history.between(0, history.epochs[-1])


@pytest.mark.parametrize("consumer", [None, "copy"])
def test_latest_is_resolved_once(store: StateStore, url: str, consumer: str | None) -> None:
    """Asked again, also after a crash in the first batch, it is the same epoch: no change since the start is lost."""
    history = History(store, 9)
    history.commit()
    options = {"startingEpoch": "latest"} | ({} if consumer is None else {"consumerId": consumer})
    query = Query(url, **options)
    begun = query.reader.initialOffset()
    if consumer is None:
        query.plan()
    history.commit()
    assert query.reader.initialOffset() == begun
    again = Query(url, query.die(), **options)
    if consumer is not None:
        assert again.reader.initialOffset() == begun, "the name is known to the store"
    else:
        assert again.run() == [], "the first batch is what it was"
    history.commit()
    assert join_batches(again.drain()) == history.between(history.epochs[0], history.epochs[-1])


def test_earliest_shows_rows_from_before_the_history_as_inserts(url: str) -> None:
    """If the first changes are gone, the rows that they led to begin the feed, so that the table can be built anew."""
    with connect(url, retention=0, gc_grace=0, compaction=False) as store:
        history = History(store, 10)
        for _ in range(4):
            history.commit()
        store.compact("t")
        rows, oldest = dict(history.rows), history.epochs[-1]
        query = Query(url, **NO_RETENTION)
        query.plan()
        base = changes_in(query.run(), "_op", "_epoch")
        assert base == sorted((oldest, key, "insert", v) for key, v in rows.items())
        history.commit()
        history.commit()
        assert join_batches(query.drain()) == history.between(oldest, history.epochs[-1])
        batch = TussockDataSource({"store": url, "path": "t", "readChangeFeed": "true", **NO_RETENTION})
        reader = batch.reader(batch.schema())
        whole = changes_in((part for one in reader.partitions() for part in reader.read(one)), "_op", "_epoch")
        assert whole == sorted((history.epochs[-1], key, "insert", v) for key, v in history.rows.items())


@pytest.mark.parametrize("fail", ["true", "false"])
def test_changes_that_are_gone_are_an_error_or_a_warning(url: str, fail: str, caplog: pytest.LogCaptureFixture) -> None:
    """The process was dead for longer than its lease and the retention."""
    with connect(url, retention=0, gc_grace=0, compaction=False) as store:
        history = History(store, 11)
        history.commit()
        query = Query(url, **NO_RETENTION)
        query.drain()
        checkpoint = query.die()
        for _ in range(3):
            history.commit()
        store.compact("t")
        query = Query(url, checkpoint, failOnDataLoss=fail, **NO_RETENTION)
        if fail == "true":
            with pytest.raises(SnapshotExpired, match=r"table 't' after epoch .* no longer all kept.*failOnDataLoss"):
                query.plan()
            return
        query.plan()
        warned = [record.getMessage() for record in caplog.records if "changes were lost" in record.getMessage()]
        assert len(warned) == 1
        assert f"next_after_epoch={history.epochs[-1]}" in warned[0]
        history.commit()
        assert join_batches(query.drain()) == history.between(history.epochs[-2], history.epochs[-1])


def test_a_feed_begins_with_the_epoch_that_is_named(store: StateStore, url: str) -> None:
    """`startingEpoch` and `endingEpoch` are inclusive, in a batch and in a stream, and may be called versions."""
    history = History(store, 12)
    for _ in range(5):
        history.commit()
    first, last = history.epochs[1], history.epochs[3]
    expected = history.between(history.epochs[0], last)
    for names in (("startingEpoch", "endingEpoch"), ("startingversion", "endingversion")):
        source = TussockDataSource(
            {"store": url, "path": "t", "readChangeFeed": "TRUE", names[0]: str(first), names[1]: str(last)}
        )
        reader = source.reader(source.schema())
        found = changes_in((part for one in reader.partitions() for part in reader.read(one)), "_op", "_epoch")
        assert found == expected
    streamed = join_batches(Query(url, startingEpoch=str(first)).drain())
    assert streamed == history.between(history.epochs[0], history.epochs[-1])


def test_available_now_ends_at_the_newest_epoch_of_its_start(store: StateStore, url: str) -> None:
    """A later commit is left to the next run; epochs of other tables leave nothing to catch up with."""
    history = History(store, 13)
    for _ in range(5):
        history.commit()
    query = Query(url, maxEpochsPerTrigger="2")
    query.reader.prepareForTriggerAvailableNow()
    history.commit()
    batches = query.drain()
    assert [len({change[0] for change in batch}) for batch in batches] == [2, 2, 1]
    kv = store.create_table("kv")
    epoch = store.new_epoch()
    kv.ingest_batch([(b"a", b"1")], epoch)
    other = store.commit_epoch(epoch)
    query = Query(url, query.die())
    query.reader.prepareForTriggerAvailableNow()
    assert join_batches(query.drain()) == history.between(history.epochs[-2], history.epochs[-1])
    assert query.log[-1]["epoch"] == other
    again = Query(url, query.die())
    again.reader.prepareForTriggerAvailableNow()
    assert again.drain() == []


def test_changes_of_other_tables_are_no_batch_but_move_the_cursor_now_and_then(store: StateStore, url: str) -> None:
    """Otherwise an idle table would keep the history of all others."""
    history = History(store, 14)
    history.commit()
    query = Query(url)
    query.drain()
    kv = store.create_table("kv")
    for number in range(3):
        epoch = store.new_epoch()
        kv.ingest_batch([(b"a", str(number).encode())], epoch)
        newest = store.commit_epoch(epoch)
    working_store(parse_changes({"store": url, "path": "t"}).address).wait_epoch(newest)
    assert query.plan() is None
    query.reader.options = replace(query.reader.options, idle_seconds=0.0)
    assert query.plan() is not None
    assert query.run() == []
    assert query.log[-1]["epoch"] == newest


def test_a_raw_table_has_a_feed_too(store: StateStore, url: str) -> None:
    """The feed has the key, the value, and the columns of any feed."""
    kv = store.create_table("raw")
    for rows in ([(b"a", b"1"), (b"b", b"1")], [(b"a", None)]):
        epoch = store.new_epoch()
        kv.ingest_batch(rows, epoch)
        store.commit_epoch(epoch)
    source = TussockDataSource({"store": url, "table": "raw", "readChangeFeed": "true"})
    assert source.schema().fieldNames() == ["key", "value", "_op", "_epoch", "_commit_timestamp"]
    reader = source.reader(source.schema())
    rows = [row for one in reader.partitions() for batch in reader.read(one) for row in batch.to_pylist()]
    assert [(row["key"], row["value"], row["_op"]) for row in rows] == [
        (b"a", b"1", "insert"),
        (b"a", b"1", "delete"),
        (b"b", b"1", "insert"),
    ]
    assert all(int(row["_commit_timestamp"].timestamp() * 1000) == row["_epoch"] >> 16 for row in rows)


def test_an_idle_stream_asks_the_bucket_a_few_times_a_second(store: StateStore, url: str) -> None:
    """Spark asks every ten milliseconds; five seconds of that cost no more requests than looks at the log's tail."""
    History(store, 15).commit()
    query = Query(url)
    query.drain()
    working = working_store(parse_changes({"store": url, "path": "t"}).address)
    calls, spent = idle(query, lambda: total_requests(working))
    assert calls >= 10
    # A look each 0.25 s is a GET; every ten seconds there is a LIST.
    assert spent.requests <= spent.seconds / 0.25 + 5, spent


def test_an_idle_stream_asks_a_meta_service_nothing(url: str) -> None:
    """Versions are pushed: the questions reach neither bucket nor service, heartbeats aside."""
    with Platform(url, compactors=0, picker=QUIET) as platform, connect(platform.url) as store:
        History(store, 16).commit()
        query = Query(platform.url)
        query.drain()
        working = working_store(parse_changes({"store": platform.url, "path": "t"}).address)
        backend: Any = inside.backend(working)
        asked: list[str] = []
        call = inside.connection(backend).call

        def note_call(name: str, *arguments: Any, **more: Any) -> Any:
            asked.append(name)
            return call(name, *arguments, **more)

        inside.connection(backend).call = note_call
        calls, spent = idle(query, lambda: total_requests(working))
        inside.connection(backend).call = call
        assert calls >= 10
        assert (spent.requests, set(asked) - {"Heartbeat"}) == (0, set())


class IdleCost:
    """The cost of some idle seconds."""

    def __init__(self, seconds: float, requests: int) -> None:
        self.seconds = seconds
        self.requests = requests

    def __repr__(self) -> str:
        return f"{self.requests} requests in {self.seconds:.1f} s"


def idle(query: Query, count: Callable[[], int]) -> tuple[int, IdleCost]:
    """Ask as Spark does for five seconds; returns the number of questions and their cost."""
    before, begun, calls, pause = count(), time.monotonic(), 0, threading.Event()
    while time.monotonic() - begun < 5:
        assert query.reader.latestOffset(query.log[-1], ReadAllAvailable()) == query.log[-1]
        calls += 1
        pause.wait(0.01)
    return calls, IdleCost(time.monotonic() - begun, count() - before)


def total_requests(store: StateStore) -> int:
    """Requests to the bucket, but for pins, which are renewed by time."""
    return sum(
        calls for caller, kinds in store.requests().items() for kind, (calls, _) in kinds.items() if kind != "put"
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"readChangeFeed": "yes"}, "option readChangeFeed is 'yes'; expected true or false"),
        ({"startingEpoch": "first"}, "option startingEpoch is 'first'; expected earliest, latest or an epoch"),
        ({"startingEpoch": "0"}, "option startingEpoch is '0'; expected earliest, latest or an epoch"),
        ({"startingEpoch": "1", "startingVersion": "1"}, "startingEpoch and startingVersion mean the same"),
        ({"maxEpochsPerTrigger": "0"}, "option maxEpochsPerTrigger is '0'; expected an integer from 1"),
        ({"beforeImages": "1"}, "option beforeImages is '1'; expected true or false"),
        ({"failOnDataLoss": "no"}, "option failOnDataLoss is 'no'; expected true or false"),
        ({"endingEpoch": "5"}, r"unknown options \['endingEpoch'\] of a stream of changes"),
        ({"where": "{}"}, r"unknown options \['where'\]"),
    ],
)
def test_options_that_do_not_fit_are_refused_by_name(
    store: StateStore, url: str, options: dict[str, str], message: str
) -> None:
    """The refusal comes before anything is read."""
    with pytest.raises(InvalidOption, match=message):
        Query(url, **options).reader.initialOffset()


def test_a_wrong_beginning_of_a_feed_is_refused(store: StateStore, url: str) -> None:
    """A future epoch, a start after the end, a checkpoint of another source, or of a stream that is none of changes."""
    history = History(store, 17)
    newest = history.commit()
    with pytest.raises(InvalidOption, match=f"startingEpoch {newest + 1} is not committed"):
        Query(url, startingEpoch=str(newest + 1)).reader.initialOffset()
    feed = {"store": url, "path": "t", "readChangeFeed": "true"}
    for options, message in (
        ({"endingEpoch": str(newest + 1)}, "endingEpoch .* is not committed"),
        ({"startingEpoch": str(newest), "endingEpoch": str(newest - 2)}, "lies before startingEpoch"),
        ({"maxEpochsPerTrigger": "1"}, r"unknown options \['maxEpochsPerTrigger'\] of a batch read of changes"),
    ):
        source = TussockDataSource({**feed, **options})
        with pytest.raises(InvalidOption, match=message):
            source.reader(source.schema())
    with pytest.raises(InvalidOption, match="not one of a stream of changes"):
        Query(url, [{"partition": 1}]).plan()
    with pytest.raises(InvalidOption, match=f"has read up to epoch {newest + 5}.*another store, or was restored"):
        Query(
            url, [{"epoch": newest + 5, "start": newest, "snapshot": False, "initial": False}], failOnDataLoss="false"
        ).plan()
    plain = TussockDataSource({"store": url, "path": "t"})
    with pytest.raises(InvalidOption, match="set option readChangeFeed to true"):
        plain.streamReader(plain.schema())
    taken = store.create_table(
        "taken", schema=pa.schema([("id", pa.int64()), ("_op", pa.string())]), primary_key=["id"]
    )
    with pytest.raises(SchemaMismatch, match=r"columns \['_op'\], which a change feed adds"):
        TussockDataSource({**feed, "path": taken.name}).schema()


def test_a_stream_of_a_dropped_table_says_so(store: StateStore, url: str) -> None:
    """The error does not blame a missing key."""
    History(store, 18).commit()
    query = Query(url)
    query.drain()
    store.drop_table("t")
    working_store(parse_changes({"store": url, "path": "t"}).address).version()
    with pytest.raises(SchemaMismatch, match="was dropped after the stream began"):
        query.plan()
