"""Large outputs of a compaction are uploaded while they are made: the same objects, and none that is not whole."""

import errno
import os
import tracemalloc
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest

from support.buckets.faulty_bucket import Fate, FaultyBucket, where
from support.store.ssts import Put, manual_task, raw_spec, store_run, store_ssts
from support.store.versions import FakeSystem
from tussock.compactor.executor import CompactionCancelled, execute
from tussock.statestore.base.limits import Limits
from tussock.statestore.base.system import RealSystem
from tussock.statestore.buckets import RequestCounts, open_bucket
from tussock.statestore.contract.object_store import ObjectStore
from tussock.statestore.contract.records import SstInfo, data_object
from tussock.statestore.errors import CorruptSst, ObjectStoreUnavailable
from tussock.statestore.rows.rows import Rows
from tussock.statestore.sst.reader import Sstables
from tussock.statestore.write.uploader import Uploader

NEVER_BYTES = 1 << 40
LATER_MS = 1 << 50
LIMITS = Limits(one_object_bytes=0, segment_bytes=4000, hand_on_bytes=2000)
"""Outputs are two objects each, and come of many batches."""


@pytest.fixture(params=["memory", "file"])
def bucket(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    return open_bucket("memory://" if request.param == "memory" else tmp_path.as_uri())


def compact(bucket: ObjectStore, inputs: list[tuple[SstInfo, ...]], **options: Any) -> tuple[SstInfo, ...]:
    task = manual_task(inputs, watermark=options.pop("watermark", 9), parted=options.pop("parted", False))
    limits = options.pop("limits", LIMITS)
    sstables, uploader = Sstables(bucket, 1 << 20, RealSystem(), limits=limits), Uploader(bucket, FakeSystem())
    spec = raw_spec(block_bytes=options.pop("block_bytes", 500))
    options.setdefault("cancelled", lambda: False)
    try:
        return execute(sstables, uploader, spec, task, **options)
    finally:
        # Hangs if an upload still waits for bytes.
        uploader.close()
        sstables.close()


def runs_of(bucket: ObjectStore, *, versions: int = 2, count: int = 600) -> list[tuple[SstInfo, ...]]:
    """Runs of the same keys with values that do not compress, newest first."""
    values = np.random.default_rng(1)
    return [
        store_run(
            bucket,
            [Put(b"%06d" % key, epoch, values.bytes(50)) for key in range(count)],
            epoch=epoch,
            block_bytes=500,
            sst_bytes=9000,
        )
        for epoch in range(versions, 0, -1)
    ]


def contents(bucket: ObjectStore, outputs: Iterable[SstInfo]) -> list[tuple[Any, ...]]:
    """What each output holds, but for its id."""
    return [
        (sst.smallest, sst.largest, sst.rows, sst.until, sst.data_bytes, bytes(bucket.get(data_object(sst))))
        for sst in outputs
    ]


def paths(bucket: ObjectStore) -> list[str]:
    return [info.path for info in bucket.list("")]


@pytest.mark.parametrize("parted", [False, True])
@pytest.mark.parametrize("sst_bytes", [20_000, 1 << 20])
def test_outputs_are_those_that_are_uploaded_whole(bucket: ObjectStore, sst_bytes: int, *, parted: bool) -> None:
    """Byte for byte, also where the live tree and history grow at the same time."""
    inputs = runs_of(bucket, versions=4)
    options: dict[str, Any] = {"sst_bytes": sst_bytes, "parted": parted, "watermark": 1}
    whole = msgspec.structs.replace(LIMITS, hand_on_bytes=NEVER_BYTES)
    expected = contents(bucket, compact(bucket, inputs, limits=whole, **options))
    # More than are uploaded at once, or one that is handed on bit by bit.
    assert len(expected) > 5 if sst_bytes == 20_000 else len(expected) <= 2
    outputs = compact(bucket, inputs, **options)
    assert sorted(contents(bucket, outputs)) == sorted(expected)
    # The ids are the same both times.
    assert len(paths(bucket)) == 2 * (sum(map(len, inputs)) + len(outputs))


def test_bytes_are_counted_as_they_go(bucket: ObjectStore) -> None:
    """A put that took its time is one request with all its bytes."""
    inputs = runs_of(bucket)
    counts = RequestCounts(bucket)
    outputs = compact(counts.for_purpose("compaction"), inputs, sst_bytes=1 << 20)
    sizes = [info.size for sst in outputs for info in bucket.list(f"sst/{sst.id}")]
    assert len(sizes) == 2
    assert counts.counts()["compaction"]["put"] == (2, sum(sizes))


def damage_last_block(bucket: ObjectStore, run: tuple[SstInfo, ...]) -> None:
    path = data_object(run[-1])
    data = bytearray(bucket.get(path))
    data[-20] ^= 1
    bucket.put(path, bytes(data))


def test_an_input_that_is_damaged_leaves_no_output(bucket: ObjectStore) -> None:
    """Half of the outputs were on their way: they are given up, and no file is left over."""
    inputs = runs_of(bucket)
    damage_last_block(bucket, inputs[1])
    before = paths(bucket)
    with pytest.raises(CorruptSst, match="checksum"):
        compact(bucket, inputs, sst_bytes=1 << 20)
    assert paths(bucket) == before
    assert not bucket.leftovers(LATER_MS)


def test_a_cancelled_task_leaves_no_output_that_is_not_whole(bucket: ObjectStore) -> None:
    """At any batch."""
    inputs = runs_of(bucket)
    before = paths(bucket)
    asked = iter(range(8))
    with pytest.raises(CompactionCancelled):
        compact(bucket, inputs, sst_bytes=1 << 20, cancelled=lambda: next(asked, None) is None)
    assert paths(bucket) == before
    assert not bucket.leftovers(LATER_MS)


@pytest.mark.parametrize("sst_bytes", [20_000, 1 << 20])
@pytest.mark.parametrize("at", ["before", "after"])
def test_a_put_that_fails_ends_the_task(bucket: ObjectStore, sst_bytes: int, at: str) -> None:
    """Before the first byte is taken, and after the last; the maker of the rest does not wait for ever."""
    inputs = runs_of(bucket)
    fate = Fate.LOSE_REQUEST if at == "before" else Fate.LOSE_ANSWER
    faulty = FaultyBucket(bucket, where("put", "", fate))
    with pytest.raises(ObjectStoreUnavailable):
        compact(faulty, inputs, sst_bytes=sst_bytes)


def test_a_disk_that_fails_on_the_way_ends_the_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is gone, and the maker goes on until it is told."""
    bucket = open_bucket(tmp_path.as_uri())
    inputs = [large_run(bucket, 20_000, epoch) for epoch in (2, 1)]
    before = paths(bucket)
    real, written = os.writev, []

    def full(descriptor: int, buffers: Sequence[Any]) -> int:
        written.append(descriptor)
        if len(written) == 3:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(descriptor, buffers)

    monkeypatch.setattr(os, "writev", full)
    with pytest.raises(ObjectStoreUnavailable, match="the disk is full"):
        compact(bucket, inputs, sst_bytes=1 << 30, watermark=0, block_bytes=64 << 10)
    assert not [path for path in paths(bucket) if path not in before and path.endswith(".data")]
    assert not bucket.leftovers(LATER_MS)


def test_an_output_is_not_held_in_memory(tmp_path: Path) -> None:
    """One SST of 21 MB into a folder: of its bytes only what is on its way is there."""
    bucket = open_bucket(tmp_path.as_uri())
    inputs = [large_run(bucket, 100_000, epoch) for epoch in (2, 1)]
    tracemalloc.start()
    limits = Limits(hand_on_bytes=1 << 20)
    (output,) = compact(bucket, inputs, sst_bytes=1 << 30, watermark=0, block_bytes=64 << 10, limits=limits)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert output.data_bytes > 20 << 20
    assert peak < 18 << 20


def large_run(bucket: ObjectStore, count: int, epoch: int) -> tuple[SstInfo, ...]:
    """Rows of 16-byte keys and 100-byte values that do not compress."""
    keys = np.char.zfill(np.arange(count).astype("S16"), 16)
    values = np.random.default_rng(epoch).bytes(100 * count)
    offsets = np.arange(0, 100 * (count + 1), 100, dtype=np.int32)
    column = pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(values)])
    rows = Rows(pa.array(keys.tolist(), pa.binary()), epoch, None, (column,))
    return store_ssts(bucket, raw_spec(), [rows], sst_bytes=4 << 20, epoch=epoch)
