"""Vacuum: what it deletes, what it keeps, and the ways in which others lost data there."""

import contextlib

import pytest

from support.buckets.faulty_bucket import Crash, Fate, FaultyBucket, at_calls
from support.store.versions import FakeSystem, ModelBucket, make_id, request, spec, sst
from tussock.meta.compaction.picker import PickerConfig
from tussock.meta.log.format import base_path, entry_path, marker_path
from tussock.meta.meta_store import MetaStore
from tussock.statestore.contract.records import SstInfo, data_path, meta_path
from tussock.statestore.errors import CorruptLog, Fenced, StaleUpload
from tussock.statestore.write.sst_ids import new_sst_id

GRACE = 900.0
EAGER = PickerConfig(base_bytes=1, l0_small_bytes=1)


def meta(bucket: ModelBucket | FaultyBucket, system: FakeSystem | None = None, **options: object) -> MetaStore:
    values: dict[str, object] = {"retention_seconds": 0, "gc_grace_seconds": GRACE, "config": EAGER, **options}
    inner = bucket.inner if isinstance(bucket, FaultyBucket) else bucket
    return MetaStore(bucket, system or inner.system, **values)  # type: ignore[arg-type,union-attr]


def upload(
    bucket: ModelBucket, clock: FakeSystem | None = None, sst_id: str | None = None, **fields: object
) -> SstInfo:
    """Put an SST's two objects; its id is minted by `clock` (the writer's), its age by the bucket's clock."""
    one = sst(id=sst_id or new_sst_id(clock or bucket.system), **fields)
    bucket.put(data_path(one.id), b"d" * 100)
    bucket.put(meta_path(one.id), b"m" * 10)
    return one


def is_there(bucket: ModelBucket, one: SstInfo) -> bool:
    return data_path(one.id) in bucket.objects and meta_path(one.id) in bucket.objects


@pytest.fixture
def store(bucket: ModelBucket) -> MetaStore:
    made = meta(bucket)
    made.create_table(spec())
    return made


def compact_two(store: MetaStore, bucket: ModelBucket) -> tuple[list[SstInfo], SstInfo]:
    """Two commits merged into one SST; returns (inputs, output)."""
    inputs = [upload(bucket), upload(bucket)]
    for epoch, one in enumerate(inputs, start=store.version().max_committed_epoch + 1):
        store.commit(request(epoch, 1, one))
    task = store.own_tasks.claim("kv", manual=True)
    assert task is not None
    out = upload(bucket, epoch=0, min_epoch=1, max_epoch=2)
    store.own_tasks.report(task, [out])
    return inputs, out


def test_a_replaced_sst_goes_after_the_grace_period_and_is_forgotten(store: MetaStore, bucket: ModelBucket) -> None:
    """One millisecond earlier it stays; live SSTs always stay."""
    inputs, out = compact_two(store, bucket)
    bucket.system.wall_ms += int(GRACE * 1000) - 1
    assert not any(path.startswith("sst/") for path, _ in store.vacuum().deleted)
    assert all(is_there(bucket, one) for one in [*inputs, out])
    bucket.system.wall_ms += 2
    report = store.vacuum()
    assert sorted(path for path, _ in report.deleted if path.startswith("sst/")) == sorted(
        path for one in inputs for path in (data_path(one.id), meta_path(one.id))
    )
    assert report.bytes_freed >= 220
    assert is_there(bucket, out)
    assert store.version().dropped == ()


@pytest.mark.parametrize("lag", [1000, 86400])
@pytest.mark.parametrize("way", ["compacted", "dropped"])
def test_what_a_clock_that_lags_noted_has_its_grace_period_too(
    store: MetaStore, bucket: ModelBucket, lag: int, way: str
) -> None:
    """By that clock the SSTs were replaced, or dropped with their table, longer ago than the grace period is."""
    lagging = FakeSystem()
    lagging.wall_ms, lagging.drawn = bucket.system.wall_ms - 1000 * lag, 1000
    behind = meta(bucket, lagging)
    if way == "compacted":
        inputs, _ = compact_two(behind, bucket)
    else:
        inputs = [upload(bucket)]
        store.commit(request(1, 1, *inputs))
        behind.drop_table("kv")
    bucket.system.forward(GRACE - 1)
    assert store.vacuum().deleted == ()
    assert all(is_there(bucket, one) for one in inputs)
    bucket.system.forward(2)
    store.vacuum()
    assert not any(is_there(bucket, one) for one in inputs)


def test_an_id_that_was_in_the_store_is_never_committed_again(store: MetaStore, bucket: ModelBucket) -> None:
    """Dropped, then deleted, then forgotten: at each stage a late commit of it is refused."""
    inputs, _ = compact_two(store, bucket)
    with pytest.raises(ValueError, match="compacted away"):
        store.commit(request(50, 1, inputs[0]))
    bucket.system.forward(GRACE + 1)
    store.vacuum()
    with pytest.raises(StaleUpload):
        store.commit(request(50, 1, inputs[0]))


def test_an_upload_that_is_not_committed_yet_is_kept_and_can_be_committed(
    store: MetaStore, bucket: ModelBucket
) -> None:
    """Younger than the grace period it may be on its way; the horizon stays at or below it."""
    garbage = upload(bucket)
    bucket.system.forward(GRACE - 1)
    young = upload(bucket)
    bucket.system.forward(2)
    report = store.vacuum()
    assert report.kept_young == 2
    assert report.gc_horizon <= young.id
    assert not is_there(bucket, garbage)
    assert store.commit(request(1, 1, young)) == 1


def test_a_commit_that_waited_longer_than_the_grace_is_refused_whole(store: MetaStore, bucket: ModelBucket) -> None:
    """Its file is deleted; the version never names a missing file, and a new upload can be committed."""
    late, other = upload(bucket), meta(bucket)
    bucket.system.forward(GRACE + 1)
    other.vacuum()
    assert not is_there(bucket, late)
    with pytest.raises(StaleUpload):
        store.commit(request(1, 1, late, upload(bucket)))
    assert store.version().max_committed_epoch == 0
    assert store.commit(request(1, 1, upload(bucket))) == 1


def test_ids_published_in_another_order_than_minted_are_kept_or_refused(store: MetaStore, bucket: ModelBucket) -> None:
    """B is minted before A, A is committed, B stalls past the grace: B is refused, A stays."""
    b, a = upload(bucket), upload(bucket)
    store.commit(request(1, 1, a))
    bucket.system.forward(GRACE + 1)
    store.vacuum()
    with pytest.raises(StaleUpload):
        store.commit(request(2, 1, b))
    assert is_there(bucket, a)


def test_a_commit_between_the_listing_and_the_horizon_keeps_its_ssts(store: MetaStore, bucket: ModelBucket) -> None:
    """Vacuum looks at the version again after its own append."""
    late = upload(bucket)
    upload(bucket)
    bucket.system.forward(GRACE + 1)
    faulty = FaultyBucket(bucket)
    cleaner = meta(faulty)
    faulty.stall(lambda call: call.operation == "create", lambda: store.commit(request(1, 1, late)) and None)
    report = cleaner.vacuum()
    assert len([path for path, _ in report.deleted if path.startswith("sst/")]) == 2
    assert is_there(bucket, late)
    assert store.refresh().live_sst_ids() == {late.id}


def test_outputs_of_an_expired_task_go_and_its_report_is_fenced(store: MetaStore, bucket: ModelBucket) -> None:
    """Vacuum takes expired tasks back first, so that a dead compactor does not hold the horizon for ever."""
    for epoch in (1, 2):
        store.commit(request(epoch, 1, upload(bucket)))
    task = store.own_tasks.claim("kv", manual=True)
    assert task is not None
    out = upload(bucket, epoch=0, min_epoch=1, max_epoch=2)
    bucket.system.forward(3600)
    meta(bucket).vacuum()
    assert not is_there(bucket, out)
    with pytest.raises(Fenced):
        store.own_tasks.report(task, [out])
    assert store.own_tasks.claim("kv", manual=True) is not None


def test_a_writer_whose_clock_lags_an_hour_is_not_locked_out(store: MetaStore, bucket: ModelBucket) -> None:
    """Its young uploads hold the horizon; one that is refused is accepted under an id above the horizon."""
    behind = FakeSystem()
    behind.drawn, behind.wall_ms = 10**6, bucket.system.wall_ms - 3_600_000
    upload(bucket)
    bucket.system.forward(GRACE + 1)
    one = upload(bucket, behind)
    store.vacuum()
    assert store.commit(request(1, 1, one)) == 1
    store.vacuum()
    late = upload(bucket, behind)
    with pytest.raises(StaleUpload, match="above the horizon"):
        store.commit(request(2, 1, late))
    horizon_ms = int(store.version().gc_horizon[:12], 16)
    assert store.commit(request(2, 1, upload(bucket, sst_id=make_id(horizon_ms, 77)))) == 2


def test_an_orphan_whose_id_is_ahead_of_time_goes_in_the_end(store: MetaStore, bucket: ModelBucket) -> None:
    """The horizon is never ahead of the bucket's clock; once that passes the id, the orphan is deleted."""
    ahead = FakeSystem()
    ahead.drawn, ahead.wall_ms = 10**6, bucket.system.wall_ms + 3_600_000
    orphan = upload(bucket, ahead)
    bucket.system.forward(GRACE + 1)
    store.vacuum()
    assert is_there(bucket, orphan)
    assert store.commit(request(1, 1, upload(bucket))) == 1
    bucket.system.forward(3600)
    store.vacuum()
    assert not is_there(bucket, orphan)


def test_ages_are_measured_by_the_buckets_clock(store: MetaStore, bucket: ModelBucket) -> None:
    """A vacuum whose own clock is a day ahead does not take young uploads for old ones."""
    ahead = FakeSystem()
    ahead.drawn, ahead.wall_ms = 10**6, bucket.system.wall_ms + 86_400_000
    young = upload(bucket)
    meta(bucket, ahead).vacuum()
    assert is_there(bucket, young)
    assert store.commit(request(1, 1, young)) == 1


def test_a_dry_run_changes_nothing_and_reports_the_same(store: MetaStore, bucket: ModelBucket) -> None:
    """Not a byte of the bucket changes; the real run then deletes what the report lists."""
    compact_two(store, bucket)
    upload(bucket)
    bucket.system.forward(GRACE + 1)
    before = dict(bucket.objects)
    dry = store.vacuum(dry_run=True)
    assert bucket.objects == before
    assert len(dry.deleted) == 6
    assert store.vacuum() == dry
    assert store.vacuum().deleted == ()


def test_a_vacuum_without_garbage_appends_nothing(store: MetaStore, bucket: ModelBucket) -> None:
    """A vacuum without garbage leaves the log as it is."""
    store.commit(request(1, 1, upload(bucket)))
    bucket.system.forward(GRACE + 1)
    seq = store.version().seq
    assert store.vacuum().deleted == ()
    assert store.refresh().seq == seq


def test_foreign_objects_are_left_alone(store: MetaStore, bucket: ModelBucket) -> None:
    """Vacuum deletes only what it recognises as an SST."""
    for path in ("sst/readme.txt", "sst/abc.data", "other/file", f"sst/{'g' * 32}.data"):
        bucket.put(path, b"mine")
    bucket.system.forward(10 * GRACE)
    assert store.vacuum().deleted == ()


def test_nothing_is_deleted_if_the_log_is_unreadable(store: MetaStore, bucket: ModelBucket) -> None:
    """Vacuum does not know which SSTs are named."""
    orphan = upload(bucket)
    store.commit(request(1, 1, upload(bucket)))
    bucket.system.forward(GRACE + 1)
    bucket.objects[entry_path(2)] = (b"damage", 0)
    with pytest.raises(CorruptLog):
        meta(bucket)
    other = ModelBucket(bucket.system)
    other.objects = bucket.objects
    bucket.objects[entry_path(3)] = (b"damage", 0)
    with pytest.raises(CorruptLog):
        store.vacuum()
    assert is_there(bucket, orphan)


@pytest.mark.parametrize("fate", [Fate.CRASH, Fate.CRASH_AFTER], ids=["before", "after"])
def test_a_crash_at_any_request_leaves_garbage_only(fate: Fate) -> None:
    """After the crash every live SST exists, and the next vacuum finishes the work."""
    for number in range(1, 100):
        bucket = ModelBucket(FakeSystem())
        store = meta(bucket, base_every=2)
        store.create_table(spec())
        compact_two(store, bucket)
        compact_two(store, bucket)
        upload(bucket)
        bucket.system.forward(GRACE + 100)
        faulty = FaultyBucket(bucket)
        cleaner = meta(faulty)
        start = len(faulty.calls)
        faulty.script = at_calls({start + number: fate})
        with contextlib.suppress(Crash):
            cleaner.vacuum()
        if start + number > len(faulty.calls):
            break
        again = meta(bucket)
        assert again.version().tables == store.refresh().tables
        live = again.version().live_sst_ids()
        assert all(data_path(one) in bucket.objects for one in live)
        again.vacuum()
        assert {path[4:36] for path in bucket.objects if path.startswith("sst/")} == live
    assert 8 < number < 99
    bucket.system.forward(3601)
    again.vacuum()
    assert not any(path.startswith("tmp/") for path in bucket.objects)


def test_old_entries_are_deleted_behind_a_marker_and_two_snapshots_stay(bucket: ModelBucket) -> None:
    """Entries under the second newest snapshot, and older than the grace period, are deleted; all readers go on."""
    store = meta(bucket, base_every=4)
    lagging = meta(bucket)
    store.create_table(spec())
    for epoch in range(1, 12):
        store.commit(request(epoch, 1, upload(bucket)))
    assert store.vacuum().deleted == ()
    bucket.system.forward(GRACE + 1)
    gone = [path for path, _ in store.vacuum().deleted]
    assert gone == [*[entry_path(seq) for seq in range(1, 9)], base_path(4)]
    assert marker_path(8) in bucket.objects
    assert meta(bucket).version() == store.version() == lagging.refresh()
    for epoch in range(12, 17):
        lagging.commit(request(epoch, 1, upload(bucket)))
        store.refresh()
    bucket.system.forward(GRACE + 1)
    store.commit(request(20, 1, upload(bucket)))
    assert marker_path(8) in bucket.objects
    assert store.vacuum().deleted == ()


def test_a_damaged_snapshot_does_not_count_for_truncation(bucket: ModelBucket) -> None:
    """With one readable snapshot left, the entries stay."""
    store = meta(bucket, base_every=4)
    store.create_table(spec())
    for epoch in range(1, 8):
        store.commit(request(epoch, 1, upload(bucket)))
    bucket.objects[base_path(8)] = (b"damage", 0)
    bucket.system.forward(GRACE + 1)
    assert store.vacuum().deleted == ()
    assert meta(bucket).version() == store.version()


def test_young_entries_stay_even_with_no_grace_period(bucket: ModelBucket) -> None:
    """Truncation keeps entries for 30 s at least, on which the log's stall check rests."""
    store = meta(bucket, base_every=2, gc_grace_seconds=0)
    store.create_table(spec())
    for epoch in range(1, 8):
        store.commit(request(epoch, 1, upload(bucket)))
    bucket.system.forward(29)
    assert store.vacuum().deleted == ()
    bucket.system.forward(2)
    assert store.vacuum().deleted != ()


def test_stray_entries_below_the_boundary_and_expired_pins_go(bucket: ModelBucket) -> None:
    """A stalled writer left the entries behind, and a dead reader the pins."""
    store = meta(bucket, base_every=2)
    store.create_table(spec())
    for epoch in range(1, 8):
        store.commit(request(epoch, 1, upload(bucket)))
    meta(bucket).pins.pin(None)
    bucket.system.forward(GRACE + 1)
    store.vacuum()
    bucket.create(entry_path(2), b"stray")
    assert (entry_path(2), "log entry below the boundary") in store.vacuum().deleted
    assert len(store.live_pins()) == 0
    bucket.system.forward(GRACE)
    assert [reason for _, reason in store.vacuum().deleted] == ["expired pin"]


def test_foreign_files_in_the_stores_folders_stay() -> None:
    """A bucket may hold foreign files, also in the store's folders, and as old as anything that vacuum deletes."""
    bucket = ModelBucket(FakeSystem())
    store = meta(bucket)
    foreign = {
        "tmp/report.csv",
        "tmp/clock-of-mine",
        "sst/readme",
        "backup/dump.sql",
        "snapshot/of-a-disk",
        "log/app.log",
    }
    left = f"tmp/clock-{'a' * 16}"
    for path in (*foreign, left):
        bucket.put(path, b"x")
    bucket.system.forward(7 * 86400 + GRACE)
    store.vacuum()
    assert foreign <= bucket.objects.keys()
    assert left not in bucket.objects
