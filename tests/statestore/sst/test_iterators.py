"""The five iterators: worked cases first, then every option compared with a brute-force model."""

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.store.ssts import Put, sort_puts, store_run, to_puts, to_rows, visible
from tussock.statestore.base.limits import Limits
from tussock.statestore.base.system import RealSystem
from tussock.statestore.buckets import RequestCounts, open_bucket
from tussock.statestore.contract.object_store import ObjectStore
from tussock.statestore.contract.records import SstInfo
from tussock.statestore.rows.rows import Rows
from tussock.statestore.sst.iterators import (
    BlockIterator,
    ConcatIterator,
    MergeIterator,
    ReadRange,
    SSTableIterator,
    UserIterator,
)
from tussock.statestore.sst.reader import Sstables

EVERYTHING = (1 << 63) - 1


def history(text: str) -> list[Put]:
    """`2:300,200x,100` is key `2` put at 300 and 100 and deleted at 200; the value tells key and epoch."""
    found = []
    for entry in text.split():
        key, _, versions = entry.partition(":")
        for version in versions.split(","):
            epoch = int(version.rstrip("x"))
            found.append(Put(key.encode(), epoch, None if version.endswith("x") else f"{key}@{epoch}".encode()))
    return found


class Reader:
    """Runs of SSTs with very small blocks, or of rows in memory; newest run first."""

    def __init__(self, runs: Sequence[str], *, in_memory: bool) -> None:
        self.bucket = open_bucket("memory://")
        self.sstables = Sstables(self.bucket, 1 << 20, RealSystem())
        self.puts = [sort_puts(history(run)) for run in runs]
        self.ssts = None if in_memory else [store_run(self.bucket, run, block_bytes=30) for run in self.puts]

    def sources(self, want: ReadRange) -> list[list[Rows] | ConcatIterator]:
        if self.ssts is not None:
            return [ConcatIterator(self.sstables, run, want) for run in self.ssts]
        cut = (to_rows(run).between(want.start, want.end) for run in self.puts)
        return [[rows] if len(rows) else [] for rows in cut]

    def scan(
        self,
        start: str | None = None,
        end: str | None = None,
        *,
        epoch: int = EVERYTHING,
        reverse: bool = False,
        limit: int | None = None,
    ) -> list[str]:
        """The rows that a user sees, as `key@epoch`, each checked to have the value put there."""
        low, high = (None if bound is None else bound.encode() for bound in (start, end))
        merged = MergeIterator(self.sources(ReadRange(low, high, reverse)), reverse=reverse)
        seen = []
        for rows in UserIterator(merged, epoch, limit=limit, reverse=reverse):
            batch = to_puts(rows)
            seen += batch[::-1] if reverse else batch
        assert seen == visible(self.puts, epoch, start=low, end=high, reverse=reverse, limit=limit)
        assert all(put.value == f"{put.key.decode()}@{put.epoch}".encode() for put in seen)
        return [f"{put.key.decode()}@{put.epoch}" for put in seen]

    def keys(self, *bounds: str | None, epoch: int = EVERYTHING, reverse: bool = False) -> str:
        return " ".join(seen.partition("@")[0] for seen in self.scan(*bounds, epoch=epoch, reverse=reverse))

    def merge(self, start: str | None = None, *, reverse: bool = False) -> list[str]:
        """All versions of all keys."""
        want = ReadRange(None if start is None else start.encode(), None, reverse)
        batches = [to_puts(rows) for rows in MergeIterator(self.sources(want), reverse=reverse)]
        flat = [put for batch in (batches[::-1] if reverse else batches) for put in batch]
        return [f"{put.key.decode()}@{put.epoch}" for put in flat]


@pytest.fixture(params=[True, False], ids=["memory", "ssts"])
def in_memory(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


# --- Worked cases. ------------------------------------------------------------------------------------------------


def test_merge_orders_by_key_then_newest_first(in_memory: bool) -> None:
    """Runs (a@3, b@2) and (a@1, c@1): the full order, and what a reader at 1, 2 and 3 sees of it."""
    reader = Reader(["a:3 b:2", "a:1 c:1"], in_memory=in_memory)
    assert reader.merge() == ["a@3", "a@1", "b@2", "c@1"]
    assert reader.scan(epoch=2) == ["a@1", "b@2", "c@1"]
    assert reader.scan(epoch=3) == ["a@3", "b@2", "c@1"]
    assert reader.scan(epoch=1) == ["a@1", "c@1"]


def test_a_key_may_be_put_deleted_and_put_again(in_memory: bool) -> None:
    """Present at 1, absent at 2, present at 3; a limit counts what is seen."""
    reader = Reader(["a:3 b:3", "a:2x", "a:1 b:1"], in_memory=in_memory)
    assert reader.scan(epoch=1) == ["a@1", "b@1"]
    assert reader.scan(epoch=2) == ["b@1"]
    assert reader.scan(epoch=3) == ["a@3", "b@3"]
    assert reader.scan(epoch=2, limit=1) == ["b@1"]
    assert reader.scan(epoch=2, limit=1, reverse=True) == ["b@1"]
    assert reader.scan(epoch=3, reverse=True) == ["b@3", "a@3"]
    assert reader.scan(epoch=3, limit=1, reverse=True) == ["b@3"]
    assert reader.scan(epoch=3, limit=0) == []


def test_deletes_hide_puts_in_other_runs(in_memory: bool) -> None:
    """A delete in one run hides a put in another, at the epochs where it is the newest."""
    reader = Reader(["1:200x 2:400", "1:100 2:300x"], in_memory=in_memory)
    assert reader.scan() == ["2@400"]
    assert reader.scan(epoch=100) == ["1@100"]
    assert reader.scan(epoch=200) == reader.scan(epoch=300) == []
    assert reader.scan(reverse=True) == ["2@400"]


FORWARD = "0:200x,100 1:200,100x 2:300,200x,100x 3:100 5:200x,100 6:100 7:200x,100 8:100"


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        ("2", "8", "2 3 6"),
        (None, "8", "1 2 3 6"),
        ("2", None, "2 3 6 8"),
        (None, None, "1 2 3 6 8"),
        ("1", "8", "1 2 3 6"),
        ("7", "8", ""),
        ("8", "8", ""),
        ("8", None, "8"),
        ("9", None, ""),
        ("5", "2", ""),
        ("", "", ""),
        ("4", "6", ""),
        ("35", "65", "6"),
    ],
)
@pytest.mark.parametrize("reverse", [False, True])
def test_bounds_are_start_inclusive_and_end_exclusive(
    in_memory: bool, reverse: bool, start: str | None, end: str | None, expected: str
) -> None:
    """Deleted keys at the bounds, bounds between keys, empty and turned ranges."""
    found = Reader([FORWARD], in_memory=in_memory).keys(start, end, reverse=reverse)
    assert found == (expected[::-1] if reverse else expected)


def test_a_key_that_is_alive_at_the_end_of_the_range_is_outside(in_memory: bool) -> None:
    """The end is exclusive also where its key is visible."""
    reader = Reader([FORWARD.replace("7:200x,100", "7:100")], in_memory=in_memory)
    assert reader.keys("2", "7") == "2 3 6"
    assert reader.keys("2", "7\0") == "2 3 6 7"


def test_a_reverse_scan_mirrors_the_forward_one(in_memory: bool) -> None:
    """In reverse the oldest version of a key would come first; the newest visible one still wins."""
    text = "0:200x,100 1:200,100x 2:400x,300,200x,100 3:100 5:200x,100 6:100 7:300,200x,100 8:100"
    reader = Reader([text], in_memory=in_memory)
    assert reader.keys("2", "8", reverse=True) == "7 6 3"
    assert reader.keys("2\0", "8", reverse=True) == "7 6 3"
    assert reader.keys(None, "3", reverse=True) == "1"
    assert reader.keys(None, "2", reverse=True) == "1"
    assert reader.keys("2", "8", epoch=300, reverse=True) == "7 6 3 2"
    assert reader.keys("2", "8", epoch=100, reverse=True) == "7 6 5 3 2"
    assert Reader(["1:400 2:200x", "1:300x 2:100"], in_memory=in_memory).scan(reverse=True) == ["1@400"]


def test_three_interleaved_runs_come_out_in_order(in_memory: bool) -> None:
    """Keys 3i, 3i+1 and 3i+2, one run for each, come out in order from any start, both ways."""
    runs = [" ".join(f"{3 * n + shift:04d}:1" for n in range(30)) for shift in range(3)]
    reader = Reader(runs, in_memory=in_memory)
    names = [f"{n:04d}" for n in range(90)]
    assert reader.keys() == " ".join(names)
    assert reader.keys("0090") == ""
    assert reader.keys("0035") == " ".join(names[35:])
    assert reader.keys("0000") == " ".join(names)
    assert reader.keys(reverse=True) == " ".join(names[::-1])
    assert reader.keys(None, "0001", reverse=True) == "0000"
    assert reader.keys(None, "0000", reverse=True) == ""


def test_newest_wins_over_three_runs(in_memory: bool) -> None:
    """Each key's newest version may be in any run, as long as newer runs have the newer versions of a key."""
    reader = Reader(["a:6,5 c:5", "b:3 c:3 x:3", "c:1 x:2"], in_memory=in_memory)
    assert reader.scan() == ["a@6", "b@3", "c@5", "x@3"]
    assert reader.scan(reverse=True) == ["x@3", "c@5", "b@3", "a@6"]
    assert reader.merge() == ["a@6", "a@5", "b@3", "c@5", "c@3", "c@1", "x@3", "x@2"]
    assert reader.merge(reverse=True) == reader.merge()
    assert reader.merge("b") == ["b@3", "c@5", "c@3", "c@1", "x@3", "x@2"]


def test_of_equal_keys_and_epochs_the_newer_run_wins() -> None:
    """A key written twice within an epoch, with a spill between, resolves to the later batch, both ways."""
    newer = [Put(b"aa", 1, b"new"), Put(b"bb", 1, b"new")]
    older = [Put(b"aa", 1, b"old"), Put(b"bb", 1, None), Put(b"cc", 1, b"old")]
    for reverse in (False, True):
        for epoch in (0, 1):
            merged = MergeIterator([[to_rows(newer, epoch=epoch)], [to_rows(older, epoch=epoch)]], reverse=reverse)
            seen = [put for rows in UserIterator(merged, 1, reverse=reverse) for put in to_puts(rows)]
            assert {put.key: put.value for put in seen} == {b"aa": b"new", b"bb": b"new", b"cc": b"old"}


def test_a_merge_may_start_in_the_middle(in_memory: bool) -> None:
    """A start bound is a seek: all versions from there on, from every run."""
    reader = Reader(["aa:4 bb:5 cc:6,5 ee:7", "aa:1 bb:2,1 dd:3"], in_memory=in_memory)
    assert reader.scan("b") == ["bb@5", "cc@6", "dd@3", "ee@7"]
    assert reader.merge("b") == ["bb@5", "bb@2", "bb@1", "cc@6", "cc@5", "dd@3", "ee@7"]


@pytest.mark.parametrize("few", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
def test_versions_of_one_key_may_span_many_blocks(bucket: ObjectStore, reverse: bool, few: bool) -> None:
    """A reader at any epoch finds the right one of 300 versions across block borders, with neighbours on both sides."""
    sstables = Sstables(bucket, 1 << 20, RealSystem(), limits=Limits(segment_bytes=400))
    puts = [Put(b"a", 5, b"a"), *(Put(b"k", epoch, b"%d" % epoch) for epoch in range(600, 0, -2)), Put(b"z", 5, b"z")]
    run = store_run(bucket, puts, block_bytes=100)
    assert sstables.meta(run[0]).blocks > 20
    for epoch in (1, 2, 3, 4, 5, 299, 300, 301, 599, 600, 601):
        for start, end in ((None, None), (b"k", None), (b"k", b"k\0"), (b"b", b"l")):
            want = ReadRange(start, end, reverse, few=few)
            rows = UserIterator(MergeIterator([ConcatIterator(sstables, run, want)], reverse=reverse), epoch)
            seen = [put for batch in rows for put in to_puts(batch)]
            assert sorted(seen) == sorted(visible([puts], epoch, start=start, end=end))
    sstables.close()


def test_a_prefix_of_ff_bytes_has_no_upper_bound(in_memory: bool) -> None:
    """An open end includes keys of any number of 0xff bytes."""
    bucket = open_bucket("memory://")
    puts = [Put(b"\xfe", 1, b""), *(Put(b"\xff" * n, 1, b"") for n in range(1, 9)), Put(b"\xff\xff\0", 1, b"")]
    rows = to_rows(sort_puts(puts))
    sstables = Sstables(bucket, 0, RealSystem())
    want = ReadRange(b"\xff\xff")
    source: object = (
        [rows.between(want.start, want.end)]
        if in_memory
        else ConcatIterator(sstables, store_run(bucket, puts, block_bytes=20, sst_bytes=40), want)
    )
    found = [put.key for batch in MergeIterator([source]) for put in to_puts(batch)]  # type: ignore[list-item]
    assert found == sorted(put.key for put in puts if put.key >= b"\xff\xff")
    sstables.close()


# --- Each iterator by itself. -------------------------------------------------------------------------------------


def test_block_iterator_gives_one_block(bucket: ObjectStore, sstables: Sstables) -> None:
    """At most one batch, cut to the range; none if the range misses the block."""
    puts = [Put(b"%02d" % n, 1, b"v" * 30) for n in range(40)]
    run = store_run(bucket, puts, block_bytes=300)
    meta = sstables.meta(run[0])
    for block in range(meta.blocks):
        (rows,) = BlockIterator(sstables, run[0], block, ReadRange())
        assert to_puts(rows) == puts[sum(meta.block_rows[:block]) : sum(meta.block_rows[: block + 1])]
    first, second = (bytes(meta.first_keys[at]) for at in (0, 1))
    assert [rows.keys.to_pylist() for rows in BlockIterator(sstables, run[0], 0, ReadRange(b"01", b"03"))] == [
        [b"01", b"02"]
    ]
    assert list(BlockIterator(sstables, run[0], 0, ReadRange(second))) == []
    assert list(BlockIterator(sstables, run[0], 1, ReadRange(None, second))) == []
    assert list(BlockIterator(sstables, run[0], 0, ReadRange(first, first))) == []


@pytest.mark.parametrize("reverse", [False, True])
def test_sstable_iterator_gives_all_blocks_in_order(bucket: ObjectStore, reverse: bool) -> None:
    """Batches by ascending or descending key, the rows inside ascending."""
    sstables = Sstables(bucket, 1 << 20, RealSystem(), limits=Limits(segment_bytes=1000))
    puts = [Put(b"%03d" % n, 1, b"v" * 30) for n in range(200)]
    run = store_run(bucket, puts, block_bytes=300)
    batches = [to_puts(rows) for rows in SSTableIterator(sstables, run[0], ReadRange(reverse=reverse))]
    assert len(batches) > 5
    if reverse:
        batches.reverse()
    assert [put for batch in batches for put in batch] == puts
    sstables.close()


def test_concat_iterator_opens_only_ssts_in_the_range(bucket: ObjectStore) -> None:
    """Each of them is opened only when it is reached."""
    puts = [Put(b"%03d" % n, 1, b"v" * 30) for n in range(200)]
    run = store_run(bucket, puts, block_bytes=300, sst_bytes=1000)
    assert len(run) > 8
    counts = RequestCounts(bucket)
    sstables = Sstables(counts.for_purpose("scan"), 1 << 20, RealSystem())
    want = ReadRange(run[2].smallest, run[4].smallest + b"\0")
    source = ConcatIterator(sstables, run, want)
    assert source.ssts == list(run[2:5])
    assert counts.counts() == {}
    next(iter(source))
    assert counts.counts()["scan"]["get"][0] == 1
    found = [put for rows in source for put in to_puts(rows)]
    assert found == [put for put in puts if run[2].smallest <= put.key <= run[4].smallest]
    assert counts.counts()["scan"]["get"][0] == 3
    sstables.close()


def test_a_scan_of_few_rows_reads_few_bytes(bucket: ObjectStore, sstables: Sstables) -> None:
    """A scan with a small limit begins with one block and reads nothing ahead."""
    puts = [Put(b"%05d" % n, 1, b"v" * 30) for n in range(5000)]
    run = store_run(bucket, puts, block_bytes=300)
    for reverse in (False, True):
        counts = RequestCounts(bucket)
        sstables = Sstables(counts.for_purpose("scan"), 0, RealSystem())
        for few in (True, False):
            want = ReadRange(b"01000", b"03000", reverse=reverse, few=few, fill=False)
            rows = next(iter(UserIterator(ConcatIterator(sstables, run, want), 1, limit=1, reverse=reverse)))
            assert to_puts(rows) == [puts[2999] if reverse else puts[1000]]
            if few:
                requests, size = counts.counts()["scan"]["get_range"]
                assert (requests, size < 600) == (1, True)
        sstables.close()


def test_a_reader_of_changes_skips_old_blocks(bucket: ObjectStore) -> None:
    """`after_epoch` leaves out SSTs and blocks that hold nothing newer; what it yields has every newer version."""
    puts = [Put(b"%03d" % n, 1 + n // 10, b"v" * 30) for n in range(200)]
    run = store_run(bucket, puts, block_bytes=300, sst_bytes=2000)
    commits = store_run(bucket, [Put(b"000", 7, b"new")], epoch=7)
    for after in (0, 1, 6, 7, 15, 20, 99):
        counts = RequestCounts(bucket)
        sstables = Sstables(counts.for_purpose("changes"), 0, RealSystem())
        want = ReadRange(after_epoch=after, few=True, fill=False)
        merged = MergeIterator([ConcatIterator(sstables, each, want) for each in (commits, run)])
        found = {put for rows in merged for put in to_puts(rows) if put.epoch > after}
        assert found == {put for put in [*puts, Put(b"000", 7, b"new")] if put.epoch > after}
        read = counts.counts().get("changes", {}).get("get_range", (0, 0))[1]
        assert read < sum(info.data_bytes for info in run) or after < 7
        assert (read == 0) == (after >= 20)
        sstables.close()


def test_an_abandoned_scan_leaves_no_reads_behind(bucket: ObjectStore) -> None:
    """Closing the iterator cancels the reads ahead; the reader still works."""
    puts = [Put(b"%05d" % n, 1, b"v" * 30) for n in range(2000)]
    run = store_run(bucket, puts, block_bytes=300, sst_bytes=5000)
    sstables = Sstables(bucket, 0, RealSystem())
    for _ in range(20):
        scan = iter(ConcatIterator(sstables, run, ReadRange()))
        next(scan)
        scan.close()  # type: ignore[attr-defined]
    assert sum(len(rows) for rows in ConcatIterator(sstables, run, ReadRange())) == 2000
    sstables.close()


# --- Against the model. -------------------------------------------------------------------------------------------

KEYS = [bytes(name) for n in range(6) for name in ([n], [n, 0], [n, 0, 0], [n, 255])] + [b""]


@st.composite
def runs_of_puts(draw: st.DrawFn) -> list[list[Put]]:
    """Sorted runs, newest first; of a key, newer runs hold newer epochs, with a tie now and then."""
    runs: list[list[Put]] = []
    floor: dict[bytes, int] = {}
    for number in range(draw(st.integers(0, 4))):
        run = []
        for key in draw(st.sets(st.sampled_from(KEYS), max_size=12)):
            low = floor.get(key, 1)
            epochs = draw(st.sets(st.integers(low, low + 6), min_size=1, max_size=5))
            for epoch in sorted(epochs, reverse=True):
                value = None if draw(st.integers(0, 3)) == 0 else b"%d/%d" % (number, epoch)
                run.append(Put(key, epoch, value))
            floor[key] = max(epochs) + draw(st.sampled_from([0, 1, 1, 1]))
        if run:
            runs.insert(0, sort_puts(run))
    return runs


@settings(max_examples=250, deadline=None, derandomize=True)
@given(data=st.data(), runs=runs_of_puts())
def test_scans_equal_the_model(data: st.DataObject, runs: list[list[Put]]) -> None:
    """Runs in SSTs and in memory, any range, epoch, limit and direction, all sizes, cold and warm."""
    draw = data.draw
    start, end = (draw(st.one_of(st.none(), st.sampled_from(KEYS)), label) for label in ("start", "end"))
    epoch = draw(st.integers(0, 30), "epoch")
    limit = draw(st.one_of(st.none(), st.integers(0, 8)), "limit")
    reverse, few, fill = (draw(st.booleans(), label) for label in ("reverse", "few", "fill"))
    columns = draw(st.sampled_from([None, [0], []]), "columns")
    block_bytes = draw(st.sampled_from([1, 40, 120]), "block bytes")
    sst_bytes = draw(st.sampled_from([1, 150, 1 << 20]), "sst bytes")
    segment_bytes = draw(st.sampled_from([1, 200, 1 << 20]), "segment bytes")
    cache_bytes = draw(st.sampled_from([0, 3000, 1 << 20]), "cache bytes")
    buffered = draw(st.integers(0, len(runs)), "runs in memory")
    newest_only = draw(st.booleans(), "newest only")
    step_bytes, batch_bytes, held_bytes = (
        draw(st.sampled_from([1, 100, 1 << 20]), label) for label in ("step bytes", "batch bytes", "held bytes")
    )
    bucket = open_bucket("memory://")
    stored = [store_run(bucket, run, block_bytes=block_bytes, sst_bytes=sst_bytes) for run in runs[buffered:]]
    newest_at = epoch if newest_only else None
    want = ReadRange(start, end, reverse, columns, few, fill, newest_at=newest_at, step_bytes=step_bytes)
    expected = visible(runs, epoch, start=start, end=end, reverse=reverse, limit=limit)
    limits = Limits(
        segment_bytes=segment_bytes,
        segment_bytes_max=4 * segment_bytes,
        batch_bytes=batch_bytes,
        merge_bytes=held_bytes,
    )
    sstables = Sstables(bucket, cache_bytes, RealSystem(), limits=limits)
    for _ in range(2):
        assert scan(runs, buffered, stored, sstables, want, epoch, limit) == [
            (put.key, put.epoch, put.value if columns != [] else b"") for put in expected
        ]
    sstables.close()


def scan(
    everything: list[list[Put]],
    buffered: int,
    stored: list[tuple[SstInfo, ...]],
    sstables: Sstables,
    want: ReadRange,
    epoch: int,
    limit: int | None,
) -> list[tuple[bytes, int, bytes | None]]:
    """Scan once, and check that batches are not empty, in order, and in reverse never split a key."""
    cut = [to_rows(run).between(want.start, want.end).with_columns(want.columns) for run in everything[:buffered]]
    sources: list[list[Rows] | ConcatIterator] = [[rows] for rows in cut if len(rows)]
    sources += [ConcatIterator(sstables, run, want) for run in stored]
    parts = list(MergeIterator(sources, reverse=want.reverse, newest_at=want.newest_at, limits=sstables.limits))
    edges = [(rows.key(0), rows.key(len(rows) - 1)) for rows in (parts[::-1] if want.reverse else parts)]
    assert all(
        before[1] < after[0] or (before[1] == after[0] and not want.reverse) for before, after in pairwise(edges)
    )
    if want.newest_at is None and want.columns is None:
        flat = [put for rows in (parts[::-1] if want.reverse else parts) for put in to_puts(rows)]
        every = [put for run in everything for put in run if (want.start or b"") <= put.key]
        every = [put for put in every if want.end is None or put.key < want.end]
        # Stable: of equal keys and epochs the newer run's comes first.
        assert flat == sorted(every, key=lambda put: (put.key, -put.epoch))
    seen = []
    for rows in UserIterator(parts, epoch, limit=limit, reverse=want.reverse):
        assert len(rows)
        assert len(rows.columns) == (1 if want.columns is None else len(want.columns))
        batch = [(put.key, put.epoch, put.value) for put in to_puts(rows)]
        seen += batch[::-1] if want.reverse else batch
    return seen
