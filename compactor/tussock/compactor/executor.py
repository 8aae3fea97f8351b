"""Executes compaction: reads input runs as streams, merges, parts, writes and uploads the outputs.

Memory is bounded whatever the task's size: what all input runs hold in hand (about 16 MiB together) and read ahead,
one merged batch, and up to four output SSTs being encoded or uploaded, one of them of history. Of those only what is on
its way is in memory where the bucket is a folder, which takes an object while it is made. Inputs are not put into
the block cache: a compaction must not push out what readers use.

A task can be done in parts by key range (`parts.py`), each of them alone, since no user key lies in two: the outputs
of all parts one after the other are the outputs of the task.
"""

from collections.abc import Callable, Iterable, Iterator

import numpy as np
import numpy.typing as npt

from tussock.compactor.freed_memory import FreedMemory
from tussock.compactor.kept_rows import part_rows, unexpired
from tussock.compactor.retention import retained_rows
from tussock.meta.version.version import CompactionTask
from tussock.statestore.contract.records import SstInfo, TableSpec
from tussock.statestore.epochs import epoch_ms
from tussock.statestore.format.expiry import expiry_of
from tussock.statestore.rows.rows import Rows
from tussock.statestore.sst.encoded_sst import EncodedSst
from tussock.statestore.sst.history import EpochMerge, history_range
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
    sst_bytes: int | None = None,
) -> tuple[SstInfo, ...]:
    """Merge the task's inputs; returns the outputs, uploaded and not yet in any version.

    Those of the live tree are a sorted run, and so are those of history, which have an `until`.

    Args:
        sstables: reads the inputs.
        uploader: takes the outputs.
        spec: the table.
        task: what to merge, and with which watermark.
        cancelled: asked between batches; once it says yes, `CompactionCancelled` is raised.
        progress: told between batches how many rows have been read so far.
        start: only keys from this one on.
        end: only keys before this one.
        sst_bytes: size of an output before compression; `None`: the one of commits.

    Raises `CorruptSst` if an input is damaged; the version is not touched in any case.
    """
    # Inputs from before the table was altered become rows of its present columns here, if they are merged at all.
    want = ReadRange(start=start, end=end, fill=False, types=value_schema(spec).types).shared_by(len(task.inputs))
    limits = sstables.limits

    def writer(*, history: bool) -> SstWriter:
        return SstWriter(
            spec,
            sst_bytes=limits.sst_bytes if sst_bytes is None else sst_bytes,
            epoch_inherited=False,
            one_object_bytes=limits.one_object_bytes,
            whole_filter_bytes=limits.whole_filter_bytes,
            history=history,
            grow=uploader.grow,
            hand_on_bytes=limits.hand_on_bytes,
        )

    if task.kind == "history":
        past = [ConcatIterator(sstables, run, history_range(want)) for run in task.inputs]
        steps = _steps(EpochMerge(None, past), task, cancelled, progress)
        return uploader.upload(writer(history=True).write(_unexpired(steps, task)))
    merged = MergeIterator([ConcatIterator(sstables, run, want) for run in task.inputs], limits=sstables.limits)
    steps = _steps(merged, task, cancelled, progress)
    if task.parted:
        return uploader.upload(_part(steps, task, spec, writer(history=False), writer(history=True)))
    return uploader.upload(writer(history=False).write(_retain(steps, task, spec)))


Step = tuple[Rows, tuple[bytes, int] | None]
"""A merged batch, with the key and the epoch of the row right before it."""


def _steps(
    merged: Iterable[Rows], task: CompactionTask, cancelled: Callable[[], bool], progress: Callable[[int], None]
) -> Iterator[Step]:
    read = 0
    before: tuple[bytes, int] | None = None
    freed = FreedMemory()
    for rows in merged:
        if cancelled():
            raise CompactionCancelled(f"compaction task {task.id} was cancelled")
        yield rows, before
        last = len(rows) - 1
        before = rows.key(last), rows.epoch(last)
        read += len(rows)
        freed.note(rows.nbytes)
        progress(read)


def _retain(steps: Iterator[Step], task: CompactionTask, spec: TableSpec) -> Iterator[Rows]:
    for rows, before in steps:
        expired = _expired(rows, task, spec)
        kept = retained_rows(rows, task.watermark, bottom=task.bottom, before=before, expired=expired)
        if len(kept):
            yield kept


def _part(
    steps: Iterator[Step], task: CompactionTask, spec: TableSpec, live: SstWriter, history: SstWriter
) -> Iterator[EncodedSst]:
    """The SSTs of both sorted runs, as they get full."""
    for rows, before in steps:
        expired = _expired(rows, task, spec)
        parted = part_rows(rows, task.watermark, bottom=task.bottom, before=before, expired=expired)
        yield from live.add(parted.live)
        yield from history.add(parted.history)
    yield from live.end()
    yield from history.end()


def _expired(rows: Rows, task: CompactionTask, spec: TableSpec) -> npt.NDArray[np.bool_] | None:
    """Which rows no reader sees any more, as their time to live is over at the watermark; `None`: it may be none."""
    expiry = expiry_of(spec) if task.bottom else None
    return None if expiry is None else expiry.marks(rows, epoch_ms(task.watermark), expiry.column)


def _unexpired(steps: Iterator[Step], task: CompactionTask) -> Iterator[Rows]:
    for rows, before in steps:
        kept = unexpired(rows, task.watermark, before=before)
        if len(kept):
            yield kept
