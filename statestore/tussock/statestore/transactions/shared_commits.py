"""Small transactions that end at the same time commit together: one epoch, one SST for each table, one log entry.

While one commit is on its way, those that end meanwhile wait; then one of them commits for all. It first waits, for no
longer than the last commit took, until as many have ended as were there then: threads that go on once their commit is
in. Without that they split in two halves which take turns, and each commit has half of what it could have. A single
thread waits for nobody.

Within a group the order is that of their ends: one that depends on what an earlier one writes is left to the next
group, which finds the conflict as with any other commit. So the result is that of the transactions one after the other,
and a commit costs little more than for one of them.
"""

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from msgspec.structs import replace

from tussock.statestore.base.together import JointCall, Together
from tussock.statestore.commits import commit_sealed
from tussock.statestore.contract.backend import PAYLOAD_BYTES_MAX, CommitRequest, VersionView
from tussock.statestore.errors import Conflict, ObjectStoreUnavailable, TableNotFound, TussockError
from tussock.statestore.parts import StoreParts
from tussock.statestore.rows.rows import Rows
from tussock.statestore.transactions.read_set import ReadSet
from tussock.statestore.transactions.recent_keys import RecentKeys
from tussock.statestore.write.loose_rows import RowsAlone
from tussock.statestore.write.writes import UNCOMMITTED_EPOCH, Writes

__all__ = ["COMMIT_ATTEMPTS", "Ending", "SharedCommits", "Written"]

COMMIT_ATTEMPTS = 100
"""Of transactions whose tables are committed to all the time, without an overlap."""
TOGETHER_MAX = 64
"""Transactions in one commit."""
BYTES_MAX = 32 << 10
"""Of the rows of a transaction; larger ones commit alone."""

GATHER_SECONDS_MAX = 0.02
"""For which a commit waits, at most, for those that were there at the one before it."""

Written: TypeAlias = list[Rows] | RowsAlone
"""Of one table: sorted runs, the oldest first, or a few rows by their keys."""

RunCommit = Callable[[Callable[[CommitRequest], int], CommitRequest], int]


class Dependency(NamedTuple):
    """A table of a transaction."""

    table: int
    noted: ReadSet
    """What of it must not have been committed to since."""


class Ending(JointCall):
    """A transaction at its end; its own thread waits in `SharedCommits.commit`."""

    def __init__(
        self,
        since: int,
        rows: Mapping[int, Written],
        depends: Iterable[Dependency],
        check: Callable[[VersionView], None],
    ) -> None:
        """`rows`: by table. `check` raises `Conflict` if what came after `since` overlaps."""
        super().__init__()
        self.since = since
        self.rows = rows
        self.depends = list(depends)
        self.check = check
        self.epoch = 0
        self.error: BaseException | None = None
        self._keys: dict[int, frozenset[bytes]] = {}

    def succeed(self, epoch: int) -> None:
        """It holds at that epoch."""
        self.epoch = epoch
        self.done = True

    def fail(self, error: BaseException) -> None:
        """It did not happen, or nobody knows; a program may stop to think about that."""
        self.error = error
        self.comes_again = False
        self.done = True

    def keys(self) -> dict[int, frozenset[bytes]]:
        """What it writes, by table."""
        if not self._keys:
            self._keys = {table: _keys_of(rows) for table, rows in self.rows.items()}
        return self._keys

    def is_touched_by(self, written: Mapping[int, set[bytes]]) -> bool:
        """Whether it depends on one of these keys."""
        return any(one.noted.holds(written[one.table]) for one in self.depends if one.table in written)


class SharedCommits:
    """Where the small transactions of one store meet as they end."""

    def __init__(self, parts: StoreParts) -> None:
        self._parts = parts
        self._together = Together[Ending](
            parts.system,
            GATHER_SECONDS_MAX,
            _abandon,
            calls_max=TOGETHER_MAX,
            size_max=TOGETHER_MAX * BYTES_MAX,
            as_the_last=True,
        )
        self.recent = RecentKeys()

    def commit(self, ending: Ending, run: RunCommit, request: CommitRequest) -> int:
        """Commit a transaction, maybe with others; returns the epoch that holds, or raises as a commit alone does."""
        self._together.carry_out([ending], lambda group: self._commit_all(group, run, request))
        if ending.error is not None:
            raise ending.error
        return ending.epoch

    def _commit_all(self, group: Sequence[Ending], run: RunCommit, request: CommitRequest) -> None:
        try:
            self._commit_group(group, run, request)
        except TussockError as error:
            _fail(group, error)
        except BaseException as error:
            _fail(group, _interruption() if not isinstance(error, Exception) else error)
            raise

    def _commit_group(self, group: Sequence[Ending], run: RunCommit, request: CommitRequest) -> None:
        """Commit those that go together, or tell them why not; the others are left as they are."""
        together: list[Ending] = []
        written: dict[int, set[bytes]] = {}
        for ending in group:
            if not ending.is_touched_by(written):
                together.append(ending)
                for table, keys in ending.keys().items():
                    written.setdefault(table, set()).update(keys)
        epoch = run(lambda drawn: self._commit_rows(together, drawn), request) if together else 0
        for ending in together:
            if not ending.done:
                ending.succeed(epoch)

    def _commit_rows(self, together: list[Ending], request: CommitRequest) -> int:
        version: VersionView = self._parts.backend.recent()
        for _ in range(COMMIT_ATTEMPTS):
            _check(together, version)
            fit = [ending for ending in together if not ending.done]
            if not fit:
                return version.max_committed_epoch
            try:
                return self._commit_fit(fit, version, request)
            except (Conflict, TableNotFound):
                version = self._parts.views.refresh()
        raise Conflict(
            f"the tables that this transaction depends on were committed to {COMMIT_ATTEMPTS} times while it "
            "committed; nothing of it is visible: run it again"
        )

    def _commit_fit(self, fit: list[Ending], version: VersionView, request: CommitRequest) -> int:
        """Commit endings that nothing in a version stands against, on that version."""
        expect = {one.table: version.max_committed_epoch for ending in fit for one in ending.depends}
        writes = self._parts.writes.beside()
        try:
            for ending in fit:
                for table, rows in ending.rows.items():
                    _write(writes, table, rows)
            sealed = writes.buffer.seal(UNCOMMITTED_EPOCH)
            epoch = commit_sealed(self._parts, writes, sealed, replace(request, expect=expect), PAYLOAD_BYTES_MAX)
        finally:
            writes.end_beside()
        for table, uploaded in sealed.uploaded.items():
            ssts = [sst.id for one in uploaded for sst in one.ssts]
            if len(ssts) == 1:
                self.recent.note(ssts[0], frozenset().union(*(one.keys().get(table, ()) for one in fit)))
        return epoch


def _check(together: Iterable[Ending], version: VersionView) -> None:
    for ending in together:
        if not ending.done:
            try:
                ending.check(version)
            except TussockError as error:
                ending.fail(error)


def _write(writes: Writes, table: int, rows: Written) -> None:
    if isinstance(rows, RowsAlone):
        # All such rows become one run, by the way in which those of one transaction would.
        writes.write_alone(table, UNCOMMITTED_EPOCH, list(rows.by_key.items()), rows.encode)
        return
    for run in rows:
        writes.write(table, UNCOMMITTED_EPOCH, run)


def _keys_of(rows: Written) -> frozenset[bytes]:
    if isinstance(rows, RowsAlone):
        return frozenset(rows.by_key)
    return frozenset(key for run in rows for key in run.keys.to_pylist())


def _fail(group: Iterable[Ending], error: BaseException) -> None:
    """Tell all of them; each raises its own error, as one traceback cannot belong to two threads."""
    for ending in group:
        if not ending.done:
            ending.fail(copy.copy(error))


def _abandon(group: Iterable[Ending]) -> None:
    """It is not known what became of them."""
    _fail(group, _interruption())


def _interruption() -> ObjectStoreUnavailable:
    return ObjectStoreUnavailable(
        "the thread that committed this transaction together with others was interrupted: it is not known whether they "
        "hold; give transactions a writer and a batch_id to find out by repeating them"
    )
