"""A store that was closed, and options that no store can be opened with."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

from tussock.statestore import InvalidOption, StateStore, StoreClosed, connect

CALLS: dict[str, Callable[[StateStore, Any], object]] = {
    "get": lambda _, kv: kv.get(b"k"),
    "multi_get": lambda _, kv: kv.multi_get([b"k"]),
    "scan": lambda _, kv: list(kv.scan()),
    "changes": lambda _, kv: kv.changes(0),
    "ingest_batch": lambda _, kv: kv.ingest_batch([(b"k", b"2")], 1 << 62),
    "new_epoch": lambda store, _: store.new_epoch(),
    "version": lambda store, _: store.version(),
    "pin_snapshot": lambda store, _: store.pin_snapshot(),
    "vacuum": lambda store, _: store.vacuum(),
}


@pytest.mark.parametrize("call", CALLS)
def test_every_call_on_a_closed_store_says_so(call: str) -> None:
    """Also what could be answered from the cache: a `get` once was, while a scan ended in an error of the library."""
    store = connect("memory://")
    kv = store.create_table("kv")
    epoch = store.new_epoch()
    kv.ingest_batch([(b"k", b"1")], epoch)
    store.commit_epoch(epoch)
    assert kv.get(b"k") == b"1"
    assert [batch.num_rows for batch in kv.scan()] == [1]
    store.close()
    with pytest.raises(StoreClosed):
        CALLS[call](store, kv)


@pytest.mark.parametrize("option", ["retention", "gc_grace", "deadline"])
@pytest.mark.parametrize("value", [-1, float("nan"), float("inf"), "1"])
def test_seconds_have_to_be_a_number_that_is_one(option: str, value: object) -> None:
    """Infinity and NaN once ended in an error of Python's that did not name the option."""
    with pytest.raises(InvalidOption, match=option):
        connect("memory://", **{option: value})  # type: ignore[arg-type]


def test_a_close_in_the_middle_of_a_commit_says_so() -> None:
    """The committing thread gets `StoreClosed`, not what the pool of uploads raises."""
    store = connect("memory://", compaction=False)
    kv = store.create_table("kv")
    kv.ingest_batch([(b"k", b"1")], 1)
    pool = store._core.uploader._pool
    begun, closed = threading.Event(), threading.Event()

    def busy() -> None:
        begun.set()
        closed.wait(30)

    for _ in range(64):
        pool.submit(busy)
    begun.wait(30)
    found: list[BaseException] = []

    def commit() -> None:
        try:
            store.commit_epoch(1)
        except BaseException as error:
            found.append(error)

    committing = threading.Thread(target=commit)
    committing.start()
    ending = threading.Thread(target=store.close)
    ending.start()
    committing.join(30)
    closed.set()
    ending.join(30)
    assert [type(error) for error in found] == [StoreClosed]
