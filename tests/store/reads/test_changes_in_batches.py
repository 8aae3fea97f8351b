"""`changes`: every version of a range of epochs, a batch after the other, however long the history."""

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from support import inside
from support.buckets.faulty_bucket import FaultyBucket
from support.store.stores import TickingSystem, changes_of, open_on
from support.store.versions import ModelBucket
from tussock.statestore import InvalidOption, SnapshotExpired, StateStore, StoreClosed, connect
from tussock.statestore.base.limits import Limits

SMALL = Limits(segment_bytes=128 << 10, batch_bytes=1 << 20, merge_bytes=2 << 20)
SCHEMA = pa.schema([("k", pa.string()), ("n", pa.int32()), ("op", pa.int64())])


def commit(store: StateStore, table: Any, rows: list[tuple[bytes, bytes | None]]) -> int:
    epoch = store.new_epoch()
    table.ingest_batch(rows, epoch)
    return store.commit_epoch(epoch)


def test_changes_come_by_key_and_then_by_epoch(store: StateStore) -> None:
    """Before and after a compaction, which brings the epochs together; a delete's value is null."""
    kv = store.create_table("kv")
    first = commit(store, kv, [(b"a", b"1"), (b"b", b"1")])
    second = commit(store, kv, [(b"a", None), (b"c", b"2")])
    third = commit(store, kv, [(b"a", b"3")])
    story = [
        {"key": b"a", "value": b"1", "op": "put", "epoch": first},
        {"key": b"a", "value": None, "op": "delete", "epoch": second},
        {"key": b"a", "value": b"3", "op": "put", "epoch": third},
        {"key": b"b", "value": b"1", "op": "put", "epoch": first},
        {"key": b"c", "value": b"2", "op": "put", "epoch": second},
    ]
    for step in (lambda: None, lambda: store.compact("kv")):
        step()
        assert [row for batch in kv.changes(0) for row in batch.to_pylist()] == story
        within = [row for batch in kv.changes(first, second) for row in batch.to_pylist()]
        assert within == [row for row in story if row["epoch"] == second]
        assert list(kv.changes(third)) == []


def test_a_typed_table_has_its_columns_and_two_more_whose_names_are_free(store: StateStore) -> None:
    """Deletes, also of rows that never were, have their key only."""
    table = store.create_table("t", SCHEMA, ["k"])
    epoch = store.new_epoch()
    table.upsert([{"k": "a", "n": 1, "op": 7}], epoch)
    table.delete(["b"], epoch)
    store.commit_epoch(epoch)
    rows = changes_of(table)
    assert sorted(rows, key=lambda row: row["k"]) == [
        {"k": "a", "n": 1, "op": 7, "_op": "put", "epoch": epoch},
        {"k": "b", "n": None, "op": None, "_op": "delete", "epoch": epoch},
    ]


def test_the_range_is_checked_at_the_call(store: StateStore) -> None:
    """Not at the first row, where it would look like a history without changes."""
    kv = store.create_table("kv")
    epoch = commit(store, kv, [(b"a", b"1")])
    with pytest.raises(InvalidOption, match="newest committed epoch"):
        kv.changes(0, epoch + 1)
    with pytest.raises(InvalidOption, match="from_epoch <= to_epoch"):
        kv.changes(epoch, epoch - 1)


@pytest.mark.parametrize("compacted", [False, True])
def test_memory_does_not_grow_with_the_history(tmp_path: Path, compacted: bool) -> None:
    """48 MB in 24 epochs pass through a few; and the first batch comes before most of them was read."""
    chance = random.Random(1)
    with connect(tmp_path.as_uri(), compaction=False, cache_bytes=1 << 20, limits=SMALL) as store:
        kv = store.create_table("kv")
        for _ in range(24):
            commit(store, kv, [(b"%05d" % key, chance.randbytes(1000)) for key in range(2000)])
        if compacted:
            store.compact("kv")
        pools = pa.default_memory_pool(), pa.system_memory_pool()
        before = sum(pool.bytes_allocated() for pool in pools)
        read = _bytes_read(store)
        rows, most, first = 0, 0, 0
        for batch in kv.changes(0):
            rows += batch.num_rows
            first = first or _bytes_read(store) - read
            most = max(most, sum(pool.bytes_allocated() for pool in pools) - before)
        assert rows == 24 * 2000
        assert most < 12 << 20
        assert first < 24 << 20 < _bytes_read(store) - read


def _bytes_read(store: StateStore) -> int:
    return sum(size for name, (_, size) in store.requests().get("read", {}).items() if name.startswith("get"))


@pytest.mark.parametrize("through_snapshot", [False, True])
def test_what_expires_meanwhile_is_not_left_out_silently(through_snapshot: bool) -> None:
    """Vacuum takes what was to come: the rest is right, or the error says that the epoch is gone."""
    system = TickingSystem()
    bucket = FaultyBucket(ModelBucket(system))
    limits = Limits(segment_bytes=1000, batch_bytes=2000, merge_bytes=1000, one_object_bytes=100, sst_bytes=4000)
    writer = open_on(bucket, system, retention=10, gc_grace=0, limits=limits)
    kv = writer.create_table("kv", block_bytes=256)
    for number in range(6):
        commit(writer, kv, [(b"%03d" % key, b"%d" % number * 30) for key in range(200)])
    reader = open_on(bucket, system, retention=10, cache_bytes=0, limits=limits)
    snapshot = reader.pin_snapshot()
    table = snapshot.table("kv") if through_snapshot else reader.table("kv")
    changes = table.changes(0)
    assert next(changes).num_rows
    if through_snapshot:
        system.on_tick.append(inside.pin_keeper(inside.backend(reader)).renew)
    else:
        snapshot.close()
    system.forward(60)
    commit(writer, kv, [(b"%03d" % key, b"new") for key in range(200)])
    system.forward(60)
    commit(writer, kv, [(b"zzz", b"")])
    writer.compact("kv")
    writer.vacuum()
    system.forward(60)
    writer.vacuum()
    with pytest.raises(SnapshotExpired, match="oldest readable epoch"):
        list(changes)


def test_changes_end_with_the_store() -> None:
    """Rows that are read ahead may still come, then it raises that the store was closed."""
    store = connect("memory://", compaction=False, cache_bytes=0, limits=SMALL)
    kv = store.create_table("kv")
    chance = random.Random(1)
    for _ in range(2):
        commit(store, kv, [(b"%05d" % key, chance.randbytes(1000)) for key in range(8000)])
    changes = kv.changes(0)
    next(changes)
    store.close()
    with pytest.raises(StoreClosed, match="closed"):
        list(changes)
