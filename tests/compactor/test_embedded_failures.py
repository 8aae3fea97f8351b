"""A failure in the compaction of an embedded store stays there: commits hold, and the thread lives on."""

import threading
from collections.abc import Sequence
from typing import Any

import pytest

from support import inside
from support.store.stores import OBJECTS
from tussock.compactor.embedded import EmbeddedBackend
from tussock.compactor.worker import CompactionWorker
from tussock.meta.compaction.picker_config import PickerConfig
from tussock.meta.version.version import CompactionTask
from tussock.statestore import CorruptSst, Fenced, StateStore, TableNotFound, connect
from tussock.statestore.base.system import RealSystem
from tussock.statestore.contract.records import SstInfo, data_path


def commit(store: StateStore, value: bytes) -> int:
    """Commit one row of the key `k`."""
    epoch = store.new_epoch()
    store.table("kv").ingest_batch([(b"k", value)], epoch)
    return store.commit_epoch(epoch)


def lose_one_sst(store: StateStore) -> None:
    """Delete the blocks of the first SST of `kv` behind the store's back."""
    state = store.version().find_table("kv")
    assert state is not None
    inside.bucket(store).delete([data_path(state.levels.ssts()[0].id)])


def test_a_commit_holds_even_if_the_compaction_within_it_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once the commit raised the error of its compaction though the epoch was committed, and a repetition failed."""
    with connect("memory://", limits=OBJECTS) as store:
        backend = inside.backend(store)
        assert isinstance(backend, EmbeddedBackend)
        backend.meta.config = PickerConfig(l0_stall_runs=2, l0_merge_min=2)
        assert inside.worker(backend) is not None
        monkeypatch.setattr(inside.worker(backend), "nudge", lambda: None)
        store.create_table("kv")
        commit(store, b"1")
        lose_one_sst(store)
        epoch = commit(store, b"2")
        assert store.committed_epoch == epoch


def test_a_compaction_that_meets_the_end_of_the_store_is_no_failure(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Once an orderly end logged "compaction failed", for a task whose threads had been stopped already."""
    with connect("memory://") as store:
        backend = inside.backend(store)
        backend.meta.config = PickerConfig(l0_stall_runs=2, l0_merge_min=2)
        monkeypatch.setattr(inside.worker(backend), "nudge", lambda: None)
        store.create_table("kv")
        commit(store, b"1")
        sstables, _ = inside.execution_tools(backend)
        sstables.close()
        commit(store, b"2")
        assert not store.version().tasks  # type: ignore[attr-defined]
    assert "compaction" not in caplog.text


def test_a_table_that_is_dropped_while_it_is_compacted_is_no_failure(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Once this logged the error "compaction failed", as if somebody had to look."""
    with connect("memory://dropped", compaction=False) as store, connect("memory://dropped", compaction=False) as other:
        backend = inside.backend(store)
        tasks = backend.meta.own_tasks
        backend.meta.config = PickerConfig(l0_merge_min=2)
        store.create_table("kv")
        commit(store, b"1")
        commit(store, b"2")
        claim, claim_together = tasks.claim, tasks.claim_together

        def drop(claimed: Any) -> Any:
            other.drop_table("kv")
            backend.refresh()
            return claimed

        monkeypatch.setattr(tasks, "claim_together", lambda *given: drop(claim_together(*given)))
        assert not store.version().tasks  # type: ignore[attr-defined]
        inside.step(backend)
        assert store.tables() == []
        monkeypatch.setattr(tasks, "claim_together", claim_together)
        store.create_table("kv")
        commit(store, b"3")
        commit(store, b"4")
        monkeypatch.setattr(tasks, "claim", lambda *given, **named: drop(claim(*given, **named)))
        with pytest.raises(TableNotFound, match="'kv' was dropped while it was being compacted"):
            store.compact("kv")
        assert not store.version().tasks  # type: ignore[attr-defined]
    assert "compaction" not in caplog.text


def test_compaction_of_a_lost_object_says_which() -> None:
    """An object that the newest version names and the bucket lacks is `CorruptSst`, in a compaction as in a read."""
    with connect("memory://", compaction=False, limits=OBJECTS) as store:
        store.create_table("kv")
        for value in (b"1", b"2"):
            commit(store, value)
        lose_one_sst(store)
        with pytest.raises(CorruptSst, match=r"sst/[0-9a-f]{32}\.data"):
            store.compact("kv")
        assert not store.version().tasks  # type: ignore[attr-defined]


def test_an_unexpected_error_does_not_end_the_thread() -> None:
    """Once the thread died of it, later nudges had no effect, and L0 grew."""
    calls: list[int] = []
    again = threading.Event()

    def step() -> bool:
        calls.append(1)
        if len(calls) == 1:
            raise RuntimeError("a defect")
        again.set()
        return False

    worker = CompactionWorker(RealSystem(), step)
    worker.nudge()
    while not calls:
        threading.Event().wait(0.001)
    worker.nudge()
    assert again.wait(10)
    worker.close()


def test_a_manual_compaction_that_was_taken_back_is_done_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once it returned as if it were done, though another process had taken its task and nothing was merged."""
    with connect("memory://", compaction=False) as store:
        store.create_table("kv")
        for value in (b"1", b"2"):
            commit(store, value)
        backend = inside.backend(store)
        assert isinstance(backend, EmbeddedBackend)
        report = backend.meta.own_tasks.report

        def late_report(task: CompactionTask, outputs: Sequence[SstInfo]) -> None:
            monkeypatch.setattr(backend.meta.own_tasks, "report", report)
            backend.meta.own_tasks.release(task)
            raise Fenced("taken back")

        monkeypatch.setattr(backend.meta.own_tasks, "report", late_report)
        store.compact("kv")
        state = store.version().find_table("kv")
        assert state is not None
        assert len(state.levels.runs()) == 1


def test_a_manual_compaction_waits_for_one_that_ends_just_then(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once it took "busy" of one version and "idle" of the next for "nothing to do", and merged nothing."""
    with connect("memory://", compaction=False) as store:
        store.create_table("kv")
        for value in (b"1", b"2"):
            commit(store, value)
        backend = inside.backend(store)
        assert isinstance(backend, EmbeddedBackend)
        other = backend.meta.own_tasks.claim("kv", manual=True)
        assert other is not None
        claim = backend.meta.own_tasks.claim

        def claim_while_busy(table: str | None = None, *, manual: bool = False) -> CompactionTask | None:
            monkeypatch.setattr(backend.meta.own_tasks, "claim", claim)
            refused = claim(table, manual=manual)
            backend.meta.own_tasks.release(other)
            return refused

        monkeypatch.setattr(backend.meta.own_tasks, "claim", claim_while_busy)
        store.compact("kv")
        state = store.version().find_table("kv")
        assert state is not None
        assert len(state.levels.runs()) == 1
