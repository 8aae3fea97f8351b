"""The meta room as a whole: catalog, idempotent commits, the life of tasks, stalls, and the cost of each call."""

import pytest
from msgspec.structs import replace

from support.buckets.faulty_bucket import Call, Fate, FaultyBucket, Script, where
from support.store.versions import ModelBucket, make_id, request, run, spec, sst
from tussock.meta.compaction.picker import PickerConfig
from tussock.meta.meta_store import MetaStore
from tussock.meta.version.invariants import problems
from tussock.meta.version.version import CompactionTask
from tussock.statestore.contract.backend import CommitRequest
from tussock.statestore.contract.records import SstInfo
from tussock.statestore.errors import (
    Fenced,
    InvalidOption,
    ObjectStoreUnavailable,
    TableExists,
    TableNotFound,
)


def meta(bucket: ModelBucket | FaultyBucket, **options: object) -> MetaStore:
    inner = bucket.inner if isinstance(bucket, FaultyBucket) else bucket
    values: dict[str, object] = {"retention_seconds": 0, "config": PickerConfig(l0_small_bytes=1), **options}
    return MetaStore(bucket, inner.system, **values)  # type: ignore[arg-type,union-attr]


@pytest.fixture
def store(bucket: ModelBucket) -> MetaStore:
    made = meta(bucket)
    made.create_table(spec())
    return made


def merge(task: CompactionTask, size: int | None = None) -> SstInfo:
    """One output in place of all inputs, as if they were merged."""
    files = task.ssts()
    return sst(
        min(one.smallest for one in files),
        max(one.largest for one in files),
        epoch=0,
        min_epoch=min(one.min_epoch for one in files),
        max_epoch=max(one.max_epoch for one in files),
        data_bytes=size or sum(one.data_bytes for one in files),
    )


def test_tables_are_created_and_dropped(store: MetaStore, bucket: ModelBucket) -> None:
    """Names are unique, ids are not used again, and an absent table is named."""
    assert store.create_table(spec("other", 0)).spec.id == 2
    with pytest.raises(TableExists, match="'kv'"):
        store.create_table(spec())
    store.drop_table("kv")
    with pytest.raises(TableNotFound, match="'kv'"):
        store.drop_table("kv")
    assert meta(bucket).create_table(spec("kv", 1)).spec.id == 3
    with pytest.raises(TableNotFound, match="'gone'"):
        store.own_tasks.claim("gone")


def test_a_repeated_batch_is_answered_by_any_process(store: MetaStore, bucket: ModelBucket) -> None:
    """The first epoch holds, also for a process that uploaded new SSTs for the repetition."""
    epoch = store.commit(request(5, writer="w", batch_id=0))
    other = meta(bucket)
    assert (
        other.commit(request(9, writer="w", batch_id=0))
        == epoch
        == other.version().committed_epoch_of("w", 0, None, ())
    )
    assert other.version().committed_epoch_of("w", 1, None, ()) is None
    assert len(other.version().tables[1].levels.ssts()) == 1


def test_options_that_cannot_work_are_refused(bucket: ModelBucket, store: MetaStore) -> None:
    """Negative times, and a manual compaction of no table."""
    with pytest.raises(InvalidOption):
        meta(bucket, retention_seconds=-1)
    with pytest.raises(InvalidOption):
        meta(bucket, gc_grace_seconds=-1)
    with pytest.raises(InvalidOption):
        store.own_tasks.claim(manual=True)


def test_idle_calls_cost_no_request(bucket: ModelBucket) -> None:
    """A claim without work, the version, retention and stalls; what others appended is found by the next append."""
    faulty = FaultyBucket(bucket)
    store = meta(faulty)
    store.create_table(spec())
    faulty.calls.clear()
    assert store.write_stall(1) is None
    assert store.oldest_readable() == 0
    assert store.version().seq == 1
    assert store.own_tasks.claim() is None
    assert store.own_tasks.claim_together() == []
    assert faulty.calls == []


def test_a_claim_lists_the_pins_before_and_after_its_entry(bucket: ModelBucket) -> None:
    """One entry raises the safe epoch and claims; only the listing after it makes the watermark safe."""
    faulty = FaultyBucket(bucket)
    store = meta(faulty)
    store.create_table(spec())
    for epoch in (1, 2, 3, 4):
        store.commit(request(epoch))
    faulty.calls.clear()
    task = store.own_tasks.claim()
    assert task is not None
    assert [(call.operation, call.path.split("/")[0]) for call in faulty.calls] == [
        ("list", "pins"),
        ("create", "log"),
        ("list", "pins"),
    ]
    assert (task.kind, task.watermark, store.version().safe_epoch) == ("intra-l0", 4, 4)


def test_the_fullest_table_is_claimed_first_and_each_gets_its_turn(bucket: ModelBucket) -> None:
    """Two tables and two claims: one each."""
    store = meta(bucket)
    for number, name in enumerate(("few", "many"), start=1):
        store.create_table(spec(name, number))
    for epoch in range(1, 9):
        tables = {2: (run(sst()),)} if epoch > 4 else {1: (run(sst()),), 2: (run(sst()),)}
        store.commit(CommitRequest(epoch=epoch, tables=tables))
    claims = [store.own_tasks.claim(), store.own_tasks.claim(), store.own_tasks.claim()]
    assert [task and task.table_id for task in claims] == [2, 1, None]


def test_two_processes_never_get_the_same_work(store: MetaStore, bucket: ModelBucket) -> None:
    """The second process, racing for the same entry, finds the inputs taken."""
    for epoch in (1, 2, 3, 4):
        store.commit(request(epoch))
    faulty = FaultyBucket(bucket)
    other = meta(faulty)
    won: list[CompactionTask | None] = []
    faulty.stall(lambda call: call.operation == "create", lambda: won.append(store.own_tasks.claim()))
    assert other.own_tasks.claim() is None
    assert won[0] is not None
    assert problems(store.refresh()) == []


def test_an_expired_task_goes_to_another_process_and_its_report_is_fenced(
    store: MetaStore, bucket: ModelBucket
) -> None:
    """Inputs are free again after the lease, and not before."""
    for epoch in (1, 2, 3, 4):
        store.commit(request(epoch))
    first = store.own_tasks.claim()
    other = meta(bucket)
    assert other.own_tasks.claim() is None
    assert first is not None
    bucket.system.wall_ms = first.expires_ms + 1
    second = other.own_tasks.claim()
    assert second is not None
    assert second.inputs == first.inputs
    with pytest.raises(Fenced):
        store.own_tasks.report(first, [merge(first)])
    other.own_tasks.report(second, [merge(second)])
    assert len(store.refresh().tables[1].levels.l0) == 1


def test_a_released_task_can_be_claimed_again_at_once(store: MetaStore) -> None:
    """A second release is no error."""
    for epoch in (1, 2, 3, 4):
        store.commit(request(epoch))
    task = store.own_tasks.claim()
    assert task is not None
    assert store.own_tasks.claim() is None
    store.own_tasks.release(task)
    store.own_tasks.release(task)
    again = store.own_tasks.claim()
    assert again is not None
    assert (again.inputs, again.id == task.id) == (task.inputs, False)


def unknown_outcome(fate: Fate) -> Script:
    """That fate meets the next entry's create, which cannot be read back either."""
    creating = where("create", "log/", fate)
    reading = where("get", "log/", Fate.LOSE_REQUEST)
    created = [False]

    def script(call: Call) -> Fate:
        met = creating(call)
        created[0] = created[0] or met is not Fate.PASS
        return reading(call) if created[0] and call.operation == "get" else met

    return script


@pytest.mark.parametrize("fate", [Fate.LOSE_REQUEST, Fate.LOSE_ANSWER])
def test_a_claim_whose_answer_was_lost_does_not_block_its_inputs(bucket: ModelBucket, fate: Fate) -> None:
    """The process takes back the task that it holds without knowing, long before the lease ends."""
    faulty = FaultyBucket(bucket)
    store = meta(faulty)
    store.create_table(spec())
    for epoch in (1, 2, 3, 4):
        store.commit(request(epoch))
    faulty.script = unknown_outcome(fate)
    with pytest.raises(ObjectStoreUnavailable):
        store.own_tasks.claim()
    task = store.own_tasks.claim()
    assert task is not None
    assert list(store.version().tasks) == [task.id]


@pytest.mark.parametrize("fate", [Fate.LOSE_REQUEST, Fate.LOSE_ANSWER])
def test_a_report_whose_answer_was_lost_can_be_repeated(bucket: ModelBucket, fate: Fate) -> None:
    """The process that made the first report gets an answer to the second one, which is not fenced."""
    faulty = FaultyBucket(bucket)
    store = meta(faulty)
    store.create_table(spec())
    for epoch in (1, 2, 3, 4):
        store.commit(request(epoch))
    task = store.own_tasks.claim()
    assert task is not None
    out = merge(task)
    faulty.script = unknown_outcome(fate)
    with pytest.raises(ObjectStoreUnavailable):
        store.own_tasks.report(task, [out])
    store.own_tasks.report(task, [out])
    assert meta(bucket).version().live_sst_ids() == {out.id}


def test_a_claim_makes_trivial_moves_first(bucket: ModelBucket) -> None:
    """A trivial move costs one entry and no task; the claim goes on to real work."""
    store = meta(bucket, config=PickerConfig(base_bytes=1000, l0_small_bytes=1))
    store.create_table(spec())
    store.commit(request(1, 1, sst(b"a", b"b", data_bytes=5000)))
    assert store.own_tasks.claim() is None
    levels = store.version().tables[1].levels
    assert levels.l0 == ()
    assert levels.runs()[0][0].smallest == b"a"
    assert (store.version().tasks, store.version().dropped) == ({}, ())


def test_a_manual_compaction_ends_with_one_run_at_the_bottom(store: MetaStore) -> None:
    """From any tree; a second one reclaims versions that have become old."""
    for epoch in (1, 2, 3):
        store.commit(request(epoch))
    task = store.own_tasks.claim("kv", manual=True)
    assert task is not None
    assert (task.kind, task.bottom, task.target_level, task.watermark) == ("manual", True, 1, 3)
    assert store.own_tasks.claim("kv", manual=True) is None
    out = merge(task)
    store.own_tasks.report(task, [out])
    assert store.version().tables[1].levels.runs() == [(out,)]


def test_writes_stall_with_a_reason(bucket: ModelBucket) -> None:
    """The reason names the table, its size and the limit."""
    store = meta(bucket, config=PickerConfig(l0_stall_runs=3))
    store.create_table(spec())
    for epoch in (1, 2, 3):
        stall = store.write_stall(1)
        assert stall is None or not stall.stopped
        store.commit(request(epoch))
    stall = store.write_stall(1)
    assert stall is not None
    assert stall.reason == "table 'kv' has 3 uncompacted runs; writes wait from 3 on"
    assert store.write_delay([1, 99], waited_ms=10**6) == (stall.delay_ms, stall.reason)
    assert store.write_delay([99], waited_ms=0) == (0, "")
    assert store.write_stall(99) is None


def test_a_stream_of_a_thousand_small_batches_stays_flat(bucket: ModelBucket) -> None:
    """With a compaction after each commit, reads meet few runs, and a row is rewritten a few times."""
    store = meta(bucket, config=PickerConfig(), retention_seconds=3600)
    store.create_table(spec())
    written = rewritten = 0
    most = 0
    for batch in range(1000):
        bucket.system.forward(1)
        one = replace(sst(), id=make_id(bucket.system.now_ms(), batch), data_bytes=20_000, meta_bytes=0)
        store.commit(request(1, 1, one, writer="stream", batch_id=batch))
        written += 20_000
        task = store.own_tasks.claim()
        if task is not None:
            rewritten += sum(file.data_bytes for file in task.ssts())
            store.own_tasks.report(task, [replace(merge(task), id=make_id(bucket.system.now_ms(), 10**6 + batch))])
        most = max(most, len(store.version().tables[1].levels.runs()))
    assert problems(store.version()) == []
    assert most <= 16
    assert rewritten < 7 * written
    assert meta(bucket).version() == store.version()


def test_close_releases_the_pins(store: MetaStore) -> None:
    """They are those that the process still held."""
    store.pins.pin(None)
    store.close()
    assert store.live_pins() == []
