"""Executes compaction: reads input runs as streams, merges, filters, writes and uploads the outputs.

Memory is bounded whatever the task's size: what all input runs hold in hand (about 16 MiB together) and read ahead,
one merged batch, and up to three output SSTs being encoded or uploaded. Inputs are not put into the block cache: a
compaction must not push out what readers use.

A task can be done in parts by key range (`parts.py`), each of them alone, since no user key lies in two: the outputs
of all parts one after the other are the outputs of the task.
"""

from collections.abc import Callable, Iterator

from tussock.compactor.retention import retained_rows
from tussock.meta.version.version import CompactionTask
from tussock.statestore.contract.records import SstInfo, TableSpec
from tussock.statestore.rows.rows import Rows
from tussock.statestore.sst.iterators import ConcatIterator, MergeIterator, ReadRange
from tussock.statestore.sst.reader import Sstables
from tussock.statestore.sst.writer import SstWriter, value_schema
from tussock.statestore.write.uploader import Uploader

__all__ = ["OUTPUT_SST_BYTES", "CompactionCancelled", "execute"]

OUTPUT_SST_BYTES = 64 << 20
"""Size of an output SST before compression."""


class CompactionCancelled(Exception):
    """The task was stopped from outside; its outputs so far are garbage."""


def execute(
    sstables: Sstables,
    uploader: Uploader,
    spec: TableSpec,
    task: CompactionTask,
    *,
    cancelled: Callable[[], bool],
    progress: Callable[[int], None] = lambda _: None,
    start: bytes | None = None,
    end: bytes | None = None,
    sst_bytes: int = OUTPUT_SST_BYTES,
) -> tuple[SstInfo, ...]:
    """Merge the task's inputs; returns the outputs, a sorted run, uploaded and not yet in any version.

    Args:
        sstables: reads the inputs.
        uploader: takes the outputs.
        spec: the table.
        task: what to merge, and with which watermark.
        cancelled: asked between batches; once it says yes, `CompactionCancelled` is raised.
        progress: told between batches how many rows have been read so far.
        start: only keys from this one on.
        end: only keys before this one.
        sst_bytes: size of an output before compression.

    Raises `CorruptSst` if an input is damaged; the version is not touched in any case.
    """
    # Inputs from before the table was altered become rows of its present columns here, if they are merged at all.
    want = ReadRange(start=start, end=end, fill=False, types=value_schema(spec).types).shared_by(len(task.inputs))
    merged = MergeIterator([ConcatIterator(sstables, run, want) for run in task.inputs], limits=sstables.limits)
    one_object_bytes = sstables.limits.one_object_bytes
    writer = SstWriter(spec, sst_bytes=sst_bytes, epoch_inherited=False, one_object_bytes=one_object_bytes)
    return uploader.upload(writer.write(_retain(merged, task, cancelled, progress)))


def _retain(
    merged: MergeIterator, task: CompactionTask, cancelled: Callable[[], bool], progress: Callable[[int], None]
) -> Iterator[Rows]:
    read = 0
    before: tuple[bytes, int] | None = None
    for rows in merged:
        if cancelled():
            raise CompactionCancelled(f"compaction task {task.id} was cancelled")
        kept = retained_rows(rows, task.watermark, bottom=task.bottom, before=before)
        if len(kept):
            yield kept
        last = len(rows) - 1
        before = rows.key(last), rows.epoch(last)
        read += len(rows)
        progress(read)
