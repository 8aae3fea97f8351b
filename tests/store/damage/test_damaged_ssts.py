"""`tussock repair sst`: a table goes on without what of a damaged SST cannot be read; the store says what that was."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from msgspec.structs import replace

from support import inside
from support.buckets.faulty_bucket import Crash, Fate, FaultyBucket, at_calls
from support.store.damage import damage_block, damage_meta, is_lost, meta_of, open_repair, repair, version_of
from support.store.stores import OBJECTS, TickingSystem, changes_of, open_on, pairs, sst_objects
from support.store.versions import ModelBucket
from tussock.meta.log.format import LogEntry, decode_entry
from tussock.meta.version.deltas.delta import advance
from tussock.meta.version.deltas.losses import LOSSES_MAX, QuarantineSst
from tussock.statestore import (
    ClockAhead,
    Conflict,
    CorruptSst,
    InvalidBatch,
    InvalidOption,
    LimitReached,
    ObjectStoreUnavailable,
    StateStore,
)
from tussock.statestore.contract.records import SstInfo, data_object, data_path

KEYS = [b"%03d" % number for number in range(120)]


@pytest.fixture
def system() -> TickingSystem:
    return TickingSystem()


@pytest.fixture
def bucket(system: TickingSystem) -> ModelBucket:
    return ModelBucket(system)


@pytest.fixture
def store(bucket: ModelBucket, system: TickingSystem) -> Iterator[StateStore]:
    """Two epochs of all keys in a table of small blocks; the second one deletes each third key."""
    with open_on(bucket, system, retention=1e9, gc_grace=0.0, limits=OBJECTS) as opened:
        opened.create_table("kv", block_bytes=256, compression="none")
        commit(opened, {key: b"old" + key * 5 for key in KEYS})
        commit(opened, {key: None if int(key) % 3 == 0 else b"new" + key * 5 for key in KEYS})
        yield opened


def commit(store: StateStore, rows: dict[bytes, bytes | None], **writer: Any) -> int:
    inside.system(store).forward(1)
    epoch = store.new_epoch()
    store.table("kv").ingest_batch(sorted(rows.items()), epoch)
    return store.commit_epoch(epoch, **writer)


def content(store: StateStore, epoch: int | None = None) -> dict[bytes, bytes]:
    return dict(pairs(store.table("kv").scan(epoch=epoch)))


def newest_sst(bucket: ModelBucket) -> SstInfo:
    return version_of(bucket).find_table("kv").levels.l0[0].ssts[0]  # type: ignore[union-attr]


def test_only_the_damaged_blocks_are_lost(store: StateStore, bucket: ModelBucket) -> None:
    """What is in other blocks stays as it was, at every epoch; in the lost ranges older rows are seen again."""
    before, first = content(store), store.committed_epoch
    sst = newest_sst(bucket)
    damage_block(bucket, sst, 1, 4)
    with open_on(bucket, inside.system(store), retention=1e9) as reader, pytest.raises(CorruptSst):
        content(reader)
    (loss,) = repair(bucket)
    meta = meta_of(bucket, sst)
    assert loss.rows == int(meta.block_rows[1] + meta.block_rows[4]) < sst.rows
    assert loss.deletes == int(meta.block_deletes[1] + meta.block_deletes[4]) > 0
    assert [(one.first, one.end) for one in loss.ranges] == [
        (meta.first_keys[1], meta.first_keys[2]),
        (meta.first_keys[4], meta.first_keys[5]),
    ]
    assert (loss.min_epoch, loss.max_epoch, loss.uncovered) == (first, first, 1)
    with open_on(bucket, inside.system(store), retention=1e9) as reader:
        after = content(reader)
        lost = {key for key in KEYS if is_lost(key, [loss])}
        assert len(lost) == loss.rows
        assert after == {key: value for key, value in before.items() if key not in lost} | {
            key: b"old" + key * 5 for key in lost
        }
        assert [one.sst.id for one in reader.version().losses] == [sst.id]
        # A second look finds nothing, and the same repair again is refused.
        assert repair(bucket) == []
        commit(reader, {b"005": b"again"})
        reader.compact("kv")
        assert content(reader) == after | {b"005": b"again"}
        assert content(reader, first) == after
        assert [one.sst.id for one in reader.version().losses] == [sst.id]


@pytest.mark.parametrize("how", ["meta", "missing"])
def test_without_its_meta_or_its_objects_all_of_an_sst_is_lost(
    store: StateStore, bucket: ModelBucket, how: str
) -> None:
    """The run is gone, and what was below is seen."""
    store.compact("kv")
    commit(store, dict.fromkeys(KEYS[:3], b"newer" + b"x" * 300000))
    sst = newest_sst(bucket)
    assert not sst.entry
    if how == "meta":
        damage_meta(bucket, sst)
    else:
        del bucket.objects[data_path(sst.id)]
    (loss,) = repair(bucket)
    assert (loss.rows, loss.saved, loss.ranges[0].first, loss.ranges[0].end) == (3, "", KEYS[0], KEYS[2])
    assert version_of(bucket).find_table("kv").levels.l0 == ()  # type: ignore[union-attr]
    store.version()
    assert store.table("kv").get(KEYS[1]) == b"new" + KEYS[1] * 5
    assert store.table("kv").get(KEYS[0]) is None


def test_history_that_is_lost_is_missed_by_readers_of_older_epochs_only(store: StateStore, bucket: ModelBucket) -> None:
    """The present and the other blocks of history are as before; changes and feeds go on."""
    old = store.committed_epoch
    commit(store, dict.fromkeys(KEYS, b"newest"))
    store.compact("kv")
    first = min(epoch for _, epoch in version_of(bucket).timeline)
    seen = {epoch: content(store, epoch) for epoch in (first, old, store.committed_epoch)}
    (sst,) = version_of(bucket).find_table("kv").levels.history_ssts()  # type: ignore[union-attr]
    damage_block(bucket, sst, 2)
    (loss,) = repair(bucket)
    assert loss.sst.until == sst.until
    with open_on(bucket, inside.system(store), retention=1e9) as reader:
        for epoch, rows in seen.items():
            kept = {key: value for key, value in rows.items() if not is_lost(key, [loss])}
            found = content(reader, epoch)
            assert {key: value for key, value in found.items() if not is_lost(key, [loss])} == kept
            assert found.keys() <= rows.keys()
        assert content(reader) == seen[store.committed_epoch]
        assert len(changes_of(reader.table("kv"))) < 3 * len(KEYS)
        assert sum(len(batch) for batch in reader.table("kv").change_feed(0)) > 0


def test_damaged_objects_stay_until_they_are_discarded(store: StateStore, bucket: ModelBucket) -> None:
    """Whatever vacuums and compactions come; afterwards the loss is noted still."""
    commit(store, dict.fromkeys(KEYS, b"x" * 6000))
    sst = newest_sst(bucket)
    damage_block(bucket, sst, 3)
    (loss,) = repair(bucket)
    store.version()
    store.compact("kv")
    inside.system(store).forward(3600)
    store.vacuum()
    assert {sst.id} <= sst_objects(bucket)
    assert loss.saved not in sst_objects(bucket)
    _discard(bucket, sst.id)
    store.version()
    inside.system(store).forward(3600)
    store.vacuum()
    version = version_of(bucket)
    assert sst_objects(bucket) == version.live_sst_ids()
    assert [(one.sst.id, one.discarded) for one in version.losses] == [(sst.id, True)]
    with pytest.raises(InvalidOption, match="discarded before"):
        _discard(bucket, sst.id)


def test_a_running_compaction_of_the_sst_is_ended(store: StateStore, bucket: ModelBucket) -> None:
    """Its report is refused, and its outputs are garbage; compaction goes on with what is left."""
    sst = newest_sst(bucket)
    faulty = FaultyBucket(bucket)
    damaged = bucket.objects[data_object(sst)]
    damage_block(bucket, sst, 0)
    broken, bucket.objects[data_object(sst)] = bucket.objects[data_object(sst)], damaged
    losses = []

    def damage_and_repair() -> None:
        bucket.objects[data_object(sst)] = broken
        losses.extend(repair(bucket))

    # The merge has read the intact SST, and is about to report.
    faulty.stall(lambda call: call.operation == "put" and call.path.startswith("sst/"), damage_and_repair)
    with open_on(faulty, inside.system(store), retention=1e9) as other:
        other.compact("kv")
        assert len(losses) == 1
        version = version_of(bucket)
        assert version.tasks == {}
        assert {key for key in KEYS if content(other).get(key, b"")[:3] == b"old"} == {
            key for key in KEYS if is_lost(key, losses)
        }


def test_an_sst_that_left_its_table_meanwhile_is_left_alone(store: StateStore, bucket: ModelBucket) -> None:
    """Compaction was faster, from a cache, say: nothing changed, and nothing is lost."""
    sst = newest_sst(bucket)
    whole = bucket.objects[data_object(sst)]
    damage_block(bucket, sst, 0)
    mending = open_repair(bucket)
    state = mending.log.version.find_table("kv")
    damaged = mending.examine(state, sst)  # type: ignore[arg-type]
    bucket.objects[data_object(sst)] = whole
    before = content(store)
    store.compact("kv")
    with pytest.raises(Conflict, match="look again"):
        mending.put_aside(damaged)  # type: ignore[arg-type]
    mending.close()
    assert content(store) == before
    assert version_of(bucket).losses == ()


def test_what_vacuum_takes_for_garbage_is_saved_again(store: StateStore, bucket: ModelBucket) -> None:
    """Without a grace period the upload may be gone before the entry that names it: it is made once more."""
    sst, before = newest_sst(bucket), content(store)
    damage_block(bucket, sst, 1)
    faulty = FaultyBucket(bucket)
    taken: list[str] = []

    def vacuum() -> None:
        inside.system(store).forward(10)
        taken.extend(path for path, _ in store.vacuum().deleted)

    faulty.stall(lambda call: call.operation == "create" and call.path.startswith("log/"), vacuum)
    (loss,) = repair(faulty)
    uploads = [call.path for call in faulty.calls if call.operation == "put"]
    assert len(uploads) == 2
    assert set(taken) == {uploads[0]}
    assert uploads[1] == data_path(loss.saved)
    store.version()
    assert {key: value for key, value in content(store).items() if not is_lost(key, [loss])} == {
        key: value for key, value in before.items() if not is_lost(key, [loss])
    }


def test_a_clock_that_is_years_ahead_repairs_nothing(store: StateStore, bucket: ModelBucket) -> None:
    """The SST with the rest would have a name from the future, which vacuum could not delete for years."""
    damage_block(bucket, newest_sst(bucket), 1)
    before = sst_objects(bucket)
    with pytest.raises(ClockAhead):
        repair(bucket, ahead_ms=10**11)
    assert sst_objects(bucket) == before
    assert version_of(bucket).losses == ()


def test_damage_on_the_way_is_no_damage(store: StateStore, bucket: ModelBucket) -> None:
    """A block that a second request brings whole is not lost."""
    sst = newest_sst(bucket)
    path, whole = data_object(sst), bucket.objects[data_object(sst)]
    damage_block(bucket, sst, 0)
    faulty = FaultyBucket(bucket)
    reads: list[Any] = []

    def heal_second(call: Any) -> bool:
        reads.extend([call] if call.path == path else [])
        return len(reads) == 2

    faulty.stall(heal_second, lambda: bucket.objects.update({path: whole}))
    assert repair(faulty) == []


def test_more_damage_than_was_agreed_to_is_not_taken(store: StateStore, bucket: ModelBucket) -> None:
    """A block that fails after the look ends the repair of its SST; one that can be read again stays lost."""
    sst = newest_sst(bucket)
    damage_block(bucket, sst, 1)
    mending = open_repair(bucket)
    damaged = mending.examine(mending.log.version.find_table("kv"), sst)  # type: ignore[arg-type]
    damage_block(bucket, sst, 2)
    with pytest.raises(Conflict, match="more of SST"):
        mending.put_aside(damaged)  # type: ignore[arg-type]
    assert version_of(bucket).losses == ()
    damage_block(bucket, sst, 1, 2)
    loss = mending.put_aside(damaged)  # type: ignore[arg-type]
    assert loss.rows == int(meta_of(bucket, sst).block_rows[1])
    mending.close()


def test_a_bucket_that_is_away_is_no_damage(store: StateStore, bucket: ModelBucket) -> None:
    """What could not be read may be whole: the look ends with the bucket's error."""
    faulty = FaultyBucket(bucket, lambda call: Fate.LOSE_REQUEST if call.path.startswith("sst/") else Fate.PASS)
    mending = open_repair(faulty)
    state, sst = mending.named()[0]
    with pytest.raises(ObjectStoreUnavailable):
        mending.examine(state, sst)
    mending.close()


@pytest.mark.parametrize("fate", [Fate.CRASH, Fate.CRASH_AFTER])
def test_a_crash_at_any_call_leaves_the_old_or_the_new_version(fate: Fate) -> None:
    """For every request of a repair and of a discard: the next repair does the rest, and vacuum leaves no garbage."""
    calls, unfinished = _calls_of_a_repair(), 0
    for number in range(1, calls + 1):
        system = TickingSystem()
        bucket = ModelBucket(system)
        with _damaged(bucket, system) as store:
            before = version_of(bucket)
            # A read of what is not there ends before the process could die after it.
            with contextlib.suppress(Crash):
                _repair_and_discard(FaultyBucket(bucket, at_calls({number: fate})))
            after = version_of(bucket)
            unfinished += len(after.losses) == 0
            if not after.losses:
                assert after == before
            (loss,) = [*repair(bucket), *after.losses]
            _check_mended(store, bucket, loss.sst)
    assert 0 < unfinished < calls


@pytest.mark.parametrize("fate", [Fate.LOSE_REQUEST, Fate.LOSE_ANSWER])
def test_a_lost_request_is_an_error_or_no_matter(fate: Fate) -> None:
    """The repair fails with `ObjectStoreUnavailable` and can be repeated, or has seen that it was done."""
    for number in range(1, _calls_of_a_repair() + 1):
        system = TickingSystem()
        bucket = ModelBucket(system)
        with _damaged(bucket, system) as store:
            faulty = FaultyBucket(bucket, at_calls({number: fate}))
            try:
                _repair_and_discard(faulty)
            except ObjectStoreUnavailable:
                repair(bucket)
            (loss,) = version_of(bucket).losses
            _check_mended(store, bucket, loss.sst)


def _damaged(bucket: ModelBucket, system: TickingSystem) -> StateStore:
    """A store with one damaged SST, which is an object."""
    store = open_on(bucket, system, retention=1e9, gc_grace=0.0)
    store.create_table("kv", block_bytes=256, compression="none")
    commit(store, dict.fromkeys(KEYS, b"old"))
    commit(store, {key: key * 20 for key in KEYS})
    damage_block(bucket, newest_sst(bucket), 3)
    return store


def _repair_and_discard(bucket: FaultyBucket) -> None:
    for loss in repair(bucket):
        _discard(bucket, loss.sst.id)


def _calls_of_a_repair() -> int:
    system = TickingSystem()
    bucket = FaultyBucket(ModelBucket(system))
    with _damaged(bucket.inner, system):  # type: ignore[arg-type]
        _repair_and_discard(bucket)
    return len(bucket.calls)


def _check_mended(store: StateStore, bucket: ModelBucket, sst: SstInfo) -> None:
    """All but the lost rows can be read, and nothing is left over."""
    store.version()
    (loss,) = version_of(bucket).losses
    assert content(store) == {key: b"old" if is_lost(key, [loss]) else key * 20 for key in KEYS}
    if not loss.discarded:
        _discard(bucket, sst.id)
    store.version()
    inside.system(store).forward(3600)
    store.vacuum()
    assert sst_objects(bucket) == {one.id for one in version_of(bucket).ssts() if not one.entry}


def _discard(bucket: ModelBucket | FaultyBucket, *ids: str) -> None:
    mending = open_repair(bucket)
    try:
        mending.discard(ids)
    finally:
        mending.close()


def test_snapshots_that_are_held_go_on_without_the_rows(store: StateStore, bucket: ModelBucket) -> None:
    """They raised `CorruptSst` there, and miss the rows from the repair on; other rows are as of the pin."""
    with store.pin_snapshot() as snapshot:
        commit(store, dict.fromkeys(KEYS, b"later"))
        sst = version_of(bucket).find_table("kv").levels.l0[1].ssts[0]  # type: ignore[union-attr]
        damage_block(bucket, sst, 1)
        with open_on(bucket, inside.system(store)) as other, other.pin_snapshot(snapshot.epoch) as pinned:
            with pytest.raises(CorruptSst):
                list(pinned.table("kv").scan())
            (loss,) = repair(bucket)
            other.version()
            for key in KEYS:
                expected = b"old" if is_lost(key, [loss]) else b"new"
                assert pinned.table("kv").get(key) == (
                    None if expected == b"new" and int(key) % 3 == 0 else expected + key * 5
                )


def test_a_repeated_commit_does_not_bring_a_damaged_sst_back(store: StateStore, bucket: ModelBucket) -> None:
    """Neither while it is kept nor once it was discarded."""
    batch = pa.record_batch({"key": KEYS, "value": [b"up" + key * 20 for key in KEYS]})
    runs = store.table("kv").upload([batch])
    store.commit_uploaded({"kv": runs})
    sst = newest_sst(bucket)
    damage_block(bucket, sst, 1)
    (loss,) = repair(bucket)
    store.version()
    for discard in (False, True):
        if discard:
            _discard(bucket, sst.id)
            store.version()
        with pytest.raises(InvalidBatch, match="put aside as damaged"):
            store.commit_uploaded({"kv": runs})
    assert sst.id not in {one.id for one in version_of(bucket).ssts()}
    assert store.table("kv").get(loss.ranges[0].first) != b"up" + loss.ranges[0].first * 20


@pytest.mark.parametrize(
    "change",
    [
        lambda delta, sst: replace(delta, loss=replace(delta.loss, rows=delta.loss.rows + 1)),
        lambda delta, sst: replace(delta, loss=replace(delta.loss, ranges=())),
        lambda delta, sst: replace(delta, loss=replace(delta.loss, discarded=True)),
        lambda delta, sst: replace(delta, loss=replace(delta.loss, saved="")),
        lambda delta, sst: replace(delta, saved=replace(delta.saved, largest=b"zzz")),
        lambda delta, sst: replace(delta, saved=replace(delta.saved, max_epoch=sst.max_epoch + 1)),
        lambda delta, sst: replace(delta, saved=replace(delta.saved, until=sst.max_epoch)),
        lambda delta, sst: replace(delta, saved=replace(delta.saved, entry=3, offset=20, meta_in_data=True)),
        lambda delta, sst: QuarantineSst(loss=replace(delta.loss, saved=sst.id), saved=replace(delta.saved, id=sst.id)),
    ],
)
def test_what_does_not_fit_the_damaged_sst_is_refused(
    store: StateStore, bucket: ModelBucket, change: Callable[[QuarantineSst, SstInfo], QuarantineSst]
) -> None:
    """The log takes only some of the rows of that very SST in its place."""
    before, sst = version_of(bucket), newest_sst(bucket)
    damage_block(bucket, sst, 1)
    repair(bucket)
    (delta,) = last_entry(bucket).deltas
    assert isinstance(delta, QuarantineSst)
    assert advance(before, [delta]).losses
    with pytest.raises(InvalidBatch, match="nothing changed"):
        advance(before, [change(delta, sst)])


def test_records_are_bounded(store: StateStore, bucket: ModelBucket) -> None:
    """The oldest that were discarded leave; beyond a thousand kept ones the next is refused."""
    sst = newest_sst(bucket)
    damage_block(bucket, sst, 1)
    before = version_of(bucket)
    (loss,) = repair(bucket)
    (delta,) = last_entry(bucket).deltas
    others = tuple(
        replace(loss, sst=replace(sst, id=f"{number:032x}"), discarded=number < 2) for number in range(LOSSES_MAX)
    )
    after = advance(replace(before, accepted_losses=others), [delta])
    assert [one.sst.id for one in after.losses] == [*(one.sst.id for one in others[1:]), sst.id]
    kept = tuple(replace(one, discarded=False) for one in others)
    with pytest.raises(LimitReached, match="discard some"):
        advance(replace(before, accepted_losses=kept), [delta])


def last_entry(bucket: ModelBucket) -> LogEntry:
    """The newest entry of the log."""
    path = max(path for path in bucket.objects if path.endswith(".delta"))
    return decode_entry(path, version_of(bucket).seq, bucket.get(path))
