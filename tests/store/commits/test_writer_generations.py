"""Generations of a writer: a job that takes the name over fences the former one, on every kind of store."""

import pytest

from tussock.statestore import Fenced, InvalidOption, StateStore


def put(store: StateStore, key: bytes, batch: int, generation: int | None) -> int:
    epoch = store.new_epoch()
    store.table("kv").ingest_batch([(key, b"1")], epoch)
    return store.commit_epoch(epoch, writer="job", batch_id=batch, generation=generation)


def test_a_job_that_was_taken_over_cannot_commit(store: StateStore, other: StateStore) -> None:
    """The successor opens the writer, and every later commit of the old job is refused; its rows are given up."""
    store.create_table("kv")
    old = store.open_writer("job")
    first = put(store, b"a", 1, old)
    new = other.open_writer("job")
    assert (old, new) == (1, 2)
    with pytest.raises(Fenced, match="generation 1 of writer 'job' is over: generation 2 was opened"):
        put(store, b"b", 2, old)
    assert store.table("kv").get(b"b") is None
    # The batch that the old job had committed stays committed, and any client may ask for it.
    assert put(other, b"a", 1, new) == first
    second = put(other, b"c", 2, new)
    assert other.committed_batch("job", 2) == second
    assert store.committed_batch("job", 2) == second
    assert store.table("kv").get(b"c") == b"1"


def test_a_replaced_job_is_fenced_even_when_it_repeats_a_batch(store: StateStore, other: StateStore) -> None:
    """A repeated batch is a no-op, but a fenced job has to stop."""
    store.create_table("kv")
    old = store.open_writer("job")
    put(store, b"a", 1, old)
    other.open_writer("job")
    with pytest.raises(Fenced):
        put(store, b"a", 1, old)


def test_a_commit_without_a_generation_is_not_fenced(store: StateStore) -> None:
    """A client that never opened the writer is not fenced by one that did."""
    store.create_table("kv")
    put(store, b"a", 1, None)
    store.open_writer("job")
    put(store, b"b", 2, None)


@pytest.mark.parametrize(
    ("generation", "words"), [(3, "never opened"), (0, "store.open_writer"), (True, "store.open_writer")]
)
def test_an_unknown_generation_is_refused(store: StateStore, generation: int, words: str) -> None:
    """A number that `open_writer` never returned, or no number at all."""
    store.create_table("kv")
    store.open_writer("job")
    with pytest.raises(InvalidOption, match=words):
        put(store, b"a", 1, generation)


def test_a_generation_without_a_writer_is_refused(store: StateStore) -> None:
    """Without one, and with an empty name, the call is refused."""
    store.create_table("kv")
    epoch = store.new_epoch()
    with pytest.raises(InvalidOption, match="no writer is named"):
        store.commit_epoch(epoch, generation=1)
    with pytest.raises(InvalidOption, match="1 to 1024"):
        store.open_writer("")
