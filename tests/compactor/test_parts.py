"""Tasks cut into parts by key range: together they do what the task does, and slots share them fairly."""

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from support.store.ssts import Put, raw_spec, sort_puts, store_run, to_puts
from support.store.versions import FakeSystem
from tussock.compactor import execute, parts
from tussock.compactor.node.jobs import CompactionJob, Jobs
from tussock.compactor.parts import TaskPart, borders, cut
from tussock.meta.version.version import CompactionTask
from tussock.statestore.buckets import open_bucket
from tussock.statestore.contract.object_store import ObjectStore
from tussock.statestore.contract.records import SstInfo
from tussock.statestore.sst.iterators import ConcatIterator, ReadRange
from tussock.statestore.sst.reader import Sstables
from tussock.statestore.write.uploader import Uploader


def task_of(*runs: tuple[SstInfo, ...], task_id: str = "t", watermark: int = 0) -> CompactionTask:
    return CompactionTask(
        id=task_id, table_id=1, kind="manual", inputs=runs, target_level=1, bottom=True, watermark=watermark,
        owner="o", claimed_ms=0, expires_ms=1,
    )  # fmt: skip


def run_of(bucket: ObjectStore, keys: range, epoch: int, **options: int) -> tuple[SstInfo, ...]:
    puts = [Put(b"%06d" % key, epoch, b"v" * 50) for key in keys]
    return store_run(bucket, puts, epoch=epoch, block_bytes=1000, **options)


# --- Cutting -----------------------------------------------------------------------------------------------------


def test_borders_divide_the_inputs_evenly() -> None:
    """Parts hold equal bytes of all runs together, not equal ranges: a dense range gets more parts than others."""
    bucket = open_bucket("memory://")
    sstables = Sstables(bucket, 1 << 20, FakeSystem())
    task = task_of(run_of(bucket, range(3000), 2), run_of(bucket, range(2000, 5000), 1))
    keys = [None, *borders(sstables, task, 4), None]
    assert len(keys) == 5
    counts = [
        sum(len(rows) for run in task.inputs for rows in ConcatIterator(sstables, run, ReadRange(start=low, end=high)))
        for low, high in pairwise(keys)
    ]
    assert sum(counts) == 6000
    assert max(counts) - min(counts) < 100
    sstables.close()


def test_with_many_ssts_no_meta_is_read() -> None:
    """Their smallest keys suffice as borders; the metas of a large table would not fit into memory."""
    bucket = open_bucket("memory://")
    run = run_of(bucket, range(10000), 1, sst_bytes=2000)
    assert len(run) > 2 * 32
    bucket.delete([info.path for info in bucket.list("sst/")])
    sstables = Sstables(bucket, 1 << 20, FakeSystem())
    (middle,) = borders(sstables, task_of(run), 2)
    assert b"004500" < middle < b"005500"
    sstables.close()


@pytest.mark.parametrize(
    ("mebibytes", "slots", "count"),
    [(1, 4, 1), (16, 4, 2), (64, 4, 4), (64, 1, 1), (1000, 2, 8), (10_000, 1, 1), (100_000, 4, 256)],
)
def test_number_of_parts(monkeypatch: pytest.MonkeyPatch, mebibytes: int, slots: int, count: int) -> None:
    """One for each slot, none below 8 MiB; a large task has more, so that no slot is busy with one for long."""
    asked: list[int] = []
    monkeypatch.setattr(parts, "borders", lambda _, __, count: asked.append(count) or [])
    sst = SstInfo(
        id="0" * 32, smallest=b"a", largest=b"b", rows=1, deletes=0, data_bytes=mebibytes << 20, meta_bytes=0,
        epoch=1, min_epoch=1, max_epoch=1,
    )  # fmt: skip
    made = cut(None, raw_spec(), task_of((sst,)), "horizon", slots)  # type: ignore[arg-type]  # no meta is read
    assert asked == [count]
    assert [(part.start, part.end, part.gc_horizon) for part in made] == [(None, None, "horizon")]


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    st.lists(st.sets(st.tuples(st.integers(0, 30), st.integers(1, 6)), min_size=1), min_size=1, max_size=3),
    st.integers(1, 9),
    st.integers(0, 38),
    st.booleans(),
)
def test_parts_together_give_the_output_of_the_task(
    runs: list[set[tuple[int, int]]], count: int, watermark: int, parted: bool
) -> None:
    """The outputs of all parts in order are one sorted run with the same rows, and no key lies in two of them.

    So are those of history, where the task parts rows.
    """
    bucket, system = open_bucket("memory://"), FakeSystem()
    sstables, uploader = Sstables(bucket, 1 << 20, system), Uploader(bucket, system)
    inputs = []
    for number, run in enumerate(runs):
        # Epochs of an older run are lower, as in a table.
        puts = [Put(b"%02d" % key, epoch + 10 * (len(runs) - number), b"v") for key, epoch in run]
        inputs.append(store_run(bucket, sort_puts(puts), block_bytes=40, sst_bytes=200))
    task = replace(task_of(*inputs, watermark=watermark), parted=parted)
    spec = raw_spec(block_bytes=40)

    def rows_of(found: Sequence[SstInfo]) -> tuple[list[Put], list[tuple[Put, int]]]:
        live, past = [sst for sst in found if not sst.until], [sst for sst in found if sst.until]
        assert all(before.largest < after.smallest for ssts in (live, past) for before, after in pairwise(ssts))
        history = []
        for rows in ConcatIterator(sstables, past, ReadRange()):
            puts = to_puts(rows.with_columns([1]))
            history += list(zip(puts, rows.columns[0].to_pylist(), strict=True))
        return [put for rows in ConcatIterator(sstables, live, ReadRange()) for put in to_puts(rows)], history

    whole = execute(sstables, uploader, spec, task, cancelled=lambda: False, sst_bytes=100)
    joined: list[SstInfo] = []
    read = 0
    for low, high in pairwise([None, *borders(sstables, task, count), None]):
        progress = [0]
        joined += execute(
            sstables, uploader, spec, task, cancelled=lambda: False, progress=progress.append, start=low, end=high,
            sst_bytes=100,
        )  # fmt: skip
        read += progress[-1]
    assert rows_of(joined) == rows_of(whole)
    assert read == sum(sst.rows for run in inputs for sst in run)
    uploader.close()
    sstables.close()


# --- Sharing slots -----------------------------------------------------------------------------------------------


def job(task_id: str) -> CompactionJob:
    return CompactionJob(task=task_of(task_id=task_id), spec=raw_spec(), gc_horizon="", oldest_upload="")


def parts_of(owner: CompactionJob, count: int) -> list[TaskPart]:
    return [TaskPart(task=owner.task, spec=owner.spec, start=None, end=None, gc_horizon="") for _ in range(count)]


def test_a_free_slot_goes_to_the_task_with_the_fewest_slots() -> None:
    """A task in many parts keeps no other one waiting for longer than one part takes."""
    jobs, large, small = Jobs(), job("large"), job("small")
    jobs.add(large)
    first = jobs.take()
    assert first is not None
    assert (first.job, first.part) == (large, None)
    assert jobs.take() is None, "nobody else cuts it meanwhile"
    assert jobs.cut(large, parts_of(large, 4)) == 0
    second = jobs.take()
    assert second is not None
    assert (second.job, second.part) == (large, 1)
    jobs.add(small)
    assert not jobs.leave(large)
    third = jobs.take()
    assert third is not None
    assert third.job is small
    jobs.cut(small, parts_of(small, 1))
    assert jobs.leave(small)
    fourth = jobs.take()
    assert fourth is not None
    assert (fourth.job, fourth.part) == (large, 2)


def test_the_last_slot_ends_a_task_and_only_one_does() -> None:
    """A task that fails ends when all slots that work on it have stopped; its other parts are not begun."""
    jobs, broken = Jobs(), job("broken")
    jobs.add(broken)
    jobs.take()
    jobs.cut(broken, parts_of(broken, 5))
    jobs.take()
    broken.error = ValueError("defect")
    assert jobs.take() is None
    assert not jobs.leave(broken)
    assert jobs.leave(broken)
    assert not jobs.may_end(broken)


def test_a_task_in_no_slot_is_ended_by_the_thread_that_stops_it() -> None:
    """Its node lost it while it waited."""
    jobs, waiting = Jobs(), job("waiting")
    jobs.add(waiting)
    assert not jobs.may_end(waiting)
    waiting.lost = True
    assert jobs.may_end(waiting)
    assert jobs.take() is None
