"""What the tables, snapshots and the client of one store share: version, caches, shared buffer, uploads.

`StateStore` is the face of it; `RawTable` and `TypedTable` read and write through it.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

import msgspec

from tussock.statestore.base.forks import close_in_child
from tussock.statestore.base.identity import Access
from tussock.statestore.base.limits import DEFAULT_LIMITS, Limits
from tussock.statestore.base.logs import get_logger
from tussock.statestore.base.system import System
from tussock.statestore.buckets.request_counter import RequestCounts
from tussock.statestore.contract.backend import Backend, VersionView
from tussock.statestore.contract.known_tables import KnownTables
from tussock.statestore.contract.object_store import ObjectStore
from tussock.statestore.contract.readable import check_unpinned, expired
from tussock.statestore.contract.records import Run, TableSpec, TableState, UploadedRun, data_object
from tussock.statestore.errors import (
    CorruptSst,
    InvalidOption,
    MetaUnavailable,
    ObjectNotFound,
    ObjectStoreUnavailable,
    SnapshotExpired,
    StaleUpload,
    StoreClosed,
    TableNotFound,
)
from tussock.statestore.rows.rows import Rows
from tussock.statestore.rows.wider_types import with_types
from tussock.statestore.sst.iterators import ConcatIterator, ReadRange
from tussock.statestore.sst.lookup import RunIndex
from tussock.statestore.sst.merge import MergeIterator, newest_versions
from tussock.statestore.sst.reader import Sstables
from tussock.statestore.sst.writer import SstWriter, value_schema
from tussock.statestore.write.shared_buffer import EpochBuffer, SharedBuffer
from tussock.statestore.write.sorted_runs import in_batches, sorted_runs
from tussock.statestore.write.sst_ids import id_floor
from tussock.statestore.write.uploader import Uploader

__all__ = ["Core", "Settings", "TableView"]

log = get_logger("tussock.statestore.core")

T = TypeVar("T")

UNCOMMITTED_EPOCH = 1
"""Stands for the epoch of SSTs that are uploaded before their epoch is known; the commit replaces it."""

_PAUSE_SECONDS = 0.2
"""Between two attempts to learn of a version."""

_MISSING_RETRIES = 20
"""Versions that one read may try: a slow process under a grace period of seconds needs more than a few."""


@dataclass(frozen=True)
class Settings:
    """The options of `connect`, checked; seconds and bytes. `None`: what the store says."""

    url: str
    retention: float | None = None
    gc_grace: float | None = None
    cache_bytes: int = 256 << 20
    buffer_bytes: int = 64 << 20
    deadline: float = 30.0
    compaction: bool = True
    access: Access = field(default_factory=Access)
    """What is shown to a meta service."""
    max_clock_ahead: float = 3600.0
    limits: Limits = DEFAULT_LIMITS


class TableView(NamedTuple):
    """One table in one version, prepared for reading."""

    version: VersionView
    state: TableState
    runs: list[RunIndex]


class Core:
    """The parts of an open store, and the few procedures that tables and client have in common."""

    def __init__(
        self,
        settings: Settings,
        system: System,
        bucket: ObjectStore,
        requests: RequestCounts,
        sstables: Sstables,
        backend: Backend,
    ) -> None:
        self.settings = settings
        self.system = system
        self.bucket = bucket
        self.sstables = sstables
        self.backend = backend
        self.requests = requests
        self.uploader = Uploader(requests.for_caller("flush"), system, backend.upload_horizon)
        self.buffer = SharedBuffer(system, settings.limits)
        backend.protect(self.buffer.uploads)
        self._spilling = system.lock()
        self._views: dict[int, TableView] = {}
        self.known = KnownTables()
        self.closed = False
        self._process = os.getpid()
        close_in_child(self)

    def __reduce__(self) -> str:
        raise InvalidOption(
            f"the store at {self.settings.url} cannot be pickled or copied, nor can its tables and snapshots: they "
            "belong to this process; pass the URL on and connect there"
        )

    @property
    def is_inherited(self) -> bool:
        """Whether the store was opened before this process was forked off; its pins and threads are the parent's."""
        return self.closed and os.getpid() != self._process

    def check_process(self) -> None:
        """Raise `StoreClosed` in a process that was forked after the store was opened, before it waits for a lock."""
        if self.is_inherited:
            self.check_usable()

    def check_usable(self) -> None:
        """Raise `StoreClosed` after `close`, and in a process that was forked after the store was opened."""
        if self.closed:
            what = "was closed" if os.getpid() == self._process else "was opened before this process was forked off"
            raise StoreClosed(f"the store at {self.settings.url} {what}; connect again")

    def refresh(self) -> VersionView:
        """The newest version there is."""
        self.check_usable()
        return self.backend.refresh()

    def view(self, table: int, name: str, unpinned: int | None = None, *, pinned: bool = False) -> TableView:
        """The table in a recent version; `TableNotFound` if it was dropped, and no pin needs it or `pinned` is false.

        `unpinned` is the epoch that will be read without a pin: `SnapshotExpired` if that version may have lost some
        of it. A read has to stay on the view that it got: in a newer version compaction may have gone past the epoch.
        """
        if self.closed:
            self.check_usable()
        version = self.backend.recent()
        view = self._views.get(table)
        if view is None or view.version is not version:
            state = version.tables.get(table)
            if state is None:
                self._views.pop(table, None)
                gone = version.gone.get(table) if pinned else None
                if gone is None:
                    raise TableNotFound(f"table {name!r} was dropped from the store at {self.settings.url}", name)
                return TableView(version, gone.state, [RunIndex(run) for run in gone.state.levels.runs()])
            if view is not None and view.state.levels is state.levels:
                view = TableView(version, state, view.runs)
            else:
                known = {id(index.source): index for index in view.runs} if view is not None else {}
                # A run that a commit or a compaction left alone is the very same object.
                runs = [known.get(id(run)) or RunIndex(run) for run in state.levels.runs()]
                view = TableView(version, state, runs)
            self._views[table] = view
        if unpinned is not None:
            check_unpinned(version, unpinned)
        return view

    def check_readable(self, epoch: int, *, pinned: bool) -> None:
        """Make sure that `epoch` can be read: known here, and still kept unless a pin keeps it."""
        if epoch > self.backend.version().max_committed_epoch:
            self.refresh()
        if not pinned:
            oldest = self.backend.oldest_readable()
            if epoch < oldest:
                raise expired(epoch, oldest)

    def check_committed(self, table: str, until: int) -> int:
        """The newest committed epoch; `InvalidOption` if changes of a table up to `until` would miss some to come."""
        newest = self.backend.recent().max_committed_epoch
        if until > newest:
            newest = self.refresh().max_committed_epoch
        if until > newest:
            raise InvalidOption(
                f"table {table!r}: changes up to epoch {until}: the newest committed epoch is {newest}, and what is "
                "committed until then would be missing; wait_epoch() for it first"
            )
        return newest

    def await_epoch(self, epoch: int) -> None:
        """Return when the version here has the epoch, however long the service or the bucket is away."""
        pause = _PAUSE_SECONDS / 32
        while self.backend.version().max_committed_epoch < epoch:
            try:
                if self.refresh().max_committed_epoch >= epoch:
                    return
            except (MetaUnavailable, ObjectStoreUnavailable) as error:
                log.warning("a version is waited for", epoch=epoch, error=str(error))
                pause = _PAUSE_SECONDS
            self.system.sleep(pause)
            pause = min(2 * pause, _PAUSE_SECONDS)

    def resilient(self, read: Callable[[], T], epoch: int | None, *, pinned: bool) -> T:
        """Run a read; if an SST has gone since its version, do it again on the newest version.

        Compaction and vacuum may have replaced what an old version names. If the newest version still names a
        missing object, it was lost: `CorruptSst`. `SnapshotExpired` if versions go faster than they can be read.
        """
        for attempt in range(1, _MISSING_RETRIES + 1):
            before = self.backend.version()
            try:
                return read()
            except ObjectNotFound as error:
                self.refresh_after(error, before)
                if attempt == _MISSING_RETRIES:
                    raise SnapshotExpired(
                        f"{error}; so it was with {attempt} versions in a row: vacuum deletes what is still read, so "
                        "raise gc_grace, or pin a snapshot and read there"
                    ) from error
                if epoch is not None:
                    self.check_readable(epoch, pinned=pinned)
        raise AssertionError("unreachable: the last attempt returns or raises")

    def refresh_after(self, error: ObjectNotFound, version: VersionView) -> None:
        """Learn of the newest version, as an object of `version` has gone; raises if that names it, too, as `lost`."""
        if self.refresh() is version and (lost := self.lost(error)):
            raise lost from error

    def lost(self, error: ObjectNotFound) -> CorruptSst | StaleUpload | None:
        """The error for an object that the newest version, or the shared buffer, names and the bucket does not have.

        `None` if neither does: own rows that were spilled to it were given up, or committed, while they were read, so
        the read can be done again.
        """
        if any(sst_id in str(error) for sst_id in self.buffer.spilled_ids()):
            return StaleUpload(
                f"{error}; uncommitted rows were spilled to it, and vacuum took it for garbage: abort the epoch and "
                "write it again, with a longer gc_grace or a larger buffer_bytes"
            )
        version = self.backend.version()
        states = [*version.tables.values(), *(gone.state for gone in version.gone.values())]
        ssts = [sst for state in states for sst in state.levels.ssts()]
        if any((data_object(sst) if sst.entry else sst.id) in str(error) for sst in ssts):
            return CorruptSst(f"{error}; the newest version names it, so it was deleted by someone else: restore it")
        return None

    def write(self, table: int, epoch: int, rows: Rows) -> None:
        """Buffer a sorted run of unique keys, after spilling others if the buffer would be over its bytes with it.

        Room is made first, so that a spill that fails refuses these rows whole. A run larger than the buffer is held
        beside it until the next write or its commit.
        """
        self.check_usable()
        self.buffer.check_open(epoch)
        rows = rows.owned()
        while self.buffer.nbytes and self.buffer.nbytes + rows.nbytes > self.settings.buffer_bytes:
            # One thread spills, so that no run is uploaded twice; the others wait, which is what a full buffer asks of
            # writers anyway.
            with self._spilling:
                # Rows for a table that was dropped have nowhere to go; they wait for their commit to be refused.
                candidate = self.buffer.spill_candidate(self.backend.version().tables)
                if candidate is None:
                    break
                spilled_table, spilled_epoch, runs = candidate
                level = self._upload(spilled_table, spilled_epoch, [run.block.rows for run in runs if run.block])
                self.buffer.spilled(spilled_table, spilled_epoch, runs, level)
        self.buffer.add(table, epoch, rows)

    def upload_rows(
        self, spec: TableSpec, parts: Iterator[Rows], waited: Callable[[float], object] | None = None
    ) -> list[UploadedRun]:
        """Write rows in any order straight to uncommitted SSTs, past the shared buffer; the sorted runs, newest first.

        A run is cut when `buffer_bytes` of rows are collected: rows that come later win, in a newer run. `waited` is
        told the seconds that went by waiting for the bucket.
        """
        self.check_usable()
        runs: list[UploadedRun] = []
        for rows in sorted_runs(parts, self.settings.buffer_bytes):
            run = self._upload_run(spec, rows, UNCOMMITTED_EPOCH, waited=waited)
            runs.insert(0, UploadedRun(ssts=run.ssts, table_id=spec.id, table=spec.name))
        return runs

    def upload_epoch(self, buffer: EpochBuffer, *, payload_bytes_max: int = 0) -> dict[int, tuple[Run, ...]]:
        """Upload what of a sealed epoch is still in memory; per table its sorted runs, newest first.

        Small SSTs, of at most `payload_bytes_max` bytes, go into the buffer's payloads.
        """
        for table, runs in buffer.runs.items():
            if table not in buffer.uploaded:
                fresh = [run.block.rows for run in runs if run.block is not None]
                newest = [self._upload(table, buffer.epoch, fresh, buffer.payloads, payload_bytes_max)] if fresh else []
                buffer.uploaded[table] = (*newest, *(run.level for run in runs if run.level is not None))
        return buffer.uploaded

    def renew_uploads(self, buffer: EpochBuffer) -> None:
        """Upload a sealed epoch's rows under new ids: the old ones are so old that vacuum may take them.

        Spilled rows are read back from their old SSTs; `StaleUpload` if vacuum was faster.
        """
        buffer.uploaded.clear()
        buffer.payloads.clear()
        for table, runs in buffer.runs.items():
            for run in runs:
                if run.level is None:
                    continue
                spec = self._spec(table, buffer.epoch)
                want = ReadRange(fill=False, types=value_schema(spec).types)
                rows = iter(ConcatIterator(self.sstables, run.level.ssts, want))
                try:
                    level = self._upload_run(spec, rows, buffer.epoch)
                except ObjectNotFound as error:
                    raise StaleUpload(
                        f"epoch {buffer.epoch}: rows that were spilled to {error} are gone; abort the epoch and write "
                        "it again, with a longer gc_grace or a larger buffer_bytes"
                    ) from error
                self.buffer.spilled(table, buffer.epoch, (run,), level)

    def _spec(self, table: int, epoch: int) -> TableSpec:
        state = self.backend.version().tables.get(table)
        if state is None:
            raise TableNotFound(f"table with id {table} was dropped while epoch {epoch} held rows for it", table)
        return state.spec

    def _upload(
        self,
        table: int,
        epoch: int,
        runs: list[Rows],
        payloads: dict[str, bytes] | None = None,
        payload_bytes_max: int = 0,
    ) -> Run:
        spec = self._spec(table, epoch)
        # Rows that were written before the table was altered join those after it.
        types = value_schema(spec).types
        merged = newest_versions(
            MergeIterator([[with_types(run, types)] for run in runs], limits=self.settings.limits), None
        )
        batches = (batch for rows in merged for batch in in_batches(rows.with_epochs(epoch)))
        return self._upload_run(spec, batches, epoch, payloads, payload_bytes_max)

    def _upload_run(
        self,
        spec: TableSpec,
        batches: Iterable[Rows],
        epoch: int,
        payloads: dict[str, bytes] | None = None,
        payload_bytes_max: int = 0,
        waited: Callable[[float], object] | None = None,
    ) -> Run:
        self.buffer.note_upload(epoch, id_floor(self.system.now_ms()))
        limits = self.settings.limits
        writer = SstWriter(
            spec, sst_bytes=limits.sst_bytes, epoch_inherited=True, one_object_bytes=limits.one_object_bytes
        )
        infos = self.uploader.upload(writer.write(batches), payloads, payload_bytes_max, waited)
        return Run(
            ssts=tuple(msgspec.structs.replace(sst, epoch=epoch, min_epoch=epoch, max_epoch=epoch) for sst in infos)
        )

    def close(self) -> None:
        """Stop all background work; rows that were not committed are gone."""
        if not self.closed:
            self.closed = True
            self.backend.close()
            self.uploader.close()
            self.sstables.close()
            self.bucket.close()
