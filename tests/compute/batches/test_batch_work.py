"""The notes of a commit about its batch, and what a listener reads of them; without Spark's processes."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StructType

from tussock.compute.spark import TussockDataSource
from tussock.compute.spark.batches.batch_work import BatchWork, batch_work, commit_batch, is_committed
from tussock.compute.spark.batches.commits import latest_commit
from tussock.compute.spark.batches.identity import MicroBatch
from tussock.compute.spark.batches.notes import NOTES_FOLDER
from tussock.compute.spark.batches.task_times import Meter, TimeSpent
from tussock.compute.spark.state.plan import Report
from tussock.statestore import connect
from tussock.statestore.client import StateStore
from tussock.statestore.contract.records import stored_bytes

QUERY = "5f0a2c1e-7a6b-4c55-9d2a-0d3a2b1c4e5f"
ROWS = StructType().add("id", LongType(), nullable=False).add("v", LongType())


@pytest.fixture
def numbers(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StateStore]:
    """A store with a table of {id, v}, and a folder for notes."""
    (tmp_path / "notes").mkdir()
    monkeypatch.setenv(NOTES_FOLDER, str(tmp_path / "notes"))
    with connect(url, compaction=False) as opened:
        opened.create_table("t", schema=pa.schema([("id", pa.int64()), ("v", pa.int64())]), primary_key=["id"])
        yield opened


def batch_of(rows: int) -> pa.RecordBatch:
    return pa.record_batch({"id": pa.array(range(rows), pa.int64()), "v": pa.array(range(rows), pa.int64())})


def test_a_sink_notes_its_commit_and_a_repetition(numbers: StateStore, url: str) -> None:
    """In complete mode reads and deletes count, too; a repeated batch has its epoch and nothing else."""
    source = TussockDataSource({"store": url, "table": "t"})
    for batch_id, rows in enumerate((50, 20)):
        sink = source.streamWriter(ROWS, overwrite=True)
        answer = sink.write(iter([batch_of(rows)]))
        assert answer.spent.encode > 0
        assert answer.spent.upload > 0
        answer.query_id = QUERY
        sink.commit([answer], batch_id)
        work = batch_work(QUERY, batch_id)
        assert work is not None
        numbers.version()
        assert work.epoch == numbers.committed_epoch
        # The driver deletes the rows of the batch before, which counts as a second task.
        assert (work.rows, work.tasks, work.repeated) == (rows + 50 * batch_id, 2, False)
        assert work.spent.read > 0
        assert 0 < work.slowest.total <= work.spent.total
        assert work.commit > 0
    source.streamWriter(ROWS, overwrite=True).commit([answer], 1)
    assert batch_work(QUERY, 1) == BatchWork(work.epoch, repeated=True)
    known = latest_commit()
    assert known is not None
    assert known[:3] == (QUERY, 1, work.epoch)


def test_commits_of_one_batch_are_added_and_old_notes_are_deleted(numbers: StateStore, tmp_path: Path) -> None:
    """Two writers in one function of `foreachBatch` are added; the number of notes stays small in a long stream."""
    spent = {
        "first": [TimeSpent(1.0, 0.0, 2.0, 0.5), TimeSpent(0.0, 0.0, 1.0, 4.0)],
        "second": [TimeSpent(0.0, 8.0, 0.25, 0.0)],
    }
    sizes, epochs = [], []
    for writer, tasks in spent.items():
        runs = numbers.table("t").upload([batch_of(30)])
        sizes.append(sum(stored_bytes(sst) for run in runs for sst in run.ssts))
        epochs.append(commit_batch(numbers, MicroBatch(writer, 3, QUERY), {"t": runs}, tasks))
    work = batch_work(QUERY, 3)
    assert work is not None
    assert (work.epoch, work.rows, work.bytes, work.tasks) == (epochs[1], 60, sum(sizes), 3)
    assert work.spent == TimeSpent(1.0, 8.0, 3.25, 4.5)
    assert work.slowest == TimeSpent(0.0, 8.0, 0.25, 0.0)
    assert not work.repeated
    assert is_committed(numbers, MicroBatch("second", 3, QUERY)) == epochs[1]
    half = batch_work(QUERY, 3)
    assert half is not None
    assert (half.repeated, half.rows, half.tasks) == (True, 30, 2)
    for batch_id in range(4, 80):
        commit_batch(numbers, MicroBatch("first", batch_id, QUERY), {}, [])
    assert batch_work(QUERY, 15) is None
    assert len(list((tmp_path / "notes").glob("*.work"))) == 64 + 1
    assert batch_work(QUERY, 4_000) is None


def test_without_a_query_nothing_is_noted_for_listeners(numbers: StateStore, tmp_path: Path) -> None:
    """A batch that a program numbers itself belongs to no stream."""
    commit_batch(numbers, MicroBatch("job", 1, None), {"t": numbers.table("t").upload([batch_of(1)])}, [TimeSpent()])
    assert list((tmp_path / "notes").glob("*.work")) == []


def test_times_are_added_by_step() -> None:
    """The total of several tasks is the sum of each task's total; it survives the way to the driver."""
    parts = [TimeSpent(1.0, 2.0, 3.0, 4.0), TimeSpent(0.5, 0.0, 0.25, 0.125)]
    assert TimeSpent.sum(parts) == TimeSpent(1.5, 2.0, 3.25, 4.125)
    assert TimeSpent.sum(parts).total == sum(part.total for part in parts)
    assert TimeSpent.sum([]) == TimeSpent()
    report = Report(3, {}, 7, parts[0])
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(report), type=Report) == report


def test_the_steps_of_a_task_are_its_time_without_its_waits_for_rows() -> None:
    """All time but reads, calls and waits for the bucket counts as encoding."""
    meter = Meter()
    for _ in meter.rows([1, 2, 3]):
        with meter.reading():
            sum(range(20_000))
        with meter.calling():
            sum(range(20_000))
    before = meter.spent()
    assert before.read > 0
    assert before.function > 0
    assert before.encode > 0
    meter.add_wait(0.0)
    after = meter.spent()
    assert (after.read, after.function, after.upload) == (before.read, before.function, 0.0)
    assert after.encode >= before.encode
