"""Guarantee 4: a committed epoch is durable, whole and final; epochs commit in order, and a commit happens once."""

import pytest

from support import inside
from support.buckets.faulty_bucket import Crash, Fate, FaultyBucket, at_calls, where
from support.store.stores import OBJECTS, TickingSystem, changes_of, open_on, pairs
from support.store.versions import ModelBucket
from tussock.statestore import (
    Conflict,
    EpochOutOfOrder,
    EpochTooOld,
    InvalidOption,
    ObjectStoreUnavailable,
    StateStore,
    TableNotFound,
    connect,
)


def test_a_commit_survives_the_process(bucket_url: str) -> None:
    """Committed rows are there after the client is gone; uncommitted ones are not."""
    with connect(bucket_url) as store:
        kv = store.create_table("kv")
        kv.ingest_batch([(b"a", b"1")], 1)
        store.commit_epoch(1)
        kv.ingest_batch([(b"a", b"2"), (b"b", b"2")], 2)
        if bucket_url.startswith("memory"):
            assert pairs(kv.scan()) == [(b"a", b"2"), (b"b", b"2")]
    with connect(bucket_url) as store:
        assert pairs(store.table("kv").scan()) == [(b"a", b"1")]
        assert store.committed_epoch == 1


def test_an_epoch_over_several_tables_commits_as_one(store: StateStore, other: StateStore) -> None:
    """Another client sees the rows of all tables with the same refresh, at the same epoch."""
    names = ["x", "y", "z"]
    epoch = store.new_epoch()
    for name in names:
        store.create_table(name).ingest_batch([(b"k", name.encode())], epoch)
    committed = store.commit_epoch(epoch)
    other.wait_epoch(committed)
    assert [other.table(name).get(b"k", epoch=committed) for name in names] == [b"x", b"y", b"z"]
    assert [state.last_epoch for state in other.version().tables.values()] == [committed] * 3


def test_a_later_commit_of_an_earlier_epoch_becomes_the_newer_one(store: StateStore, other: StateStore) -> None:
    """Commit of e2 while e1 of another writer is open: e1 is stamped anew, and the snapshot at e2 does not change."""
    kv = store.create_table("kv")
    kv.ingest_batch([(b"a", b"first writer"), (b"b", b"first writer")], 1)
    other.table("kv").ingest_batch([(b"a", b"second writer")], 2)
    assert other.commit_epoch(2) == 2
    before = pairs(other.table("kv").scan(epoch=2))
    final = store.commit_epoch(1)
    assert final > 2
    assert pairs(kv.scan(epoch=2)) == before == [(b"a", b"second writer")]
    assert pairs(kv.scan(epoch=final)) == [(b"a", b"first writer"), (b"b", b"first writer")]
    assert pairs(kv.scan(epoch=1)) == []


def test_own_epochs_of_a_table_commit_in_order(store: StateStore) -> None:
    """The newer of two open epochs of one table is refused until the older one is committed or aborted."""
    kv, side = store.create_table("kv"), store.create_table("side")
    kv.ingest_batch([(b"a", b"1")], 1)
    kv.ingest_batch([(b"a", b"2")], 2)
    side.ingest_batch([(b"a", b"3")], 3)
    with pytest.raises(EpochOutOfOrder, match=r"epoch 2 .* epoch 1"):
        store.commit_epoch(2)
    assert store.commit_epoch(3) == 3, "an epoch of other tables is not in the way"
    first = store.commit_epoch(1)
    assert first > 3
    assert store.commit_epoch(2) > first
    assert kv.get(b"a") == b"2"


def test_a_repeated_batch_is_no_second_commit(store: StateStore, other: StateStore) -> None:
    """By the same client or another one: it gets the first one's epoch, and its rows are not stored."""
    kv = store.create_table("kv")
    kv.ingest_batch([(b"a", b"1")], 1)
    assert store.commit_epoch(1, writer="job", batch_id=7) == 1
    for client in (store, other):
        epoch = client.new_epoch()
        client.table("kv").ingest_batch([(b"a", b"again"), (b"b", b"again")], epoch)
        assert client.commit_epoch(epoch, writer="job", batch_id=7) == 1
        assert pairs(client.table("kv").scan()) == [(b"a", b"1")]
    assert store.committed_batch("job", 7) == 1
    assert store.committed_batch("job", 8) is None
    assert store.committed_epoch == 1


def test_a_commit_that_read_an_older_epoch_conflicts(store: StateStore, other: StateStore) -> None:
    """`Conflict` has table, read epoch and newer epoch; nothing of it is visible; a new read and a retry succeed."""
    kv = store.create_table("kv")
    kv.ingest_batch([(b"balance", b"10")], 1)
    store.commit_epoch(1)
    read_epoch = other.committed_epoch
    balance = int(other.table("kv").get(b"balance", epoch=read_epoch))
    kv.ingest_batch([(b"balance", b"20")], 2)
    store.commit_epoch(2)
    other.table("kv").ingest_batch([(b"balance", b"%d" % (balance + 1)), (b"note", b"x")], 3)
    with pytest.raises(Conflict, match=r"'kv' was read at epoch 1, but epoch 2"):
        other.commit_epoch(3, expect={"kv": read_epoch})
    assert pairs(other.table("kv").scan()) == pairs(kv.scan()) == [(b"balance", b"20")]
    with pytest.raises(EpochTooOld):
        other.table("kv").ingest_batch([(b"a", b"1")], 3)
    read_epoch = other.committed_epoch
    balance = int(other.table("kv").get(b"balance", epoch=read_epoch))
    epoch = other.new_epoch()
    other.table("kv").ingest_batch([(b"balance", b"%d" % (balance + 1))], epoch)
    other.commit_epoch(epoch, expect={"kv": read_epoch})
    store.wait_epoch(epoch)
    assert kv.get(b"balance") == b"21"


def test_an_expectation_on_another_table_is_kept_too(store: StateStore, other: StateStore) -> None:
    """A table that was only read counts as well; a commit to a third table does not matter."""
    for name in ("read", "written", "third"):
        store.create_table(name).ingest_batch([(b"k", b"0")], 1)
    store.commit_epoch(1)
    other.table("third").ingest_batch([(b"k", b"1")], 2)
    other.commit_epoch(2)
    store.table("written").ingest_batch([(b"k", b"1")], 3)
    store.commit_epoch(3, expect={"read": 1})
    other.table("read").ingest_batch([(b"k", b"1")], 4)
    other.commit_epoch(4)
    store.table("written").ingest_batch([(b"k", b"2")], 5)
    with pytest.raises(Conflict, match="'read'"):
        store.commit_epoch(5, expect={"read": 1})
    assert store.table("written").get(b"k") == b"1"


def test_a_commit_to_a_table_that_was_dropped_is_refused_whole(store: StateStore, other: StateStore) -> None:
    """Also the rows for the other tables of the epoch: all or none."""
    store.create_table("kv")
    side = store.create_table("side")
    store.table("kv").ingest_batch([(b"a", b"1")], 1)
    side.ingest_batch([(b"a", b"1")], 1)
    other.drop_table("kv")
    with pytest.raises(TableNotFound):
        store.commit_epoch(1)
    assert pairs(side.scan()) == []
    assert store.committed_epoch == 0


@pytest.mark.parametrize(
    ("writer", "batch_id"), [("w", None), (None, 1), ("", 1), ("w", -1), ("w", True), ("w", "1"), (7, 1)]
)
def test_a_writer_without_a_batch_is_refused(store: StateStore, writer: object, batch_id: object) -> None:
    """`InvalidOption` says which of the two was given, and the epoch stays open."""
    kv = store.create_table("kv")
    kv.ingest_batch([(b"a", b"1")], 1)
    with pytest.raises(InvalidOption, match=r"writer|batch_id"):
        store.commit_epoch(1, writer=writer, batch_id=batch_id)  # type: ignore[arg-type]
    kv.ingest_batch([(b"b", b"1")], 1)
    assert store.commit_epoch(1) == 1


@pytest.mark.parametrize("named", [True, False], ids=["with writer and batch", "without"])
@pytest.mark.parametrize("fate", [Fate.LOSE_REQUEST, Fate.LOSE_ANSWER])
def test_a_commit_of_unknown_outcome_is_repeated_and_happens_once(fate: Fate, named: bool) -> None:
    """Whichever of its requests fail: the rows stay buffered, and the same call commits them, once."""
    name = {"writer": "w", "batch_id": 1} if named else {}
    for call in range(1, 20):
        system = TickingSystem()
        bucket = FaultyBucket(ModelBucket(system))
        store = open_on(bucket, system)
        kv = store.create_table("kv")
        kv.ingest_batch([(b"a", b"1"), (b"b", b"1")], 1)
        low = len(bucket.calls) + call
        bucket.script = at_calls({low + later: fate for later in range(3)})
        try:
            store.commit_epoch(1, **name)
            if len(bucket.calls) < low:
                break
        except ObjectStoreUnavailable:
            bucket.script = None
            assert kv.get(b"a") == b"1", "own rows stay readable"
            assert store.commit_epoch(1, **name) == 1
        bucket.script = None
        assert len(changes_of(kv)) == 2
        assert store.version().seq == 2  # type: ignore[attr-defined]
        assert pairs(open_on(bucket, system).table("kv").scan()) == [(b"a", b"1"), (b"b", b"1")]
    else:
        pytest.fail("a commit takes fewer calls than that")


def test_a_crash_at_any_call_of_a_commit_leaves_all_of_it_or_nothing() -> None:
    """A new process repeats it with the same writer and batch, and it is there once."""
    for call in range(1, 20):
        for fate in (Fate.CRASH, Fate.CRASH_AFTER):
            system = TickingSystem()
            inner = ModelBucket(system)
            bucket = FaultyBucket(inner)
            store = open_on(bucket, system)
            for name in ("x", "y"):
                store.create_table(name).ingest_batch([(b"a", b"1"), (b"b", None)], 1)
            bucket.script = at_calls({len(bucket.calls) + call: fate})
            try:
                store.commit_epoch(1, writer="w", batch_id=1)
                if not bucket.dead:
                    return
            except Crash:
                pass
            inside.kill(store)
            again = open_on(inner, system)
            happened = again.committed_batch("w", 1)
            assert [len(changes_of(again.table(name))) for name in ("x", "y")] == ([2, 2] if happened else [0, 0])
            for name in ("x", "y"):
                again.table(name).ingest_batch([(b"a", b"1"), (b"b", None)], 2)
            assert again.commit_epoch(2, writer="w", batch_id=1) == (happened or 2)
            assert [len(changes_of(again.table(name))) for name in ("x", "y")] == [2, 2]
    pytest.fail("a commit takes fewer calls than that")


def test_the_epoch_of_a_failed_commit_takes_no_rows() -> None:
    """The epoch is sealed: no row can join it before the repetition, which commits exactly the first one's rows."""
    system = TickingSystem()
    bucket = FaultyBucket(ModelBucket(system), where("put", "sst/", Fate.LOSE_REQUEST))
    store = open_on(bucket, system, limits=OBJECTS)
    kv = store.create_table("kv")
    kv.ingest_batch([(b"a", b"1")], 1)
    with pytest.raises(ObjectStoreUnavailable):
        store.commit_epoch(1)
    with pytest.raises(EpochTooOld):
        kv.ingest_batch([(b"b", b"1")], 1)
    assert store.commit_epoch(1) == 1
    assert pairs(kv.scan()) == [(b"a", b"1")]


def test_rows_for_a_dropped_table_do_not_stop_writes_to_others(bucket_url: str) -> None:
    """With a full buffer they cannot be spilled; the other tables' rows can, and their epochs commit."""
    with connect(bucket_url, buffer_bytes=100) as store, connect(bucket_url) as other:
        gone, kv = store.create_table("gone"), store.create_table("kv")
        gone.ingest_batch([(b"a", b"1")], 1)
        other.drop_table("gone")
        assert store.tables() == ["kv"]
        kv.ingest_batch([(b"%02d" % at, b"v" * 50) for at in range(10)], 2)
        assert store.commit_epoch(2) == 2
        with pytest.raises(TableNotFound):
            store.commit_epoch(1)
        assert len(pairs(kv.scan())) == 10
