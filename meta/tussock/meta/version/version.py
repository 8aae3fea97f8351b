"""The version: everything that the store is at one point of its log, as one immutable value.

Readers resolve keys on it, compaction picks from it, vacuum compares the bucket with it, and every change of it is
a delta (`deltas/delta.py`) that the log orders. It satisfies `tussock.statestore.contract.backend.VersionView`. The
idea is Hummock's version (the list of SSTs, the newest committed epoch) kept the way LevelDB keeps its own: a state and
a list of edits.

What grows is bounded, or waits for vacuum: the ledger keeps a bounded record of each writer (but the name of each that
has committed, so a stream needs one that lasts), the timeline is thinned, dropped SSTs are forgotten once vacuum has
deleted them, and a dropped table is kept only while a pin may need it, and then leaves only its dropped SSTs.
"""

from bisect import bisect_right
from collections.abc import Callable, Collection, Sequence
from collections.abc import Set as AbstractSet
from typing import Literal

import msgspec

from tussock.meta.version.ledger import Batches, WriterRecord, find_batch
from tussock.meta.version.names import NameOrigin, WriterNames
from tussock.statestore.contract.backend import BackupInfo
from tussock.statestore.contract.losses import AcceptedLoss
from tussock.statestore.contract.records import GoneTable, Run, SstInfo, TableLevels, TableState
from tussock.statestore.contract.renumbered import Renumbered

__all__ = ["CompactionKind", "CompactionTask", "DroppedSst", "Origin", "Version"]

CompactionKind = Literal["l0", "intra-l0", "level", "tombstone", "manual", "trivial-move", "history"]


NAMES_MAX = 10_000
_ids_by_name: dict[str, int] = {}
"""Ids under which tables of these names were found last, of all stores of the process."""

_dropped_ids: "tuple[tuple[DroppedSst, ...], frozenset[str]]" = ((), frozenset())


class CompactionTask(msgspec.Struct, frozen=True, kw_only=True):
    """A claim on SSTs of one table: its owner alone may replace them, until it reports, gives up or expires."""

    id: str
    table_id: int
    kind: CompactionKind
    inputs: tuple[tuple[SstInfo, ...], ...]
    """Sorted runs, newest first. They are found again by SST id: a run's position moves with every commit."""
    target_level: int
    """Where the outputs go: a level from 1, or 0 for one run in place of the inputs, in L0 or in history."""
    bottom: bool
    """No SST outside the task can hold an older row of the inputs' keys, so deletes may vanish."""
    watermark: int
    """In the version: the most that compaction may use. As handed to the compactor: what it has to use."""
    owner: str
    claimed_ms: int
    expires_ms: int
    """After this, by anyone's wall clock, the task may be taken back."""
    parted: bool = False
    """What the merge supersedes goes to history. Else all that a reader may ask for stays in the live tree."""

    def ssts(self) -> list[SstInfo]:
        """All inputs, newest run first."""
        return [sst for run in self.inputs for sst in run]


class DroppedSst(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An SST that left the tree; its objects stay for the grace period, for iterators on older versions."""

    id: str
    seq: int
    """The log entry that dropped it."""
    dropped_ms: int
    source: str = ""
    """As `SstInfo.source`."""
    entry: int = 0
    """As `SstInfo.entry`."""


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """Where a store that did not begin empty came from."""

    kind: Literal["restore", "clone"]
    url: str
    """Of the store that it was made from."""
    backup: str
    """Name of the backup that it began as; empty for a clone of what was the newest version."""
    backup_id: str
    """Id of that backup, or of the hold by which the clone keeps its SSTs."""
    seq: int
    """The version that it began as, by its last log entry there."""


class Version(msgspec.Struct, frozen=True, kw_only=True):
    """One state of the store. The dictionaries are never changed after construction; a delta copies what it changes."""

    seq: int = 0
    """The last log entry in it; 0 for an empty store."""
    max_committed_epoch: int = 0
    safe_epoch: int = 0
    """No new pin below this: compaction may be dropping what is only visible below it.

    Of the tables without their own epochs (`TableState.own_epochs`)."""
    compacted_epoch: int = 0
    """The largest watermark that a finished compaction of theirs used: reads from this epoch on are exact."""
    gc_horizon: str = ""
    """A commit that names an SST id below this is refused; what is below and unnamed is garbage."""
    next_table_id: int = 1
    tables: dict[int, TableState] = {}
    ledger: dict[str, Batches] = {}
    """Per writer the newest batches as (batch id, epoch), ascending."""
    writers: dict[str, WriterRecord] = {}
    """Per writer what else is known of its batches; none of those that an older release wrote last."""
    tasks: dict[str, CompactionTask] = {}
    dropped: tuple[DroppedSst, ...] = ()
    gone_tables: dict[int, GoneTable] | msgspec.UnsetType = msgspec.field(default=msgspec.UNSET, name="gone")
    """As `gone`; never an empty one."""
    timeline: tuple[tuple[int, int], ...] = ()
    """Samples of (commit time in ms, epoch), both ascending; what retention is reckoned by."""
    retention_ms: int = 3_600_000
    """How long epochs stay readable without a pin, for processes that are not told otherwise."""
    gc_grace_ms: int = 900_000
    """How long vacuum leaves alone what was dropped or not committed, for processes that are not told otherwise."""
    term: int = 0
    """The newest term of the meta service that has begun; 0 if none ever led this store."""
    leader: str = ""
    """Which replica leads that term, for people."""
    leader_address: str = ""
    """Where clients find it."""
    generations: dict[str, int] = {}
    """Per writer that was opened the number of its newest generation; older ones can commit nothing."""
    pause: str | None = None
    """Why no compaction is begun; `None` if they are."""

    backups: dict[str, BackupInfo] = {}
    """By name: backups, and holds of clones of this store; those still being made too."""
    origin: Origin | None = None
    """The store that this one was restored or cloned from."""
    sources: dict[str, str] = {}
    """URL of each store whose SSTs this one may name -> name of the hold there that keeps them."""

    repaired: Renumbered | msgspec.UnsetType = msgspec.field(default=msgspec.UNSET, name="renumbered")
    """As `renumbered`."""

    known_names: WriterNames | msgspec.UnsetType = msgspec.field(default=msgspec.UNSET, name="writer_names")
    """As `names`."""

    store_identity: str | msgspec.UnsetType = msgspec.field(default=msgspec.UNSET, name="identity")
    """As `identity`."""

    accepted_losses: tuple[AcceptedLoss, ...] | msgspec.UnsetType = msgspec.field(default=msgspec.UNSET, name="losses")
    """As `losses`; never an empty one."""

    @property
    def identity(self) -> str:
        """Which store this is, wherever its bucket may move: 32 hex digits, by its first backup; empty before that."""
        return self.store_identity or ""

    @property
    def losses(self) -> tuple[AcceptedLoss, ...]:
        """Damaged SSTs that were put aside, the first one first; `deltas/losses.py` says how many are kept."""
        return self.accepted_losses or ()

    @property
    def names(self) -> WriterNames:
        """Where the names of writers come from."""
        return self.known_names or WriterNames()

    @property
    def renumbered(self) -> Renumbered | None:
        """The newest repair of the store's clock that gave epochs other numbers."""
        return self.repaired or None

    @property
    def gone(self) -> dict[int, GoneTable]:
        """Dropped tables, by id, until a vacuum finds that no pin needs them; their SSTs are not `dropped` before."""
        return self.gone_tables or {}

    def quarantined(self) -> list[SstInfo]:
        """The damaged SSTs whose objects are kept, though no reader has them any more."""
        return [one.sst for one in self.losses if not one.discarded]

    def quarantined_ids(self) -> set[str]:
        """Their ids."""
        return {sst.id for sst in self.quarantined()}

    def with_gone(self, gone: dict[int, GoneTable]) -> "Version":
        """The version with these as its gone tables."""
        return msgspec.structs.replace(self, gone_tables=gone or msgspec.UNSET)

    def knows_writer(self, name: str) -> bool:
        """Whether the name was opened, or has committed, and was not forgotten."""
        return name in self.ledger or name in self.generations

    def newest_generation(self, writer: str) -> int:
        """The generation after which the next one of this writer comes."""
        return self.generations.get(writer) or self.names.generation_floor

    def with_name(self, writer: str, origin: NameOrigin) -> "Version":
        """The version that notes who brought that name."""
        names = self.names
        noted = msgspec.structs.replace(names, origins={**names.origins, writer: origin})
        return msgspec.structs.replace(self, known_names=noted)

    def find_table(self, name: str) -> TableState | None:
        """The table of that name, if there is one."""
        if not isinstance(name, str):  # other classes may make anything of a comparison
            return None
        # Asked at every commit, of a thousand tables maybe, and a name rarely means another table than last time.
        known = self.tables.get(_ids_by_name.get(name, 0))
        if known is not None and known.spec.name == name:
            return known
        found = next((state for state in self.tables.values() if state.spec.name == name), None)
        if found is not None:
            if len(_ids_by_name) >= NAMES_MAX:
                _ids_by_name.clear()
            _ids_by_name[name] = found.spec.id
        return found

    def safe_epoch_of(self, state: TableState) -> int:
        """No new pin keeps anything of the table below this: compaction may be dropping it."""
        return state.own_epochs[0] if state.own_epochs else self.safe_epoch

    def compacted_epoch_of(self, state: TableState) -> int:
        """The largest watermark that a compaction of the table may have used: reads of it from there on are exact."""
        return state.own_epochs[1] if state.own_epochs else self.compacted_epoch

    def with_safe_epoch(self, table: int, epoch: int) -> "Version":
        """The version with that safe epoch, of a table with its own epochs, or for 0 of all others."""
        if not table:
            return msgspec.structs.replace(self, safe_epoch=epoch)
        return self._with_own_epochs(table, epoch, self.compacted_epoch_of(self.tables[table]))

    def with_compacted(self, table: int, epoch: int) -> "Version":
        """The version that notes a watermark that was used: of that table or, where it has no own epochs, of all such.

        0: of all tables that have none.
        """
        state = self.tables.get(table)
        if state is None or not state.own_epochs:
            return msgspec.structs.replace(self, compacted_epoch=max(self.compacted_epoch, epoch))
        safe, compacted = state.own_epochs
        return self._with_own_epochs(table, safe, max(compacted, epoch))

    def _with_own_epochs(self, table: int, safe: int, compacted: int) -> "Version":
        state = msgspec.structs.replace(self.tables[table], own_epochs=(safe, compacted))
        return msgspec.structs.replace(self, tables={**self.tables, table: state})

    def retention_epoch(self, now_ms: int, retention_ms: int) -> int:
        """The newest epoch committed at or before `now_ms - retention_ms`; 0 if none is that old.

        Time comes from the timeline, since epochs may be small numbers that a user chose. A thinned timeline
        gives an older epoch than the exact one, which only keeps more.
        """
        count = bisect_right(self.timeline, now_ms - retention_ms, key=lambda sample: sample[0])
        return self.timeline[count - 1][1] if count else 0

    def oldest_readable(self, state: TableState | None, now_ms: int, retention_ms: int) -> int:
        """The smallest epoch of a table that may be read without a pin; `None`: of one with the store's retention.

        `retention_ms` is that of such tables.
        """
        if state is None:
            return max(self.safe_epoch, self.retention_epoch(now_ms, retention_ms))
        own_ms = state.spec.retention_ms
        return max(self.safe_epoch_of(state), self.retention_epoch(now_ms, retention_ms if own_ms is None else own_ms))

    def committed_epoch_of(
        self, writer: str, batch_id: int, source: str | None = None, tables: Collection[int] = ()
    ) -> int | None:
        """The epoch that holds this batch of the writer, or `None` if it is still to come; see `ledger.find_batch`."""
        batches = self.ledger.get(writer, ())
        named = {table: self.tables[table].spec.name if table in self.tables else f"id {table}" for table in tables}
        return find_batch(writer, batch_id, batches, self.writers.get(writer), source, named)

    def ssts(self) -> list[SstInfo]:
        """All SSTs of tables that are there, in their trees and in history."""
        return [sst for state in self.tables.values() for sst in state.levels.ssts()]

    def kept_ssts(self) -> list[SstInfo]:
        """All SSTs that can be read: those in the trees, and of dropped tables that a pin may need."""
        return self.ssts() + [sst for gone in self.gone.values() for sst in gone.state.levels.ssts()]

    def live_sst_ids(self) -> set[str]:
        """Ids of all SSTs that can be read."""
        return {sst.id for sst in self.kept_ssts()}

    def dropped_sst_ids(self) -> AbstractSet[str]:
        """Ids of all SSTs that left the tree and whose objects may still be there."""
        # Asked at every commit, and the same until the next compaction ends; so the last answer is kept, for all
        # callers.
        global _dropped_ids
        dropped, ids = _dropped_ids
        if dropped is not self.dropped:
            known = len(dropped)
            if 0 < known < len(self.dropped) and self.dropped[known - 1] is dropped[-1]:
                # As a rule some were appended, and joining sets is ten times as fast as making one.
                ids = ids.union([sst.id for sst in self.dropped[known:]])
            else:
                ids = frozenset(sst.id for sst in self.dropped)
            _dropped_ids = self.dropped, ids
        return ids

    def with_ssts_dropped(self, ssts: Sequence[SstInfo], at_ms: int, seq: int = 0) -> "Version":
        """The version that notes these SSTs as dropped by entry `seq`, by default the one that comes after it."""
        seq = seq or self.seq + 1
        fresh = tuple(
            DroppedSst(id=sst.id, seq=seq, dropped_ms=at_ms, source=sst.source, entry=sst.entry) for sst in ssts
        )
        return msgspec.structs.replace(self, dropped=self.dropped + fresh) if fresh else self

    def with_ssts_changed(self, change: Callable[[SstInfo], SstInfo]) -> "Version":
        """The version with each SST of its tables as the function makes it."""

        def run(old: Run) -> Run:
            return Run(ssts=tuple(map(change, old.ssts)))

        def table(state: TableState) -> TableState:
            tree = state.levels
            levels = tuple(tuple(map(change, level)) for level in tree.levels)
            changed = TableLevels(l0=tuple(map(run, tree.l0)), levels=levels, history=tuple(map(run, tree.history)))
            return msgspec.structs.replace(state, levels=changed)

        return msgspec.structs.replace(self, tables={key: table(state) for key, state in self.tables.items()})
