"""The bucket with which tests fail, stall and crash does exactly what its script says."""

import pytest

from support.buckets.faulty_bucket import Crash, Fate, FaultyBucket, at_calls, where
from tussock.statestore.buckets import open_bucket
from tussock.statestore.errors import ObjectStoreUnavailable


def test_a_bucket_without_a_script_passes_everything_on() -> None:
    """All operations reach the real bucket, and are recorded in order."""
    bucket = FaultyBucket(open_bucket("memory://"))
    bucket.put("a/1", [b"x", b"y"])
    assert bucket.create("a/2", b"z")
    assert not bucket.create("a/2", b"q")
    assert bucket.get("a/1") == b"xy"
    assert bytes(bucket.get_range("a/1", 1, 5)) == b"y"
    assert [info.path for info in bucket.list("a/", after="a/1")] == ["a/2"]
    bucket.delete(["a/1", "a/2"])
    assert not bucket.leftovers(1)
    assert [call.operation for call in bucket.calls] == [
        *("put", "create", "create", "get", "get_range", "list", "delete", "leftovers")
    ]
    assert [call.number for call in bucket.calls] == list(range(1, 9))


def test_a_lost_request_does_nothing_and_a_lost_answer_does_all() -> None:
    """Both look alike to the caller; only the content of the bucket differs."""
    bucket = FaultyBucket(open_bucket("memory://"), at_calls({1: Fate.LOSE_REQUEST, 2: Fate.LOSE_ANSWER}))
    for path in ("first", "second"):
        with pytest.raises(ObjectStoreUnavailable, match=f"create of {path}"):
            bucket.create(path, b"x")
    assert [info.path for info in bucket.inner.list("")] == ["second"]


@pytest.mark.parametrize(("fate", "done"), [(Fate.CRASH, False), (Fate.CRASH_AFTER, True)])
def test_after_a_crash_every_call_crashes(fate: Fate, done: bool) -> None:
    """A dead process does nothing more, whatever the script says about later calls."""
    bucket = FaultyBucket(open_bucket("memory://"), where("put", "b", fate))
    bucket.put("a", b"x")
    with pytest.raises(Crash):
        bucket.put("b", b"x")
    with pytest.raises(Crash):
        bucket.put("c", b"x")
    with pytest.raises(Crash):
        bucket.get("a")
    assert [info.path for info in bucket.inner.list("")] == ["a", "b"][: 1 + done]


def test_a_stalled_call_sees_what_happened_meanwhile() -> None:
    """Another writer takes the name while the first one's create is in flight."""
    bucket = FaultyBucket(open_bucket("memory://"))
    bucket.stall(lambda call: call.operation == "create", lambda: bucket.inner.put("log/1", b"theirs"))
    assert not bucket.create("log/1", b"ours")
    assert bucket.create("log/2", b"ours")
    assert bucket.get("log/1") == b"theirs"


def test_a_script_by_place_counts_its_times() -> None:
    """Only the first `times` calls on that prefix fail."""
    bucket = FaultyBucket(open_bucket("memory://"), where("put", "x/", Fate.LOSE_REQUEST, times=2))
    bucket.put("y/1", b"")
    for _ in range(2):
        with pytest.raises(ObjectStoreUnavailable):
            bucket.put("x/1", b"")
    bucket.put("x/1", b"")
