"""Tables with their own retention beside those with the store's: what is kept of each, and for how long."""

import contextlib
from pathlib import Path
from random import Random
from typing import Any

import pytest

from support import inside
from support.buckets.faulty_bucket import Crash, Fate, FaultyBucket, at_calls
from support.models.history import TableHistory
from support.store.stores import TickingSystem, open_on, pairs
from support.store.versions import ModelBucket
from tussock.meta.version.invariants import problems
from tussock.statestore import (
    InvalidOption,
    ObjectStoreUnavailable,
    SnapshotExpired,
    StateStore,
    TableNotFound,
    connect,
)
from tussock.statestore import clone as clone_store
from tussock.statestore import restore as restore_store
from tussock.statestore.contract.object_store import ObjectStore

HOUR = 3600.0
STORE = 10.0
"""The retention of the store."""


class World:
    """A store with a table of the store's retention, one of an hour and one of none, on clocks of the test."""

    def __init__(self, bucket: ObjectStore | None = None) -> None:
        self.system = TickingSystem()
        self.bucket = bucket or ModelBucket(self.system)
        self.store = self.open()
        self.system.on_tick.append(lambda: inside.renew_pins(inside.backend(self.store)))
        self.store.create_table("plain")
        self.store.create_table("long", retention=HOUR)
        self.store.create_table("none", retention=0)
        self.names = ["plain", "long", "none"]
        self.epochs: list[int] = []

    def open(self) -> StateStore:
        return open_on(self.bucket, self.system, retention=STORE, gc_grace=0)

    def commit(self, value: bytes) -> int:
        epoch = self.store.new_epoch()
        for name in self.names:
            self.store.table(name).ingest_batch([(b"k", value)], epoch)
        self.epochs.append(self.store.commit_epoch(epoch))
        return self.epochs[-1]

    def compact(self) -> None:
        for name in self.names:
            self.store.compact(name)

    def state(self, name: str) -> Any:
        return self.store.version().find_table(name)

    def past(self, name: str) -> int:
        """Rows of the table's history."""
        return sum(sst.rows for sst in self.state(name).levels.history_ssts())


@pytest.fixture
def world() -> Any:
    made = World()
    yield made
    assert problems(made.store.version()) == []  # type: ignore[arg-type]
    made.store.close()


def test_each_table_keeps_its_epochs_for_its_own_time(world: World) -> None:
    """Compaction and vacuum drop of each table what its own retention allows, and reads agree with them."""
    first = world.commit(b"1")
    world.commit(b"2")
    world.compact()
    assert [world.past(name) for name in world.names] == [1, 1, 0]
    assert world.store.table("plain").get(b"k", epoch=first) == b"1"
    with pytest.raises(SnapshotExpired, match="oldest readable"):
        world.store.table("none").get(b"k", epoch=first)
    world.system.forward(STORE + 1)
    world.store.vacuum()
    assert [world.past(name) for name in world.names] == [0, 1, 0]
    with pytest.raises(SnapshotExpired):
        world.store.table("plain").get(b"k", epoch=first)
    assert world.store.table("long").get(b"k", epoch=first) == b"1"
    assert [value for batch in world.store.table("long").changes(first) for value in batch["value"].to_pylist()] == [
        b"2"
    ]
    with pytest.raises(SnapshotExpired):
        world.store.table("none").changes(first)
    world.system.forward(HOUR)
    world.store.vacuum()
    assert [world.past(name) for name in world.names] == [0, 0, 0]
    with pytest.raises(SnapshotExpired):
        world.store.table("long").get(b"k", epoch=first)


def test_a_snapshot_of_an_older_epoch_has_the_tables_that_keep_it(world: World) -> None:
    """It holds those until it is closed; the others are refused from the first read on, not only once rows are gone."""
    first = world.commit(b"1")
    world.commit(b"2")
    world.system.forward(STORE + 1)
    with world.store.pin_snapshot(first) as snapshot:
        for name in ("plain", "none"):
            with pytest.raises(SnapshotExpired, match=f"table '{name}'.*was no longer kept when it was pinned"):
                snapshot.table(name).get(b"k")
        world.system.forward(3 * HOUR)
        world.compact()
        world.store.vacuum()
        assert snapshot.table("long").get(b"k") == b"1"
        assert pairs(snapshot.table("long").scan()) == [(b"k", b"1")]
    world.store.vacuum()
    assert world.past("long") == 0
    with pytest.raises(SnapshotExpired, match="oldest readable epoch"):
        world.store.pin_snapshot(first)


def test_a_pinned_epoch_holds_every_table_whatever_its_retention(world: World) -> None:
    """A pin on the newest epoch keeps what no retention would."""
    first = world.commit(b"1")
    with world.store.pin_snapshot() as snapshot:
        world.commit(b"2")
        world.compact()
        world.system.forward(3 * HOUR)
        world.compact()
        world.store.vacuum()
        assert snapshot.epoch == first
        for name in world.names:
            assert snapshot.table(name).get(b"k") == b"1"


def test_a_transaction_reads_a_table_without_retention(world: World) -> None:
    """It pins its epoch for that table, so that commits and compactions beside it take nothing away."""
    world.commit(b"1")
    with world.store.transaction() as tx:
        assert tx.table("none").get(b"k") == b"1"
        world.commit(b"2")
        world.compact()
        assert tx.table("none").get(b"k") == b"1"
        assert tx.table("plain").get(b"k") == b"1"


def test_a_transaction_that_comes_too_late_to_a_table_is_told_so(world: World) -> None:
    """What it has not read yet may be gone, though its epoch is kept in another table."""
    world.commit(b"1")
    with world.store.transaction() as tx:
        assert tx.table("long").get(b"k") == b"1"
        world.commit(b"2")
        world.compact()
        with pytest.raises(SnapshotExpired):
            tx.table("none").get(b"k")


def test_a_retention_can_be_changed_and_taken_away(world: World) -> None:
    """A shorter one counts from then on; a longer one brings nothing back, and no epoch becomes readable again."""
    first = world.commit(b"1")
    second = world.commit(b"2")
    assert world.store.alter_table("plain", retention=HOUR).spec.retention_ms == 3_600_000
    world.system.forward(STORE + 1)
    world.store.vacuum()
    assert world.store.table("plain").get(b"k", epoch=first) == b"1"
    world.store.alter_table("plain", retention=0)
    world.store.compact("plain")
    assert world.past("plain") == 0
    world.store.alter_table("plain", retention="store")
    assert world.state("plain").spec.retention_ms is None
    assert world.state("plain").own_epochs == (second, second)
    with pytest.raises(SnapshotExpired):
        world.store.table("plain").get(b"k", epoch=first)
    third = world.commit(b"3")
    world.commit(b"4")
    world.store.compact("plain")
    assert world.store.table("plain").get(b"k", epoch=third) == b"3"
    seq = world.store.version().seq
    world.store.alter_table("plain", retention="store")
    assert world.store.version().seq == seq


def test_a_table_follows_the_store_once_it_has_its_retention_again(world: World) -> None:
    """Its own epochs are raised by the store's retention, by vacuum too."""
    world.store.alter_table("plain", retention=HOUR)
    world.store.alter_table("plain", retention="store")
    world.commit(b"1")
    world.commit(b"2")
    world.compact()
    assert world.past("plain") == 1
    world.system.forward(STORE + 1)
    world.store.vacuum()
    assert world.past("plain") == 0


@pytest.mark.parametrize("retention", [-1, float("nan"), float("inf"), "day", True, 1e12, b"1"], ids=str)
def test_a_wrong_retention_is_refused(world: World, retention: Any) -> None:
    """At the creation and later, and nothing is stored."""
    seq = world.store.version().seq
    with pytest.raises(InvalidOption, match="retention"):
        world.store.create_table("wrong", retention=retention)
    with pytest.raises(InvalidOption, match="retention"):
        world.store.alter_table("plain", retention=retention)
    with pytest.raises(TableNotFound):
        world.store.alter_table("missing", retention=1)
    assert world.store.version().seq == seq


def test_a_dropped_table_is_kept_for_a_pin_with_its_own_epochs(world: World) -> None:
    """What it was when it went decides what the pin shows of it."""
    first = world.commit(b"1")
    world.commit(b"2")
    with world.store.pin_snapshot(first) as snapshot:
        world.store.drop_table("long")
        world.system.forward(3 * HOUR)
        world.store.vacuum()
        assert snapshot.table("long").get(b"k") == b"1"


def test_backups_restores_and_clones_keep_the_retention(tmp_path: Path) -> None:
    """With the epochs of the table, so that what was readable there is readable here."""
    url = (tmp_path / "store").as_uri()
    with connect(url, compaction=False, retention=HOUR) as store:
        store.create_table("t", retention=0)
        epochs = []
        for value in (b"1", b"2"):
            epoch = store.new_epoch()
            store.table("t").ingest_batch([(b"k", value)], epoch)
            epochs.append(store.commit_epoch(epoch))
        store.compact("t")
        store.backup("b")
        was: Any = store.version().find_table("t")
    for name, make in (("restored", restore_store), ("cloned", clone_store)):
        to = (tmp_path / name).as_uri()
        make(url, "b", to) if make is restore_store else make(url, to)
        with connect(to, compaction=False) as other:
            state: Any = other.version().find_table("t")
            assert (state.spec.retention_ms, state.own_epochs) == (0, was.own_epochs)
            with pytest.raises(SnapshotExpired):
                other.table("t").get(b"k", epoch=epochs[0])


@pytest.mark.parametrize("fate", [fate for fate in Fate if fate is not Fate.PASS], ids=lambda fate: fate.name)
@pytest.mark.parametrize("number", range(1, 4))
def test_a_change_of_retention_that_dies_is_whole_or_absent(number: int, fate: Fate) -> None:
    """At any request; the store stays sound, and the change can be made again."""
    system = TickingSystem()
    plain = ModelBucket(system)
    bucket = FaultyBucket(plain)
    store = open_on(bucket, system, retention=STORE, gc_grace=0)
    store.create_table("t")
    bucket.script = at_calls({len(bucket.calls) + number: fate})
    with contextlib.suppress(Crash, ObjectStoreUnavailable):
        store.alter_table("t", retention=0)
    with open_on(plain, system, gc_grace=0) as again:
        state: Any = again.version().find_table("t")
        assert state.spec.retention_ms in (None, 0)
        assert bool(state.own_epochs) == (state.spec.retention_ms == 0)
        again.alter_table("t", retention=0)
        assert again.version().find_table("t").spec.retention_ms == 0  # type: ignore[union-attr]
        assert problems(again.version()) == []  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(4))
def test_random_histories_of_tables_are_read_exactly(seed: int) -> None:
    """Whatever is compacted, pinned and vacuumed: what each table says is kept reads as a plain model says."""
    chance, world = Random(seed), World()
    models: dict[str, TableHistory[bytes, bytes]] = {name: TableHistory() for name in world.names}
    pins: list[tuple[Any, dict[str, bool]]] = []
    for _ in range(80):
        match chance.randrange(6):
            case 0 | 1:
                epoch, rows = world.store.new_epoch(), {}
                for name in chance.sample(world.names, 2):
                    keys = sorted(chance.sample([b"a", b"b", b"c", b"d"], 2))
                    rows[name] = {key: None if chance.random() < 0.3 else b"%d" % epoch for key in keys}
                    world.store.table(name).ingest_batch(list(rows[name].items()), epoch)
                epoch = world.store.commit_epoch(epoch)
                world.epochs.append(epoch)
                for name, batch in rows.items():
                    models[name].commit(epoch, batch)
            case 2:
                world.store.compact(chance.choice(world.names))
            case 3:
                world.system.forward(chance.choice([0.5, 4.0, STORE, HOUR / 3]))
                world.store.vacuum()
            case 4:
                wanted = chance.choice(["store", 0, 5.0, HOUR])
                world.store.alter_table(chance.choice(world.names), retention=wanted)  # type: ignore[arg-type]
            case _:
                if pins and chance.random() < 0.5:
                    pins.pop(chance.randrange(len(pins)))[0].close()
                elif world.epochs:
                    try:
                        pin = world.store.pin_snapshot(chance.choice([None, *world.epochs[-6:]]))
                        pins.append((pin, {name: _holds(pin, name) for name in world.names}))
                    except SnapshotExpired:
                        pass
        for name, model in models.items():
            oldest = inside.backend(world.store).oldest_readable(world.state(name))
            for epoch in [one for one in world.epochs if one >= oldest][-4:]:
                assert dict(pairs(world.store.table(name).scan(epoch=epoch))) == model.at(epoch)
        for pin, held in pins:
            for name, is_held in held.items():
                assert _holds(pin, name) == is_held
                if is_held:
                    assert dict(pairs(pin.table(name).scan())) == models[name].at(pin.epoch)
    assert problems(world.store.version()) == []  # type: ignore[arg-type]
    for pin, _ in pins:
        pin.close()
    world.store.close()


def _holds(pin: Any, name: str) -> bool:
    try:
        list(pin.table(name).scan())
    except SnapshotExpired:
        return False
    return True
