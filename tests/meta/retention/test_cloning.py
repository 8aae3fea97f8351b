"""Clones: the SSTs that they need stay, whatever happens to their sources, and are released once not needed."""

import contextlib
from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from support.buckets.faulty_bucket import Crash, Fate, FaultyBucket, at_calls, where
from support.store.stores import InlineExecutor, TickingSystem, open_on, pairs
from support.store.versions import ModelBucket
from tussock.meta.log.format import entry_path
from tussock.meta.log.log import VersionLog
from tussock.meta.retention.backups import BACKUP_LEASE_MS
from tussock.meta.retention.clone import clone, hold_name
from tussock.meta.retention.restore import restore
from tussock.meta.version.invariants import problems
from tussock.meta.version.version import Origin, Version
from tussock.statestore import StateStore
from tussock.statestore.contract.object_store import ObjectStore
from tussock.statestore.errors import (
    BackupExists,
    BackupNotFound,
    CorruptSst,
    InvalidOption,
    ObjectStoreUnavailable,
    StoreNotEmpty,
)


class InlineSystem(TickingSystem):
    """Its pools work in the caller's thread, so that requests come in one order."""

    def pool(self, name: str, workers: int) -> InlineExecutor:
        return InlineExecutor()


class World:
    """Some buckets by URL, as the credentials of an environment would open them."""

    def __init__(self) -> None:
        self.system = InlineSystem()
        self.buckets: dict[str, ModelBucket] = {}
        self.away: set[str] = set()
        """URLs that cannot be reached."""

    def bucket(self, name: str) -> ModelBucket:
        url = f"model://{name}"
        return self.buckets.setdefault(url, ModelBucket(self.system, url))

    def open(self, url: str) -> ObjectStore:
        if url in self.away:
            raise ObjectStoreUnavailable(f"{url} cannot be reached")
        return self.buckets[url]

    def store(self, name: str, bucket: ObjectStore | None = None) -> StateStore:
        return open_on(bucket or self.bucket(name), self.system, self.open, retention=0, gc_grace=0)

    def clone(self, source: str, target: str, backup: str = "") -> Origin:
        return self.clone_on(self.bucket(source), self.bucket(target), backup)

    def clone_on(self, source: ObjectStore, target: ObjectStore, backup: str = "") -> Origin:
        return clone(source, target, self.system, owner="test", open_source=self.open, backup=backup)

    def version(self, name: str) -> Version:
        return VersionLog(self.bucket(name), self.system, owner="test").refresh()

    def put(self, name: str, value: bytes, keys: range = range(20)) -> None:
        """Commit `value` for the keys and merge the whole table, so that no earlier SST stays live."""
        with self.store(name) as store:
            table = store.table("kv") if "kv" in store.tables() else store.create_table("kv")
            self.system.forward(1)
            epoch = store.new_epoch()
            table.ingest_batch([(b"%05d" % key, value) for key in keys], epoch)
            store.commit_epoch(epoch)
            store.compact("kv")

    def vacuum(self, name: str) -> list[str]:
        """Vacuum without grace; returns the paths that it deleted."""
        self.system.forward(1)
        with self.store(name) as store:
            return [path for path, _ in store.vacuum().deleted]

    def values(self, name: str) -> set[bytes]:
        with self.store(name) as store:
            return {value for _, value in pairs(store.table("kv").scan())}

    def holds(self, name: str) -> list[str]:
        return sorted(self.version(name).backups)

    def ssts(self, name: str) -> int:
        return sum(1 for _ in self.bucket(name).list("sst/"))


@pytest.fixture
def world() -> Iterator[World]:
    """A store `a` with one SST."""
    made = World()
    made.put("a", b"first")
    made.vacuum("a")
    yield made
    for name in ("a", "b", "c"):
        assert problems(made.version(name)) == []


def test_a_clone_begins_as_its_source_and_copies_nothing(world: World) -> None:
    """Both stores go on independently; the source's vacuum keeps the SSTs that the clone reads."""
    world.put("a", b"second", range(5))
    origin = world.clone("a", "b")
    assert world.ssts("b") == 0
    assert (origin.kind, origin.url, origin.backup) == ("clone", "model://a", "")
    assert world.version("b").sources == {"model://a": hold_name("model://b")}
    for value in (b"x", b"y"):
        world.put("a", value)
        world.vacuum("a")
    assert world.values("a") == {b"y"}
    assert world.values("b") == {b"first", b"second"}
    with world.store("a") as store:
        (hold,) = store.backups()
    assert (hold.holder, hold.ssts, hold.held_bytes) == ("model://b", 1, hold.bytes)


def test_a_repeated_clone_does_nothing(world: World) -> None:
    """Also if both stores have changed since, or the hold is gone."""
    first = world.clone("a", "b")
    for name in ("a", "b"):
        world.put(name, b"more")
        world.vacuum(name)
    before = {url: dict(bucket.objects) for url, bucket in world.buckets.items()}
    assert world.clone("a", "b") == first
    assert {url: dict(bucket.objects) for url, bucket in world.buckets.items()} == before


def test_a_clone_of_another_point_is_refused(world: World) -> None:
    """Another backup of the same source, another source, or a store in the place already."""
    with world.store("a") as store:
        store.backup("early")
    world.put("a", b"second")
    world.clone("a", "b", "early")
    assert world.values("b") == {b"first"}
    for backup in ("", "late"):
        with pytest.raises(StoreNotEmpty, match="a clone of model://a, backup 'early'"):
            world.clone("a", "b", backup)
    world.put("c", b"other")
    with pytest.raises(StoreNotEmpty, match="a clone of model://a"):
        world.clone("c", "b")
    with pytest.raises(StoreNotEmpty, match="holds a store"):
        world.clone("a", "c")
    assert world.holds("a") == [hold_name("model://b"), "early"]
    assert world.holds("c") == []


def test_a_point_that_is_not_there_is_refused(world: World) -> None:
    """Nothing is left behind anywhere."""
    before = dict(world.bucket("a").objects)
    with pytest.raises(BackupNotFound, match="nightly"):
        world.clone("a", "b", "nightly")
    with pytest.raises(InvalidOption, match="no store to clone"):
        world.clone("c", "b")
    with pytest.raises(InvalidOption, match="clone of itself"):
        world.clone("a", "a")
    with pytest.raises(InvalidOption, match="private memory store"):
        world.clone_on(ModelBucket(world.system, "memory://"), world.bucket("b"))
    world.bucket("b").put("sst/stray", b"")
    with pytest.raises(StoreNotEmpty, match="sst/stray"):
        world.clone("a", "b")
    assert world.bucket("a").objects == before
    assert world.bucket("c").objects == {}


# --- Crashes ---------------------------------------------------------------------------------------------------------


def both(world: World, fates: dict[int, Fate]) -> tuple[FaultyBucket, FaultyBucket, list[int]]:
    """Buckets `a` and `b` whose calls are numbered together; a crash in one is the death of the process."""
    first, second = FaultyBucket(world.bucket("a")), FaultyBucket(world.bucket("b"))
    count = [0]
    decide = at_calls(fates)

    def script(call: object) -> Fate:
        count[0] += 1
        if first.dead or second.dead:
            return Fate.CRASH
        return decide(call._replace(number=count[0]))  # type: ignore[attr-defined]

    first.script = second.script = script
    return first, second, count


@pytest.mark.parametrize("fate", [Fate.CRASH, Fate.CRASH_AFTER, Fate.LOSE_REQUEST, Fate.LOSE_ANSWER])
def test_a_clone_interrupted_at_any_request_can_be_repeated(world: World, fate: Fate) -> None:
    """Meanwhile the source changes and is vacuumed: the clone is whole, and has one hold."""
    start = dict(world.bucket("a").objects)
    first, second, count = both(world, {})
    world.clone_on(first, second)
    assert count[0] > 8
    for at in range(1, count[0] + 1):
        world.bucket("a").objects = dict(start)
        world.bucket("b").objects.clear()
        first, second, _ = both(world, {at: fate})
        try:
            world.clone_on(first, second)
        except (Crash, ObjectStoreUnavailable):
            begun = entry_path(1) in world.bucket("b").objects
            held = [one for one in world.version("a").backups.values() if not one.expires_ms]
            assert held or not begun, "the clone is there and its SSTs are not held"
        world.put("a", b"changed")
        world.vacuum("a")
        world.clone("a", "b")
        world.put("a", b"again")
        world.vacuum("a")
        assert world.holds("a") == [hold_name("model://b")]
        assert world.values("b") <= {b"first", b"changed"}
        assert len(world.values("b")) == 1
        assert len(list(world.bucket("a").list("backup/"))) == 1


def test_an_interrupted_clone_of_one_point_cannot_become_one_of_another(world: World) -> None:
    """Its hold names the point that it began with; deleting the hold helps."""
    with world.store("a") as store:
        store.backup("early")
    target = FaultyBucket(world.bucket("b"), where("create", "log/", Fate.CRASH))
    with pytest.raises(Crash):
        world.clone_on(world.bucket("a"), target)
    with pytest.raises(BackupExists, match="the newest version, and now backup 'early' is asked for"):
        world.clone("a", "b", "early")
    with world.store("a") as store:
        store.delete_backup(hold_name("model://b"))
    world.clone("a", "b", "early")


def test_a_dead_clones_hold_is_listed_and_can_be_deleted(world: World) -> None:
    """It has no lease: it stays until a user deletes it, and then vacuum deletes the SSTs that it kept."""
    world.clone("a", "b")
    world.bucket("b").objects.clear()
    world.put("a", b"second")
    world.system.forward(10 * BACKUP_LEASE_MS / 1000)
    world.vacuum("a")
    assert world.ssts("a") == 2
    with world.store("a") as store:
        store.delete_backup(hold_name("model://b"))
    world.vacuum("a")
    assert world.ssts("a") == 1


# --- Letting go ------------------------------------------------------------------------------------------------------


def test_a_clone_releases_its_hold_once_it_names_nothing_foreign(world: World) -> None:
    """Its compaction writes into its own bucket; its vacuum deletes the hold, and nothing else, in the source."""
    world.clone("a", "b")
    world.vacuum("b")
    assert world.holds("a") == [hold_name("model://b")], "it still names the source's SST"
    world.put("b", b"mine", range(5))
    assert world.ssts("b") > 0
    held = [path for path in world.bucket("a").objects if path.startswith("sst/")]
    with world.store("b") as store:
        # What was dropped without grace may go at once, and with it the last thing that is foreign.
        assert not any(path in held for path, _ in store.vacuum(dry_run=True).deleted)
    assert world.holds("a") == [hold_name("model://b")], "a dry run lets go of nothing"
    for _ in range(2):
        assert not set(world.vacuum("b")) & set(held)
    assert all(path in world.bucket("a").objects for path in held)
    assert world.holds("a") == []
    assert world.version("b").sources == {}
    del world.buckets["model://a"]
    assert world.values("b") == {b"mine", b"first"}
    world.put("a", b"for the fixture")


def test_an_iterator_on_an_old_version_of_the_clone_may_still_read_the_source(world: World) -> None:
    """SSTs that the clone has replaced wait out its grace period before the hold goes, as its own SSTs do."""
    world.clone("a", "b")
    world.put("b", b"mine")
    with open_on(world.bucket("b"), world.system, world.open, gc_grace=900) as store:
        for seconds, held in ((1, True), (890, True), (20, False)):
            world.system.forward(seconds)
            store.vacuum()
            store.vacuum()
            assert bool(world.holds("a")) == held, seconds


def test_a_backup_of_a_clone_keeps_its_source(world: World) -> None:
    """The clone keeps its hold while a backup of it names SSTs of the source; a restore of one copies from there."""
    world.clone("a", "b")
    with world.store("b") as store:
        store.backup("of-b")
    for _ in range(2):
        world.put("b", b"mine")
        world.vacuum("b")
    world.put("a", b"gone")
    world.vacuum("a")
    assert world.holds("a") == [hold_name("model://b")]
    restore(world.bucket("b"), world.bucket("c"), world.system, backup="of-b", owner="test", open_source=world.open)
    assert world.version("c").sources == {}
    assert world.ssts("c") > 0
    with world.store("b") as store:
        store.delete_backup("of-b")
    world.vacuum("b")
    assert world.holds("a") == []
    world.vacuum("a")
    assert world.values("c") == {b"first"}


def test_the_hold_in_an_unreachable_source_is_released_later(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """The clone's vacuum does its other work, logs it, and tries again."""
    world.clone("a", "b")
    world.put("b", b"mine")
    world.away = {"model://a"}
    world.vacuum("b")
    world.vacuum("b")
    assert "could not let go" in caplog.text
    assert world.version("b").sources == {"model://a": hold_name("model://b")}
    world.away = set()
    world.vacuum("b")
    assert world.holds("a") == []
    assert world.version("b").sources == {}


@pytest.mark.parametrize("fate", [Fate.CRASH, Fate.CRASH_AFTER])
def test_a_crash_at_any_request_of_releasing_a_hold(world: World, fate: Fate) -> None:
    """The next vacuum finishes: neither hold nor source stays behind, and the clone is still readable."""
    world.clone("a", "b")
    world.put("b", b"mine", range(5))
    start = {url: dict(bucket.objects) for url, bucket in world.buckets.items()}
    clocks = world.system.wall_ms, world.system.ticks
    first, second, count = both(world, {})
    vacuum_once(world, first, second)
    died: list[bool] = []
    for at in range(1, count[0] + 1):
        for url, objects in start.items():
            world.buckets[url].objects = dict(objects)
        first, second, _ = both(world, {at: fate})
        world.system.wall_ms, world.system.ticks = clocks
        # A request for an object that is not there has no "after" to crash at.
        with contextlib.suppress(Crash):
            vacuum_once(world, first, second)
        died.append(first.dead or second.dead)
        for _ in range(2):
            world.vacuum("b")
        assert world.holds("a") == []
        assert world.version("b").sources == {}
        world.vacuum("a")
        assert world.values("b") == {b"first", b"mine"}
    assert sum(died) > 0.9 * count[0]


def vacuum_once(world: World, first: FaultyBucket, second: FaultyBucket) -> None:
    """Vacuum `b`, whose source is reached through `first`."""
    world.system.forward(1)
    store = open_on(second, world.system, lambda _: first, retention=0, gc_grace=0)
    store.vacuum()
    world.system.forward(1)
    store.vacuum()


# --- Clones of clones ------------------------------------------------------------------------------------------------


def test_a_clone_of_a_clone_depends_on_no_store_between(world: World) -> None:
    """It holds SSTs in each store; the one between may compact, release its hold, and vanish."""
    world.clone("a", "b")
    world.put("b", b"of b", range(5))
    world.put("b", b"of b too", range(5, 10))
    world.clone("b", "c")
    name = hold_name("model://c")
    expected = {b"of b", b"of b too", b"first"}
    assert world.values("c") == expected
    assert world.holds("b") == [name]
    for store in ("a", "b"):
        world.put(store, b"new")
        world.vacuum(store)
        world.vacuum(store)
    assert world.values("c") == expected
    world.put("c", b"of c", range(1))
    for store in ("c", "b", "a", "c", "b", "a"):
        world.vacuum(store)
    assert world.values("c") == expected | {b"of c"}
    assert (world.holds("a"), world.holds("b")) == ([], [])
    assert (world.version("b").sources, world.version("c").sources) == ({}, {})


def test_a_clone_of_an_untouched_clone_reads_from_the_first_store(world: World) -> None:
    """Its SSTs name the bucket that has them, so the middle store can be deleted outright."""
    world.clone("a", "b")
    world.clone("b", "c")
    assert {sst.source for sst in world.version("c").ssts()} == {"model://a"}
    assert world.holds("a") == sorted([hold_name("model://b"), hold_name("model://c")])
    with world.store("a") as store:
        store.delete_backup(hold_name("model://b"))
    world.bucket("b").objects.clear()
    world.put("a", b"new")
    world.vacuum("a")
    assert world.values("c") == {b"first"}


def test_an_sst_without_a_hold_breaks_an_invariant(world: World) -> None:
    """The simulator and `tussock check` therefore notice it."""
    world.clone("a", "b")
    (problem,) = problems(replace(world.version("b"), sources={}))
    assert "lies in model://a, where the version has no hold" in problem


def test_a_foreign_sst_that_was_lost_is_named_with_its_store(world: World) -> None:
    """A user deleted the hold of a living clone."""
    world.clone("a", "b")
    with world.store("a") as store:
        store.delete_backup(hold_name("model://b"))
    world.put("a", b"new")
    world.vacuum("a")
    with pytest.raises(CorruptSst, match="model://a"):
        world.values("b")
