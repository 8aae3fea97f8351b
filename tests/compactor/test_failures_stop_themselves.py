"""One thing that fails stops only itself: a damaged SST, a failing vacuum, a process that was killed at its work."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from support import inside
from support.store.stores import OBJECTS, TickingSystem, open_on, sst_objects
from support.store.versions import ModelBucket
from tussock.meta.compaction.picker_config import PickerConfig
from tussock.meta.log.recovery import read_entry
from tussock.meta.version.deltas.tasks import ClaimCompaction, ReleaseCompaction
from tussock.statestore import Conflict, CorruptSst, Fenced, ObjectStoreUnavailable, StateStore, connect
from tussock.statestore.base.system import RealSystem
from tussock.statestore.buckets import open_bucket
from tussock.statestore.contract.records import data_path

MANY = 24
SOON = 30.0


def commit(store: StateStore, table: str, number: int) -> int:
    """Commit one row of one key, which makes a run in L0."""
    epoch = store.new_epoch()
    store.table(table).ingest_batch([(b"k", b"%d" % number)], epoch)
    return store.commit_epoch(epoch)


def with_claim(store: StateStore) -> tuple[Any, Any]:
    """Make table `kv` with three runs, and claim to merge them: the store's backend, and the task."""
    store.create_table("kv")
    for number in range(3):
        commit(store, "kv", number)
    backend: Any = inside.backend(store)
    return backend, backend.meta.own_tasks.claim("kv", manual=True)


def runs(store: StateStore, table: str) -> int:
    """Sorted runs of the table, all levels."""
    state: Any = store.version().find_table(table)
    return len(state.levels.runs())


def flip(store: StateStore, table: str) -> tuple[str, bytes]:
    """Damage the first SST of the table; returns its path and its former content."""
    state: Any = store.version().find_table(table)
    bucket = inside.bucket(store)
    path = data_path(state.levels.ssts()[0].id)
    data = bucket.get(path)
    middle = len(data) // 2
    bucket.put(path, data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :])
    return path, data


def work(store: StateStore) -> None:
    """Do what the compaction thread does when it is nudged."""
    backend: Any = inside.backend(store)
    while inside.work(backend):
        pass


def test_a_damaged_sst_does_not_stop_the_compaction_of_other_tables() -> None:
    """Once the task with the highest score failed first in each round, and no other table was compacted."""
    with connect("memory://", retention=0, gc_grace=0, limits=OBJECTS) as store:
        backend: Any = inside.backend(store)
        store.create_table("good")
        store.create_table("bad")
        with inside.without_nudges(backend):
            for number in range(16):
                commit(store, "bad", number)
            flip(store, "bad")
        for number in range(MANY):
            commit(store, "good", number)
        idle = threading.Event()
        inside.worker(backend).nudge()
        for _ in range(int(SOON / 0.01)):
            if runs(store, "good") < 8:
                break
            idle.wait(0.01)
        assert runs(store, "good") < 8
        with pytest.raises(CorruptSst, match=r"sst/[0-9a-f]{32}\.data"):
            store.compact("bad")
        assert store.table("good").get(b"k") == b"%d" % (MANY - 1)


def test_the_pause_after_a_failure_doubles_each_time() -> None:
    """Otherwise each commit would add a claim and a release to the log; a mended SST is compacted."""
    system = TickingSystem()
    bucket = ModelBucket(system)
    store = open_on(bucket, system, retention=0, gc_grace=0, limits=OBJECTS)
    store.create_table("good")
    store.create_table("bad")
    for number in range(16):
        commit(store, "bad", number)
    path, data = flip(store, "bad")
    first = store.version().seq  # type: ignore[attr-defined]
    for number in range(60):
        commit(store, "good", number)
        work(store)
        system.forward(1.0)
        assert runs(store, "good") < 8
    bad = store.version().find_table("bad").spec.id  # type: ignore[union-attr]
    claims = [
        delta
        for seq in range(first + 1, store.version().seq + 1)  # type: ignore[attr-defined]
        for delta in read_entry(bucket, seq).entry.deltas  # type: ignore[union-attr]
        if isinstance(delta, ClaimCompaction) and delta.task.table_id == bad
    ]
    assert len(claims) == 4, "at 0, 5, 15 and 35 seconds"
    assert runs(store, "bad") == 16
    bucket.put(path, data)
    system.forward(300.0)
    work(store)
    assert runs(store, "bad") < 8
    assert store.table("bad").get(b"k") == b"15"


def test_vacuum_runs_by_its_own_clock() -> None:
    """Once it ran only when nothing was left to compact, which with many tables is never."""
    system = TickingSystem()
    bucket = ModelBucket(system)
    store = open_on(bucket, system, retention=0, gc_grace=0, limits=OBJECTS)
    backend: Any = inside.backend(store)
    for table in ("a", "b", "c"):
        store.create_table(table)
        for number in range(8):
            commit(store, table, number)
    inside.work(backend)
    garbage = {sst.id for sst in store.version().dropped}  # type: ignore[attr-defined]
    assert garbage
    assert garbage <= sst_objects(bucket)
    system.forward(400.0)
    for number in range(8):
        commit(store, "a", number)
    assert inside.work(backend), "there was something to compact"
    assert not garbage & sst_objects(bucket)


def test_a_failing_vacuum_does_not_stop_compaction(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compaction goes on, and the vacuum is tried again soon."""
    system = TickingSystem()
    store = open_on(ModelBucket(system), system, retention=0, gc_grace=0)
    backend: Any = inside.backend(store)
    store.create_table("kv")
    for number in range(8):
        commit(store, "kv", number)
    vacuum = backend.vacuum

    def failing() -> None:
        raise ObjectStoreUnavailable("list of sst/ failed")

    monkeypatch.setattr(backend, "vacuum", failing)
    system.forward(400.0)
    work(store)
    assert runs(store, "kv") < 8
    monkeypatch.setattr(backend, "vacuum", vacuum)
    system.forward(12.0)
    work(store)
    assert not store.version().dropped  # type: ignore[attr-defined]


def test_a_killed_process_holds_its_inputs_for_one_short_lease() -> None:
    """Once the lease grew with the input: for a large table it was hours, in which no process could compact it."""
    system = TickingSystem()
    bucket = ModelBucket(system)
    killed, heir = open_on(bucket, system), open_on(bucket, system)
    backend, task = with_claim(killed)
    inside.kill(killed)
    began = system.monotonic()
    heir.compact("kv")
    assert runs(heir, "kv") == 1
    assert system.monotonic() - began < 35
    with pytest.raises(Fenced):
        backend.meta.own_tasks.report(task, ())
    assert runs(heir, "kv") == 1


def test_a_task_is_renewed_while_its_process_works_on_it() -> None:
    """The owner may take any time; each renewal is one log entry, and no other process can take the task."""
    system = TickingSystem()
    bucket = ModelBucket(system)
    owner, other = open_on(bucket, system), open_on(bucket, system)
    backend, task = with_claim(owner)
    seq = owner.version().seq  # type: ignore[attr-defined]
    for _ in range(12):
        system.forward(10.0)
        backend.meta.own_tasks.renew()
        backend.meta.own_tasks.renew()
        assert inside.backend(other).meta.own_tasks.claim("kv", manual=True) is None
    assert owner.version().seq - seq == 12  # type: ignore[attr-defined]
    held = owner.version().tasks[task.id]  # type: ignore[attr-defined]
    assert (held.claimed_ms, held.watermark, held.inputs) == (task.claimed_ms, task.watermark, task.inputs)
    assert inside.execute(backend, task)
    assert runs(other, "kv") == 1
    assert other.table("kv").get(b"k") == b"2"


def test_only_the_owner_renews_a_task_and_changes_only_its_end() -> None:
    """A claim of a task that exists is refused if it changes anything but the end of the lease."""
    system = TickingSystem()
    store = open_on(ModelBucket(system), system)
    backend, task = with_claim(store)
    version = backend.version()
    ClaimCompaction(task=replace(task, expires_ms=task.expires_ms + 1)).validate(version)
    for change in ({"owner": "x"}, {"watermark": 99}, {"inputs": task.inputs[:1]}, {}, {"expires_ms": 1}):
        changed = replace(task, **{"expires_ms": task.expires_ms + bool(change), **change})
        with pytest.raises(Conflict):
            ClaimCompaction(task=changed).validate(version)


def test_a_task_that_was_taken_back_is_not_worked_on_to_its_end() -> None:
    """Its process stops when it reads so in the log; its report would be refused."""
    system = TickingSystem()
    bucket = ModelBucket(system)
    store, other = open_on(bucket, system), open_on(bucket, system)
    backend, task = with_claim(store)
    system.forward(31.0)
    other.compact("kv")
    uploaded = sst_objects(bucket)
    backend.refresh()
    assert not inside.execute(backend, task)
    assert sst_objects(bucket) == uploaded


@pytest.mark.parametrize("is_renewed", [False, True])
def test_a_claim_by_a_clock_that_is_ahead_ends_when_a_lease_is_over(is_renewed: bool) -> None:
    """Its end is fifty minutes away for others: they wait a lease from when they saw it, longer if it is renewed."""
    system, ahead = TickingSystem(), TickingSystem()
    ahead.wall_ms, ahead.drawn = system.wall_ms + 50 * 60_000, 1000
    bucket = ModelBucket(system)
    dies, other = open_on(bucket, ahead), open_on(bucket, system)
    backend, task = with_claim(dies)
    own_tasks = inside.backend(other).meta.own_tasks
    assert own_tasks.claim("kv", manual=True) is None
    for _ in range(3):
        system.forward(11.0)
        ahead.forward(11.0)
        if is_renewed:
            backend.meta.own_tasks.renew()
            assert own_tasks.claim("kv", manual=True) is None
    if is_renewed:
        assert inside.execute(backend, task)
        return
    assert other.compact("kv") is None
    assert runs(other, "kv") == 1
    with pytest.raises(Fenced):
        backend.meta.own_tasks.report(task, [])


class _PatientCondition(threading.Condition):
    """Waits for what is to come, and never for the end of a pause."""

    def wait_for(self, predicate: Callable[[], Any], timeout: float | None = None) -> Any:
        return super().wait_for(predicate, None if timeout is None else max(timeout, 10 * SOON))


class _PatientSystem(RealSystem):
    def condition(self) -> Any:
        return _PatientCondition()


def test_compact_continues_as_soon_as_the_blocking_task_ends() -> None:
    """Once it slept up to a second at a time although the task, which ran in the same process, had long ended."""
    system = _PatientSystem()
    with open_on(open_bucket("memory://"), system) as store:
        backend: Any = inside.backend(store)
        backend.meta.config = PickerConfig(l0_merge_min=2)
        store.create_table("kv")
        for number in range(4):
            commit(store, "kv", number)
        task = backend.meta.own_tasks.claim()
        awaited = inside.waiting_event(backend)
        caller = threading.Thread(target=store.compact, args=("kv",))
        caller.start()
        assert awaited.wait(SOON)
        assert backend.meta.own_tasks.claim() is None, "what the caller waits for is not kept from it by a next task"
        assert inside.execute(backend, task)
        caller.join(SOON)
        assert not caller.is_alive()
        assert runs(store, "kv") == 1


def test_any_process_takes_back_a_task_whose_lease_ran_out() -> None:
    """The log names the process that took the task back; a late report from before that still counts."""
    system = TickingSystem()
    bucket = ModelBucket(system)
    owner, other = open_on(bucket, system), open_on(bucket, system)
    owner.create_table("kv")
    for number in range(4):
        commit(owner, "kv", number)
    backend: Any = inside.backend(owner)
    task = backend.meta.own_tasks.claim("kv", manual=True)
    system.forward(31.0)
    assert inside.execute(backend, task), "late, and nobody minded"
    commit(owner, "kv", 9)
    task = backend.meta.own_tasks.claim("kv", manual=True)
    system.forward(31.0)
    other.vacuum()
    entry = read_entry(bucket, other.version().seq)  # type: ignore[attr-defined]
    assert any(isinstance(delta, ReleaseCompaction) and delta.task_id == task.id for delta in entry.entry.deltas)  # type: ignore[union-attr]
