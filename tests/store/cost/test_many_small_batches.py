"""Many small batches in one epoch: the cost of reads and writes, and memory, do not grow with their number."""

import random
from typing import Any

import pyarrow as pa
import pytest

from support import inside
from tussock.statestore import StateStore, connect
from tussock.statestore.base.limits import Limits
from tussock.statestore.rows.rows import Rows
from tussock.statestore.sst import merge as merging


def rows_of(table: Any, **options: Any) -> list[tuple[bytes, bytes]]:
    return [(row["key"], row["value"]) for batch in table.scan(**options) for row in batch.to_pylist()]


def runs_of(store: StateStore, table: Any) -> int:
    return len(inside.buffer(store).runs(table.spec.id))


def test_runs_in_the_buffer_grow_with_the_logarithm_of_the_batches() -> None:
    """4,000 batches of one row are a dozen runs; of a key that was written twice the later batch wins everywhere."""
    with connect("memory://", compaction=False) as store:
        table = store.create_table("kv")
        epoch = store.new_epoch()
        model: dict[bytes, bytes | None] = {}
        dice = random.Random(1)
        for number in range(4000):
            key, value = b"%04d" % dice.randrange(1500), None if number % 5 == 0 else b"%d" % number
            table.ingest_batch([(key, value)], epoch)
            model[key] = value
        assert runs_of(store, table) <= 24
        there = sorted((key, value) for key, value in model.items() if value is not None)
        for _ in range(2):
            assert rows_of(table) == there
            assert rows_of(table, reverse=True) == there[::-1]
            keys = [b"%04d" % number for number in range(1500)]
            assert table.multi_get(keys).to_pylist() == [model.get(key) for key in keys]
            assert all(table.get(key) == model.get(key) for key in keys[::17])
            if store.committed_epoch == 0:
                store.commit_epoch(epoch)


def test_the_buffer_counts_the_bytes_that_it_holds() -> None:
    """A row that is a slice of a larger array is copied, so that a buffer of 4 MiB does not keep 300 MiB in memory."""
    with connect("memory://", compaction=False, buffer_bytes=4 << 20) as store:
        table = store.create_table("kv")
        epoch = store.new_epoch()
        before = pa.total_allocated_bytes() + pa.system_memory_pool().bytes_allocated()
        for number in range(30):
            parent = pa.record_batch(
                [[b"%02d%04d" % (number, at) for at in range(1000)], [bytes(10_000)] * 1000], ["key", "value"]
            )
            table.ingest_batch(parent.slice(500, 1), epoch)
        del parent
        held = pa.total_allocated_bytes() + pa.system_memory_pool().bytes_allocated() - before
        assert held < 2 << 20
        assert inside.buffer(store).nbytes >= held / 2
        assert len(rows_of(table)) == 30


@pytest.mark.parametrize("committed", [False, True])
def test_many_runs_of_one_row_are_merged_in_one_step(monkeypatch: pytest.MonkeyPatch, committed: bool) -> None:
    """A scan, or a compaction, of 120 runs of one row each merges once, and not once for each of them."""
    merges = []
    merge = Rows.merge
    monkeypatch.setattr(merging.Rows, "merge", staticmethod(lambda runs: (merges.append(len(runs)), merge(runs))[1]))
    with connect("memory://", compaction=False) as store:
        table = store.create_table("kv")
        for number in range(120):
            epoch = store.new_epoch()
            table.ingest_batch([(b"%03d" % (number * 7 % 120), b"v")], epoch)
            if committed:
                store.commit_epoch(epoch)
        for options in ({}, {"reverse": True}, {"limit": 50}):
            merges.clear()
            assert len(rows_of(table, **options)) == options.get("limit", 120)
            assert merges == [120]
        if committed:
            merges.clear()
            store.compact("kv")
            assert merges == [120]


@pytest.mark.parametrize("seed", range(4))
def test_any_writes_and_reads_equal_a_dict(seed: int) -> None:
    """Seeded: tiny and large batches, several epochs, spills, commits, compactions, scans, bounds of any size."""
    dice = random.Random(seed)
    limits = Limits(batch_bytes=dice.choice([1, 2000, 1 << 20]), merge_bytes=dice.choice([1, 2000, 1 << 20]))
    options: dict[str, Any] = {"buffer_bytes": dice.choice([0, 20_000, 1 << 20]), "cache_bytes": dice.choice([0, 9000])}
    with connect("memory://", compaction=False, limits=limits, **options) as store:
        table = store.create_table("kv", block_bytes=dice.choice([256, 1024]))
        model: dict[bytes, bytes] = {}
        history: list[tuple[int, dict[bytes, bytes]]] = []
        for _ in range(8):
            epoch = store.new_epoch()
            for _ in range(dice.choice([1, 3, 30])):
                keys = sorted({b"%03d" % dice.randrange(150) for _ in range(dice.choice([1, 1, 2, 40]))})
                batch = [
                    (key, None if dice.random() < 0.2 else dice.randbytes(dice.choice([0, 5, 300]))) for key in keys
                ]
                table.ingest_batch(batch, epoch)
                for key, value in batch:
                    if value is None:
                        model.pop(key, None)
                    else:
                        model[key] = value
            check(table, dice, model, None)
            history.append((store.commit_epoch(epoch), dict(model)))
            if dice.random() < 0.15:
                store.compact("kv")
            check(table, dice, model, None)
            at, old = dice.choice(history)
            check(table, dice, old, at)


def check(table: Any, dice: random.Random, model: dict[bytes, bytes], epoch: int | None) -> None:
    """Compare every kind of read with the model."""
    start, end = sorted([b"%03d" % dice.randrange(150), b"%03d" % dice.randrange(151)])
    expected = sorted((key, value) for key, value in model.items() if start <= key < end)
    for reverse in (False, True):
        ordered = expected[::-1] if reverse else expected
        for limit in (None, 1, dice.randrange(40)):
            assert rows_of(table, start=start, end=end, reverse=reverse, limit=limit, epoch=epoch) == ordered[:limit]
    keys = [b"%03d" % dice.randrange(150) for _ in range(dice.choice([1, 5, 100]))]
    assert table.multi_get(keys, epoch=epoch).to_pylist() == [model.get(key) for key in keys]
    assert table.get(keys[0], epoch=epoch) == model.get(keys[0])
