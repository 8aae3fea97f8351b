"""Guarantee 1: a batch has sorted, unique keys and one operation a key, or it is refused whole."""

import pyarrow as pa
import pytest

from support.store.stores import changes_of, pairs
from tussock.statestore import EpochTooOld, InvalidBatch, SchemaMismatch, StateStore, connect

SECRET = b"not a value"


def test_the_seeds_valid_batch_is_accepted(store: StateStore) -> None:
    """[a => put 1, b => put 2] at epoch 1 is a valid write batch."""
    kv = store.create_table("kv")
    kv.ingest_batch([(b"a", b"1"), (b"b", b"2")], 1)
    assert store.commit_epoch(1) == 1
    assert pairs(kv.scan()) == [(b"a", b"1"), (b"b", b"2")]


def test_the_seeds_batch_with_two_operations_on_a_key_is_refused(store: StateStore) -> None:
    """[a => put 1, a => delete, b => put 2] at epoch 1 is an invalid write batch."""
    kv = store.create_table("kv")
    with pytest.raises(InvalidBatch, match=r"position 1: key b'a' repeats"):
        kv.ingest_batch([(b"a", b"1"), (b"a", None), (b"b", b"2")], 1)
    store.commit_epoch(1)
    assert pairs(kv.scan()) == []


def test_the_seeds_unsorted_batch_is_refused(store: StateStore) -> None:
    """[b => put 1, a => put 2] at epoch 1 is an invalid write batch."""
    kv = store.create_table("kv")
    with pytest.raises(InvalidBatch, match=r"position 1: key b'a' comes after b'b'"):
        kv.ingest_batch([(b"b", b"1"), (b"a", b"2")], 1)
    store.commit_epoch(1)
    assert pairs(kv.scan()) == []


BAD_BATCHES = {
    "unsorted far down": [(b"%04d" % at, b"v") for at in range(500)] + [(b"0250x", b"v")],
    "duplicate": [(b"a", b"1"), (b"b", b"2"), (b"b", b"3")],
    "a value that is a text": [(b"a", b"1"), (b"b", "2")],
    "a key that is a text": [(b"a", b"1"), ("b", b"2")],
    "a row of three": [(b"a", b"1"), (b"b", b"2", b"3")],
    "not a batch": 7,
    "unknown operation": pa.table({"key": [b"a", b"b"], "value": [b"1", b"2"], "op": ["put", "merge"]}),
    "a put of null": pa.table({"key": [b"a", b"b"], "value": [b"1", None], "op": ["put", "put"]}),
    "unsorted Arrow": pa.table({"key": [b"b", b"a"], "value": [b"1", b"2"]}),
}


@pytest.mark.parametrize("batch", BAD_BATCHES.values(), ids=BAD_BATCHES)
def test_nothing_of_a_refused_batch_is_seen_then_or_after_a_restart(tmp_path: object, batch: object) -> None:
    """Earlier rows of the same epoch stay; of the refused batch there is no trace, however it was wrong."""
    url = f"file://{tmp_path}"
    with connect(url) as store:
        kv = store.create_table("kv")
        kv.ingest_batch([(b"kept", b"kept")], 1)
        with pytest.raises((InvalidBatch, SchemaMismatch), match="kv"):
            kv.ingest_batch(batch, 1)
        assert pairs(kv.scan()) == [(b"kept", b"kept")]
        store.commit_epoch(1)
    with connect(url) as store:
        kv = store.table("kv")
        assert pairs(kv.scan()) == [(b"kept", b"kept")]
        assert len(changes_of(kv)) == 1


def test_an_epoch_that_was_committed_takes_no_more_rows(store: StateStore) -> None:
    """`EpochTooOld` names both epochs, and the rows are not there."""
    kv = store.create_table("kv")
    epoch = store.new_epoch()
    kv.ingest_batch([(b"a", b"1")], epoch)
    store.commit_epoch(epoch)
    with pytest.raises(EpochTooOld, match=rf"epoch {epoch} .*up to {epoch}"):
        kv.ingest_batch([(b"b", b"2")], epoch)
    assert kv.get(b"b") is None


def test_an_epoch_older_than_a_sealed_one_is_refused_unless_it_was_handed_out(store: StateStore) -> None:
    """A made-up epoch below the newest sealed one is too old; one from `new_epoch` is open until it is sealed."""
    kv = store.create_table("kv")
    handed_out, later = store.new_epoch(), store.new_epoch()
    kv.ingest_batch([(b"a", b"1")], later)
    store.commit_epoch(later)
    with pytest.raises(EpochTooOld, match=str(handed_out - 1)):
        kv.ingest_batch([(b"b", b"2")], handed_out - 1)
    kv.ingest_batch([(b"c", b"3")], handed_out)
    assert store.commit_epoch(handed_out) > later
    assert pairs(kv.scan()) == [(b"a", b"1"), (b"c", b"3")]


@pytest.mark.parametrize("buffer_bytes", [0, 64 << 20], ids=["spilled between", "in memory"])
def test_the_later_of_two_batches_of_one_epoch_wins_everywhere(buffer_bytes: int) -> None:
    """In get, multi_get, scan, reverse scan and changes; before and after commit and compaction."""
    with connect("memory://", buffer_bytes=buffer_bytes, compaction=False) as store:
        kv = store.create_table("kv")
        epoch = store.new_epoch()
        kv.ingest_batch([(b"a", b"old"), (b"b", b"old"), (b"c", b"old")], epoch)
        kv.ingest_batch([(b"b", b"new"), (b"c", None), (b"d", b"new")], epoch)
        expected = [(b"a", b"old"), (b"b", b"new"), (b"d", b"new")]

        def check() -> None:
            assert pairs(kv.scan()) == expected
            assert pairs(kv.scan(reverse=True)) == expected[::-1]
            assert [kv.get(key) for key in (b"a", b"b", b"c", b"d")] == [b"old", b"new", None, b"new"]
            assert kv.multi_get([b"d", b"c", b"b"]).to_pylist() == [b"new", None, b"new"]

        check()
        store.commit_epoch(epoch)
        check()
        changes = [
            {"key": b"a", "value": b"old", "op": "put", "epoch": epoch},
            {"key": b"b", "value": b"new", "op": "put", "epoch": epoch},
            {"key": b"c", "value": None, "op": "delete", "epoch": epoch},
            {"key": b"d", "value": b"new", "op": "put", "epoch": epoch},
        ]
        assert changes_of(kv) == changes
        store.compact("kv")
        check()
        # Once a newer epoch is there, the compaction above has kept everything above its watermark.
        assert [row["key"] for row in changes_of(kv)] == [b"a", b"b", b"c", b"d"]
