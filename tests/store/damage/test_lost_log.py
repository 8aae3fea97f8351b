"""A place whose log is lost is no empty store: no client begins one there, and nothing there is garbage."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.buckets.faulty_bucket import FaultyBucket
from support.store.stores import TickingSystem, open_on
from support.store.versions import ModelBucket
from tussock.statestore import CorruptLog, StateStore, connect, restore

ROWS = [(b"%05d" % number, os.urandom(200)) for number in range(500)]


def _write(store: StateStore, rows: list[tuple[bytes, bytes]]) -> int:
    epoch = store.new_epoch()
    store.table("kv").ingest_batch(rows, epoch)
    return store.commit_epoch(epoch)


def _files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A store with a backup, days old, after a user deleted its log."""
    folder = tmp_path / "store"
    with connect(folder.as_uri()) as store:
        store.create_table("kv")
        _write(store, ROWS)
        store.backup("nightly")
    for path in folder.rglob("*"):
        os.utime(path, (1, 1))
    shutil.rmtree(folder / "log")
    shutil.rmtree(folder / "snapshot", ignore_errors=True)
    return folder


@pytest.mark.parametrize(
    "what",
    [
        lambda store: store.tables(),
        lambda store: store.table("kv"),
        lambda store: store.create_table("kv"),
        lambda store: store.vacuum(),
        lambda store: store.vacuum(dry_run=True),
        lambda store: store.backup("another"),
        lambda store: store.pin_snapshot(),
    ],
)
def test_a_store_without_its_log_is_neither_read_nor_changed(place: Path, what: Callable[[StateStore], Any]) -> None:
    """Vacuum once took the backups for given up, and a writer began another log, which made garbage of all SSTs."""
    before = _files(place)
    told = r"has no log, and holds backup/nightly\.\w+: its log was lost"
    with pytest.raises(CorruptLog, match=told), connect(place.as_uri()) as store:
        what(store)
    assert _files(place) == before


def test_ssts_alone_show_that_a_log_is_lost(place: Path) -> None:
    """A store without a backup."""
    shutil.rmtree(place / "backup")
    with pytest.raises(CorruptLog, match=r"has no log, and holds sst/\w+\.data"), connect(place.as_uri()) as store:
        store.create_table("kv")


def test_a_backup_of_a_lost_store_is_restored(place: Path, tmp_path: Path) -> None:
    """The backup's object suffices."""
    target = (tmp_path / "target").as_uri()
    restore(place.as_uri(), "nightly", target)
    with connect(target) as store:
        assert [store.table("kv").get(key) for key, _ in ROWS] == [value for _, value in ROWS]


def test_foreign_files_are_no_store(tmp_path: Path) -> None:
    """Only names that a store gives count."""
    folder = tmp_path / "store"
    for name in ("sst/readme.txt", "backup/notes", "sst/sub/x.data"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"mine")
    with connect(folder.as_uri()) as store:
        store.create_table("kv")
        assert _write(store, ROWS[:1]) == store.committed_epoch


@pytest.mark.parametrize("folder", ["snapshot/", "backup/", "sst/"])
def test_a_store_that_begins_at_the_same_moment_is_no_lost_one(folder: str) -> None:
    """The other client's SSTs are seen first; then its log is looked for again."""
    system = TickingSystem()
    inner = ModelBucket(system)
    bucket = FaultyBucket(inner)

    def begin() -> None:
        other = TickingSystem()
        other.drawn = 10**6
        with open_on(inner, other) as store:
            store.create_table("kv")
            _write(store, ROWS)
            store.backup("nightly")

    bucket.stall(lambda call: call.operation == "list" and call.path == folder, begin)
    with open_on(bucket, system) as store:
        assert store.tables() == ["kv"]
        assert store.table("kv").get(ROWS[0][0]) == ROWS[0][1]
