"""Accepted rows are in the store: a batch is taken for a repeat only if it is one."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tussock.statestore import Fenced, InvalidOption, connect


@pytest.fixture
def store(tmp_path: Path) -> Any:
    with connect(f"file://{tmp_path}/store", compaction=False) as opened:
        yield opened


def put(store: Any, name: str, key: bytes, batch_id: int, **named: Any) -> int:
    epoch = store.new_epoch()
    store.table(name).ingest_batch([(key, b"v")], epoch)
    return store.commit_epoch(epoch, writer="w", batch_id=batch_id, **named)


def test_a_batch_below_the_first_one_never_counts_as_committed(store: Any) -> None:
    """Once a writer had sixteen batches, any lower number counted as committed, and its rows were dropped."""
    store.create_table("kv")
    for batch in range(100, 270, 10):
        put(store, "kv", b"%d" % batch, batch)
    with pytest.raises(Fenced, match="batch 5 was never committed"):
        put(store, "kv", b"lost", 5)
    with pytest.raises(Fenced, match="batch 105 was never committed"):
        store.committed_batch("w", 105)
    assert store.committed_batch("w", 100) is not None
    assert store.table("kv").get(b"lost") is None


def test_two_commits_to_two_tables_under_one_number_are_distinguished(store: Any) -> None:
    """The second one's rows would be lost; it is refused before any of it is stored."""
    for name in ("a", "b"):
        store.create_table(name)
    first = put(store, "a", b"k", 0)
    with pytest.raises(Fenced, match=r"without rows in \['b'\]"):
        put(store, "b", b"k", 0)
    assert store.table("b").get(b"k") is None
    assert put(store, "a", b"k", 0) == first


@pytest.mark.parametrize("batch_id", [0, 1, 2])
def test_another_source_cannot_commit_under_a_writers_name(store: Any, batch_id: int) -> None:
    """Neither with a used number, which would be skipped, nor with a new one."""
    store.create_table("a")
    for batch in range(2):
        put(store, "a", b"%d" % batch, batch, source="query 1")
    with pytest.raises(Fenced, match="'w' belongs to query 1"):
        put(store, "a", b"other", batch_id, source="query 2")
    with pytest.raises(Fenced, match="'w' belongs to query 1"):
        store.committed_batch("w", batch_id, source="query 2")
    assert store.table("a").get(b"other") is None
    assert store.committed_batch("w", 1, source="query 1") is not None


def test_the_source_of_a_writer_lasts(tmp_path: Path) -> None:
    """It is in the log, and in its snapshots."""
    url = f"file://{tmp_path}/store"
    with connect(url, compaction=False) as store:
        store.create_table("a")
        for batch in range(140):
            put(store, "a", b"%d" % batch, batch, source="query 1")
    with connect(url, compaction=False) as store:
        with pytest.raises(Fenced, match="belongs to query 1, whose newest batch is 139"):
            put(store, "a", b"other", 140, source="query 2")
        assert store.committed_batch("w", 3, source="query 1") is not None


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda store: put(store, "a", b"k", 0, source=""), "source '': expected 1 to 1024"),
        (lambda store: put(store, "a", b"k", 0, source="x" * 1025), "expected 1 to 1024"),
        (lambda store: put(store, "a", b"k", 0, source=7), "source 7"),
        (lambda store: store.commit_epoch(store.new_epoch(), source="q"), "no writer is named"),
        (lambda store: store.commit_epoch(store.new_epoch(), writer="w" * 1025, batch_id=0), "writer 'www"),
        (lambda store: store.committed_batch("", 0), "writer ''"),
    ],
)
def test_the_lengths_of_names_in_the_version_are_bounded(store: Any, call: Callable[[Any], object], words: str) -> None:
    """Each writer's name and source is in every version of the store."""
    store.create_table("a")
    with pytest.raises(InvalidOption, match=words):
        call(store)
