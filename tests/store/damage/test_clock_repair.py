"""`repair_clock`: a store with epochs or times of the far future gets present ones, and keeps all its rows."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support import inside
from support.buckets.faulty_bucket import Crash, Fate, FaultyBucket, where
from support.store.stores import TickingSystem, open_on, pairs
from support.store.versions import ModelBucket
from tussock.compactor.clock_repair import repair_clock as carry_out
from tussock.meta.log.format import lease_path
from tussock.meta.log.leases import LeaseRecord, encode_lease
from tussock.meta.log.log import VersionLog
from tussock.meta.version.invariants import problems
from tussock.meta.version.version import Version
from tussock.statestore import (
    ClockAhead,
    Conflict,
    EpochTooOld,
    Fenced,
    InvalidOption,
    ObjectStoreUnavailable,
    SnapshotExpired,
    StateStore,
    clone,
    connect,
    repair_clock,
    restore,
)
from tussock.statestore.base.system import RealSystem
from tussock.statestore.contract.backend import ClockRepair
from tussock.statestore.epochs import MAX_EPOCH, epoch_at_ms, epoch_ms, next_epoch

YEARS_MS = 10 * 365 * 86400 * 1000
HOUR_MS = 3600_000


@pytest.fixture
def system() -> TickingSystem:
    """The bucket's clock, and that of machines with the right time."""
    return TickingSystem()


@pytest.fixture
def bucket(system: TickingSystem) -> ModelBucket:
    return ModelBucket(system)


@pytest.fixture
def old(bucket: ModelBucket, system: TickingSystem) -> Iterator[StateStore]:
    """A client that accepts any epoch, like earlier releases."""
    with open_on(bucket, system, max_clock_ahead=1e12, retention=0.0, gc_grace=0.0) as store:
        store.create_table("kv")
        yield store


def repair(bucket: ModelBucket | FaultyBucket, *, dry_run: bool = False) -> ClockRepair:
    system = TickingSystem()
    inner = bucket if isinstance(bucket, ModelBucket) else bucket.inner
    system.wall_ms = inner.system.now_ms()
    system.drawn = 1 << 28
    done = carry_out(bucket, system, owner="repair", open_source=_no_source, max_ahead_ms=HOUR_MS, dry_run=dry_run)
    assert problems(version_of(inner)) == []
    return done


def _no_source(url: str) -> Any:
    raise AssertionError(url)


def version_of(bucket: ModelBucket) -> Version:
    return VersionLog(bucket, bucket.system, owner="test").refresh()


def commit(store: StateStore, value: bytes, epoch: int | None = None, *, key: bytes = b"k", **writer: Any) -> int:
    epoch = store.new_epoch() if epoch is None else epoch
    store.table("kv").ingest_batch([(key, value)], epoch)
    return store.commit_epoch(epoch, **writer)


def test_a_store_at_the_largest_epoch_takes_commits_again(
    old: StateStore, bucket: ModelBucket, system: TickingSystem
) -> None:
    """Earlier rows and those of the largest epoch are there, at the new number."""
    small = commit(old, b"1")
    assert commit(old, b"2", MAX_EPOCH, key=b"l") == MAX_EPOCH
    with pytest.raises(EpochTooOld, match="tussock repair clock"):
        commit(old, b"3")
    with open_on(bucket, system) as other, pytest.raises(EpochTooOld, match="tussock repair clock"):
        commit(other, b"3", small + 1)
    done = repair(bucket)
    assert (done.epochs, done.old, done.rewritten) == (1, (MAX_EPOCH, MAX_EPOCH), 0)
    with open_on(bucket, system) as store:
        kv = store.table("kv")
        assert store.committed_epoch == done.new[0] > small
        assert pairs(kv.scan()) == [(b"k", b"1"), (b"l", b"2")]
        assert commit(store, b"4") > done.new[0]
        assert abs(epoch_ms(store.committed_epoch) - system.now_ms()) < 1000
    old.version()
    old.abort_epoch(old.new_epoch())
    assert old.table("kv").get(b"k") == b"4"


def test_retention_works_after_a_repair(old: StateStore, bucket: ModelBucket, system: TickingSystem) -> None:
    """Old versions go with the next compaction; one commit by a clock ten years ahead had kept them all."""
    for number in range(5):
        commit(old, b"%d" % number)
    system.wall_ms += YEARS_MS
    ahead = commit(old, b"ahead")
    system.wall_ms -= YEARS_MS
    with open_on(bucket, system, retention=0.0, gc_grace=0.0) as store:
        for number in range(20):
            assert commit(store, b"%d" % number) > ahead
        store.compact("kv")
        assert sum(sst.rows for sst in version_of(bucket).ssts()) > 20
        done = repair(bucket)
        assert (done.epochs, done.rewritten, done.times) == (21, 2, True)
        system.forward(2)
        store.version()
        newest = commit(store, b"last")
        assert abs(epoch_ms(newest) - system.now_ms()) < 1000
        store.compact("kv")
        (only,) = version_of(bucket).ssts()
        assert (only.rows, only.max_epoch) == (1, newest)
        assert store.table("kv").get(b"k") == b"last"
        system.forward(1000)
        store.vacuum()
        assert len([path for path in bucket.objects if path.endswith(".data")]) == 1


def test_the_ledger_has_the_new_epochs_of_repeated_batches(old: StateStore, bucket: ModelBucket) -> None:
    """A committed batch is not committed again."""
    commit(old, b"0", writer="w", batch_id=0)
    far = [commit(old, b"%d" % batch, MAX_EPOCH - 10 + batch, writer="w", batch_id=batch) for batch in (1, 2, 3)]
    done = repair(bucket)
    old.version()
    assert [old.committed_batch("w", batch) for batch in (1, 2, 3)] == [done.new[0], done.new[0] + 1, done.new[1]]
    epoch = old.new_epoch()
    old.table("kv").ingest_batch([(b"k", b"again")], epoch)
    assert old.commit_epoch(epoch, writer="w", batch_id=2) == done.new[0] + 1
    assert old.table("kv").get(b"k") == b"3"
    assert far[0] == done.old[0]


def test_a_dry_run_changes_nothing(old: StateStore, bucket: ModelBucket) -> None:
    """Its report is that of the run after it."""
    commit(old, b"1", MAX_EPOCH - 1)
    commit(old, b"2", MAX_EPOCH)
    before = dict(bucket.objects)
    said = repair(bucket, dry_run=True)
    assert bucket.objects == before
    assert repair(bucket) == said
    assert said.is_needed
    again = repair(bucket)
    assert not again.is_needed


def test_a_store_that_is_not_ahead_is_left_alone(bucket: ModelBucket, system: TickingSystem) -> None:
    """Epochs may be small numbers, or ahead by less than the limit."""
    with open_on(bucket, system) as store:
        store.create_table("kv")
        commit(store, b"1", 1)
        commit(store, b"2", epoch_at_ms(system.now_ms() + HOUR_MS - 1000))
    before = version_of(bucket)
    assert not repair(bucket).is_needed
    assert version_of(bucket) == before


def test_times_of_small_epochs_are_repaired_too(old: StateStore, bucket: ModelBucket, system: TickingSystem) -> None:
    """If epochs are a user's small numbers, retention depends on the times of the commits."""
    commit(old, b"1", 1)
    system.wall_ms += YEARS_MS
    commit(old, b"2", 2)
    system.wall_ms -= YEARS_MS
    done = repair(bucket)
    assert (done.epochs, done.times) == (0, True)
    assert old.version().renumbered is None
    system.forward(2)
    commit(old, b"3", 3)
    old.compact("kv")
    assert [sst.rows for sst in version_of(bucket).ssts()] == [1]


def test_a_repair_is_refused_while_the_store_is_used(
    old: StateStore, bucket: ModelBucket, system: TickingSystem
) -> None:
    """Pins, unfinished backups and a leading meta service block it; the error names them, and nothing changes."""
    commit(old, b"1", MAX_EPOCH)
    before = version_of(bucket)
    with old.pin_snapshot(), pytest.raises(InvalidOption, match=r"holds a snapshot at epoch .*nothing changed"):
        repair(bucket)
    lease = LeaseRecord(term=1, holder="h", address="meta-0:7370", lease_ms=3000)
    bucket.put(lease_path(1), encode_lease(lease))
    with pytest.raises(InvalidOption, match="the meta service at meta-0:7370 leads it"):
        repair(bucket)
    assert version_of(bucket) == before
    system.forward(10)
    repair(bucket)


def test_a_pin_by_a_clock_that_was_ahead_ends(old: StateStore, bucket: ModelBucket, system: TickingSystem) -> None:
    """Its lease ends in years; its object was written long ago."""
    commit(old, b"1", MAX_EPOCH)
    system.wall_ms += YEARS_MS
    old.pin_snapshot()
    pin = next(path for path in bucket.objects if path.startswith("pins/"))
    system.wall_ms -= YEARS_MS
    bucket.objects[pin] = bucket.objects[pin][0], system.now_ms()
    with pytest.raises(InvalidOption, match="holds a snapshot"):
        repair(bucket)
    inside.backend(old).meta.pins.abandon_all()
    system.forward(200)
    repair(bucket)
    assert [one.id for one in old.pins()] == [pin.removeprefix("pins/")]
    system.forward(2 * 86400)
    assert old.pins() == []


def test_epochs_from_before_a_repair_are_refused(old: StateStore, bucket: ModelBucket, system: TickingSystem) -> None:
    """Reads, pins, conditional commits and feeds at them fail, and never show rows of a later commit."""
    commit(old, b"1", MAX_EPOCH - 5)
    commit(old, b"2", MAX_EPOCH - 3)
    with open_on(bucket, system) as other:
        kv = other.table("kv")
        assert kv.get(b"k", epoch=MAX_EPOCH - 3) == b"2"
        scan = kv.scan()
        snapshot = _unseen_pin(other, bucket)
        repair(bucket)
        assert pairs(scan) == [(b"k", b"2")]
        old.version()
        newest = commit(old, b"3")
        other.version()
        for noted in (MAX_EPOCH - 5, MAX_EPOCH - 4, MAX_EPOCH - 3):
            with pytest.raises(SnapshotExpired, match=f"epoch {noted} .*newest epoch is {newest}"):
                kv.get(b"k", epoch=noted)
            with pytest.raises(SnapshotExpired):
                list(kv.scan(epoch=noted))
            with pytest.raises(SnapshotExpired):
                kv.multi_get([b"k"], epoch=noted)
            with pytest.raises(InvalidOption):
                kv.changes(noted)
        with pytest.raises(SnapshotExpired, match="far ahead"):
            snapshot.table("kv")
        epoch = other.new_epoch()
        kv.ingest_batch([(b"k", b"lost")], epoch)
        with pytest.raises(Conflict, match="read again"):
            other.commit_epoch(epoch, expect={"kv": MAX_EPOCH - 3})
        other.abort_epoch(epoch)
        epoch = other.new_epoch()
        kv.ingest_batch([(b"k", b"4")], epoch)
        assert other.commit_epoch(epoch, expect={"kv": newest}) == epoch
        assert kv.get(b"k", epoch=epoch) == b"4"


def _unseen_pin(store: StateStore, bucket: ModelBucket) -> Any:
    """A snapshot whose pin the repair does not see, as if it were taken right after the check."""
    snapshot = store.pin_snapshot()
    for path in [path for path in bucket.objects if path.startswith("pins/")]:
        del bucket.objects[path]
    return snapshot


def test_epochs_issued_before_a_repair_are_refused_and_new_ones_work(
    old: StateStore, bucket: ModelBucket, system: TickingSystem
) -> None:
    """A client that was open all the time continues after the repair, at present epochs."""
    commit(old, b"1", MAX_EPOCH >> 1)
    with open_on(bucket, system) as other:
        assert other.new_epoch() > MAX_EPOCH >> 1
        stale = other.new_epoch()
        other.table("kv").ingest_batch([(b"k", b"2")], stale)
        repair(bucket)
        with pytest.raises(ClockAhead):
            other.commit_epoch(stale)
        other.abort_epoch(stale)
        assert abs(epoch_ms(commit(other, b"3")) - system.now_ms()) < 1000


def test_a_repair_gives_up_running_compactions(old: StateStore, bucket: ModelBucket) -> None:
    """A late report changes nothing."""
    for number in range(3):
        commit(old, b"%d" % number, MAX_EPOCH - 10 + number)
    backend: Any = inside.backend(old)
    task = backend.meta.own_tasks.claim("kv", manual=True)
    repair(bucket)
    with pytest.raises(Fenced):
        backend.meta.own_tasks.report(task, ())
    old.compact("kv")
    assert old.table("kv").get(b"k") == b"2"


def test_a_crash_before_the_append_changes_nothing(old: StateStore, bucket: ModelBucket, system: TickingSystem) -> None:
    """The uploads are garbage; the repair is done again."""
    commit(old, b"1", MAX_EPOCH - 1)
    commit(old, b"2", MAX_EPOCH)
    old.compact("kv")
    before = version_of(bucket)
    for fate, error in ((Fate.CRASH, Crash), (Fate.LOSE_REQUEST, ObjectStoreUnavailable)):
        with pytest.raises(error):
            repair(FaultyBucket(bucket, where("create", "log/", fate)))
        assert version_of(bucket) == before
    done = repair(bucket)
    assert done.rewritten == 1
    assert old.table("kv").get(b"k") == b"2"


def test_a_commit_in_between_is_noticed(old: StateStore, bucket: ModelBucket, monkeypatch: pytest.MonkeyPatch) -> None:
    """The repair would miss its epochs: nothing changes, and the error says so."""
    commit(old, b"1", MAX_EPOCH - 5)
    faulty = FaultyBucket(bucket)
    append = lambda call: call.operation == "create" and call.path.startswith("log/")  # noqa: E731
    faulty.stall(append, lambda: commit(old, b"2", MAX_EPOCH - 2))
    with pytest.raises(Conflict, match="stop its"):
        repair(faulty)
    assert version_of(bucket).max_committed_epoch == MAX_EPOCH - 2
    repair(bucket)
    assert old.table("kv").get(b"k") == b"2"


def test_a_repair_covers_altered_tables_clones_and_backups() -> None:
    """SSTs of older columns and of another store's bucket are written anew; SSTs of backups stay."""
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("a", pa.int32())])
    rows = [{"id": 1, "a": 5, "b": None}, {"id": 2, "a": 6, "b": "x"}]
    far = next_epoch(RealSystem().now_ms() + 20 * 365 * 86_400_000, 0) + 9
    options: Any = {"compaction": False, "max_clock_ahead": 1e9, "retention": 0, "gc_grace": 0}
    with connect("memory://repair-from", **options) as store:
        table = store.create_table("t", schema, ["id"])
        table.upsert([{"id": 1, "a": 4}], far - 9)
        store.commit_epoch(far - 9)
        table.upsert([{"id": 1, "a": 5}], far - 8)
        store.commit_epoch(far - 8)
        store.compact("t")
        table = store.alter_table("t", add={"b": pa.string()}, widen={"a": pa.int64()})
        table.upsert([rows[1]], far - 7)
        store.commit_epoch(far - 7)
        store.backup("before")
        clone("memory://repair-from", "memory://repair-clone")
        for url in ("memory://repair-from", "memory://repair-clone"):
            assert repair_clock(url).rewritten == 1
            with connect(url, **options) as mended:
                assert _typed_rows(mended) == rows
                mended.vacuum()
                assert _typed_rows(mended) == rows
        restore("memory://repair-from", "before", "memory://repair-to")
        with connect("memory://repair-to", **options) as again:
            assert again.committed_epoch == far - 7
            assert _typed_rows(again) == rows
            assert repair_clock("memory://repair-to").old[1] == far - 7
            assert again.committed_epoch < far - 7


def _typed_rows(store: StateStore) -> list[dict[str, Any]]:
    rows = [row for batch in store.table("t").read() for row in batch.to_pylist()]
    return sorted(rows, key=lambda row: row["id"])


EPOCHS = st.one_of(st.integers(1, 50), st.integers(1, 20).map(lambda back: MAX_EPOCH - 40 + back), st.none())
STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("commit"),
            EPOCHS,
            st.dictionaries(st.sampled_from(["a", "b"]), st.dictionaries(st.integers(0, 5), st.booleans())),
        ),
        st.tuples(st.just("compact"), st.sampled_from(["a", "b"]), st.none()),
        st.tuples(st.just("create"), st.none(), st.none()),
        st.tuples(st.just("drop"), st.sampled_from(["a", "b"]), st.none()),
    ),
    min_size=3,
    max_size=14,
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=STEPS, kept=st.booleans())
def test_every_kept_epoch_reads_as_before(steps: list[Any], kept: bool) -> None:
    """For any commits, deletes, compactions and drops: at each new number the rows of the old one."""
    system = TickingSystem()
    bucket = ModelBucket(system)
    retention = 1e9 if kept else 0.0
    with open_on(bucket, system, max_clock_ahead=1e12, retention=retention, gc_grace=0.0) as store:
        for name in ("a", "b"):
            store.create_table(name)
        committed = [_step(store, number, *step) for number, step in enumerate(steps)]
        version = version_of(bucket)
        oldest = inside.backend(store).oldest_readable()
        epochs = sorted({epoch for epoch in committed if epoch and epoch >= oldest})
        before = {epoch: _content(store, epoch) for epoch in epochs}
        newest = _content(store, None)
        done = repair(bucket)
        store.version()
        ahead = sorted({epoch for epoch in _all_committed(committed) if epoch > MAX_EPOCH - 100})
        assert (done.epochs > 0) == bool(ahead and version.max_committed_epoch > MAX_EPOCH - 100)
        assert _content(store, None) == newest
        after = version_of(bucket)
        moved = dict(zip(sorted(_timeline_epochs(version)), sorted(_timeline_epochs(after)), strict=True))
        for epoch, rows in before.items():
            if moved[epoch] >= after.safe_epoch:
                assert _content(store, moved[epoch]) == rows
        assert after.max_committed_epoch <= epoch_at_ms(system.now_ms() + HOUR_MS)


def _all_committed(committed: list[int | None]) -> list[int]:
    return [epoch for epoch in committed if epoch]


def _timeline_epochs(version: Version) -> set[int]:
    """The epochs of the timeline: here all committed ones, one a tick."""
    return {epoch for _, epoch in version.timeline}


def _step(store: StateStore, number: int, what: str, on: Any, rows: Any) -> int | None:
    inside.system(store).forward(1)
    if what == "compact" and on in store.tables():
        store.compact(on)
    elif what == "drop" and on in store.tables():
        store.drop_table(on)
    elif what == "create":
        for name in {"a", "b"} - set(store.tables()):
            store.create_table(name)
    elif what == "commit":
        epoch = store.new_epoch() if on is None or on <= store.committed_epoch else on
        if epoch > MAX_EPOCH - 3:
            return None
        for name, values in rows.items():
            if name in store.tables():
                batch = [(b"%d" % key, b"%d" % number if put else None) for key, put in sorted(values.items())]
                store.table(name).ingest_batch(batch, epoch)
        return store.commit_epoch(epoch)
    return None


def _content(store: StateStore, epoch: int | None) -> dict[str, list[tuple[bytes, bytes]]]:
    return {name: pairs(store.table(name).scan(epoch=epoch)) for name in store.tables()}
