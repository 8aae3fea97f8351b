"""Rows that expire: what a reader sees depends on its epoch and on nothing else, whatever is compacted and when."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from support import inside
from support.store.stores import TickingSystem, open_on, pairs, sst_objects
from support.store.versions import ModelBucket
from tussock.meta.version.invariants import problems
from tussock.statestore import InvalidOption, SnapshotExpired, StateStore
from tussock.statestore import clone as clone_store
from tussock.statestore import restore as restore_store
from tussock.statestore.buckets import open_bucket

TTL = 60.0
HOUR = 3600.0
EVENTS = pa.schema(
    [pa.field("id", pa.int64(), nullable=False), ("at", pa.timestamp("us")), ("note", pa.string()), ("n", pa.int64())]
)


class Unprintable:
    """An object of a foreign library, which fails when it is to be shown."""

    def __repr__(self) -> str:
        raise RuntimeError("not to be shown")


class World:
    """A store on clocks of the test, with a table that expires by write time and one that does by a column."""

    def __init__(self, retention: float = 0.0) -> None:
        self.system = TickingSystem()
        self.system.forward(1_000_000)
        self.bucket = ModelBucket(self.system)
        self.store = open_on(self.bucket, self.system, retention=retention, gc_grace=0)
        self.system.on_tick.append(lambda: inside.renew_pins(inside.backend(self.store)))
        self.raw = self.store.create_table("raw", ttl=TTL)
        self.events = self.store.create_table("events", EVENTS, ["id"], vnodes=2, ttl=TTL, ttl_column="at")

    @property
    def now(self) -> datetime:
        """What the clocks say."""
        return datetime.fromtimestamp(self.system.now_ms() / 1000, UTC).replace(tzinfo=None)

    def event(self, number: int, age: float | None = 0.0) -> dict[str, Any]:
        """A row whose time is that many seconds ago; `None`: it has none."""
        at = None if age is None else self.now - timedelta(seconds=age)
        return {"id": number, "at": at, "note": f"event {number}", "n": number * 10}

    def commit(self, raw: dict[bytes, bytes | None] | None = None, events: list[dict[str, Any]] | None = None) -> int:
        """Write rows, none: a commit of nothing, by which time goes on."""
        epoch = self.store.new_epoch()
        if raw:
            self.raw.ingest_batch(sorted(raw.items()), epoch)
        if events:
            self.events.upsert(events, epoch)
        return self.store.commit_epoch(epoch)

    def rows(self, name: str) -> int:
        """Row versions in the table's SSTs."""
        levels: Any = self.store.version().find_table(name).levels  # type: ignore[union-attr]
        return sum(sst.rows for sst in levels.ssts())


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    assert problems(made.store.version()) == []  # type: ignore[arg-type]
    made.store.close()


def ids(batches: Any) -> list[int]:
    return sorted(batch_id for batch in batches for batch_id in batch.column("id").to_pylist())


def test_what_has_expired_as_a_whole_is_not_read(world: World) -> None:
    """A scan opens no SST all of whose rows have expired, in the live tree or in history; own rows are read always."""
    world.commit({b"%d" % number: b"old" for number in range(9)})
    world.system.forward(TTL / 2)
    read = world.commit({b"%d" % number: b"new" for number in range(0, 9, 2)})
    metas = inside.sstables(world.store).metas
    old = {sst.id: sst.max_epoch < read for sst in world.store.version().find_table("raw").levels.ssts()}  # type: ignore[union-attr]
    assert sorted(old.values()) == [False, True]
    world.system.forward(TTL / 2)
    world.commit()
    new = [(b"%d" % number, b"new") for number in range(0, 9, 2)]
    for options in ({}, {"reverse": True}, {"start": b"0"}):
        found = pairs(world.raw.scan(**options))
        assert found == (new[::-1] if "reverse" in options else new)
    assert {sst_id: metas.get((sst_id,)) is None for sst_id in old} == old
    epoch = world.store.new_epoch()
    world.raw.ingest_batch([(b"1", b"own")], epoch)
    assert pairs(world.raw.scan()) == sorted([*new, (b"1", b"own")])
    world.store.abort_epoch(epoch)


def test_a_row_is_gone_from_the_first_epoch_after_its_time(world: World) -> None:
    """Every way to read agrees, before any compaction; by the wall clock alone nothing goes."""
    world.commit({b"a": b"1", b"b": b"2"}, [world.event(1), world.event(2, age=30), world.event(3, age=None)])
    world.system.forward(TTL - 31)
    world.commit({b"b": b"3"})
    assert pairs(world.raw.scan()) == [(b"a", b"1"), (b"b", b"3")]
    world.system.forward(2)
    assert ids(world.events.read()) == [1, 2, 3]
    world.commit()
    assert ids(world.events.read()) == [1, 3]
    world.system.forward(30)
    world.commit()
    assert pairs(world.raw.scan()) == pairs(world.raw.scan(reverse=True)) == [(b"b", b"3")]
    assert (world.raw.get(b"a"), world.raw.get(b"b")) == (None, b"3")
    assert world.raw.multi_get([b"a", b"b"] * 300).to_pylist() == [None, b"3"] * 300
    assert ids(world.events.read()) == [3]
    assert (world.events.get(1), world.events.get(3)["id"]) == (None, 3)
    assert [row is not None for row in world.events.multi_get([1, 2, 3]).to_pylist()] == [False, False, True]
    assert [batch.to_pylist() for batch in world.events.read(["note"])] == [[{"note": "event 3"}]]
    assert ids(world.events.read(filter=pc.field("n") > 0)) == [3]
    assert ids(world.events.read(limit=5)) == [3]


def test_a_limit_counts_rows_that_are_seen(world: World) -> None:
    """Expired rows before them do not use it up, in either direction."""
    world.commit({b"%03d" % key: b"old" for key in range(50)})
    world.system.forward(TTL)
    world.commit({b"%03d" % key: b"new" for key in range(40, 60)})
    assert [key for key, _ in pairs(world.raw.scan(limit=3))] == [b"040", b"041", b"042"]
    assert [key for key, _ in pairs(world.raw.scan(limit=2, reverse=True))] == [b"059", b"058"]


def test_an_expired_row_hides_what_is_older(world: World) -> None:
    """By a column a newer row may expire before the one that it replaced; it does not bring that back."""
    world.commit(events=[world.event(1)])
    first = world.commit(events=[world.event(1, age=TTL - 1)])
    assert world.events.get(1, epoch=first) is not None
    world.system.forward(2)
    world.commit()
    assert world.events.get(1) is None
    world.store.compact("events")
    assert world.events.get(1) is None
    assert world.rows("events") == 0
    assert ids(world.events.read()) == []


def test_above_the_bottom_an_expired_row_stays_to_hide_what_is_below(world: World) -> None:
    """It goes once a merge reaches all that is older."""
    world.commit(events=[world.event(number) for number in range(8)])
    world.store.compact("events")
    for number in range(4):
        world.commit(events=[world.event(number, age=TTL - 1)])
    world.system.forward(2)
    world.commit()
    task = inside.backend(world.store).meta.own_tasks.claim()
    assert (task.kind, task.bottom) == ("intra-l0", False)
    inside.execute(inside.backend(world.store), task)
    assert ids(world.events.read()) == [4, 5, 6, 7]
    world.store.compact("events")
    assert ids(world.events.read()) == [4, 5, 6, 7]
    assert world.rows("events") == 4


def test_a_snapshot_shows_its_rows_for_as_long_as_it_lives(world: World) -> None:
    """Past every time to live, whatever is committed, compacted and vacuumed."""
    epoch = world.commit({b"a": b"1"}, [world.event(1)])
    with world.store.pin_snapshot() as snapshot:
        for _ in range(4):
            world.system.forward(TTL)
            world.commit({b"b": b"2"}, [world.event(2)])
            world.store.compact("raw")
            world.store.compact("events")
            world.store.vacuum()
            assert snapshot.epoch == epoch
            assert pairs(snapshot.table("raw").scan()) == [(b"a", b"1")]
            assert snapshot.table("events").get(1)["id"] == 1
        assert pairs(world.raw.scan()) == [(b"b", b"2")]
        assert ids(world.events.read()) == [2]
    world.store.compact("raw")
    assert world.rows("raw") == 1


def test_the_retention_keeps_expired_rows_for_readers_of_its_epochs() -> None:
    """A row goes once its time to live and the retention are over."""
    world = World(retention=600.0)
    first = world.commit({b"a": b"1"})
    world.system.forward(TTL)
    second = world.commit({b"b": b"2"})
    world.store.compact("raw")
    assert world.raw.get(b"a", epoch=first) == b"1"
    assert world.raw.get(b"a", epoch=second) is None
    # An epoch between two commits has a time as well.
    between = (world.system.now_ms() - 1000) << 16
    assert world.raw.get(b"a", epoch=between) == b"1"
    assert world.rows("raw") == 2
    world.system.forward(601)
    world.commit({b"c": b"3"})
    world.store.compact("raw")
    with pytest.raises(SnapshotExpired):
        world.raw.get(b"a", epoch=first)
    assert pairs(world.raw.scan(epoch=second)) == [(b"b", b"2")]
    assert world.rows("raw") == 2
    world.store.close()


def test_compaction_drops_whole_ssts_of_expired_rows_by_itself(world: World) -> None:
    """From L0 and from the levels; by a column too. No reader or writer has to touch them."""
    embedded = inside.backend(world.store)
    for name in ("raw", "events"):
        for place in ("l0", "bottom"):
            world.commit({b"a": b"1"}, [world.event(1), world.event(2)])
            if place == "bottom":
                world.store.compact(name)
            assert embedded.meta.own_tasks.claim(name) is None
            world.system.forward(TTL + 1)
            world.commit()
            task = embedded.meta.own_tasks.claim(name)
            assert (task.kind, task.bottom) == ("tombstone", True)
            inside.execute(embedded, task)
            assert world.rows(name) == 0
            assert embedded.meta.own_tasks.claim(name) is None
            for other in {"raw", "events"} - {name}:
                world.store.compact(other)
    world.store.vacuum()
    assert sst_objects(world.bucket) == set()


def test_rows_without_a_time_live_until_they_are_deleted(world: World) -> None:
    """A null in the column keeps its SST from being dropped whole."""
    world.commit(events=[world.event(1, age=None), world.event(2)])
    world.system.forward(10 * TTL)
    world.commit()
    assert inside.backend(world.store).meta.own_tasks.claim("events") is None
    world.store.compact("events")
    assert ids(world.events.read()) == [1]
    assert world.rows("events") == 1


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "Europe/Vienna"])
def test_every_unit_of_timestamps_is_exact_to_the_millisecond(unit: str, zone: str | None) -> None:
    """A row is seen up to the millisecond before its time, and not at it; zones change nothing."""
    system = TickingSystem()
    system.forward(1_000_000)
    store = open_on(ModelBucket(system), system, retention=HOUR)
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("at", pa.timestamp(unit, zone))])
    table = store.create_table("t", schema, ["id"], ttl=0, ttl_column="at")
    end_ms = (system.now_ms() // 1000 + 10) * 1000
    per_second = {"s": 1, "ms": 1000, "us": 10**6, "ns": 10**9}[unit]
    extremes = [-(2**63) + 1, 0, end_ms // 1000 * per_second, 2**63 - 2]
    epoch = store.new_epoch()
    times = pa.array(extremes, pa.int64()).view(pa.timestamp(unit, zone))
    table.upsert(pa.table({"id": pa.array(range(4)), "at": times}, schema=schema), epoch)
    store.commit_epoch(epoch)
    system.forward((end_ms - system.now_ms()) / 1000 + 1)
    epoch = store.new_epoch()
    store.commit_epoch(epoch)
    for compacted in (False, True):
        assert ids(table.read(["id"], epoch=((end_ms - 1) << 16) | 0xFFFF)) == [2, 3]
        assert ids(table.read(["id"], epoch=end_ms << 16)) == [3]
        found = table.multi_get([0, 1, 2, 3], epoch=(end_ms - 1) << 16).is_valid()
        assert found.to_pylist() == [False, False, True, True]
        if not compacted:
            store.compact("t")
    store.close()


def test_periods_of_a_table_are_exact_to_the_millisecond(world: World) -> None:
    """Though binary floats of seconds are often a little less."""
    for number, ms in enumerate((1, 290, 1001, 1009, 4350)):
        spec = world.store.create_table(f"t{number}", ttl=ms / 1000, retention=ms / 1000).spec
        assert (spec.ttl_ms, spec.retention_ms) == (ms, ms)


def test_own_rows_are_seen_until_they_are_committed(world: World) -> None:
    """They have no time yet, so they are not expired, not even by the column; the commit gives them one."""
    world.commit({b"z": b"0"})
    epoch = world.store.new_epoch()
    world.raw.ingest_batch([(b"a", b"1")], epoch)
    world.events.upsert([world.event(1, age=2 * TTL)], epoch)
    world.system.forward(2 * TTL)
    world.commit()
    assert pairs(world.raw.scan()) == [(b"a", b"1")]
    assert world.raw.get(b"a") == b"1"
    assert ids(world.events.read()) == [1]
    assert world.raw.multi_get([b"a", b"z"]).to_pylist() == [b"1", None]
    committed = world.store.commit_epoch(epoch)
    # It was overtaken, so it got a fresh epoch, and with it a fresh time.
    assert committed > epoch
    assert world.raw.get(b"a") == b"1"
    assert ids(world.events.read()) == []


def test_a_transaction_reads_by_the_time_of_its_snapshot(world: World) -> None:
    """What expires while it runs stays visible to it, and is no conflict; its own rows are seen."""
    world.commit({b"a": b"1"}, [world.event(1)])
    with world.store.transaction() as tx:
        assert tx.table("raw").get(b"a") == b"1"
        world.system.forward(2 * TTL)
        world.commit({b"other": b"2"})
        assert tx.table("raw").get(b"a") == b"1"
        assert tx.table("events").get(1) is not None
        tx.table("events").upsert([world.event(2, age=5 * TTL)])
        assert ids(tx.table("events").read()) == [1, 2]
        tx.table("raw").ingest_batch([(b"b", b"3")])
    assert pairs(world.raw.scan()) == [(b"b", b"3"), (b"other", b"2")]
    with world.store.transaction() as tx:
        assert tx.table("raw").get(b"a") is None
        tx.table("raw").ingest_batch([(b"a", b"4")])
    assert world.raw.get(b"a") == b"4"


def feed(table: Any, after: int, until: int | None = None) -> list[tuple[Any, ...]]:
    return [
        (row["op"], row["id"], row["n"], row["epoch"])
        for batch in table.change_feed(after, until)
        for row in batch.to_pylist()
    ]


@pytest.mark.parametrize("compacted", [False, True])
def test_expiry_is_no_change_and_changes_are_told_as_of_their_epoch(compacted: bool) -> None:
    """The same feed before and after compaction, and whether it is read at once or in parts."""
    world = World(retention=HOUR)
    start = world.commit(events=[world.event(9)])
    first = world.commit(events=[world.event(1), world.event(2)])
    world.system.forward(TTL / 2)
    second = world.commit(events=[{**world.event(1), "n": 11}])
    world.system.forward(TTL / 2)
    third = world.commit(events=[{**world.event(1), "n": 12}, {**world.event(2), "n": 21}, world.event(3, age=2 * TTL)])
    fourth = world.commit(events=[{**world.event(1, age=2 * TTL), "n": 13}])
    world.system.forward(2 * TTL)
    end = world.commit(events=[world.event(4)])
    if compacted:
        world.store.compact("events")
    expected = [
        ("insert", 1, 10, first),
        ("update_preimage", 1, 10, second),
        ("update_postimage", 1, 11, second),
        ("update_preimage", 1, 11, third),
        ("update_postimage", 1, 12, third),
        # Its new row was expired from the start.
        ("delete", 1, 12, fourth),
        ("insert", 2, 20, first),
        # The row before had expired when this one was committed.
        ("insert", 2, 21, third),
        ("insert", 4, 40, end),
    ]
    assert sorted(feed(world.events, start)) == sorted(expected)
    parts = [start, first, second, third, fourth, end]
    joined = [row for after, until in pairwise(parts) for row in feed(world.events, after, until)]
    assert sorted(joined) == sorted(expected)
    only = [row for batch in world.events.change_feed(start, columns=["n"]) for row in batch.to_pylist()]
    assert sorted((row["op"], row["n"]) for row in only) == sorted((op, n) for op, _, n, _ in expected)
    assert only[0].keys() == {"n", "op", "epoch"}
    # All that was committed is among the changes, whether anybody could see it or not.
    told = [row for batch in world.events.changes(start) for row in batch.to_pylist()]
    assert {row["id"] for row in told if row["epoch"] == third} == {1, 2, 3}
    assert len(told) == 8
    world.store.close()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ttl": -1}, "ttl is -1; expected seconds"),
        ({"ttl": "1 day"}, "expected seconds"),
        ({"ttl": True}, "expected seconds"),
        ({"ttl": float("inf")}, "expected seconds"),
        ({"ttl": 0}, "at least a millisecond"),
        ({"ttl": 0.0001}, "at least a millisecond"),
        ({"ttl_column": "at"}, "without ttl"),
        ({"ttl": 1, "ttl_column": "n"}, "a column of type int64; expected a column of a timestamp type.*one of.*at"),
        ({"ttl": 1, "ttl_column": "missing"}, "which is not there"),
        ({"ttl": 1, "ttl_column": 7}, "which is not there"),
        ({"ttl": 1, "ttl_column": "when"}, "a column of the key"),
    ],
    ids=str,
)
def test_a_wrong_time_to_live_is_refused(world: World, options: dict[str, Any], message: str) -> None:
    """With an error that says what is expected, and nothing is created."""
    schema = EVENTS.append(pa.field("when", pa.timestamp("s"), nullable=False))
    with pytest.raises(InvalidOption, match=message):
        world.store.create_table("wrong", schema, ["id", "when"], **options)
    with pytest.raises(InvalidOption):
        world.store.create_table("wrong", **options)
    assert "wrong" not in world.store.tables()


def test_a_column_that_cannot_be_shown_is_refused_by_its_type(world: World) -> None:
    store = world.store
    schema = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us"))])
    with pytest.raises(InvalidOption, match="a value of type Unprintable, which is not there"):
        store.create_table("typed", schema, ["id"], ttl=1, ttl_column=Unprintable())  # type: ignore[arg-type]
    with pytest.raises(InvalidOption, match="a value of type Unprintable without ttl"):
        store.create_table("typed", schema, ["id"], ttl_column=Unprintable())  # type: ignore[arg-type]
    with pytest.raises(InvalidOption, match="a value of type Unprintable; a raw table has no such column"):
        store.create_table("raw", ttl=1, ttl_column=Unprintable())  # type: ignore[arg-type]


def test_a_store_of_small_epochs_has_no_time(world: World) -> None:
    """Epochs that a user counts carry none, so rows of a time to live by writing stay."""
    system = TickingSystem()
    store = open_on(ModelBucket(system), system, retention=0)
    table = store.create_table("t", ttl=1)
    for epoch in (1, 2, 3):
        table.ingest_batch([(b"%d" % epoch, b"v")], epoch)
        store.commit_epoch(epoch)
        system.forward(10)
    assert len(pairs(table.scan())) == 3
    store.close()


def test_backups_restores_and_clones_keep_the_time_to_live(tmp_path: Path) -> None:
    """A restored store shows what the backup showed, until its first commit brings the time of today."""
    url, system = (tmp_path / "store").as_uri(), TickingSystem()
    with _on_folder(url, system) as store:
        table = store.create_table("t", ttl=TTL)
        epoch = store.new_epoch()
        table.ingest_batch([(b"a", b"1")], epoch)
        store.commit_epoch(epoch)
        store.backup("b")
    system.forward(10 * TTL)
    for name in ("restored", "cloned"):
        to = (tmp_path / name).as_uri()
        if name == "restored":
            restore_store(url, "b", to)
        else:
            clone_store(url, to)
        with _on_folder(to, system) as other:
            assert pairs(other.table("t").scan()) == [(b"a", b"1")]
            epoch = other.new_epoch()
            other.table("t").ingest_batch([(b"b", b"2")], epoch)
            with other.pin_snapshot() as snapshot:
                other.commit_epoch(epoch)
                assert pairs(other.table("t").scan()) == [(b"b", b"2")]
                assert pairs(snapshot.table("t").scan()) == [(b"a", b"1")]


def _on_folder(url: str, system: TickingSystem) -> StateStore:
    return open_on(open_bucket(url), system)


class Model:
    """What every reader has to see, by a plain list of what was committed."""

    def __init__(self) -> None:
        self.versions: dict[Any, list[tuple[int, int | None, Any]]] = {}
        """By key: epoch, when the row expires (`None`: never), and the row; `None` for a delete."""

    def put(self, epoch: int, key: Any, expires_ms: int | None, row: Any) -> None:
        self.versions.setdefault(key, []).append((epoch, expires_ms, row))

    def at(self, epoch: int) -> dict[Any, Any]:
        seen = {}
        for key, versions in self.versions.items():
            found = [one for one in versions if one[0] <= epoch]
            if found and found[-1][2] is not None and (found[-1][1] is None or found[-1][1] > epoch >> 16):
                seen[key] = found[-1][2]
        return seen


@pytest.mark.parametrize("seed", range(5))
def test_random_histories_read_as_the_model_says(seed: int) -> None:
    """At every readable and every pinned epoch, whatever was compacted, in whichever way and whenever."""
    chance = Random(seed)
    world = World(retention=chance.choice([0.0, 20.0, 200.0]))
    embedded = inside.backend(world.store)
    raw, events = Model(), Model()
    epochs: list[int] = []
    pins: list[Any] = []
    for _ in range(150):
        match chance.randrange(7):
            case 0 | 1 | 2:
                epoch = world.store.new_epoch()
                keys = chance.sample(range(8), 3)
                rows = {b"%d" % key: None if chance.random() < 0.2 else b"%d" % epoch for key in keys}
                aged = [world.event(key, age=chance.choice([None, 0, 30, 59, 200, -100])) for key in keys]
                world.raw.ingest_batch(sorted(rows.items()), epoch)
                world.events.upsert(aged, epoch)
                epoch = world.store.commit_epoch(epoch)
                epochs.append(epoch)
                for key, value in rows.items():
                    raw.put(epoch, key, (epoch >> 16) + int(TTL * 1000), value)
                for row in aged:
                    at = row["at"]
                    end = None if at is None else int(at.replace(tzinfo=UTC).timestamp() * 1000) + int(TTL * 1000)
                    events.put(epoch, row["id"], end, row)
            case 3:
                world.system.forward(chance.choice([0.5, 7.0, 31.0, 90.0]))
                if chance.random() < 0.5:
                    epochs.append(world.commit())
            case 4:
                name = chance.choice(["raw", "events"])
                if chance.random() < 0.4:
                    world.store.compact(name)
                elif task := embedded.meta.own_tasks.claim(name):
                    inside.execute(embedded, task)
            case 5:
                world.store.vacuum()
            case _:
                if pins and chance.random() < 0.6:
                    pins.pop(chance.randrange(len(pins))).close()
                elif epochs:
                    pins.append(world.store.pin_snapshot())
        for pin in pins:
            _check(pin.table("raw"), pin.table("events"), raw, events, pin.epoch, None)
        state: Any = world.store.version().find_table("raw")
        oldest = embedded.oldest_readable(state)
        kept = [one for one in epochs if one >= oldest]
        for epoch in chance.sample(kept, min(len(kept), 2)):
            _check(world.raw, world.events, raw, events, epoch, epoch)
        newest = world.store.committed_epoch
        _check(world.raw, world.events, raw, events, newest, None)
    for pin in pins:
        pin.close()
    world.store.close()


def _check(raw: Any, events: Any, of_raw: Model, of_events: Model, epoch: int, at: int | None) -> None:
    wanted = of_raw.at(epoch)
    assert dict(pairs(raw.scan(epoch=at))) == wanted
    keys = [b"%d" % key for key in range(8)]
    assert raw.multi_get(keys, epoch=at).to_pylist() == [wanted.get(key) for key in keys]
    assert raw.get(keys[epoch % 8], epoch=at) == wanted.get(keys[epoch % 8])
    seen = of_events.at(epoch)
    found = [row for batch in events.read(epoch=at) for row in batch.to_pylist()]
    assert {row["id"]: row for row in found} == seen
    assert events.get(epoch % 8, epoch=at) == seen.get(epoch % 8)
    notes = [row for batch in events.read(["note"], epoch=at) for row in batch.to_pylist()]
    assert sorted(row["note"] for row in notes) == sorted(row["note"] for row in seen.values())
