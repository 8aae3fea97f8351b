"""Deciding on a repair of a store's clock: new numbers keep the order, and unknown changes stop it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from support.store.versions import FakeSystem, ModelBucket, request, run, spec, sst
from tussock.meta.log.log import VersionLog
from tussock.meta.retention.pins import PinKeeper
from tussock.meta.version.deltas.backups import BeginStore
from tussock.meta.version.deltas.commits import AlreadyCommitted, CommitEpoch, stamp
from tussock.meta.version.deltas.delta import advance
from tussock.meta.version.deltas.repair import Numbers, RepairClock, epochs_ahead, named_epochs
from tussock.meta.version.deltas.tables import CreateTable, DropTable
from tussock.meta.version.invariants import problems
from tussock.meta.version.version import Origin, Version
from tussock.statestore.errors import Conflict, InvalidBatch, SnapshotExpired, StaleUpload

FAR = 1 << 62
AT_MS = 100
NOW = AT_MS << 16
LIMIT = NOW + 1000


@given(
    st.sets(st.integers(1, LIMIT), max_size=8),
    st.sets(st.integers(LIMIT + 1, (1 << 63) - 1), min_size=1, max_size=20),
    st.integers(0, 2),
)
def test_new_numbers_keep_the_order_and_leave_the_others_alone(good: set[int], far: set[int], parts: int) -> None:
    """They ascend one by one from the present time, above all unchanged epochs, and none is above its old number."""
    everything = sorted(good | far)
    cut = len(everything) * parts // 2
    arrays = [np.array(part, np.uint64) for part in (everything[:cut], everything[cut:], everything[::2])]
    numbers = Numbers.of(arrays, LIMIT, AT_MS)
    after = numbers.given(np.array(everything, np.uint64)).tolist()
    assert after[: len(good)] == sorted(good)
    first = max([NOW, *(epoch + 1 for epoch in good)])
    assert after[len(good) :] == list(range(first, first + len(far)))
    assert all(new <= old for old, new in zip(everything, after, strict=True))
    assert numbers.pairs([max(far)])[-1] == (max(far), after[-1])
    assert numbers.pairs([])[0] == (min(far), first)
    unknown = next(epoch for epoch in range(LIMIT + 1, LIMIT + 100) if epoch not in far)
    with pytest.raises(Conflict):
        numbers.pairs([unknown])


def ahead() -> Version:
    """A version with two commits far ahead above a compacted SST with epochs of both kinds, in one of two tables."""
    version = Version()
    version = advance(version, [CreateTable(spec=spec())])
    version = advance(version, [CreateTable(spec=spec("gone", 2))])
    for epoch in (5, FAR, FAR + 3):
        new = (run(sst(epoch=epoch)),)
        version = advance(
            version, [CommitEpoch(epoch=epoch, at_ms=10**15, tables={1: new, 2: (run(sst(epoch=epoch)),)})]
        )
    version = advance(version, [DropTable(table_id=2, at_ms=10**15, keep=True)])
    state = version.tables[1]
    mixed = sst(epoch=0, min_epoch=5, max_epoch=FAR)
    levels = replace(state.levels, l0=state.levels.l0[:1], levels=((mixed,),))
    return replace(version, tables={1: replace(state, levels=levels)})


def repair_of(version: Version) -> RepairClock:
    numbers = Numbers.of([np.array(list(named_epochs(version)), np.uint64)], LIMIT, AT_MS)
    (mixed,) = [one for one in version.ssts() if one.epoch == 0]
    new = sst(epoch=0, min_epoch=5, max_epoch=NOW)
    given = numbers.pairs(epochs_ahead(version, LIMIT))
    return RepairClock(at_ms=AT_MS, limit=LIMIT, epochs=given, rewritten={mixed.id: new})


def test_the_version_after_a_repair_is_sound() -> None:
    """Epochs, times, the dropped table and the replaced SST are sound; a replay gives the same version."""
    before = ahead()
    delta = repair_of(before)
    after = advance(before, [delta])
    assert problems(after) == []
    assert (after.max_committed_epoch, after.tables[1].last_epoch) == (NOW + 1, NOW + 1)
    assert after.timeline == ((AT_MS, NOW + 1),)
    assert (after.gone, len(after.dropped)) == ({}, 4)
    assert {one.dropped_ms for one in after.dropped} == {AT_MS}
    assert [one.epoch for one in after.ssts()] == [NOW + 1, 0]
    assert after == advance(before, [delta], check=False)
    assert after.renumbered is not None
    assert (after.renumbered.seq, after.renumbered.first, after.renumbered.last) == (after.seq, FAR, FAR + 3)


def test_changes_that_a_repair_does_not_know_stop_it() -> None:
    """A commit, a compaction or a vacuum that came first; and a map that would change the order of versions."""
    before = ahead()
    delta = repair_of(before)
    (old,) = delta.rewritten
    later = advance(before, [CommitEpoch(epoch=FAR + 9, at_ms=1, tables={1: (run(sst(epoch=FAR + 9)),)})])
    with pytest.raises(Conflict, match=r"written to or compacted.*stop its processes"):
        advance(later, [delta])
    with pytest.raises(Conflict):
        advance(before, [replace(delta, rewritten={})])
    with pytest.raises(Conflict):
        advance(before, [replace(delta, rewritten={**delta.rewritten, "f" * 32: sst()})])
    with pytest.raises(StaleUpload):
        advance(replace(before, gc_horizon="f" * 32), [delta])
    for epochs in (((FAR, NOW), (FAR + 3, NOW)), ((FAR, 4), (FAR + 3, 5)), ((FAR + 3, NOW), (FAR, NOW + 1))):
        with pytest.raises(InvalidBatch, match="keep their order"):
            advance(before, [replace(delta, epochs=epochs)])
    new = delta.rewritten[old]
    for wrong in (
        replace(new, rows=99),
        replace(new, max_epoch=FAR),
        replace(new, smallest=b"b"),
        replace(new, epoch=NOW),
        replace(new, entry=1),
        replace(new, id=old),
    ):
        with pytest.raises(InvalidBatch, match="nothing changed"):
            advance(before, [replace(delta, rewritten={old: wrong})])


def test_a_commit_whose_read_epoch_was_renumbered_has_to_read_again() -> None:
    """The commit is refused as if the table had been written since; a repeated one is recognised by its SSTs."""
    before = ahead()
    after = advance(before, [repair_of(before)])
    with pytest.raises(Conflict, match="another number"):
        stamp(after, request(NOW + 50, expect={1: FAR + 3}), AT_MS)
    fine = stamp(after, request(NOW + 50, expect={1: NOW + 1}), AT_MS)
    assert isinstance(fine, CommitEpoch)
    repeated = [one for one in before.ssts() if one.epoch]
    assert stamp(after, request(FAR + 3, 1, *repeated), AT_MS) == AlreadyCommitted(NOW + 1)
    # Once the store has come to these numbers they are epochs like any other.
    much_later = replace(after, max_committed_epoch=FAR + 1)
    assert isinstance(stamp(much_later, request(FAR + 50, expect={1: FAR + 3}), AT_MS), CommitEpoch)


def test_pins_on_old_numbers_end_and_others_stay() -> None:
    """Pins of this process and adopted ones alike."""
    system = FakeSystem()
    bucket = ModelBucket(system)
    log = VersionLog(bucket, system, owner="a")
    start = ahead()
    log.append(
        lambda version: (
            [BeginStore(version=start, origin=Origin(kind="restore", url="x", backup="", backup_id="", seq=1))],
            None,
        )
    )
    keeper = PinKeeper(bucket, system, log, owner="a", retention_ms=10**18)
    held, kept = keeper.pin(None, holder="a session"), keeper.pin(5, holder="a session")
    keeper.renew()
    log.append(lambda version: ([repair_of(version)], None))
    with pytest.raises(SnapshotExpired, match="far ahead"):
        held.check()
    with pytest.raises(SnapshotExpired, match="far ahead"):
        keeper.adopt(held.info, "a session")
    kept.check()
    keeper.adopt(kept.info, "a session").check()
    keeper.release_all()


def test_a_copy_of_a_repaired_store_has_no_renumbered_epochs() -> None:
    """Entries of another log say nothing about pins of this store."""
    before = ahead()
    after = advance(before, [repair_of(before)])
    origin = Origin(kind="restore", url="x", backup="b", backup_id="", seq=after.seq)
    begun = BeginStore(version=after, origin=origin).apply(Version())
    assert begun.renumbered is None
