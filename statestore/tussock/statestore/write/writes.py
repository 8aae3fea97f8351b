"""How rows leave a client: into the shared buffer, and as SSTs into the bucket (cf. Hummock's uploader).

Tables write and upload through it, commits and checkpoints upload what an epoch holds.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec
import pyarrow as pa

from tussock.statestore.base.process.lifetime import Lifetime
from tussock.statestore.base.system import System
from tussock.statestore.contract.backend import Backend
from tussock.statestore.contract.records import Run, TableSpec, UploadedRun
from tussock.statestore.errors import ObjectNotFound, StaleUpload, TableNotFound
from tussock.statestore.rows.row_codec import Row
from tussock.statestore.rows.rows import Rows
from tussock.statestore.rows.wider_types import with_types
from tussock.statestore.settings import StoreSettings
from tussock.statestore.sst.iterators import ConcatIterator, ReadRange
from tussock.statestore.sst.merge import MergeIterator, newest_versions
from tussock.statestore.sst.reader import Sstables
from tussock.statestore.sst.writer import SstWriter, value_schema
from tussock.statestore.write.buffered_run import BufferedRun, neighbours
from tussock.statestore.write.epoch_buffer import EpochBuffer
from tussock.statestore.write.loose_rows import EncodeRows, loose_sizes
from tussock.statestore.write.shared_buffer import SharedBuffer
from tussock.statestore.write.sorted_runs import in_batches, sorted_runs
from tussock.statestore.write.sst_ids import id_floor
from tussock.statestore.write.uploader import Payloads, Uploader

__all__ = ["UNCOMMITTED_EPOCH", "Writes"]

UNCOMMITTED_EPOCH = 1
"""Stands for the epoch of SSTs that are uploaded before their epoch is known; the commit replaces it."""


class Writes:
    """The uncommitted rows of an open store, and their uploads. Safe to use from several threads."""

    def __init__(
        self,
        lifetime: Lifetime,
        settings: StoreSettings,
        system: System,
        backend: Backend,
        sstables: Sstables,
        uploader: Uploader,
        host: SharedBuffer | None = None,
    ) -> None:
        """`sstables` reads spilled rows back; `host` is the store's buffer, if this one is beside it."""
        self.buffer = SharedBuffer(system, settings.limits)
        self.uploader = uploader
        if host is None:
            backend.protect(self.buffer.uploads)
        else:
            host.add_guest(self.buffer)
        self._host = host
        self._settings = settings
        self._lifetime = lifetime
        self._buffer_bytes = settings.buffer_bytes
        self._limits = settings.limits
        self._system = system
        self._backend = backend
        self._sstables = sstables
        self._spilling = system.lock()

    def beside(self) -> "Writes":
        """The same with a buffer that only its user sees; vacuum leaves its uploads alone, too, until `end_beside`."""
        return Writes(
            self._lifetime, self._settings, self._system, self._backend, self._sstables, self.uploader, self.buffer
        )

    def end_beside(self) -> None:
        """The rows of a buffer that was made by `beside` are committed or given up."""
        if self._host is not None:
            self._host.remove_guest(self.buffer)

    def write(self, table: int, epoch: int, rows: Rows) -> None:
        """Buffer a sorted run of unique keys, after spilling others if the buffer would be over its bytes with it.

        Room is made first, so that a spill that fails refuses these rows whole. A run larger than the buffer is held
        beside it until the next write or its commit.
        """
        self._lifetime.check_usable()
        self.buffer.check_open(epoch)
        rows = rows.trim()
        self._make_room(rows.nbytes)
        self.buffer.add(table, epoch, rows)

    def write_alone(
        self, table: int, epoch: int, written: Sequence[tuple[bytes, Row | None]], encode: EncodeRows
    ) -> bool:
        """The same for a few rows, or deletes, as they were given; of several with one key the last wins.

        `encode` makes a run of them, once something needs one. Returns `False` for rows too large to be kept so, or
        with a key that is too long: nothing was stored, and what takes batches takes or refuses them.
        """
        self._lifetime.check_usable()
        sizes = loose_sizes(written)
        if sizes is None:
            return False
        size = sum(sizes)
        self._make_room(size)
        self.buffer.add_alone(table, epoch, written, size, encode)
        return True

    def _make_room(self, nbytes: int) -> None:
        while self.buffer.nbytes and self.buffer.nbytes + nbytes > self._buffer_bytes:
            # One thread spills, so that no run is uploaded twice; the others wait, which is what a full buffer asks of
            # writers anyway.
            with self._spilling:
                # Rows for a table that was dropped have nowhere to go; they wait for their commit to be refused.
                candidate = self.buffer.spill_candidate(self._backend.version().tables)
                if candidate is None:
                    break
                spilled_table, spilled_epoch, runs = candidate
                stored = self._upload(spilled_table, spilled_epoch, [run.block.rows for run in runs if run.block])
                self.buffer.replace_by_ssts(spilled_table, spilled_epoch, runs, stored)

    def upload_rows(
        self, spec: TableSpec, parts: Iterator[Rows], waited: Callable[[float], object] | None = None
    ) -> list[UploadedRun]:
        """Write rows in any order straight to uncommitted SSTs, past the shared buffer; the sorted runs, newest first.

        A run is cut when `buffer_bytes` of rows are collected: rows that come later win, in a newer run. `waited` is
        told the seconds that went by waiting for the bucket.
        """
        self._lifetime.check_usable()
        runs: list[UploadedRun] = []
        for rows in sorted_runs(parts, self._buffer_bytes):
            run = self._upload_run(spec, rows, UNCOMMITTED_EPOCH, waited=waited)
            runs.insert(0, UploadedRun(ssts=run.ssts, table_id=spec.id, table=spec.name))
        return runs

    def upload_epoch(self, buffer: EpochBuffer, *, payload_bytes_max: int = 0) -> dict[int, tuple[Run, ...]]:
        """Upload what of a sealed epoch is still in memory; per table its sorted runs, newest first.

        Small SSTs, of at most `payload_bytes_max` bytes, go into the buffer's payloads while there is room.
        """
        payloads = Payloads(buffer.payloads, payload_bytes_max, self._limits.commit_payload_bytes)
        for table, runs in buffer.runs.items():
            if table not in buffer.uploaded:
                stored: list[Run] = []
                for some in neighbours(runs):
                    stored += (run.spilled_to for run in some if run.spilled_to is not None)
                    if fresh := [run.block.rows for run in some if run.block is not None]:
                        stored.append(self._upload(table, buffer.epoch, fresh, payloads))
                buffer.uploaded[table] = tuple(stored)
        return buffer.uploaded

    def renew_uploads(self, buffer: EpochBuffer) -> None:
        """Upload a sealed epoch's rows under new ids: the old ones are so old that vacuum may take them.

        Spilled rows are read back from their old SSTs; `StaleUpload` if vacuum was faster.
        """
        buffer.uploaded.clear()
        buffer.payloads.clear()
        for table, runs in buffer.runs.items():
            for run in runs:
                if run.spilled_to is None:
                    continue
                spec = self._spec(table, buffer.epoch)
                try:
                    stored = self._upload_run(spec, self._spilled_rows(spec, run.spilled_to), buffer.epoch)
                except ObjectNotFound as error:
                    raise StaleUpload(
                        f"epoch {buffer.epoch}: rows that were spilled to {error} are gone; abort the epoch and write "
                        "it again, with a longer gc_grace or a larger buffer_bytes"
                    ) from error
                self.buffer.replace_by_ssts(table, buffer.epoch, (run,), stored)

    def rows_of(self, table: int, run: BufferedRun) -> Iterator[Rows]:
        """The rows of a buffered run, read back from the SSTs that it was spilled to."""
        if run.block is not None:
            yield run.block.rows
        elif run.spilled_to is not None:
            yield from self._spilled_rows(self._spec(table, run.epoch), run.spilled_to)

    def keys_of(self, run: BufferedRun) -> Iterator[pa.BinaryArray]:
        """The keys of a buffered run alone, for which no value is decoded."""
        if run.block is not None:
            yield run.block.rows.keys
        elif run.spilled_to is not None:
            want = ReadRange(fill=False, columns=(), types=())
            yield from (rows.keys for rows in ConcatIterator(self._sstables, run.spilled_to.ssts, want))

    def _spilled_rows(self, spec: TableSpec, run: Run) -> Iterator[Rows]:
        return iter(ConcatIterator(self._sstables, run.ssts, ReadRange(fill=False, types=value_schema(spec).types)))

    def _spec(self, table: int, epoch: int) -> TableSpec:
        state = self._backend.version().tables.get(table)
        if state is None:
            raise TableNotFound(f"table with id {table} was dropped while epoch {epoch} held rows for it", table)
        return state.spec

    def _upload(
        self,
        table: int,
        epoch: int,
        runs: list[Rows],
        payloads: Payloads | None = None,
    ) -> Run:
        spec = self._spec(table, epoch)
        # Rows that were written before the table was altered join those after it.
        types = value_schema(spec).types
        merged: Iterable[Rows]
        if len(runs) == 1:
            # As each run is, it is sorted and has a key once.
            merged = [with_types(runs[0], types)]
        else:
            sources = [[with_types(run, types)] for run in runs]
            merged = newest_versions(MergeIterator(sources, limits=self._limits), None)
        batches = (batch for rows in merged for batch in in_batches(rows.with_epochs(epoch)))
        return self._upload_run(spec, batches, epoch, payloads)

    def _upload_run(
        self,
        spec: TableSpec,
        batches: Iterable[Rows],
        epoch: int,
        payloads: Payloads | None = None,
        waited: Callable[[float], object] | None = None,
    ) -> Run:
        self.buffer.note_upload(epoch, id_floor(self._system.now_ms()))
        limits = self._limits
        writer = SstWriter(
            spec,
            sst_bytes=limits.sst_bytes,
            epoch_inherited=True,
            one_object_bytes=limits.one_object_bytes,
            whole_filter_bytes=limits.whole_filter_bytes,
        )
        infos = self.uploader.upload(writer.write(batches), payloads, waited)
        return Run(
            ssts=tuple(msgspec.structs.replace(sst, epoch=epoch, min_epoch=epoch, max_epoch=epoch) for sst in infos)
        )
