"""Small SSTs in the log entry of their commit: their places, and how long the entry stays."""

import threading

import pytest
from msgspec.structs import replace

from support.buckets.faulty_bucket import Fate, FaultyBucket, where
from support.store.versions import FakeSystem, ModelBucket, request, run, spec, sst
from support.waiting import eventually
from tussock.meta.compaction.picker import PickerConfig
from tussock.meta.log.appends.drafts import plan_entry
from tussock.meta.log.appends.group_commit import AnyCall, Call, CallQueue
from tussock.meta.log.appends.limits import LogLimits
from tussock.meta.log.format import entry_path, marker_path
from tussock.meta.meta_store import MetaStore
from tussock.meta.version.deltas.commits import stamp
from tussock.meta.version.deltas.delta import Delta, advance
from tussock.meta.version.deltas.tables import CreateTable
from tussock.meta.version.invariants import problems
from tussock.meta.version.version import Version
from tussock.statestore.contract.backend import CommitRequest
from tussock.statestore.contract.records import SstInfo, data_object
from tussock.statestore.errors import Conflict, InvalidBatch, ObjectStoreUnavailable
from tussock.statestore.write.sst_ids import new_sst_id

EAGER = PickerConfig(base_bytes=1, l0_small_bytes=1)


def small(system: FakeSystem, text: str = "", **fields: object) -> tuple[SstInfo, bytes]:
    """An SST that is in no bucket, and its bytes, which hold its id."""
    one = sst(id=new_sst_id(system), meta_in_data=True, meta_bytes=4, **fields)
    data = f"{one.id} {text}".encode()
    return replace(one, data_bytes=len(data)), data + b"meta"


def bringing(system: FakeSystem, epoch: int, *texts: str, **fields: object) -> CommitRequest:
    """A commit to table 1 of one sorted run of SSTs, all of which go into the entry."""
    ssts = [small(system, text, smallest=b"%d" % at, largest=b"%d" % at) for at, text in enumerate(texts or [""])]
    runs = (run(*(info for info, _ in ssts)),)
    return CommitRequest(epoch=epoch, tables={1: runs}, payloads={info.id: data for info, data in ssts}, **fields)


def meta(bucket: ModelBucket | FaultyBucket, **options: object) -> MetaStore:
    inner = bucket.inner if isinstance(bucket, FaultyBucket) else bucket
    values: dict[str, object] = {
        "retention_seconds": 0,
        "gc_grace_seconds": 0,
        "config": EAGER,
        "base_every": 2,
        **options,
    }
    return MetaStore(bucket, inner.system, **values)


def check(bucket: ModelBucket) -> list[int]:
    """Assert that every SST of the newest version is in its place; returns the entries that hold some."""
    version = meta(bucket).version()
    assert problems(version) == []
    for one in version.ssts():
        if one.entry:
            end = one.offset + one.data_bytes + one.meta_bytes
            data = bucket.get(data_object(one))[one.offset : end]
            assert data.startswith(one.id.encode())
            assert data.endswith(b"meta")
    return sorted({one.entry for one in version.ssts() if one.entry})


def entries(bucket: ModelBucket) -> list[int]:
    """The sequence numbers of the entries in the bucket."""
    return [int(info.path[4:24]) for info in bucket.list("log/") if info.path.endswith(".delta")]


def compact(store: MetaStore, bucket: ModelBucket) -> None:
    """Merge the whole table into one SST that is an object."""
    task = store.own_tasks.claim("kv", manual=True)
    assert task is not None
    newest = store.version().max_committed_epoch
    merged = sst(id=new_sst_id(bucket.system), epoch=0, min_epoch=1, max_epoch=newest, smallest=b"0", largest=b"0")
    bucket.put(data_object(merged), b"d" * 1000)
    store.own_tasks.report(task, [merged])


@pytest.fixture
def store(bucket: ModelBucket) -> MetaStore:
    made = meta(bucket)
    made.create_table(spec())
    return made


def test_a_commit_that_brings_its_ssts_creates_one_object(bucket: ModelBucket) -> None:
    """Several SSTs lie behind each other; nothing else is written, and replicas read the same version."""
    faulty = FaultyBucket(bucket)
    store = meta(faulty, base_every=64)
    store.create_table(spec())
    faulty.calls.clear()
    store.commit(bringing(bucket.system, 1, "one", "two, which is longer", "three"))
    assert [(call.operation, call.path) for call in faulty.calls] == [("create", entry_path(2))]
    assert check(bucket) == [2]
    first, second, third = store.version().ssts()
    assert [second.offset - first.offset, third.offset - second.offset] == [
        one.data_bytes + one.meta_bytes for one in (first, second)
    ]
    assert meta(bucket).version() == store.version()


def test_commits_of_one_entry_follow_each_other_and_a_refused_one_takes_no_room(bucket: ModelBucket) -> None:
    """Each is placed behind the accepted ones before it."""
    version = advance(Version(), [CreateTable(spec=spec())])

    def call(epoch: int, *, conflict: bool = False) -> Call:
        req = bringing(bucket.system, epoch, f"epoch {epoch}")

        def decide(now: Version) -> tuple[list[Delta], int]:
            if conflict:
                raise Conflict("not this one")
            return [stamp(now, req, 0)], epoch

        return Call(decide, None, True, 0, req.payloads)

    plan = plan_entry(version, [call(1), call(2, conflict=True), call(3)])
    assert len(plan.refused) == 1
    newer, older = plan.after.ssts()
    assert (older.entry, older.offset, newer.entry, newer.offset) == (2, 20, 2, 20 + len(plan.ssts[0]))
    assert [data.split()[0].decode() for data in plan.ssts] == [older.id, newer.id]


def test_the_loser_of_a_race_for_an_entry_has_its_ssts_in_the_next(bucket: ModelBucket, store: MetaStore) -> None:
    """Nothing is uploaded twice, and the attempt leaves nothing behind."""
    faulty = FaultyBucket(bucket)
    slow = meta(faulty)
    faulty.stall(
        lambda call: call.operation == "create", lambda: store.commit(bringing(bucket.system, 1, "much longer"))
    )
    slow.commit(bringing(bucket.system, 2))
    assert check(bucket) == [2, 3]
    assert sum(call.operation == "create" for call in faulty.calls) == 2


@pytest.mark.parametrize("fate", [Fate.LOSE_ANSWER, Fate.LOSE_REQUEST])
def test_a_lost_answer_leaves_no_sst_in_two_places(bucket: ModelBucket, store: MetaStore, fate: Fate) -> None:
    """The repeated call finds its entry, or writes its SSTs again."""
    faulty = FaultyBucket(bucket)
    other = meta(faulty)
    req = bringing(bucket.system, 7)
    faulty.script = where("create", "log/", fate)
    if fate is Fate.LOSE_REQUEST:
        with pytest.raises(ObjectStoreUnavailable, match="may or may not"):
            other.commit(req)
        store.commit(bringing(bucket.system, 1))
    assert other.commit(req) == 7
    assert check(bucket) == ([2] if fate is Fate.LOSE_ANSWER else [2, 3])


def age(store: MetaStore, bucket: ModelBucket, entries: int = 4) -> None:
    """Append that number of entries without SSTs, and let all of the log become old."""
    for _ in range(entries):
        store.open_writer("w")
    bucket.system.forward(3600)


def test_an_entry_stays_for_the_ssts_in_it_and_goes_with_the_last(bucket: ModelBucket, store: MetaStore) -> None:
    """Below the marker it is no part of the log, which stays readable; a dropped SST counts for its grace period."""
    store.commit(bringing(bucket.system, 1))
    store.commit(bringing(bucket.system, 2))
    age(store, bucket)
    grace = meta(bucket, gc_grace_seconds=600)
    grace.vacuum()
    boundary = max(int(info.path[-20:]) for info in bucket.list("log/boundary/"))
    assert boundary > 3
    assert [seq for seq in entries(bucket) if seq <= boundary] == check(bucket) == [2, 3]
    assert meta(bucket).version() == store.refresh()
    compact(store, bucket)
    age(store, bucket)
    assert [(one.entry, one.seq > 3) for one in store.version().dropped] == [(3, True), (2, True)]
    bucket.system.forward(-3500)
    grace.vacuum()
    assert entries(bucket)[:2] == [2, 3], "dropped a moment ago"
    bucket.system.forward(3500)
    assert entry_path(2) in dict(grace.vacuum(dry_run=True).deleted)
    grace.vacuum()
    assert check(bucket) == []
    assert 2 not in entries(bucket)
    assert 3 not in entries(bucket)
    assert meta(bucket).version() == store.refresh()


def test_an_entry_stays_for_one_of_its_ssts(bucket: ModelBucket, store: MetaStore) -> None:
    """The other SST of the entry, of another table, went long ago."""
    store.create_table(spec("other", 2))
    (mine, data), (other, more) = small(bucket.system), small(bucket.system)
    both = CommitRequest(epoch=1, tables={1: (run(mine),), 2: (run(other),)}, payloads={mine.id: data, other.id: more})
    store.commit(both)
    store.drop_table("other")
    for _ in range(3):
        age(store, bucket)
        store.vacuum()
    assert store.version().dropped == ()
    assert check(bucket) == [3]


def test_a_backup_keeps_the_entries_in_which_its_ssts_lie(bucket: ModelBucket, store: MetaStore) -> None:
    """Also after the log has forgotten them, until the backup is deleted."""
    store.commit(bringing(bucket.system, 1))
    (held,) = store.version().ssts()
    made = store.backups.create("nightly")
    assert made.bytes == held.data_bytes + held.meta_bytes
    compact(store, bucket)
    for _ in range(3):
        age(store, bucket)
        store.vacuum()
    assert store.version().dropped == ()
    assert bucket.get(entry_path(2))[held.offset :].startswith(held.id.encode())
    (listed,) = store.backups.list()
    assert listed.held_bytes == made.bytes
    store.backups.delete("nightly")
    store.vacuum()
    assert 2 not in entries(bucket)


def test_an_unfinished_backup_keeps_ssts_that_leave_the_tree(bucket: ModelBucket, store: MetaStore) -> None:
    """Its object does not exist yet, so vacuum cannot know the SSTs that it will name."""
    store.commit(bringing(bucket.system, 1))
    faulty = FaultyBucket(bucket)

    def meanwhile() -> None:
        compact(store, bucket)
        for _ in range(4):
            store.open_writer("w")
        bucket.system.forward(60)
        store.vacuum()

    faulty.stall(lambda call: call.operation == "create" and call.path.startswith("backup/"), meanwhile)
    meta(faulty).backups.create("nightly")
    age(store, bucket)
    store.vacuum()
    assert 2 in entries(bucket)
    store.backups.delete("nightly")
    store.vacuum()
    assert 2 not in entries(bucket)


def test_vacuum_deletes_no_entry_that_is_newer_than_its_version(bucket: ModelBucket, store: MetaStore) -> None:
    """It stands still between reading the log and listing it, while another process truncates newer commits."""
    faulty = FaultyBucket(bucket)
    slow = meta(faulty)

    def meanwhile() -> None:
        for epoch in range(1, 9):
            store.commit(bringing(bucket.system, epoch))
        bucket.system.forward(3600)
        store.vacuum()

    faulty.stall(lambda call: call.operation == "list" and call.path == "snapshot/", meanwhile)
    slow.vacuum()
    assert [info.path for info in bucket.list("log/boundary/")] == [marker_path(6)]
    assert check(bucket) == list(range(2, 10))


def test_a_process_that_stood_still_does_not_delete_its_applied_entry(bucket: ModelBucket, store: MetaStore) -> None:
    """The entry was applied and truncated, and its SST is still read."""
    faulty = FaultyBucket(bucket)
    stalled = meta(faulty)
    bucket.system.forward(11)

    def meanwhile() -> None:
        age(store, bucket)
        store.vacuum()
        assert list(bucket.list("log/boundary/"))

    faulty.stall(lambda call: call.operation == "list" and call.path.startswith("log/boundary/"), meanwhile)
    assert stalled.commit(bringing(bucket.system, 5, writer="job", batch_id=1)) == 5
    assert check(bucket) == [2]


def test_only_the_appender_sets_the_place_of_an_sst(bucket: ModelBucket, store: MetaStore) -> None:
    """A commit or a compaction that names a place in another entry is refused."""
    store.commit(bringing(bucket.system, 1))
    (there,) = store.version().ssts()
    stolen = replace(sst(id=new_sst_id(bucket.system)), entry=2, offset=there.offset, meta_in_data=True)
    with pytest.raises(InvalidBatch, match=r"lie in log/0+2\.delta"):
        store.commit(request(9, 1, stolen))
    task = store.own_tasks.claim("kv", manual=True)
    assert task is not None
    output = replace(stolen, epoch=0, min_epoch=1, max_epoch=1, smallest=b"0", largest=b"0")
    with pytest.raises(InvalidBatch, match=r"lie in log/0+2\.delta"):
        store.own_tasks.report(task, [output])
    assert check(bucket) == [2]


def test_an_invariant_finds_an_impossible_place() -> None:
    """A place in an entry that is not written yet, or with the meta elsewhere."""
    version = advance(Version(), [CreateTable(spec=spec())])
    for place in ({"entry": 9, "offset": 20, "meta_in_data": True}, {"entry": 1, "offset": 20}, {"entry": 1}):
        req = CommitRequest(epoch=1, tables={1: (run(sst()),)})
        after = advance(version, [stamp(version, req, 0)])
        state = after.tables[1]
        ((held,),) = [sub.ssts for sub in state.levels.l0]
        levels = replace(state.levels, l0=(run(replace(held, **place)),))
        assert any(
            "lies in log entry" in one for one in problems(replace(after, tables={1: replace(state, levels=levels)}))
        )


def test_a_large_entry_takes_no_more_calls(bucket: ModelBucket) -> None:
    """The other calls go into the next entry; a single large call goes alone."""
    queue = CallQueue(bucket.system, 0.0, LogLimits(entry_payload_bytes=100))
    calls = [Call(lambda _: ([], None), None, True, 0, {"a": b"x" * size}) for size in (0, 40, 70, 10, 500, 1)]
    entries: list[int] = []

    def append(taken: list[AnyCall]) -> None:
        entries.append(len(taken))
        if entries == [1]:
            eventually(lambda: len(queue) == len(calls) - 1)
        for call in taken:
            call.succeed(None)

    threads = [threading.Thread(target=queue.carry_out, args=([call], append)) for call in calls]
    for before, thread in enumerate(threads):
        thread.start()
        eventually(lambda before=before: bool(entries) and len(queue) == before)
    for thread in threads:
        thread.join(60)
    assert entries == [1, 2, 2, 1]
