"""Backups: the SSTs that they keep from vacuum, whatever comes between two of their requests, and after a crash."""

import contextlib
from collections.abc import Callable

import pytest

from support.buckets.faulty_bucket import Crash, Fate, FaultyBucket, at_calls, where
from support.store.versions import FakeSystem, ModelBucket, request, spec, sst
from tussock.meta.compaction.picker import PickerConfig
from tussock.meta.log.format import backup_path, base_path, decode_backup
from tussock.meta.meta_store import MetaStore
from tussock.meta.retention.backups import BACKUP_LEASE_MS, Backups
from tussock.meta.version.deltas.backups import BeginBackup, BeginStore, DetachSource, FinishBackup
from tussock.meta.version.deltas.delta import advance
from tussock.meta.version.version import Origin, Version
from tussock.statestore.contract.backend import BackupInfo
from tussock.statestore.contract.records import SstInfo, data_path, meta_path
from tussock.statestore.errors import (
    BackupExists,
    BackupNotFound,
    Conflict,
    CorruptLog,
    InvalidBatch,
    InvalidOption,
    ObjectStoreUnavailable,
    StaleUpload,
    StoreNotEmpty,
)
from tussock.statestore.write.sst_ids import new_sst_id

EAGER = PickerConfig(base_bytes=1, l0_small_bytes=1)


def meta(bucket: ModelBucket | FaultyBucket, **options: object) -> MetaStore:
    inner = bucket.inner if isinstance(bucket, FaultyBucket) else bucket
    values: dict[str, object] = {"retention_seconds": 0, "gc_grace_seconds": 0, "config": EAGER, **options}
    return MetaStore(bucket, inner.system, **values)  # type: ignore[arg-type,union-attr]


def upload(bucket: ModelBucket, **fields: object) -> SstInfo:
    one = sst(id=new_sst_id(bucket.system), **fields)
    bucket.put(data_path(one.id), b"d" * one.data_bytes)
    bucket.put(meta_path(one.id), b"m" * one.meta_bytes)
    return one


def is_there(bucket: ModelBucket, sst_id: str) -> bool:
    return data_path(sst_id) in bucket.objects and meta_path(sst_id) in bucket.objects


def churn(store: MetaStore, bucket: ModelBucket) -> None:
    """Commit and merge the whole table into one SST: no SST that was live before is live after."""
    bucket.system.forward(1)
    newest = store.refresh().max_committed_epoch
    store.commit(request(newest + 1, 1, upload(bucket)))
    task = store.own_tasks.claim("kv", manual=True)
    assert task is not None
    store.own_tasks.report(task, [upload(bucket, epoch=0, min_epoch=1, max_epoch=newest + 1)])


def whole(bucket: ModelBucket) -> list[str]:
    """Names of the finished backups; fails unless every SST that one of them names exists."""
    reader = meta(bucket)
    finished = [info for info in reader.version().backups.values() if not info.expires_ms]
    for info in finished:
        content = decode_backup(backup_path(info.name, info.id), bucket.get(backup_path(info.name, info.id)))
        lost = [one.id for one in content.version.ssts() if not is_there(bucket, one.id)]
        assert not lost, f"backup {info.name} names SSTs that are gone"
        assert content.info == BackupInfo(**{**_fields(info), "expires_ms": content.info.expires_ms})
    return [info.name for info in finished]


def _fields(info: BackupInfo) -> dict[str, object]:
    return {name: getattr(info, name) for name in info.__struct_fields__}


@pytest.fixture
def store(bucket: ModelBucket) -> MetaStore:
    made = meta(bucket)
    made.create_table(spec())
    churn(made, bucket)
    return made


def live(store: MetaStore) -> list[str]:
    return sorted(store.refresh().live_sst_ids())


def test_vacuum_keeps_the_ssts_of_a_backup(store: MetaStore, bucket: ModelBucket) -> None:
    """The SSTs stay also after the log has forgotten them, until the backup is deleted."""
    (held,) = live(store)
    made = store.backups.create("nightly", comment="before the change")
    assert (made.name, made.comment, made.ssts, made.bytes, made.expires_ms) == (
        "nightly",
        "before the change",
        1,
        1100,
        0,
    )
    for _ in range(3):
        churn(store, bucket)
        bucket.system.forward(1000)
        store.vacuum()
    assert whole(bucket) == ["nightly"]
    assert is_there(bucket, held)
    assert held not in {one.id for one in store.version().dropped}
    store.backups.delete("nightly")
    assert backup_path("nightly", made.id) not in bucket.objects
    store.vacuum()
    assert not is_there(bucket, held)
    assert whole(bucket) == []


def test_a_dry_run_reports_what_vacuum_would_delete(store: MetaStore, bucket: ModelBucket) -> None:
    """A dry run writes nothing, with backups as without."""
    store.backups.create("nightly")
    churn(store, bucket)
    bucket.system.forward(1)
    before = dict(bucket.objects)
    planned = store.vacuum(dry_run=True)
    assert bucket.objects == before
    assert store.vacuum().deleted == planned.deleted
    assert not any(one in path for one in _sst_ids_of(bucket, "nightly") for path, _ in planned.deleted)


def _sst_ids_of(bucket: ModelBucket, name: str) -> list[str]:
    info = meta(bucket).version().backups[name]
    path = backup_path(name, info.id)
    return [one.id for one in decode_backup(path, bucket.get(path)).version.ssts()]


def test_a_listing_shows_the_bytes_that_each_backup_alone_keeps(store: MetaStore, bucket: ModelBucket) -> None:
    """Bytes count for a backup only if neither the newest version nor another backup names them."""
    store.backups.create("b")
    assert [(info.name, info.held_bytes) for info in store.backups.list()] == [("b", 0)]
    churn(store, bucket)
    assert [(info.name, info.held_bytes) for info in store.backups.list()] == [("b", 1100)]
    churn(store, bucket)
    store.backups.create("a")
    store.backups.create("c", base="b")
    assert [(info.name, info.held_bytes) for info in store.backups.list()] == [("a", 0), ("b", 0), ("c", 0)]


# --- Names ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["", ".hidden", "a/b", "a b", "x" * 101, "tägl", "-x", None])
def test_a_name_that_cannot_be_in_a_path_is_refused(store: MetaStore, bucket: ModelBucket, name: str) -> None:
    before = dict(bucket.objects)
    with pytest.raises(InvalidOption, match="backup name"):
        store.backups.create(name)
    assert bucket.objects == before


def test_a_name_of_a_backup_is_used_once(store: MetaStore, bucket: ModelBucket) -> None:
    """Backups never change: the second call is refused, and the contents of the first backup stay."""
    first = store.backups.create("nightly")
    churn(store, bucket)
    with pytest.raises(BackupExists, match="nightly") as caught:
        store.backups.create("nightly")
    assert caught.value.args[1:] == ("nightly", first.created_ms)
    with pytest.raises(BackupExists):
        meta(bucket).backups.create("nightly")
    assert store.version().backups == {"nightly": first}
    store.backups.delete("nightly")
    assert store.backups.create("nightly").id != first.id


def test_a_call_that_names_its_id_is_idempotent(store: MetaStore, bucket: ModelBucket) -> None:
    """A client may repeat the call at another node."""
    first = store.backups.create("nightly", backup_id="a" * 32)
    churn(store, bucket)
    assert meta(bucket).backups.create("nightly", backup_id="a" * 32) == first
    with pytest.raises(InvalidOption, match="32 lower-case hex"):
        store.backups.create("other", backup_id="../x")


def test_deleting_an_unknown_backup_lists_the_known_ones(store: MetaStore) -> None:
    store.backups.create("nightly")
    with pytest.raises(BackupNotFound, match="'daily' is not there in model://; its backups: nightly"):
        store.backups.delete("daily")


# --- Interleavings --------------------------------------------------------------------------------------------------


def calls_of(bucket: ModelBucket, work: Callable[[MetaStore], object]) -> int:
    """The number of requests that `work` makes without interruption."""
    copy = ModelBucket(bucket.system)
    copy.objects = dict(bucket.objects)
    faulty = FaultyBucket(copy)
    worker = meta(faulty)
    before = len(faulty.calls)
    work(worker)
    return len(faulty.calls) - before


def stalled_at(bucket: ModelBucket, call: int, then: Callable[[], None]) -> MetaStore:
    """A process that stands still before its `call`-th request from now while `then` happens."""
    faulty = FaultyBucket(bucket)
    worker = meta(faulty)
    faulty.stall(len(faulty.calls) + call, then)
    return worker


def back_up(worker: MetaStore) -> None:
    worker.backups.create("nightly")


def run_vacuum(worker: MetaStore) -> None:
    worker.vacuum()


@pytest.mark.parametrize("rounds", [1, 2])
def test_the_store_changes_between_any_two_requests_of_a_backup(
    store: MetaStore, bucket: ModelBucket, rounds: int
) -> None:
    """Every live SST is replaced and vacuumed without grace, at every point in turn."""
    start = dict(bucket.objects)
    total = calls_of(bucket, back_up)
    assert total == 3, "announce, write, report"
    for at in range(1, total + 2):
        bucket.objects = dict(start)

        def meanwhile() -> None:
            other = meta(bucket)
            for _ in range(rounds):
                churn(other, bucket)
                other.vacuum()
                bucket.system.forward(1)

        back_up(stalled_at(bucket, at, meanwhile))
        meta(bucket).vacuum()
        assert whole(bucket) == ["nightly"], at


def test_a_backup_and_a_compaction_between_any_two_requests_of_a_vacuum(store: MetaStore, bucket: ModelBucket) -> None:
    """The backup is whole, whether the vacuum looked before it or looks after it."""
    churn(store, bucket)
    start = dict(bucket.objects)
    total = calls_of(bucket, run_vacuum)
    for at in range(1, total + 1):
        bucket.objects = dict(start)

        def meanwhile() -> None:
            other = meta(bucket)
            other.backups.create("nightly")
            churn(other, bucket)

        run_vacuum(stalled_at(bucket, at, meanwhile))
        assert whole(bucket) == ["nightly"], at
        meta(bucket).vacuum()
        assert whole(bucket) == ["nightly"], at


def test_a_vacuum_begins_between_two_requests_of_a_backup_and_ends_after_it(
    store: MetaStore, bucket: ModelBucket
) -> None:
    """Every pair of points: one in the backup, and one in the vacuum at which the backup is finished.

    Then all that it names is replaced, before the vacuum goes on.
    """
    churn(store, bucket)
    start = dict(bucket.objects)
    pairs = 0
    for made in range(calls_of(bucket, back_up) + 1):
        for at in range(1, calls_of(bucket, run_vacuum) + 1):
            bucket.objects = dict(start)
            faulty = FaultyBucket(bucket)
            maker = meta(faulty)
            # The first requests of the backup; the same process cannot go on, so another does under the same id.
            last = len(faulty.calls) + made
            faulty.script = lambda call, last=last: Fate.CRASH if call.number > last else Fate.PASS  # type: ignore[misc]
            with contextlib.suppress(Crash):
                maker.backups.create("nightly", backup_id="b" * 32)

            def finish() -> None:
                other = meta(bucket)
                other.backups.create("nightly", backup_id="b" * 32)
                churn(other, bucket)

            run_vacuum(stalled_at(bucket, at, finish))
            assert whole(bucket) == ["nightly"], (made, at)
            meta(bucket).vacuum()
            assert whole(bucket) == ["nightly"], (made, at)
            pairs += 1
    assert pairs > 40


def test_a_table_is_dropped_by_the_very_next_entry(store: MetaStore, bucket: ModelBucket) -> None:
    """Even the first entry after the announcement counts."""
    made: list[int] = []

    def drop() -> None:
        other = meta(bucket)
        made.append(other.version().backups["nightly"].started_seq)
        other.drop_table("kv")
        made.extend(one.dropped_seq for one in other.version().gone.values())
        bucket.system.forward(1)
        other.vacuum()

    faulty = FaultyBucket(bucket)
    worker = meta(faulty)
    faulty.stall(lambda call: call.operation == "create" and call.path.startswith("backup/"), drop)
    worker.backups.create("nightly")
    assert made[-1] == made[0] + 1
    assert whole(bucket) == ["nightly"]
    assert len(_sst_ids_of(bucket, "nightly")) == 1


def test_a_backup_of_a_backup_keeps_the_ssts_of_the_first(store: MetaStore, bucket: ModelBucket) -> None:
    """At every request of it the first backup is deleted and a vacuum runs: the second one is whole, or refused."""
    store.backups.create("first")
    churn(store, bucket)
    start = dict(bucket.objects)
    outcomes = set()
    for at in range(1, calls_of(bucket, lambda worker: worker.backups.create("second", base="first")) + 2):
        bucket.objects = dict(start)

        def meanwhile() -> None:
            other = meta(bucket)
            other.backups.delete("first")
            other.vacuum()

        try:
            stalled_at(bucket, at, meanwhile).backups.create("second", base="first")
        except BackupNotFound:
            outcomes.add("refused")
        else:
            outcomes.add("made")
        meta(bucket).vacuum()
        whole(bucket)
    assert outcomes == {"refused", "made"}


# --- Crashes and lost answers ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("fate", [Fate.CRASH, Fate.CRASH_AFTER])
def test_a_crash_at_any_request_of_a_backup(store: MetaStore, bucket: ModelBucket, fate: Fate) -> None:
    """A finished backup is whole; another one is given up in time, its object deleted, and its name free again."""
    start, started_ms = dict(bucket.objects), bucket.system.wall_ms
    for at in range(1, calls_of(bucket, back_up) + 1):
        bucket.objects, bucket.system.wall_ms = dict(start), started_ms
        faulty = FaultyBucket(bucket)
        maker = meta(faulty)
        faulty.script = at_calls({len(faulty.calls) + at: fate})
        with pytest.raises(Crash):
            maker.backups.create("nightly")
        other = meta(bucket)
        churn(other, bucket)
        other.vacuum()
        if whole(bucket) != ["nightly"]:
            bucket.system.forward(BACKUP_LEASE_MS / 1000 + 1)
            other.vacuum()
            other.vacuum()
            assert other.version().backups == {}
            assert not list(bucket.list("backup/"))
            assert len({path for path in bucket.objects if path.startswith("sst/")}) == 2, "only the live SST"
            other.backups.create("nightly")
        assert whole(bucket) == ["nightly"]


@pytest.mark.parametrize("fate", [Fate.LOSE_REQUEST, Fate.LOSE_ANSWER])
def test_a_lost_request_or_answer_at_any_point(store: MetaStore, bucket: ModelBucket, fate: Fate) -> None:
    """The repeated call makes one backup, which is whole; a repeated deletion succeeds, too."""
    start = dict(bucket.objects)
    for at in range(1, calls_of(bucket, back_up) + 1):
        bucket.objects = dict(start)
        faulty = FaultyBucket(bucket)
        maker = meta(faulty)
        faulty.script = at_calls({len(faulty.calls) + at: fate})
        repeat(lambda maker=maker: maker.backups.create("nightly"))  # type: ignore[misc]
        assert whole(bucket) == ["nightly"]
        assert [info.path for info in bucket.list("backup/")] == [
            backup_path("nightly", maker.version().backups["nightly"].id)
        ]
    full = dict(bucket.objects)
    for at in range(1, 4):
        bucket.objects = dict(full)
        faulty = FaultyBucket(bucket)
        maker = meta(faulty)
        faulty.script = at_calls({len(faulty.calls) + at: fate})
        repeat(lambda maker=maker: maker.backups.delete("nightly"))  # type: ignore[misc]
        assert meta(bucket).version().backups == {}


def repeat(call: Callable[[], object]) -> None:
    """Call until it succeeds, as a caller does after `ObjectStoreUnavailable`; two calls must suffice."""
    try:
        call()
    except ObjectStoreUnavailable:
        call()


def test_a_backup_whose_process_slept_past_its_lease_is_refused(store: MetaStore, bucket: ModelBucket) -> None:
    """Vacuum has given the backup up, and deleted SSTs that it would name."""

    def asleep() -> None:
        other = meta(bucket)
        churn(other, bucket)
        bucket.system.forward(BACKUP_LEASE_MS / 1000 + 1)
        other.vacuum()

    faulty = FaultyBucket(bucket)
    maker = meta(faulty)
    faulty.stall(lambda call: call.operation == "create" and call.path.startswith("backup/"), asleep)
    with pytest.raises(StaleUpload, match=r"made any more|given up"):
        maker.backups.create("nightly")
    assert whole(bucket) == []
    maker.backups.create("nightly")
    assert whole(bucket) == ["nightly"]
    meta(bucket).vacuum()
    assert len(list(bucket.list("backup/"))) == 1, "the object of the first try is gone"


def test_a_name_held_by_a_dead_process_is_free_after_its_lease(store: MetaStore, bucket: ModelBucket) -> None:
    """Without a vacuum: the next backup of that name takes it over after the lease of the dead one."""
    faulty = FaultyBucket(bucket)
    maker = meta(faulty)
    faulty.script = where("create", "backup/", Fate.CRASH)
    with pytest.raises(Crash):
        maker.backups.create("nightly")
    with pytest.raises(BackupExists, match="is being made by"):
        store.backups.create("nightly")
    bucket.system.forward(BACKUP_LEASE_MS / 1000 + 1)
    store.backups.create("nightly")
    assert whole(bucket) == ["nightly"]


# --- Damage ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("damage", ["flipped", "cut", "gone", "renamed"])
def test_a_backup_that_cannot_be_read_stops_vacuum(store: MetaStore, bucket: ModelBucket, damage: str) -> None:
    """Vacuum deletes nothing; the error says what to do, and that helps."""
    made = store.backups.create("nightly")
    other = store.backups.create("other")
    churn(store, bucket)
    path = backup_path("nightly", made.id)
    data, at = bucket.objects[path]
    if damage == "flipped":
        bucket.objects[path] = (data[:40] + bytes([data[40] ^ 1]) + data[41:], at)
    elif damage == "cut":
        bucket.objects[path] = (data[:-1], at)
    elif damage == "renamed":
        bucket.objects[path] = bucket.objects[backup_path("other", other.id)]
    else:
        del bucket.objects[path]
    before = {name for name in bucket.objects if name.startswith("sst/")}
    with pytest.raises(CorruptLog, match=r"nightly.*delete the backup"):
        store.vacuum()
    with pytest.raises(CorruptLog):
        store.vacuum(dry_run=True)
    assert {name for name in bucket.objects if name.startswith("sst/")} == before
    assert {info.name: info.held_bytes for info in store.backups.list()} == {"nightly": -1, "other": 1100}
    store.backups.delete("nightly")
    store.vacuum()
    assert whole(bucket) == ["other"]


def test_a_backup_deleted_while_vacuum_reads_it_is_no_damage(store: MetaStore, bucket: ModelBucket) -> None:
    """Its SSTs may be kept by a backup that was made of it meanwhile."""
    store.backups.create("first")
    churn(store, bucket)

    def meanwhile() -> None:
        other = meta(bucket)
        other.backups.create("second", base="first")
        other.backups.delete("first")

    faulty = FaultyBucket(bucket)
    worker = meta(faulty)
    faulty.stall(lambda call: call.operation == "get" and call.path.startswith("backup/"), meanwhile)
    worker.vacuum()
    assert whole(bucket) == ["second"]


def test_objects_of_no_backup_go_and_foreign_names_stay(store: MetaStore, bucket: ModelBucket) -> None:
    """A deletion that died after its log entry leaves such an object."""
    made = store.backups.create("nightly")
    faulty = FaultyBucket(bucket)
    other = meta(faulty)
    faulty.script = where("delete", "backup/", Fate.LOSE_REQUEST)
    other.backups.delete("nightly")
    assert backup_path("nightly", made.id) in bucket.objects
    for foreign in ("backup/readme", "backup/x.y", f"backup/a/b.{'0' * 32}", "backup/." + "0" * 32):
        bucket.put(foreign, b"")
    store.vacuum()
    left = {info.path for info in bucket.list("backup/")}
    assert made.id not in "".join(left)
    assert len(left) == 4


def test_truncation_goes_past_a_backup(bucket: ModelBucket) -> None:
    """A backup needs no log: entries and snapshots of its time are deleted, and it stays readable."""
    store = meta(bucket, base_every=4)
    store.create_table(spec())
    churn(store, bucket)
    made = store.backups.create("nightly")
    for _ in range(8):
        churn(store, bucket)
    bucket.system.forward(60)
    store.vacuum()
    assert base_path(4) not in bucket.objects
    assert min(int(info.path[4:24]) for info in bucket.list("log/0")) > made.seq
    assert store.backups.content(made).version.seq == made.seq
    assert whole(bucket) == ["nightly"]


# --- The deltas ------------------------------------------------------------------------------------------------------


def test_deltas_that_do_not_fit_change_nothing() -> None:
    """A named error refuses each of them."""
    begin = BeginBackup(name="a", id="0" * 32, owner="me", at_ms=1, expires_ms=2)
    version = advance(Version(), [begin])
    finish = FinishBackup(name="a", id="0" * 32, seq=1, epoch=0, ssts=0, bytes=0)
    with pytest.raises(BackupExists):
        advance(version, [begin])
    with pytest.raises(InvalidOption, match="time to give it up"):
        advance(Version(), [BeginBackup(name="a", id="0" * 32, owner="me", at_ms=1, expires_ms=0)])
    with pytest.raises(StaleUpload):
        advance(Version(), [finish])
    with pytest.raises(StaleUpload):
        advance(version, [finish, finish])
    origin = Origin(kind="clone", url="memory://x", backup="", backup_id="0" * 32, seq=1)
    with pytest.raises(StoreNotEmpty, match="cannot begin anew"):
        advance(version, [BeginStore(version=Version(), origin=origin)])
    with pytest.raises(Conflict):
        advance(version, [DetachSource(url="memory://x")])
    based = BeginBackup(name="b", id="1" * 32, owner="me", at_ms=1, expires_ms=2, base="0" * 32)
    with pytest.raises(BackupNotFound):
        advance(version, [based])
    assert advance(version, [finish, based]).backups["b"].base == "0" * 32


def test_a_commit_cannot_bring_an_sst_of_another_store(store: MetaStore, bucket: ModelBucket) -> None:
    """A compaction may not report one, either."""
    newest = store.version().max_committed_epoch
    with pytest.raises(InvalidBatch, match="own bucket"):
        store.commit(request(newest + 1, 1, upload(bucket, source="memory://x")))
    store.commit(request(newest + 1, 1, upload(bucket)))
    task = store.own_tasks.claim("kv", manual=True)
    assert task is not None
    with pytest.raises(InvalidBatch, match="own bucket"):
        store.own_tasks.report(task, [upload(bucket, epoch=0, min_epoch=1, max_epoch=1, source="memory://x")])


def test_backups_of_two_processes_do_not_disturb_each_other(store: MetaStore, bucket: ModelBucket) -> None:
    """Each process makes its backup at every request of the other."""
    start = dict(bucket.objects)
    for at in range(1, calls_of(bucket, back_up) + 1):
        bucket.objects = dict(start)
        worker = stalled_at(bucket, at, lambda: (meta(bucket).backups.create("other"), None)[1])
        worker.backups.create("nightly")
        churn(meta(bucket), bucket)
        meta(bucket).vacuum()
        assert sorted(whole(bucket)) == ["nightly", "other"]


def test_two_processes_want_one_name_at_once(store: MetaStore, bucket: ModelBucket, system: FakeSystem) -> None:
    """At every request of one process the other one tries: exactly one gets the name."""
    start = dict(bucket.objects)
    for at in range(1, calls_of(bucket, back_up) + 1):
        bucket.objects = dict(start)
        won: list[str] = []

        def rival(won: list[str] = won) -> None:
            with contextlib.suppress(BackupExists):
                meta(bucket).backups.create("nightly")
                won.append("rival")

        worker = stalled_at(bucket, at, rival)
        with contextlib.suppress(BackupExists):
            worker.backups.create("nightly")
            won.append("first")
        assert len(won) == 1, at
        assert whole(bucket) == ["nightly"]
    assert isinstance(store.backups, Backups)
    assert system is bucket.system
