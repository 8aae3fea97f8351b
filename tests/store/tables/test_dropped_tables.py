"""A snapshot shows the tables of its moment, whatever is dropped and created later."""

import pytest

from support import inside
from support.store.stores import OBJECTS, TickingSystem, changes_of, open_on, pairs, sst_objects
from support.store.versions import ModelBucket
from tussock.statestore import StateStore, TableNotFound


def _write(store: StateStore, table: str, *rows: tuple[bytes, bytes]) -> int:
    epoch = store.new_epoch()
    store.table(table).ingest_batch(sorted(rows), epoch)
    return store.commit_epoch(epoch)


def test_a_snapshot_reads_the_table_that_had_the_name(store: StateStore, other: StateStore) -> None:
    """After a drop and a creation by any client the snapshot shows the old table, and the store the new one."""
    store.create_table("kv")
    _write(store, "kv", (b"a", b"old"))
    with store.pin_snapshot() as snapshot:
        before = snapshot.table("kv")
        other.drop_table("kv")
        for _ in range(2):
            assert snapshot.table("kv").get(b"a") == before.get(b"a") == b"old"
            other.vacuum()
            if "kv" not in other.tables():
                other.create_table("kv")
                held = _write(other, "kv", (b"b", b"new"))
                store.wait_epoch(held)
        assert pairs(snapshot.table("kv").scan()) == [(b"a", b"old")]
        assert not changes_of(snapshot.table("kv"), snapshot.epoch)
        assert pairs(store.table("kv").scan()) == [(b"b", b"new")]
    with store.pin_snapshot() as newer:
        assert pairs(newer.table("kv").scan()) == [(b"b", b"new")]


def test_a_later_table_is_not_in_a_snapshot(store: StateStore) -> None:
    """Neither one with rows nor an empty one, even if nothing was committed in between."""
    store.create_table("kv")
    _write(store, "kv", (b"a", b"1"))
    with store.pin_snapshot() as snapshot:
        store.create_table("empty")
        with pytest.raises(TableNotFound, match=rf"'empty'.*as of this snapshot, epoch {snapshot.epoch}"):
            snapshot.table("empty")
        _write(store, "empty", (b"a", b"1"))
        with pytest.raises(TableNotFound):
            snapshot.table("empty")
        store.drop_table("kv")
        store.create_table("kv")
        with store.pin_snapshot() as between:
            store.drop_table("kv")
            assert pairs(between.table("kv").scan()) == []
        assert pairs(snapshot.table("kv").scan()) == [(b"a", b"1")]


def test_a_snapshot_of_a_given_epoch_reads_a_table_that_an_older_one_keeps(
    store: StateStore, other: StateStore
) -> None:
    """A job can therefore hand its epoch to its workers, which pin it after the table was dropped."""
    store.create_table("kv")
    _write(store, "kv", (b"a", b"old"))
    with store.pin_snapshot() as job:
        store.drop_table("kv")
        store.create_table("kv")
        _write(store, "kv", (b"a", b"new"))
        other.vacuum()
        with other.pin_snapshot(job.epoch) as worker:
            assert worker.table("kv").get(b"a") == b"old"


def test_a_read_without_a_pin_finds_no_dropped_table(store: StateStore) -> None:
    """Neither the newest epoch nor an old one shows it: only a pin keeps it."""
    kv = store.create_table("kv")
    epoch = _write(store, "kv", (b"a", b"old"))
    with store.pin_snapshot() as snapshot:
        assert snapshot.table("kv").get(b"a") == b"old"
        store.drop_table("kv")
        for read in (lambda: kv.get(b"a"), lambda: kv.get(b"a", epoch=epoch), lambda: store.table("kv")):
            with pytest.raises(TableNotFound, match="kv"):
                read()
        assert snapshot.table("kv").get(b"a") == b"old"


def test_a_dropped_table_goes_with_its_last_pin() -> None:
    """While it is pinned its objects stay for any grace period; then nothing of it is left, nor in the version."""
    system = TickingSystem()
    bucket = ModelBucket(system)
    store = inside.without_threads(open_on(bucket, system, gc_grace=0, limits=OBJECTS))
    store.create_table("kv")
    _write(store, "kv", (b"a", b"old"))
    objects = sst_objects(bucket)
    first, second = store.pin_snapshot(), store.pin_snapshot()
    store.drop_table("kv")
    for snapshot in (first, second):
        store.vacuum()
        assert sst_objects(bucket) == objects
        assert second.table("kv").get(b"a") == b"old"
        assert store.version().dropped == ()
        snapshot.close()
    assert any(reason.endswith("of a dropped table") for _, reason in store.vacuum(dry_run=True).deleted)
    assert sst_objects(bucket) == objects
    store.vacuum()
    version = store.version()
    assert sst_objects(bucket) == set()
    assert (version.tables, version.gone) == ({}, {})
    store.close()


def test_a_restored_store_has_no_dropped_table(store: StateStore) -> None:
    """A backup holds the existing tables, and none that only a pin keeps."""
    store.create_table("kv")
    store.create_table("other")
    _write(store, "kv", (b"a", b"1"))
    with store.pin_snapshot() as snapshot:
        store.drop_table("kv")
        made = store.backup("b")
        assert made.ssts == 0
        assert snapshot.table("kv").get(b"a") == b"1"
