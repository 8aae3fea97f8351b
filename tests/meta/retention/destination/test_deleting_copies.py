"""Copies are deleted without harm to others: through crashes at every request, and beside copies at every request."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from support.backups.backed_up import InlineSystem, NumberedBuckets, calls_of, fill_source
from support.backups.destinations import add_backup, copy, delete, destination_on, verify_all
from support.buckets.faulty_bucket import Call, Crash, Fate, FaultyBucket
from support.store.versions import ModelBucket
from tussock.meta.retention.destination.deletion import delete_copies
from tussock.meta.retention.destination.destination import ABANDONED_MS, ENTRIES_KEPT, Destination
from tussock.meta.retention.destination.records import Catalogue, catalogue_path, manifest_path, part_of
from tussock.statestore.buckets.file import FileBucket
from tussock.statestore.errors import BackupNotFound, CorruptLog, LimitReached, ObjectStoreUnavailable, StaleUpload


@pytest.fixture
def system() -> InlineSystem:
    return InlineSystem()


@pytest.fixture
def source(system: InlineSystem) -> ModelBucket:
    """A store with backups `b`, `c`, `d`; each has an SST that the others have not, and shares some."""
    bucket = fill_source(ModelBucket(system, "model://source"), system)
    add_backup(bucket, system, "c")
    add_backup(bucket, system, "d")
    return bucket


@pytest.fixture
def target(system: InlineSystem) -> ModelBucket:
    return ModelBucket(system, "model://target")


def names_of(target: ModelBucket, system: InlineSystem) -> set[str]:
    return set(destination_on(target, system).read().copies)


def assert_no_garbage(target: ModelBucket, system: InlineSystem) -> None:
    """After one more deletion nothing is left that no copy needs."""
    delete(target, system, missing_ok=True)
    assert verify_all(target, system) == sorted(names_of(target, system))
    destination = destination_on(target, system)
    named = set()
    for one in destination.read().copies.values():
        manifest = destination.manifest(one)
        named |= {(part, sst_id) for sst_id, (part, _) in manifest.places.items()}
    left = {(part_of(path), path.rpartition("/")[2][:32]) for path in target.objects if "/sst/" in path}
    assert left == named
    parts = {part_of(path) for path in target.objects if path.endswith("/manifest")}
    assert parts == {one.part for one in destination.read().copies.values()}


def test_a_deleted_copy_leaves_what_others_need(source: ModelBucket, target: ModelBucket, system: InlineSystem) -> None:
    for name in ("c", "d"):
        copy(source, target, system, name)
    before = set(target.objects)
    assert delete(target, system, "c") == ("c",)
    gone = {path for path in before - set(target.objects) if path.startswith("parts/")}
    assert gone == {manifest_path(1)}, "`d` has all SSTs of `c`"
    assert verify_all(target, system) == ["d"]
    assert delete(target, system, "d") == ("d",)
    assert not [path for path in target.objects if path.startswith("parts/")]
    copy(source, target, system, "c")
    assert verify_all(target, system) == ["c"]


def test_names_that_are_not_there(source: ModelBucket, target: ModelBucket, system: InlineSystem) -> None:
    """They are an error that deletes nothing, unless the caller wants to be sure that they are gone."""
    copy(source, target, system)
    with pytest.raises(BackupNotFound, match="its newest names: b"):
        delete(target, system, "b", "x")
    assert names_of(target, system) == {"b"}
    assert delete(target, system, "b", "x", missing_ok=True) == ("b",)
    assert delete(target, system, "b", "x", missing_ok=True) == ()


def test_foreign_objects_stay(source: ModelBucket, target: ModelBucket, system: InlineSystem) -> None:
    """Only names that a copy gives are ever deleted, and none of a part that has not begun."""
    copy(source, target, system)
    foreign = [
        "parts/readme",
        "parts/00000000000000000001/sst/readme.data",
        f"parts/00000000000000000001/{'0' * 32}.data",
        f"parts/00000000000000000099/sst/{'0' * 32}.data",
        f"other/parts/00000000000000000001/sst/{'0' * 32}.data",
        "catalogue/readme",
    ]
    for path in foreign:
        target.put(path, b"of others")
    delete(target, system, "b")
    assert [path for path in target.objects if not path.startswith("catalogue/0")] == foreign


def test_what_a_killed_copy_had_half_written_goes_after_a_week(
    source: ModelBucket, system: InlineSystem, tmp_path: Path
) -> None:
    """In a folder such files are no objects, so no deletion of objects meets them; those of others stay."""
    target = FileBucket(tmp_path, system)
    copy(source, target, system)
    part = "parts/00000000000000000001"
    ages = {
        f"{part}/.tmp-{'0' * 24}": ABANDONED_MS + 1_000,
        f"{part}/sst/.tmp-{'1' * 24}": ABANDONED_MS + 1_000,
        f"{part}/sst/.tmp-{'2' * 24}": ABANDONED_MS - 60_000,
        f"parts/.tmp-{'3' * 24}": ABANDONED_MS + 1_000,
        f"other/.tmp-{'4' * 24}": ABANDONED_MS + 1_000,
    }
    for path, age in ages.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_bytes(b"half")
        seconds = (system.now_ms() - age) / 1000
        os.utime(tmp_path / path, (seconds, seconds))
    delete(target, system, "b")
    assert [path for path in ages if (tmp_path / path).exists()] == list(ages)[2:]


@pytest.mark.parametrize("fate", [Fate.CRASH, Fate.CRASH_AFTER, Fate.LOSE_REQUEST, Fate.LOSE_ANSWER])
def test_a_deletion_interrupted_at_any_request_can_be_repeated(
    source: ModelBucket, target: ModelBucket, system: InlineSystem, fate: Fate
) -> None:
    for name in ("b", "c", "d"):
        copy(source, target, system, name)
    began = dict(target.objects)
    total = calls_of(lambda _, b: delete(b, system, "b", "c"), source, target)  # type: ignore[arg-type]
    assert total > 8
    for at in range(1, total + 1):
        target.objects = dict(began)
        shared = NumberedBuckets(source, target, {at: fate})
        try:
            delete(shared.target, system, "b", "c")  # type: ignore[arg-type]
        except (Crash, ObjectStoreUnavailable):
            verify_all(target, system)
        delete(target, system, "b", "c", missing_ok=True)
        assert names_of(target, system) == {"d"}
        assert_no_garbage(target, system)


def do_copy(name: str) -> Callable[[ModelBucket, ModelBucket, InlineSystem], object]:
    return lambda source, target, system: copy(source, target, system, name)


def do_delete(*names: str) -> Callable[[ModelBucket, ModelBucket, InlineSystem], object]:
    return lambda _, target, system: delete(target, system, *names, missing_ok=True)


def replace_copy(source: ModelBucket, target: ModelBucket, system: InlineSystem) -> None:
    """The copy that another process may be deleting, or making, goes and comes again."""
    delete(target, system, "c", missing_ok=True)
    copy(source, target, system, "c")


WORKS = {
    "copy c": do_copy("c"),
    "copy d": do_copy("d"),
    "delete b": do_delete("b"),
    "delete c": do_delete("c"),
    "replace c": replace_copy,
}


def attempt(work: Callable[..., object], source: ModelBucket, target: object, system: InlineSystem) -> bool:
    """Whether the work ended well; it may find that another has given it up."""
    try:
        work(source, target, system)
    except StaleUpload:
        return False
    return True


@pytest.mark.parametrize("inner", WORKS)
@pytest.mark.parametrize("outer", WORKS)
def test_what_happens_while_another_sleeps_does_no_harm(
    source: ModelBucket, target: ModelBucket, system: InlineSystem, outer: str, inner: str
) -> None:
    """A process sleeps before each of its requests in turn, and another does all of its work meanwhile.

    Whatever is finished afterwards is whole, and what was copied by a call that ended well, and not deleted since, is
    there.
    """
    copy(source, target, system, "b")
    began = dict(target.objects)
    counted = FaultyBucket(target)
    assert attempt(WORKS[outer], source, counted, system)
    total = len(counted.calls)
    for at in range(1, total + 1):
        target.objects = dict(began)
        sleeper = FaultyBucket(target)
        sleeper.stall(at, lambda: attempt(WORKS[inner], source, target, system))
        is_well = attempt(WORKS[outer], source, sleeper, system)
        there = set(verify_all(target, system))
        if outer == "copy d" and is_well:
            assert "d" in there, at
        if outer == "copy c" and is_well and "delete" not in inner and "replace" not in inner:
            assert "c" in there, at
        if inner == "copy d":
            assert "d" in there, at
        # What the sleeper has left half done goes with the next call.
        for name in ("b", "c", "d"):
            copy(source, target, system, name)
        assert_no_garbage(target, system)
        assert names_of(target, system) == {"b", "c", "d"}


@pytest.mark.parametrize("names", [("copy d", "delete b", "copy c"), ("delete b", "copy d", "delete c")])
def test_three_at_once_do_no_harm(
    source: ModelBucket, target: ModelBucket, system: InlineSystem, names: tuple[str, str, str]
) -> None:
    """The second sleeps at every third of its requests too, while the third works."""
    first, second, third = (WORKS[name] for name in names)
    copy(source, target, system, "b")
    copy(source, target, system, "c")
    began = dict(target.objects)

    def calls(work: Callable[..., object]) -> int:
        target.objects = dict(began)
        counted = FaultyBucket(target)
        attempt(work, source, counted, system)
        return len(counted.calls)

    for at in range(1, calls(first) + 1):
        for within in range(1, calls(second) + 1, 3):
            target.objects = dict(began)
            outer, middle = FaultyBucket(target), FaultyBucket(target)
            middle.stall(within, lambda: attempt(third, source, target, system))
            outer.stall(at, lambda middle=middle: attempt(second, source, middle, system))  # type: ignore[misc]
            attempt(first, source, outer, system)
            verify_all(target, system)


def test_a_process_that_slept_past_deleted_entries_is_not_taken_in(
    source: ModelBucket, target: ModelBucket, system: InlineSystem
) -> None:
    """The number of its entry was used and deleted meanwhile: it creates it once more, and sees that it is void."""
    copy(source, target, system, "b")

    def others() -> None:
        for _ in range(ENTRIES_KEPT):
            copy(source, target, system, "c")
            delete(target, system, "c")

    for asleep in (do_copy("d"), do_delete("b")):
        sleeper = FaultyBucket(target)

        def is_entry(call: Call) -> bool:
            return call.operation == "create" and call.path.startswith("catalogue/")

        sleeper.stall(is_entry, others)
        asleep(source, sleeper, system)  # type: ignore[arg-type]
        assert catalogue_path(3) not in target.objects or destination_on(target, system).read().seq > ENTRIES_KEPT
        verify_all(target, system)
    assert names_of(target, system) == {"d"}
    assert len([path for path in target.objects if path.startswith("catalogue/")]) <= ENTRIES_KEPT + 2
    assert_no_garbage(target, system)


def test_a_copy_of_a_week_ago_is_given_up(source: ModelBucket, target: ModelBucket, system: InlineSystem) -> None:
    """So what it has put does not stay for ever; its process finds out when it wakes, and may begin anew."""
    sleeper = FaultyBucket(target)

    def others() -> None:
        delete(target, system, "x", missing_ok=True)
        assert "b" in names_of(target, system), "it is not a week yet"
        system.forward(ABANDONED_MS / 1000 + 1)
        copy(source, target, system, "d")
        assert_no_garbage(target, system)

    sleeper.stall(lambda call: call.path.endswith("/manifest"), others)
    with pytest.raises(StaleUpload, match="copy it again"):
        copy(source, sleeper, system)  # type: ignore[arg-type]
    assert names_of(target, system) == {"d"}
    copy(source, target, system)
    assert verify_all(target, system) == ["b", "d"]
    assert_no_garbage(target, system)


def test_a_manifest_that_cannot_be_read_keeps_all_objects(
    source: ModelBucket, target: ModelBucket, system: InlineSystem
) -> None:
    """What it names is not known, so nothing is deleted, until the copy itself goes."""
    copy(source, target, system, "b")
    copy(source, target, system, "d")
    target.put(manifest_path(1), b"damaged")
    before = {path for path in target.objects if path.startswith("parts/")}
    with pytest.raises(CorruptLog, match=manifest_path(1)):
        delete(target, system, "d")
    assert {path for path in target.objects if path.startswith("parts/")} == before
    delete(target, system, "b")
    assert not [path for path in target.objects if path.startswith("parts/")]


def test_the_number_of_copies_is_bounded(source: ModelBucket, target: ModelBucket, system: InlineSystem) -> None:
    """Every entry of the catalogue has all of them. At the limit, and beyond it, some can be deleted."""
    copy(source, target, system, "b")
    copy(source, target, system, "c")
    destination = Destination(target, system, owner="test", copies_max=1)

    def add(now: Catalogue, _: int) -> Catalogue:
        return replace(now, copies={**now.copies, "d": now.copies["b"]})

    with pytest.raises(LimitReached, match="delete some"):
        destination.append(add)
    delete_copies(destination, ["b"])
    assert names_of(target, system) == {"c"}
