"""A transaction of the client: reads at one snapshot, own writes on top, one commit.

A snapshot costs no request as long as the store's retention keeps its epoch; a transaction that lasts longer pins it.
The rows of a transaction are in a buffer that nobody else sees, which spills as the shared one does. The commit expects
each table that the transaction depends on to be as it was; where one has moved on, the newer rows are looked at
(`conflicts.py`), and without an overlap the commit is tried again, on what was looked at. Its SSTs are uploaded once.

Optimistic concurrency control with backward validation of read sets: Kung and Robinson, ACM Transactions on Database
Systems 6(2), 1981.
"""

from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Literal, NamedTuple

from msgspec.structs import replace

from tussock.statestore.base.arguments import check_table
from tussock.statestore.commits import commit_sealed
from tussock.statestore.contract.backend import PAYLOAD_BYTES_MAX, CommitRequest, VersionView
from tussock.statestore.contract.records import Run, TableSpec, TableState, UploadedRun, pack
from tussock.statestore.epochs import check_read_epoch
from tussock.statestore.errors import Conflict, Fenced, InvalidOption, StoreClosed, TableNotFound
from tussock.statestore.parts import StoreParts
from tussock.statestore.read.key_reader import KeyReader
from tussock.statestore.read.table_views import TableViews
from tussock.statestore.read.uploaded_views import check_runs
from tussock.statestore.read.views import ReadView
from tussock.statestore.rows.rows import Rows
from tussock.statestore.shown import show_value
from tussock.statestore.snapshot import open_table, table_at
from tussock.statestore.transactions.buffered_access import BufferedAccess
from tussock.statestore.transactions.conflicts import overlap, show_key
from tussock.statestore.transactions.read_set import NotedReads, ReadSet
from tussock.statestore.transactions.shared_commits import (
    BYTES_MAX,
    COMMIT_ATTEMPTS,
    Dependency,
    Ending,
    RunCommit,
    SharedCommits,
    Written,
)
from tussock.statestore.transactions.snapshot_epoch import SnapshotEpoch
from tussock.statestore.write.loose_rows import RowsAlone
from tussock.statestore.write.writes import UNCOMMITTED_EPOCH, Writes

__all__ = ["Isolation", "Transaction"]

Isolation = Literal["serializable", "snapshot"]


def _check_isolation(isolation: object) -> None:
    """`InvalidOption` unless there is such a level."""
    if not isinstance(isolation, str) or isolation not in ("serializable", "snapshot"):
        raise InvalidOption(f"isolation is {show_value(isolation)}; expected 'serializable' or 'snapshot'")


class Transaction:
    """Made by `StateStore.transaction`, and used as a context manager, by one thread.

    At the end of the block everything that was written commits as one epoch; an exception gives everything up.
    """

    def __init__(
        self,
        parts: StoreParts,
        isolation: Isolation,
        request: CommitRequest,
        commit: RunCommit,
        shared: SharedCommits,
    ) -> None:
        """`request` says whose commit it is; `commit` runs it with an epoch, and takes note of the one that holds.

        `shared`: where small transactions that end at the same time meet. `InvalidOption` for another isolation.
        """
        _check_isolation(isolation)
        self._parts = parts
        self._isolation = isolation
        self._request = request
        self._commit = commit
        self._shared = shared
        self._snapshot = SnapshotEpoch(parts)
        self._writes = parts.writes.beside()
        self._tables: dict[str, _Dependency] = {}
        self._opened: dict[str, Any] = {}
        self._uploaded: set[int] = set()
        """Ids of the tables with rows that other processes have uploaded."""
        self._epoch = 0
        self._is_over = False
        self._is_given_up = False

    @property
    def snapshot_epoch(self) -> int:
        """The epoch that is read; 0 if nothing was committed yet."""
        return self._snapshot.epoch

    @property
    def epoch(self) -> int:
        """The epoch that holds what was written, once that is committed; of one that wrote nothing, the one read."""
        if not self._epoch:
            raise InvalidOption("the transaction has not committed; its epoch is known after the `with` block")
        return self._epoch

    def table(self, name: str) -> Any:
        """A table as of the snapshot, with what this transaction has written; `TableNotFound` if there was none."""
        check_table(name)
        self._check_open()
        if name not in self._opened:
            state = self._find(self._parts.backend.recent(), name) or self._find(self._parts.views.refresh(), name)
            if state is None:
                raise TableNotFound(
                    f"no table {show_value(name)} in the store at {self._parts.settings.url} as of epoch "
                    f"{self._snapshot.epoch}, which this transaction reads; create tables before it begins",
                    name,
                )
            views = _TransactionViews(self._parts, state.spec, self._snapshot, self._writes)
            noted = ReadSet()
            reads = NotedReads(KeyReader(views, self._parts.sstables), noted)
            rows = self._parts.settings.limits.overlay_rows
            access = BufferedAccess("a transaction", state.spec, views, reads, self._write, self._check_open, rows)
            self._tables[name] = _Dependency(access, noted)
            self._opened[name] = open_table(self._parts, state.spec, access)
        return self._opened[name]

    def _find(self, version: VersionView, name: str) -> TableState | None:
        """The table that had the name when the transaction began; or one of now, which is empty as of the snapshot."""
        epoch = self._snapshot.epoch
        state = table_at(version, name, epoch, self._snapshot.seq)
        if state is None:
            newer = version.find_table(name)
            state = newer if newer is not None and newer.created_epoch <= epoch else None
        return state

    def keep_snapshot(self) -> None:
        """Pin the snapshot now: other processes read it, at `snapshot_epoch`, however long the transaction lasts."""
        self._check_open()
        self._snapshot.pin()

    def note_read(self, name: str) -> None:
        """Another process reads the table for this transaction: each later commit to it is a conflict."""
        self.table(name)
        self._tables[name].noted.note_range(None, None)

    def add_uploaded(self, name: str, runs: Sequence[Run]) -> None:
        """Make rows that other processes have uploaded a part of the transaction, over what it has written before.

        `runs`: what `upload` returned, newest first. Their keys conflict with later commits, whatever the isolation.
        Raises `InvalidBatch` for runs of another table, and `InvalidOption` for anything else.
        """
        table = self.table(name).spec.id
        check_runs(runs, table, name)
        self._tables[name].access.flush()
        for packed in reversed(pack(runs)):
            self._writes.buffer.add_uploaded(table, UNCOMMITTED_EPOCH, packed)
            self._uploaded.add(table)

    def upload(self) -> dict[str, list[UploadedRun]]:
        """Upload what was written, for a commit of another process, instead of committing it; that ends it.

        By table the sorted runs, newest first, as `StateStore.commit_uploaded` takes them. That commit has to expect
        the tables as they were: what was read is noted here only.
        """
        self._check_open()
        for opened in self._tables.values():
            opened.access.flush()
        self.give_up()
        uploaded = self._writes.upload_epoch(self._writes.buffer.seal(UNCOMMITTED_EPOCH))
        names = {one.access.table: name for name, one in self._tables.items()}
        return {
            names[table]: [UploadedRun(ssts=run.ssts, table_id=table, table=names[table]) for run in runs]
            for table, runs in uploaded.items()
        }

    def give_up(self) -> None:
        """Commit nothing at the end of the block; from now on nothing can be read or written."""
        self._is_given_up = self._is_over = True

    def __enter__(self) -> "Transaction":
        self._check_open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None and not self._is_given_up:
                self._check_open()
                self._epoch = self._finish()
        finally:
            self._is_over = True
            for opened in self._tables.values():
                opened.access.end()
            self._writes.end_beside()
            self._snapshot.release()

    def _check_open(self) -> None:
        self._parts.lifetime.check_usable()
        if self._is_over:
            raise StoreClosed("the transaction is over; begin another one")

    def _finish(self) -> int:
        alone = self._rows_alone()
        if alone:
            return self._commit_shared(alone)
        for opened in self._tables.values():
            opened.access.flush()
        buffer = self._writes.buffer
        written = buffer.tables_of(UNCOMMITTED_EPOCH)
        if not written and self._request.writer is None:
            return self._snapshot.read_epoch
        runs = {table: buffer.runs(table) for table in written}
        is_small = buffer.nbytes <= BYTES_MAX and all(run.block for some in runs.values() for run in some)
        if is_small and self._request.writer is None:
            oldest_first = {table: [run.block.rows for run in some[::-1] if run.block] for table, some in runs.items()}
            return self._commit_shared(oldest_first)
        return self._parts.system.uninterrupted(lambda: self._commit(self._commit_rows, self._request))

    def _rows_alone(self) -> dict[int, RowsAlone]:
        """All that was written, if it is a few rows which need no buffer, and if the commit can be shared."""
        if self._request.writer is not None or self._uploaded or self._writes.buffer.tables_of(UNCOMMITTED_EPOCH):
            return {}
        alone = {one.access.table: rows for one in self._tables.values() if (rows := one.access.alone()) is not None}
        return alone if sum([rows.nbytes for rows in alone.values()]) <= BYTES_MAX else {}

    def _commit_shared(self, rows: Mapping[int, Written]) -> int:
        """Commit, with others that end now; the rows are all in memory."""
        depends = self._dependencies()
        self._snapshot.check()

        def check(version: VersionView) -> None:
            for opened in self._tables.values():
                if opened.access.table in rows and opened.access.table not in version.tables:
                    raise TableNotFound(
                        f"table {opened.access.name!r} was dropped while this transaction wrote to it; nothing of it "
                        "is visible",
                        opened.access.name,
                    )
            for one in depends:
                self._check_overlap(one.access, one.noted, version)

        noted = [Dependency(one.access.table, one.noted) for one in depends]
        ending = Ending(self._snapshot.epoch, rows, noted, check)
        return self._parts.system.uninterrupted(lambda: self._shared.commit(ending, self._commit, self._request))

    def _commit_rows(self, request: CommitRequest) -> int:
        """Commit what was written, as soon as nothing stands against it; returns the epoch that holds."""
        known = self._known_epoch(request)
        if known is not None and request.generation is None:
            return known
        sealed = self._writes.buffer.seal(UNCOMMITTED_EPOCH)
        depends = self._dependencies()
        request = replace(request, uploaded=bool(self._uploaded))
        self._snapshot.check()
        expect = dict.fromkeys((one.access.table for one in depends), self._snapshot.epoch)
        for _ in range(COMMIT_ATTEMPTS):
            try:
                expecting = replace(request, expect=expect)
                return commit_sealed(self._parts, self._writes, sealed, expecting, PAYLOAD_BYTES_MAX)
            except (Conflict, Fenced) as error:
                version = self._parts.views.refresh()
                known = self._known_epoch(request)
                if known is not None:
                    return known
                if isinstance(error, Fenced):
                    raise
                for one in depends:
                    for noted in self._read_sets(one):
                        self._check_overlap(one.access, noted, version)
                expect = dict.fromkeys(expect, version.max_committed_epoch)
        raise Conflict(
            f"the tables that this transaction depends on were committed to {COMMIT_ATTEMPTS} times while it "
            "committed; nothing of it is visible: run it again"
        )

    def _known_epoch(self, request: CommitRequest) -> int | None:
        """The epoch that holds the request's (writer, batch) in the version known here, if it has one.

        Whatever tables it has rows in: what a repeat writes follows from what it reads, its own first effect with it.
        """
        if request.writer is None or request.batch_id is None:
            return None
        newest = self._parts.backend.version().newest_generation(request.writer)
        if request.generation is not None and newest > request.generation:
            return None  # the commit says so, whatever it repeats
        return self._parts.backend.committed_batch(request.writer, request.batch_id, request.source, ())

    def _dependencies(self) -> "list[_Dependency]":
        """The tables that have to be as they were, each with what is looked at where it is not."""
        opened = list(self._tables.values())
        if self._isolation == "snapshot":
            opened = [_Dependency(one.access, self._keys_written(one.access)) for one in opened]
        return [one for one in opened if one.noted or one.access.table in self._uploaded]

    def _read_sets(self, one: "_Dependency") -> Iterator[ReadSet]:
        """What of the table must not have been committed to since; the keys of uploads are read for it, bit by bit."""
        yield one.noted
        if one.access.table in self._uploaded:
            for run in self._writes.buffer.runs(one.access.table):
                for keys in self._writes.keys_of(run):
                    uploaded = ReadSet()
                    uploaded.note_keys(keys)
                    yield uploaded

    def _keys_written(self, access: BufferedAccess) -> ReadSet:
        keys = ReadSet()
        for run in self._writes.buffer.runs(access.table):
            for rows in self._writes.rows_of(access.table, run):
                keys.note_keys(rows.keys)
        alone = access.alone()
        for key in () if alone is None else alone.by_key:
            keys.note_key(key)
        return keys

    def _write(self, table: int, rows: Rows) -> None:
        self._writes.write(table, UNCOMMITTED_EPOCH, rows)

    def _check_overlap(self, access: BufferedAccess, noted: ReadSet, version: VersionView) -> None:
        state: TableState | None = version.tables.get(access.table)
        since = self._snapshot.epoch
        if state is None:
            raise Conflict(
                f"table {access.name!r} was dropped after epoch {since}, which this transaction read; nothing of it is "
                "visible: run it again"
            )
        if state.last_epoch <= since:
            return
        self._snapshot.check_kept(version, state)
        found = overlap(self._parts.sstables, state, since, noted, self._shared.recent)
        if found is not None:
            alone = "read" if self._isolation == "serializable" else "wrote"
            done = "read or wrote" if access.table in self._uploaded else alone
            raise Conflict(
                f"table {access.name!r}: this transaction {done} key {show_key(found.key, state.spec)} as of epoch "
                f"{since}, and epoch {found.epoch} has been committed to it since; nothing of it is visible: run it "
                "again",
                access.name,
                since,
                found.epoch,
            )


class _Dependency(NamedTuple):
    """A table of a transaction."""

    access: BufferedAccess
    noted: ReadSet
    """What of it must not have been committed to since."""


class _TransactionViews(TableViews):
    """What a transaction sees of one table: the snapshot, and what it has written."""

    def __init__(self, parts: StoreParts, spec: TableSpec, snapshot: SnapshotEpoch, writes: Writes) -> None:
        super().__init__(parts.views, spec.id, spec.name, own=writes.buffer)
        self._store_views = parts.views
        self._spec = spec
        self._buffer = writes.buffer
        self._snapshot = snapshot
        if spec.retention_ms is not None and snapshot.epoch:
            snapshot.hasten(parts.backend.version().tables.get(spec.id))

    def epoch_to_read(self, epoch: int | None) -> int | None:
        """The transaction's epoch; another one cannot be asked for."""
        if epoch is not None and check_read_epoch(epoch) != self._snapshot.epoch:
            raise InvalidOption(
                f"a transaction reads at its snapshot, epoch {self._snapshot.epoch}, not at {show_value(epoch)}"
            )
        return self._snapshot.check()

    def take(self, epoch: int | None) -> ReadView:
        """The table in a recent version, which has all of the snapshot, and the own rows over it."""
        view = self._store_views.committed(self._spec.id, self._spec.name, gone=True)
        self._snapshot.check_kept(view.version, view.state)
        return view._replace(own=self._buffer.runs(self._spec.id), epoch=epoch)
