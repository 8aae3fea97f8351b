"""Guarantees 3 and 6 with history: merges part rows, and each epoch that is kept reads as a plain dictionary says."""

import random
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from msgspec.structs import replace

from support import inside
from support.depth import DEPTH
from support.models.history import TableHistory
from support.store.stores import TickingSystem, changes_of, open_on, pairs
from tussock.meta.compaction.claims import Chosen
from tussock.meta.compaction.picker import Pick, PickerConfig
from tussock.meta.version.invariants import problems
from tussock.meta.version.version import Version
from tussock.statestore import Conflict, clone, connect, restore
from tussock.statestore.base.limits import Limits
from tussock.statestore.buckets import open_bucket

KEYS = [b"%03d" % number for number in range(24)]
RETENTION = 100.0
PICKER = PickerConfig(
    base_bytes=6000, l0_small_bytes=200, l0_runs_max=3, l0_merge_min=2, l0_merge_max=4, task_bytes_max=20_000,
    history_merge_min=3, history_runs_max=6,
)  # fmt: skip
"""So small that all kinds of merges come, and several levels."""


SMALL = Limits(segment_bytes=300, batch_bytes=500, merge_bytes=1500, sst_bytes=1000, one_object_bytes=400)
"""Keys have more versions than a batch may hold."""

TINY = Limits(
    segment_bytes=300, batch_bytes=500, merge_bytes=1500, sst_bytes=200, one_object_bytes=0, whole_filter_bytes=2
)
"""Keys have more versions than an SST may hold, and filters lie apart."""


class Lives:
    """A store on a clock of the test, its model, and what holds epochs readable."""

    def __init__(self, seed: int, keys: Sequence[bytes] = KEYS, limits: Sequence[Limits] = (Limits(), SMALL)) -> None:
        self.chance = random.Random(seed)
        self.keys = keys
        self.system = TickingSystem()
        self.bucket = open_bucket(f"memory://lives-of-history-{seed}-{len(keys)}")
        options = {"retention": RETENTION, "gc_grace": 0, "cache_bytes": self.chance.choice([0, 5000, 1 << 20])}
        options |= {"buffer_bytes": self.chance.choice([200, 1 << 20])}
        self.store = open_on(self.bucket, self.system, limits=self.chance.choice(limits), **options)
        self.table: Any = self.store.create_table("t", block_bytes=self.chance.choice([256, 1024, 64 << 10]))
        self.embedded = inside.backend(self.store)
        self.embedded.meta.config = PICKER
        self.system.on_tick.append(lambda: inside.renew_pins(self.embedded))
        self.model: TableHistory[bytes, bytes] = TableHistory()
        self.commits: list[tuple[float, int]] = []
        self.pins: list[Any] = []
        self.kinds: set[str] = set()

    def commit(self) -> None:
        """Commit some batches, the same keys in several of them at times."""
        epoch, batch = self.store.new_epoch(), {}
        for _ in range(self.chance.choice([1, 1, 3])):
            keys = sorted(self.chance.sample(self.keys, self.chance.choice([1, 3, len(self.keys)])))
            rows = {key: self._value() for key in keys}
            self.table.ingest_batch(list(rows.items()), epoch)
            batch.update(rows)
        epoch = self.store.commit_epoch(epoch)
        self.model.commit(epoch, batch)
        self.commits.append((self.system.now_ms() / 1000, epoch))

    def _value(self) -> bytes | None:
        return None if self.chance.random() < 0.3 else self.chance.randbytes(self.chance.choice([0, 5, 40]))

    def compact(self) -> None:
        """Do the most urgent task, or merge all."""
        if self.chance.random() < 0.1:
            self.store.compact("t")
            return
        task = self.embedded.meta.own_tasks.claim()
        if task is None:
            return
        self.kinds.add(task.kind)
        for _ in range(self.chance.choice([0, 0, 2])):
            self.commit()
        if task.kind != "history" and self.chance.random() < 0.2:
            # As a release without history does it, of whose trees all versions are.
            task = replace(task, parted=False)
        inside.execute(self.embedded, task)

    def pin(self) -> None:
        """Hold an epoch, or let go of one."""
        if self.pins and self.chance.random() < 0.5:
            self.pins.pop(self.chance.randrange(len(self.pins))).close()
        else:
            self.pins.append(self.store.pin_snapshot())

    def live_on(self) -> None:
        """Time goes by, and at times a vacuum runs."""
        self.system.forward(self.chance.choice([1.0, 20.0]))
        if self.chance.random() < 0.3:
            self.store.vacuum()

    def kept(self) -> Iterator[int]:
        """Epochs that a reader may ask for."""
        for _, epoch in self.commits:
            if epoch >= self.embedded.meta.oldest_readable():
                yield epoch

    def check(self) -> None:
        """Read everything that is kept, in every way."""
        kept = list(self.kept())
        assert problems(inside.version(self.store)) == []
        for epoch in self.chance.sample(kept, min(len(kept), 4)):
            check_rows(self.table, self.model.at(epoch), self.chance, epoch=epoch)
        for snapshot in self.pins:
            check_rows(snapshot.table("t"), self.model.at(snapshot.epoch), self.chance)
            self.check_feed(snapshot.table("t"), snapshot.epoch, None)
        check_rows(self.table, self.model.newest, self.chance)
        if kept:
            after, until = sorted([self.chance.choice(kept), self.chance.choice(kept)])
            found = changes_of(self.table, after, until)
            got = sorted((row["epoch"], row["key"], None if row["op"] == "delete" else row["value"]) for row in found)
            assert got == self.model.changes(after, until)
            self.check_feed(self.table, after, until)

    def check_feed(self, table: Any, after: int, until: int | None) -> None:
        """Compare a change feed with the states of the model."""
        end = self.commits[-1][1] if until is None else until
        expected, state = [], self.model.at(after)
        for epoch, batch in self._batches(after, end):
            for key, value in batch.items():
                old = state.get(key)
                if old is not None and value is not None:
                    expected += [(epoch, key, "update_postimage", value), (epoch, key, "update_preimage", old)]
                elif old is not None or value is not None:
                    expected.append((epoch, key, "delete" if value is None else "insert", old or value or b""))
            state = self.model.at(epoch)
        found = [row for batch in table.change_feed(after, until, before_images=True) for row in batch.to_pylist()]
        got = sorted((row["epoch"], row["key"], row["op"], row["value"] or b"") for row in found)
        assert got == sorted(expected)
        assert table.change_epochs(after, until) == [epoch for epoch, _ in self._batches(after, end)]

    def _batches(self, after: int, until: int) -> list[tuple[int, dict[bytes, bytes | None]]]:
        by_epoch: dict[int, dict[bytes, bytes | None]] = {}
        for epoch, key, value in self.model.changes(after, until):
            by_epoch.setdefault(epoch, {})[key] = value
        return sorted(by_epoch.items())


def check_rows(table: Any, rows: dict[bytes, bytes], chance: random.Random, **epoch: int) -> None:
    """Compare a table, at an epoch, with these rows."""
    expected = sorted(rows.items())
    start, end = sorted(chance.sample(KEYS, 2))
    assert pairs(table.scan(**epoch)) == expected
    assert pairs(table.scan(reverse=True, **epoch)) == expected[::-1]
    inner = [row for row in expected if start <= row[0] < end]
    assert pairs(table.scan(start, end, **epoch)) == inner
    assert pairs(table.scan(start, end, limit=2, reverse=True, **epoch)) == inner[::-1][:2]
    assert pairs(table.scan(start, limit=3, **epoch)) == [row for row in expected if row[0] >= start][:3]
    assert table.multi_get(KEYS * 3, **epoch).to_pylist() == [rows.get(key) for key in KEYS * 3]
    assert table.multi_get(KEYS[:5], **epoch).to_pylist() == [rows.get(key) for key in KEYS[:5]]
    for key in chance.sample(KEYS, 6):
        assert table.get(key, **epoch) == rows.get(key)


# In 1015 a key has more versions in the blocks of one change than a batch may hold: its feed never ended.
@pytest.mark.parametrize("seed", [*range(3 * DEPTH), 1015])
def test_every_kept_epoch_reads_as_the_model_says(seed: int) -> None:
    """Merges of every kind, batches that were spilled, pins, expiry and vacuum change no answer at a kept epoch."""
    lives = Lives(seed)
    steps = [lives.commit, lives.compact, lives.live_on, lives.pin, lives.check]
    for _ in range(250):
        lives.chance.choices(steps, [30, 30, 6, 3, 8])[0]()
    lives.check()
    assert {"intra-l0", "l0", "history"} <= lives.kinds
    lives.store.close()


@pytest.mark.parametrize("seed", range(2 * DEPTH))
def test_versions_of_a_key_may_lie_in_several_ssts_of_a_run(seed: int) -> None:
    """Keys with more versions than an SST holds: the same, with merges of such runs, pins, expiry and vacuum."""
    lives = Lives(seed, KEYS[3:20:4], [TINY])
    parted = 0
    steps = [lives.commit, lives.compact, lives.live_on, lives.pin, lives.check]
    for _ in range(250):
        lives.chance.choices(steps, [40, 20, 3, 3, 6])[0]()
        runs = [run.ssts for run in history(lives.store)]
        parted = max(parted, sum(left.largest == right.smallest for run in runs for left, right in pairwise(run)))
    lives.check()
    assert parted > 5
    assert "history" in lives.kinds
    lives.store.close()


class Merges:
    """A store whose merges the test picks."""

    def __init__(self, name: str, **options: Any) -> None:
        self.store = open_on(open_bucket(f"memory://{name}"), TickingSystem(), gc_grace=0, **options)
        self.table: Any = self.store.create_table("t")
        self.embedded = inside.backend(self.store)

    def commit(self, *batches: dict[bytes, bytes | None]) -> int:
        """Commit these batches as one epoch, each as an own run."""
        epoch = self.store.new_epoch()
        for rows in batches:
            self.table.ingest_batch(sorted(rows.items()), epoch)
        return self.store.commit_epoch(epoch)

    @property
    def levels(self) -> Any:
        """The newest tree of the table."""
        return self.store.version().find_table("t").levels  # type: ignore[union-attr]

    def merge(self, places: list[int], target: int = 0, *, bottom: bool = False) -> None:
        """Merge the runs of the live tree with these places, newest first."""
        inputs = tuple(tuple(self.levels.runs()[place]) for place in places)
        kind: Any = "l0" if target else "intra-l0"
        self._do(Pick(kind, inputs, target, bottom, 1.0, "asked for"))

    def merge_history(self) -> None:
        """Merge all runs of history."""
        self._do(Pick("history", tuple(run.ssts for run in self.levels.history), 0, False, 1.0, "asked for"))

    def _do(self, pick: Pick) -> None:
        def choose(version: Version, _: int, chosen: Any) -> Chosen | None:
            return None if chosen else Chosen(self.embedded.meta.owner, version.find_table("t").spec.id, pick)  # type: ignore[union-attr]

        (task,) = self.embedded.meta.claims.claim(choose)
        assert inside.execute(self.embedded, task)

    def untils(self) -> list[int]:
        """Until when the SSTs of history are for, the one that was parted last first."""
        return [sst.until for sst in self.levels.history_ssts()]

    def rows(self, key: bytes, at: Any) -> list[bytes | None]:
        """What each way to read finds under a key, through a snapshot."""
        table = at.table("t")
        scans = [dict(pairs(table.scan())), dict(pairs(table.scan(reverse=True)))]
        return [table.get(key), table.multi_get([key]).to_pylist()[0], *(scan.get(key) for scan in scans)]


def test_what_hid_a_row_may_expire_before_it() -> None:
    """Of two SSTs of history the one with the delete goes first; the row before it is for no reader any more."""
    merges = Merges("hidden-until", retention=0)
    merges.commit({b"a": b"1", b"z": b"1"})
    merges.merge([0], 1)
    first = merges.store.pin_snapshot()
    second = merges.commit({b"a": b"2"})
    deleted = merges.commit({b"a": None})
    late = merges.store.pin_snapshot()
    last = merges.commit({b"z": b"2"})
    # Past the delete, which stays above: a=1 goes until `second`, z=1 until `last`, into one SST.
    merges.merge([0, 2, 3], 1)
    merges.merge([0, 1], 1, bottom=True)
    assert merges.untils() == [deleted, last]
    assert merges.rows(b"a", first) == [b"1"] * 4
    assert merges.rows(b"a", late) == [None] * 4
    first.close()
    merges.store.vacuum()
    assert merges.untils() == [last]
    assert second < deleted == late.epoch
    assert merges.rows(b"a", late) == [None] * 4
    assert merges.rows(b"z", late) == [b"1"] * 4
    late.close()
    merges.store.vacuum()
    assert merges.untils() == []


@pytest.mark.parametrize("merged", [False, True], ids=["apart", "merged"])
@pytest.mark.parametrize("later", [0, 1], ids=["same", "later"])
def test_of_two_rows_of_one_epoch_the_newer_one_stays(later: int, merged: bool) -> None:
    """A batch that was spilled has a key twice; the newer row goes to history first, then the older one, or neither."""
    merges = Merges(f"twins-{later}-{merged}", buffer_bytes=0)
    before = merges.commit({b"k": b"old"})
    held = merges.store.pin_snapshot()
    twice = merges.commit({b"k": b"first"}, {b"k": b"second"})
    at = merges.store.pin_snapshot()
    merges.commit({b"k": b"new"})
    assert len(merges.levels.l0) == 4
    merges.merge([0, 1])
    assert merges.rows(b"k", at) == [b"second"] * 4
    if later:
        merges.commit({b"k": b"newest"})
        merges.merge([0, 1])
    merges.merge([0, 1])
    assert len(merges.levels.history) == 2 + later
    if merged:
        merges.merge_history()
        assert len(merges.levels.history) == 1
    assert merges.rows(b"k", at) == [b"second"] * 4
    assert merges.rows(b"k", held) == [b"old"] * 4
    found = changes_of(merges.table, before, twice)
    assert [row["value"] for row in found] == [b"second"]
    (feed,) = merges.table.change_feed(before, twice, before_images=True)
    assert feed.column("value").to_pylist() == [b"old", b"second"]


def test_a_delete_that_vanished_comes_after_a_newer_row_of_its_epoch() -> None:
    """The delete is the older of two rows of one epoch, and vanishes first: changes show the other."""
    merges = Merges("vanished-twin", buffer_bytes=0)
    merges.commit({b"k": b"old"})
    merges.merge([0], 1)
    held = merges.store.pin_snapshot()
    twice = merges.commit({b"k": None}, {b"k": b"put"})
    merges.merge([1, 2], 1, bottom=True)
    at = merges.store.pin_snapshot()
    for after in (False, True):
        if after:
            merges.commit({b"k": b"new"})
            merges.merge([0, 1], 1, bottom=True)
            assert len(merges.levels.history) == 2
        assert merges.rows(b"k", at) == [b"put"] * 4
        assert [row["value"] for row in changes_of(merges.table, held.epoch, twice)] == [b"put"]
    merges.merge_history()
    assert [row["value"] for row in changes_of(merges.table, held.epoch, twice)] == [b"put"]
    assert merges.rows(b"k", held) == [b"old"] * 4


def test_a_scan_of_the_present_reads_no_history() -> None:
    """Reads at the newest epoch, or none, open no SST of history; a read at an older one does."""
    merges = Merges("present", retention=0)
    merges.commit(dict.fromkeys(KEYS, b"0"))
    held = merges.store.pin_snapshot()
    for number in range(1, 4):
        merges.commit(dict.fromkeys(KEYS, b"%d" % number))
    merges.store.compact("t")
    (sst,) = merges.levels.history_ssts()
    newest = merges.store.committed_epoch
    assert pairs(merges.table.scan()) == pairs(merges.table.scan(epoch=newest)) == [(key, b"3") for key in KEYS]
    assert merges.table.multi_get(KEYS).to_pylist() == [merges.table.get(key) for key in KEYS] == [b"3"] * len(KEYS)
    metas = inside.sstables(merges.store).metas
    assert metas.get((sst.id,)) is None
    assert merges.rows(KEYS[0], held) == [b"0"] * 4
    assert metas.get((sst.id,)) is not None


def test_the_row_before_a_change_may_be_in_history() -> None:
    """A block of the live tree has an older version of the key; the feed shows the one that the change replaced."""
    merges = Merges("feed-images")
    merges.commit({b"k": b"1", b"z": b"1"})
    merges.merge([0], 1)
    second = merges.commit({b"k": b"2"})
    merges.commit({b"k": b"3"})
    merges.merge([0, 1])
    last = merges.commit({b"z": b"4"})
    merges.merge([0, 2], 1)
    assert len(merges.levels.history) == 2
    feed = pa.Table.from_batches(merges.table.change_feed(second, last, before_images=True))
    shown = sorted(zip(feed["key"].to_pylist(), feed["op"].to_pylist(), feed["value"].to_pylist(), strict=True))
    assert shown == [
        (b"k", "update_postimage", b"3"),
        (b"k", "update_preimage", b"2"),
        (b"z", "update_postimage", b"4"),
        (b"z", "update_preimage", b"1"),
    ]


@pytest.mark.parametrize("whole", [False, True], ids=["a key", "a range"])
def test_a_delete_that_vanished_is_a_conflict(whole: bool) -> None:
    """A transaction has read a row that somebody deleted since; the delete is no longer in the live tree."""
    merges = Merges(f"conflicts-{whole}")
    merges.commit({b"a": b"1", b"b": b"1"})

    def delete_meanwhile() -> None:
        with merges.store.transaction() as transaction:
            table = transaction.table("t")
            assert (dict(pairs(table.scan()))[b"a"] if whole else table.get(b"a")) == b"1"
            merges.commit({b"a": None})
            merges.store.compact("t")
            assert [sst.deletes for sst in merges.levels.live_ssts()] == [0]
            table.ingest_batch([(b"c", b"1")])

    with pytest.raises(Conflict, match=r"b'a'"):
        delete_meanwhile()


def test_own_rows_are_above_history() -> None:
    """A transaction reads its snapshot, which only history has by now, with its own rows on top."""
    merges = Merges("own-rows")
    merges.commit(dict.fromkeys(KEYS, b"old"))

    def write_beside() -> None:
        with merges.store.transaction(isolation="snapshot") as transaction:
            table = transaction.table("t")
            assert table.get(KEYS[0]) == b"old"
            merges.commit(dict.fromkeys(KEYS[1:], b"new"))
            merges.store.compact("t")
            table.ingest_batch([(KEYS[0], b"own"), (KEYS[3], None), (b"zzz", b"own")])
            expected = dict.fromkeys(KEYS, b"old") | {KEYS[0]: b"own", b"zzz": b"own"}
            del expected[KEYS[3]]
            for reverse in (False, True):
                assert pairs(table.scan(reverse=reverse)) == sorted(expected.items(), reverse=reverse)
            assert table.multi_get([*KEYS, b"zzz"]).to_pylist() == [expected.get(key) for key in [*KEYS, b"zzz"]]
            assert [table.get(key) for key in KEYS[:5]] == [expected.get(key) for key in KEYS[:5]]

    with pytest.raises(Conflict):
        write_beside()


def test_history_from_before_a_table_was_altered_has_its_new_columns() -> None:
    """Rows that were stored narrower are read, and merged, as the table's columns are now."""
    store = open_on(open_bucket("memory://altered-history"), TickingSystem(), gc_grace=0)
    narrow = pa.schema([("id", pa.int64()), ("v", pa.int32())])
    table: Any = store.create_table("t", schema=narrow, primary_key=["id"])
    epochs = []
    for number in range(4):
        if number == 2:
            add, widen = pa.schema([("w", pa.string())]), pa.schema([("v", pa.int64())])
            table = store.alter_table("t", add=add, widen=widen)
        epoch = store.new_epoch()
        row = {"id": 1, "v": number} if number < 2 else {"id": 1, "v": number + (1 << 40), "w": "w"}
        table.upsert([row], epoch)
        epochs.append(store.commit_epoch(epoch))
        store.compact("t")
    embedded = inside.backend(store)
    embedded.meta.config = PickerConfig(history_merge_min=2, history_runs_max=2)
    for merged in (False, True):
        assert [len(run.ssts) for run in history(store)] == ([1] if merged else [1, 1, 1])
        for number, epoch in enumerate(epochs):
            expected = {"id": 1, "v": number + (number > 1) * (1 << 40), "w": "w" if number > 1 else None}
            assert table.get((1,), epoch=epoch) == expected
            assert table.multi_get([(1,)], epoch=epoch).to_pylist() == [expected]
            for columns in (["w"], ["v", "w"], ["id", "w"], ["id"], None):
                (found,) = [row for batch in table.read(columns=columns, epoch=epoch) for row in batch.to_pylist()]
                assert found == {name: expected[name] for name in columns or expected}
        found = changes_of(table, epochs[0], epochs[-1])
        assert [(row["v"] % 1024, row["w"]) for row in found] == [(1, None), (2, "w"), (3, "w")]
        if not merged:
            assert inside.step(embedded)
    store.close()


def history(store: Any) -> Any:
    """The runs of history of the table."""
    return store.version().find_table("t").levels.history


def test_a_restored_store_and_a_clone_have_the_history(tmp_path: Path) -> None:
    """Older epochs read as in the store that they were made from."""
    url = f"file://{tmp_path}/store"
    with connect(url, compaction=False) as store:
        kv = store.create_table("t")
        epochs = []
        for number in range(3):
            epoch = store.new_epoch()
            kv.ingest_batch([(b"k", b"%d" % number)], epoch)
            epochs.append(store.commit_epoch(epoch))
        store.compact("t")
        assert len(history(store)) == 1
        store.backup("b")
    restore(url, "b", f"file://{tmp_path}/restored")
    clone(url, f"file://{tmp_path}/clone")
    for name in ("restored", "clone"):
        with connect(f"file://{tmp_path}/{name}", compaction=False) as copy:
            assert [copy.table("t").get(b"k", epoch=epoch) for epoch in epochs] == [b"0", b"1", b"2"]
            copy.compact("t")
            copy.vacuum()
            assert [copy.table("t").get(b"k", epoch=epoch) for epoch in epochs] == [b"0", b"1", b"2"]
            assert len(history(copy)) == 1
