"""Trouble with the bucket gets a clear error, and nothing is lost: the rows of the error table for buckets."""

import errno
import os
import random
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.buckets.faulty_bucket import Fate, FaultyBucket
from support.buckets.minio import MinioServer
from support.store.stores import OBJECTS, TickingSystem, changes_of, open_on, pairs
from support.store.versions import ModelBucket
from tussock.statestore import CorruptLog, ObjectStoreUnavailable, SnapshotExpired, connect

DEADLINE_SECONDS = 2.0
SECONDS_MAX = 25.0
"""Less than the default deadline of a store, and time for two uploads in turn, on a busy machine."""


@pytest.mark.long
@pytest.mark.minio
@pytest.mark.parametrize("name", [{}, {"writer": "job", "batch_id": 1}], ids=["anonymous", "with writer and batch"])
def test_an_unreachable_bucket_loses_nothing(minio: MinioServer, name: dict[str, object]) -> None:
    """`ObjectStoreUnavailable` within the deadline; own rows stay; afterwards the same commit happens, once."""
    with connect(minio.fresh_url(), deadline=DEADLINE_SECONDS, compaction=False) as store:
        kv = store.create_table("kv")
        kv.ingest_batch([(b"a", b"1")], 1)
        store.commit_epoch(1)
        assert kv.get(b"a") == b"1"
        rows = [(b"a", b"2"), (b"b", b"2")]
        kv.ingest_batch(rows, 2)
        minio.stop()
        try:
            for _ in range(2):
                started = time.monotonic()
                with pytest.raises(ObjectStoreUnavailable, match=r"sst/|log/"):
                    store.commit_epoch(2, **name)  # type: ignore[arg-type]
                assert time.monotonic() - started < SECONDS_MAX
                assert kv.get(b"b") == b"2"
            assert kv.get(b"a", epoch=1) == b"1", "what is cached stays readable"
            for call in (
                store.vacuum,
                lambda: store.compact("kv"),
                store.pin_snapshot,
                lambda: store.create_table("x"),
            ):
                with pytest.raises(ObjectStoreUnavailable):
                    call()  # type: ignore[operator]
        finally:
            minio.start()
        assert store.commit_epoch(2, **name) == 2  # type: ignore[arg-type]
        assert pairs(kv.scan()) == rows
        with connect(store.url) as again:
            assert pairs(again.table("kv").scan()) == rows
            assert len(changes_of(again.table("kv"))) == 3
            assert again.tables() == ["kv"]


@pytest.mark.minio
@pytest.mark.parametrize("variable", ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"])
def test_wrong_credentials_are_reported_at_opening_without_their_values(
    minio: MinioServer, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    """`ObjectStoreUnavailable` names place and endpoint; the credentials are in no message."""
    url = minio.fresh_url()
    monkeypatch.setenv(variable, "wrong-and-secret")
    started = time.monotonic()
    with pytest.raises(ObjectStoreUnavailable, match=minio.endpoint) as error:
        connect(url, deadline=DEADLINE_SECONDS)
    assert time.monotonic() - started < SECONDS_MAX
    assert "wrong-and-secret" not in str(error.value)
    assert minio.password not in str(error.value)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 2 MiB."""
    mount = tmp_path / "small"
    mount.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", mount], capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.skip(f"no small disk: this user may not mount one ({done.stderr.strip()})")
    yield mount
    subprocess.run(["umount", mount], check=True)


@pytest.mark.parametrize("buffer_bytes", [64 << 20, 0], ids=["at the commit", "at a spill"])
def test_a_full_disk_fails_the_write_and_leaves_a_readable_store(small_disk: Path, buffer_bytes: int) -> None:
    """The rows stay buffered; with room again the same commit succeeds, and the store is whole on reopening."""
    url = (small_disk / "state").as_uri()
    ballast = small_disk / "ballast"
    with connect(url, buffer_bytes=buffer_bytes, compaction=False) as store:
        kv = store.create_table("kv", compression="none")
        kv.ingest_batch([(b"a", b"1")], 1)
        store.commit_epoch(1)
        ballast.write_bytes(b"x" * (1 << 20))
        big = [(b"big%d" % at, bytes([at]) * 100_000) for at in range(8)]
        big += [(b"more", b"m" * 500_000)]

        def write() -> None:
            kv.ingest_batch(big, 2)
            store.commit_epoch(2)

        with pytest.raises(ObjectStoreUnavailable, match="disk is full"):
            write()
        assert pairs(kv.scan(epoch=1)) == [(b"a", b"1")]
        assert kv.get(b"more") == b"m" * 500_000, "own rows are kept"
        with connect(url) as reader:
            assert pairs(reader.table("kv").scan()) == [(b"a", b"1")]
        ballast.unlink()
        assert store.commit_epoch(2) == 2
        assert pairs(kv.scan()) == [(b"a", b"1"), *big]
    with connect(url) as store:
        assert pairs(store.table("kv").scan()) == [(b"a", b"1"), *big]


def fill(folder: Path) -> Path:
    """Leave not one byte on that disk; returns the file that takes it all."""
    ballast = folder / "ballast"
    with ballast.open("wb", buffering=0) as file:
        for size in (1 << 16, 1 << 10, 1):
            try:
                while file.write(b"x" * size):
                    pass
            except OSError:
                continue
    return ballast


def test_vacuum_makes_room_on_a_full_disk(small_disk: Path) -> None:
    """Once it needed a log entry before it deleted anything, so the store could not free a full disk."""
    with connect((small_disk / "state").as_uri(), gc_grace=0, retention=0, compaction=False, limits=OBJECTS) as store:
        kv = store.create_table("kv", compression="none")
        for number in range(6):
            kv.ingest_batch([(b"k", bytes([number]) * 60_000)], epoch := store.new_epoch())
            store.commit_epoch(epoch)
        store.compact("kv")
        fill(small_disk)
        kv.ingest_batch([(b"more", b"m" * 60_000)], epoch := store.new_epoch())
        with pytest.raises(ObjectStoreUnavailable, match="disk is full"):
            store.commit_epoch(epoch)
        report = store.vacuum()
        assert report.bytes_freed > 5 * 60_000
        assert store.commit_epoch(epoch) >= epoch
        assert pairs(kv.scan()) == [(b"k", b"\x05" * 60_000), (b"more", b"m" * 60_000)]


@pytest.mark.parametrize("has_room", [True, False], ids=["for a marker", "for nothing"])
def test_vacuum_makes_room_of_log_entries_on_a_full_disk(has_room: bool) -> None:
    """Small rows lie in entries: those that are not needed go, though the entry with the horizon has no place."""
    system = TickingSystem()
    inner = ModelBucket(system)
    bucket = FaultyBucket(inner)
    store = open_on(bucket, system, retention=0, gc_grace=0)
    kv = store.create_table("kv")

    def commit_some() -> None:
        for number in range(70):
            kv.ingest_batch([(b"k", b"%d" % number)], epoch := store.new_epoch())
            store.commit_epoch(epoch)

    def entries() -> int:
        return len([path for path in inner.objects if re.fullmatch(r"log/\d{20}\.delta", path)])

    commit_some()
    commit_some()
    system.forward(60)
    store.vacuum()
    assert entries() > 100, "nothing is compacted, so all of them have rows that are read"
    store.compact("kv")
    system.forward(60)
    before = entries()
    full = r"log/\d" if has_room else r"log/"
    bucket.script = lambda call: (
        Fate.LOSE_REQUEST if call.operation == "create" and re.match(full, call.path) else Fate.PASS
    )
    with pytest.raises(ObjectStoreUnavailable):
        store.vacuum()
    bucket.script = None
    assert entries() <= before - 60, "what two base versions cover"
    commit_some()
    assert pairs(kv.scan()) == [(b"k", b"69")]


def test_a_commit_that_the_disk_has_no_room_for_certainly_did_not_happen(small_disk: Path) -> None:
    """The error names the object and the disk; once it said that the commit may have happened."""
    with connect((small_disk / "state").as_uri(), compaction=False) as store:
        kv = store.create_table("kv")
        ballast = fill(small_disk)
        for size in (300, 100_000):  # in the log's entry, and as a separate object before it
            epoch = store.new_epoch()
            kv.ingest_batch([(b"k", random.Random(size).randbytes(size))], epoch)
            with pytest.raises(ObjectStoreUnavailable, match="disk is full") as failed:
                store.commit_epoch(epoch)
            assert failed.value.nothing_written, size
            store.abort_epoch(epoch)
        with pytest.raises(ObjectStoreUnavailable, match="disk is full") as error:
            store.create_table("other")
        assert re.search(r"log/\d{20}\.delta: it was not created, so nothing happened", str(error.value))
        assert "may" not in str(error.value)
        assert error.value.nothing_written
        ballast.unlink()
        assert store.create_table("other").name == "other"


@pytest.mark.parametrize("kind", ["folder", "link that leads nowhere", "link to itself", "pipe"])
def test_what_is_no_file_where_the_log_goes_on_is_named(tmp_path: Path, kind: str) -> None:
    """It is no object, so no listing has it, and yet no entry can have its name; commits went on to race for ever."""
    with connect(tmp_path.as_uri(), compaction=False) as store:
        kv = store.create_table("kv")
        newest = max((tmp_path / "log").glob("*.delta"))
        path = newest.with_name(f"{int(newest.stem) + 1:020d}.delta")
        if kind == "folder":
            path.mkdir()
        elif kind == "pipe":
            os.mkfifo(path)
        else:
            path.symlink_to(path if "itself" in kind else tmp_path / "nowhere")
        kv.ingest_batch([(b"k", b"v")], 5)
        with pytest.raises(CorruptLog, match=rf"{path.name}: a {kind.split()[0]}.*nothing was written: remove it"):
            store.commit_epoch(5)
        assert path.is_symlink() or path.exists(), "it is not ours"
        path.rmdir() if kind == "folder" else path.unlink()
        store.commit_epoch(5)
        assert kv.get(b"k") == b"v"


def test_without_permission_a_commit_certainly_did_not_happen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same for a folder that this user may not write to."""
    with connect(tmp_path.as_uri(), compaction=False) as store:

        def refuse(*_: object, **__: object) -> None:
            raise PermissionError(errno.EACCES, "Permission denied")

        with monkeypatch.context() as patched:
            patched.setattr("os.link", refuse)
            with pytest.raises(ObjectStoreUnavailable, match=r"so nothing happened.*no permission"):
                store.create_table("kv")
        assert store.create_table("kv").name == "kv"


def test_an_epoch_past_the_retention_names_the_oldest_readable_one(bucket_url: str) -> None:
    """On the real clock: with a retention of 0, only the newest epoch is readable."""
    with connect(bucket_url, retention=0, compaction=False) as store:
        kv = store.create_table("kv")
        for epoch in (1, 2):
            kv.ingest_batch([(b"a", b"%d" % epoch)], epoch)
            store.commit_epoch(epoch)
            time.sleep(0.002)  # the retention is reckoned in whole milliseconds
        for call in (lambda: kv.get(b"a", epoch=1), lambda: kv.changes(0), lambda: store.pin_snapshot(1)):
            with pytest.raises(SnapshotExpired, match="oldest readable epoch is 2"):
                call()
        assert kv.get(b"a", epoch=2) == b"2"
