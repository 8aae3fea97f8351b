"""A folder as a bucket is atomic and durable, whatever the disk does and wherever the process dies."""

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.buckets import child as bucket_child
from tussock.statestore import connect
from tussock.statestore.buckets import open_bucket
from tussock.statestore.contract.object_store import ObjectStore
from tussock.statestore.errors import ObjectNotFound, ObjectStoreUnavailable

FOREVER_MS = 1 << 60


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of the bucket."""
    return tmp_path / "bucket"


@pytest.fixture(params=["", "old"])
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """An old one answers as if the flag were not there: that a folder is no file to write to."""
    if request.param == "old":
        monkeypatch.setattr(os, "O_TMPFILE", 0)
    kernel: str = request.param
    return kernel


@pytest.fixture
def bucket(folder: Path, kernel: str) -> ObjectStore:
    """A bucket with one object."""
    opened = open_bucket(folder.as_uri())
    opened.put("a/there", b"old")
    return opened


def fail(monkeypatch: pytest.MonkeyPatch, function: str, number: int) -> None:
    """Let a function of `os` fail with that error from now on."""

    def failing(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, function, failing)


def files(folder: Path) -> list[str]:
    """All files below the folder, hidden ones too."""
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize("operation", ["put", "create"])
@pytest.mark.parametrize("function", ["open", "writev", "fsync", "rename", "link"])
@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.ENOSPC, "the disk is full"),
        (errno.EDQUOT, "quota"),
        (errno.EIO, "the disk failed"),
        (errno.EROFS, "read-only"),
        (errno.EACCES, "no permission"),
    ],
)
def test_a_failing_disk_stores_nothing_and_says_why(
    bucket: ObjectStore,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    operation: str,
    function: str,
    number: int,
    words: str,
) -> None:
    """Object and folder in the message; the old object is whole, no temporary file stays, and later it works again."""
    if (operation, function) in (("put", "link"), ("create", "rename")):
        pytest.skip("this operation does without that call")
    path = "a/there" if operation == "put" else "a/new"
    with monkeypatch.context() as patch:
        fail(patch, function, number)
        with pytest.raises(ObjectStoreUnavailable, match=words) as error:
            getattr(bucket, operation)(path, b"new")
    assert f"{operation} of {path}" in str(error.value)
    assert bucket.url in str(error.value)
    assert isinstance(error.value.__cause__, OSError)
    assert files(folder) == ["a/there"]
    assert bucket.get("a/there") == b"old"
    getattr(bucket, operation)(path, b"new")
    assert bucket.get(path) == b"new"


def test_a_read_that_the_disk_fails_is_not_a_missing_object(
    bucket: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader must not take a broken disk for an object that was never there."""
    fail(monkeypatch, "pread", errno.EIO)
    for call in (lambda: bucket.get("a/there"), lambda: bucket.get_range("a/there", 0, 2)):
        with pytest.raises(ObjectStoreUnavailable, match="the disk failed"):
            call()


def test_short_writes_and_reads_are_continued(bucket: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel may take and give fewer bytes than asked for."""
    real_writev, real_pread = os.writev, os.pread
    monkeypatch.setattr(os, "writev", lambda fd, buffers: real_writev(fd, [buffers[0][:3]]))
    monkeypatch.setattr(os, "pread", lambda fd, size, start: real_pread(fd, min(size, 2), start))
    bucket.put("a/x", [b"0123456789", b"", memoryview(b"abcdefg")])
    assert bucket.get("a/x") == b"0123456789abcdefg"
    assert bytes(bucket.get_range("a/x", 8, 5)) == b"89abc"


def test_only_synced_bytes_get_a_name(bucket: ObjectStore, kernel: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write, sync the file, name it, sync the folder; a new folder is first synced into its parent."""
    created = ["writev", "fsync", "link", *["unlink"] * (kernel == "old"), "fsync a"]
    events: list[str] = []

    def record(function: str) -> None:
        real = getattr(os, function)

        def recorder(*args: Any, **kwargs: Any) -> Any:
            is_folder = function == "fsync" and os.path.isdir(f"/proc/self/fd/{args[0]}")
            name = os.path.basename(os.readlink(f"/proc/self/fd/{args[0]}")) if is_folder else ""
            events.append(f"{function} {name}".strip())
            return real(*args, **kwargs)

        monkeypatch.setattr(os, function, recorder)

    for function in ("writev", "fsync", "rename", "link", "unlink", "mkdir"):
        record(function)
    bucket.put("a/x", b"1")
    assert events == ["writev", "fsync", "rename", "fsync a"]
    events.clear()
    bucket.create("a/y", b"1")
    assert events == created
    events.clear()
    bucket.create("a/y", b"2")
    assert events == created
    events.clear()
    bucket.put("b/c/x", b"1")
    assert events == ["mkdir", "fsync bucket", "mkdir", "fsync b", "writev", "fsync", "rename", "fsync c"]


@pytest.mark.parametrize("operation", ["put", "create"])
def test_a_process_killed_at_any_step_leaves_the_whole_object_or_none(
    tmp_path: Path, operation: str, kernel: str
) -> None:
    """`kill -9` on entering each call that changes a file: a listed object is whole; leftovers can be swept."""
    outcomes = []
    for call in range(1, 20):
        url = (tmp_path / str(call)).as_uri()
        child = [sys.executable, bucket_child.__file__, "die", url, operation, str(call), kernel]
        survived = subprocess.run(child, capture_output=True, text=True, check=False).stdout == "survived\n"
        bucket = open_bucket(url)
        found = [info.path for info in bucket.list("") if info.path != "die/before"]
        assert found in ([], ["die/object"])
        assert not found or bucket.get("die/object") == bucket_child.whole_object(1)
        left = bucket.leftovers(FOREVER_MS)
        outcomes.append((bool(found), len(left)))
        bucket.delete([info.path for info in left])
        assert not bucket.leftovers(FOREVER_MS)
        assert [info.path for info in bucket.list("")] == ["die/before", *found]
        if survived:
            break
    # Killed before: writev, fsync, rename | link, (unlink,) fsync of the folder; and the last one lived.
    if operation == "put":
        assert outcomes == [(False, 1), (False, 1), (False, 1), (True, 0), (True, 0)]
    elif kernel == "old":
        assert outcomes == [(False, 1), (False, 1), (False, 1), (True, 1), (True, 0), (True, 0)]
    else:
        # What has no name is gone with its process.
        assert outcomes == [(False, 0), (False, 0), (False, 0), (True, 0), (True, 0)]


def test_leftovers_are_old_unfinished_files_only(bucket: ObjectStore, folder: Path) -> None:
    """Neither objects, nor files that a live writer may still use; no listing and no read shows a leftover."""
    for name, second in (
        (f"a/.tmp-{1:024x}", 1000),
        (f".tmp-{2:024x}", 500),
        (f"a/.tmp-{3:024x}", 2000),
        ("a/.tmp-mine", 1000),
    ):
        (folder / name).write_bytes(b"torn")
        os.utime(folder / name, (second, second))
    os.utime(folder / "a/there", (1, 1))
    left = bucket.leftovers(2_000_000)
    assert sorted(left) == [(f".tmp-{2:024x}", 4, 500_000), (f"a/.tmp-{1:024x}", 4, 1_000_000)]
    assert [info.path for info in bucket.list("")] == ["a/there"]
    bucket.delete([info.path for info in left])
    bucket.delete([info.path for info in left])
    assert files(folder) == [f"a/.tmp-{3:024x}", "a/.tmp-mine", "a/there"]


def test_foreign_files_are_left_alone(bucket: ObjectStore, folder: Path) -> None:
    """A name that no object can have is in no listing, so it is neither read nor deleted; its folder is not entered."""
    (folder / "lost+found").mkdir()
    (folder / "lost+found" / "a").write_bytes(b"")
    (folder / "a" / "notes (copy).txt").write_bytes(b"")
    (folder / ".hidden").write_bytes(b"")
    assert [info.path for info in bucket.list("")] == ["a/there"]
    assert not bucket.leftovers(FOREVER_MS)


@pytest.mark.parametrize("part", ["a", ""])
@pytest.mark.parametrize("way", ["removed", "moved", "replaced"])
def test_a_folder_that_is_gone_is_not_made_again(bucket: ObjectStore, folder: Path, part: str, way: str) -> None:
    """Story: the first call failed, and the next one committed into an empty folder what nobody could open again."""
    gone, away = folder / part, folder.parent / "away"
    gone.rename(away)
    if way == "removed":
        shutil.rmtree(away)
    if way == "replaced":
        shutil.copytree(away, gone)
    is_told = way != "replaced" or not part
    for _ in range(3):
        for write in (bucket.put, bucket.create):
            if is_told:
                with pytest.raises(ObjectStoreUnavailable) as told:
                    write("a/x", b"1")
                assert told.value.nothing_written or "check the folder" in str(told.value)
    assert not (folder / "a" / "x").exists()
    if way == "moved":
        away.rename(gone)
        assert bucket.create("a/x", b"1")
        assert bucket.get("a/there") == b"old"


def test_commits_do_not_go_into_a_folder_that_is_gone(tmp_path: Path) -> None:
    """Neither the first nor a repeated one is acknowledged, and all is there once the disk is back."""
    store = connect((tmp_path / "store").as_uri(), compaction=False)
    kv = store.create_table("kv")
    kv.ingest_batch([(b"a", b"1")], 1)
    store.commit_epoch(1)
    (tmp_path / "store").rename(tmp_path / "away")
    kv.ingest_batch([(b"b", b"2")], 2)
    for _ in range(3):
        with pytest.raises(ObjectStoreUnavailable):
            store.commit_epoch(2)
    (tmp_path / "away").rename(tmp_path / "store")
    assert store.commit_epoch(2) == 2
    store.close()
    with connect((tmp_path / "store").as_uri(), compaction=False) as again:
        assert [again.table("kv").get(key) for key in (b"a", b"b")] == [b"1", b"2"]


def test_an_object_where_a_folder_is_needed_is_an_error(bucket: ObjectStore) -> None:
    """A file system cannot hold `a/there` and `a/there/below`; the message names the object."""
    with pytest.raises(ObjectStoreUnavailable, match="put of a/there/below"):
        bucket.put("a/there/below", b"")
    assert bucket.get("a/there") == b"old"


def test_a_folder_that_cannot_be_made_is_reported_when_opening(tmp_path: Path) -> None:
    """A file stands where the folder should be."""
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(ObjectStoreUnavailable, match="open in file://"):
        open_bucket((tmp_path / "file" / "bucket").as_uri())


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MiB."""
    mount = tmp_path / "small"
    mount.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", mount], capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.skip(f"no small disk: this user may not mount one ({done.stderr.strip()})")
    yield mount
    subprocess.run(["umount", mount], check=True)


def test_a_full_disk_stays_readable_and_works_again_with_room(small_disk: Path) -> None:
    """On a real full disk the write fails whole, reads go on, and after a deletion the same write succeeds."""
    bucket = open_bucket((small_disk / "bucket").as_uri())
    bucket.put("a/large", b"x" * 700_000)
    for _ in range(2):
        with pytest.raises(ObjectStoreUnavailable, match="the disk is full; make room"):
            bucket.put("a/more", b"y" * 700_000)
        with pytest.raises(ObjectStoreUnavailable, match="the disk is full; make room"):
            bucket.create("a/more", b"y" * 700_000)
        assert files(small_disk / "bucket") == ["a/large"]
        assert bucket.get("a/large") == b"x" * 700_000
    with pytest.raises(ObjectNotFound):
        bucket.get("a/more")
    bucket.delete(["a/large"])
    bucket.put("a/more", b"y" * 700_000)
    assert bucket.get("a/more") == b"y" * 700_000
