"""What is left of a call that was interrupted: nothing that the program cannot do anew, or get rid of."""

import gc
import threading
from collections.abc import Iterator
from functools import partial

import pytest

from support import inside
from support.interrupts.points import interrupted_at, points_of, some_points
from support.waiting import eventually
from tussock.statestore import EpochTooOld, StateStore, connect

CACHE_BYTES = 100_000


@pytest.fixture
def store() -> Iterator[StateStore]:
    with connect("memory://", cache_bytes=CACHE_BYTES) as opened:
        opened.create_table("kv")
        write(opened, b"k", b"old")
        yield opened


def write(store: StateStore, key: bytes, value: bytes) -> None:
    with store.transaction() as tx:
        tx.table("kv").ingest_batch([(key, value)])


def in_another_thread(store: StateStore, value: bytes) -> None:
    thread = threading.Thread(target=write, args=(store, b"k", value))
    thread.start()
    thread.join(60)
    assert not thread.is_alive()


def test_a_commit_that_was_interrupted_shadows_nothing(store: StateStore) -> None:
    """Story: its rows stayed in the buffer, and this client read them for ever, over newer ones of others."""

    def commit(value: bytes) -> None:
        epochs.append(store.new_epoch())
        store.table("kv").ingest_batch([(b"k", value)], epochs[-1])
        store.commit_epoch(epochs[-1])

    epochs: list[int] = []
    count = points_of(partial(commit, b"first"))
    for point in some_points(count, "commits", 60):
        interrupted_at(point, partial(commit, b"mine"))
        for epoch in epochs:
            store.abort_epoch(epoch)
        in_another_thread(store, b"newer %d" % point)
        assert store.table("kv").get(b"k") == b"newer %d" % point, f"point {point} of {count}"


def test_an_epoch_whose_end_was_interrupted_can_be_aborted(store: StateStore) -> None:
    """Story: a second `abort_epoch` had nothing to do, but its rows could still be read."""

    def begin() -> int:
        epoch = store.new_epoch()
        store.table("kv").ingest_batch([(b"k", b"aborted")], epoch)
        return epoch

    count = points_of(partial(store.abort_epoch, begin()))
    for point in range(1, count + 1):
        epoch = begin()
        interrupted_at(point, partial(store.abort_epoch, epoch))
        store.abort_epoch(epoch)
        assert store.table("kv").get(b"k") == b"old", f"point {point} of {count}"


def test_a_repeated_commit_of_one_that_was_interrupted_tells(store: StateStore) -> None:
    """With a writer and a batch it is once in the store, whether or not it went through at first."""
    at = 0

    def commit(batch: int, epoch: int) -> None:
        store.commit_epoch(epoch, writer="w", batch_id=batch)

    def begin(batch: int) -> int:
        epoch = store.new_epoch()
        store.table("kv").ingest_batch([(b"k", b"%d" % batch)], epoch)
        return epoch

    count = points_of(partial(commit, 0, begin(0)))
    for at, point in enumerate(some_points(count, "repeated", 40), 1):
        epoch = begin(at)
        interrupted_at(point, partial(commit, at, epoch))
        try:
            commit(at, epoch)
        except EpochTooOld:
            assert store.committed_batch("w", at) is not None, f"point {point} of {count}"
        assert store.committed_batch("w", at) is not None
        assert store.table("kv").get(b"k") == b"%d" % at
    assert at


def test_no_pin_is_left_that_nobody_can_release(store: StateStore) -> None:
    """Story: an interrupt between the pin and its snapshot left one that was renewed while the store was open."""

    def pin() -> None:
        with store.pin_snapshot():
            pass

    count = points_of(pin)
    for point in some_points(count, "pins", 60):
        interrupted_at(point, pin)
    gc.collect()

    def no_pin_is_left() -> bool:
        inside.renew_pins(inside.backend(store))  # Those that were dropped go then.
        return not store.pins()

    eventually(no_pin_is_left)


def test_a_cache_is_never_left_wrong(store: StateStore) -> None:
    """Story: an interrupt between two steps of an eviction left bytes in its count, until reads met an empty queue."""
    for number in range(200):
        write(store, b"%04d" % number, bytes([number]) * 3000)
    store.compact("kv")
    table = store.table("kv")

    def read() -> None:
        for number in range(0, 200, 7):
            assert table.get(b"%04d" % number) == bytes([number]) * 3000

    within = ("tussock.statestore.sst.cache",)
    count = points_of(read, within)
    for point in some_points(count, "cache", 150):
        interrupted_at(point, read, within)
    for _ in range(3):
        read()


def test_interrupts_leave_no_threads(store: StateStore) -> None:
    """Story: each that came just after a thread was taken for a call left one behind."""
    write(store, b"k", b"old")
    before = threading.active_count()
    count = points_of(partial(write, store, b"k", b"old"))
    for point in some_points(count, "threads", 100):
        interrupted_at(point, partial(write, store, b"k", b"old"))
    assert threading.active_count() <= before + 4


def test_a_store_whose_opening_was_interrupted_is_closed() -> None:
    """Nobody has it, so nobody could close it."""

    def open_and_close() -> None:
        connect("memory://").close()

    # Stores that other tests of this process have left have such threads, too.
    before = set(threading.enumerate())
    count = points_of(open_and_close)
    for point in some_points(count, "opening", 60):
        interrupted_at(point, open_and_close)
    own = ("tussock-compaction", "tussock-leases")
    eventually(lambda: not [one for one in set(threading.enumerate()) - before if one.name in own])
