"""The commit of a micro-batch, and what it cost, for listeners of its query: a note left by the process that commits.

The notes lie beside those of `commits`, one per batch and writer; new ones of a query replace its old ones.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

import msgspec

from tussock.compute.spark.batches.commits import note_commit
from tussock.compute.spark.batches.identity import MicroBatch, check_tables_kept, claim, release
from tussock.compute.spark.batches.notes import leave_note, notes_folder, read_note
from tussock.compute.spark.batches.task_times import TimeSpent
from tussock.statestore.base.system import RealSystem
from tussock.statestore.client import StateStore
from tussock.statestore.contract.records import UploadedRun, stored_bytes

__all__ = ["BatchWork", "batch_work", "commit_batch", "is_committed", "noted_commit"]

_KEPT = 64
"""Batches of a query whose notes are kept: more than a listener normally falls behind."""


class BatchWork(msgspec.Struct, frozen=True):
    """What one micro-batch wrote, by one commit or several."""

    epoch: int
    repeated: bool = False
    """It was in the store already: nothing was committed now, and the cost of its commit is no longer known."""
    rows: int = 0
    """Rows and deletes in the SSTs: those with the same key count once per task."""
    bytes: int = 0
    """Size of the SSTs in the bucket."""
    tasks: int = 0
    spent: TimeSpent = TimeSpent()
    """All tasks together."""
    slowest: TimeSpent = TimeSpent()
    """The slowest task."""
    commit: float = 0.0
    """Seconds until the epoch was in the store, including waits for compaction."""


def is_committed(store: StateStore, batch: MicroBatch) -> int | None:
    """The epoch of a batch that is in the store already, which leaves a note; otherwise `None`.

    Raises `Fenced` if something else is there: a batch of another source, of other tables, or of another call of the
    same function of `foreachBatch`.
    """
    epoch = store.committed_batch(batch.writer, batch.batch_id, source=batch.source)
    if epoch is None and batch.earlier is not None:
        epoch = store.committed_batch(batch.earlier, batch.batch_id)
    if epoch is None:
        check_tables_kept(store, batch)
    else:
        claim(store.url, batch)
        _note(store, batch, BatchWork(epoch, repeated=True))
    return epoch


def commit_batch(
    store: StateStore,
    batch: MicroBatch,
    uploads: Mapping[str, list[UploadedRun]],
    spent: Sequence[TimeSpent],
    expect: Mapping[str, int] | None = None,
) -> int:
    """Commit what tasks uploaded, and note the cost; `spent` has one entry per task. Raises like `commit_uploaded`."""

    def commit() -> int:
        return store.commit_uploaded(
            uploads, writer=batch.writer, batch_id=batch.batch_id, source=batch.source, expect=expect
        )

    return noted_commit(store, batch, uploads, spent, commit)


def noted_commit(
    store: StateStore,
    batch: MicroBatch,
    uploads: Mapping[str, Sequence[UploadedRun]],
    spent: Sequence[TimeSpent],
    commit: Callable[[], int],
) -> int:
    """Run the commit of a batch, and note the cost; returns its epoch, and raises what it raises."""
    now = RealSystem().monotonic
    began = now()
    claim(store.url, batch)
    try:
        epoch = commit()
    except BaseException:
        release(store.url, batch)
        raise
    took = now() - began
    ssts = [sst for runs in uploads.values() for run in runs for sst in run.ssts]
    work = BatchWork(
        epoch,
        rows=sum(sst.rows for sst in ssts),
        bytes=sum(map(stored_bytes, ssts)),
        tasks=len(spent),
        spent=TimeSpent.sum(spent),
        slowest=max(spent, key=lambda task: task.total, default=TimeSpent()),
        commit=took,
    )
    _note(store, batch, work)
    return epoch


def batch_work(query: str, batch_id: int) -> BatchWork | None:
    """The note on a query's batch; `None` if it did not write to a store, or if there is no folder for notes."""
    folder = notes_folder()
    paths = folder.glob(f"{query}-{batch_id}-*.work") if folder is not None else ()
    found = [work for path in paths if (work := read_note(path, BatchWork)) is not None]
    if len(found) < 2:
        return found[0] if found else None
    return BatchWork(
        max(work.epoch for work in found),
        any(work.repeated for work in found),
        sum(work.rows for work in found),
        sum(work.bytes for work in found),
        sum(work.tasks for work in found),
        TimeSpent.sum([work.spent for work in found]),
        max((work.slowest for work in found), key=lambda task: task.total),
        sum(work.commit for work in found),
    )


def _note(store: StateStore, batch: MicroBatch, work: BatchWork) -> None:
    """Leave a note for listeners and for the driver's watch. Never fails: the commit has succeeded."""
    note_commit(batch.writer, batch.batch_id, work.epoch)
    folder = notes_folder()
    if folder is None or batch.query is None:
        return
    # One function of `foreachBatch` may write to several stores, and under several writers.
    whose = hashlib.sha256(f"{batch.writer}\0{store.url}".encode()).hexdigest()[:16]
    path = folder / f"{batch.query}-{batch.batch_id}-{whose}.work"
    if leave_note(path, work, query=batch.query, batch=batch.batch_id):
        with suppress(OSError):
            (folder / f"{batch.query}-{batch.batch_id - _KEPT}-{whose}.work").unlink()
