"""Backup, copy, restore and clone through the public API, on memory, in a folder and on a real MinIO."""

import multiprocessing
import os
import signal
from collections.abc import Iterator

import pytest

from support.store.stores import pairs
from support.waiting import eventually
from tussock.statestore import (
    BackupExists,
    BackupNotFound,
    InvalidOption,
    StateStore,
    StoreClosed,
    StoreNotEmpty,
    clone,
    connect,
    copy_backup,
    delete_copies,
    list_copies,
    restore,
    verify_backup,
)
from tussock.statestore.buckets import open_bucket

ROWS = 500


@pytest.fixture
def urls(bucket_url: str) -> list[str]:
    """Three empty places in one bucket, or named memory stores."""
    parted = "-" if bucket_url.startswith("memory:") else "/"
    return [f"{bucket_url}{parted}{name}" for name in ("a", "b", "c")]


@pytest.fixture
def store(urls: list[str]) -> Iterator[StateStore]:
    with connect(urls[0], compaction=False, retention=0, gc_grace=0) as opened:
        opened.create_table("kv", compression="none")
        put(opened, b"first")
        put(opened, b"second", range(0, ROWS, 2))
        yield opened


def put(store: StateStore, value: bytes, keys: range = range(ROWS)) -> int:
    epoch = store.new_epoch()
    store.table("kv").ingest_batch([(b"%06d" % key, value * 100) for key in keys], epoch)
    return store.commit_epoch(epoch)


def replace_all(store: StateStore, value: bytes) -> None:
    """Replace all rows, compact and vacuum, so that only copies keep the old SSTs."""
    put(store, value)
    store.compact("kv")
    store.vacuum()


def rows(url: str) -> list[tuple[bytes, bytes]]:
    with connect(url, compaction=False) as store:
        return pairs(store.table("kv").scan())


def test_a_backup_outlives_changes_of_the_store(store: StateStore, urls: list[str]) -> None:
    """It is restored to its rows, and the restored store goes on independently."""
    before = pairs(store.table("kv").scan())
    made = store.backup("nightly", "for the test")
    replace_all(store, b"third")
    assert [(one.name, one.held_bytes) for one in store.backups()] == [("nightly", made.bytes)]
    with pytest.raises(BackupExists):
        store.backup("nightly")
    restore(urls[0], "nightly", urls[1])
    restore(urls[0], "nightly", urls[1])
    store.delete_backup("nightly")
    with pytest.raises(BackupNotFound):
        store.delete_backup("nightly")
    store.vacuum()
    assert rows(urls[1]) == before
    with connect(urls[1], compaction=False, retention=0, gc_grace=0) as restored:
        assert put(restored, b"fourth") > made.epoch
        restored.compact("kv")
        restored.vacuum()
    assert {value for _, value in rows(urls[1])} == {b"fourth" * 100}
    assert {value for _, value in rows(urls[0])} == {b"third" * 100}
    with pytest.raises(StoreNotEmpty):
        clone(urls[0], urls[1])


def test_a_clone_reads_its_source_and_later_releases_it(store: StateStore, urls: list[str]) -> None:
    """A clone of a clone does, too; each store is changed, compacted and vacuumed by itself."""
    before = pairs(store.table("kv").scan())
    clone(urls[0], urls[1])
    clone(urls[0], urls[1])
    assert not list(open_bucket(urls[1]).list("sst/"))
    with connect(urls[1], compaction=False, retention=0, gc_grace=0) as middle:
        put(middle, b"middle", range(3))
        clone(urls[1], urls[2])
        replace_all(store, b"third")
        assert {value for _, value in pairs(middle.table("kv").scan())} == {
            b"first" * 100,
            b"second" * 100,
            b"middle" * 100,
        }
        counts = middle.requests()["read"]
        assert sum(count for count, _ in counts.values()) > 0, "reads of the source's bucket are counted"
        replace_all(middle, b"fourth")
    assert rows(urls[2])[3:] == before[3:]
    with connect(urls[2], compaction=False, retention=0, gc_grace=0) as last:
        replace_all(last, b"fifth")

    def has_released() -> bool:
        # What was dropped within the same milliseconds is garbage for the next vacuum only.
        with connect(urls[2], compaction=False, retention=0, gc_grace=0) as last:
            last.vacuum()
        with connect(urls[1], compaction=False, retention=0, gc_grace=0) as middle:
            middle.vacuum()
            return middle.backups() == []

    eventually(has_released)
    assert store.backups() == []
    store.vacuum()
    values = [{value for _, value in rows(url)} for url in urls]
    assert values == [{b"third" * 100}, {b"fourth" * 100}, {b"fifth" * 100}]


def test_a_closed_store_says_so(store: StateStore) -> None:
    store.close()
    for call in (lambda: store.backup("x"), store.backups, lambda: store.delete_backup("x")):
        with pytest.raises(StoreClosed):
            call()


def _copy_and_die(source: str, target: str, at: int) -> None:
    """Copy a backup, and end as `kill -9` does once `at` SSTs are in place."""
    left = at

    def give_up(_: int) -> None:
        nonlocal left
        left -= 1
        if left <= 0:
            os.kill(os.getpid(), signal.SIGKILL)

    copy_backup(source, "nightly", target, on_bytes=give_up)


def test_a_killed_copy_can_be_repeated(store: StateStore, urls: list[str]) -> None:
    """Another process is killed after one SST, and after the next; the copy then outlives the store."""
    if urls[0].startswith("memory:"):
        pytest.skip("a memory store cannot be reached from another process")
    put(store, b"third")
    before = pairs(store.table("kv").scan())
    store.backup("nightly")
    for at in (1, 2):
        child = multiprocessing.get_context("spawn").Process(target=_copy_and_die, args=(urls[0], urls[1], at))
        child.start()
        child.join()
        assert child.exitcode == -signal.SIGKILL
        assert [(one.name, one.finished_ms) for one in list_copies(urls[1])] == [("nightly", 0)]
        with pytest.raises(BackupNotFound, match="is not finished"):
            verify_backup(urls[1], "nightly")
    assert copy_backup(urls[0], "nightly", urls[1]).copied_ssts == 3
    open_bucket(urls[0]).delete([info.path for info in open_bucket(urls[0]).list("")])
    assert verify_backup(urls[1], "nightly").ssts == 3
    restore(urls[1], "nightly", urls[2])
    assert rows(urls[2]) == before


def test_copies_share_ssts_and_go_one_by_one(store: StateStore, urls: list[str]) -> None:
    """On every kind of bucket, by the public API: two copies, the first is deleted, the second stays whole."""
    store.backup("first")
    put(store, b"third", range(3))
    store.backup("second")
    told: list[int] = []
    first = copy_backup(urls[0], "first", urls[1], on_bytes=told.append)
    second = copy_backup(urls[0], "second", urls[1])
    assert (first.copied_ssts, second.copied_ssts, sum(told)) == (2, 1, first.info.bytes)
    assert [one.name for one in list_copies(urls[1])] == ["first", "second"]
    assert delete_copies(urls[1], ["first"]) == ("first",)
    with pytest.raises(BackupNotFound):
        delete_copies(urls[1], ["first"])
    assert delete_copies(urls[1], ["first"], missing_ok=True) == ()
    assert verify_backup(urls[1], "second").ssts == 3
    assert verify_backup(urls[0], "first").ssts == 2
    assert list_copies(urls[2]) == []
    for wrong in ("second", b"second", [7]):
        with pytest.raises(InvalidOption):
            delete_copies(urls[1], wrong)  # type: ignore[arg-type]
    assert delete_copies(urls[1], ["second"]) == ("second",)
    assert not list(open_bucket(urls[1]).list("parts/"))


def _restore_and_die(source: str, target: str, at: int) -> None:
    """Restore, and end as `kill -9` does once `at` SSTs are in place."""
    left = at

    def give_up(_: int) -> None:
        nonlocal left
        left -= 1
        if left <= 0:
            os.kill(os.getpid(), signal.SIGKILL)

    restore(source, "nightly", target, on_bytes=give_up)


def test_a_killed_restore_can_be_repeated(store: StateStore, urls: list[str]) -> None:
    """Another process is killed after one SST, and after the next: no store exists until the last attempt."""
    if urls[0].startswith("memory:"):
        pytest.skip("a memory store cannot be reached from another process")
    put(store, b"third")
    before = pairs(store.table("kv").scan())
    store.backup("nightly")
    for at in (1, 2):
        child = multiprocessing.get_context("spawn").Process(target=_restore_and_die, args=(urls[0], urls[1], at))
        child.start()
        child.join()
        assert child.exitcode == -signal.SIGKILL
        bucket = open_bucket(urls[1])
        assert len({info.path.partition(".")[0] for info in bucket.list("sst/")}) >= at
        assert not list(bucket.list("log/"))
    restore(urls[0], "nightly", urls[1])
    assert rows(urls[1]) == before
