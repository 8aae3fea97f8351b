"""A delta: what a program that runs for long has written and not yet committed, over the store's newest rows.

A transaction ends with its commit. A delta goes on: from time to time it is frozen, and while the frozen part commits
beside it, as one epoch, what is written goes into a fresh one on top. Reads see the fresh part, the frozen one, and the
store, in this order. So a program commits once for thousands of its steps, and reads its newest state in memory.
`Styx` calls this a delta map (SIGMOD 2025, section 7.1).

The tables that a delta has opened belong to it while it lives, since what it writes to one may rest on what it has read
in another: a commit of somebody else to one of them is a `Conflict`.
"""

import struct
import zlib
from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from tussock.statestore.base.arguments import check_flag, check_table, check_writer
from tussock.statestore.base.process.shield import uninterrupted
from tussock.statestore.base.system import System
from tussock.statestore.commits import commit_sealed
from tussock.statestore.contract.backend import CommitRequest
from tussock.statestore.contract.object_store import ObjectStore
from tussock.statestore.contract.records import TableSpec
from tussock.statestore.errors import Conflict, InvalidOption, StoreClosed, TableNotFound
from tussock.statestore.parts import StoreParts
from tussock.statestore.read.key_reader import KeyReader
from tussock.statestore.read.table_views import TableViews
from tussock.statestore.read.views import ReadView
from tussock.statestore.rows.rows import Rows
from tussock.statestore.settings import StoreSettings
from tussock.statestore.shown import show_value
from tussock.statestore.snapshot import open_table
from tussock.statestore.transactions.buffered_access import BufferedAccess
from tussock.statestore.write.buffered_run import BufferedRun
from tussock.statestore.write.writes import UNCOMMITTED_EPOCH, Writes

__all__ = ["Delta", "Frozen"]

_TABLE_DIGEST = struct.Struct("<QI")

Commit = Callable[[Callable[[CommitRequest], int], CommitRequest], int]


class Delta:
    """Made by `StateStore.delta`; used by one thread, beside which one other may commit what was frozen.

    `close` gives up what was not frozen.
    """

    def __init__(self, parts: StoreParts, request: CommitRequest, commit: Commit) -> None:
        """`request` says whose commits these are; `commit` runs one with an epoch, and takes note of it."""
        self._parts = parts
        self._request = request
        self._commit = commit
        self._writes = parts.writes.beside()
        self._frozen: Frozen | None = None
        self._accesses: dict[int, BufferedAccess] = {}
        self._opened: dict[str, Any] = {}
        self._since: dict[int, int] = {}
        """Per table the newest epoch of it that this delta knows of: its last commit, or what it began with."""
        self._mark: dict[int, tuple[BufferedRun, ...]] | None = None
        self._is_over = False
        self._joined: dict[int, BufferedAccess] = {}
        """Of the savepoint, the tables that were written to since."""

    def table(self, name: str, *, shared: bool = False) -> Any:
        """A table with what this delta has written; `TableNotFound` if there is none.

        Others may write to a `shared` one, too: what they commit is no conflict, and of one key the last commit wins.
        """
        check_table(name)
        check_flag(shared, "shared")
        opened = self._opened.get(name)
        if opened is not None:
            return opened
        self._check_open()
        version = self._parts.backend.recent()
        state = version.find_table(name) or (version := self._parts.views.refresh()).find_table(name)
        if state is None:
            raise TableNotFound(f"no table {show_value(name)} in the store at {self._parts.settings.url}", name)
        spec = state.spec
        views = _DeltaViews(self._parts, spec, self._runs, self._check_open)
        reads = KeyReader(views, self._parts.sstables)
        rows = self._parts.settings.limits.overlay_rows
        # Where others write, and where rows expire, a row may be another one the next time that it is read.
        keeps = not shared and spec.ttl_ms is None
        access = BufferedAccess(
            "a delta", spec, views, reads, self._write, self._check_open, rows, self._join, keeps_copies=keeps
        )
        self._opened[name] = open_table(self._parts, spec, access)
        self._accesses[spec.id] = access
        if not shared:
            self._since[spec.id] = version.max_committed_epoch
        return self._opened[name]

    @property
    def bucket(self) -> ObjectStore:
        """The bucket of the store, for what a program keeps beside its tables, below `applications/`."""
        return self._parts.bucket

    @property
    def settings(self) -> StoreSettings:
        """How the store was opened, for another process that is to open it, too."""
        return self._parts.settings

    @property
    def system(self) -> System:
        """The clocks and the randomness that the store was opened with."""
        return self._parts.system

    @property
    def committed_epoch(self) -> int:
        """The newest epoch of the store that this client knows of: at least that of the newest commit of this delta."""
        return self._parts.backend.recent().max_committed_epoch

    @property
    def nbytes(self) -> int:
        """What the buffers take, the frozen one included; rows that were written alone count once they are there."""
        return self._writes.buffer.nbytes + (self._frozen.nbytes if self._frozen is not None else 0)

    def begin(self) -> None:
        """Begin a savepoint: until `keep`, all that is written can be undone together.

        There is one at a time: `InvalidOption` if one is open.
        """
        self._check_open()
        if self._mark is not None:
            raise InvalidOption(
                "a savepoint of the delta is open, and there is one at a time: keep() or undo() it first"
            )
        self._mark = self._writes.buffer.mark(UNCOMMITTED_EPOCH)
        self._joined = {}

    def keep(self) -> None:
        """What was written since `begin` stays, and the savepoint ends."""
        if self._mark is None:
            raise InvalidOption("nothing is kept without a savepoint: begin() makes one")
        self._mark = None
        for access in self._joined.values():
            access.keep()

    def digest(self) -> int | None:
        """A number that the same writes since `begin` have again, of 32 bits; `None` if there were none."""
        found = None
        for table, access in sorted(self._joined.items()):
            digest = access.digest
            if digest is not None:
                found = zlib.crc32(_TABLE_DIGEST.pack(table, digest), found or 0)
        return found

    @uninterrupted
    def undo(self) -> None:
        """Give up what was written since `begin`, and end the savepoint."""
        mark, self._mark = self._mark, None
        if mark is None:
            raise InvalidOption("nothing is undone without a savepoint: begin() makes one")
        for access in self._joined.values():
            access.undo()
        self._writes.buffer.undo(UNCOMMITTED_EPOCH, mark)

    @uninterrupted
    def freeze(self, batch_id: int) -> "Frozen":
        """Cut here: what was written so far commits as this batch; what comes is part of the next.

        The part before has to be committed, and no savepoint open: `InvalidOption` otherwise.
        """
        self._check_open()
        batch, _ = check_writer(self._request.writer, batch_id)
        if self._mark is not None:
            raise InvalidOption(
                "a savepoint of the delta is open, and what is frozen cannot be undone: keep() or undo()"
            )
        if self._frozen is not None and not self._frozen.is_committed:
            raise InvalidOption("the part of the delta that was frozen before is not committed yet")
        for access in self._accesses.values():
            access.turn()
        self._frozen = Frozen(self._parts, self._writes, replace(self._request, batch_id=batch), self._commit_frozen)
        self._writes = self._parts.writes.beside()
        return self._frozen

    @property
    def opened(self) -> dict[int, str]:
        """By id the tables that were opened, but for shared ones."""
        return {table: self._accesses[table].name for table in self._since}

    @property
    def written(self) -> dict[int, str]:
        """Of these, those that the next part has rows of."""
        for access in self._accesses.values():
            access.flush()
        written = self._writes.buffer.tables_of(UNCOMMITTED_EPOCH)
        return {table: self._accesses[table].name for table in written if table in self._since}

    def check_tables(self) -> None:
        """Raise `Conflict` if somebody else has committed to its tables, as far as is known here; not beside a commit.

        What is known here is at most about a quarter of a second old.
        """
        version = self._parts.backend.recent()
        for table, since in self._since.items():
            state, name = version.tables.get(table), self._accesses[table].name
            if state is None:
                raise Conflict(f"table {name!r} was dropped after epoch {since}, which this delta has read")
            if state.last_epoch > since:
                raise Conflict(
                    f"table {name!r} was read at epoch {since}, and epoch {state.last_epoch} has been committed to it "
                    "since"
                )

    def close(self) -> None:
        """Give up what was not committed; a second call is no error."""
        self._is_over = True
        for access in self._accesses.values():
            access.end()
        self._writes.end_beside()

    def _commit_frozen(self, commit: Callable[[CommitRequest], int], request: CommitRequest) -> int:
        expect = dict(self._since)
        try:
            epoch = self._commit(commit, replace(request, expect=expect))
        except TableNotFound as error:
            gone = [access.name for table, access in self._accesses.items() if table in error.args[1:]]
            if not gone:
                raise
            raise TableNotFound(
                f"table {gone[0]!r} was dropped while {request.writer!r} had rows for it, which are not stored; what "
                "else it has written since its last commit is not, either",
                gone[0],
            ) from error
        # Nobody else had committed to them when this epoch was; a repeated commit has the epoch of the first one.
        self._since.update({table: max(since, epoch) for table, since in expect.items()})
        return epoch

    def _join(self, access: BufferedAccess) -> None:
        """A table is written to: it takes part in the savepoint that is open. The others cost a savepoint nothing."""
        if self._mark is not None:
            self._joined[access.table] = access
            access.begin()

    def _runs(self, table: int) -> tuple[BufferedRun, ...]:
        """The rows of a table that the version may lack, newest first."""
        frozen = self._frozen
        below = () if frozen is None else frozen.runs(table)
        return (*self._writes.buffer.runs(table), *below)

    def _write(self, table: int, rows: Rows) -> None:
        self._writes.write(table, UNCOMMITTED_EPOCH, rows)

    def _check_open(self) -> None:
        self._parts.lifetime.check_usable()
        if self._is_over:
            raise StoreClosed("the delta is closed; begin another one")


class Frozen:
    """A part of a delta that takes no more rows."""

    def __init__(
        self,
        parts: StoreParts,
        writes: Writes,
        request: CommitRequest,
        commit: Callable[[Callable[[CommitRequest], int], CommitRequest], int],
    ) -> None:
        self._parts = parts
        self._writes = writes
        self._request = request
        self._commit = commit
        self._sealed = writes.buffer.seal(UNCOMMITTED_EPOCH)
        self.is_committed = False

    @property
    def nbytes(self) -> int:
        """What its rows take in memory."""
        return self._writes.buffer.nbytes

    def runs(self, table: int) -> tuple[BufferedRun, ...]:
        """The rows of a table; none once a version has them."""
        return self._writes.buffer.runs(table)

    def commit(self) -> int:
        """Make it durable; returns the epoch that holds it. In any thread; a commit that failed may be repeated.

        Raises `Conflict` if somebody else has committed to one of its tables, `Fenced` if the writer's generation is
        no longer the newest, and what the bucket's or the service's absence raises.
        """
        epoch = self._commit(
            lambda request: commit_sealed(
                self._parts, self._writes, self._sealed, request, self._parts.backend.payload_bytes_max
            ),
            self._request,
        )
        self.is_committed = True
        self._writes.buffer.drop(UNCOMMITTED_EPOCH)
        self._writes.end_beside()
        return epoch


class _DeltaViews(TableViews):
    """What a delta sees of one table: all that is committed, and what it has written."""

    def __init__(
        self,
        parts: StoreParts,
        spec: TableSpec,
        runs: Callable[[int], tuple[BufferedRun, ...]],
        check_open: Callable[[], None],
    ) -> None:
        super().__init__(parts.views, spec.id, spec.name)
        self._store_views = parts.views
        self._spec = spec
        self._runs = runs
        self._check_open = check_open

    def epoch_to_read(self, epoch: int | None) -> int | None:
        """The newest; a delta reads at no other epoch, and once it is closed not at all."""
        self._check_open()
        if epoch is not None:
            raise InvalidOption(
                f"table {self._spec.name!r}: a delta reads its newest rows, not those of epoch {show_value(epoch)}"
            )
        return None

    def take(self, epoch: int | None) -> ReadView:  # noqa: ARG002 - there is one
        """The own rows first: a commit adds them to the version before they go from here."""
        own = self._runs(self._spec.id)
        view = self._store_views.committed(self._spec.id, self._spec.name)
        return view._replace(own=own)
