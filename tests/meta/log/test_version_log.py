"""The version log: races, lost answers, stalls across a truncation, damage, recovery."""

import contextlib
import threading

import pytest

from support.buckets.faulty_bucket import Call, Crash, Fate, FaultyBucket, at_calls, where
from support.store.versions import FakeSystem, ModelBucket, request, spec, sst
from tussock.meta.log.format import base_path, entry_path, marker_path
from tussock.meta.log.log import VersionLog
from tussock.meta.version.deltas.commits import AlreadyCommitted, stamp
from tussock.meta.version.deltas.delta import Delta
from tussock.meta.version.deltas.tables import CreateTable, DropTable
from tussock.meta.version.version import Version
from tussock.statestore.contract.backend import CommitRequest
from tussock.statestore.errors import CorruptLog, ObjectStoreUnavailable, TableExists, TableNotFound


class Store:
    """One client: a log over its own faulty handle of the shared bucket."""

    def __init__(self, bucket: ModelBucket, owner: str = "a", base_every: int = 64) -> None:
        self.bucket = FaultyBucket(bucket)
        self.system = bucket.system
        self.log = VersionLog(self.bucket, self.system, owner=owner, base_every=base_every)

    def create(self, name: str) -> int:
        def decide(version: Version) -> tuple[list[Delta], int]:
            if version.find_table(name) is not None:
                raise TableExists(name)
            return [CreateTable(spec=spec(name, version.next_table_id))], version.next_table_id

        return self.log.append(decide)

    def commit(self, req: CommitRequest) -> int:
        def decide(version: Version) -> tuple[list[Delta], int]:
            stamped = stamp(version, req, self.system.now_ms())
            return ([], stamped.epoch) if isinstance(stamped, AlreadyCommitted) else ([stamped], stamped.epoch)

        return self.log.append(decide, key=repr(req), repeatable=req.writer is not None)


def entries(bucket: ModelBucket) -> list[str]:
    return [path for path in bucket.objects if path.endswith(".delta")]


def truncate(bucket: ModelBucket, upto: int) -> None:
    bucket.create(marker_path(upto), b"")
    bucket.delete([entry_path(seq) for seq in range(1, upto + 1)])


def test_a_warm_commit_is_one_create_and_lists_the_markers_every_ten_seconds(bucket: ModelBucket) -> None:
    """A commit on the newest version makes no other request; an idle log makes none."""
    store = Store(bucket)
    store.create("kv")
    store.bucket.calls.clear()
    bucket.system.forward(9)
    store.commit(request(4))
    assert [call.operation for call in store.bucket.calls] == ["create"]
    store.bucket.calls.clear()
    bucket.system.forward(1)
    store.commit(request(5))
    assert [call.operation for call in store.bucket.calls] == ["create", "list"]
    store.bucket.calls.clear()
    assert store.log.version.max_committed_epoch == 5
    assert store.bucket.calls == []
    store.log.refresh()
    assert [call.operation for call in store.bucket.calls] == ["get"]


def test_two_writers_race_for_one_number_and_both_commit(bucket: ModelBucket) -> None:
    """The loser validates again on the version that the winner left, and gets another epoch."""
    one, two = Store(bucket, "one"), Store(bucket, "two")
    one.create("kv")
    two.log.refresh()
    one.bucket.stall(lambda call: call.operation == "create", lambda: two.commit(request(7)) and None)
    assert one.commit(request(7)) == bucket.system.now_ms() << 16
    assert [len(state.levels.l0) for state in one.log.version.tables.values()] == [2]
    assert two.log.refresh() == one.log.version


def test_a_refusal_on_an_old_version_is_tried_on_the_newest(bucket: ModelBucket) -> None:
    """A table that another process created meanwhile is found."""
    one, two = Store(bucket, "one"), Store(bucket, "two")
    assert one.log.version.seq == 0
    two.create("kv")
    assert one.commit(request(3)) == 3
    with pytest.raises(TableNotFound):
        one.commit(request(4, 99))
    with pytest.raises(TableExists):
        one.create("kv")


def test_a_lost_answer_is_resolved_by_reading_back(bucket: ModelBucket) -> None:
    """The entry is recognised by its id: one entry, and the call gets its result."""
    store = Store(bucket)
    store.create("kv")
    store.bucket.script = where("create", "log/", Fate.LOSE_ANSWER)
    assert store.commit(request(5)) == 5
    assert len(entries(bucket)) == 2


def test_an_answer_exists_for_the_own_entry_counts_as_success(bucket: ModelBucket) -> None:
    """A client library that retried by itself reports "exists" for its own write."""
    store = Store(bucket)
    store.create("kv")
    inner = store.bucket.inner.create

    def twice(path: str, data: bytes) -> bool:
        inner(path, data)
        return inner(path, data)

    store.bucket.inner = ModelBucket(bucket.system)
    store.bucket.inner.objects = bucket.objects
    store.bucket.inner.create = twice  # type: ignore[method-assign]
    assert store.commit(request(5)) == 5
    assert len(entries(bucket)) == 2


@pytest.mark.parametrize("landed", [True, False], ids=["landed", "lost"])
@pytest.mark.parametrize("between", ["nothing", "refresh", "other call", "other writer"])
def test_a_commit_of_unknown_outcome_can_be_repeated_without_a_writer(
    bucket: ModelBucket, landed: bool, between: str
) -> None:
    """The SSTs are in the store exactly once, and the answer is their epoch, whatever happens in between."""
    store, other = Store(bucket), Store(bucket, "other")
    store.create("kv")
    req = request(5, 1, sst())
    fate = Fate.LOSE_ANSWER if landed else Fate.LOSE_REQUEST
    dead = [False]

    def script(call: Call) -> Fate:
        if call.operation == "create" and not dead[0]:
            dead[0] = True
            return fate
        return Fate.LOSE_REQUEST if dead[0] else Fate.PASS

    store.bucket.script = script
    with pytest.raises(ObjectStoreUnavailable, match="may or may not"):
        store.commit(req)
    store.bucket.script = None
    if between == "refresh":
        store.log.refresh()
    elif between == "other call":
        store.create("more")
    elif between == "other writer":
        other.create("more")
    epoch = store.commit(req)
    state = other.log.refresh().tables[1]
    assert [one.epoch for one in state.levels.ssts()] == [epoch]
    assert other.log.version.max_committed_epoch == epoch == 5
    assert other.log.version == store.log.version


def test_a_create_that_arrives_late_has_no_effect(bucket: ModelBucket) -> None:
    """A create that was given up but is still under way finds its number taken."""
    store = Store(bucket)
    store.create("kv")
    late: list[tuple[str, bytes]] = []
    real = bucket.create

    def lose(path: str, data: bytes) -> bool:
        late.append((path, data))
        raise ObjectStoreUnavailable("timed out")

    bucket.create = lose  # type: ignore[method-assign]
    with pytest.raises(ObjectStoreUnavailable):
        store.commit(req := request(5))
    bucket.create = real  # type: ignore[method-assign]
    assert store.commit(req) == 5
    assert real(*late[0]) is False
    assert len(store.log.refresh().tables[1].levels.ssts()) == 1


def test_a_lost_marker_listing_leaves_the_outcome_open_and_is_settled_later(bucket: ModelBucket) -> None:
    """The entry exists, but whether it counts is unknown: the call raises, and its repetition succeeds."""
    store = Store(bucket)
    store.create("kv")
    bucket.system.forward(11)
    store.bucket.script = where("list", "log/boundary/", Fate.LOSE_REQUEST)
    with pytest.raises(ObjectStoreUnavailable, match="may or may not"):
        store.commit(req := request(5))
    assert store.commit(req) == 5
    assert len(entries(bucket)) == 2


def test_the_same_call_may_be_made_again_after_it_succeeded(bucket: ModelBucket) -> None:
    """Only an unknown outcome is remembered: dropping and creating a table anew is two calls."""
    store = Store(bucket)
    first = store.create("kv")
    store.log.append(lambda version: ([DropTable(table_id=first, at_ms=1)], None), key="drop")
    assert store.create("kv") == 2


def test_a_writer_that_stalled_across_a_truncation_does_not_trust_its_entry(bucket: ModelBucket) -> None:
    """The first trap: the number that it creates was deleted; the marker shows it, and the commit lands at the tail."""
    stalled, other = Store(bucket, "stalled"), Store(bucket, "other", base_every=2)
    stalled.create("kv")

    def meanwhile() -> None:
        for epoch in (11, 12, 13):
            other.commit(request(epoch))
        # Younger entries are never truncated.
        bucket.system.forward(30)
        truncate(bucket, 4)

    stalled.bucket.stall(lambda call: call.operation == "create", meanwhile)
    epoch = stalled.commit(request(5, writer="w", batch_id=0))
    assert epoch > 13
    assert entry_path(2) in bucket.objects, "left to vacuum: it might have been an entry, with SSTs in it"
    assert entry_path(5) in bucket.objects
    assert Store(bucket).log.refresh() == stalled.log.version == other.log.refresh()
    assert len(stalled.log.version.tables[1].levels.l0) == 4


@pytest.mark.parametrize(
    ("seconds", "wall_seconds"),
    [(31, 31), (10, 10), (31, 0), (0, 31), (31, -3600), (0, -1)],
    ids=["both", "just", "monotonic", "wall", "set back", "only set back"],
)
def test_a_check_of_the_markers_is_trusted_only_if_both_clocks_agree(
    bucket: ModelBucket, seconds: float, wall_seconds: float
) -> None:
    """One clock may stop while the machine sleeps, the other may be set: if either moved, the log is checked again."""
    stalled, other = Store(bucket, "stalled"), Store(bucket, "other", base_every=2)
    stalled.create("kv")

    def meanwhile() -> None:
        for epoch in (11, 12, 13):
            other.commit(request(epoch))
        bucket.system.ticks += seconds
        bucket.system.wall_ms += int(wall_seconds * 1000)
        truncate(bucket, 4)

    stalled.bucket.stall(lambda call: call.operation == "create", meanwhile)
    assert stalled.commit(request(5, writer="w", batch_id=0)) > 13
    assert entry_path(2) in bucket.objects, "left to vacuum: it might have been an entry, with SSTs in it"
    assert Store(bucket).log.refresh() == stalled.log.version


def test_a_check_counts_from_before_the_request_that_it_rests_on(bucket: ModelBucket) -> None:
    """A create that takes nine seconds leaves one second of trust, not ten."""
    store = Store(bucket)
    store.create("kv")
    bucket.system.forward(11)
    store.bucket.stall(lambda call: call.operation == "create", lambda: bucket.system.forward(9))
    store.commit(request(5))
    store.bucket.calls.clear()
    bucket.system.forward(0.9)
    store.commit(request(6))
    bucket.system.forward(0.2)
    store.commit(request(7))
    assert [call.operation for call in store.bucket.calls] == ["create", "create", "list"]


def test_an_own_stray_entry_is_not_taken_for_a_commit_that_landed(bucket: ModelBucket) -> None:
    """A create of a deleted number whose answer was lost is found by reading, and still is no part of the log."""
    stalled, other = Store(bucket, "stalled"), Store(bucket, "other", base_every=2)
    stalled.create("kv")

    def meanwhile() -> None:
        for epoch in (11, 12, 13):
            other.commit(request(epoch))
        bucket.system.forward(30)
        truncate(bucket, 4)

    stalled.bucket.stall(lambda call: call.operation == "create", meanwhile)
    stalled.bucket.script = lambda call: Fate.LOSE_ANSWER if call.operation in ("create", "get") else Fate.PASS
    with pytest.raises(ObjectStoreUnavailable, match="may or may not"):
        stalled.commit(req := request(5, 1, sst()))
    stalled.bucket.script = None
    assert stalled.log.refresh().seq == 4
    assert stalled.commit(req) > 13
    assert len(Store(bucket).log.refresh().tables[1].levels.l0) == 4


def test_a_long_stall_makes_an_unrepeatable_commit_raise(bucket: ModelBucket) -> None:
    """Its entry may have been applied and truncated: only a commit with writer and batch is decided anew."""
    for writer in (None, "w"):
        fresh = ModelBucket(bucket.system)
        stalled, other = Store(fresh, "stalled"), Store(fresh, "other", base_every=2)
        stalled.create("kv")
        fresh.system.forward(11)

        def meanwhile(other: Store = other, fresh: ModelBucket = fresh) -> None:
            for epoch in (11, 12, 13):
                other.commit(request(epoch))
            fresh.system.forward(3600)
            truncate(fresh, 4)

        stalled.bucket.stall(lambda call: call.path == marker_path(0)[:13], meanwhile)
        if writer is None:
            with pytest.raises(ObjectStoreUnavailable, match="may or may not"):
                stalled.commit(request(5))
        else:
            assert stalled.commit(request(5, writer=writer, batch_id=0)) == 5
        assert len(stalled.log.refresh().tables[1].levels.l0) == 4


def test_a_reader_that_lagged_behind_a_truncation_loads_a_snapshot(bucket: ModelBucket) -> None:
    """The second trap: a deleted entry is not the tail, and a stray one is not the log."""
    for stray in (False, True):
        fresh = ModelBucket(bucket.system)
        reader, writer = Store(fresh, "reader"), Store(fresh, "writer", base_every=2)
        writer.create("kv")
        reader.log.refresh()
        for epoch in (11, 12, 13, 14):
            writer.commit(request(epoch))
        old = fresh.objects[entry_path(3)]
        truncate(fresh, 4)
        if stray:
            fresh.objects[entry_path(2)] = old
        fresh.system.forward(11)
        if stray:
            assert reader.log.refresh() == writer.log.version
        else:
            reader.bucket.calls.clear()
            assert reader.log.refresh() == writer.log.version
            assert ("list", "log/boundary/") in [(call.operation, call.path) for call in reader.bucket.calls]


def test_markers_are_listed_at_most_every_ten_seconds_by_a_reader(bucket: ModelBucket) -> None:
    """Each refresh costs one GET; a LIST joins it when the last one is ten seconds old."""
    store = Store(bucket)
    store.create("kv")
    store.bucket.calls.clear()
    for _ in range(25):
        store.log.refresh()
        bucket.system.forward(1)
    assert [call.operation for call in store.bucket.calls].count("list") == 2


def test_every_prefix_of_the_log_recovers_with_and_without_snapshots(bucket: ModelBucket) -> None:
    """The writer's version after entry n is what any reader gets from the first n entries."""
    store = Store(bucket, base_every=4)
    had = [store.log.version]
    store.create("kv")
    had.append(store.log.version)
    for epoch in range(1, 12):
        store.commit(request(epoch, writer="w", batch_id=epoch))
        had.append(store.log.version)
    for upto, expected in enumerate(had):
        for with_snapshots in (True, False):
            part = ModelBucket(bucket.system)
            kept = [entry_path(seq) for seq in range(1, upto + 1)]
            kept += [base_path(seq) for seq in range(1, upto + 1) if with_snapshots]
            part.objects = {path: bucket.objects[path] for path in kept if path in bucket.objects}
            assert Store(part).log.refresh() == expected


@pytest.mark.parametrize("damage", ["flip", "cut", "empty", "foreign"])
def test_a_damaged_snapshot_falls_back_to_an_older_one_or_to_the_log(bucket: ModelBucket, damage: str) -> None:
    """Snapshots are a cache: as long as the entries exist, none is needed."""
    store = Store(bucket, base_every=2)
    store.create("kv")
    for epoch in range(1, 6):
        store.commit(request(epoch))
    for seq in (6, 4, 2):
        data, modified = bucket.objects[base_path(seq)]
        bad = {
            "flip": data[:40] + bytes([data[40] ^ 1]) + data[41:],
            "cut": data[:-1],
            "empty": b"",
            "foreign": b"x" * 99,
        }
        bucket.objects[base_path(seq)] = (bad[damage], modified)
        assert Store(bucket).log.refresh() == store.log.version


def test_a_damaged_entry_is_named_and_nothing_is_appended(bucket: ModelBucket) -> None:
    """`CorruptLog` names the object; the earlier version stays in use."""
    store, reader = Store(bucket), Store(bucket, "reader")
    store.create("kv")
    reader.log.refresh()
    store.commit(request(1))
    data, modified = bucket.objects[entry_path(2)]
    bucket.objects[entry_path(2)] = (data[:-5] + b"\1" + data[-4:], modified)
    with pytest.raises(CorruptLog, match=r"log/0+2\.delta: offset \d+: expected crc32c"):
        reader.log.refresh()
    with pytest.raises(CorruptLog):
        reader.commit(request(2))
    with pytest.raises(CorruptLog):
        Store(bucket).log.refresh()
    assert reader.log.version.seq == 1


def test_a_boundary_above_all_snapshots_is_refused_with_its_numbers(bucket: ModelBucket) -> None:
    """Entries are missing: nothing is guessed, and nothing is appended."""
    store = Store(bucket)
    store.create("kv")
    bucket.create(marker_path(9), b"")
    bucket.system.forward(30)
    with pytest.raises(CorruptLog, match="up to 9 were removed"):
        Store(bucket).log.refresh()
    with pytest.raises(CorruptLog):
        store.create("more")


def test_foreign_names_in_the_log_are_reported_or_ignored(bucket: ModelBucket) -> None:
    """A foreign marker could hide a boundary and is refused; a foreign snapshot could only have saved time."""
    Store(bucket).create("kv")
    bucket.put("snapshot/readme", b"hello")
    assert Store(bucket).log.refresh().seq == 1
    bucket.put("log/boundary/readme", b"hello")
    with pytest.raises(CorruptLog, match="readme"):
        Store(bucket).log.refresh()


def test_a_failed_snapshot_does_not_fail_the_commit(bucket: ModelBucket) -> None:
    """The append has happened; the next snapshot makes up for this one."""
    store = Store(bucket, base_every=2)
    store.create("kv")
    store.bucket.script = where("create", "snapshot/", Fate.LOSE_REQUEST)
    assert store.commit(request(1)) == 1
    assert base_path(2) not in bucket.objects


@pytest.mark.parametrize("fate", [Fate.CRASH, Fate.CRASH_AFTER], ids=["before", "after"])
def test_a_log_is_usable_after_a_crash_at_any_call(fate: Fate) -> None:
    """After a crash at any request a new process finds each acknowledged commit, and repeats the last one safely."""
    for number in range(1, 100):
        bucket = ModelBucket(FakeSystem())
        store = Store(bucket, base_every=2)
        store.bucket.script = at_calls({number: fate})
        acknowledged: list[int] = []
        with contextlib.suppress(Crash):
            store.create("kv")
            for epoch in (1, 2, 3):
                held = store.commit(request(epoch, writer="w", batch_id=epoch))
                acknowledged.append(held)
        if number > len(store.bucket.calls):
            break
        again = Store(bucket, "again", base_every=2)
        version = again.log.refresh()
        assert [epoch for _, epoch in version.ledger.get("w", ())][: len(acknowledged)] == acknowledged
        if version.tables:
            for epoch in (1, 2, 3):
                assert again.commit(request(epoch, writer="w", batch_id=epoch)) == epoch
            assert len(again.log.version.tables[1].levels.l0) == 3
    assert 8 < number < 99


def test_threads_share_one_log(bucket: ModelBucket) -> None:
    """A client and a background thread append through one log; every commit is there once."""
    store = Store(bucket)
    store.create("kv")
    errors: list[BaseException] = []

    def work(writer: str) -> None:
        try:
            for batch in range(50):
                store.commit(request(1, writer=writer, batch_id=batch))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(f"w{number}",)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    epochs = [sub.ssts[0].epoch for sub in store.log.version.tables[1].levels.l0]
    assert len(epochs) == 150
    assert epochs == sorted(epochs, reverse=True)
    assert Store(bucket).log.refresh() == store.log.version
