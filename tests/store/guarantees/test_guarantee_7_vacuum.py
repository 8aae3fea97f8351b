"""Guarantee 7: vacuum deletes only unreachable objects; a commit of SSTs that it may have deleted is refused."""

import contextlib
from typing import Any

import pyarrow as pa
import pytest

from support import inside
from support.buckets.faulty_bucket import Call, Crash, Fate, FaultyBucket, at_calls, where
from support.store.stores import OBJECTS, TickingSystem, open_on, pairs, sst_objects
from support.store.versions import ModelBucket
from tussock.statestore import ObjectStoreUnavailable, SnapshotExpired, StaleUpload, StateStore, connect
from tussock.statestore.base.limits import DEFAULT_LIMITS, Limits


def commit(store: StateStore, rows: list[tuple[bytes, bytes | None]], table: str = "kv") -> int:
    epoch = store.new_epoch()
    store.table(table).ingest_batch(rows, epoch)
    return store.commit_epoch(epoch)


def live(store: StateStore) -> set[str]:
    version: Any = store.version()
    return version.live_sst_ids()


@pytest.mark.parametrize("limits", [DEFAULT_LIMITS, OBJECTS], ids=["in entries", "objects"])
def test_vacuum_leaves_exactly_what_the_version_names(bucket_url: str, limits: Limits) -> None:
    """After compactions, a drop and an orphan, with a grace of 0: every other SST is gone, and reads are right."""
    with connect(bucket_url, retention=0, gc_grace=0, compaction=False, limits=limits) as store:
        kv, gone = store.create_table("kv"), store.create_table("gone")
        for at in range(4):
            commit(store, [(b"%d" % at, b"x"), (b"a", b"%d" % at)])
        commit(store, [(b"a", b"1")], "gone")
        assert gone.upload([_batch(b"never committed")])
        store.compact("kv")
        store.drop_table("gone")
        assert sst_objects(inside.bucket(store)) - live(store)
        # The orphan's id is of this machine's clock, its age by that of the bucket, which may lag a little.
        inside.system(store).sleep(0.05)
        report = store.vacuum()
        assert sst_objects(inside.bucket(store)) == live(store)
        assert report.bytes_freed > 0
        # Those of small commits lie in log entries, which are too young to go.
        assert len(report.deleted) == (6 if limits is OBJECTS else 1)
        assert pairs(kv.scan()) == [(b"%d" % at, b"x") for at in range(4)] + [(b"a", b"3")]
        assert store.vacuum().deleted == ()


def _batch(key: bytes) -> Any:
    return pa.record_batch({"key": [key], "value": [b"v"]})


def test_a_dry_run_says_what_vacuum_will_delete_and_deletes_nothing(store: StateStore) -> None:
    """It has reasons in words; the real run deletes what the dry run listed."""
    store.create_table("kv")
    commit(store, [(b"a", b"1")])
    commit(store, [(b"a", b"2")])
    store.compact("kv")
    assert store.vacuum().deleted == (), "within the grace period everything stays"
    assert store.vacuum(dry_run=True).kept_young == 0


def test_the_grace_period_is_kept_to_the_second() -> None:
    """Replaced SSTs and orphans stay for the grace period, and go after it."""
    system = TickingSystem()
    bucket = ModelBucket(system)
    store = open_on(bucket, system, gc_grace=100, limits=OBJECTS)
    kv = store.create_table("kv")
    commit(store, [(b"a", b"1")])
    commit(store, [(b"a", b"2")])
    kv.upload([_batch(b"orphan")])
    store.compact("kv")
    everything = sst_objects(bucket)
    system.forward(99)
    planned = store.vacuum(dry_run=True)
    assert planned.deleted == store.vacuum().deleted == ()
    assert sst_objects(bucket) == everything
    system.forward(2)
    planned = store.vacuum(dry_run=True)
    assert sst_objects(bucket) == everything
    assert len(planned.deleted) == 3
    assert store.vacuum().deleted == planned.deleted
    assert sst_objects(bucket) == live(store)


def test_an_upload_that_vacuum_may_have_deleted_is_uploaded_again() -> None:
    """Another process vacuums between the upload and the append: the commit still succeeds, whole."""
    system = TickingSystem()
    inner = ModelBucket(system)
    bucket = FaultyBucket(inner)
    slow, hasty = open_on(bucket, system, limits=OBJECTS), open_on(inner, system, gc_grace=0)
    kv = slow.create_table("kv")
    epoch = slow.new_epoch()
    kv.ingest_batch([(b"a", b"1"), (b"b", b"1")], epoch)

    def vacuum() -> None:
        system.forward(5)
        assert [reason for _, reason in hasty.vacuum().deleted] == ["SST that no version names"]

    bucket.stall(lambda call: call.operation == "create" and call.path.startswith("log/"), vacuum)
    assert slow.commit_epoch(epoch) == epoch
    assert pairs(open_on(inner, system).table("kv").scan()) == [(b"a", b"1"), (b"b", b"1")]
    assert live(slow) <= sst_objects(inner)


def test_a_read_that_vacuum_always_outruns_is_reported() -> None:
    """The SSTs of each version that it reads are gone before they are fetched: that is no corruption, and it ends."""
    system = TickingSystem()
    inner = ModelBucket(system)
    hasty = open_on(inner, system, retention=0, gc_grace=0, limits=OBJECTS)
    hasty.create_table("kv")
    outrun = 0

    def script(call: Call) -> Fate:
        nonlocal outrun
        if call.operation in ("get", "get_range") and call.path.startswith("sst/"):
            outrun += 1
            commit(hasty, [(b"a", b"%d" % outrun)])
            hasty.compact("kv")
            system.forward(10)
            hasty.vacuum()
        return Fate.PASS

    commit(hasty, [(b"a", b"0")])
    slow = open_on(FaultyBucket(inner, script), system, cache_bytes=0)
    with pytest.raises(SnapshotExpired, match=r"20 versions in a row.*gc_grace"):
        slow.table("kv").get(b"a")
    assert outrun >= 20
    assert pairs(hasty.table("kv").scan()) == [(b"a", b"%d" % outrun)]


def test_spilled_rows_are_safe_from_the_own_vacuum_without_any_grace() -> None:
    """The client knows its uploads; those that it gave up are deleted."""
    system = TickingSystem()
    bucket = ModelBucket(system)
    store = open_on(bucket, system, gc_grace=0, buffer_bytes=0)
    kv = store.create_table("kv")
    kept, given_up = store.new_epoch(), store.new_epoch()
    # Each batch makes room for itself by spilling the one before it.
    kv.ingest_batch([(b"a", b"1")], kept)
    kv.ingest_batch([(b"b", b"1")], given_up)
    kv.ingest_batch([(b"c", b"1")], kept)
    assert len(sst_objects(bucket)) == 2
    system.forward(10)
    assert store.vacuum().deleted == ()
    assert pairs(kv.scan()) == [(b"a", b"1"), (b"b", b"1"), (b"c", b"1")]
    store.abort_epoch(given_up)
    assert store.commit_epoch(kept) == kept
    system.forward(10)
    assert len(store.vacuum().deleted) == 1
    assert pairs(kv.scan()) == [(b"a", b"1"), (b"c", b"1")]


def test_spilled_rows_that_another_process_vacuumed_are_reported_by_name() -> None:
    """They were in the bucket for longer than that grace: reads and the commit say what to do, not "corrupt"."""
    system = TickingSystem()
    bucket = ModelBucket(system)
    store, hasty = open_on(bucket, system, buffer_bytes=0, cache_bytes=0), open_on(bucket, system, gc_grace=0)
    kv = store.create_table("kv")
    commit(store, [(b"z", b"1")])
    epoch = store.new_epoch()
    kv.ingest_batch([(b"a", b"1")], epoch)
    kv.ingest_batch([(b"b", b"1")], epoch)
    system.forward(10)
    hasty.vacuum()
    reads = [lambda: kv.get(b"a"), lambda: kv.multi_get([b"a"]), lambda: pairs(kv.scan())]
    for read in [*reads, lambda: store.commit_epoch(epoch)]:
        with pytest.raises(StaleUpload, match="abort the epoch"):
            read()
    store.abort_epoch(epoch)
    assert pairs(kv.scan()) == [(b"z", b"1")]
    commit(store, [(b"a", b"2")])
    assert pairs(kv.scan()) == [(b"a", b"2"), (b"z", b"1")]


def test_a_scan_continues_without_spilled_rows_that_were_given_up() -> None:
    """The newest version misses nothing, so the scan does not raise."""
    system = TickingSystem()
    bucket = ModelBucket(system)
    store, hasty = open_on(bucket, system, buffer_bytes=0, cache_bytes=0), open_on(bucket, system, gc_grace=0)
    kv = store.create_table("kv")
    commit(store, [(b"z", b"1")])
    epoch = store.new_epoch()
    kv.ingest_batch([(b"a", b"1")], epoch)
    kv.ingest_batch([(b"b", b"1")], epoch)
    system.forward(10)
    hasty.vacuum()
    store.version()
    under_way = kv.scan()
    store.abort_epoch(epoch)
    assert pairs(under_way) == [(b"z", b"1")]


def test_a_pinned_epoch_needs_no_old_sst() -> None:
    """All SSTs of the pinned version are replaced and deleted; the snapshot reads its epoch on the new ones."""
    system = TickingSystem()
    bucket = ModelBucket(system)
    store = open_on(bucket, system, retention=0, gc_grace=0)
    store.create_table("kv")
    commit(store, [(b"a", b"1"), (b"b", b"1")])
    with store.pin_snapshot() as snapshot:
        before = live(store)
        commit(store, [(b"a", b"2"), (b"b", None)])
        store.compact("kv")
        system.forward(1)
        store.vacuum()
        assert not before & sst_objects(bucket)
        assert pairs(snapshot.table("kv").scan()) == [(b"a", b"1"), (b"b", b"1")]
    commit(store, [(b"c", b"3")])
    store.compact("kv")
    assert [sst.rows for state in store.version().tables.values() for sst in state.levels.ssts()] == [2]


def test_a_long_compaction_is_not_locked_out() -> None:
    """It takes ten times the grace period, with a vacuum in the middle: its outputs are committed."""
    system = TickingSystem()
    bucket = FaultyBucket(ModelBucket(system))
    store, other = open_on(bucket, system, gc_grace=2), open_on(bucket.inner, system, gc_grace=0)
    kv = store.create_table("kv")
    commit(store, [(b"a", b"1")])
    commit(store, [(b"a", b"2")])

    kv.upload([_batch(b"orphan")])
    (orphan,) = sst_objects(bucket.inner) - live(store)
    system.forward(1)

    def vacuum() -> None:
        system.forward(18)
        assert orphan in sst_objects(bucket.inner)
        assert other.vacuum().deleted
        assert orphan not in sst_objects(bucket.inner), "what is older than the task goes meanwhile"

    backend: Any = inside.backend(store)
    before = live(store)
    task = backend.meta.own_tasks.claim("kv", manual=True)
    bucket.stall(lambda call: call.operation == "create", vacuum)
    inside.execute(backend, task)
    assert not live(store) & before
    assert live(store) <= sst_objects(bucket)
    assert kv.get(b"a") == b"2"


@pytest.mark.parametrize("fate", [Fate.CRASH, Fate.CRASH_AFTER, Fate.LOSE_REQUEST, Fate.LOSE_ANSWER])
def test_a_vacuum_that_dies_anywhere_leaves_garbage_only(fate: Fate) -> None:
    """At every call: the store reads right, and the next vacuum finishes the work."""
    for call in range(1, 60):
        system = TickingSystem()
        inner = ModelBucket(system)
        bucket = FaultyBucket(inner)
        store = open_on(bucket, system, retention=0, gc_grace=0)
        kv = store.create_table("kv")
        for at in range(3):
            commit(store, [(b"a", b"%d" % at), (b"b", b"b")])
        kv.upload([_batch(b"orphan")])
        store.compact("kv")
        system.forward(3600)
        bucket.script = at_calls({len(bucket.calls) + call: fate})
        reached = len(bucket.calls) + call
        with contextlib.suppress(Crash, ObjectStoreUnavailable):
            store.vacuum()
        inside.kill(store)
        again = open_on(inner, system, retention=0, gc_grace=0)
        assert pairs(again.table("kv").scan()) == [(b"a", b"2"), (b"b", b"b")]
        again.vacuum()
        assert sst_objects(inner) == live(again)
        if len(bucket.calls) < reached:
            return
    pytest.fail("a vacuum takes fewer calls than that")


def test_nothing_is_deleted_if_a_listing_fails() -> None:
    """Without a listing vacuum does not know what is garbage."""
    system = TickingSystem()
    bucket = FaultyBucket(ModelBucket(system))
    store = open_on(bucket, system, gc_grace=0)
    store.create_table("kv")
    commit(store, [(b"a", b"1")])
    system.forward(60)
    for prefix in ("sst/", "log/", "pins/", "snapshot/"):
        before = sst_objects(bucket)
        bucket.script = where("list", prefix, Fate.LOSE_REQUEST)
        with pytest.raises(ObjectStoreUnavailable):
            store.vacuum()
        bucket.script = None
        assert sst_objects(bucket) == before


def test_without_grace_replaced_ssts_are_deleted_at_once(bucket_url: str) -> None:
    """Even if the clocks of bucket and machine differ by some milliseconds."""
    with connect(bucket_url, gc_grace=0, compaction=False) as store:
        store.create_table("kv")
        for at in range(5):
            commit(store, [(b"a", b"%d" % at)])
            commit(store, [(b"a", b"again")])
            store.compact("kv")
            store.vacuum()
            assert sst_objects(inside.bucket(store)) == live(store)
