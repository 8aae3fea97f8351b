"""Rows that are written one by one: they wait as they were given, and are read, counted and committed as all others."""

import random
import threading
import time
from typing import Any

import pyarrow as pa
import pytest

from support import inside
from support.growth import cost_ratio
from tussock.statestore import EpochTooOld, InvalidBatch, StateStore, TableNotFound, connect
from tussock.statestore.rows.row_codec import ABSENT

SCHEMA = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.int32())])
TEXTS = pa.schema([pa.field("k", pa.string(), nullable=False), ("v", pa.string())])
KEYS = 40


def rows_of(table: Any, epoch: int | None = None) -> dict[Any, Any]:
    if "key" in table.schema.names:
        return {row["key"]: row["value"] for batch in table.scan(epoch=epoch) for row in batch.to_pylist()}
    return {row["k"]: row["v"] for batch in table.read(epoch=epoch) for row in batch.to_pylist()}


class Written:
    """One table, raw or typed, and what two epochs of a client hold for it, in the order of the epochs."""

    def __init__(self, store: StateStore, chance: random.Random, *, is_raw: bool) -> None:
        self.is_raw = is_raw
        self.chance = chance
        options: dict[str, Any] = {} if is_raw else {"schema": SCHEMA, "primary_key": ["k"]}
        self.table: Any = store.create_table("t", **options)
        self.own: dict[int, dict[Any, Any]] = {}

    def keys(self, count: int) -> list[Any]:
        picked = sorted(self.chance.sample(range(KEYS), count))
        return [b"%02d" % at for at in picked] if self.is_raw else picked

    def write(self, epoch: int) -> None:
        """One row, several, or Arrow; a quarter are deletes."""
        many = self.chance.choice([1, 1, 1, 3, 20])
        batch = {key: None if self.chance.random() < 0.25 else self.chance.randrange(1000) for key in self.keys(many)}
        if self.is_raw:
            pairs = [(key, None if value is None else b"%d" % value) for key, value in batch.items()]
            batch = dict(pairs)
            arrow = self.chance.random() < 0.2
            columns = pa.record_batch(
                [pa.array(part, pa.binary()) for part in zip(*pairs, strict=True)], ["key", "value"]
            )
            self.table.ingest_batch(columns if arrow else pairs, epoch)
        else:
            self.table.delete([key for key, value in batch.items() if value is None], epoch)
            puts = [{"k": key, "v": value} for key, value in batch.items() if value is not None]
            self.table.upsert(pa.Table.from_pylist(puts, schema=SCHEMA) if self.chance.random() < 0.2 else puts, epoch)
        self.own.setdefault(epoch, {}).update(batch)

    def check(self, below: dict[Any, Any]) -> None:
        """One read of some kind."""
        there = dict(below)
        for epoch in sorted(self.own):
            there.update(self.own[epoch])
        there = {key: value for key, value in there.items() if value is not None}
        look = self.chance.choice(["get", "get", "get", "many", "scan"])
        if look == "scan":
            assert rows_of(self.table) == there
        elif look == "many":
            keys = self.keys(KEYS)
            found = self.table.multi_get(keys).to_pylist()
            assert [row if self.is_raw or row is None else row["v"] for row in found] == [
                there.get(key) for key in keys
            ]
        else:
            [key] = self.keys(1)
            row = self.table.get(key)
            assert (row if self.is_raw or row is None else row["v"]) == there.get(key)


@pytest.mark.parametrize("is_raw", [True, False], ids=["raw", "typed"])
@pytest.mark.parametrize("seed", range(4))
def test_whatever_the_order_the_newest_epoch_wins(seed: int, is_raw: bool) -> None:
    """Two epochs of a client, written in turn, by rows and by batches, then committed or given up."""
    chance = random.Random(seed)
    with connect("memory://", compaction=False, buffer_bytes=chance.choice([20_000, 1 << 20])) as store:
        written = Written(store, chance, is_raw=is_raw)
        committed: dict[Any, Any] = {}
        for _ in range(3):
            epochs = [store.new_epoch(), store.new_epoch()]
            for _ in range(40):
                written.write(chance.choice(epochs))
                for _ in range(chance.randrange(3)):
                    written.check(committed)
            for epoch in epochs:
                own = written.own.pop(epoch, {})
                if chance.random() < 0.3:
                    store.abort_epoch(epoch)
                    continue
                at = store.commit_epoch(epoch)
                committed.update(own)
                assert rows_of(written.table, at) == {
                    key: value for key, value in committed.items() if value is not None
                }
            written.check(committed)
            assert inside.buffer(store).nbytes == 0


def test_a_wrong_row_is_refused_as_in_a_batch() -> None:
    """What is not what the table takes is told by position and key, and nothing is stored."""
    with connect("memory://", compaction=False) as store:
        table = store.create_table("t")
        epoch = store.new_epoch()
        for wrong in ([(b"a", 1)], [("a", b"")], [(b"a",)], [(b"b", b""), (b"a", b"")], [(b"a", b""), (b"a", b"")]):
            with pytest.raises(InvalidBatch):
                table.ingest_batch(wrong, epoch)  # type: ignore[arg-type]
        assert rows_of(table) == {}
        table.ingest_batch([(b"a", b"1")], epoch)
        store.commit_epoch(epoch)
        with pytest.raises(EpochTooOld):
            table.ingest_batch([(b"a", b"2")], epoch)
        assert table.get(b"a") == b"1"


def test_they_are_counted_and_spilled() -> None:
    """Rows of 50 kB through a buffer of 1 MiB: a few of them are in memory at any time."""
    with connect("memory://", compaction=False, buffer_bytes=1 << 20) as store:
        table = store.create_table("t")
        epoch = store.new_epoch()
        for at in range(200):
            table.ingest_batch([(b"%03d" % at, bytes([at]) * 50_000)], epoch)
            assert inside.buffer(store).nbytes <= 1 << 20
        assert table.get(b"007") == bytes([7]) * 50_000
        store.commit_epoch(epoch)
        assert rows_of(table) == {b"%03d" % at: bytes([at]) * 50_000 for at in range(200)}


def test_large_rows_do_not_wait() -> None:
    """They are a batch from the beginning: what is too large for one has to be told when it is written."""
    with connect("memory://", compaction=False) as store:
        raw, typed = store.create_table("raw"), store.create_table("typed", TEXTS, primary_key=["k"])
        epoch = store.new_epoch()
        raw.ingest_batch([(b"small", b"1")], epoch)
        raw.ingest_batch([(b"a", bytes(1 << 20)), (b"b", b"2")], epoch)
        typed.upsert([{"k": "small", "v": "1"}], epoch)
        typed.upsert([{"k": "a", "v": "x" * (1 << 20)}, {"k": "b", "v": "2"}], epoch)
        for table, key in ((raw, b"small"), (raw, b"b"), (typed, b"small"), (typed, b"b")):
            assert inside.buffer(store).find_loose(table.spec.id, key) is ABSENT
        assert [raw.get(key) for key in (b"small", b"a", b"b")] == [b"1", bytes(1 << 20), b"2"]
        assert [typed.get(key)["v"][:1] for key in ("small", "a", "b")] == ["1", "x", "2"]
        store.commit_epoch(epoch)


def test_a_table_that_is_altered_has_them_with_its_new_columns() -> None:
    """Rows of both schemas are in one epoch, and in a run together."""
    with connect("memory://", compaction=False) as store:
        table: Any = store.create_table("t", SCHEMA, primary_key=["k"])
        epoch = store.new_epoch()
        table.upsert([{"k": 1, "v": 10}], epoch)
        store.alter_table("t", add={"w": pa.string()}, widen={"v": pa.int64()})
        assert table.get(1) == {"k": 1, "v": 10, "w": None}
        table.upsert([{"k": 2, "v": 1 << 40, "w": "x"}], epoch)
        store.commit_epoch(epoch)
        assert pa.Table.from_batches(table.read()).sort_by("k").to_pylist() == [
            {"k": 1, "v": 10, "w": None},
            {"k": 2, "v": 1 << 40, "w": "x"},
        ]


def test_those_of_a_dropped_table_are_refused_at_the_commit() -> None:
    """As with rows in runs."""
    with connect("memory://", compaction=False) as store:
        table = store.create_table("t")
        epoch = store.new_epoch()
        table.ingest_batch([(b"a", b"1")], epoch)
        store.drop_table("t")
        with pytest.raises(TableNotFound):
            table.get(b"a")
        with pytest.raises(TableNotFound):
            store.commit_epoch(epoch)
        store.abort_epoch(epoch)


def test_a_reader_beside_the_writer_never_goes_back() -> None:
    """Rows move from loose ones to runs to the version while another thread reads them."""
    with connect("memory://", compaction=False) as store:
        table = store.create_table("t")
        done = threading.Event()
        seen: list[int] = []

        def read() -> None:
            while not done.is_set():
                seen.append(int(table.get(b"a") or b"0"))
                found = table.multi_get([b"a", b"b"]).to_pylist()
                seen.append(int(found[0] or b"0"))

        reader = threading.Thread(target=read)
        reader.start()
        number = 0
        for _ in range(60):
            epoch = store.new_epoch()
            for _ in range(100):
                number += 1
                table.ingest_batch([(b"a", b"%d" % number)], epoch)
            store.commit_epoch(epoch)
        done.set()
        reader.join()
        assert seen == sorted(seen)
        assert seen[-1] > 0


@pytest.mark.parametrize("is_raw", [True, False], ids=["raw", "typed"])
def test_a_row_costs_a_tenth_of_a_batch_of_one(is_raw: bool) -> None:
    """And as much, however many there were before."""
    with connect("memory://", compaction=False) as store:
        options: dict[str, Any] = {} if is_raw else {"schema": SCHEMA, "primary_key": ["k"]}
        table: Any = store.create_table("t", **options)
        epoch = store.new_epoch()

        def alone(count: int) -> None:
            for at in range(count):
                if is_raw:
                    table.ingest_batch([(b"%d" % at, b"v")], epoch)
                else:
                    table.upsert([{"k": at, "v": at}], epoch)

        def in_batches(count: int) -> None:
            for at in range(count):
                one = [b"%d" % at], [b"v"]
                typed = pa.array([at]), pa.array([at], pa.int32())
                names = ["key", "value"] if is_raw else ["k", "v"]
                table.upsert(pa.record_batch(list(one if is_raw else typed), names), epoch)

        assert cost_ratio(alone, 500, 5_000) < 15
        began = time.thread_time()
        alone(500)
        between = time.thread_time()
        in_batches(500)
        assert time.thread_time() - between > 10 * (between - began)
