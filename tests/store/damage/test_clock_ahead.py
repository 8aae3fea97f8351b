"""No time in the store is far ahead of the bucket's clock: such epochs and commits are refused without effect."""

import random
import re
from collections.abc import Iterator

import pytest

from support import inside
from support.buckets.faulty_bucket import Call, FaultyBucket
from support.store.stores import TickingSystem, open_on, pairs
from support.store.versions import ModelBucket
from tussock.statestore import ClockAhead, InvalidOption, StateStore, connect
from tussock.statestore.epochs import MAX_EPOCH, epoch_at_ms

YEARS_MS = 10 * 365 * 86400 * 1000


@pytest.fixture
def system() -> TickingSystem:
    """The bucket's clock, and that of a machine with the right time."""
    return TickingSystem()


@pytest.fixture
def bucket(system: TickingSystem) -> ModelBucket:
    return ModelBucket(system)


@pytest.fixture
def right(bucket: ModelBucket, system: TickingSystem) -> Iterator[StateStore]:
    with open_on(bucket, system) as store:
        store.create_table("kv")
        yield store


def _commit(store: StateStore, value: bytes, epoch: int | None = None) -> int:
    epoch = store.new_epoch() if epoch is None else epoch
    store.table("kv").ingest_batch([(b"k", value)], epoch)
    return store.commit_epoch(epoch)


def test_the_largest_epoch_does_not_end_the_store(store: StateStore) -> None:
    """It is refused, its rows wait to be given up, and small epochs still work."""
    kv = store.create_table("kv")
    _commit(store, b"1", 1)
    for epoch in (MAX_EPOCH, MAX_EPOCH, epoch_at_ms(inside.system(store).now_ms() + 2 * 3600_000)):
        if epoch != MAX_EPOCH or not inside.buffer(store).runs(kv.spec.id):
            kv.ingest_batch([(b"k", b"ahead")], epoch)
        with pytest.raises(ClockAhead, match=rf"epoch {epoch} .*ahead of the clock of .*nothing was stored"):
            store.commit_epoch(epoch)
        assert store.committed_epoch == 1
    store.abort_epoch(MAX_EPOCH)
    store.abort_epoch(epoch)
    assert _commit(store, b"2", 2) == 2
    assert _commit(store, b"3") > 2
    assert kv.get(b"k") == b"3"


def test_uploads_are_refused_as_commits_are(store: StateStore) -> None:
    """`commit_uploaded` takes epochs, too."""
    store.create_table("kv")
    with pytest.raises(ClockAhead):
        store.commit_uploaded({}, epoch=MAX_EPOCH)
    assert store.committed_epoch == 0


def test_a_clock_that_is_years_ahead_stores_nothing(
    right: StateStore, bucket: ModelBucket, system: TickingSystem
) -> None:
    """Neither at its own epochs nor at small ones; reads go on, and with the right time the commit is repeated."""
    wrong = TickingSystem()
    wrong.drawn = 10**6
    with open_on(bucket, wrong) as store:
        _commit(store, b"1", 1)
        wrong.wall_ms += YEARS_MS
        kv = store.table("kv")
        kv.ingest_batch([(b"k", b"2")], 2)
        for _ in range(2):
            with pytest.raises(ClockAhead, match=r"clock of \S+ is 10.0 years ahead.*max_clock_ahead"):
                store.commit_epoch(2)
        ahead = store.new_epoch()
        kv.ingest_batch([(b"k", b"3")], ahead)
        with pytest.raises(ClockAhead):
            store.drop_table("kv")
        assert right.committed_epoch == 1
        assert kv.get(b"k", epoch=1) == b"1"
        wrong.wall_ms -= YEARS_MS
        assert store.commit_epoch(2) == 2
        with pytest.raises(ClockAhead, match=f"epoch {ahead} "):
            store.commit_epoch(ahead)
        store.abort_epoch(ahead)
        assert _commit(store, b"4") < epoch_at_ms(system.now_ms() + 3600_000)
    assert right.table("kv").get(b"k", epoch=2) == b"2"


def test_a_clock_that_is_years_ahead_uploads_nothing(right: StateStore, bucket: ModelBucket) -> None:
    """Vacuum trusts the time in an SST's id, which would keep it for years. With the right time all goes on."""
    wrong = TickingSystem()
    wrong.drawn = 10**6
    rows = [(b"%05d" % number, bytes(number.to_bytes(2, "big") * 500)) for number in range(2000)]
    with open_on(bucket, wrong, buffer_bytes=1 << 20) as store:
        wrong.wall_ms += YEARS_MS
        kv = store.table("kv")
        kv.ingest_batch(rows, 1)
        with pytest.raises(ClockAhead, match="years ahead"):
            kv.ingest_batch([(b"spills", b"")], 1)
        with pytest.raises(ClockAhead, match="years ahead"):
            store.commit_epoch(1)
        assert [path for path in bucket.objects if path.startswith("sst/")] == []
        with pytest.raises(ClockAhead):
            store.commit_uploaded({}, "writer", 1)
        wrong.wall_ms -= YEARS_MS
        assert store.commit_epoch(1) == 1
        assert store.commit_uploaded({}, "writer", 1) < epoch_at_ms(inside.system(right).now_ms() + 3600_000)
    assert right.table("kv").get(b"00001", epoch=1) == rows[1][1]


def test_a_clock_before_1970_writes_objects_that_have_names(bucket: ModelBucket) -> None:
    """An id has 48 bits for its time; one with a minus sign was foreign to `check`, and no vacuum deleted it."""
    long_ago = TickingSystem()
    long_ago.wall_ms, long_ago.drawn = -50_000_000_000, 1000
    with open_on(bucket, long_ago, compaction=False) as store:
        kv = store.create_table("kv")
        for number in range(3):
            epoch = store.new_epoch()
            kv.ingest_batch([(b"%d" % number, random.Random(number).randbytes(100_000))], epoch)
            store.commit_epoch(epoch)
        store.compact("kv")
        assert len(pairs(kv.scan())) == 3
    names = [path.removeprefix("sst/").partition(".")[0] for path in bucket.objects if path.startswith("sst/")]
    assert names
    assert all(re.fullmatch("[0-9a-f]{32}", name) for name in names), names


def test_a_clock_may_lag_and_may_be_a_little_ahead(right: StateStore, bucket: ModelBucket) -> None:
    """`max_clock_ahead` is the limit; a clock that lags does no harm."""
    for seconds, limit, fine in ((-86400 * 400, 3600.0, True), (3500, 3600.0, True), (100, 60.0, False)):
        wrong = TickingSystem()
        wrong.wall_ms += seconds * 1000
        wrong.drawn = seconds & 0xFFFFFF
        with open_on(bucket, wrong, max_clock_ahead=limit) as store:
            if fine:
                _commit(store, b"x")
            else:
                with pytest.raises(ClockAhead, match=r"100 s ahead.*at most 60 s"):
                    _commit(store, b"x")


def test_the_time_of_the_bucket_is_read_only_if_needed(bucket: ModelBucket, system: TickingSystem) -> None:
    """Once by a process that saw no young object, and not by its commits, however long it runs."""
    with open_on(bucket, system) as store:
        store.create_table("kv")
        _commit(store, b"1")
    counted = FaultyBucket(bucket)
    with open_on(counted, system) as store:
        for _ in range(5):
            _commit(store, b"2")
            system.forward(1800)
        assert not [call for call in counted.calls if call.path.startswith("tmp/")]
    system.forward(86400)
    counted = FaultyBucket(bucket)
    with open_on(counted, system) as store:
        for _ in range(5):
            _commit(store, b"3")
            system.forward(7200)
        assert len({call.path for call in counted.calls if call.path.startswith("tmp/clock-")}) == 1


def test_repeated_refusals_read_the_time_of_the_bucket_once(bucket: ModelBucket, system: TickingSystem) -> None:
    """Each look-up is three requests, made while commits are decided; once a hundred of them delayed all others."""
    with open_on(bucket, system) as store:
        store.create_table("kv")
        _commit(store, b"1")
    counted = FaultyBucket(bucket)

    def clock_requests() -> int:
        return len({call.path for call in counted.calls if call.path.startswith("tmp/clock-")})

    with open_on(counted, system) as store:
        store.table("kv").ingest_batch([(b"k", b"ahead")], MAX_EPOCH)
        for _ in range(100):
            with pytest.raises(ClockAhead):
                store.commit_epoch(MAX_EPOCH)
        assert clock_requests() == 1
        system.forward(60)
        with pytest.raises(ClockAhead):
            store.commit_epoch(MAX_EPOCH)
        assert clock_requests() == 2


def test_the_limit_is_a_number_of_seconds() -> None:
    """Other values are refused before a store is opened."""
    for value in (-1.0, float("nan"), "1"):
        with pytest.raises(InvalidOption, match="max_clock_ahead"):
            connect("memory://", max_clock_ahead=value)  # type: ignore[arg-type]


@pytest.mark.parametrize("listing", [1, 2, 3])
@pytest.mark.parametrize("work", ["vacuum", "compact"])
def test_a_clock_that_is_years_ahead_judges_no_pins(
    right: StateStore, bucket: ModelBucket, work: str, listing: int
) -> None:
    """Story: it took all pins for expired, was set right a moment later, and expired history that one held."""
    _commit(right, b"1")
    snapshot = right.pin_snapshot()
    for value in (b"2", b"3"):
        _commit(right, value)
        right.compact("kv")
    wrong = TickingSystem()
    wrong.drawn = 10**6
    ahead = FaultyBucket(bucket)
    with open_on(ahead, wrong, retention=0) as store:
        seen = []

        def is_listing(call: Call) -> bool:
            seen.extend([call] if (call.operation, call.path) == ("list", "pins/") else [])
            return len(seen) == listing

        def set_right() -> None:
            wrong.wall_ms -= YEARS_MS

        wrong.wall_ms += YEARS_MS
        ahead.stall(is_listing, set_right)
        with pytest.raises(ClockAhead, match="years ahead"):
            store.vacuum() if work == "vacuum" else store.compact("kv")
    assert snapshot.table("kv").get(b"k") == b"1"
    snapshot.close()


def test_a_clock_that_is_years_ahead_ends_no_retention(right: StateStore, bucket: ModelBucket) -> None:
    """Story: vacuum moved the safe epoch by it, and all older epochs of the last hour could be read no more."""
    first = _commit(right, b"1")
    _commit(right, b"2")
    right.compact("kv")
    _commit(right, b"3")
    wrong = TickingSystem()
    wrong.drawn = 10**6
    with open_on(bucket, wrong) as store:
        wrong.wall_ms += YEARS_MS
        with pytest.raises(ClockAhead, match="years ahead"):
            store.vacuum()
    _commit(right, b"4")
    assert right.table("kv").get(b"k", epoch=first) == b"1"


@pytest.mark.parametrize("work", ["vacuum", "compact"])
def test_a_clock_that_is_an_hour_ahead_ends_no_retention(right: StateStore, bucket: ModelBucket, work: str) -> None:
    """Story: less than `max_clock_ahead` is allowed, and history of ten minutes went that a reader held."""
    first = _commit(right, b"1")
    snapshot = right.pin_snapshot()
    _commit(right, b"2")
    right.compact("kv")
    _commit(right, b"3")
    ahead = TickingSystem()
    ahead.drawn = 10**6
    with open_on(bucket, ahead, retention=600) as store:
        ahead.wall_ms += 3500_000
        store.vacuum() if work == "vacuum" else store.compact("kv")
    _commit(right, b"4")
    assert snapshot.table("kv").get(b"k") == b"1"
    snapshot.close()
    assert right.table("kv").get(b"k", epoch=first) == b"1"
