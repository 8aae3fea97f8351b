"""The change feed: every change of every epoch with its preimage, whatever was compacted meanwhile."""

from typing import Any

import pytest

from support.models.change_history import History, changes_in
from tussock.meta.compaction import own_tasks
from tussock.meta.compaction.picker_config import Pick
from tussock.statestore import InvalidOption, SchemaMismatch, SnapshotExpired, StateStore, connect


@pytest.mark.parametrize("seed", [1, 2])
def test_the_feed_is_exact_between_any_two_epochs(store: StateStore, seed: int) -> None:
    """Random upserts and deletes, compacted and vacuumed in between: each range gives exactly its changes."""
    history = History(store, seed)
    for step in range(9):
        history.commit()
        if step % 3 == 2:
            store.compact("t")
            store.vacuum()
    epochs = [0, *history.epochs]
    for after in epochs:
        for until in (epoch for epoch in epochs[1:] if epoch >= after):
            assert changes_in(history.table.change_feed(after, until)) == history.between(after, until)
            assert history.table.change_epochs(after, until) == [e for e in history.epochs if after < e <= until]
    halves = [changes_in(history.table.change_feed(epochs[3], vnodes=half)) for half in ((0, 100), (100, 256))]
    assert sorted(halves[0] + halves[1]) == history.between(epochs[3], epochs[-1])
    assert all(halves)


def test_without_before_images_keys_and_operations_are_the_same(store: StateStore) -> None:
    """There are no preimages, and a deleted row shows only its key."""
    history = History(store, 3)
    for _ in range(6):
        history.commit()
    after = history.epochs[1]
    rows = [row for batch in history.table.change_feed(after, before_images=False) for row in batch.to_pylist()]
    expected = [
        (epoch, key, op, None if op == "delete" else v)
        for epoch, key, op, v in history.between(after, history.epochs[-1])
        if op != "update_preimage"
    ]
    assert sorted((row["epoch"], row["id"], row["op"], row["v"]) for row in rows) == expected
    assert all(row["x"] is None for row in rows if row["op"] == "delete")
    picked = next(iter(history.table.change_feed(after, columns=["v"])))
    assert picked.schema.names == ["v", "op", "epoch"]


def test_a_raw_tables_feed_is_by_key_and_then_epoch(store: StateStore) -> None:
    """Keys in a range, each key's changes in the order of their epochs."""
    kv = store.create_table("kv")
    epochs = []
    for rows in ([(b"a", b"1"), (b"b", b"1"), (b"c", b"1")], [(b"b", b"2")], [(b"b", None), (b"z", None)]):
        epoch = store.new_epoch()
        kv.ingest_batch(rows, epoch)
        epochs.append(store.commit_epoch(epoch))
    found = [row for batch in kv.change_feed(0, start=b"b") for row in batch.to_pylist()]
    assert [(row["key"], row["value"], row["op"], epochs.index(row["epoch"])) for row in found] == [
        (b"b", b"1", "insert", 0),
        (b"b", b"1", "update_preimage", 1),
        (b"b", b"2", "update_postimage", 1),
        (b"b", b"2", "delete", 2),
        (b"c", b"1", "insert", 0),
    ]
    assert list(kv.change_feed(epochs[0], epochs[1], end=b"b")) == []


def test_a_pin_keeps_the_feed_past_the_retention(bucket_url: str) -> None:
    """With a retention of 0 all changes after the pinned epoch are there until the pin ends."""
    with connect(bucket_url, retention=0, gc_grace=0, compaction=False) as store:
        history = History(store, 4)
        history.commit()
        with store.pin_snapshot() as snapshot:
            for _ in range(5):
                history.commit()
            store.compact("t")
            store.vacuum()
            pinned: Any = snapshot.table("t")
            expected = history.between(snapshot.epoch, history.epochs[-1])
            assert changes_in(pinned.change_feed(snapshot.epoch)) == expected
            assert changes_in(pinned.change_feed(history.epochs[2])) == history.between(
                history.epochs[2], history.epochs[-1]
            )
            assert pinned.change_epochs(snapshot.epoch) == history.epochs[1:]
            with pytest.raises(InvalidOption, match="keeps those after it only"):
                pinned.change_feed(snapshot.epoch - 1)
        history.commit()
        store.compact("t")
        with pytest.raises(SnapshotExpired, match="oldest readable epoch") as expired:
            history.table.change_feed(history.epochs[0])
        assert expired.value.args[1:] == (history.epochs[0], history.epochs[-1])
        with pytest.raises(SnapshotExpired, match="oldest readable epoch"):
            history.table.change_epochs(history.epochs[0])


def test_a_feed_continues_though_vacuum_deleted_its_files(bucket_url: str) -> None:
    """The feed began on a version whose SSTs are gone by now: it shows the same changes."""
    with connect(bucket_url, gc_grace=0, compaction=False) as store:
        history = History(store, 5)
        for _ in range(6):
            history.commit()
        begun = history.table.change_feed(history.epochs[0])
        store.compact("t")
        store.vacuum()
        history.commit()
        assert changes_in(begun) == history.between(history.epochs[0], history.epochs[-2])


def test_a_feed_reads_only_ssts_with_epochs_of_its_range(bucket_url: str) -> None:
    """A feed of the newest epochs without keys from before does not read old, compacted rows."""
    with connect(bucket_url, compaction=False) as store:
        kv = store.create_table("kv")
        epoch = store.new_epoch()
        kv.ingest_batch([(b"%08d" % number, bytes(64)) for number in range(20_000)], epoch)
        first = store.commit_epoch(epoch)
        store.compact("kv")
        epoch = store.new_epoch()
        kv.ingest_batch([(b"x", b"1")], epoch)
        store.commit_epoch(epoch)
    with connect(bucket_url, compaction=False) as store:
        kv = store.table("kv")
        before = sum(size for _, size in store.requests().get("read", {}).values())
        assert [batch.num_rows for batch in kv.change_feed(first)] == [1]
        read_bytes = sum(size for _, size in store.requests()["read"].values()) - before
        assert read_bytes < 20_000, f"{read_bytes} bytes for one row"


def test_the_row_before_is_the_newest_whatever_levels_and_blocks_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """The replaced row lies in an SST that need not be read, and an older one in a block that is read."""
    with connect("memory://levels", compaction=False) as store:
        kv = store.create_table("kv")
        epochs = []
        for key, value in ((b"k", b"3"), (b"k", b"5"), (b"j", b"8"), (b"k", b"9")):
            epoch = store.new_epoch()
            kv.ingest_batch([(key, value)], epoch)
            epochs.append(store.commit_epoch(epoch))
        # The neighbour and the oldest row go into one block of L2, past the row between them, which goes to L1.
        for level, key in ((2, b"k"), (1, b"k"), (2, b"j")):

            def choose(state: Any, *_: Any, level: int = level, key: bytes = key) -> Pick:
                oldest = next(sub.ssts for sub in reversed(state.levels.l0) if sub.ssts[0].smallest == key)
                below = state.levels.levels[level - 1] if level <= len(state.levels.levels) else ()
                inputs = tuple(run for run in (tuple(oldest), tuple(below)) if run)
                return Pick("level", inputs, level, bottom=False, score=1.0, reason="the test asks for it")

            monkeypatch.setattr(own_tasks, "pick_manual", choose)
            store.compact("kv")
        state = store.version().find_table("kv")
        assert state
        runs = [[(sst.min_epoch, sst.max_epoch) for sst in run] for run in state.levels.runs()]
        assert runs == [[(epochs[3], epochs[3])], [(epochs[1], epochs[1])], [(epochs[0], epochs[2])]]
        found = [row for batch in kv.change_feed(epochs[1]) for row in batch.to_pylist()]
    assert [(row["key"], row["value"], row["op"]) for row in found] == [
        (b"j", b"8", "insert"),
        (b"k", b"5", "update_preimage"),
        (b"k", b"9", "update_postimage"),
    ]


def test_a_wrong_range_of_a_feed_is_refused_at_once(store: StateStore) -> None:
    """Uncommitted epochs, ranges that run backwards, missing columns."""
    history = History(store, 6)
    newest = history.commit()
    for call in (
        lambda: history.table.change_feed(0, newest + 1),
        lambda: history.table.change_epochs(0, newest + 1),
        lambda: history.table.change_feed(newest + 1),
        lambda: history.table.change_feed(-1),
        lambda: history.table.change_feed(newest, newest - 1),
    ):
        with pytest.raises(InvalidOption, match=r"not|expected 0 <= from_epoch|newest committed"):
            call()
    with pytest.raises(SchemaMismatch, match="no columns"):
        history.table.change_feed(0, columns=["absent"])
    with pytest.raises(InvalidOption, match="vnodes"):
        history.table.change_feed(0, vnodes=(3, 2))
