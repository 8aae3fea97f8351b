"""Copies of backups in another bucket: whole or not at all, only what is new, and restored without the store."""

import pytest

from support.backups.backed_up import OLD, ROWS, InlineSystem, NumberedBuckets, calls_of, fill_source, rows
from support.backups.destinations import add_backup, copy, destination_on, verify, verify_all
from support.buckets.faulty_bucket import Crash, Fate
from support.store.stores import open_on
from support.store.versions import ModelBucket
from tussock.meta.log.format import decode_backup
from tussock.meta.log.log import VersionLog
from tussock.meta.retention.clone import clone
from tussock.meta.retention.destination.copy import copy_backup
from tussock.meta.retention.destination.records import catalogue_path, manifest_path
from tussock.meta.retention.restore import restore
from tussock.meta.version.invariants import problems
from tussock.statestore.contract.object_store import ObjectStore
from tussock.statestore.errors import BackupNotFound, ObjectStoreUnavailable, StoreNotEmpty


@pytest.fixture
def system() -> InlineSystem:
    return InlineSystem()


@pytest.fixture
def source(system: InlineSystem) -> ModelBucket:
    """A store whose backup `b` alone holds an SST in two objects, and one in a log entry."""
    return fill_source(ModelBucket(system, "model://source"), system)


@pytest.fixture
def target(system: InlineSystem) -> ModelBucket:
    return ModelBucket(system, "model://target")


def restore_copy(target: ModelBucket, system: InlineSystem, name: str = "b") -> ModelBucket:
    made = ModelBucket(system, "model://made")
    restore(target, made, system, backup=name, owner="test", open_source=no_other)
    return made


def no_other(url: str) -> ObjectStore:
    raise AssertionError(f"nothing lies in {url}")


def assert_rows(bucket: ModelBucket, system: InlineSystem) -> None:
    assert rows(bucket, system) == [(b"%05d" % key, b"kept" if key < ROWS else OLD) for key in range(100)]


def test_a_copy_outlives_the_store(source: ModelBucket, target: ModelBucket, system: InlineSystem) -> None:
    """Everything of the store is gone; a store begins with the copy, and is another one than the first."""
    before = dict(source.objects)
    report = copy(source, target, system)
    assert source.objects == before, "a copy only reads the store"
    identity = VersionLog(source, system, owner="test").refresh().identity
    source.objects.clear()
    verified = verify(target, system)
    assert (verified.ssts, verified.bytes) == (report.copied_ssts, report.copied_bytes) == (2, report.info.bytes)
    assert (verified.rows, verified.tables, verified.epoch) == (120, 1, report.info.epoch)
    made = restore_copy(target, system)
    target.objects.clear()
    assert_rows(made, system)
    version = VersionLog(made, system, owner="test").refresh()
    assert problems(version) == []
    assert version.origin is not None
    assert (version.origin.kind, version.origin.url, version.origin.backup) == ("restore", "model://target", "b")
    with open_on(made, system) as store:
        store.backup("first")
    assert VersionLog(made, system, owner="test").refresh().identity not in ("", identity)


def test_only_new_ssts_are_copied(source: ModelBucket, target: ModelBucket, system: InlineSystem) -> None:
    """A second backup shares SSTs with the first, and a third with both; each copy can be restored alone."""
    add_backup(source, system, "c")
    add_backup(source, system, "d")
    first, second, third = (copy(source, target, system, name) for name in ("c", "d", "b"))
    assert (first.info.ssts, first.copied_ssts) == (2, 2)
    assert (second.info.ssts, second.copied_ssts) == (3, 1)
    assert third.copied_ssts == 2, "what only the oldest backup has"
    paths = [path.rpartition("/")[2] for path in target.objects if "/sst/" in path]
    assert len(paths) == len(set(paths))
    source.objects.clear()
    assert verify_all(target, system) == ["b", "c", "d"]
    assert_rows(restore_copy(target, system, "b"), system)
    assert dict(rows(restore_copy(target, system, "d"), system))[b"00000"] == b"d"


def test_a_repeated_copy_does_nothing(source: ModelBucket, target: ModelBucket, system: InlineSystem) -> None:
    first = copy(source, target, system)
    before = dict(target.objects)
    again = copy(source, target, system)
    assert (again.info, again.copied_ssts, again.copied_bytes) == (first.info, 0, 0)
    assert target.objects == before


@pytest.mark.parametrize("has_one", [False, True])
@pytest.mark.parametrize("fate", [Fate.CRASH, Fate.CRASH_AFTER, Fate.LOSE_REQUEST, Fate.LOSE_ANSWER])
def test_a_copy_interrupted_at_any_request_can_be_repeated(
    source: ModelBucket, target: ModelBucket, system: InlineSystem, fate: Fate, has_one: bool
) -> None:
    """Into an empty place, and beside another copy. It is there whole or not at all; no SST is put twice."""
    if has_one:
        copy(source, target, system)
        add_backup(source, system, "c")
    name = "c" if has_one else "b"
    began = dict(target.objects)
    total = calls_of(lambda a, b: copy(a, b, system, name), source, target)
    assert total > 10
    for at in range(1, total + 1):
        target.objects = dict(began)
        shared = NumberedBuckets(source, target, {at: fate})
        try:
            copy(shared.source, shared.target, system, name)
        except (Crash, ObjectStoreUnavailable):
            known = destination_on(target, system).read().copies.get(name)
            is_whole = known is not None and known.finished_ms > 0
            assert verify_all(target, system) == sorted([name] * is_whole + ["b"] * has_one)
        there = dict(target.objects)
        system.forward(1)  # so that an object's time tells when it was written
        copy(source, target, system, name)
        assert verify_all(target, system) == sorted({name, "b"} if has_one else {name})
        for path in there:
            # An SST of two objects is in place when both are.
            both = {path, path.replace(".data", ".meta")} & target.objects.keys()
            if path.startswith("parts/") and both <= there.keys():
                assert target.objects[path] == there[path], "put twice"


def test_a_copy_that_is_not_finished_cannot_be_restored(
    source: ModelBucket, target: ModelBucket, system: InlineSystem
) -> None:
    shared = NumberedBuckets(
        source, target, {calls_of(lambda a, b: copy(a, b, system), source, target) - 4: Fate.CRASH}
    )
    with pytest.raises(Crash):
        copy(shared.source, shared.target, system)
    with pytest.raises(BackupNotFound, match="begun by test and is not finished"):
        restore_copy(target, system)


def test_a_damaged_object_of_an_earlier_attempt_is_put_again(
    source: ModelBucket, target: ModelBucket, system: InlineSystem
) -> None:
    """The attempt died before its manifest: what it has put is read, not trusted."""
    copy(source, target, system)
    del target.objects[manifest_path(1)], target.objects[catalogue_path(2)]
    damaged = [path for path in target.objects if "/sst/" in path]
    for path in damaged:
        data, at = target.objects[path]
        target.objects[path] = (data[:50] + bytes([data[50] ^ 1]) + data[51:], at)
    assert copy(source, target, system).copied_ssts == 2
    assert verify_all(target, system) == ["b"]


@pytest.mark.parametrize("loss", ["gone", "cut"])
def test_an_object_that_an_earlier_copy_has_lost_is_copied_again(
    source: ModelBucket, target: ModelBucket, system: InlineSystem, loss: str
) -> None:
    """The copy before is no longer whole; the new one is."""
    add_backup(source, system, "c")
    copy(source, target, system, "c")
    add_backup(source, system, "d")
    path = next(path for path in sorted(target.objects) if path.endswith(".data"))
    data, at = target.objects.pop(path)
    if loss == "cut":
        target.objects[path] = (data[:-1], at)
    assert copy(source, target, system, "d").copied_ssts == 2
    verify(target, system, "d")


def test_a_backup_of_a_clone_is_copied_with_what_lies_in_its_source(
    source: ModelBucket, target: ModelBucket, system: InlineSystem
) -> None:
    """The copy needs neither of the two stores; to a destination the clone is another store than its source."""
    cloned = ModelBucket(system, "model://clone")
    buckets = {"model://source": source, "model://clone": cloned}
    clone(source, cloned, system, owner="test", open_source=buckets.__getitem__, backup="b")
    with open_on(cloned, system, buckets.__getitem__) as store:
        store.backup("b")
    copy_backup(cloned, target, system, backup="b", owner="test", open_source=buckets.__getitem__)
    with pytest.raises(StoreNotEmpty, match="holds copies of another store, which was at model://clone"):
        copy(source, target, system)
    source.objects.clear()
    cloned.objects.clear()
    assert_rows(restore_copy(target, system), system)


def test_the_identity_is_given_once_and_stays(source: ModelBucket, system: InlineSystem) -> None:
    """Each backup has it in its object, so a copy need not write to the store to know it."""
    first = VersionLog(source, system, owner="test").refresh().identity
    assert len(first) == 32
    add_backup(source, system, "c")
    version = VersionLog(source, system, owner="test").refresh()
    assert version.identity == first
    for path in source.objects:
        if path.startswith("backup/"):
            assert decode_backup(path, source.get(path)).version.identity == first
