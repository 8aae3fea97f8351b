"""Every kind of bucket behaves the same: memory, a folder, and S3 as MinIO serves it."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
import pytest

from support.buckets import child as bucket_child
from tussock.statestore.buckets import open_bucket
from tussock.statestore.contract.object_store import ObjectStore
from tussock.statestore.errors import CorruptObject, InvalidOption, ObjectNotFound

CHILD = [sys.executable, bucket_child.__file__]


@pytest.fixture
def bucket(bucket_url: str) -> Iterator[ObjectStore]:
    """An empty bucket of each kind."""
    opened = open_bucket(bucket_url, deadline_seconds=120)
    yield opened
    opened.close()


@contextmanager
def child(*arguments: str) -> Iterator["subprocess.Popen[str]"]:
    """Run another process that does what `support/buckets/child.py` says, and kill it at the end."""
    process = subprocess.Popen([*CHILD, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def paths(bucket: ObjectStore, prefix: str, after: str = "") -> list[str]:
    """The paths of a listing."""
    return [info.path for info in bucket.list(prefix, after)]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"one",
        bytes(range(256)),
        [],
        [b""],
        [b"", b"a", memoryview(b"bcd")[1:], b""],
        [b"%d," % number for number in range(3000)],
        [memoryview(pa.array([1, 2, 3]).buffers()[1])],
    ],
    ids=["empty", "bytes", "all-bytes", "no-parts", "empty-part", "parts", "3000-parts", "arrow-buffer"],
)
def test_an_object_is_read_as_it_was_put(bucket: ObjectStore, data: bytes | list[bytes | memoryview]) -> None:
    """An object is read whole, in ranges, and listed with its size; parts are joined."""
    whole = data if isinstance(data, bytes) else b"".join(data)
    bucket.put("a/b.data", data)
    assert bucket.get("a/b.data") == whole
    assert bytes(bucket.get_range("a/b.data", 0, len(whole) + 1)) == whole
    assert [(info.path, info.size) for info in bucket.list("a/")] == [("a/b.data", len(whole))]


@pytest.mark.parametrize("count", [0, 1, 3000])
def test_parts_may_come_one_by_one(bucket: ObjectStore, count: int) -> None:
    """From something that can be gone through once, such as what is still being made."""
    bucket.put("a", iter([b"%d," % number * 1000 for number in range(count)]))
    assert bucket.get("a") == b"".join(b"%d," % number * 1000 for number in range(count))


@pytest.mark.parametrize("count", [0, 1, 3000])
def test_parts_that_end_with_an_error_are_no_object(bucket: ObjectStore, count: int) -> None:
    """The error is the caller's; what was there stays, and nothing is left over."""

    def parts() -> Iterator[bytes]:
        yield from (b"x" * 1000 for _ in range(count))
        raise LookupError("made no more")

    bucket.put("there", b"before")
    for path in ("there", "new"):
        with pytest.raises(LookupError, match="made no more"):
            bucket.put(path, parts())
    assert paths(bucket, "") == ["there"]
    assert bucket.get("there") == b"before"
    assert not bucket.leftovers(1 << 50)


def test_put_replaces_an_object(bucket: ObjectStore) -> None:
    """Nothing of a longer earlier object stays."""
    bucket.put("a", b"a long one")
    bucket.put("a", b"short")
    assert bucket.get("a") == b"short"


def test_a_large_object_comes_back_whole(bucket: ObjectStore) -> None:
    """20 MiB in many parts, more than one request holds; also ranges across the borders of parts."""
    parts = [number.to_bytes(4, "big") * (1 << 14) for number in range(320)]
    whole = b"".join(parts)
    bucket.put("large", [memoryview(part) for part in parts])
    assert bucket.get("large") == whole
    for start in (0, (8 << 20) - 7, (16 << 20) - 1, len(whole) - 5):
        assert bytes(bucket.get_range("large", start, 1000)) == whole[start : start + 1000]


@pytest.mark.parametrize("size", [1000, 9 << 20])
@pytest.mark.parametrize("parts", [1, 2])
def test_a_buffer_may_be_used_again_after_put(bucket: ObjectStore, size: int, parts: int) -> None:
    """Later changes of the caller's buffer are not in the object."""
    buffer = bytearray(size)
    step = size // parts
    bucket.put("a", [memoryview(buffer)[start : start + step] for start in range(0, size, step)])
    buffer[:] = b"x" * size
    assert bucket.get("a") == bytes(size)


def test_an_object_that_is_larger_than_allowed_is_not_read(bucket: ObjectStore) -> None:
    """Up to the limit it is read whole; one byte more is `CorruptObject`, and says both figures."""
    bucket.put("a/b", b"12345")
    assert bucket.get("a/b", 5) == b"12345"
    with pytest.raises(CorruptObject, match="a/b: expected at most 4 bytes, found 5"):
        bucket.get("a/b", 4)
    with pytest.raises(ObjectNotFound):
        bucket.get("a/c", 4)


@pytest.mark.parametrize(
    ("start", "length", "expected"),
    [(0, 3, b"012"), (8, 2, b"89"), (8, 3, b"89"), (9, 1 << 40, b"9"), (10, 1, b""), (99, 5, b""), (4, 0, b"")],
)
def test_a_range_past_the_end_is_cut(bucket: ObjectStore, start: int, length: int, expected: bytes) -> None:
    """The range gives fewer bytes, or none, and no error."""
    bucket.put("ten", b"0123456789")
    found = bucket.get_range("ten", start, length)
    assert isinstance(found, memoryview)
    assert bytes(found) == expected


def test_a_range_of_an_empty_object_is_empty(bucket: ObjectStore) -> None:
    """S3 refuses any range of an empty object."""
    bucket.put("empty", b"")
    assert bytes(bucket.get_range("empty", 0, 1)) == b""


@pytest.mark.parametrize(("start", "length"), [(-1, 1), (0, -1)])
def test_a_negative_range_is_refused(bucket: ObjectStore, start: int, length: int) -> None:
    """Counting from the end, as Python does, is not supported."""
    with pytest.raises(InvalidOption, match="negative"):
        bucket.get_range("a", start, length)


def test_reading_a_missing_object_names_it(bucket: ObjectStore) -> None:
    """A missing object, a missing folder, and a folder in an object's place."""
    bucket.put("folder/object", b"")
    for path in ("absent", "absent/absent", "folder", "folder/object/below"):
        with pytest.raises(ObjectNotFound) as error:
            bucket.get(path)
        assert path in str(error.value)
        assert bucket.url in str(error.value)
        for length in (0, 1):
            with pytest.raises(ObjectNotFound, match=path):
                bucket.get_range(path, 0, length)


def test_create_leaves_an_existing_object_alone(bucket: ObjectStore) -> None:
    """The first creation wins, also over objects of `put`, until the object is deleted."""
    assert bucket.create("log/1", b"first")
    assert not bucket.create("log/1", b"second")
    assert bucket.get("log/1") == b"first"
    bucket.put("log/2", b"put")
    assert not bucket.create("log/2", b"created")
    assert bucket.get("log/2") == b"put"
    bucket.delete(["log/2"])
    assert bucket.create("log/2", b"")
    assert not bucket.create("log/2", b"x")


def test_of_threads_that_create_the_same_object_one_wins(bucket: ObjectStore) -> None:
    """Eight threads, twelve objects: each has one winner, whose bytes are there."""
    wins: list[tuple[int, int]] = []
    start = threading.Barrier(8)

    def work(thread: int) -> None:
        start.wait()
        wins.extend((number, thread) for number in range(12) if bucket.create(f"log/{number}", b"%d" % thread))

    threads = [threading.Thread(target=work, args=(thread,)) for thread in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(number for number, _ in wins) == list(range(12))
    assert all(bucket.get(f"log/{number}") == b"%d" % thread for number, thread in wins)
    assert len(paths(bucket, "log/")) == 12


def test_of_processes_that_create_the_same_object_one_wins(bucket_url: str) -> None:
    """Two processes, forty objects: each object is won by one of them and holds its bytes."""
    if bucket_url.startswith("memory:"):
        pytest.skip("a memory store belongs to one process")
    with child("race", bucket_url, "a", "40") as a, child("race", bucket_url, "b", "40") as b:
        for process in (a, b):
            assert process.stdout.readline() == "ready\n"  # type: ignore[union-attr]
        won = {}
        for process in (a, b):
            process.stdin.write("go\n")  # type: ignore[union-attr]
            process.stdin.flush()  # type: ignore[union-attr]
        for name, process in (("a", a), ("b", b)):
            won[name] = [int(number) for number in process.stdout.readline().split()]  # type: ignore[union-attr]
    assert sorted(won["a"] + won["b"]) == list(range(40))
    bucket = open_bucket(bucket_url)
    assert all(bucket.get(f"race/{number}") == name.encode() for name in won for number in won[name])


def test_a_writer_killed_at_any_moment_leaves_only_whole_objects(bucket_url: str) -> None:
    """`kill -9` in the middle of puts and creates, five times: every listed object is whole."""
    if bucket_url.startswith("memory:"):
        pytest.skip("a memory store dies with its process")
    bucket = open_bucket(bucket_url)
    for last in ("1", "2", "2", "3", "4"):
        with child("write", bucket_url) as process:
            while process.stdout.readline().strip() != last:  # type: ignore[union-attr]
                assert process.poll() is None
        found = list(bucket.list("write/"))
        assert found
        for info in found:
            data = bucket.get(info.path)
            assert len(data) == info.size
            assert bucket_child.is_whole(data), info.path
    left = bucket.leftovers(1 << 60)
    bucket.delete([info.path for info in left])
    assert not bucket.leftovers(1 << 60)
    assert paths(bucket, "write/")


PATHS = ["a", "log-1", "log.old", "log/0001", "log/0002", "log/10", "log/sub/x", "log/sub-1", "log=", "sst/0a.data"]


@pytest.mark.parametrize("prefix", ["", "log/", "log", "log/sub", "log/sub/", "log/00", "sst/", "absent/", "zz", "a/"])
@pytest.mark.parametrize("after", ["", "log/0001", "log/sub/x", "log/1", "a", "zzz"])
def test_a_listing_is_sorted_by_path_and_begins_after(bucket: ObjectStore, prefix: str, after: str) -> None:
    """By the bytes of the whole path, whatever the folders; `after` is exclusive and need not exist."""
    for path in reversed(PATHS):
        bucket.put(path, path.encode())
    expected = sorted(path for path in PATHS if path.startswith(prefix) and path > after)
    assert paths(bucket, prefix, after) == expected
    assert all(info.size == len(info.path) for info in bucket.list(prefix, after))


def test_a_listing_of_more_than_a_page_is_whole(bucket: ObjectStore) -> None:
    """1,203 objects: remote stores list 1,000 at a time."""
    names = [f"many/{number:04}" for number in range(1203)]

    def work(first: int) -> None:
        for name in names[first::4]:
            bucket.put(name, b"")

    threads = [threading.Thread(target=work, args=(first,)) for first in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert paths(bucket, "many/") == names
    assert paths(bucket, "many/", after="many/1001") == names[1002:]
    bucket.delete(names)
    assert paths(bucket, "many/") == []


def test_a_listing_has_the_time_of_each_object(bucket: ObjectStore) -> None:
    """Unix milliseconds by the store's clock, which in these tests is this machine's."""
    before = open_bucket("memory://")
    before.put("clock", b"")
    bucket.put("a", b"")
    [now] = before.list("")
    [info] = bucket.list("")
    assert abs(info.modified_ms - now.modified_ms) < 60_000


def test_deleting_a_missing_object_is_no_error(bucket: ObjectStore) -> None:
    """A deletion can therefore be repeated; the other objects of the same call are deleted."""
    bucket.put("a/1", b"")
    bucket.put("a/2", b"")
    bucket.delete(["a/0", "a/1", "b/c/d"])
    assert paths(bucket, "") == ["a/2"]
    bucket.delete([])
    bucket.delete(["a/1"])


@pytest.mark.parametrize(
    "path",
    ["a", "a.b-c_d=e", "A/B/c/0", "-", "_/=", "x" * 200, "/".join(["y" * 90] * 9), "a.tmp-1", "log/0.delta"],
)
def test_names_that_are_allowed_work(bucket: ObjectStore, path: str) -> None:
    """Letters, digits and four signs, long names and deep folders, everywhere."""
    assert bucket.create(path, path.encode())
    assert bucket.get(path) == path.encode()
    assert paths(bucket, "") == [path]
    bucket.delete([path])
    assert paths(bucket, "") == []


@pytest.mark.parametrize(
    "path",
    [
        *("", "/", "/a", "a/", "a//b", "..", "../a", "a/../b", "./a", ".tmp-1", ".hidden", "a b", "a\\b", "ä", "a\n"),
        *("a%2F..", "a?b", "a#b", "a\0b", "x" * 201, "/".join(["y" * 100] * 10)),
    ],
)
def test_names_that_are_not_allowed_are_refused(bucket: ObjectStore, path: str) -> None:
    """The message shows the name and what is expected; nothing is stored or deleted."""
    bucket.put("kept", b"x")
    for call in (
        lambda: bucket.put(path, b""),
        lambda: bucket.create(path, b""),
        lambda: bucket.get(path),
        lambda: bucket.get_range(path, 0, 1),
        lambda: bucket.delete(["kept", path] if not path.startswith(".tmp-") else ["kept", "a b"]),
    ):
        with pytest.raises(InvalidOption, match="expected parts of"):
            call()
    assert paths(bucket, "") == ["kept"]


@pytest.mark.parametrize("prefix", ["/", "../", "a//", "a b", ".", "a/.tmp-"])
def test_prefixes_that_no_path_can_have_are_refused(bucket: ObjectStore, prefix: str) -> None:
    """The call itself fails, not the first step of its iterator."""
    with pytest.raises(InvalidOption, match="beginning of an object path"):
        bucket.list(prefix)


def test_threads_share_a_bucket(bucket: ObjectStore) -> None:
    """Eight threads write, read, list and delete their own objects at once."""
    wrong: list[object] = []

    def work(thread: int) -> None:
        for number in range(10):
            path, data = f"t{thread}/{number}", b"%d-%d" % (thread, number)
            bucket.put(path, data)
            if bucket.get(path) != data or paths(bucket, f"t{thread}/") != [path]:
                wrong.append(path)
            bucket.delete([path])

    threads = [threading.Thread(target=work, args=(thread,)) for thread in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert paths(bucket, "") == []


def test_a_bucket_opened_twice_is_the_same_bucket(bucket_url: str) -> None:
    """Its URL identifies it."""
    first, second = open_bucket(bucket_url), open_bucket(bucket_url)
    first.put("a", b"x")
    first.close()
    assert second.get("a") == b"x"
    assert second.url == bucket_url


def test_a_memory_store_without_a_name_is_private() -> None:
    """Two names are two stores."""
    one, other = open_bucket("memory://"), open_bucket("memory://")
    one.put("a", b"")
    assert paths(other, "") == []
    assert paths(open_bucket("memory://one-that-no-other-test-names"), "") == []


@pytest.mark.minio
def test_prefixes_in_one_remote_bucket_do_not_mix(minio_urls: tuple[str, str]) -> None:
    """A store in `bucket/1` neither sees nor touches one in `bucket/10`."""
    inner, outer = (open_bucket(url) for url in minio_urls)
    inner.put("a", b"inner")
    outer.put("a", b"outer")
    assert (inner.get("a"), outer.get("a")) == (b"inner", b"outer")
    assert paths(inner, "") == paths(outer, "") == ["a"]


@pytest.fixture
def minio_urls(request: pytest.FixtureRequest) -> tuple[str, str]:
    """Two URLs in one bucket; the prefix of one is the beginning of the other's."""
    url = request.getfixturevalue("minio").fresh_url()
    return url + "-x", url + "-x0"


def test_the_child_recognises_a_torn_object() -> None:
    """The check that the crash tests rest on notices a missing end and a mixed middle."""
    whole = bucket_child.whole_object(7)
    assert bucket_child.is_whole(whole)
    assert not bucket_child.is_whole(whole[:-1])
    assert not bucket_child.is_whole(whole[:-4] + b"\0\0\0\0")
