"""Vacuum lets go of history that no reader needs, and minds pins, also those that come while it is at work."""

from collections.abc import Iterator
from typing import Any

import pytest

from support.buckets.faulty_bucket import Crash, Fate, FaultyBucket, at_calls
from support.store.stores import TickingSystem, open_on, pairs, sst_objects
from support.store.versions import ModelBucket
from tussock.statestore import SnapshotExpired, StateStore

RETENTION = 10.0


class World:
    """A store with one row that was overwritten twice, compacted, so that history has both older ones."""

    def __init__(self) -> None:
        self.system = TickingSystem()
        self.plain = ModelBucket(self.system)
        self.bucket = FaultyBucket(self.plain)
        self.store = self.open(self.bucket)
        self.store.create_table("t")
        self.epochs = [self.commit(b"%d" % number) for number in range(3)]
        self.store.compact("t")

    def open(self, bucket: FaultyBucket) -> StateStore:
        return open_on(bucket, self.system, retention=RETENTION, gc_grace=0)

    def commit(self, value: bytes) -> int:
        epoch = self.store.new_epoch()
        self.store.table("t").ingest_batch([(b"k", value)], epoch)
        return self.store.commit_epoch(epoch)

    @property
    def history(self) -> list[str]:
        """Ids of its SSTs."""
        levels: Any = self.store.version().find_table("t").levels  # type: ignore[union-attr]
        return [sst.id for sst in levels.history_ssts()]


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.store.close()


def test_history_goes_with_its_objects_once_the_retention_is_over(world: World) -> None:
    """A dry run before shows nothing; reads of the present and their SSTs stay as they are."""
    (past,) = world.history
    world.store.vacuum()
    assert world.history == [past]
    world.system.forward(RETENTION + 1)
    assert past not in {path[4:36] for path, _ in world.store.vacuum(dry_run=True).deleted}
    assert world.history == [past]
    report = world.store.vacuum()
    assert world.history == []
    assert past in {path[4:36] for path, _ in report.deleted}
    assert past not in sst_objects(world.plain)
    assert pairs(world.store.table("t").scan()) == [(b"k", b"2")]
    with pytest.raises(SnapshotExpired):
        world.store.table("t").get(b"k", epoch=world.epochs[0])
    assert world.store.vacuum().deleted == ()


@pytest.mark.parametrize("at", [0, 1])
def test_a_pin_keeps_history(world: World, at: int) -> None:
    """Until it is released, whatever the retention."""
    snapshot = world.store.pin_snapshot(world.epochs[at])
    for _ in range(3):
        world.system.forward(RETENTION)
        snapshot.table("t")  # alive
        world.store.vacuum()
        assert len(world.history) == 1
        assert snapshot.table("t").get(b"k") == b"%d" % at
    snapshot.close()
    world.store.vacuum()
    assert world.history == []


def test_a_pin_that_comes_while_vacuum_raises_the_safe_epoch_is_minded(world: World) -> None:
    """It was written after vacuum's first look at the pins, and before the entry with the safe epoch."""
    world.system.forward(RETENTION + 1)
    # A process that was told a longer retention may pin the epoch as long as the safe epoch is below it.
    reader = open_on(world.plain, world.system, retention=3600)
    pinned: list[Any] = []
    world.bucket.stall(
        lambda call: call.operation == "create" and call.path.startswith("log/"),
        lambda: pinned.append(reader.pin_snapshot(world.epochs[0])),
    )
    world.store.vacuum()
    (snapshot,) = pinned
    assert world.store.version().safe_epoch > snapshot.epoch == world.epochs[0]
    assert len(world.history) == 1
    assert snapshot.table("t").get(b"k") == b"0"
    snapshot.close()
    world.store.vacuum()
    assert world.history == []
    reader.close()


def test_a_crash_at_any_request_of_a_vacuum_loses_nothing() -> None:
    """What it left of its work is done by the next one."""
    number, requests, crashes = 0, 1, 0
    while number < requests:
        number += 1
        world = World()
        world.system.forward(RETENTION + 1)
        dying = FaultyBucket(world.plain)
        vacuuming = world.open(dying)
        before = len(dying.calls)
        dying.script = at_calls({before + number: Fate.CRASH_AFTER})
        try:
            vacuuming.vacuum()
            requests = max(requests, len(dying.calls) - before)
        except Crash:
            crashes += 1
            requests = max(requests, number + 1)
        assert pairs(world.store.table("t").scan()) == [(b"k", b"2")]
        world.store.vacuum()
        assert world.history == []
        assert pairs(world.store.table("t").scan()) == [(b"k", b"2")]
        assert sst_objects(world.plain) == world.store.version().live_sst_ids()  # type: ignore[attr-defined]
    assert crashes > 10
