"""`StateStore`: the client of a store."""

from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, TypeVar

import pyarrow as pa
from msgspec.structs import replace

from tussock.statestore.base.arguments import (
    check_expected,
    check_name,
    check_table,
    check_timeout,
    check_writer,
)
from tussock.statestore.base.process.shield import uninterrupted
from tussock.statestore.checkpoint.checkpoint import Callback, Checkpoint
from tussock.statestore.commits import check_uploaded, commit_epoch, commit_uploads
from tussock.statestore.contract.backend import CommitRequest, PinInfo
from tussock.statestore.contract.barriers import OnMissing, job_options
from tussock.statestore.contract.records import Run, pack
from tussock.statestore.epochs import check_epoch, check_read_epoch, integer_of
from tussock.statestore.errors import ClockAhead, Conflict, InvalidOption
from tussock.statestore.format.schema_changes import Columns
from tussock.statestore.parts import StoreParts
from tussock.statestore.snapshot import Snapshot, open_table
from tussock.statestore.tables.table_options import Retention, TablePeriods, table_change, table_spec
from tussock.statestore.transactions.attempts import transact
from tussock.statestore.transactions.delta import Delta
from tussock.statestore.transactions.shared_commits import SharedCommits
from tussock.statestore.transactions.transaction import Isolation, Transaction
from tussock.statestore.upkeep import StoreUpkeep
from tussock.statestore.write.epoch_issuer import EpochIssuer

__all__ = ["StateStore"]

T = TypeVar("T")


class StateStore(StoreUpkeep):
    """An open store: tables, epochs, snapshots, upkeep. Made by `connect`; safe to use from several threads."""

    def __init__(self, parts: StoreParts) -> None:
        super().__init__(parts)
        self._epochs = EpochIssuer(parts.settings.url, parts.system, parts.backend, parts.writes.buffer)
        self._shared_commits = SharedCommits(parts)

    # --- Tables --------------------------------------------------------------------------------------------------

    @uninterrupted
    def create_table(
        self,
        name: str,
        schema: pa.Schema | None = None,
        primary_key: Sequence[str] | None = None,
        *,
        distribution_key: Sequence[str] | None = None,
        vnodes: int = 256,
        block_bytes: int = 64 << 10,
        compression: str = "lz4",
        retention: float | None = None,
        ttl: float | None = None,
        ttl_column: str | None = None,
    ) -> Any:
        """Create a table; raw without a `schema`, typed with a `schema` and its `primary_key`.

        `distribution_key` (the primary key by default; a subset of it) decides which of `vnodes` virtual nodes a row
        belongs to. `block_bytes` is the size of a block before compression, `compression` one of none, lz4, zstd.
        `retention`: seconds for which its epochs stay readable without a pin, those of the store if not given. `ttl`:
        seconds after which a row expires, from when it was written or from the time in `ttl_column` (`docs/ttl.md`).
        Raises `TableExists`, `SchemaMismatch`, `InvalidOption`.
        """
        self._parts.lifetime.check_usable()
        periods = TablePeriods(retention, ttl, ttl_column)
        spec = table_spec(name, schema, primary_key, distribution_key, vnodes, block_bytes, compression, periods)
        created = self._parts.backend.create_table(spec).spec
        self._parts.known.note_created(created)
        return open_table(self._parts, created)

    def table(self, name: str, *, uploaded: Sequence[Run] = ()) -> Any:
        """The table of that name, a `RawTable` or a `TypedTable`; `TableNotFound` if there is none.

        With runs that `upload` returned, newest first, it is read-only, and shows their rows over the store's.
        """
        return open_table(self._parts, self._parts.views.named(name).spec, uploaded=uploaded)

    def tables(self) -> list[str]:
        """Names of the tables, sorted."""
        return sorted(state.spec.name for state in self._parts.views.refresh().tables.values())

    @uninterrupted
    def alter_table(
        self, name: str, *, add: Columns | None = None, widen: Columns | None = None, retention: Retention | None = None
    ) -> Any:
        """Give a typed table new, nullable columns (`add`) or wider types of value columns (`widen`); returns it.

        Both map names to Arrow types. No row is written anew, and what is so already is no change. Open tables follow,
        at any epoch (`docs/evolution.md`). `retention`: as of `create_table`, or "store" for that of the store. Raises
        `SchemaMismatch` naming column, old and new type, `InvalidOption` or `TableNotFound`; nothing was altered then.
        """
        self._parts.lifetime.check_usable()
        check_table(name)
        state = self._parts.backend.alter_table(name, table_change(add, widen, retention))
        return open_table(self._parts, state.spec)

    @uninterrupted
    def drop_table(self, name: str) -> None:
        """Remove a table and, with the next vacuum, its SSTs; `TableNotFound` if there is none.

        Snapshots that are open go on reading it, and its SSTs stay as long as one may.
        """
        self._parts.lifetime.check_usable()
        check_table(name)
        self._parts.backend.drop_table(name)

    # --- Epochs --------------------------------------------------------------------------------------------------

    def new_epoch(self) -> int:
        """An epoch greater than every epoch that this client knows of; `EpochTooOld` if one is the largest there is."""
        self._parts.lifetime.check_usable()
        return self._epochs.issue()

    @uninterrupted
    def commit_epoch(
        self,
        epoch: int,
        writer: str | None = None,
        batch_id: int | None = None,
        expect: Mapping[str, int] | None = None,
        generation: int | None = None,
        source: str | None = None,
    ) -> int:
        """Seal the epoch, upload its rows and commit them; returns the epoch that holds.

        That is `epoch`, or a fresh one if another writer committed a newer epoch meanwhile. With `writer` and
        `batch_id` the commit is idempotent: repeated, it is a no-op that returns the first one's epoch. `expect`
        maps table names to the epoch that was read: if one of them was written, dropped or created since, `Conflict`,
        and the epoch's rows are given up, as they are by `TableNotFound` if nothing is known of a table of that name.
        After `ObjectStoreUnavailable` the same call can be repeated; rows are kept.
        Raises `EpochTooOld` if this client committed or gave up the epoch before, `EpochOutOfOrder` if an older one
        of it is open on the same table, `Fenced` if the writer has gone past this batch without committing it, if
        `generation`, which `open_writer` gave, is no longer the writer's newest, or if the batch is not the one that
        was committed: the writer's belong to another `source` (whose batches they are, such as a query and its
        tables), or, where none is given, it had no rows in one of these tables. Raises `ClockAhead` if the
        epoch, or this machine's clock, is too far ahead of the bucket's; the rows are kept for another try, or
        `abort_epoch`.
        """
        self._parts.lifetime.check_usable()
        epoch, expect = check_epoch(epoch), check_expected(expect)
        batch_id, generation = check_writer(writer, batch_id, generation, source)
        request = CommitRequest(
            epoch=epoch,
            writer=writer,
            batch_id=batch_id,
            generation=generation,
            source=source,
        )
        return self._commit_and_note(lambda: commit_epoch(self._parts, request, expect), expect)

    @uninterrupted
    def commit_uploaded(
        self,
        uploads: Mapping[str, Sequence[Run]],
        writer: str | None = None,
        batch_id: int | None = None,
        expect: Mapping[str, int] | None = None,
        epoch: int | None = None,
        generation: int | None = None,
        source: str | None = None,
    ) -> int:
        """Commit what other processes uploaded with `TypedTable.upload`, as one epoch; see `commit_epoch`.

        `uploads`: per table the sorted runs, newest first; runs of different tasks are packed into as few runs
        as their key ranges allow. Raises `StaleUpload` if they are so old that vacuum may have deleted them, and
        `InvalidBatch` if an SST is not there, or not of the table that it is named for.
        """
        self._parts.lifetime.check_usable()
        check_uploaded(uploads)
        expect = check_expected(expect)
        batch_id, generation = check_writer(writer, batch_id, generation, source)
        specs = {name: self._parts.views.named(name).spec for name in uploads}
        request = CommitRequest(
            epoch=self.new_epoch() if epoch is None else check_epoch(epoch),
            tables={specs[name].id: pack(runs) for name, runs in uploads.items()},
            writer=writer,
            batch_id=batch_id,
            generation=generation,
            source=source,
            uploaded=True,
        )
        return self._commit_and_note(lambda: commit_uploads(self._parts, request, specs, uploads, expect), expect)

    @uninterrupted
    def open_writer(self, name: str) -> int:
        """Take a writer's name over, as a job does when it starts: returns its new generation.

        Commits that name an older one are refused with `Fenced` from now on, in every process; those that name none
        are not held to it. Each call begins a new generation.
        """
        self._parts.lifetime.check_usable()
        check_writer(name, 0)
        return self._parts.backend.open_writer(name)

    @uninterrupted
    def abort_epoch(self, epoch: int) -> None:
        """Give up what this client wrote at `epoch`; the epoch cannot be used again."""
        self._parts.lifetime.check_usable()
        self._parts.writes.buffer.drop(check_epoch(epoch))

    def committed_batch(self, writer: str, batch_id: int, source: str | None = None) -> int | None:
        """The epoch that holds this (writer, batch), or `None` if it is not committed; `Fenced` as a commit raises it.

        Batches older than the writer's newest sixteen are answered by the oldest epoch of those, which holds them, too.
        """
        self._parts.lifetime.check_usable()
        number, _ = check_writer(writer, batch_id, source=source)
        self._parts.views.refresh()
        return None if number is None else self._parts.backend.committed_batch(writer, number, source, ())

    @property
    def committed_epoch(self) -> int:
        """The newest committed epoch of the store; 0 if nothing was committed."""
        return self._parts.views.refresh().max_committed_epoch

    def wait_epoch(self, epoch: int, timeout: float = 10.0) -> None:
        """Return when this client sees all of `epoch`, 0 at once; `WaitTimeout` after `timeout` seconds."""
        self._parts.views.wait_epoch(0 if integer_of(epoch) == 0 else check_epoch(epoch), check_timeout(timeout))

    @uninterrupted
    def join_checkpoint(
        self,
        job: str,
        *,
        participant: str | None = None,
        participants: int = 1,
        on_barrier: Callback | None = None,
        on_committed: Callback | None = None,
        on_restore: Callback | None = None,
        interval: float | None = None,
        timeout: float | None = None,
        on_missing: OnMissing = "abort",
    ) -> Checkpoint:
        """Take part in a job whose workers' epochs commit together; needs a platform. See `docs/checkpoints.md`.

        `participant` names this worker within the job: with `on_missing="wait"` it has to last from one process to
        its successor, without a name it gets a fresh one. Barriers come every `interval` seconds once that many
        `participants` have joined; `timeout` seconds after one that not all have collected, it is aborted. The
        callbacks get a `BarrierEvent`, in the store's own thread. Raises `DuplicateName` if a live worker has the
        name, `InvalidOption` if the others run with other options or the store is embedded.
        """
        self._parts.lifetime.check_usable()
        if participant is None and isinstance(on_missing, str) and on_missing == "wait":
            raise InvalidOption(f"job {job!r}: with on_missing='wait' a participant needs a name of its successor, too")
        options = job_options(job, participants, interval, timeout, on_missing)
        if participant is not None:
            check_name(participant, f"job {job!r}: participant", 255)
        name = participant if participant is not None else self._parts.system.random_bytes(8).hex()
        return Checkpoint(self._parts, job, name, options, (on_barrier, on_committed, on_restore))

    # --- Transactions --------------------------------------------------------------------------------------------

    def transaction(
        self,
        *,
        isolation: Isolation = "serializable",
        writer: str | None = None,
        batch_id: int | None = None,
        generation: int | None = None,
        source: str | None = None,
    ) -> Transaction:
        """Begin a transaction, for a `with` block: reads at the newest epoch with own writes on top, and one commit.

        At its end `Conflict` if a key or range that was read, or with `isolation="snapshot"` a key that was written,
        has been committed to since; it names table, key and epochs. The other arguments are those of `commit_epoch`.
        """
        self._parts.lifetime.check_usable()
        batch_id, generation = check_writer(writer, batch_id, generation, source)
        request = CommitRequest(epoch=0, writer=writer, batch_id=batch_id, generation=generation, source=source)
        return Transaction(self._parts, isolation, request, self._commit_transaction, self._shared_commits)

    def delta(self, writer: str, *, generation: int | None = None, source: str | None = None) -> Delta:
        """Begin a delta: rows over the newest ones, cut into commits of `writer`; for programs that run for long."""
        self._parts.lifetime.check_usable()
        _, generation = check_writer(writer, 0, generation, source)
        request = CommitRequest(epoch=0, writer=writer, generation=generation, source=source)
        return Delta(self._parts, request, self._commit_transaction)

    def transact(
        self,
        fn: Callable[[Transaction], T],
        *,
        attempts: int = 10,
        isolation: Isolation = "serializable",
        writer: str | None = None,
        batch_id: int | None = None,
        generation: int | None = None,
        source: str | None = None,
    ) -> T:
        """Run `fn(tx)` in a transaction until it commits, up to `attempts` times; returns what `fn` returned then.

        The other arguments are those of `transaction`. Of a batch that was committed before, nothing is written, and
        what `fn` returned now is returned.
        """
        self._parts.lifetime.check_usable()

        def begin() -> Transaction:
            return self.transaction(
                isolation=isolation, writer=writer, batch_id=batch_id, generation=generation, source=source
            )

        return transact(begin, fn, attempts, self._parts.system)

    # --- Snapshots -----------------------------------------------------------------------------------------------

    @uninterrupted
    def pin_snapshot(self, epoch: int | None = None) -> Snapshot:
        """Pin the newest committed epoch, or `epoch`; `SnapshotExpired` if that is no longer kept."""
        self._parts.lifetime.check_usable()
        epoch = None if epoch is None else check_read_epoch(epoch)
        if epoch is not None and epoch > self._parts.views.refresh().max_committed_epoch:
            raise InvalidOption(
                f"epoch {epoch} is not committed: the newest committed epoch is {self.committed_epoch}; "
                "a snapshot has to stay the same, so wait_epoch() for it first"
            )
        return Snapshot(self._parts, self._parts.backend.pin(epoch))

    def pins(self) -> list[PinInfo]:
        """All live pins on the store, of all processes."""
        self._parts.lifetime.check_usable()
        return self._parts.backend.pins()

    @uninterrupted
    def close(self) -> None:
        """Stop background work and let go of pins; uncommitted rows are gone. A second call is no error."""
        self._parts.close()

    def __enter__(self) -> "StateStore":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _commit_and_note(self, commit: Callable[[], int], expect: Mapping[str, int] | None) -> int:
        """Commit, and take note of the epoch that holds; returns it."""
        try:
            epoch = commit()
        except ClockAhead:
            self._epochs.forget()
            raise
        except Conflict:
            # A retry means the tables that it reads again.
            self._parts.known.renew(expect or (), self._parts.backend.version())
            raise
        self._epochs.note_committed(epoch)
        return epoch

    def _commit_transaction(self, commit: Callable[[CommitRequest], int], request: CommitRequest) -> int:
        return self._commit_and_note(lambda: commit(replace(request, epoch=self.new_epoch())), None)
