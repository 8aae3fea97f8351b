"""`max_staleness`: how long reads go without a look at the log, and that nothing else of a read needs one."""

from collections import Counter
from collections.abc import Callable

import pyarrow as pa
import pytest

from support.buckets.faulty_bucket import Fate, FaultyBucket
from support.store.stores import OBJECTS, TickingSystem, open_on, pairs
from support.store.versions import ModelBucket
from tussock.statestore import InvalidOption, SnapshotExpired, StateStore, connect

SCHEMA_ROWS = [(b"%03d" % at, b"1") for at in range(100)]


@pytest.fixture
def bucket() -> FaultyBucket:
    return FaultyBucket(ModelBucket(TickingSystem()))


@pytest.fixture
def writer(bucket: FaultyBucket) -> StateStore:
    store = open_on(bucket.inner, bucket.inner.system, limits=OBJECTS)  # type: ignore[attr-defined]
    kv = store.create_table("kv")
    kv.ingest_batch(SCHEMA_ROWS, 1)
    store.commit_epoch(1)
    return store


def reader(bucket: FaultyBucket, seconds: float | None) -> StateStore:
    return open_on(bucket, bucket.inner.system, max_staleness=seconds)  # type: ignore[attr-defined]


def put(store: StateStore, value: bytes) -> int:
    epoch = store.new_epoch()
    store.table("kv").ingest_batch([(b"050", value)], epoch)
    return store.commit_epoch(epoch)


def cost(bucket: FaultyBucket, work: Callable[[], object]) -> dict[str, int]:
    before = len(bucket.calls)
    work()
    return dict(Counter(call.operation for call in bucket.calls[before:]))


def test_reads_of_cached_rows_make_no_request_within_the_bound(bucket: FaultyBucket, writer: StateStore) -> None:
    """Gets, scans, changes and tables opened by name; then one look at the log, however many reads there are."""
    system = bucket.inner.system  # type: ignore[attr-defined]
    store = reader(bucket, 60)
    kv = store.table("kv")
    pairs(kv.scan())

    def reads() -> None:
        for _ in range(20):
            assert store.table("kv").get(b"050") == b"1"
            assert len(pairs(kv.scan(prefix=b"05"))) == 10
            assert kv.multi_get([b"001", b"absent"]).to_pylist() == [b"1", None]
            assert kv.get(b"050", epoch=1) == b"1"
            assert sum(batch.num_rows for batch in kv.changes(0)) == 100

    system.forward(59)
    assert cost(bucket, reads) == {}
    system.forward(2)
    assert cost(bucket, reads) == {"get": 1, "list": 1}
    system.forward(59)
    assert cost(bucket, reads) == {}


def test_a_read_is_no_older_than_the_bound(bucket: FaultyBucket, writer: StateStore) -> None:
    """What others commit is seen once the bound has passed, also by a reader that reads less often."""
    system = bucket.inner.system  # type: ignore[attr-defined]
    store = reader(bucket, 60)
    kv = store.table("kv")
    put(writer, b"2")
    system.forward(59)
    assert kv.get(b"050") == b"1"
    system.forward(1)
    assert kv.get(b"050") == b"2"


def test_with_a_bound_of_zero_each_read_sees_the_newest(bucket: FaultyBucket, writer: StateStore) -> None:
    """For one GET a read; without the option a read may be a quarter of a second behind."""
    eager, usual = reader(bucket, 0), reader(bucket, None)
    for store in (eager, usual):
        assert store.table("kv").get(b"050") == b"1"
    for number in range(2, 5):
        put(writer, b"%d" % number)
        assert eager.table("kv").get(b"050") == b"%d" % number
    assert usual.table("kv").get(b"050") == b"1"
    bucket.inner.system.forward(0.25)  # type: ignore[attr-defined]
    assert usual.table("kv").get(b"050") == b"4"


def test_own_commits_and_epochs_that_are_waited_for_are_seen_at_once(bucket: FaultyBucket, writer: StateStore) -> None:
    """The bound is on what others commit and nobody names."""
    store = reader(bucket, 1000)
    kv = store.table("kv")
    put(store, b"own")
    assert kv.get(b"050") == b"own"
    theirs = put(writer, b"theirs")
    assert kv.get(b"050") == b"own"
    store.wait_epoch(theirs)
    assert kv.get(b"050") == b"theirs"
    theirs = put(writer, b"later")
    assert kv.get(b"050", epoch=theirs) == b"later"
    theirs = put(writer, b"newest")
    assert store.committed_epoch == theirs
    assert kv.get(b"050") == b"newest"
    put(writer, b"pinned")
    with store.pin_snapshot() as snapshot:
        assert snapshot.table("kv").get(b"050") == b"pinned"


def test_a_transaction_on_old_rows_conflicts_once(bucket: FaultyBucket, writer: StateStore) -> None:
    """It is never wrong: its end finds the conflict, and the next attempt reads what it found."""
    store = reader(bucket, 1000)
    assert store.table("kv").get(b"050") == b"1"
    put(writer, b"5")
    seen = []

    def add(tx) -> None:
        value = tx.table("kv").get(b"050")
        seen.append(value)
        tx.table("kv").upsert(_row(b"%d" % (int(value) + 1)))

    store.transact(add)
    assert seen == [b"1", b"5"]
    writer.wait_epoch(store.committed_epoch)
    assert writer.table("kv").get(b"050") == b"6"


def _row(value: bytes):

    return pa.table({"key": [b"050"], "value": [value]})


def test_an_old_version_whose_objects_are_gone_is_left_for_the_newest(bucket: FaultyBucket, writer: StateStore) -> None:
    """Rows that vacuum took are read from where they are now, or the epoch has expired; nothing is damaged."""
    system = bucket.inner.system  # type: ignore[attr-defined]
    store = open_on(bucket, system, max_staleness=10**6, cache_bytes=0)
    kv = store.table("kv")
    for number in range(3):
        put(writer, b"%d" % number)
    keeper = open_on(bucket.inner, system, retention=0, gc_grace=0)
    put(keeper, b"kept")
    keeper.compact("kv")
    system.forward(10)
    keeper.vacuum()
    system.forward(10)
    keeper.vacuum()
    with pytest.raises(SnapshotExpired):
        kv.get(b"001", epoch=1)
    assert kv.get(b"050") == b"kept"


def test_while_the_bucket_is_away_what_is_known_is_read(bucket: FaultyBucket, writer: StateStore) -> None:
    """And the log is looked at again four times a second, not after the bound once more."""
    system = bucket.inner.system  # type: ignore[attr-defined]
    store = reader(bucket, 60)
    kv = store.table("kv")
    pairs(kv.scan())
    put(writer, b"2")
    bucket.script = lambda call: Fate.LOSE_REQUEST
    system.forward(61)
    assert kv.get(b"050") == b"1"
    bucket.script = None
    system.forward(0.3)
    assert kv.get(b"050") == b"2"


@pytest.mark.parametrize("seconds", [-1, True, "1", float("nan"), float("inf"), 10**10])
def test_a_bound_that_cannot_be_is_refused(seconds: object) -> None:
    """It is named."""
    with pytest.raises(InvalidOption, match="max_staleness"):
        connect("memory://", max_staleness=seconds)  # type: ignore[arg-type]
