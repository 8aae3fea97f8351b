"""A committed epoch never changes: it takes no writes, and a read at it never shows uncommitted rows."""

import pyarrow as pa
import pytest

from support.store.stores import changes_of, pairs
from tussock.statestore import EpochTooOld, InvalidOption, StateStore


def _stamp(store: StateStore, other: StateStore) -> tuple[int, int]:
    """An epoch of the client, and the one that its commit got because another writer was faster."""
    mine = store.new_epoch()
    store.table("kv").ingest_batch([(b"a", b"mine")], mine)
    theirs = other.new_epoch()
    other.table("kv").ingest_batch([(b"b", b"theirs")], theirs)
    other.commit_epoch(theirs)
    return mine, store.commit_epoch(mine)


def test_the_final_epoch_of_a_commit_takes_no_writes(store: StateStore, other: StateStore) -> None:
    """Neither the client's number nor the final one; nothing of such a write is kept."""
    kv = store.create_table("kv")
    mine, held = _stamp(store, other)
    assert held > mine
    for epoch in (mine, held):
        with pytest.raises(EpochTooOld, match=str(epoch)):
            kv.ingest_batch([(b"a", b"late")], epoch)
        with pytest.raises(EpochTooOld, match=str(epoch)):
            store.commit_epoch(epoch)
    assert kv.get(b"a", epoch=held) == kv.get(b"a") == b"mine"


def test_an_epoch_of_uploads_takes_no_writes(store: StateStore) -> None:
    """The epoch of `commit_uploaded` is committed, too."""
    kv = store.create_table("typed", schema=pa.schema([pa.field("id", pa.int64(), nullable=False)]), primary_key=["id"])
    held = store.commit_uploaded({"typed": kv.upload([pa.record_batch({"id": [1]}, schema=kv.schema)])}, epoch=7)
    with pytest.raises(EpochTooOld, match=str(held)):
        kv.upsert([{"id": 2}], held)


def test_a_writers_small_epochs_are_accepted_as_before(store: StateStore, other: StateStore) -> None:
    """A final epoch from the clock, far above a writer's small numbers, does not lock that writer out."""
    kv = store.create_table("kv")
    other.commit_epoch(1)
    kv.ingest_batch([(b"a", b"1")], 1)
    held = store.commit_epoch(1)
    assert held > 2
    kv.ingest_batch([(b"a", b"2")], 2)
    assert store.commit_epoch(2) > held
    assert kv.get(b"a") == b"2"


def test_a_read_at_a_committed_epoch_shows_no_own_rows(store: StateStore, other: StateStore) -> None:
    """Open rows at or below it belong to a later epoch, so every kind of read gives the state after the commit."""
    kv = store.create_table("kv")
    first = store.new_epoch()
    kv.ingest_batch([(b"a", b"old")], first)
    first = store.commit_epoch(first)
    mine = store.new_epoch()
    kv.ingest_batch([(b"a", b"mine"), (b"b", b"mine")], mine)
    theirs = other.new_epoch()
    other.commit_epoch(theirs)
    store.wait_epoch(theirs)

    def answers() -> object:
        return [
            (
                kv.get(b"a", epoch=epoch),
                kv.multi_get([b"a", b"b"], epoch=epoch).to_pylist(),
                pairs(kv.scan(epoch=epoch)),
                pairs(kv.scan(epoch=epoch, reverse=True)),
            )
            for epoch in (mine, theirs)
        ]

    before = answers()
    assert before == [(b"old", [b"old", None], [(b"a", b"old")], [(b"a", b"old")])] * 2
    assert kv.get(b"a") == b"mine"
    held = store.commit_epoch(mine)
    assert answers() == before
    assert kv.get(b"a", epoch=held) == b"mine"


def test_changes_up_to_an_epoch_that_is_not_committed_are_refused(store: StateStore) -> None:
    """A consumer that kept such an end as its cursor would miss commits up to it."""
    kv = store.create_table("kv")
    late = store.new_epoch()
    for read in (kv.changes, kv.change_feed):
        with pytest.raises(InvalidOption, match=rf"changes up to epoch {late}.*wait_epoch"):
            read(0, late)
    kv.ingest_batch([(b"a", b"1")], late)
    store.commit_epoch(late)
    assert len(changes_of(kv, 0, late)) == 1
    assert len(changes_of(kv)) == 1
