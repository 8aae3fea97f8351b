"""Requests and bytes are counted for each purpose."""

import threading

import pytest

from support.buckets.faulty_bucket import Fate, FaultyBucket, at_calls
from tussock.statestore.buckets import RequestCounts, open_bucket
from tussock.statestore.errors import ObjectNotFound, ObjectStoreUnavailable


def test_an_idle_bucket_makes_no_requests() -> None:
    """Opening a bucket, taking views and reading the counts make no request."""
    inner = FaultyBucket(open_bucket("memory://"))
    counts = RequestCounts(inner)
    views = [counts.for_purpose(purpose) for purpose in ("get", "scan", "flush", "compaction", "vacuum", "log")]
    assert all(view.url == inner.url for view in views)
    assert counts.counts() == {}
    assert inner.calls == []


def test_each_purpose_has_its_own_counts() -> None:
    """Operations, requests and bytes of two purposes do not mix."""
    counts = RequestCounts(open_bucket("memory://"))
    flush, scan = counts.for_purpose("flush"), counts.for_purpose("scan")
    flush.put("a", [b"xx", memoryview(b"yyy")])
    flush.put("b", b"zz")
    flush.create("c", b"1")
    scan.get("a")
    scan.get_range("a", 3, 100)
    assert [info.path for info in scan.list("")] == ["a", "b", "c"]
    scan.delete(["a", "b"])
    scan.delete([])
    scan.leftovers(0)
    assert counts.counts() == {
        "flush": {"put": (2, 7), "create": (1, 1)},
        "scan": {"get": (1, 5), "get_range": (1, 2), "list": (2, 0), "delete": (1, 0)},
    }


def test_a_failed_call_counts_as_a_request_without_bytes() -> None:
    """The request was made, and perhaps paid for."""
    counts = RequestCounts(FaultyBucket(open_bucket("memory://"), at_calls({1: Fate.LOSE_ANSWER})))
    log = counts.for_purpose("log")
    with pytest.raises(ObjectStoreUnavailable):
        log.create("a", b"123")
    with pytest.raises(ObjectNotFound):
        log.get("b")
    assert counts.counts() == {"log": {"create": (1, 0), "get": (1, 0)}}


def test_a_long_listing_counts_its_pages() -> None:
    """Remote stores return 1,000 objects a request."""
    inner = open_bucket("memory://")
    for number in range(1001):
        inner.put(f"x/{number:04}", b"")
    counts = RequestCounts(inner)
    assert len(list(counts.for_purpose("vacuum").list("x/"))) == 1001
    assert counts.counts() == {"vacuum": {"list": (2, 0)}}


def test_threads_lose_no_counts() -> None:
    """Callers count from several threads at once."""
    counts = RequestCounts(open_bucket("memory://"))
    view = counts.for_purpose("get")

    def work() -> None:
        for _ in range(200):
            view.put("a", b"x")

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counts.counts() == {"get": {"put": (800, 800)}}
