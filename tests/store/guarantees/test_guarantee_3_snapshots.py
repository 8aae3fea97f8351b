"""Guarantee 3: a read at an epoch is the same whatever happens meanwhile, for as long as the epoch is kept."""

from collections.abc import Callable
from typing import Any

import pytest

from support import inside
from support.store.stores import TickingSystem, open_on, pairs
from support.store.versions import ModelBucket
from tussock.statestore import InvalidOption, SnapshotExpired, StateStore, StoreClosed, connect


def live_ids(store: StateStore) -> set[str]:
    """Ids of the SSTs that a scan of the newest epoch reads."""
    state: Any = store.version().find_table("kv")
    return {sst.id for sst in state.levels.live_ssts()}


def commit(store: StateStore, rows: list[tuple[bytes, bytes | None]], table: str = "kv") -> int:
    epoch = store.new_epoch()
    store.table(table).ingest_batch(rows, epoch)
    return store.commit_epoch(epoch)


def test_every_epoch_of_a_history_reads_as_at_its_time(store: StateStore) -> None:
    """a@1 put, a@2 delete, a@3 put: present, absent, present; an epoch between two commits reads as the older."""
    kv = store.create_table("kv")
    first = commit(store, [(b"a", b"1"), (b"b", b"1")])
    second = commit(store, [(b"a", None)])
    third = commit(store, [(b"a", b"3")])
    expected = {first: b"1", second: None, third: b"3"}
    for _ in ("as committed", "compacted"):
        assert {epoch: kv.get(b"a", epoch=epoch) for epoch in expected} == expected
        assert {epoch: dict(pairs(kv.scan(epoch=epoch))).get(b"a") for epoch in expected} == expected
        assert pairs(kv.scan(limit=1, epoch=second)) == [(b"b", b"1")], "a limit counts visible rows"
        assert kv.get(b"a", epoch=third + 1000) == b"3"
        assert kv.get(b"a", epoch=first - 1) is None
        store.compact("kv")


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_pin_around_a_compaction_reads_the_same(bucket_url: str, when: str) -> None:
    """Taken before or after it: with a retention of 0, the pinned epoch is exact."""
    with connect(bucket_url, retention=0, gc_grace=0, compaction=False) as store:
        kv = store.create_table("kv")
        commit(store, [(b"a", b"1"), (b"b", b"1")])
        epoch = commit(store, [(b"a", b"2"), (b"b", None)])
        if when == "before":
            snapshot = store.pin_snapshot()
            commit(store, [(b"a", b"3"), (b"b", b"3")])
            store.compact("kv")
        else:
            store.compact("kv")
            snapshot = store.pin_snapshot()
            commit(store, [(b"a", b"3"), (b"b", b"3")])
        store.compact("kv")
        store.vacuum()
        with snapshot:
            assert snapshot.epoch == epoch
            assert pairs(snapshot.table("kv").scan()) == [(b"a", b"2")]
            assert snapshot.table("kv").get(b"b") is None
        assert pairs(kv.scan()) == [(b"a", b"3"), (b"b", b"3")]


def test_a_pin_during_a_compaction_reads_the_same() -> None:
    """The claim has raised the safe epoch up to the newest commit, whose pin has to hold, too."""
    with connect("memory://", retention=0, gc_grace=0, compaction=False) as store:
        kv = store.create_table("kv")
        commit(store, [(b"a", b"1"), (b"b", b"1")])
        epoch = commit(store, [(b"a", b"2"), (b"b", None)])
        task = inside.backend(store).meta.own_tasks.claim("kv", manual=True)
        with store.pin_snapshot() as snapshot:
            commit(store, [(b"a", b"3"), (b"b", b"3")])
            inside.execute(inside.backend(store), task)
            store.vacuum()
            assert snapshot.epoch == epoch
            assert pairs(snapshot.table("kv").scan()) == [(b"a", b"2")]
        assert pairs(kv.scan()) == [(b"a", b"3"), (b"b", b"3")]


def test_a_snapshot_of_another_process_holds_back_compaction(store: StateStore, other: StateStore) -> None:
    """The compacting process knows of the pin only from the bucket."""
    store.create_table("kv")
    epochs = [commit(store, [(b"a", b"%d" % at)]) for at in range(5)]
    with other.pin_snapshot(epochs[1]) as snapshot:
        for _ in range(2):
            store.compact("kv")
            store.vacuum()
            assert snapshot.table("kv").get(b"a") == b"1"
        assert [pin.epoch for pin in store.pins()] == [epochs[1]]
    assert store.pins() == []


def test_a_read_past_the_retention_goes_through_a_pin(bucket_url: str) -> None:
    """Without a snapshot no client reads there, nor does the pin's holder; the error names the call that does."""
    with (
        connect(bucket_url, retention=0, compaction=False) as store,
        connect(bucket_url, retention=0, compaction=False) as other,
    ):
        store.create_table("kv")
        old = commit(store, [(b"a", b"1")])
        with other.pin_snapshot(old) as held:
            newest = [commit(store, [(b"a", value)]) for value in (b"2", b"3")][-1]
            store.compact("kv")
            for client in (store, other):
                client.wait_epoch(newest)
                with pytest.raises(SnapshotExpired, match=rf"through pin_snapshot\({old}\)"):
                    client.table("kv").get(b"a", epoch=old)
                with client.pin_snapshot(old) as snapshot:
                    assert snapshot.table("kv").get(b"a") == b"1"
            assert held.table("kv").get(b"a") == b"1"


def test_an_expired_epoch_is_refused_naming_the_oldest_readable_one() -> None:
    """Every kind of read refuses it, and so does a pin; the oldest readable epoch itself works."""
    system = TickingSystem()
    store = open_on(ModelBucket(system), system, retention=60)
    kv = store.create_table("kv")
    old = commit(store, [(b"a", b"1")])
    system.forward(30)
    oldest = commit(store, [(b"a", b"2")])
    system.forward(40)
    newest = commit(store, [(b"a", b"3")])
    reads: list[Callable[[int], object]] = [
        lambda epoch: kv.get(b"a", epoch=epoch),
        lambda epoch: kv.multi_get([b"a"], epoch=epoch),
        lambda epoch: pairs(kv.scan(epoch=epoch)),
        lambda epoch: list(kv.changes(epoch)),
        lambda epoch: store.pin_snapshot(epoch).close(),
    ]
    for read in reads:
        read(old)
    system.forward(25)
    for read in reads:
        read(oldest)
        with pytest.raises(SnapshotExpired, match=rf"epoch {old} .*oldest readable epoch is {oldest}"):
            read(old)
    assert kv.get(b"a", epoch=newest) == b"3"
    assert store.pins() == [], "a pin that is refused is none"


def test_a_reader_behind_a_compaction_of_another_process_gets_no_wrong_answer() -> None:
    """Its own retention would have kept the epoch, but it reads the newest version, where the epoch is gone."""
    system = TickingSystem()
    bucket = ModelBucket(system)
    patient, hasty = open_on(bucket, system, retention=1000), open_on(bucket, system, retention=0)
    kv = patient.create_table("kv")
    old = commit(patient, [(b"a", b"1")])
    oldest = commit(patient, [(b"a", b"2")])
    reads: list[Callable[[], object]] = [
        lambda: kv.get(b"a", epoch=old),
        lambda: kv.multi_get([b"a"], epoch=old),
        lambda: pairs(kv.scan(epoch=old)),
        lambda: list(kv.changes(old - 1, old)),
    ]
    for read in reads:
        read()
    hasty.compact("kv")
    # Within the quarter of a second in which a read trusts the version that it knows, the old SSTs are still there.
    assert kv.get(b"a", epoch=old) == b"1"
    for read in reads:
        inside.forget_version(inside.backend(patient))
        with pytest.raises(SnapshotExpired, match=str(oldest)):
            read()


def test_a_read_that_looks_for_a_newer_version_checks_the_epoch_on_that_one() -> None:
    """Story: an epoch was checked on the known version, then the read took a newer one where it was gone."""
    system = TickingSystem()
    bucket = ModelBucket(system)
    reads: dict[str, Callable[[Any, int], object]] = {
        "get": lambda kv, epoch: kv.get(b"a", epoch=epoch),
        "multi_get": lambda kv, epoch: kv.multi_get([b"a"], epoch=epoch),
        "scan": lambda kv, epoch: pairs(kv.scan(epoch=epoch)),
        "changes": lambda kv, epoch: list(kv.changes(epoch - 1, epoch)),
    }
    for name, read in reads.items():
        patient, hasty = open_on(bucket, system, retention=1000), open_on(bucket, system, retention=0)
        kv = patient.create_table(name)
        old = commit(patient, [(b"a", b"1")], name)
        commit(patient, [(b"a", b"2")], name)
        hasty.compact(name)
        system.forward(1)
        with pytest.raises(SnapshotExpired, match=str(old)):
            read(kv, old)


def test_a_pinned_epoch_outlives_the_retention_until_the_pin_is_closed() -> None:
    """Reads through it are exact for hours; afterwards they raise that it was closed, and compaction may pass it."""
    system = TickingSystem()
    store = open_on(ModelBucket(system), system, retention=10, gc_grace=0)
    system.on_tick.append(inside.pin_keeper(inside.backend(store)).renew)
    kv = store.create_table("kv")
    old = commit(store, [(b"a", b"1")])
    snapshot = store.pin_snapshot()
    commit(store, [(b"a", b"2")])
    system.forward(3 * 3600)
    store.compact("kv")
    store.vacuum()
    assert snapshot.table("kv").get(b"a") == b"1"
    with pytest.raises(SnapshotExpired, match=str(old)):
        kv.get(b"a", epoch=old)
    snapshot.close()
    snapshot.close()
    with pytest.raises(StoreClosed, match=str(old)):
        snapshot.table("kv").get(b"a")
    store.compact("kv")
    assert sum(sst.rows for state in store.version().tables.values() for sst in state.levels.ssts()) == 1


def test_a_lease_that_was_not_renewed_is_lost_and_says_so() -> None:
    """A process that stood still for longer than its lease cannot trust its snapshot."""
    system = TickingSystem()
    store = open_on(ModelBucket(system), system)
    store.create_table("kv")
    commit(store, [(b"a", b"1")])
    snapshot = store.pin_snapshot()
    system.forward(61)
    with pytest.raises(SnapshotExpired, match="not renewed"):
        snapshot.table("kv").get(b"a")


def test_an_epoch_that_is_not_committed_cannot_be_pinned(store: StateStore) -> None:
    """Such a snapshot could still change."""
    store.create_table("kv")
    newest = commit(store, [(b"a", b"1")])
    with pytest.raises(InvalidOption, match=rf"{newest + 1} is not committed.* is {newest}"):
        store.pin_snapshot(newest + 1)


def test_a_snapshot_takes_no_writes_and_no_other_epoch(store: StateStore) -> None:
    """It reads at its own epoch only."""
    store.create_table("kv")
    newest = commit(store, [(b"a", b"1")])
    with store.pin_snapshot() as snapshot:
        table = snapshot.table("kv")
        assert table.get(b"a", epoch=newest) == b"1"
        with pytest.raises(InvalidOption, match=f"its own epoch {newest}"):
            table.get(b"a", epoch=newest - 1)
        with pytest.raises(InvalidOption, match="through a snapshot"):
            table.ingest_batch([(b"a", b"2")], store.new_epoch())


def test_a_scan_survives_compaction_and_vacuum(bucket_url: str) -> None:
    """During a scan all its SSTs are replaced and deleted: it yields the rows of its epoch."""
    with connect(bucket_url, gc_grace=0, cache_bytes=0, compaction=False) as store:
        kv = store.create_table("kv", block_bytes=16 << 10, compression="none")
        value = b"v" * 200
        # More than two segments of blocks, so that some are read only after the vacuum.
        rows = [(b"%06d" % at, value) for at in range(40_000)]
        epoch = commit(store, rows)
        for reverse in (False, True):
            batches = kv.scan(epoch=epoch, reverse=reverse)
            found = pairs([next(batches)])
            assert len(found) < len(rows) / 2
            commit(store, [(b"%06d" % at, b"later") for at in range(0, 40_000, 7)])
            before = live_ids(store)
            store.compact("kv")
            store.vacuum()
            assert not before & live_ids(store)
            found += pairs(batches)
            assert found == (rows[::-1] if reverse else rows)
