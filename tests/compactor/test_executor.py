"""A compaction task from its inputs in the bucket to its outputs there."""

import tracemalloc
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.buckets.faulty_bucket import Fate, FaultyBucket, where
from support.store.ssts import Put, manual_task, newest, raw_spec, sort_puts, store_run, store_ssts, to_puts
from support.store.versions import FakeSystem
from tussock.compactor import CompactionCancelled, execute
from tussock.statestore.base.limits import DEFAULT_LIMITS, Limits
from tussock.statestore.base.system import RealSystem
from tussock.statestore.buckets import RequestCounts, open_bucket
from tussock.statestore.contract.object_store import ObjectStore
from tussock.statestore.contract.records import SstInfo, data_path, meta_path
from tussock.statestore.errors import CorruptSst, ObjectNotFound, ObjectStoreUnavailable
from tussock.statestore.rows.rows import Rows
from tussock.statestore.sst.iterators import ConcatIterator, ReadRange
from tussock.statestore.sst.reader import Sstables
from tussock.statestore.write.uploader import Uploader


class Room:
    """What a task needs, over one bucket."""

    def __init__(self, bucket: ObjectStore | None = None, limits: Limits = DEFAULT_LIMITS) -> None:
        self.bucket = bucket or open_bucket("memory://")
        self.sstables = Sstables(self.bucket, 1 << 20, RealSystem(), limits=limits)
        self.uploader = Uploader(self.bucket, FakeSystem())
        self.asked = 0
        self.cancel_at: int | None = None

    def execute(
        self,
        inputs: Sequence[tuple[SstInfo, ...]],
        *,
        watermark: int = 0,
        bottom: bool = True,
        block_bytes: int = 64 << 10,
        sst_bytes: int = 1 << 20,
    ) -> tuple[SstInfo, ...]:
        task = manual_task(inputs, watermark=watermark, bottom=bottom)
        spec = raw_spec(block_bytes=block_bytes)
        return execute(self.sstables, self.uploader, spec, task, cancelled=self.is_cancelled, sst_bytes=sst_bytes)

    def is_cancelled(self) -> bool:
        self.asked += 1
        return self.cancel_at is not None and self.asked >= self.cancel_at

    def read(self, run: tuple[SstInfo, ...]) -> list[Put]:
        return [put for rows in ConcatIterator(self.sstables, run, ReadRange()) for put in to_puts(rows)]

    def objects(self) -> dict[str, bytes]:
        return {info.path: self.bucket.get(info.path) for info in self.bucket.list("sst/")}

    def close(self) -> None:
        self.uploader.close()
        self.sstables.close()


@pytest.fixture
def room() -> Iterator[Room]:
    opened = Room()
    yield opened
    opened.close()


@pytest.mark.parametrize(
    ("watermark", "bottom", "left"),
    [
        (1, True, [Put(b"a", 2, None), Put(b"a", 1, b"1"), Put(b"b", 2, b"3"), Put(b"b", 1, b"2")]),
        (2, False, [Put(b"a", 2, None), Put(b"b", 2, b"3")]),
        (2, True, [Put(b"b", 2, b"3")]),
    ],
)
def test_the_watermark_decides_what_stays(room: Room, watermark: int, bottom: bool, left: list[Put]) -> None:
    """The example of the Hummock document, a => 1, b => 2, then a => delete, b => 3, once readers have moved on."""
    first = store_run(room.bucket, [Put(b"a", 1, b"1"), Put(b"b", 1, b"2")], epoch=1)
    second = store_run(room.bucket, [Put(b"a", 2, None), Put(b"b", 2, b"3")], epoch=2)
    assert room.read(room.execute([second, first], watermark=watermark, bottom=bottom)) == left


def test_a_task_that_leaves_nothing_has_no_output(room: Room) -> None:
    """Deletes alone, at the bottom: the task writes no SST and no object."""
    run = store_run(room.bucket, [Put(b"%d" % n, 1, None) for n in range(9)], epoch=1)
    before = room.objects()
    assert room.execute([run], watermark=1) == ()
    assert room.objects() == before


def test_a_key_spilled_twice_within_an_epoch_has_one_row_afterwards(room: Room) -> None:
    """The row is that of the newer run."""
    newer = store_run(room.bucket, [Put(b"a", 5, b"new"), Put(b"b", 5, None)], epoch=5)
    older = store_run(room.bucket, [Put(b"a", 5, b"old"), Put(b"b", 5, b"old"), Put(b"c", 5, b"old")], epoch=5)
    left = [Put(b"a", 5, b"new"), Put(b"b", 5, None), Put(b"c", 5, b"old")]
    assert room.read(room.execute([newer, older], watermark=0)) == left
    assert room.read(room.execute([newer, older], watermark=5, bottom=False)) == left
    assert room.read(room.execute([newer, older], watermark=5, bottom=True)) == [left[0], left[2]]


def test_outputs_are_one_sorted_run_of_bounded_ssts() -> None:
    """Inputs overlap, outputs do not; each has about the size asked for."""
    room = Room(limits=Limits(segment_bytes=2000))
    runs = [
        store_run(
            room.bucket,
            [Put(b"%04d" % n, epoch, b"v" * 30) for n in range(epoch, 1000, 3)],
            block_bytes=300,
            sst_bytes=5000,
            epoch=epoch,
        )
        for epoch in (3, 2, 1)
    ]
    outputs = room.execute(runs, block_bytes=300, sst_bytes=8000)
    assert len(outputs) > 4
    assert all(before.largest < after.smallest for before, after in pairwise(outputs))
    assert room.read(outputs) == [Put(b"%04d" % n, (n - 1) % 3 + 1, b"v" * 30) for n in range(1, 1000)]
    assert max(sum(room.sstables.meta(output).raw_length) for output in outputs) < 8500
    room.close()


def test_inputs_leave_nothing_in_the_block_cache(room: Room) -> None:
    """A compaction does not push out what readers use, and reads each input once."""
    puts = [Put(b"%04d" % n, 1, b"v" * 30) for n in range(1000)]
    runs = [store_run(room.bucket, puts, block_bytes=300, sst_bytes=9000, epoch=epoch) for epoch in (2, 1)]
    counts = RequestCounts(room.bucket)
    sstables = Sstables(counts.for_purpose("compaction"), 1 << 20, RealSystem())
    room.sstables.close()
    room.sstables = sstables
    outputs = room.execute(runs, watermark=9)
    assert sstables.blocks.stats().entries == 0
    asked = counts.counts()["compaction"]["get_range"]
    assert asked == (sum(map(len, runs)), sum(info.data_bytes - 8 for run in runs for info in run))
    assert sum(info.rows for info in outputs) == 1000


@pytest.mark.parametrize("at", [1, 2, 5])
def test_a_cancelled_task_stops_at_the_next_batch(at: int) -> None:
    """The error says so, its inputs are untouched, and the same task can be run again."""
    room = Room(limits=Limits(segment_bytes=1000))
    puts = [Put(b"%04d" % n, 1, b"v" * 30) for n in range(500)]
    run = store_run(room.bucket, puts, block_bytes=300, sst_bytes=3000, epoch=1)
    before = room.objects()
    room.cancel_at = at
    with pytest.raises(CompactionCancelled, match="task-1"):
        room.execute([run], sst_bytes=2000)
    assert room.asked == at
    assert before.items() <= room.objects().items()
    room.cancel_at = None
    assert room.read(room.execute([run])) == puts
    room.close()


@pytest.mark.parametrize("part", ["data", "meta"])
def test_a_damaged_input_fails_the_task(room: Room, part: str) -> None:
    """The error names the object; no input changes, and readers of the intact run go on."""
    puts = [Put(b"%04d" % n, 1, b"v" * 30) for n in range(300)]
    good = store_run(room.bucket, puts, block_bytes=300, epoch=2)
    bad = store_run(room.bucket, puts, block_bytes=300, sst_bytes=3000, epoch=1)
    path = f"sst/{bad[len(bad) // 2].id}.{part}"
    data = bytearray(room.bucket.get(path))
    data[len(data) // 2] ^= 4
    room.bucket.put(path, bytes(data))
    before = room.objects()
    with pytest.raises(CorruptSst, match=path):
        room.execute([good, bad], sst_bytes=2000)
    assert before.items() <= room.objects().items()
    assert [put.key for put in room.read(good)] == [put.key for put in puts]


@pytest.mark.parametrize("path_of", [data_path, meta_path])
def test_a_missing_input_fails_the_task(room: Room, path_of: object) -> None:
    """The executor raises `ObjectNotFound`; its caller decides whether the input was vacuumed or lost."""
    assert callable(path_of)
    run = store_run(room.bucket, [Put(b"a", 1, b"1")], epoch=1)
    room.bucket.delete([path_of(run[0].id)])
    with pytest.raises(ObjectNotFound, match=run[0].id):
        room.execute([run])


@pytest.mark.parametrize("operation", ["get", "get_range", "put"])
def test_a_bucket_that_is_away_fails_the_task_and_it_can_be_repeated(operation: str) -> None:
    """It leaves nothing but unnamed outputs behind."""
    bucket = FaultyBucket(open_bucket("memory://"))
    room = Room(bucket)
    puts = [Put(b"%04d" % n, 1, b"v" * 30) for n in range(300)]
    run = store_run(bucket, puts, block_bytes=300, epoch=1)
    bucket.script = where(operation, "sst/", Fate.LOSE_REQUEST)
    with pytest.raises(ObjectStoreUnavailable):
        room.execute([run], sst_bytes=2000)
    assert room.read(room.execute([run], sst_bytes=2000)) == puts
    room.close()


@st.composite
def runs_of_puts(draw: st.DrawFn) -> list[list[Put]]:
    """Sorted runs, newest first, of few keys in many versions."""
    found: list[list[Put]] = []
    floor: dict[bytes, int] = {}
    for number in range(draw(st.integers(1, 4))):
        puts = []
        for key in draw(st.sets(st.sampled_from([b"", b"a", b"a\0", b"ab", b"b", b"\xff"]), min_size=1)):
            low = floor.get(key, 1)
            epochs = draw(st.sets(st.integers(low, low + 4), min_size=1, max_size=4))
            puts += [
                Put(key, epoch, None if draw(st.integers(0, 2)) == 0 else b"%d/%d" % (number, epoch))
                for epoch in epochs
            ]
            floor[key] = max(epochs) + draw(st.integers(0, 2))
        found.insert(0, sort_puts(puts))
    return found


@settings(max_examples=120, deadline=None, derandomize=True)
@given(
    runs_of_puts(),
    st.integers(0, 20),
    st.booleans(),
    st.sampled_from([1, 40, 1000]),
    st.sampled_from([1, 100, 1 << 20]),
    st.sampled_from([1, 100, 1 << 20]),
)
def test_readers_see_the_same_rows_before_and_after(
    found: list[list[Put]], watermark: int, bottom: bool, block_bytes: int, sst_bytes: int, segment_bytes: int
) -> None:
    """A reader at any epoch from the watermark on sees the same rows, for any sizes of blocks, segments and SSTs."""
    room = Room(limits=Limits(segment_bytes=segment_bytes))
    inputs = [store_run(room.bucket, run, block_bytes=block_bytes, sst_bytes=sst_bytes) for run in found]
    outputs = room.execute(inputs, watermark=watermark, bottom=bottom, block_bytes=block_bytes, sst_bytes=sst_bytes)
    left = room.read(outputs)
    room.close()
    assert left == sort_puts(left)
    assert sum(output.rows for output in outputs) == len(left)
    assert sum(output.deletes for output in outputs) == sum(put.value is None for put in left)
    for epoch in range(watermark, 25):
        before = {key: put.value for key, put in newest(found, epoch).items() if put.value is not None}
        after = {key: put.value for key, put in newest([left], epoch).items() if put.value is not None}
        assert after == before
        if not bottom:
            assert newest([left], epoch).keys() == newest(found, epoch).keys()


class DiscardedBucket:
    """A bucket whose new objects are counted and forgotten, so that they do not count as memory of the task."""

    def __init__(self, inner: ObjectStore) -> None:
        self._inner = inner
        self.put_bytes = 0
        self.url = inner.url

    def put(self, path: str, data: bytes | Iterable[bytes | memoryview]) -> None:
        self.put_bytes += len(data) if isinstance(data, bytes) else sum(map(len, data))

    def get(self, path: str, bytes_max: int | None = None) -> bytes:
        return self._inner.get(path, bytes_max)

    def get_range(self, path: str, start: int, length: int) -> memoryview:
        return self._inner.get_range(path, start, length)


def big_run(bucket: ObjectStore, count: int, epoch: int) -> tuple[SstInfo, ...]:
    """Rows of 16-byte keys and 100-byte values in batches, straight from NumPy; incompressible."""
    generator = np.random.default_rng(epoch)
    batches = []
    for start in range(0, count, 1 << 14):
        names = np.char.zfill(np.arange(start, min(start + (1 << 14), count)).astype("S16"), 16)
        data = generator.bytes(100 * len(names))
        offsets = np.arange(0, 100 * (len(names) + 1), 100, dtype=np.int32)
        values = pa.Array.from_buffers(pa.binary(), len(names), [None, pa.py_buffer(offsets), pa.py_buffer(data)])
        batches.append(Rows(pa.array(names.tolist(), pa.binary()), epoch, None, (values,)))
    return store_ssts(bucket, raw_spec(), batches, sst_bytes=4 << 20, epoch=epoch)


def peak_bytes(bucket: ObjectStore, runs: Sequence[tuple[SstInfo, ...]]) -> tuple[int, int]:
    """The most memory that compacting the runs took, in Arrow's pool and in Python's, and the number of rows out."""
    room = Room(DiscardedBucket(bucket))  # type: ignore[arg-type]
    arrow_before = pa.total_allocated_bytes()
    seen = [arrow_before]

    def watch() -> bool:
        seen.append(pa.total_allocated_bytes())
        return False

    room.is_cancelled = watch  # type: ignore[method-assign]
    tracemalloc.start()
    outputs = room.execute(runs, watermark=1, sst_bytes=2 << 20)
    python_peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    room.close()
    return max(seen) - arrow_before + python_peak, sum(info.rows for info in outputs)


def test_memory_is_bounded_for_any_size() -> None:
    """Four times the rows take no more memory: segments in hand and read ahead, one batch, three outputs."""
    bucket = open_bucket("memory://")
    peaks = []
    for count in (100_000, 400_000):
        runs = [big_run(bucket, count, epoch) for epoch in (2, 1)]
        peak, rows = peak_bytes(bucket, runs)
        assert rows == 2 * count
        peaks.append(peak)
    # How far the reads are ahead when an output is finished differs from run to run, so the bound is absolute: far
    # below what went in.
    assert sum(info.data_bytes for run in runs for info in run) > 80 << 20
    assert max(peaks) < 32 << 20
