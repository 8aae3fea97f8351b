"""Restores: whole or not at all, through crashes at every request, and only into an empty place."""

import contextlib

import pytest
from msgspec.structs import replace

from support.backups.backed_up import OLD, ROWS, InlineSystem, NumberedBuckets, calls_of, fill, fill_source, rows
from support.buckets.faulty_bucket import Crash, Fate
from support.store.stores import OBJECTS, open_on
from support.store.versions import ModelBucket
from tussock.meta.log.format import backup_path, decode_backup, encode_backup, entry_path
from tussock.meta.log.log import VersionLog
from tussock.meta.retention.restore import restore
from tussock.meta.version.invariants import problems
from tussock.meta.version.version import Origin
from tussock.statestore.contract.object_store import ObjectStore
from tussock.statestore.contract.records import Run, SstInfo, data_path, object_sizes
from tussock.statestore.errors import (
    BackupNotFound,
    CorruptLog,
    CorruptSst,
    InvalidOption,
    ObjectStoreUnavailable,
    StoreNotEmpty,
)


@pytest.fixture
def system() -> InlineSystem:
    return InlineSystem()


@pytest.fixture
def source(system: InlineSystem) -> ModelBucket:
    """A store whose backup `b` alone holds an SST in two objects, one in a log entry, and rows overwritten since."""
    return fill_source(ModelBucket(system, "model://source"), system)


@pytest.fixture
def objects_alone(system: InlineSystem) -> ModelBucket:
    """The same without SSTs in log entries."""
    return fill_source(ModelBucket(system, "model://source"), system, limits=OBJECTS)


@pytest.fixture
def target(system: InlineSystem) -> ModelBucket:
    return ModelBucket(system, "model://target")


def do(source: ObjectStore, target: ObjectStore, system: InlineSystem, backup: str = "b") -> Origin:
    return restore(source, target, system, backup=backup, owner="test", open_source=no_other)


def no_other(url: str) -> ObjectStore:
    raise AssertionError(f"nothing lies in {url}")


def ssts_of(bucket: ModelBucket, system: InlineSystem) -> list[SstInfo]:
    return VersionLog(bucket, system, owner="test").refresh().ssts()


def assert_restored(target: ModelBucket, system: InlineSystem) -> None:
    assert rows(target, system) == [(b"%05d" % key, b"kept" if key < ROWS else OLD) for key in range(100)]


def test_a_restored_store_equals_its_backup(source: ModelBucket, target: ModelBucket, system: InlineSystem) -> None:
    """It has rows, ledger and settings; its epochs ascend from there, and it does not need the source."""
    before = dict(source.objects)
    origin = do(source, target, system)
    assert source.objects == before, "a restore only reads"
    source.objects.clear()
    assert_restored(target, system)
    version = VersionLog(target, system, owner="test").refresh()
    assert (version.seq, version.origin, problems(version)) == (1, origin, [])
    assert (origin.kind, origin.url, origin.backup) == ("restore", "model://source", "b")
    assert len(version.ledger["job"]) == 2
    assert not any((version.tasks, version.dropped, version.backups, version.sources))
    assert {len(object_sizes(sst)) for sst in version.ssts()} == {1, 2}, "both shapes of an SST"
    with open_on(target, system, retention=0, gc_grace=0) as store:
        assert fill(store, b"more") > version.max_committed_epoch
        store.compact("kv")
        store.vacuum()
        assert store.table("kv").get(b"00000") == b"more"


def test_a_repeated_restore_does_nothing(source: ModelBucket, target: ModelBucket, system: InlineSystem) -> None:
    """Also if the store has changed since."""
    first = do(source, target, system)
    with open_on(target, system) as store:
        fill(store, b"more")
    before = dict(target.objects)
    assert do(source, target, system) == first
    assert target.objects == before


@pytest.mark.parametrize("fate", [Fate.CRASH, Fate.CRASH_AFTER, Fate.LOSE_REQUEST, Fate.LOSE_ANSWER])
def test_a_restore_interrupted_at_any_request_can_be_repeated(
    source: ModelBucket, target: ModelBucket, system: InlineSystem, fate: Fate
) -> None:
    """There is no store until it is done; the repeated restore copies nothing twice."""
    total = calls_of(lambda a, b: do(a, b, system), source, target)
    assert total > 10
    for at in range(1, total + 1):
        target.objects.clear()
        shared = NumberedBuckets(source, target, {at: fate})
        try:
            do(shared.source, shared.target, system)
        except (Crash, ObjectStoreUnavailable):
            assert (entry_path(1) in target.objects) == has_store(target, system)
        there = dict(target.objects)
        system.forward(1)  # so that an object's time tells when it was written
        do(source, target, system)
        for sst in ssts_of(target, system):
            # An SST of two objects is in place when both are.
            if object_sizes(sst).keys() <= there.keys():
                assert all(target.objects[path] == there[path] for path in object_sizes(sst)), "copied twice"
        assert_restored(target, system)


def has_store(target: ModelBucket, system: InlineSystem) -> bool:
    """Whether a client sees a store there; a partial copy is none."""
    try:
        return VersionLog(target, system, owner="test").refresh().seq == 1
    except CorruptLog:
        return False


@pytest.mark.parametrize("damage", ["flipped", "cut", "gone", "foreign"])
def test_a_damaged_sst_is_named_and_no_store_is_made(
    objects_alone: ModelBucket, target: ModelBucket, system: InlineSystem, damage: str
) -> None:
    """Each object of the backup in turn: one bit flipped, cut, lost, or replaced by another SST's."""
    source = objects_alone
    do(source, target, system)
    paths = sorted(path for path in target.objects if path.startswith("sst/"))
    others = {path: source.objects[path] for path in paths}
    assert len(paths) >= 3
    for path in paths:
        target.objects.clear()
        data, at = others[path]
        source.objects[path] = {
            "flipped": (data[: len(data) // 2] + bytes([data[len(data) // 2] ^ 1]) + data[len(data) // 2 + 1 :], at),
            "cut": (data[:-1], at),
            "gone": (b"", at),
            "foreign": others[paths[(paths.index(path) + 1) % len(paths)]],
        }[damage]
        if damage == "gone":
            del source.objects[path]
        with pytest.raises(CorruptSst) as caught:
            do(source, target, system)
        assert path.removeprefix("sst/")[:32] in str(caught.value)
        assert not list(target.list("log/"))
        source.objects[path] = (data, at)
        do(source, target, system)
        assert_restored(target, system)


@pytest.mark.parametrize("damage", ["flipped", "cut", "gone", "foreign"])
def test_a_damaged_sst_of_an_entry_is_named_and_no_store_is_made(
    source: ModelBucket, target: ModelBucket, system: InlineSystem, damage: str
) -> None:
    """The entry that the backup's small SST lies in: a bit of that flipped, cut off there, lost, or another entry."""
    version = VersionLog(source, system, owner="test").refresh()
    backup = backup_path("b", version.backups["b"].id)
    kept = decode_backup(backup, source.get(backup))
    sst = next(sst for sst in kept.version.ssts() if sst.entry)
    path = entry_path(sst.entry)
    data, at = source.objects[path]
    middle = sst.offset + sst.data_bytes // 2
    spoilt = {
        "flipped": data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :],
        "cut": data[:middle],
        "foreign": source.objects[entry_path(2)][0],
    }
    if damage == "gone":
        del source.objects[path]
    else:
        source.objects[path] = (spoilt[damage], at)
    with pytest.raises(CorruptSst) as caught:
        do(source, target, system)
    assert path in str(caught.value)
    assert not list(target.list("log/"))
    source.objects[path] = (data, at)
    do(source, target, system)
    assert_restored(target, system)


def test_an_object_of_another_size_is_copied_again(
    source: ModelBucket, target: ModelBucket, system: InlineSystem
) -> None:
    """The backup names another one, wherever this one is from."""
    do(source, target, system)
    whole = {path: stored[0] for path, stored in target.objects.items() if path.startswith("sst/")}
    target.objects.clear()
    for path, data in whole.items():
        target.put(path, data[:-1])
    do(source, target, system)
    assert {path: target.objects[path][0] for path in whole} == whole


def test_a_meta_that_differs_from_the_backups_record_is_refused(
    source: ModelBucket, target: ModelBucket, system: InlineSystem
) -> None:
    """Both are intact, and of one SST, and contradict each other."""
    version = VersionLog(source, system, owner="test").refresh()
    path = backup_path("b", version.backups["b"].id)
    content = decode_backup(path, source.get(path))
    (table,) = content.version.tables.values()
    (sub,) = table.levels.l0
    lying = Run(ssts=tuple(replace(sst, rows=sst.rows + 1) for sst in sub.ssts))
    changed = replace(table, levels=replace(table.levels, l0=(lying,)))
    source.put(path, encode_backup(replace(content, version=replace(content.version, tables={1: changed}))))
    with pytest.raises(CorruptSst, match="not those that the backup names"):
        do(source, target, system)


# --- Places that are not empty ---------------------------------------------------------------------------------------


def test_a_place_with_a_store_is_refused(source: ModelBucket, target: ModelBucket, system: InlineSystem) -> None:
    """The target holds another store, or is the source itself; it stays as it was."""
    with open_on(target, system) as store:
        fill(store, b"mine")
    before = dict(target.objects)
    with pytest.raises(StoreNotEmpty, match="holds a store, at entry 2"):
        do(source, target, system)
    assert target.objects == before
    with pytest.raises(InvalidOption, match="into itself"):
        do(source, source, system)


def test_a_place_restored_from_another_backup_is_refused(
    source: ModelBucket, target: ModelBucket, system: InlineSystem
) -> None:
    """Also from a backup that had the same name before."""
    do(source, target, system)
    with open_on(source, system) as store:
        store.backup("other")
        with pytest.raises(StoreNotEmpty, match="a restore of model://source, backup 'b'"):
            do(source, target, system, "other")
        store.delete_backup("b")
        store.backup("b")
    with pytest.raises(StoreNotEmpty):
        do(source, target, system)


def test_a_place_with_foreign_ssts_is_refused(source: ModelBucket, target: ModelBucket, system: InlineSystem) -> None:
    """A store may have lost its log there: its SSTs must not become garbage of the restored store."""
    stray = data_path("f" * 32)
    target.put(stray, b"x")
    with pytest.raises(StoreNotEmpty, match=stray):
        do(source, target, system)
    assert set(target.objects) == {stray}


def test_a_store_that_is_created_meanwhile_wins(source: ModelBucket, target: ModelBucket, system: InlineSystem) -> None:
    """At every request a client creates a table in the place: one of both gets the first entry, and nothing is lost.

    Once something is copied, nobody else begins there.
    """
    total = calls_of(lambda a, b: do(a, b, system), source, target)
    outcomes = set()
    for at in range(1, total + 2):
        target.objects.clear()
        shared = NumberedBuckets(source, target, {})
        began: list[str] = []

        def begin(began: list[str] = began) -> None:
            with contextlib.suppress(CorruptLog), open_on(target, system) as store:
                store.create_table("mine")
                began.append("mine")

        reached = [0]

        def once(_: object, at: int = at, reached: list[int] = reached) -> bool:
            reached[0] += 1
            return reached[0] == at

        shared.source.stall(once, begin)
        shared.target.stall(once, begin)
        try:
            do(shared.source, shared.target, system)
            outcomes.add((at <= total, "restored"))
        except StoreNotEmpty:
            outcomes.add((at <= total, "refused"))
        with open_on(target, system) as store:
            assert store.tables() == (["mine"] if began else ["kv"])
    assert outcomes == {(True, "refused"), (True, "restored"), (False, "restored")}


# --- Finding the backup ----------------------------------------------------------------------------------------------


def test_an_unknown_backup_is_named(source: ModelBucket, target: ModelBucket, system: InlineSystem) -> None:
    with pytest.raises(BackupNotFound, match="its backups: b"):
        do(source, target, system, "c")
    with pytest.raises(BackupNotFound, match="nor can its log be read"):
        do(ModelBucket(system, "model://empty"), target, system)
    assert not target.objects


@pytest.mark.parametrize("loss", ["gone", "hole", "damaged"])
def test_a_backup_outlives_its_log(
    objects_alone: ModelBucket, target: ModelBucket, system: InlineSystem, loss: str
) -> None:
    """The object and the SSTs suffice; another backup whose name begins alike is not taken for it."""
    source = objects_alone
    with open_on(source, system) as store:
        store.backup("b.c")
    entries = sorted(path for path in source.objects if path.startswith(("log/", "snapshot/")))
    for path in entries if loss == "gone" else entries[1:2]:
        if loss == "damaged":
            source.objects[path] = (b"x", source.objects[path][1])
        else:
            del source.objects[path]
    do(source, target, system)
    assert_restored(target, system)


def test_a_lost_backup_object_is_named(source: ModelBucket, target: ModelBucket, system: InlineSystem) -> None:
    version = VersionLog(source, system, owner="test").refresh()
    path = backup_path("b", version.backups["b"].id)
    del source.objects[path]
    with pytest.raises(CorruptLog, match="restore the object"):
        do(source, target, system)


def test_progress_is_reported_in_bytes(source: ModelBucket, target: ModelBucket, system: InlineSystem) -> None:
    """Every SST counts once, whether it is copied or was there already."""
    for _ in range(2):
        told: list[int] = []
        restore(source, target, system, backup="b", owner="test", open_source=no_other, on_bytes=told.append)
        total = sum(size for sst in ssts_of(target, system) for size in object_sizes(sst).values())
        assert sum(told) == total
        del target.objects[entry_path(1)]
