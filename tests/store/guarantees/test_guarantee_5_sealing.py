"""Guarantee 5: an epoch is checkpointed only once all its rows are in.

An embedded store has one participant, the client, and its barrier is the commit: it seals the epoch first. (Barriers
over several participants belong to a platform's meta service.)
"""

import threading

import pytest

from support.buckets.faulty_bucket import FaultyBucket
from support.store.stores import OBJECTS, TickingSystem, open_on, pairs
from support.store.versions import ModelBucket
from tussock.statestore import EpochOutOfOrder, EpochTooOld, StateStore


def test_rows_that_come_while_an_epoch_is_being_committed_are_refused() -> None:
    """The epoch is sealed before its first upload: rows that arrive during it are neither lost silently nor half in."""
    system = TickingSystem()
    bucket = FaultyBucket(ModelBucket(system))
    store = open_on(bucket, system, limits=OBJECTS)
    kv = store.create_table("kv")
    kv.ingest_batch([(b"a", b"1")], 1)
    refused = []

    def write() -> None:
        with pytest.raises(EpochTooOld, match="epoch 1") as error:
            kv.ingest_batch([(b"late", b"1")], 1)
        refused.append(error)

    for operation in ("put", "create"):
        bucket.stall(lambda call, operation=operation: call.operation == operation, write)  # type: ignore[misc]
    store.commit_epoch(1)
    assert len(refused) == 2
    assert pairs(kv.scan()) == [(b"a", b"1")]


def test_rows_of_the_next_epoch_may_come_during_a_commit(store: StateStore) -> None:
    """Sealing one epoch leaves the following one open; its rows are not in the commit."""
    kv = store.create_table("kv")
    first, second = store.new_epoch(), store.new_epoch()
    kv.ingest_batch([(b"a", b"1")], first)
    kv.ingest_batch([(b"a", b"2"), (b"b", b"2")], second)
    committed = store.commit_epoch(first)
    assert pairs(kv.scan(epoch=committed)) == [(b"a", b"1")]
    with store.pin_snapshot() as snapshot:
        assert pairs(snapshot.table("kv").scan()) == [(b"a", b"1")]
    assert store.commit_epoch(second) == second
    assert pairs(kv.scan()) == [(b"a", b"2"), (b"b", b"2")]


def test_an_epoch_is_not_committed_before_the_one_it_follows(store: StateStore) -> None:
    """If both have rows in one table the later one waits; no snapshot shows it."""
    kv = store.create_table("kv")
    kv.ingest_batch([(b"a", b"1")], 1)
    kv.ingest_batch([(b"b", b"2")], 2)
    with pytest.raises(EpochOutOfOrder):
        store.commit_epoch(2)
    assert store.committed_epoch == 0
    assert (store.commit_epoch(1), store.commit_epoch(2)) == (1, 2)


def test_epochs_only_grow_for_any_clock() -> None:
    """A clock that stops, or jumps an hour back or ahead: each epoch is greater than every one before."""
    system = TickingSystem()
    bucket = ModelBucket(system)
    store = open_on(bucket, system)
    store.create_table("kv")
    seen = [store.new_epoch(), store.new_epoch()]
    system.wall_ms += 3_600_000
    seen += [store.new_epoch(), store.new_epoch()]
    store.table("kv").ingest_batch([(b"a", b"1")], seen[-1])
    seen[-1] = store.commit_epoch(seen[-1])
    system.wall_ms -= 7_200_000
    seen += [store.new_epoch(), store.new_epoch(), open_on(bucket, system).new_epoch() + 2]
    assert seen == sorted(set(seen))


def test_threads_get_different_epochs(store: StateStore) -> None:
    """No epoch is issued twice, however many threads ask at once."""
    taken: list[list[int]] = [[] for _ in range(8)]
    threads = [
        threading.Thread(target=lambda mine=mine: mine.extend(store.new_epoch() for _ in range(2000))) for mine in taken
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(mine == sorted(mine) for mine in taken)
    assert len({epoch for mine in taken for epoch in mine}) == 16_000
