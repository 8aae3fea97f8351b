"""Guarantee 8: a process that was replaced can no longer change anything.

In an embedded store every process may write, so what is replaced is a claim on a compaction, a place in the log, or
an upload; each is refused by the create-only append, which validates on the version that it lands on.
"""

from typing import Any

import pytest

from support import inside
from support.buckets.faulty_bucket import FaultyBucket
from support.store.stores import OBJECTS, TickingSystem, changes_of, open_on, pairs
from support.store.versions import ModelBucket
from tussock.compactor import execute
from tussock.meta.log.format import entry_path
from tussock.statestore import Fenced, StateStore


def commit(store: StateStore, rows: list[tuple[bytes, bytes | None]], table: str = "kv") -> int:
    epoch = store.new_epoch()
    store.table(table).ingest_batch(rows, epoch)
    return store.commit_epoch(epoch)


def merge_inputs(store: StateStore, task: Any) -> Any:
    sstables, uploader = inside.execution_tools(inside.backend(store))
    spec = store.version().tables[task.table_id].spec
    return execute(sstables, uploader, spec, task, cancelled=lambda: False)


def test_a_compaction_that_was_taken_over_cannot_report() -> None:
    """Its claim expires, another process does the work: the late report raises `Fenced`; no row is lost or doubled."""
    system = TickingSystem()
    bucket = ModelBucket(system)
    stalled, taker = open_on(bucket, system, retention=0), open_on(bucket, system, retention=0)
    stalled.create_table("kv")
    commit(stalled, [(b"a", b"1"), (b"b", b"1")])
    commit(stalled, [(b"a", b"2")])
    backend: Any = inside.backend(stalled)
    task = backend.meta.own_tasks.claim("kv", manual=True)
    outputs = merge_inputs(stalled, task)
    taker.compact("kv")
    commit(taker, [(b"c", b"3")])
    before = taker.version()
    with pytest.raises(Fenced, match=task.id):
        backend.meta.own_tasks.report(task, outputs)
    assert stalled.version() == before
    assert pairs(stalled.table("kv").scan()) == [(b"a", b"2"), (b"b", b"1"), (b"c", b"3")]


def test_a_compaction_of_a_replaced_table_cannot_report() -> None:
    """The new table has the name, not the rows."""
    system = TickingSystem()
    bucket = ModelBucket(system)
    stalled, other = open_on(bucket, system), open_on(bucket, system)
    stalled.create_table("kv")
    commit(stalled, [(b"a", b"1")])
    commit(stalled, [(b"a", b"2")])
    backend: Any = inside.backend(stalled)
    task = backend.meta.own_tasks.claim("kv", manual=True)
    outputs = merge_inputs(stalled, task)
    other.drop_table("kv")
    other.create_table("kv")
    with pytest.raises(Fenced):
        backend.meta.own_tasks.report(task, outputs)
    assert pairs(stalled.table("kv").scan()) == []


@pytest.mark.parametrize("moment", ["before the create", "after the create"])
def test_a_writer_that_stalls_while_others_commit_loses_nothing_and_overwrites_nothing(moment: str) -> None:
    """Its log entry's number is taken, or the log goes on behind it; every acknowledged row is there, once."""
    system = TickingSystem()
    inner = ModelBucket(system)
    bucket = FaultyBucket(inner)
    slow, fast = open_on(bucket, system), open_on(inner, system)
    slow.create_table("kv")
    epoch = slow.new_epoch()
    slow.table("kv").ingest_batch([(b"slow", b"1")], epoch)
    # Long enough for the writer to look at the truncation markers again, after its create.
    system.forward(11)
    operation = "create" if moment == "before the create" else "list"
    bucket.stall(lambda call: call.operation == operation, lambda: _three_commits(fast))
    final = slow.commit_epoch(epoch)
    rows = [(b"fast0", b"1"), (b"fast1", b"1"), (b"fast2", b"1"), (b"slow", b"1")]
    for store in (slow, open_on(inner, system)):
        store.wait_epoch(max(final, fast.committed_epoch))
        assert pairs(store.table("kv").scan()) == rows
        assert len(changes_of(store.table("kv"))) == 4
    assert final == epoch if moment == "after the create" else final > epoch


def _three_commits(store: StateStore) -> None:
    for at in range(3):
        commit(store, [(b"fast%d" % at, b"1")])


def test_a_writer_that_slept_through_a_truncation_does_not_write_into_the_past() -> None:
    """The number that it was about to create was deleted meanwhile: its commit lands at the tail, or not at all."""
    system = TickingSystem()
    inner = ModelBucket(system)
    bucket = FaultyBucket(inner)
    # An entry with SSTs that are read would stay.
    slow, fast = open_on(bucket, system, gc_grace=0), open_on(inner, system, gc_grace=0, limits=OBJECTS)
    slow.create_table("kv")
    inside.base_every(inside.version_log(inside.backend(fast)), 2)
    commit(slow, [(b"a", b"0")])
    epoch = slow.new_epoch()
    slow.table("kv").ingest_batch([(b"a", b"slow")], epoch)
    number = slow.version().seq + 1  # type: ignore[attr-defined]

    def meanwhile() -> None:
        for at in range(8):
            commit(fast, [(b"b", b"%d" % at)])
        system.forward(60)
        fast.vacuum()
        assert entry_path(number) not in inner.objects

    bucket.stall(lambda call: call.operation == "create", meanwhile)
    final = slow.commit_epoch(epoch, writer="w", batch_id=1)
    # What it created there is below the marker, so it is no part of the log, and it is left to vacuum.
    for _ in range(2):
        for store in (slow, fast, open_on(inner, system)):
            assert store.committed_epoch == final
            assert pairs(store.table("kv").scan()) == [(b"a", b"slow"), (b"b", b"7")]
        system.forward(60)
        fast.vacuum()
        assert entry_path(number) not in inner.objects
