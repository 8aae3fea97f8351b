"""Guarantee 6: compaction keeps the newest version, all above the watermark, and the newest at or below it."""

from typing import Any

import pytest

from support import inside
from support.store.stores import OBJECTS, TickingSystem, open_on, pairs
from support.store.versions import ModelBucket
from tussock.statestore import CorruptSst, StateStore, connect
from tussock.statestore.contract.records import SstInfo, data_path


def full_keys(store: StateStore, table: str = "kv") -> list[tuple[bytes, int, bytes | None]]:
    """(key, epoch, value or `None` for a delete) of every row of the table, of the live tree or history.

    Each is in one SST at most, and in the order of full keys on disk.
    """
    state: Any = store.version().find_table(table)
    tables = inside.sstables(store)
    found = []
    for ssts in (state.levels.live_ssts(), state.levels.history_ssts()):
        assert len(ssts) <= 1
        for sst in ssts:
            meta = tables.meta(sst)
            for block in range(meta.blocks):
                rows = tables.block(sst, meta, block).rows
                deletes, epochs = rows.delete_array(), rows.epoch_array()
                values = rows.columns[-1].to_pylist()
                here = [(rows.key(at), int(epochs[at]), None if deletes[at] else values[at]) for at in range(len(rows))]
                assert here == sorted(here, key=lambda row: (row[0], -row[1]))
                found += here
    return sorted(found, key=lambda row: (row[0], -row[1]))


def ssts(store: StateStore, table: str = "kv") -> list[SstInfo]:
    state: Any = store.version().find_table(table)
    return state.levels.ssts()


def commit(store: StateStore, epoch: int, rows: list[tuple[bytes, bytes | None]], table: str = "kv") -> None:
    store.table(table).ingest_batch(rows, epoch)
    assert store.commit_epoch(epoch) == epoch


def test_the_seeds_compaction_with_watermark_0(store: StateStore) -> None:
    """Two batches become (a,2) delete, (a,1) 1, (b,2) 3, (b,1) 2; only what the newest epoch shows stays live."""
    store.create_table("kv")
    commit(store, 1, [(b"a", b"1"), (b"b", b"2")])
    commit(store, 2, [(b"a", None), (b"b", b"3")])
    assert len(ssts(store)) == 2
    store.compact("kv")
    assert full_keys(store) == [(b"a", 2, None), (b"a", 1, b"1"), (b"b", 2, b"3"), (b"b", 1, b"2")]
    live, past = ssts(store)
    assert (live.epoch, live.min_epoch, live.max_epoch, live.rows, live.deletes, live.until) == (0, 2, 2, 1, 0, 0)
    assert (past.epoch, past.min_epoch, past.max_epoch, past.rows, past.deletes, past.until) == (0, 1, 2, 3, 1, 2)


@pytest.mark.parametrize(
    ("watermark", "kept"),
    [
        (1, [(b"a", 3, None), (b"a", 2, b"2"), (b"a", 1, b"1"), (b"b", 3, b"3"), (b"b", 1, b"1"), (b"c", 2, None)]),
        (2, [(b"a", 3, None), (b"a", 2, b"2"), (b"b", 3, b"3"), (b"b", 1, b"1")]),
        (3, [(b"b", 3, b"3")]),
    ],
)
def test_compaction_keeps_versions_from_the_smallest_pin_on(watermark: int, kept: list[Any]) -> None:
    """With a retention of 0, the smallest pinned epoch is the watermark; without a pin the newest committed one is."""
    system = TickingSystem()
    store = open_on(ModelBucket(system), system, retention=0)
    kv = store.create_table("kv")
    commit(store, 1, [(b"a", b"1"), (b"b", b"1")])
    first = store.pin_snapshot() if watermark == 1 else None
    commit(store, 2, [(b"a", b"2"), (b"c", None)])
    second = store.pin_snapshot() if watermark == 2 else None
    commit(store, 3, [(b"a", None), (b"b", b"3")])
    store.compact("kv")
    # c@2 is a delete: above watermark 1 it stays; at watermark 2 nothing is below it, so it vanishes.
    assert full_keys(store) == kept
    assert pairs(kv.scan()) == [(b"b", b"3")]
    for snapshot, expected in ((first, [(b"a", b"1"), (b"b", b"1")]), (second, [(b"a", b"2"), (b"b", b"1")])):
        if snapshot is not None:
            assert pairs(snapshot.table("kv").scan()) == expected
            snapshot.close()


def test_deletes_vanish_only_at_the_bottom() -> None:
    """Two keys lie at the bottom, one is deleted: merges above keep the delete, which goes with the row it hides."""
    system = TickingSystem()
    store = open_on(ModelBucket(system), system, retention=0)
    kv = store.create_table("kv")
    commit(store, 1, [(b"a", b"1"), (b"b", b"2")])
    store.compact("kv")
    for epoch in range(2, 6):
        commit(store, epoch, [(b"a", None), (b"c", b"%d" % epoch)])
    backend: Any = inside.backend(store)
    assert inside.step(backend), "four small runs are worth a merge inside L0"
    upper = store.version().find_table("kv").levels.l0  # type: ignore[union-attr]
    assert [sst.deletes for sub in upper for sst in sub.ssts] == [1], "not at the bottom: the delete has to hide a@1"
    assert pairs(kv.scan()) == [(b"b", b"2"), (b"c", b"5")]
    store.compact("kv")
    assert full_keys(store) == [(b"b", 1, b"2"), (b"c", 5, b"5")]


def test_a_table_of_deletes_only_compacts_to_nothing() -> None:
    """No SST is left, and vacuum leaves no object."""
    system = TickingSystem()
    bucket = ModelBucket(system)
    store = open_on(bucket, system, retention=0, gc_grace=0)
    kv = store.create_table("kv")
    commit(store, 1, [(b"a", b"1")])
    commit(store, 2, [(b"a", None), (b"b", None)])
    store.compact("kv")
    assert ssts(store) == []
    system.forward(1)
    store.vacuum()
    assert list(bucket.list("sst/")) == []
    assert pairs(kv.scan()) == []


def test_more_versions_of_a_key_than_fit_a_block_stay_in_order(store: StateStore) -> None:
    """Each of 60 versions over many blocks is found by its epoch, forward and reverse."""
    kv = store.create_table("kv", block_bytes=256)
    for epoch in range(1, 61):
        commit(
            store,
            epoch,
            [(b"a", b"a"), (b"key", b"%060d" % epoch), (b"z", b"z")] if epoch == 1 else [(b"key", b"%060d" % epoch)],
        )
    store.compact("kv")
    assert [epoch for key, epoch, _ in full_keys(store) if key == b"key"] == list(range(60, 0, -1))
    for epoch in (1, 2, 30, 59, 60):
        value = b"%060d" % epoch
        assert kv.get(b"key", epoch=epoch) == value
        assert kv.multi_get([b"key"], epoch=epoch).to_pylist() == [value]
        rows = [(b"a", b"a"), (b"key", value), (b"z", b"z")]
        assert pairs(kv.scan(epoch=epoch)) == rows
        assert pairs(kv.scan(epoch=epoch, reverse=True)) == rows[::-1]
        assert pairs(kv.scan(start=b"b", epoch=epoch, limit=1)) == rows[1:2]


def test_a_compaction_over_a_damaged_sst_changes_nothing(tmp_path: Any) -> None:
    """`CorruptSst` names the object; the version stays, and other tables are compacted and read."""
    with connect(f"file://{tmp_path}", compaction=False, limits=OBJECTS) as store:
        for name in ("bad", "good"):
            store.create_table(name)
            commit(store, store.new_epoch(), [(b"a", b"1")], name)
            commit(store, store.new_epoch(), [(b"a", b"2"), (b"b", b"2")], name)
        victim = data_path(ssts(store, "bad")[0].id)
        data = bytearray((tmp_path / victim).read_bytes())
        data[len(data) // 2] ^= 1
        (tmp_path / victim).write_bytes(data)
        before = store.version().find_table("bad").levels  # type: ignore[union-attr]
        with pytest.raises(CorruptSst, match=victim):
            store.compact("bad")
        assert store.version().find_table("bad").levels == before  # type: ignore[union-attr]
        store.compact("good")
        assert pairs(store.table("good").scan()) == [(b"a", b"2"), (b"b", b"2")]
        data[len(data) // 2] ^= 1
        (tmp_path / victim).write_bytes(data)
        store.compact("bad")
        assert pairs(store.table("bad").scan()) == [(b"a", b"2"), (b"b", b"2")]


def test_compacting_twice_at_once_does_the_work_once() -> None:
    """It waits for a task of another process; an expired one is taken back, and its report is refused."""
    system = TickingSystem()
    bucket = ModelBucket(system)
    slow, fast = open_on(bucket, system), open_on(bucket, system)
    kv = slow.create_table("kv")
    commit(slow, 1, [(b"a", b"1")])
    commit(slow, 2, [(b"a", b"2")])
    backend: Any = inside.backend(slow)
    task = backend.meta.own_tasks.claim("kv", manual=True)
    fast.compact("kv")
    version = fast.version()
    inside.execute(backend, task)
    assert slow.version().tables == version.tables, "the late report changed nothing"
    assert kv.get(b"a") == b"2"
